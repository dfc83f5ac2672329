"""Tasks that end their process, hang or leave; workers that are killed. All processes are real."""

import os
import signal
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import dask
import distributed
import pytest

from arviz_swiss.parallel import given_executors
from arviz_swiss.parallel.executors import Lazy, Portable, run
from arviz_swiss.parallel.outcomes import ProcessEnded, TooLong
from arviz_swiss.parallel.own_processes import OwnProcesses


def call(function):
    return function()


def outcomes_of(tasks, executor=None, **options):
    return dict(run(call, {k: Portable(task) for k, task in tasks.items()}, executor, **options))


@pytest.fixture(scope="module")
def cluster():
    # on a busy machine a worker takes longer than Dask's 15 seconds to be back
    patience = dask.config.set({"distributed.deploy.lost-worker-timeout": "10 minutes"})
    workers = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with patience, distributed.LocalCluster(**workers) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        yield client


def kill_one(client):
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


def crash_compiled_code():
    import ctypes

    ctypes.string_at(0)


@pytest.mark.parametrize("end", [lambda: os._exit(3), crash_compiled_code], ids=["exit", "crash"])
def test_a_task_that_ends_its_process_is_named_and_costs_no_other(end, tmp_path):
    def count_and_end():
        (tmp_path / str(os.getpid())).touch()
        end()

    tasks = {f"b{position}": os.getpid for position in range(6)}
    tasks = {"b0": count_and_end, **{k: task for k, task in tasks.items() if k != "b0"}}
    outcomes = outcomes_of(tasks)
    assert [label for label in outcomes if outcomes[label].error] == ["b0"]
    assert isinstance(outcomes["b0"].error, ProcessEnded)
    assert "Memory is the likely cause: pass more batches=" in str(outcomes["b0"].error)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_process_that_ends_once_is_replaced(tmp_path):
    def end_once():
        if not (tmp_path / "begun").exists():
            (tmp_path / "begun").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"

    assert outcomes_of({"b0": end_once})["b0"].result == "done"


def test_a_process_that_grows_by_what_compiling_takes_is_kept():
    def grow():
        # loky, which replaces processes that grow, looks at most once a second
        time.sleep(1.1)
        sys.held = b"x" * (4 * 10**8)
        return os.getpid()

    processes = OwnProcesses(1, timeout=None)
    try:
        found = []
        for _ in range(2):
            future = processes.submit(call, "b0", Portable(grow))
            future.exception()
            found.append(processes.outcome(future, "b0").result)
            time.sleep(1)  # in which it would end
    finally:
        processes.close()
    assert found[0] == found[1]


@pytest.mark.parametrize("where", ["own", "threads", "dask"])
@pytest.mark.parametrize("leave", [SystemExit, KeyboardInterrupt])
def test_leaving_a_worker_is_the_failure_of_the_task(request, where, leave):
    def end():
        raise leave("enough")

    tasks = {"b0": end, "b1": lambda: "done"}
    with ThreadPoolExecutor(1) as threads:
        executor = {"own": None, "threads": threads}.get(where)
        executor = request.getfixturevalue("client") if where == "dask" else executor
        outcomes = outcomes_of(tasks, executor)
    assert outcomes["b1"].result == "done"
    assert isinstance(outcomes["b0"].error, RuntimeError)
    assert f"{leave.__name__}(enough) was raised in its worker" in str(outcomes["b0"].error)


def test_a_task_that_hangs_is_ended_and_the_others_are_done(tmp_path):
    def hang():
        (tmp_path / str(os.getpid())).touch()
        time.sleep(600)

    tasks = {"hanging": hang, **{f"b{position}": os.getpid for position in range(4)}}
    outcomes = outcomes_of(tasks, timeout=5)
    assert isinstance(outcomes.pop("hanging").error, TooLong)
    assert all(outcome.error is None for outcome in outcomes.values())
    (process,) = tmp_path.iterdir()
    with pytest.raises(ProcessLookupError):
        os.kill(int(process.name), 0)


def test_a_task_that_hangs_in_a_thread_is_left_behind():
    ended = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        outcomes = outcomes_of({"hanging": ended.wait, "b1": lambda: 1}, threads, timeout=0.5)
        ended.set()
    assert "not done after timeout=0.5 seconds" in str(outcomes["hanging"].error)
    assert outcomes["b1"].result == 1


def test_a_dask_worker_where_a_task_hangs_is_begun_anew(client):
    def processes():
        return set(client.run(os.getpid, on_error="ignore").values())

    before = processes()
    outcomes = outcomes_of({"hanging": lambda: time.sleep(600), "b1": int}, client, timeout=2)
    assert isinstance(outcomes["hanging"].error, TooLong)
    assert outcomes["b1"].result == 0
    deadline = time.monotonic() + 60
    while len(now := processes()) < 2 or now == before:
        assert time.monotonic() < deadline
        time.sleep(0.5)


@pytest.mark.parametrize("where", ["own", "threads", "dask"])
def test_few_tasks_are_made_before_they_can_run(request, where):
    made, done = [], []

    def make(label):
        made.append(label)
        assert len(made) - len(done) <= 2 * 2 + 1
        return Portable(int)

    labels = [f"b{position}" for position in range(20)]
    with ThreadPoolExecutor(2) as threads:
        executor = {"own": None, "threads": threads}.get(where)
        executor = request.getfixturevalue("client") if where == "dask" else executor
        for label, outcome in run(call, Lazy(labels, make), executor):
            assert outcome.error is None, outcome.error
            done.append(label)
    assert made == labels
    assert sorted(done) == sorted(labels)


def test_a_task_that_cannot_be_made_is_its_own_failure():
    def make(label):
        if label == "b1":
            raise FileNotFoundError("b1.parquet")
        return Portable(int)

    outcomes = dict(run(call, Lazy(["b0", "b1", "b2"], make)))
    assert isinstance(outcomes["b1"].error, FileNotFoundError)
    assert outcomes["b0"].result == outcomes["b2"].result == 0


def test_a_broken_pool_of_the_user_says_what_to_do():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        outcomes = dict(run(os._exit, {"b0": Portable(3)}, pool))
    assert "a process of the executor ended" in str(outcomes["b0"].error)
    assert "With executor=None only the batch that ends its process is lost" in str(
        outcomes["b0"].error
    )


def test_a_killed_dask_worker_costs_nothing(client):
    tasks = {f"b{position}": Portable(lambda: time.sleep(1) or "done") for position in range(5)}
    outcomes = run(call, tasks, client)
    assert next(outcomes)[1].result == "done"
    kill_one(client)
    assert [outcome.result for _, outcome in outcomes] == 4 * ["done"]


def test_dask_gives_up_a_task_that_ends_its_workers_and_the_cause_is_said(
    client, cluster, monkeypatch
):
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)
    error = outcomes_of({"b0": lambda: os._exit(3)}, client)["b0"].error
    assert isinstance(error, ProcessEnded)
    assert "distributed.scheduler.allowed-failures" in str(error)
    assert "Memory is the likely cause" in str(error)


def test_nothing_is_left_on_the_cluster(client, cluster):
    outcomes = outcomes_of({f"b{position}": os.getpid for position in range(5)}, client)
    assert len(outcomes) == 5
    deadline = time.monotonic() + 20
    while cluster.scheduler.tasks:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_tasks_go_to_the_workers_that_have_what_they_need(client):
    addresses = list(client.scheduler_info()["workers"])
    homes = {f"b{position}": addresses[position % 2] for position in range(6)}
    outcomes = outcomes_of(dict.fromkeys(homes, os.getpid), client, homes=homes)
    assert {label: outcome.worker for label, outcome in outcomes.items()} == homes


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(given_executors, "LOOK", 0.2)
    monkeypatch.setattr(given_executors, "SAID_AFTER", 0.5)


def without_workers(cluster, client):
    cluster.scale(0)
    while client.nthreads():
        time.sleep(0.1)


def test_without_workers_it_is_said_once_and_goes_on_when_some_return(
    client, cluster, impatient, caplog
):
    without_workers(cluster, client)
    said = []

    def say(message):
        if message:
            cluster.scale(2)
        said.append(message)

    outcomes = dict(run(call, {"b0": Portable(int), "b1": Portable(int)}, client, say=say))
    assert [outcome.result for outcome in outcomes.values()] == [0, 0]
    assert said == [given_executors.NO_WORKERS, ""]
    assert caplog.text.count(given_executors.NO_WORKERS) == 1


def test_without_workers_it_is_given_up_after_a_stated_time(client, cluster, impatient):
    outcomes = run(
        call,
        {"b0": Portable(int), "b1": Portable(lambda: time.sleep(600)), "b2": Portable(int)},
        client,
    )
    first, outcome = next(outcomes)
    assert outcome.result == 0
    without_workers(cluster, client)
    time.sleep(3)  # of a caller who is busy, which does not count
    begun = time.monotonic()
    with dask.config.set({"distributed.scheduler.no-workers-timeout": "2s"}):
        others = dict(outcomes)
    assert time.monotonic() - begun > 2
    cluster.scale(2)
    assert {first, *others} == {"b0", "b1", "b2"}
    message = "the Dask cluster has had no workers for 2 seconds"
    assert message in str(others["b1"].error)

"""Tasks on real pools: processes, threads, Dask; what is carried, what comes back, what is left."""

import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from types import ModuleType

import distributed
import pytest

from arviz_swiss.parallel import outcomes
from arviz_swiss.parallel.executors import Lazy, Portable, own_threads, raise_if_abandoned, run
from arviz_swiss.parallel.outcomes import ProcessEnded

OFFSET = 10


def call(function):
    return function()


def add(x):
    return x + OFFSET


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(params=["own", "processes", "threads", "dask"])
def executor(request):
    if request.param == "own":
        yield None
    elif request.param == "dask":
        yield request.getfixturevalue("client")
    else:
        # not forked: this process has threads, and a lock that one holds stays locked in the child
        spawn = multiprocessing.get_context("spawn")
        make = {
            "processes": functools.partial(ProcessPoolExecutor, mp_context=spawn),
            "threads": ThreadPoolExecutor,
        }
        with make[request.param](2) as pool:
            yield pool


class Strange(Exception):
    """An exception that pickle can write but not read."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def test_every_executor_runs_closures_and_functions_of_this_module(executor):
    power = 3

    def fail():
        raise Strange("one", "two")

    def late():
        time.sleep(0.5)
        return "late"

    tasks = {
        "late": late,
        "closure": lambda: 2**power,
        "module": functools.partial(add, 1),
        "failing": fail,
        "process": os.getpid,
    }
    tasks = {label: Portable(task, by_value=add) for label, task in tasks.items()}

    outcomes = dict(run(call, tasks, executor))

    assert set(outcomes) == set(tasks)
    assert outcomes["late"].result == "late"
    assert outcomes["closure"].result == 8
    assert outcomes["module"].result == 11
    assert "one and two" in str(outcomes["failing"].error)
    assert "in fail" in "".join(outcomes["failing"].error.__notes__)
    in_this_process = isinstance(executor, ThreadPoolExecutor)
    assert (outcomes["process"].result == os.getpid()) == in_this_process


def test_an_executor_that_was_passed_in_is_left_running():
    with ThreadPoolExecutor(1) as pool:
        list(run(call, {"b0": Portable(int)}, pool))
        assert pool.submit(int).result() == 0


@pytest.mark.parametrize("kind", ["threads", "dask"])
def test_executor_that_was_shut_down(kind, client):
    if kind == "threads":
        closed = ThreadPoolExecutor(1)
        closed.shutdown()
    else:
        closed = distributed.Client(client.cluster)
        closed.close()
    with pytest.raises(RuntimeError, match=r"batch b0 could not be submitted.*running"):
        list(run(call, {"b0": Portable(int)}, closed))


def test_threads_shut_down_while_running():
    pool = ThreadPoolExecutor(1)
    submitted = threading.Event()

    def first():
        submitted.wait()
        pool.shutdown(wait=False, cancel_futures=True)
        return "done"

    def last():
        raise AssertionError("it was cancelled")

    def make(label):
        if label == "b0":
            return Portable(first)
        # the first waits until this one, too, is in the pool's queue
        threading.Timer(0.5, submitted.set).start()
        return Portable(last)

    outcomes = dict(run(call, Lazy(["b0", "b1"], make), pool))
    assert outcomes["b0"].result == "done"
    assert "shut down" in str(outcomes["b1"].error)


def test_threads_shut_down_while_submitting():
    pool = ThreadPoolExecutor(1)

    def make(label):
        if label == "b1":
            pool.shutdown(wait=False)
        return Portable(lambda: "done")

    outcomes = dict(run(call, Lazy(["b0", "b1"], make), pool))
    assert outcomes["b0"].result == "done"
    assert "batch b1 could not be submitted" in str(outcomes["b1"].error)


def test_dask_client_closed_while_running(client):
    other = distributed.Client(client.cluster)
    outcomes = run(call, {"b0": Portable(int), "b1": Portable(lambda: time.sleep(60))}, other)
    assert next(outcomes)[0] == "b0"
    other.close()
    assert "shut down" in str(next(outcomes)[1].error)


def test_executors_that_cannot_run_anything():
    with pytest.raises(TypeError, match=r"concurrent.futures.Executor or .*got 'int'"):
        list(run(call, {"b0": Portable(int)}, 4))


def test_a_worker_that_dies_is_an_outcome_and_what_is_done_is_kept(tmp_path):
    def die():
        while not (tmp_path / "now").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

    tasks = {"b0": Portable(lambda: os.environ["OMP_NUM_THREADS"]), "b1": Portable(die)}
    outcomes = run(call, tasks)
    assert next(outcomes)[1].result == "1"  # a thread a process, and a process a core
    (tmp_path / "now").touch()
    label, outcome = next(outcomes)
    assert label == "b1"
    assert isinstance(outcome.error, ProcessEnded)
    assert "SIGKILL" in outcome.error.__notes__[0]


def test_stopping_early_ends_the_workers(tmp_path):
    def slow(name):
        (tmp_path / name).write_text(str(os.getpid()))
        time.sleep(60)

    names = [f"b{position}" for position in range(3 * os.cpu_count())]
    tasks = {name: Portable(functools.partial(slow, name)) for name in names}
    tasks = {"quick": Portable(int), **tasks}
    outcomes = run(call, tasks)
    assert next(outcomes)[0] == "quick"
    started = time.monotonic()
    outcomes.close()
    assert time.monotonic() - started < 20
    begun = [int(path.read_text() or 0) for path in tmp_path.iterdir()]
    assert len(begun) < len(names)
    assert not any(is_running(pid) for pid in begun if pid)


def test_own_threads_are_abandoned_by_who_leaves_early():
    begun, ended = [], []

    def slow():
        begun.append(threading.current_thread())
        try:
            while True:
                raise_if_abandoned()
                time.sleep(0.01)
        finally:
            ended.append(threading.current_thread())

    tasks = {f"b{position}": Portable(slow) for position in range(3 * os.cpu_count())}
    raise_if_abandoned()  # nothing, here
    with pytest.raises(KeyboardInterrupt), own_threads(len(tasks)) as pool:
        outcomes = run(call, {"quick": Portable(os.getpid), **tasks}, pool)
        assert next(outcomes)[1].result == os.getpid()
        raise KeyboardInterrupt
    for thread in begun:
        thread.join(timeout=20)
    assert 0 < len(begun) <= os.cpu_count()
    assert set(ended) == set(begun)


SCRIPT = """
import os, signal, sys, time
# shells start background jobs with interrupts ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path[:0] = {path!r}
from arviz_swiss.parallel.executors import Portable, own_threads, raise_if_abandoned, run

def call(function):
    return function()

def task():
    print("worker", os.getpid(), flush=True)
    time.sleep({seconds})
    return os.getpid()

print("main", flush=True)
print([outcome for _, outcome in run({function}, {{"b0": Portable(task)}})], flush=True)
"""


def start_script(tmp_path, seconds):
    # operator.methodcaller is importable in the worker, `call` of the script is not
    function = "__import__('operator').methodcaller('__call__')"
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(path=sys.path, seconds=seconds, function=function))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, script], text=True, **pipes)


def test_a_script_needs_no_main_guard_and_runs_once(tmp_path):
    process = start_script(tmp_path, 0)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert output.count("main") == 1
    assert "Outcome(result=" in output


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_when_their_parent_is_killed_or_interrupted(tmp_path, how):
    with start_script(tmp_path, 600) as process:
        try:
            assert process.stdout.readline() == "main\n"
            worker = int(process.stdout.readline().split()[1])
            process.send_signal(how)
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
    assert ("KeyboardInterrupt" in errors) == (how == signal.SIGINT)
    deadline = time.monotonic() + 20
    while is_running(worker):
        assert time.monotonic() < deadline, "the worker outlives its parent"
        time.sleep(0.1)


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_thread_that_runs_while_another_imports_dask_is_on_no_worker(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", ModuleType("distributed"))
    outcome = outcomes.call(Portable(len), Portable("abc"))
    assert outcome == outcomes.Outcome(result=3)

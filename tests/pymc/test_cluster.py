"""Every stage on a Dask cluster of separate processes, one of which is killed while it works."""

import os
import signal

import dask
import distributed
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from batch_models import build
from group_models import make_groups, normal_groups

import arviz_swiss as az_swiss
from arviz_swiss.correcting.evaluation import Request, evaluating
from arviz_swiss.data import containers
from arviz_swiss.pymc import sample_batches

QUIET = {"progressbar": False, "random_seed": 3}
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"x": RNG.normal(size=1200)})
TABLE["y"] = 1 + 2 * TABLE["x"] + RNG.normal(size=1200)


@pytest.fixture(scope="module")
def cluster():
    # by default Dask gives up a worker whose process is not back after 15 seconds, as on a busy
    # machine it may not be
    patience = dask.config.set({"distributed.deploy.lost-worker-timeout": "10 minutes"})
    workers = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with patience, distributed.LocalCluster(**workers) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster) as client:
        client.wait_for_workers(2, timeout=120)
        yield client


class KillAfter(distributed.SchedulerPlugin):
    """Kill a worker that is at work, once so many tasks are done."""

    def __init__(self, tasks, scheduler, processes):
        self.left, self.scheduler, self.processes = tasks, scheduler, processes
        self.killed = []

    def transition(self, key, start, finish, *args, **kwargs):
        self.left -= finish == "memory"
        busy = [w.address for w in self.scheduler.workers.values() if w.processing]
        if self.left <= 0 and busy and not self.killed:
            self.killed.append(busy[0])
            os.kill(self.processes[busy[0]], signal.SIGKILL)


@pytest.fixture
def kill_after(client, cluster):
    """Return a function that has a worker killed after so many tasks from now on."""
    plugins = {}

    def plan(tasks):
        plugin = KillAfter(tasks, cluster.scheduler, client.run(os.getpid))
        plugins[f"kill {len(plugins)}"] = plugin
        cluster.scheduler.add_plugin(plugin, name=f"kill {len(plugins) - 1}")

    yield plan
    for name, plugin in plugins.items():
        cluster.scheduler.remove_plugin(name)
        assert plugin.killed, "no worker was killed: the test tests nothing"


def groups_of(merged):
    return containers.read(merged).groups


def assert_same(found, expected):
    for group in ("posterior", "swiss_transform"):
        xr.testing.assert_allclose(groups_of(found)[group], groups_of(expected)[group])


class Counting:
    """A density that leaves a sign whenever a process gets it."""

    def __init__(self, scale, folder):
        self.scale, self.folder, self.home = scale, folder, os.getpid()

    def __setstate__(self, state):
        self.__dict__ = state
        assert os.getpid() != self.home, "the scheduler, which is in this process, has opened it"
        (self.folder / f"{self.scale}-{os.urandom(4).hex()}").touch()

    def log_likelihood(self, x):
        return -self.scale * (x**2).sum(axis=1)


def test_a_density_goes_to_the_cluster_once(client, tmp_path):
    densities = {f"b{scale}": Counting(scale, tmp_path) for scale in range(1, 5)}
    points = np.ones((3, 2))
    with evaluating(densities, None, client) as evaluate:
        for _ in range(6):
            answers = evaluate({label: [Request("log_likelihood", points)] for label in densities})
    assert {label: values[0].tolist() for label, values in answers.items()} == {
        f"b{scale}": 3 * [-2.0 * scale] for scale in range(1, 5)
    }
    # another time only where Dask gives a task to a worker that has nothing to do
    assert 4 <= len(list(tmp_path.iterdir())) <= 6


@pytest.mark.slow
def test_a_worker_killed_while_batches_are_sampled(client, kill_after, tmp_path):
    settings = {**QUIET, "batches": 5, "nuts_sampler": "pymc", "draws": 50, "tune": 50, "chains": 1}
    kill_after(1)
    idatas = sample_batches(build, TABLE, executor=client, folder=tmp_path, **settings)
    assert [idata["posterior"].attrs["swiss_batch"] for idata in idatas] == [
        f"b{position}" for position in range(5)
    ]
    assert {f"b{position}.nc" for position in range(5)} <= {p.name for p in tmp_path.iterdir()}


@pytest.fixture(scope="module")
def finished():
    return az_swiss.sample(build, TABLE, batches=4, draws=400, **QUIET)


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [1, 6, 30])
def test_a_worker_killed_in_any_stage_of_sample(client, kill_after, finished, tasks):
    """The pilot takes the first tasks; batches, refine and certify the later ones."""
    kill_after(tasks)
    found = az_swiss.sample(build, TABLE, batches=4, draws=400, executor=client, **QUIET)
    assert_same(found, finished)


@pytest.mark.slow
def test_a_worker_killed_while_refining_and_another_while_certifying(client, kill_after):
    idatas = sample_batches(
        build, TABLE, batches=4, draws=300, tune=300, chains=2, nuts_sampler="nutpie", **QUIET
    )
    merged = az_swiss.merge(idatas, model=build(TABLE))
    source = {"build": build, "data": TABLE, **QUIET}
    refined = az_swiss.refine(merged, **source)
    certified = az_swiss.certify(refined, **source)

    kill_after(2)
    again = az_swiss.refine(merged, executor=client, **source)
    assert_same(again, refined)
    client.wait_for_workers(2, timeout=120)
    kill_after(2)
    again = az_swiss.certify(again, executor=client, **source)
    for name in ("khat", "log_weight"):
        if name in groups_of(certified)["swiss_certificate"]:
            np.testing.assert_allclose(
                groups_of(again)["swiss_certificate"][name],
                groups_of(certified)["swiss_certificate"][name],
                rtol=1e-6,
            )


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [2, 8])
def test_a_worker_killed_in_rounds_over_groups(client, kill_after, tasks):
    table = make_groups(groups=24)
    settings = {"groups": "site", "batches": 3, "draws": 960, **QUIET}
    expected = az_swiss.sample(normal_groups, table, **settings)
    kill_after(tasks)
    found = az_swiss.sample(normal_groups, table, executor=client, **settings)
    assert_same(found, expected)

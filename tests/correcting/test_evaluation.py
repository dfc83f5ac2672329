import multiprocessing
import os
import re
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytensor
import pytest
from normal_density import Normal
from terminal import watching
from threadpoolctl import threadpool_info, threadpool_limits

import arviz_swiss as az_swiss
from arviz_swiss.correcting import evaluation
from arviz_swiss.correcting.densities import space_for_models
from arviz_swiss.correcting.evaluation import Request, evaluating
from arviz_swiss.merging.merged import open_merged
from arviz_swiss.parallel.outcomes import ProcessEnded

LABELS = ["north", "south", "west"]


class Quadratic(Normal):
    """With data that must not travel twice."""

    def __init__(self, centre, size=10):
        super().__init__(centre)
        self.data = np.zeros(size)


class Counted(Quadratic):
    pickled = 0

    def __getstate__(self):
        Counted.pickled += 1
        return self.__dict__


def scores(evaluate, labels, points):
    """Return the gradients of the named likelihoods."""
    answers = evaluate({label: [Request("grad_log_likelihood", points)] for label in labels})
    return np.array([answers[label][0] for label in labels])


@pytest.fixture
def densities():
    return dict(zip(LABELS, map(Quadratic, (1.0, 2.0, 6.0)), strict=True))


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.fixture(scope="module")
def dask_client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0", processes=False
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_points_come_in_blocks(densities):
    lengths = []

    class Watching(Quadratic):
        def log_likelihood(self, x):
            lengths.append(len(x))
            return super().log_likelihood(x)

    points = np.random.default_rng(0).standard_normal((250, 2))
    with evaluating({"north": Watching(1.0)}, None) as evaluate:
        (found,) = evaluate({"north": [Request("log_likelihood", points)]})["north"]
    assert lengths == [100, 100, 50]
    np.testing.assert_array_equal(found, Quadratic(1.0).log_likelihood(points))


@pytest.mark.parametrize("values_at_once, lengths", [(4000, [10, 10, 5]), (1, [1] * 25)])
def test_models_of_many_rows_come_in_smaller_blocks(monkeypatch, values_at_once, lengths):
    with pytensor.config.change_flags(mode="FAST_COMPILE"), pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, observed=np.arange(400.0))
    draws = {"mu": np.random.default_rng(0).normal(size=(2, 100))}
    space = space_for_models(open_merged(az_swiss.merge([draws], powers=1), "posterior"))
    calls, called = [], evaluation._called

    def watched(density, label, method, points):
        calls.append(len(points))
        return called(density, label, method, points)

    monkeypatch.setattr(evaluation, "_called", watched)
    requests = {"b0": [Request("grad_log_likelihood", np.linspace(-1, 1, 25)[:, None])]}
    results = []
    for most in (evaluation.VALUES_AT_ONCE, values_at_once):
        monkeypatch.setattr(evaluation, "VALUES_AT_ONCE", most)
        with evaluating({"b0": model}, space) as evaluate:
            results += evaluate(requests)["b0"]
    assert calls == [25, *lengths]
    np.testing.assert_allclose(results[1], results[0], rtol=1e-12)


def test_every_executor_gives_the_same(densities, processes, dask_client):
    points = np.random.default_rng(1).standard_normal((120, 3))
    with evaluating(densities, None) as evaluate:
        expected = [scores(evaluate, LABELS, points + shift) for shift in (0, 1)]
    with ThreadPoolExecutor(2) as threads:
        for executor in (threads, processes, dask_client):
            with evaluating(densities, None, executor) as evaluate:
                found = [scores(evaluate, LABELS, points + shift) for shift in (0, 1)]
            np.testing.assert_array_equal(found, expected)


def test_threads_that_begin_a_session_together_do_not_lose_each_other(monkeypatch):
    class Slow(dict):
        """Give way to the other thread wherever one may be interrupted."""

        def clear(self):
            time.sleep(0.05)
            super().clear()
            time.sleep(0.05)

    monkeypatch.setattr(evaluation, "_kept", Slow())
    requests = [Request("log_prior", np.zeros((2, 1)))]
    tasks = [evaluation.Task("now", label, Quadratic(1.0), None, requests) for label in LABELS]
    with ThreadPoolExecutor(3) as threads:
        assert len(list(threads.map(evaluation.answer, tasks))) == 3
    assert set(evaluation._kept["now"]) == set(LABELS)


class Meeting(Quadratic):
    """Go on only when so many evaluations are under way at once, or count how many are."""

    def __init__(self, centre, barrier=None):
        super().__init__(centre)
        self.barrier, self.inside, self.most = barrier, 0, 0

    def log_likelihood(self, x):
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.barrier is not None:
            self.barrier.wait(timeout=20)
        time.sleep(0.01)
        self.inside -= 1
        return super().log_likelihood(x)


def likelihoods(evaluate, labels):
    answers = evaluate({label: [Request("log_likelihood", np.ones((2, 2)))] for label in labels})
    assert list(answers) == labels
    return [answers[label][0] for label in labels]


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)


def test_densities_are_evaluated_at_once(two_cores):
    barrier = threading.Barrier(2)
    densities = {f"b{at}": Meeting(float(at), barrier) for at in range(4)}
    with evaluating(densities, None) as evaluate:
        for _ in range(2):
            found = likelihoods(evaluate, list(densities))
            expected = [Normal(float(at)).log_likelihood(np.ones((2, 2))) for at in range(4)]
            np.testing.assert_array_equal(found, expected)


def test_one_object_is_never_in_two_threads(two_cores):
    one, other = Meeting(1.0), Meeting(2.0)
    densities = {"b0": one, "b1": other, "b2": one, "b3": one, "b4": other}
    with evaluating(densities, None) as evaluate:
        likelihoods(evaluate, list(densities))
    assert (one.most, other.most) == (1, 1)


def test_of_several_errors_the_first_batch_is_named(two_cores):
    class Failing(Quadratic):
        def log_likelihood(self, x):
            time.sleep(self.centre[0])
            raise ZeroDivisionError

    densities = {"north": Failing(0.3), "south": Failing(0.0), "west": Quadratic(1.0)}
    with (
        evaluating(densities, None) as evaluate,
        pytest.raises(evaluation.EvaluationFailed, match='batch "north"') as caught,
    ):
        likelihoods(evaluate, LABELS)
    assert 'batch "north"' in caught.value.__notes__[0]


def test_threads_have_one_thread_of_blas_and_the_settings_of_their_caller(two_cores):
    class Watching(Quadratic):
        def log_likelihood(self, x):
            self.threads = {each["num_threads"] for each in threadpool_info()}
            self.divide = np.geterr()["divide"]
            return super().log_likelihood(x)

    densities = {label: Watching(1.0) for label in LABELS}
    with threadpool_limits(2):
        before = {each["num_threads"] for each in threadpool_info()}
        with np.errstate(divide="raise"), evaluating(densities, None) as evaluate:
            likelihoods(evaluate, LABELS)
        assert {each["num_threads"] for each in threadpool_info()} == before
    assert [one.threads for one in densities.values()] == [{1}] * 3
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        assert {one.divide for one in densities.values()} == {"raise"}


def test_sessions_of_one_process_do_not_disturb_each_other(two_cores):
    one, other = ({label: Quadratic(centre) for label in LABELS} for centre in (1.0, 2.0))
    with evaluating(one, None) as first, evaluating(other, None) as second:
        for _ in range(2):
            for evaluate, densities in ((first, one), (second, other)):
                expected = [d.log_likelihood(np.ones((2, 2))) for d in densities.values()]
                np.testing.assert_array_equal(likelihoods(evaluate, LABELS), expected)


def test_workers_keep_their_densities():
    heavy = {label: Counted(1.0, size=10**5) for label in LABELS}
    Counted.pickled = 0
    points = np.zeros((4, 2))
    with (
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
        evaluating(heavy, None, pool) as evaluate,
    ):
        for _ in range(5):
            scores(evaluate, LABELS, points)
    assert Counted.pickled == 3


@pytest.mark.parametrize("where", ["here", "processes"])
def test_a_density_that_raises_is_named(densities, processes, where):
    class Failing(Quadratic):
        def grad_log_likelihood(self, x):
            raise ZeroDivisionError("no such luck")

    densities["west"] = Failing(1.0)
    message = 'batch "west": grad_log_likelihood raised ZeroDivisionError: no such luck'
    with (
        evaluating(densities, None, processes if where == "processes" else None) as evaluate,
        pytest.raises(RuntimeError, match=message),
    ):
        scores(evaluate, LABELS, np.ones((2, 2)))


def test_errors_of_an_executor_name_the_batch(densities):
    class Deadly(Quadratic):
        def grad_log_likelihood(self, x):
            os._exit(1)

    with (
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
        evaluating({"west": Deadly(1.0)}, None, pool) as evaluate,
        pytest.raises(ProcessEnded) as caught,
    ):
        scores(evaluate, ["west"], np.ones((2, 2)))
    assert any('batch "west"' in note for note in caught.value.__notes__)


def test_refine_and_certify_on_processes(processes):
    rng = np.random.default_rng(2)
    densities = [Quadratic(centre) for centre in (0.5, 1.0)]
    draws = [{"x": rng.normal(one.centre, 2**-0.5, size=(2, 300, 2))} for one in densities]
    merged = az_swiss.merge(draws, kind="inflated")
    results = []
    for executor in (None, processes):
        options = {"executor": executor, "random_seed": 1, "progressbar": False}
        refined = az_swiss.refine(merged, densities, **options)
        results.append(az_swiss.certify(refined, densities, **options))
    for group, name in (("posterior", "x"), ("swiss_certificate", "log_weight")):
        np.testing.assert_array_equal(results[0][group][name], results[1][group][name])


def test_progress_is_shown(monkeypatch):
    densities = [Quadratic(centre) for centre in (0.5, 1.0)]
    rng = np.random.default_rng(3)
    draws = [{"x": rng.normal(one.centre, 2**-0.5, size=(2, 100, 1))} for one in densities]
    merged = az_swiss.merge(draws, kind="inflated")
    with watching(monkeypatch) as screen:
        az_swiss.certify(merged, densities, draws=100)
    assert re.search(r"^Certifying: 100%.* 2/2 ", screen.left[0])
    with watching(monkeypatch) as screen:
        az_swiss.certify(merged, densities, draws=100, progressbar=False)
    assert screen.text == ""


class Slow(dict):
    """Gives its values so slowly that other threads come between."""

    def values(self):
        time.sleep(0.02)
        for value in super().values():
            yield value
            time.sleep(0.02)


def test_threads_keep_no_more_together_than_there_is_room_for(monkeypatch):
    share = evaluation.BYTES_KEPT // evaluation.FEW
    monkeypatch.setattr(evaluation, "_made", lambda task: evaluation.Kept(None, 1, share))
    kept = Slow()
    tasks = [evaluation.Task("", f"b{number}", None, None, []) for number in range(6)]
    with ThreadPoolExecutor(len(tasks)) as pool:
        answers = list(pool.map(lambda task: evaluation._answered(kept, task), tasks))
    assert answers == [[]] * len(tasks)
    assert len(kept) == evaluation.FEW

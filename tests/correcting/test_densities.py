import multiprocessing
import os
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
from normal_density import Normal

import arviz_swiss as az_swiss
from arviz_swiss.correcting.densities import (
    Request,
    evaluating,
    full_scores,
    log_densities,
    match_densities,
)

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


def test_densities_are_matched_by_label_or_order(densities):
    shuffled = {label: densities[label] for label in ("west", "north", "south")}
    for given in (shuffled, list(densities.values()), tuple(densities.values())):
        matched = match_densities(given, LABELS, "inflated")
        assert list(matched) == LABELS
        assert [one.centre for one in matched.values()] == [1.0, 2.0, 6.0]


def test_densities_that_do_not_fit_are_refused(densities):
    with pytest.raises(ValueError, match="densities has 2 elements for 3 batches"):
        match_densities([Quadratic(1.0)] * 2, LABELS, "inflated")
    with pytest.raises(ValueError, match="densities has batches north, east; the merged object"):
        match_densities({"north": 1, "east": 2}, LABELS, "inflated")
    with pytest.raises(TypeError, match="mapping of batch label to density, got Quadratic"):
        match_densities(Quadratic(1.0), LABELS, "inflated")


def test_methods_that_are_missing_are_named(densities):
    class NoPrior:
        log_likelihood = grad_log_likelihood = grad_log_prior = Quadratic.log_prior

    densities["south"] = NoPrior()
    with pytest.raises(
        TypeError, match=r'batch 1 \("south"\): NoPrior has no method log_prior.*"full_prior"'
    ):
        match_densities(densities, LABELS, "full_prior")


def test_scores_are_those_of_one_prior_and_all_likelihoods(densities):
    class WithPrior(Quadratic):
        def grad_log_prior(self, x):
            return -x

    shared = {label: WithPrior(one.centre) for label, one in densities.items()}
    points = np.random.default_rng(0).standard_normal((250, 2))
    with evaluating(shared, None) as evaluate:
        scores = full_scores(evaluate, LABELS, points)
    np.testing.assert_allclose(scores, 9.0 - 4 * points)


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


def test_priors_that_differ_are_refused(densities):
    class Other(Quadratic):
        def grad_log_prior(self, x):
            return -0.1 * x

    points = np.ones((5, 2))
    with (
        evaluating({**densities, "west": Other(1.0)}, None) as evaluate,
        pytest.raises(ValueError, match='prior of batch "west" differs from that of batch "north"'),
    ):
        full_scores(evaluate, LABELS, points)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda self, x: np.zeros((len(x), 1)), r"gave shape \(5, 1\).*expected \(5, 2\)"),
        (lambda self, x: np.full_like(x, np.nan), "gave NaN or .inf at"),
        (lambda self, x: np.full_like(x, -np.inf), "gradient is not finite"),
    ],
)
def test_values_that_cannot_be_are_refused(densities, monkeypatch, wrong, message):
    monkeypatch.setattr(Quadratic, "grad_log_likelihood", wrong)
    with evaluating(densities, None) as evaluate, pytest.raises(ValueError, match=message):
        full_scores(evaluate, LABELS, np.ones((5, 2)))


def test_every_executor_gives_the_same(densities, processes, dask_client):
    points = np.random.default_rng(1).standard_normal((120, 3))
    with evaluating(densities, None) as evaluate:
        expected = [full_scores(evaluate, LABELS, points + shift) for shift in (0, 1)]
    with ThreadPoolExecutor(2) as threads:
        for executor in (threads, processes, dask_client):
            with evaluating(densities, None, executor) as evaluate:
                found = [full_scores(evaluate, LABELS, points + shift) for shift in (0, 1)]
            np.testing.assert_array_equal(found, expected)


def test_workers_keep_their_densities():
    heavy = {label: Counted(1.0, size=10**5) for label in LABELS}
    Counted.pickled = 0
    points = np.zeros((4, 2))
    with (
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
        evaluating(heavy, None, pool) as evaluate,
    ):
        for _ in range(5):
            full_scores(evaluate, LABELS, points)
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
        full_scores(evaluate, LABELS, np.ones((2, 2)))


def test_errors_of_an_executor_name_the_batch(densities):
    class Deadly(Quadratic):
        def grad_log_likelihood(self, x):
            os._exit(1)

    with (
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
        evaluating({"west": Deadly(1.0)}, None, pool) as evaluate,
        pytest.raises(BrokenExecutor) as caught,
    ):
        full_scores(evaluate, ["west"], np.ones((2, 2)))
    assert any('batch "west"' in note for note in caught.value.__notes__)


def test_priors_may_differ_by_a_constant_and_end_somewhere():
    class Bounded(Quadratic):
        def log_prior(self, x):
            return np.where(x[:, 0] > 0, self.centre, -np.inf)

    densities = {label: Bounded(centre) for label, centre in zip("ab", (1.0, 7.0), strict=True)}
    # the first of the points at which priors are compared has none
    points = np.array([[-1.0], [1.0], [2.0], [3.0]])
    owners, original = np.array([0, 0, 1, 1]), dict.fromkeys("ab", np.abs(points))
    powers = dict.fromkeys("ab", (1.0, 1.0))
    with evaluating(densities, None) as evaluate:
        found = log_densities(evaluate, ["a", "b"], points, original, owners, powers)
    np.testing.assert_array_equal(np.isfinite(found.full), [False, True, True, True])


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


def test_progress_is_shown(capsys):
    densities = [Quadratic(centre) for centre in (0.5, 1.0)]
    rng = np.random.default_rng(3)
    draws = [{"x": rng.normal(one.centre, 2**-0.5, size=(2, 100, 1))} for one in densities]
    merged = az_swiss.merge(draws, kind="inflated")
    az_swiss.certify(merged, densities, draws=100)
    assert "Certifying" in capsys.readouterr().err
    az_swiss.certify(merged, densities, draws=100, progressbar=False)
    assert capsys.readouterr().err == ""

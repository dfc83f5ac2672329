import numpy as np
import pytest
from normal_density import Normal

from arviz_swiss.correcting.evaluation import evaluating
from arviz_swiss.correcting.full_posterior import all_scores, full_score, log_densities

LABELS = ["north", "south", "west"]


@pytest.fixture
def densities():
    return dict(zip(LABELS, map(Normal, (1.0, 2.0, 6.0)), strict=True))


def full_scores(evaluate, labels, points):
    return full_score(all_scores(evaluate, labels, points, list("xy")))


def test_scores_are_those_of_one_prior_and_all_likelihoods(densities):
    class WithPrior(Normal):
        def grad_log_prior(self, x):
            return -x

    shared = {label: WithPrior(one.centre) for label, one in densities.items()}
    points = np.random.default_rng(0).standard_normal((250, 2))
    with evaluating(shared, None) as evaluate:
        scores = full_scores(evaluate, LABELS, points)
    np.testing.assert_allclose(scores, 9.0 - 4 * points)


def test_priors_that_differ_are_refused(densities):
    class Other(Normal):
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
    monkeypatch.setattr(Normal, "grad_log_likelihood", wrong)
    with evaluating(densities, None) as evaluate, pytest.raises(ValueError, match=message):
        full_scores(evaluate, LABELS, np.ones((5, 2)))


def test_priors_may_differ_by_a_constant_and_end_somewhere():
    class Bounded(Normal):
        def log_prior(self, x):
            return np.where(x[:, 0] > 0, self.centre, -np.inf)

    densities = {label: Bounded(centre) for label, centre in zip("ab", (1.0, 7.0), strict=True)}
    # the first of the points at which priors are compared has none
    points = np.array([[-1.0], [1.0], [2.0], [3.0]])
    original = dict.fromkeys("ab", np.abs(points))
    own = {"a": np.abs(points[:2]), "b": np.abs(points[2:])}
    powers = dict.fromkeys("ab", (1.0, 1.0))
    with evaluating(densities, None) as evaluate:
        found = log_densities(evaluate, ["a", "b"], points, original, own, powers, points[:2])
    np.testing.assert_array_equal(np.isfinite(found.full), [False, True, True, True])
    np.testing.assert_array_equal(found.beside, found.full[:2])


def test_priors_are_compared_where_wanted_only(densities):
    asked = []

    class Watching(Normal):
        def grad_log_prior(self, x):
            asked.append((float(self.centre[0]), len(x)))
            return super().grad_log_prior(x)

    watched = {label: Watching(centre) for label, centre in zip("ab", (1.0, 7.0), strict=True)}
    points = np.ones((5, 1))
    with evaluating(watched, None) as evaluate:
        for compare in (True, False):
            all_scores(evaluate, ["a", "b"], points, ["x"], compare)
    assert sorted(asked) == [(1.0, 5), (1.0, 5), (7.0, 3)]

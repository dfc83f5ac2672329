import numpy as np
import pytest
from refine_cases import LogRate, check_left_alone, flags_of, mahalanobis

import arviz_swiss as az_swiss
from arviz_swiss.base import gaussian
from arviz_swiss.correcting.evaluation import evaluating
from arviz_swiss.correcting.gradients import curved_upwards, wrong_gradients

QUIET = {"progressbar": False}

LABELS = ["a", "b"]


class Doubtful:
    """Counts of events with a normal prior of the log rates, and gradients that can be wrong."""

    def __init__(self, counts=7.0, factors=(1.0, 1.0), dtype=float):
        self.counts, self.factors, self.dtype = counts, factors, dtype

    def log_prior(self, x):
        return np.where(x[:, 0] < 3, -0.5 * np.sum(x**2, axis=1), -np.inf)

    def grad_log_prior(self, x):
        return -self.factors[0] * x

    def log_likelihood(self, x):
        constant = 1e4
        values = np.sum(self.counts * x - np.exp(x), axis=1) + constant
        return values.astype(self.dtype).astype(float)

    def grad_log_likelihood(self, x):
        return self.factors[1] * (self.counts - np.exp(x))


def found(densities, points):
    with evaluating(densities, None) as evaluate:
        return wrong_gradients(evaluate, LABELS, points)


@pytest.mark.parametrize("spread", [0.1, 1.0, 2.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_right_gradients_are_not_doubted(spread, dtype):
    # some points are outside of the prior, and those of single precision have lost digits
    points = np.random.default_rng(1).normal(1.5, spread, (6, 3))
    densities = {"a": Doubtful(7.0, dtype=dtype), "b": Doubtful(50.0, dtype=dtype)}
    assert found(densities, points) == []


@pytest.mark.parametrize("factor", [-1.0, 0.0, 2.0, 20.0])
def test_wrong_gradients_are_named(factor):
    points = np.random.default_rng(2).normal(1.5, 0.3, (6, 3))
    (clause,) = found({"a": Doubtful(), "b": Doubtful(factors=(1.0, factor))}, points)
    assert clause.startswith("grad_log_likelihood is not the gradient of log_likelihood in batch")
    assert '"b"' in clause and '"a"' not in clause
    (clause,) = found(dict.fromkeys(LABELS, Doubtful(factors=(factor, 1.0))), points)
    assert 'grad_log_prior is not the gradient of log_prior in batch "a", "b"' in clause


def test_a_rough_density_is_not_doubted():
    class Rough(Doubtful):
        """Ripples that are short beside the distance of the points."""

        def log_likelihood(self, x):
            return np.sum(5 * np.cos(3 * x), axis=1)

        def grad_log_likelihood(self, x):
            return -15 * np.sin(3 * x)

    points = np.random.default_rng(3).normal(0, 2.0, (6, 3))
    assert found(dict.fromkeys(LABELS, Rough()), points) == []


def test_a_likelihood_without_a_maximum_is_found():
    rng = np.random.default_rng(4)
    factor = np.tril(rng.normal(size=(3, 3))) + 3 * np.eye(3)
    covariance = factor @ factor.T
    moments = gaussian.gaussian(np.ones(3), covariance)
    points = rng.multivariate_normal(np.ones(3), covariance, 50)
    score = -(points - 1) @ np.linalg.inv(covariance) / 4
    saddle = score * np.array([1, 1, -1])
    likelihoods = {"down": score, "up": -score, "none": 0 * score, "saddle": saddle}
    assert curved_upwards(points, likelihoods, moments) == ["up"]


@pytest.mark.parametrize("method", ["grad_log_likelihood", "grad_log_prior"])
def test_a_gradient_of_the_wrong_sign_leaves_the_merge(gaussian_merge, method):
    merged, densities, _ = gaussian_merge()
    right = getattr(densities["b1"], method)
    for label in ("b1",) if method == "grad_log_likelihood" else tuple(densities):
        own = getattr(densities[label], method)
        setattr(densities[label], method, lambda x, own=own: -own(x))
    message = rf"leaves the merge as it was: {method} is not the gradient of .*\"b1\".*Mend the"
    with pytest.warns(az_swiss.MergeWarning, match=message):
        left = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    check_left_alone(left, merged, rounds=1)
    # mended as the message says, and from there
    for density in densities.values():
        density.__dict__.pop(method, None)
    assert np.array_equal(right(np.ones((1, 4))), getattr(densities["b1"], method)(np.ones((1, 4))))
    refined = az_swiss.refine(left, densities, random_seed=1, **QUIET)
    np.testing.assert_allclose(
        refined["posterior"]["theta"], merged["posterior"]["theta"], atol=1e-8, rtol=0
    )
    assert refined["swiss_transform"]["taken"].values.tolist() == [True, False, True]


def test_one_odd_batch_of_two_does_not_stop_refine():
    class HeavyTailed(LogRate):
        """A Cauchy likelihood, far from where the other batch is."""

        def log_likelihood(self, x):
            return -np.log1p((x[:, 0] - 0.55) ** 2 / 1e-4)

        def grad_log_likelihood(self, x):
            return -2 * (x - 0.55) / (1e-4 + (x - 0.55) ** 2)

    rng = np.random.default_rng(1)
    densities = [LogRate(np.array([100.0]), np.array([100.0])), HeavyTailed(None, None)]
    draws = [{"u": np.log(rng.gamma(100, 1 / 100, (2, 1000, 1)))} for _ in range(2)]
    merged = az_swiss.merge(draws, kind="inflated")
    with pytest.warns(az_swiss.MergeWarning, match="log likelihood of batch b1 curves upwards"):
        refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    assert "curves upwards" in flags_of(refined)
    grid = np.linspace(-0.6, 0.6, 4001)[:, None]
    logs = sum(one.log_likelihood(grid) for one in densities)
    weights = np.exp(logs - logs.max())
    mean = np.average(grid[:, 0], weights=weights)
    sd = np.sqrt(np.average((grid[:, 0] - mean) ** 2, weights=weights))
    error = float(refined["swiss_transform"]["step_error"][-1])
    assert mahalanobis(refined, [mean], [[sd**2]], "u") < 4 * error

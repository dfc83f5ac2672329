import numpy as np
import pytest

from arviz_swiss.base import gaussian
from arviz_swiss.correcting.evaluation import evaluating
from arviz_swiss.correcting.gradients import curved_upwards, wrong_gradients

LABELS = ["a", "b"]


class LogRate:
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
    densities = {"a": LogRate(7.0, dtype=dtype), "b": LogRate(50.0, dtype=dtype)}
    assert found(densities, points) == []


@pytest.mark.parametrize("factor", [-1.0, 0.0, 2.0, 20.0])
def test_wrong_gradients_are_named(factor):
    points = np.random.default_rng(2).normal(1.5, 0.3, (6, 3))
    (clause,) = found({"a": LogRate(), "b": LogRate(factors=(1.0, factor))}, points)
    assert clause.startswith("grad_log_likelihood is not the gradient of log_likelihood in batch")
    assert '"b"' in clause and '"a"' not in clause
    (clause,) = found(dict.fromkeys(LABELS, LogRate(factors=(factor, 1.0))), points)
    assert 'grad_log_prior is not the gradient of log_prior in batch "a", "b"' in clause


def test_a_rough_density_is_not_doubted():
    class Rough(LogRate):
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

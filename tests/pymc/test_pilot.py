"""The pilot: exact for Gaussians, a direct Newton's for others, and none where there is no mode."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit

from arviz_swiss.base.mode import NoMode
from arviz_swiss.correcting.evaluation import evaluating
from arviz_swiss.pymc.coordinates import Coordinates
from arviz_swiss.pymc.pilot import Pilot, gaussian_of, laplace, own_mode

RNG = np.random.default_rng(4)
X = np.column_stack([np.ones(400), RNG.normal(size=(400, 2))])
Y = X @ [1.0, -2.0, 0.5] + 0.7 * RNG.normal(size=400)
SUCCESSES = (RNG.random(400) < expit(X @ [0.5, -1.0, 0.8])).astype(int)
UNITS = np.array([1e-6, 1.0, 1e6])


def pilot_of(build, batches, order=None):
    """Return the pilot of models of rows that are dealt out to batches."""
    parts = [np.arange(400)[start::batches] for start in range(batches)]
    models = {f"b{i}": build(parts[i]) for i in (order or range(batches))}
    coordinates = Coordinates(next(iter(models.values())))
    with evaluating(models, coordinates.merge_space) as evaluate:
        return laplace(evaluate, list(models), float(batches), coordinates)


def linear(rows, units=1.0):
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2 * units * np.ones(3))
        mean = pm.math.dot(pm.Data("x", X[rows] / units), beta)
        pm.Normal("y", mean, 0.7, observed=pm.Data("y_data", Y[rows]))
    return model


def logistic(rows, units=1.0, prior=2.0, outcomes=SUCCESSES):
    with pm.Model() as model:
        beta = (
            pm.Normal("beta", 0, prior * units * np.ones(3)) if prior else pm.Flat("beta", shape=3)
        )
        logits = pm.math.dot(pm.Data("x", X[rows] / units), beta)
        pm.Bernoulli("y", logit_p=logits, observed=pm.Data("y_data", outcomes[rows]))
    return model


def conjugate():
    precision = X.T @ X / 0.49 + np.eye(3) / 4
    return np.linalg.solve(precision, X.T @ Y / 0.49), np.linalg.inv(precision)


def newton():
    beta = np.zeros(3)
    for _ in range(30):
        p = expit(X @ beta)
        precision = (X.T * (p * (1 - p))) @ X + np.eye(3) / 4
        beta = beta + np.linalg.solve(precision, X.T @ (SUCCESSES - p) - beta / 4)
    return beta, np.linalg.inv(precision)


def assert_gaussian(pilot, mean, covariance, units=1.0, tolerance=1e-6, spread=1e-6):
    sds = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(pilot.mean / units / sds, mean / sds, rtol=0, atol=tolerance)
    scaled = pilot.covariance / np.outer(units * sds, units * sds)
    np.testing.assert_allclose(scaled, covariance / np.outer(sds, sds), atol=spread)
    np.testing.assert_allclose(pilot.factor @ pilot.factor.T, pilot.covariance, rtol=1e-9)


@pytest.mark.parametrize("batches", [1, 4])
def test_gaussian_models_are_exact(batches):
    assert_gaussian(pilot_of(linear, batches), *conjugate())


def test_batches_may_come_in_any_order_and_number():
    mean, covariance = newton()
    for batches, order in [(1, None), (4, None), (4, (2, 0, 3, 1))]:
        pilot = pilot_of(logistic, batches, order)
        assert pilot.parameters == ("beta[0]", "beta[1]", "beta[2]")
        assert_gaussian(pilot, mean, covariance, tolerance=1e-4, spread=5e-3)


@pytest.mark.parametrize("build", [linear, logistic])
def test_units_of_parameters_do_not_matter(build):
    mean, covariance = conjugate() if build is linear else newton()
    pilot = pilot_of(lambda rows: build(rows, UNITS), 2)
    assert_gaussian(pilot, mean, covariance, UNITS, tolerance=1e-3, spread=1e-2)


def of_potential(log_density, start=(0.0, 0.0)):
    def build(rows):
        with pm.Model() as model:
            theta = pm.Flat("theta", shape=2, initval=np.array(start))
            pm.Potential("density", log_density(theta))
            pm.Normal("y", 0.0, 1.0, observed=np.ones(3))
        return model

    return build


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(of_potential(lambda t: -((0.3 * t[0] + 0.7 * t[1] - 1) ** 2)), id="flat"),
        pytest.param(
            lambda rows: logistic(rows, prior=None, outcomes=(X[:, 1] > 0.2).astype(int)),
            id="separable",
        ),
        pytest.param(of_potential(lambda t: pm.math.log(t).sum(), (-1.0, -1.0)), id="no density"),
    ],
)
def test_no_mode_is_said(build):
    with pytest.raises(NoMode):
        pilot_of(build, 2)


def test_ordered_permutes_and_refuses_others():
    root = RNG.normal(size=(3, 3))
    pilot = Pilot(("a", "b[x]", "b[y]"), np.arange(3.0), root @ root.T, "Laplace")
    other = pilot.ordered(["b[y]", "a", "b[x]"])
    assert other.parameters == ("b[y]", "a", "b[x]")
    np.testing.assert_array_equal(other.mean, [2.0, 0.0, 1.0])
    assert other.covariance[0, 1] == pilot.covariance[2, 0]
    np.testing.assert_array_equal(np.diag(other.covariance), np.diag(pilot.covariance)[[2, 0, 1]])
    back = other.ordered(pilot.parameters)
    np.testing.assert_array_equal(back.covariance, pilot.covariance)
    for names in (["a", "b[x]", "b[z]"], ["a", "b[x]"], ["a", "b[x]", "b[y]", "c"]):
        with pytest.raises(ValueError, match="pilot's parameters are not those"):
            pilot.ordered(names)


def test_gaussian_of_draws():
    coordinates = Coordinates(linear(np.arange(50)))
    draws = RNG.normal(size=(4, 500, 3)) * [1.0, 2.0, 3.0] + 5
    pilot = gaussian_of(draws, coordinates, "a run")
    np.testing.assert_allclose(pilot.mean, draws.mean(axis=(0, 1)))
    # an sd of 2000 draws has a relative error of 1 / sqrt(4000)
    np.testing.assert_allclose(np.sqrt(np.diag(pilot.covariance)), [1, 2, 3], rtol=5 / 4000**0.5)
    for bad in (np.full((4, 5, 3), np.nan), np.zeros((4, 5, 3)), draws[:1, :2]):
        with pytest.raises(NoMode):
            gaussian_of(bad, coordinates, "a run")


def test_the_mode_of_a_batch_in_white_coordinates():
    centre = np.array([6.0, -3.0])

    def score(z):
        return -np.sum((z - centre) ** 2, axis=1) / 2, centre - z

    # where the mode is nearer than half an sd it is not looked for
    assert np.linalg.norm(own_mode(score, 2) - centre) < 0.5

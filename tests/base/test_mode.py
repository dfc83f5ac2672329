"""Modes of log densities: exact ones, a direct Newton's, and none where there is none."""

import numpy as np
import pytest
from scipy.special import expit

from arviz_swiss.base.mode import (
    NoMode,
    SeveralModes,
    check_drops,
    factor_of,
    follow,
    newton,
    only_mode,
)

RNG = np.random.default_rng(4)
X = np.column_stack([np.ones(400), RNG.normal(size=(400, 2))])
SUCCESSES = (RNG.random(400) < expit(X @ [0.5, -1.0, 0.8])).astype(int)
UNITS = np.array([1e-6, 1.0, 1e6])
MEAN = np.array([3.0, -2.0, 1.0])
ROOT = np.array([[2.0, 0.0, 0.0], [0.9, 1.0, 0.0], [-0.5, 0.4, 0.3]])
PRECISION = np.linalg.inv(ROOT @ ROOT.T)
START = np.zeros(3)


class Counted:
    """A log density of points that counts its calls; `units` are those of the parameters."""

    def __init__(self, of_points, units=1.0):
        self.of_points, self.units, self.calls = of_points, units, 0

    def __call__(self, points):
        self.calls += 1
        values, gradients = self.of_points(points / self.units)
        return values, gradients / self.units


def gaussian(points):
    off = points - MEAN
    return -np.einsum("pi,ij,pj->p", off, PRECISION, off) / 2, -off @ PRECISION


def logistic(points):
    logits = points @ X.T
    values = logits @ SUCCESSES - np.logaddexp(0, logits).sum(axis=1) - (points**2).sum(axis=1) / 8
    return values, (SUCCESSES - expit(logits)) @ X - points / 4


def newtons():
    """Return mode and precision of the logistic regression, by exact Hessians."""
    beta = np.zeros(3)
    for _ in range(30):
        p = expit(X @ beta)
        precision = (X.T * (p * (1 - p))) @ X + np.eye(3) / 4
        beta = beta + np.linalg.solve(precision, X.T @ (SUCCESSES - p) - beta / 4)
    return beta, precision


def found(of_points, units=1.0):
    score = Counted(of_points, units)
    return follow(score, *only_mode(score, START))


def assert_found(mode, precision, expected, units=1.0, tolerance=1e-6, spread=1e-6):
    expected_mode, expected_precision = expected
    sds = 1 / np.sqrt(np.diag(expected_precision))
    np.testing.assert_allclose(mode / units / sds, expected_mode / sds, rtol=0, atol=tolerance)
    scaled = precision * np.outer(units * sds, units * sds)
    np.testing.assert_allclose(scaled, expected_precision * np.outer(sds, sds), atol=spread)


@pytest.mark.parametrize("units", [1.0, UNITS])
def test_the_mode_of_a_gaussian_is_exact(units):
    assert_found(*found(gaussian, units), (MEAN, PRECISION), units, tolerance=1e-5)


@pytest.mark.parametrize("units", [1.0, UNITS])
def test_the_mode_of_another_is_that_of_newton(units):
    assert_found(*found(logistic, units), newtons(), units, tolerance=1e-4, spread=5e-3)


def test_a_mode_that_is_known_costs_few_calls():
    score = Counted(logistic)
    mode, precision = newtons()
    sds = 1 / np.sqrt(np.diag(precision))
    near, _ = follow(score, mode + 0.5 * sds, 1.1 * precision)
    # two Newton steps, one curvature, and one look at where they led
    assert score.calls <= 6
    np.testing.assert_allclose(near / sds, mode / sds, atol=1e-4)


def test_places_without_a_density_are_no_obstacle():
    outside = []

    def truncated(points):
        values, gradients = logistic(points)
        is_outside = (np.abs(points - newtons()[0]) > 0.75).any(axis=1)
        outside.append(is_outside.any())
        return np.where(is_outside, np.nan, values), np.where(is_outside[:, None], 0.0, gradients)

    start = newtons()[0] + 0.7
    assert_found(*follow(truncated, *only_mode(truncated, start)), newtons(), 1.0, 1e-4, 5e-3)
    assert any(outside)


def potential(value, gradient):
    return lambda points: (value(points), gradient(points))


NO_MODES = {
    "flat direction": potential(
        lambda t: -(t.sum(axis=1) ** 2), lambda t: -2 * t.sum(axis=1)[:, None] + 0 * t
    ),
    "improper": potential(
        lambda t: t[:, 0] - t[:, 1] ** 2 - t[:, 2] ** 2, lambda t: [1, -2, -2] * t ** [0, 1, 1]
    ),
    "saddle": potential(
        lambda t: (t**2).sum(axis=1) - (t**4).sum(axis=1), lambda t: 2 * t - 4 * t**3
    ),
    "rising for ever": potential(lambda t: -np.exp(-t).sum(axis=1), lambda t: np.exp(-t)),
    "nowhere": potential(lambda t: np.full(len(t), np.nan), lambda t: np.full(t.shape, np.nan)),
    "infinite": potential(lambda t: np.full(len(t), -np.inf), lambda t: np.full(t.shape, np.inf)),
}


@pytest.mark.parametrize("name", NO_MODES)
def test_no_mode_is_said(name):
    score = NO_MODES[name]
    with pytest.raises(NoMode):
        mode, precision = follow(score, *only_mode(score, START))
        check_drops(score, mode, np.linalg.cholesky(np.linalg.inv(precision)))


def test_several_modes_are_told_apart():
    def two(points):
        others = points[:, 1:]
        values = -50 * (points[:, 0] ** 2 - 0.25) ** 2 - (others**2).sum(axis=1) / 2
        first = -200 * points[:, :1] * (points[:, :1] ** 2 - 0.25)
        return values, np.concatenate([first, -others], axis=1)

    with pytest.raises(SeveralModes, match=r"several modes, 10\.\d sds apart") as caught:
        only_mode(two, np.array([0.3, 0.0, 0.0]))
    # 0.5 and -0.5, with sds of a tenth
    np.testing.assert_allclose(caught.value.distances, [10, 0, 0], rtol=0.05, atol=0.01)


def test_newton_steps_lead_upwards_or_stop():
    start = MEAN + 5.0
    point, is_reached = newton(gaussian, start, PRECISION)
    assert is_reached
    np.testing.assert_allclose(point, MEAN, atol=1e-8)
    # a curvature that is a hundred times too small: halved until it is right
    point, _ = newton(gaussian, start, PRECISION / 100)
    assert gaussian(point[None])[0] > gaussian(start[None])[0]
    point, is_reached = newton(lambda x: (np.full(len(x), np.nan), x), start, PRECISION)
    np.testing.assert_array_equal(point, start)


@pytest.mark.parametrize(("scale", "is_refused"), [(1.0, False), (0.1, True), (10.0, True)])
def test_drops_one_sd_away_are_those_of_a_gaussian(scale, is_refused):
    if not is_refused:
        check_drops(gaussian, MEAN, scale * ROOT)
        return
    with pytest.raises(NoMode, match="one sd from its mode"):
        check_drops(gaussian, MEAN, scale * ROOT)


def test_factors_of_what_is_no_precision():
    np.testing.assert_allclose(factor_of(PRECISION), np.linalg.cholesky(PRECISION))
    singular = np.ones((3, 3)) + 1e-12 * np.eye(3)
    for matrix in (np.diag([1.0, -1.0, 1.0]), singular, np.full((3, 3), np.nan)):
        with pytest.raises(NoMode, match="not curved downwards"):
            factor_of(matrix)

import numpy as np
import pytest

from arviz_swiss.base import gaussian_process


def quadratic(size, rng):
    root, slope = rng.normal(size=(size, size)), rng.normal(size=size)
    curvature = root @ root.T
    return (
        lambda x: 3e5 - 0.5 * np.sum(x @ curvature * x, axis=1) + x @ slope,
        lambda x: slope - x @ curvature,
    )


@pytest.mark.parametrize("size", [1, 3, 10])
def test_quadratics_are_met_exactly_in_any_units(size):
    rng = np.random.default_rng(size)
    value, gradient = quadratic(size, rng)
    points = rng.normal(size=(200, size)) * np.logspace(2, -2, size)
    part = gaussian_process.fit(points, value(points))
    assert not part.weights.any()
    elsewhere = 3 * rng.normal(size=(20, size))
    values, gradients = gaussian_process.add([part, part])(elsewhere)
    np.testing.assert_allclose(values, 2 * value(elsewhere), rtol=1e-10)
    np.testing.assert_allclose(gradients, 2 * gradient(elsewhere), rtol=1e-6, atol=1e-6)


def curved(x):
    return -0.5 * x[:, 0] ** 2 - 0.5 * (x[:, 1] + x[:, 0] ** 2) ** 2


def test_other_functions_are_interpolated_and_their_gradients_are_those_of_the_values():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(300, 2)) * 1.5
    surrogate = gaussian_process.add([gaussian_process.fit(points, curved(points))])
    at = rng.normal(size=(50, 2))
    values, gradients = surrogate(at)
    np.testing.assert_allclose(surrogate(points)[0], curved(points), atol=5e-3)
    np.testing.assert_allclose(values, curved(at), atol=0.05)
    for direction in range(2):
        step = 1e-5 * np.eye(2)[direction]
        slope = (surrogate(at + step)[0] - surrogate(at - step)[0]) / 2e-5
        np.testing.assert_allclose(gradients[:, direction], slope, atol=1e-4)


def test_residuals_are_those_of_points_that_are_left_out(monkeypatch):
    rng = np.random.default_rng(1)
    points = rng.normal(size=(40, 2))
    monkeypatch.setattr(gaussian_process, "LENGTHS", (2.0,))
    monkeypatch.setattr(gaussian_process, "NUGGETS", (1e-8,))
    part = gaussian_process.fit(points, curved(points))
    for left_out in (0, 17):
        kept = np.delete(np.arange(40), left_out)
        # the same length scale, which is told in units of the points that are there
        squares = np.sum((points[kept, None] - points[kept]) ** 2, axis=-1)
        factor = part.length / np.sqrt(squares.mean() / 2)
        monkeypatch.setattr(gaussian_process, "LENGTHS", (factor,))
        rest = gaussian_process.fit(points[kept], curved(points[kept]))
        predicted = gaussian_process.add([rest])(points[left_out : left_out + 1])[0]
        missed = curved(points[left_out : left_out + 1]) - predicted
        np.testing.assert_allclose(part.residuals[left_out], missed, rtol=1e-4, atol=1e-6)


def test_turned_and_shifted_points_give_the_same_values():
    rng = np.random.default_rng(2)
    points, at = rng.normal(size=(100, 2)), rng.normal(size=(10, 2))
    turn = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    values = curved(points)
    first = gaussian_process.add([gaussian_process.fit(points, values)])(at)[0]
    other = gaussian_process.add([gaussian_process.fit(points @ turn + 3, values)])(at @ turn + 3)
    np.testing.assert_allclose(other[0], first, atol=1e-6)

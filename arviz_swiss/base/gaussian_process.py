"""Log densities known at some points, as a quadratic plus a Gaussian process: values and gradients.

Points are in coordinates where the kernels may be round. A log density that is quadratic is met
exactly; elsewhere the process interpolates what the quadratic leaves over, and far from all points
the quadratic is left.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.spatial.distance import cdist

# Length scales that are tried, in root mean square distances of the points from their mean, and
# noise of the values, in variances of the process.
LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0)
NUGGETS = (1e-8, 1e-4)
# Of the values' variation: less than that is rounding error of a quadratic.
ROUNDING = 1e-9
# How many distances are held at once.
AT_ONCE = 2_000_000
ROOT = np.sqrt(5.0)


class Surrogate(NamedTuple):
    """A log density: `quadratic` by its coefficients, and a kernel expansion around `places`.

    `residuals` are what each value would be off by if it were predicted from the others.
    """

    quadratic: np.ndarray
    places: np.ndarray
    weights: np.ndarray
    length: float
    residuals: np.ndarray


def coefficients_of(parameters: int) -> int:
    """Return how many coefficients a quadratic has."""
    return (parameters + 1) * (parameters + 2) // 2


def fit(points: np.ndarray, values: np.ndarray) -> Surrogate:
    """Fit a quadratic and a process with a Matern kernel (5/2) to values at different points.

    The quadratic's coefficients are of no prior; length scale and noise are those of the largest
    restricted likelihood.
    """
    units = np.maximum(points.std(axis=0), np.finfo(float).tiny)
    basis = _basis(points / units)
    orthogonal, upper = np.linalg.qr(basis, mode="complete")
    size = basis.shape[1]
    kept, rest = orthogonal[:, :size], orthogonal[:, size:]
    centre = values.mean()
    centred = values - centre
    left = rest.T @ centred
    squares = cdist(points, points, "sqeuclidean")
    spread = np.sqrt(squares.mean() / 2)
    weights, length, residuals = np.zeros(len(points)), spread, rest @ left
    rounding = np.finfo(float).eps * np.abs(values).max() * np.sqrt(left.size)
    if np.linalg.norm(left) > max(ROUNDING * np.linalg.norm(centred), 10 * rounding):
        likelihoods = []
        for factor in LENGTHS:
            for nugget in NUGGETS:
                kernel = _matern(squares / (factor * spread) ** 2) + nugget * np.eye(len(points))
                root = linalg.cho_factor(rest.T @ kernel @ rest, lower=True)
                solved = linalg.cho_solve(root, left)
                log_determinant = 2 * np.log(np.diag(root[0])).sum()
                deviance = left.size * np.log(left @ solved) + log_determinant
                likelihoods.append((deviance, factor * spread, nugget, root, solved))
        _, length, nugget, root, solved = min(likelihoods, key=lambda each: each[0])
        weights = rest @ solved
        inverse = np.sum(rest * linalg.cho_solve(root, rest.T).T, axis=1)
        residuals = weights / inverse
        centred = centred - _matern(squares / length**2) @ weights - nugget * weights
    # what a product of units makes of each monomial, it makes of its coefficient
    coefficients = linalg.solve_triangular(upper[:size], kept.T @ centred) * _basis(1 / units)[0]
    coefficients[0] += centre
    return Surrogate(coefficients, points, weights, length, residuals)


def _basis(points: np.ndarray) -> np.ndarray:
    """Return one, every parameter, and all their products, at each point."""
    points = np.atleast_2d(points)
    first, second = np.tril_indices(points.shape[1])
    ones = np.ones((len(points), 1))
    return np.hstack([ones, points, points[:, first] * points[:, second]])


def _matern(squares: np.ndarray) -> np.ndarray:
    scaled = ROOT * np.sqrt(squares)
    return (1 + scaled + scaled**2 / 3) * np.exp(-scaled)


class Sum(NamedTuple):
    """The sum of several surrogates."""

    constant: float
    slope: np.ndarray
    curvature: np.ndarray
    parts: Sequence[Surrogate]

    def __call__(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return values (points,) and gradients (points, parameters)."""
        curved = points @ self.curvature
        values = self.constant + points @ self.slope + 0.5 * np.sum(points * curved, axis=1)
        gradients = self.slope + curved
        for part in self.parts:
            if not part.weights.any():
                continue
            for start in range(0, len(points), max(1, AT_ONCE // len(part.places))):
                block = slice(start, start + max(1, AT_ONCE // len(part.places)))
                value, gradient = _expansion(part, points[block])
                values[block] += value
                gradients[block] += gradient
        return values, gradients


def add(parts: Sequence[Surrogate]) -> Sum:
    """Return the sum of surrogates, whose quadratics are one."""
    size = parts[0].places.shape[1]
    total = np.sum([part.quadratic for part in parts], axis=0)
    curvature = np.zeros((size, size))
    first, second = np.tril_indices(size)
    curvature[first, second] = total[1 + size :]
    return Sum(float(total[0]), total[1 : 1 + size], curvature + curvature.T, parts)


def _expansion(part: Surrogate, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scaled = cdist(points, part.places)
    scaled *= ROOT / part.length
    decay = np.exp(-scaled) * part.weights
    values = np.sum((1 + scaled + scaled**2 / 3) * decay, axis=1)
    decay *= 1 + scaled
    decay *= -5 / 3 / part.length**2
    return values, points * decay.sum(axis=1)[:, None] - decay @ part.places

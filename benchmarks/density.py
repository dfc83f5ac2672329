"""The log density of a PyMC model at points of its unconstrained space, without a compiler.

Of its own, so that what the package computes is judged by something else.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

# Elements of the largest intermediate array: rows times points.
CHUNK = 2**22


class Density(NamedTuple):
    """`log` and `parameters` take (points, unconstrained parameters), `value_and_slope` one point.

    `parameters` returns the points on the parameters' own scale, `start` is a point to begin at.
    """

    start: np.ndarray
    log: Callable[[np.ndarray], np.ndarray]
    parameters: Callable[[np.ndarray], np.ndarray]
    value_and_slope: Callable[[np.ndarray], tuple[float, np.ndarray]]


class Gaussian(NamedTuple):
    mean: np.ndarray
    factor: np.ndarray

    def points(self, noise):
        """Return the points of standard normal noise, and their log densities up to a constant."""
        return self.mean + noise @ self.factor.T, -0.5 * (noise**2).sum(axis=1)


def density_of(model, names, rows):
    """Return the density of a model of so many rows; `names` give the parameters' order."""
    import pytensor
    import pytensor.tensor as pt
    from pytensor.compile.mode import Mode
    from pytensor.graph.replace import graph_replace, vectorize_graph

    mode = Mode(linker="py", optimizer="fast_compile")
    initial = model.initial_point()
    values = [model.rvs_to_values[model[name]] for name in names]
    starts = [np.asarray(initial[value.name], float) for value in values]
    point, places = pt.dvector("point"), np.cumsum([0, *(start.size for start in starts)])
    parts = {
        value: pt.specify_shape(point[low:high].reshape(start.shape), value.type.shape)
        for value, start, low, high in zip(values, starts, places, places[1:], strict=False)
    }
    log = graph_replace(model.logp(), parts, strict=True)
    own = model.replace_rvs_by_values([model[name] for name in names])
    own = pt.concatenate([one.ravel() for one in graph_replace(own, parts, strict=False)])
    points = pt.dmatrix("points")
    many = [
        pytensor.function([points], vectorize_graph(graph, {point: points}), mode=mode)
        for graph in (log, own)
    ]
    single = pytensor.function([point], [log, pt.grad(log, point)], mode=mode)
    step = max(1, CHUNK // rows)

    def in_chunks(function, points):
        return np.concatenate([function(points[i : i + step]) for i in range(0, len(points), step)])

    return Density(
        np.concatenate([start.ravel() for start in starts]),
        lambda points: in_chunks(many[0], points),
        lambda points: in_chunks(many[1], points),
        lambda where: tuple(single(where)),
    )


def laplace(density, steps=8):
    """Return the Gaussian at the mode with the curvature there.

    L-BFGS comes near the mode; Newton steps, in coordinates of sd about one, reach it.
    """

    def negative(where):
        value, slope = density.value_and_slope(where)
        return -value, -slope

    mean = minimize(negative, density.start, jac=True, method="L-BFGS-B").x
    factor = _factor(density, mean, 1e-3 * np.eye(len(mean)))
    for _ in range(steps):
        move = factor.T @ density.value_and_slope(mean)[1]
        mean = mean + factor @ move
        factor = _factor(density, mean, factor)
        if np.linalg.norm(move) < 1e-4:
            return Gaussian(mean, factor)
    raise RuntimeError(f"no mode after {steps} Newton steps")


def _factor(density, mean, factor, step=0.1):
    """Return a factor of the covariance, by differences of slopes along columns of a factor."""
    slopes = [
        density.value_and_slope(mean + step * column)[1]
        - density.value_and_slope(mean - step * column)[1]
        for column in factor.T
    ]
    curvature = -factor.T @ np.transpose(slopes) / (2 * step)
    eigenvalues, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
    if eigenvalues[0] <= 0:
        raise RuntimeError("the log density is not concave at the mode")
    return factor @ vectors / np.sqrt(eigenvalues)

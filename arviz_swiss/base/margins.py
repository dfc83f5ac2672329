r"""A Gaussian of which some parameters have margins of another shape.

A draw y of the Gaussian, with :math:`t_i = (y_i - \mu_i) / s_i`, is reshaped: :math:`t_i` becomes
the :math:`x_i` below which the margin has as much mass as a standard normal distribution has below
:math:`t_i`, and the other parameters, which followed :math:`t_i` by their regression on it, follow
:math:`x_i` instead. The density of the result is that of y, times :math:`g_i(x_i) / \phi(t_i)` for
each margin :math:`g_i`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.stats import norm

from arviz_swiss.base.gaussian import Gaussian

# Sds within which others follow a parameter: a line through the bulk says nothing of the tails.
FOLLOWED = 2.5
# Fall of the log density where a margin ends, the least fall of a tail a sd, and the longest tail.
FALL, LEAST_FALL, LONGEST_TAIL = 25.0, 0.2, 100.0
# Sds between two points of a margin's grid.
FINE = 0.01


class Margin(NamedTuple):
    """Log density and distribution function on a grid, in sds of the Gaussian's own margin."""

    grid: np.ndarray
    log_density: np.ndarray
    below: np.ndarray


class Shaped(NamedTuple):
    """Draws (count, parameters), and their log densities up to one constant."""

    points: np.ndarray
    log_density: np.ndarray


def points_along(pooled: Gaussian, at: int, steps: np.ndarray) -> np.ndarray:
    """Return points (steps, parameters) where one is so many sds off, and others follow it."""
    sds = np.sqrt(np.diag(pooled.covariance))
    slope = pooled.covariance[:, at] / sds[at]
    points = pooled.mean + np.clip(steps, -FOLLOWED, FOLLOWED)[:, None] * slope
    points[:, at] = pooled.mean[at] + steps * sds[at]
    return points


def margin_of(steps: np.ndarray, log_density: np.ndarray) -> Margin:
    """Return the margin with this log density at steps of an increasing order, in sds.

    Beyond the steps its tails fall on as fast as between the last two.
    """
    left = _tail(log_density[0] - log_density[1], steps[1] - steps[0], log_density[0], log_density)
    right = _tail(
        log_density[-1] - log_density[-2], steps[-1] - steps[-2], log_density[-1], log_density
    )
    ends = [steps[0] - left.length, *steps, steps[-1] + right.length]
    known = [log_density[0] - left.fall, *log_density, log_density[-1] - right.fall]
    grid = np.linspace(ends[0], ends[-1], int(np.ceil((ends[-1] - ends[0]) / FINE)) + 1)
    values = PchipInterpolator(ends, known)(grid)
    density = np.exp(values - values.max())
    parts = (density[1:] + density[:-1]) / 2 * np.diff(grid)
    total = parts.sum()
    below = np.concatenate([[0.0], np.cumsum(parts) / total])
    return Margin(grid, values - values.max() - np.log(total), below)


class _Tail(NamedTuple):
    length: float
    fall: float


def _tail(rise: float, width: float, end: float, log_density: np.ndarray) -> _Tail:
    """Return how long a tail is beyond an end, and how far the log density falls along it."""
    slope = max(-rise / width, LEAST_FALL)
    missing = max(FALL - (log_density.max() - end), 1.0)
    length = min(missing / slope, LONGEST_TAIL)
    return _Tail(length, slope * length)


def draw_shaped(
    pooled: Gaussian, margins: Mapping[int, Margin], count: int, rng: np.random.Generator
) -> Shaped:
    """Return draws of the Gaussian with other margins, by the positions of their parameters."""
    factor = np.linalg.cholesky(pooled.covariance)
    white = rng.standard_normal((count, len(factor)))
    away = white @ factor.T
    log_density = -np.sum(white**2, axis=1) / 2
    shaped = list(margins)
    sds = np.sqrt(np.diag(pooled.covariance))[shaped]
    before = away[:, shaped] / sds
    after = np.empty_like(before)
    for column, margin in enumerate(margins.values()):
        after[:, column] = np.interp(norm.cdf(before[:, column]), margin.below, margin.grid)
        log_density += np.interp(after[:, column], margin.grid, margin.log_density)
        log_density -= norm.logpdf(before[:, column])
    away += (np.clip(after, -FOLLOWED, FOLLOWED) - before) @ _followers(pooled, shaped, sds)
    away[:, shaped] = after * sds
    return Shaped(pooled.mean + away, log_density)


def _followers(pooled: Gaussian, shaped: Sequence[int], sds: np.ndarray) -> np.ndarray:
    """Return the regression of all parameters on the shaped ones in sds, (shaped, parameters)."""
    covariance = pooled.covariance[shaped]
    return np.linalg.solve(covariance[:, shaped], covariance) * sds[:, None]

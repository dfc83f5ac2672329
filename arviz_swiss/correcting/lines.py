"""The full posterior along lines through the pooled Gaussian, where no draws tell of it.

Weights know the posterior only where draws are. Of a scale that may be zero, a part of the
posterior lies far out, where a Gaussian has hardly a draw.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import logsumexp

from arviz_swiss.base.gaussian import Gaussian
from arviz_swiss.base.margins import Margin, margin_of, points_along
from arviz_swiss.merging.records import SKEWED

# Points of a line, in sds of the parameter, closer in the middle.
STEPS = np.concatenate([-np.arange(8, 4, -1), np.arange(-4, 4.1, 0.5), np.arange(5, 9)])
# Of the log density: where there is more it is not known.
MOST_NOISE = 2.0


class Reach(NamedTuple):
    """By how many sds a parameter's mean is off, and by what share its sd, along its line.

    Both are NaN if the density in the middle of the line is not known.
    """

    parameter: str
    shift: float
    stretch: float


def doubtful_positions(skewness: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Return the positions of parameters that may be skewed, as far as the scores can tell."""
    return np.flatnonzero(np.abs(skewness) + 2 * error > SKEWED)


def points_of_lines(pooled: Gaussian, positions: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return points (lines x steps, parameters) along each of some parameters."""
    lines = [points_along(pooled, at, STEPS) for at in positions]
    return np.concatenate([np.empty((0, pooled.mean.size)), *lines])


def reach_along(
    parameters: Sequence[str], log_density: np.ndarray, noise: np.ndarray
) -> list[Reach]:
    """Return what the log density at `points_of_lines` says of each parameter's mean and sd.

    Along its line a parameter of the pooled Gaussian has a standard normal density, and so it would
    have if that were the full posterior, whose width around the line is taken to be the same
    everywhere.
    """
    values = _known(log_density, noise)
    # the same sums of a standard normal density: what the steps leave of error cancels
    expected_mean, expected_sd = _moments(-(STEPS**2) / 2)
    found = []
    for parameter, own in zip(parameters, values, strict=True):
        mean, sd = _moments(_filled(own))
        found.append(Reach(parameter, mean - expected_mean, sd / expected_sd - 1))
    return found


def margins_along(
    positions: Sequence[int] | np.ndarray, log_density: np.ndarray, noise: np.ndarray
) -> dict[int, Margin]:
    """Return the shape of each parameter by the log density at `points_of_lines`, where known."""
    margins = {}
    for at, own in zip(positions, _known(log_density, noise), strict=True):
        within = _around_middle(np.isfinite(own))
        if within.stop - within.start > 2:
            margins[int(at)] = margin_of(STEPS[within], own[within])
    return margins


def _known(log_density: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return log densities (lines, steps), NaN where they are not known."""
    known = ~np.isnan(log_density) & (noise <= MOST_NOISE)
    return np.where(known, log_density, np.nan).reshape(-1, STEPS.size)


def _around_middle(holds: np.ndarray) -> slice:
    """Return the longest run of what holds that has the middle in it."""
    middle = STEPS.size // 2
    left = int(np.argmin(np.append(holds[middle::-1], False)))
    right = int(np.argmin(np.append(holds[middle:], False)))
    return slice(middle - left + 1, middle + right) if holds[middle] else slice(0, 0)


def _filled(log_density: np.ndarray) -> np.ndarray:
    """Return log densities, unknown ones as high as the next that is known nearer to the middle.

    What is not known is taken to be no less than likely; where nothing is known all stay NaN.
    """
    middle = STEPS.size // 2
    right = pd.Series(log_density[middle:]).ffill().to_numpy()
    left = pd.Series(log_density[middle::-1]).ffill().to_numpy()
    return np.concatenate([left[:0:-1], right])


def _moments(log_density: np.ndarray) -> tuple[float, float]:
    """Return mean and sd of a density on the steps."""
    log_mass = log_density + np.log(np.gradient(STEPS))
    if np.isnan(log_mass).any() or not np.isfinite(log_mass).any():
        return np.nan, np.nan
    mass = np.exp(log_mass - logsumexp(log_mass))
    mean = float(mass @ STEPS)
    return mean, float(np.sqrt(mass @ (STEPS - mean) ** 2))

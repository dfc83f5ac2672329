"""Shape of one-dimensional samples; NumPy only."""

from collections.abc import Callable

import numpy as np

# A mode counts if at least this share of the draws is on its side of the valley.
MODE_SHARE = 0.05


def excess_kurtosis(sample: np.ndarray) -> np.ndarray:
    """Return the fourth standardised moment of every parameter, minus that of a Gaussian."""
    centred = sample - sample.mean(axis=0)
    return np.mean(centred**4, axis=0) / np.mean(centred**2, axis=0) ** 2 - 3.0


def valleys(sample: np.ndarray, kde: Callable) -> np.ndarray:
    """Return the depth of the deepest valley between two modes, of every parameter.

    Parameters
    ----------
    sample : (row, parameter) array
    kde : callable
        ``kde(draws) -> grid, density, bandwidth``, as `containers.kde`.
    """
    columns = np.ascontiguousarray(sample.T)
    return np.array([valley(kde(column)[1]) for column in columns])


def valley(density: np.ndarray) -> float:
    """Return the depth of the deepest valley of a density on a grid: 0 with one mode, at most 1.

    At a point between two modes the depth is how far the density lies below the lower mode, as a
    share of that mode.
    """
    share = np.cumsum(density) / density.sum()
    lower = np.minimum(np.maximum.accumulate(density), np.maximum.accumulate(density[::-1])[::-1])
    between = (share > MODE_SHARE) & (share < 1.0 - MODE_SHARE)
    if not between.any():
        return 0.0
    return float(np.max(1.0 - density[between] / lower[between]))

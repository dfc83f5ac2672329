"""Shape of one-dimensional samples; NumPy only."""

from collections.abc import Callable

import numpy as np

# A mode counts if at least this share of the draws is what its hill rises above the valley.
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

    The depth is how far the valley's floor lies below the lower of the two modes beside it, as a
    share of that mode. A mode is a hill with mass above the floor (its excess mass [1]_), of which
    ripples in a long tail have next to none. Valleys are filled from the shallowest on, which makes
    one hill of two.

    References
    ----------
    .. [1] Müller & Sawitzki (1991), Excess mass estimates and tests for multimodality, Journal of
       the American Statistical Association 86. https://doi.org/10.1080/01621459.1991.10475103
    """
    heights, floors = _turning_points(density)
    peaks = density[heights].tolist()
    total, deepest = density.sum(), 0.0
    while floors:
        highest = int(np.argmax(density[floors]))
        level = density[floors[highest]]
        edges = [0, *floors, density.size]
        hills = [density[slice(*edges[side : side + 2])] for side in (highest, highest + 1)]
        counts = [np.maximum(hill - level, 0.0).sum() >= MODE_SHARE * total for hill in hills]
        pair = peaks[highest : highest + 2]
        if all(counts):
            deepest = max(deepest, 1.0 - level / min(pair))
        taller = max(pair) if counts[0] == counts[1] else pair[counts.index(True)]
        peaks[highest : highest + 2] = [taller]
        del floors[highest]
    return float(deepest)


def _turning_points(density: np.ndarray) -> tuple[list[int], list[int]]:
    """Return where a density on a grid has its modes, and its lowest points between them."""
    steps = np.diff(density)
    moving = np.flatnonzero(steps)
    up = steps[moving] > 0
    turns = np.flatnonzero(up[1:] != up[:-1])
    places, is_mode = moving[turns] + 1, up[turns]
    modes = places[is_mode].tolist()
    if not up.size or not up[0]:
        modes = [0, *modes]
    if up.size and up[-1]:
        modes = [*modes, density.size - 1]
    return modes, places[~is_mode].tolist()

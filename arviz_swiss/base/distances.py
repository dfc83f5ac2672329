"""Distances between two samples, what they would be by chance, and the shape of one.

Samples are (row, parameter) arrays. Every distance has a noise floor: its mean for two independent
samples of these effective sizes from the reference's distribution.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from arviz_swiss.base.density import GRID, bandwidths, curves, smooth

HALF_NORMAL = np.sqrt(2.0 / np.pi)
# So many interquartile ranges from the middle half of the draws, and a draw is far out.
FAR = 100.0
# Directions with less variance than this share are linear functions of the others (a simplex).
NULL = 1e-12
# A mode counts if at least this share of the draws is what its hill rises above the valley.
MODE_SHARE = 0.05


class Whitening(NamedTuple):
    """Moments of the reference, and the matrix that makes its draws uncorrelated, of sd one."""

    mean: np.ndarray
    spread: np.ndarray
    matrix: np.ndarray


class Density(NamedTuple):
    """Kernel density of one parameter on a grid, and the shares of draws `below` and `above` it."""

    low: float
    high: float
    bandwidth: float
    values: np.ndarray
    below: float
    above: float

    @property
    def step(self) -> float:
        """Width of a grid cell."""
        return (self.high - self.low) / self.values.size


def whiten(reference: np.ndarray) -> Whitening:
    """Return the whitening of the reference; exact linear dependences are left out."""
    mean, spread = reference.mean(axis=0), reference.std(axis=0, ddof=1)
    standard = (reference - mean) / spread
    values, vectors = np.linalg.eigh(standard.T @ standard / (len(reference) - 1))
    kept = values > NULL * values[-1]
    return Whitening(mean, spread, vectors[:, kept] / np.sqrt(values[kept]) / spread[:, None])


def mahalanobis(sample: np.ndarray, whitening: Whitening) -> float:
    """Return the distance between the means, in the reference's covariance."""
    return float(np.linalg.norm((sample.mean(axis=0) - whitening.mean) @ whitening.matrix))


def covariance_error(sample: np.ndarray, whitening: Whitening) -> float:
    """Return the root mean square over directions of ``W - I``, W the whitened covariance."""
    whitened = (sample - sample.mean(axis=0)) @ whitening.matrix
    size = whitened.shape[1]
    excess = whitened.T @ whitened / (len(sample) - 1) - np.eye(size)
    return float(np.linalg.norm(excess) / np.sqrt(size))


def skewness(sample: np.ndarray) -> np.ndarray:
    """Return the third standardised moment of every parameter."""
    centred = sample - sample.mean(axis=0)
    squares = centred * centred
    return np.mean(squares * centred, axis=0) / np.mean(squares, axis=0) ** 1.5


def excess_kurtosis(sample: np.ndarray) -> np.ndarray:
    """Return the fourth standardised moment of every parameter, minus that of a Gaussian."""
    squares = (sample - sample.mean(axis=0)) ** 2
    return np.mean(squares * squares, axis=0) / np.mean(squares, axis=0) ** 2 - 3.0


def wasserstein(sample: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return every parameter's 1-Wasserstein distance, in sds of the reference."""
    first, second = np.sort(sample, axis=0), np.sort(reference, axis=0)
    # The distance is the area between the quantile functions, which are steps.
    ends = np.union1d(*(np.arange(1, len(each) + 1) / len(each) for each in (first, second)))
    widths = np.diff(ends, prepend=0.0)
    middle = ends - widths / 2
    steps = (each[(middle * len(each)).astype(int)] for each in (first, second))
    return widths @ np.abs(np.subtract(*steps)) / reference.std(axis=0, ddof=1)


def densities(reference: np.ndarray) -> list[Density]:
    """Return the density of every parameter."""
    columns = np.ascontiguousarray(reference.T)
    first, third = np.quantile(columns, [0.25, 0.75], axis=1)
    middle = third - first
    # A grid up to draws that are far out would resolve no others.
    reach = np.where(middle > 0, FAR * middle, np.inf)
    low, high = first - reach, third + reach
    is_whole = (columns.min(axis=1) > low) & (columns.max(axis=1) < high)
    widths = np.empty(len(columns))
    widths[is_whole] = bandwidths(columns[is_whole], middle[is_whole])
    found = []
    for at, column in enumerate(columns):
        inside = column
        if not is_whole[at]:
            inside = column[(column > low[at]) & (column < high[at])]
            (widths[at],) = bandwidths(inside[None], middle[at : at + 1])
        found.append(_density(column, inside.min(), inside.max(), widths[at]))
    return found


def _density(column: np.ndarray, least: float, greatest: float, width: float) -> Density:
    """Return the density of one parameter on a grid for draws between two of them."""
    low, high = least - 4 * width, greatest + 4 * width
    cells = int(np.clip(4 * (high - low) / width, GRID, 16 * GRID))
    frame = Density(low, high, width, np.zeros(cells), 0.0, 0.0)
    (counts,) = _counts(column, frame, np.array([column.size]))
    values = smooth(counts[1:-1] / column.size, width / frame.step) / frame.step
    return frame._replace(
        values=values, below=counts[0] / column.size, above=counts[-1] / column.size
    )


def _counts(column: np.ndarray, density: Density, sizes: np.ndarray) -> np.ndarray:
    """Return (group, cell) counts of groups end to end; first and last of those off the grid."""
    cells = density.values.size
    places = np.clip(np.floor((column - density.low) / density.step), -1, cells).astype(np.int32)
    places += 1
    starts = (cells + 2) * np.arange(sizes.size, dtype=np.int32)
    places += np.repeat(starts, sizes)
    return np.bincount(places, minlength=(cells + 2) * sizes.size).reshape(sizes.size, -1)


def integrated_absolute(sample: np.ndarray, reference: list[Density]) -> np.ndarray:
    """Return half the integrated absolute difference of the marginal densities, from 0 to 1.

    The sample is smoothed with the reference's bandwidth, so that two samples of one distribution
    differ by chance only. Of what lies outside the reference's grid, the shares are compared.
    """
    columns, size = np.ascontiguousarray(sample.T), np.array([len(sample)])
    return np.array([areas(c, d, size)[0] for c, d in zip(columns, reference, strict=True)])


def areas(column: np.ndarray, density: Density, sizes: np.ndarray) -> np.ndarray:
    """Return `integrated_absolute` of each of several samples of one parameter, end to end."""
    counts = _counts(column, density, sizes)
    shares = counts / sizes[:, None]
    values = smooth(shares[:, 1:-1], density.bandwidth / density.step) / density.step
    between = np.abs(values - density.values).sum(axis=1) * density.step
    beyond = np.abs(shares[:, 0] - density.below) + np.abs(shares[:, -1] - density.above)
    # draws that are all the same have no density
    stuck = counts[:, 1:-1].max(axis=1) >= counts[:, 1:-1].sum(axis=1)
    return np.where(stuck, 1.0, 0.5 * (between + beyond))


def mahalanobis_floor(variance: float, rank: int, reference_size: float) -> float:
    """Return the mean distance between the means of two samples of one distribution.

    The variance is the sum of one over the effective sizes of the two means, the rank the number of
    directions; the inverse of the reference's covariance is too large where its size is small.
    """
    excess = max(reference_size - rank - 2, 1.0) / max(reference_size - 1, 1.0)
    return float(np.sqrt(variance / excess) * _mean_chi(rank))


def covariance_floor(variance: float, whitened_reference: np.ndarray) -> float:
    """Return the mean covariance error of two samples of one distribution.

    ``E|W - I|^2 = (E|z|^4 - d) (1 / n + 1 / m)`` for whitened draws z, Gaussian or not.
    """
    size = whitened_reference.shape[1]
    fourth = np.mean(np.sum(whitened_reference**2, axis=1) ** 2)
    free = size * (size + 1) // 2
    shape = _mean_chi(free) / np.sqrt(free)
    return float(shape * np.sqrt(max(fourth - size, 0.0) * variance / size))


def skewness_floor(variance: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return the mean absolute difference of skewness, from the skewness' influence function."""
    return HALF_NORMAL * np.sqrt(variance) * skewness_influence(reference).std(axis=0)


def skewness_influence(sample: np.ndarray) -> np.ndarray:
    """Return how much every draw counts in the skewness: its mean is zero."""
    standard = (sample - sample.mean(axis=0)) / sample.std(axis=0)
    squares = standard * standard
    cubes = squares * standard
    third = np.mean(cubes, axis=0)
    return cubes - 3 * standard - third - 1.5 * third * (squares - 1)


def wasserstein_floor(variance: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return the mean distance: the expected area between two empirical distribution functions."""
    ordered = np.sort(reference, axis=0)
    below = np.arange(1, len(ordered)) / len(ordered)
    area = np.sqrt(below * (1 - below)) @ np.diff(ordered, axis=0)
    return HALF_NORMAL * np.sqrt(variance) * area / reference.std(axis=0, ddof=1)


def integrated_absolute_floor(variance: np.ndarray, reference: list[Density]) -> np.ndarray:
    """Return the mean integrated absolute difference of two density estimates.

    Each point of a Gaussian kernel's has variance ``(g / (2 h sqrt(pi)) - g^2) / n``, g its mean.
    """
    noise = [
        np.sqrt(np.maximum(d.values / (2 * d.bandwidth * np.sqrt(np.pi)) - d.values**2, 0)).sum()
        * d.step
        + np.sqrt(d.below * (1 - d.below))
        + np.sqrt(d.above * (1 - d.above))
        for d in reference
    ]
    return 0.5 * HALF_NORMAL * np.sqrt(variance) * np.array(noise)


def _mean_chi(degrees: int) -> float:
    """Return the mean length of a vector of so many independent standard normal numbers."""
    return float(np.sqrt(2.0) * np.exp(gammaln((degrees + 1) / 2) - gammaln(degrees / 2)))


def valleys(ordered: np.ndarray) -> np.ndarray:
    """Return the depth of the deepest valley between two modes, of (parameter, draw) in order."""
    values = curves(ordered).values
    steps = np.diff(values, axis=1)
    falls = np.logical_or.accumulate(steps < 0, axis=1)
    depths = np.zeros(len(values))
    for at in np.flatnonzero((falls & (steps > 0)).any(axis=1)):
        depths[at] = valley(values[at])
    return depths


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

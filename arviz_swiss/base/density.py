"""Kernel densities on a grid, of many parameters at once, with the bandwidth of ArviZ."""

from typing import NamedTuple

import numpy as np
from scipy.fft import dct, idct

GRID = 512
# Wider than this share of the range, a bandwidth is not found by derivatives.
WIDEST = 0.1
# Derivatives by which the bandwidth is found, from the highest on.
HIGHEST, LOWEST = 7, 2
ROOT_STEPS, ROOT_TOLERANCE = 30, 1e-10
# Of an exponential with a larger negative exponent nothing is left.
LEAST = 120.0
# Relative to the highest: less is rounding.
NOTHING = 1e-12


class Curves(NamedTuple):
    """Kernel densities on grids from the least to the greatest draw, (parameter, cell)."""

    low: np.ndarray
    high: np.ndarray
    bandwidth: np.ndarray
    values: np.ndarray

    @property
    def grids(self) -> np.ndarray:
        """Centres of the cells, (parameter, cell)."""
        cells = self.values.shape[1]
        share = (np.arange(cells) + 0.5) / cells
        return self.low[:, None] + (self.high - self.low)[:, None] * share


def curves(ordered: np.ndarray) -> Curves:
    """Return the densities of draws in order, (parameter, draw), reflected at both ends.

    A constant has a bandwidth of zero, and all its draws in one cell.
    """
    low, high = ordered[:, 0], ordered[:, -1]
    span = np.where(high > low, high - low, 1.0)
    waves = dct(_counts(ordered, low, span) / ordered.shape[1])
    widths = np.where(high > low, _bandwidths(ordered, _middle_half(ordered), span, waves), 0.0)
    values = _back(waves, widths / span) * (GRID / span)[:, None]
    return Curves(low, high, widths, values)


def _middle_half(ordered: np.ndarray) -> np.ndarray:
    """Return the interquartile range of draws in order."""
    places = np.array([0.25, 0.75]) * (ordered.shape[1] - 1)
    below = places.astype(int)
    low, high = ordered[:, below], ordered[:, np.minimum(below + 1, ordered.shape[1] - 1)]
    return np.diff(low + (places - below) * (high - low), axis=1)[:, 0]


def bandwidths(columns: np.ndarray, middle_half: np.ndarray) -> np.ndarray:
    """Return the bandwidths for (parameter, draw) draws, by their interquartile ranges too."""
    low = columns.min(axis=1)
    span = columns.max(axis=1) - low
    waves = dct(_counts(columns, low, span) / columns.shape[1])
    return _bandwidths(columns, middle_half, span, waves)


def smooth(counts: np.ndarray, width: float) -> np.ndarray:
    """Return counts in the cells of a grid, (..., cell), smoothed by a width in cells."""
    return _back(dct(counts), np.array(width / counts.shape[-1]))


def _back(waves: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return what a Gaussian kernel of a width, as share of the range, makes of cosine waves."""
    places = np.pi * np.arange(waves.shape[-1])
    values = idct(waves * np.exp(-0.5 * (places * share[..., None]) ** 2))
    return np.where(values > NOTHING * values.max(axis=-1, keepdims=True), values, 0.0)


def _counts(columns: np.ndarray, low: np.ndarray, span: np.ndarray) -> np.ndarray:
    """Return how many draws are in each of the cells between the least and the greatest."""
    cells = ((columns - low[:, None]) * (GRID / span)[:, None]).astype(np.int32)
    np.minimum(cells, GRID - 1, out=cells)
    cells += GRID * np.arange(len(columns), dtype=np.int32)[:, None]
    return np.bincount(cells.ravel(), minlength=GRID * len(columns)).reshape(-1, GRID)


def _bandwidths(
    columns: np.ndarray, middle_half: np.ndarray, span: np.ndarray, waves: np.ndarray
) -> np.ndarray:
    """Return the means of two bandwidths: by the draws' spread, and by estimated derivatives."""
    size, spread = columns.shape[1], columns.std(axis=1)
    # where half of the draws are the same, the others have a spread still
    spread = np.where(middle_half > 0, np.minimum(spread, middle_half / 1.34), spread)
    by_spread = 0.9 * spread * size**-0.2
    found = _fixed_point(waves[:, 1:] ** 2, size, (by_spread / span) ** 2)
    by_derivatives = np.where(np.isnan(found), by_spread, np.sqrt(found) * span)
    return 0.5 * (by_spread + by_derivatives)


def _fixed_point(squares: np.ndarray, size: int, start: np.ndarray) -> np.ndarray:
    """Return squared bandwidths, in ranges, that give themselves; NaN where none is found [1]_.

    Their logs hardly depend on those they are computed from, so that secants find them soon.

    References
    ----------
    .. [1] Botev, Grotowski & Kroese (2010), Kernel density estimation via diffusion, Annals of
       Statistics 38. https://doi.org/10.1214/10-AOS799
    """
    found = np.full(len(squares), np.nan)
    left = np.flatnonzero(start > 0)
    if not left.size:
        return found
    with np.errstate(all="ignore"):
        weighted = _weighted(squares[left])
        here = np.log(start[left])
        excess = np.log(_next_squared(weighted, size, np.exp(here))) - here
        there = here + excess
        for _ in range(ROOT_STEPS):
            other = np.log(_next_squared(weighted, size, np.exp(there))) - there
            done = np.abs(other) < ROOT_TOLERANCE
            found[left[done]] = np.exp(there[done])
            going = np.isfinite(other) & ~done
            if not going.any():
                break
            left, weighted = left[going], weighted[:, going]
            here, there, excess, other = (x[going] for x in (here, there, excess, other))
            slope = (other - excess) / (there - here)
            # where a secant leads astray, the value itself is a step
            step = np.where(slope < -0.1, -other / slope, other)
            here, there, excess = there, there + step, other
    return np.where(found <= WIDEST**2, found, np.nan)


def _weighted(squares: np.ndarray) -> np.ndarray:
    """Return the waves' squares times the powers of their number that each derivative takes."""
    numbers = np.arange(1, squares.shape[1] + 1, dtype=float) ** 2
    return np.array([squares * numbers**order for order in range(LOWEST, HIGHEST + 1)])


def _next_squared(weighted: np.ndarray, size: int, squared: np.ndarray) -> np.ndarray:
    """Return the best squared bandwidth, by derivatives estimated with another, step by step."""
    waves = -((np.pi * np.arange(1, weighted.shape[2] + 1)) ** 2)

    def norm(order: int, at: np.ndarray) -> np.ndarray:
        reach = np.searchsorted(-waves, LEAST / np.fmin.reduce(at)) + 1
        kernel = np.exp(at[:, None] * waves[:reach])
        total = np.einsum("pk,pk->p", weighted[order - LOWEST, :, :reach], kernel)
        return 0.5 * np.pi ** (2 * order) * total

    derivative = norm(HIGHEST, squared)
    for order in range(HIGHEST - 1, LOWEST - 1, -1):
        odd = np.prod(np.arange(1.0, 2 * order, 2)) / np.sqrt(np.pi / 2)
        factor = (1 + 0.5 ** (order + 0.5)) / 3 * odd / size
        derivative = norm(order, (factor / derivative) ** (2 / (3 + 2 * order)))
    return (2 * size * np.sqrt(np.pi) * derivative) ** -0.4

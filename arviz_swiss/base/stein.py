"""Whether draws come from a density, by its scores.

Two identities hold for draws x of a density that vanishes at its edges, with score s: the mean
score is zero, and the mean of ``(x - c) s`` is minus one for every parameter and any fixed c.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2
from scipy.stats import t as student

from arviz_swiss.base import linalg
from arviz_swiss.base.effective import effective_sizes


class Spread(NamedTuple):
    """Variance of draws over the density's, its error, effective size and degrees of freedom."""

    ratio: float
    error: float
    size: float
    freedom: float


def _freedom(sizes: np.ndarray, count: int) -> np.ndarray:
    """Return degrees of freedom: dependent draws tell less of their dependence than of their sd."""
    return np.maximum((sizes - 1) * np.sqrt(sizes / count), 1.0)


def offset(scores: np.ndarray, covariance: np.ndarray) -> tuple[float, float]:
    """Tell how far draws are off the density of these (chain, draw, parameter) scores.

    Return how many sds the mean of the density would be off, were it Gaussian; and the sum of the
    directions' squared statistics, about chi-squared with as many degrees of freedom.
    """
    whitened = scores @ linalg.cholesky(covariance)
    mean, sd = whitened.mean(axis=(0, 1)), whitened.std(axis=(0, 1), ddof=1)
    sizes = effective_sizes(whitened)
    statistics = np.abs(mean) / np.where(sd > 0, sd, 1.0) * np.sqrt(sizes)
    freedom = _freedom(sizes, scores.shape[0] * scores.shape[1])
    squares = chi2.isf(2 * student.sf(statistics, freedom), 1)
    return float(np.linalg.norm(mean)), float(np.sum(squares))


def spread(draws: np.ndarray, scores: np.ndarray) -> Spread:
    """Return how wide (chain, draw, parameter) draws are for the density of these scores."""
    products = -np.mean((draws - _centres(draws)) * scores, axis=-1)
    sizes = effective_sizes(products[..., None])
    # The products of few draws may by chance vary too little: no less than those of a Gaussian.
    variance = max(products.var(ddof=1), 2 / draws.shape[-1])
    return Spread(
        float(products.mean()),
        float(np.sqrt(variance / sizes[0])),
        float(sizes[0]),
        float(_freedom(sizes, products.size)[0]),
    )


def _centres(draws: np.ndarray) -> np.ndarray:
    """Return a centre for each draw that it had no part in: the mean of the other chains.

    A mean that a draw has part in makes the products too small, by one over the effective size.
    """
    chains, length, _ = draws.shape
    if chains > 1:
        sums = draws.sum(axis=1, keepdims=True)
        return (sums.sum(axis=0) - sums) / ((chains - 1) * length)
    first, second = np.array_split(draws, 2, axis=1)
    means = [half.mean(axis=1, keepdims=True) for half in (second, first)]
    return np.repeat(np.concatenate(means, axis=1), [first.shape[1], second.shape[1]], axis=1)


def pooled_spread(spreads: Sequence[Spread]) -> Spread:
    """Return the mean spread of several batches, each by its effective size."""
    ratios, errors, sizes, freedom = np.array(spreads).T
    shares = sizes / sizes.sum()
    error = np.linalg.norm(shares * errors)
    return Spread(float(shares @ ratios), float(error), float(sizes.sum()), float(freedom.sum()))


def chance(width: Spread) -> float:
    """Return the probability of a ratio as far from one, were the draws those of the density."""
    return float(2 * student.sf(abs(width.ratio - 1) / width.error, width.freedom))

"""Methods that average the batches: their draws, their quantiles, or their empirical measures."""

import numpy as np
from scipy.spatial.distance import cdist, pdist

from arviz_swiss.base.counts import check_count
from arviz_swiss.base.linalg import AffineMap
from arviz_swiss.methods.registry import Given, checked_bandwidth, register

TINY = 1e-12
MEDIAN_OF = 1000
# Distances between all pairs of landmarks take long where there are more.
FEWEST_LANDMARKS, MOST_LANDMARKS, ALL_LANDMARKS = 50, 500, 10_000


@register("consensus", expects="fractionated", makes="terms")
def consensus(given: Given) -> list[AffineMap]:
    """Return the terms of consensus Monte Carlo's draws: ``(sum_b P_b)^-1 P_b theta_b``.

    References
    ----------
    .. [1] Scott, Blocker, Bonassi, Chipman, George & McCulloch (2016), Bayes and big data: the
       consensus Monte Carlo algorithm, International Journal of Management Science and Engineering
       Management 11. https://doi.org/10.1080/17509653.2016.1142191
    """
    shares = (given.pooled.covariance @ moments.precision for moments in given.moments)
    return [_term(share, own.mean) for share, own in zip(shares, given.moments, strict=True)]


@register("average", expects="fractionated", makes="terms")
def average(given: Given) -> list[AffineMap]:
    """Return the terms of the plain average of the batches' draws."""
    share = np.eye(given.pooled.mean.size) / len(given.moments)
    return [_term(share, moments.mean) for moments in given.moments]


def _term(share: np.ndarray, mean: np.ndarray) -> AffineMap:
    """Return the linear map by a share, about the mean: exact also where that is far from zero."""
    return AffineMap(share, mean, share @ mean)


@register("quantile", expects="inflated", makes="draws")
def quantile(given: Given, draws: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return draws whose marginal quantiles are the averages of the batches' quantiles.

    That says nothing about how parameters depend on one another: row i takes the ranks of row i of
    batch ``i mod B``, so the dependence is that of the batches on average.

    References
    ----------
    .. [1] Li, Srivastava & Dunson (2017), Simple, scalable and accurate posterior interval
       estimation, Biometrika 104. https://doi.org/10.1093/biomet/asx033
    """
    batches, chains, length, parameters = draws.shape
    rows = draws.reshape(batches, -1, parameters)
    marginals = np.tensordot(given.weights, np.sort(rows, axis=1), axes=1)
    turn = np.arange(chains * length) % batches
    ranks = np.empty((turn.size, parameters))
    for batch, block in enumerate(rows):
        mine = turn == batch
        ranks[mine] = block.argsort(axis=0).argsort(axis=0)[mine]
    order = ranks.argsort(axis=0).argsort(axis=0)
    return np.take_along_axis(marginals, order, axis=0).reshape(chains, length, parameters)


@register("median", expects="inflated", makes="draws")
def median(
    given: Given,
    draws: np.ndarray,
    rng: np.random.Generator,
    *,
    bandwidth: float | None = None,
    standardise: bool = True,
    landmarks: int | None = None,
) -> np.ndarray:
    """Return draws from the geometric median of the batches' empirical measures ("M-posterior").

    The median is a mixture of the batches, found by Weiszfeld's algorithm in the space of a radial
    kernel ``exp(-|x - y|^2 / (2 bandwidth^2))``. A batch far from the others gets little weight.

    Parameters
    ----------
    bandwidth : float, optional
        The kernel's; the median distance between draws when absent.
    standardise : bool, default True
        Measure distances in the batches' mean sds, so that the result does not depend on units.
    landmarks : int, optional
        Distances between batches are computed from so many draws of each, evenly spaced; 500 when
        absent, fewer where there are more than 20 batches.

    References
    ----------
    .. [1] Minsker, Srivastava, Lin & Dunson (2014), Scalable and robust Bayesian inference via the
       median posterior, International Conference on Machine Learning.
       https://proceedings.mlr.press/v32/minsker14.html
    """
    if bandwidth is not None:
        bandwidth = checked_bandwidth(bandwidth)
    if landmarks is None:
        landmarks = min(MOST_LANDMARKS, max(FEWEST_LANDMARKS, ALL_LANDMARKS // len(draws)))
    check_count("landmarks", landmarks, 2)
    batches, chains, length, parameters = draws.shape
    rows = draws.reshape(batches, -1, parameters)
    spaced = np.linspace(0, rows.shape[1] - 1, min(landmarks, rows.shape[1])).astype(int)
    points = rows[:, spaced]
    if standardise:
        variances = [np.diag(moments.covariance) for moments in given.moments]
        points = points / np.sqrt(np.mean(variances, axis=0))
    weights = geometric_median(kernel_means(points, bandwidth))
    owners = rng.choice(batches, size=chains * length, p=weights)
    picked = rows[owners, rng.integers(rows.shape[1], size=owners.size)]
    return picked.reshape(chains, length, parameters)


def kernel_means(points: np.ndarray, bandwidth: float | None) -> np.ndarray:
    """Return the mean kernel between the (batch, point, parameter) points of every two batches."""
    if bandwidth is None:
        together = points.reshape(-1, points.shape[-1])
        bandwidth = np.median(pdist(together[:: max(1, len(together) // MEDIAN_OF)]))
    means = np.empty((len(points), len(points)))
    for i, first in enumerate(points):
        for j, second in enumerate(points[: i + 1]):
            squares = cdist(first, second, "sqeuclidean")
            means[i, j] = means[j, i] = np.exp(squares / (-2 * bandwidth**2)).mean()
    return means


def geometric_median(inner: np.ndarray, tolerance: float = 1e-9, iterations: int = 1000):
    """Return the weights of the geometric median of points, by their inner products (Weiszfeld)."""
    count = inner.shape[0]
    weights = np.full(count, 1.0 / count)
    for _ in range(iterations):
        squared = np.diag(inner) - 2 * inner @ weights + weights @ inner @ weights
        near = 1.0 / np.sqrt(np.maximum(squared, TINY))
        moved = near / near.sum()
        if np.max(np.abs(moved - weights)) < tolerance:
            return moved
        weights = moved
    return weights

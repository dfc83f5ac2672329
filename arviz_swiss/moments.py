"""One batch's mean, covariance and precision; and pooling them."""

import bisect
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from arviz_swiss import containers, linalg
from arviz_swiss.flatten import Layout, gather, gather_all, row_blocks

COVARIANCES = ("sample", "corrected", "shrunk", "diagonal")
QUICK_PARAMETERS = 4
QUICK_DRAWS = 500


class Glance(NamedTuple):
    """Of every parameter, from some of a batch's draws: R-hat is NaN where unknown."""

    skewness: np.ndarray
    rhat: np.ndarray


class Moments(NamedTuple):
    """A batch's moments over its free parameters.

    `covariance` is what the draws have and a map starts from; `precision` is what the pooling
    counts, which differs from its inverse only when corrected for bias. `glance` is what some of
    the draws tell of their shape.
    """

    mean: np.ndarray
    covariance: np.ndarray
    precision: np.ndarray
    draws: int
    effective: float
    glance: Glance | None = None


class Pooled(NamedTuple):
    """Moments of the merged posterior, with L, the lower Cholesky factor of its precision."""

    mean: np.ndarray
    covariance: np.ndarray
    precision: np.ndarray
    factor: np.ndarray


def sample_moments(
    matrices: Sequence[np.ndarray], layout: Layout
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean and the covariance of all draws, and which parameters never vary.

    One blocked pass, centred at the first draw: that lies within sqrt(draws) sds of the mean, so at
    most log10(draws) digits of sixteen are lost, and a constant has a variance of exactly zero.
    """
    count = matrices[0].shape[0]
    centre = np.concatenate([matrix[0].astype(float) for matrix in matrices])
    blocks = row_blocks(count, layout.size)
    buffer = np.empty((blocks[0].stop, layout.size))
    total = np.zeros((layout.size, layout.size), order="F")
    sums = np.zeros(layout.size)
    with np.errstate(invalid="ignore", over="ignore"):
        for block in blocks:
            rows = gather(matrices, layout, block, centre, buffer)
            total = linalg.add_outer(rows, total)
            sums += np.ones(rows.shape[0]) @ rows
        offset = sums / count
        covariance = linalg.mirror(total)
        constant = np.diag(covariance) == 0
        covariance -= count * np.outer(offset, offset)
        covariance /= max(count - 1, 1)
        return centre + offset, covariance, constant


def estimate_covariance(
    matrices: Sequence[np.ndarray],
    layout: Layout,
    free: np.ndarray,
    sample: np.ndarray,
    covariance: str | Callable,
) -> np.ndarray:
    """Return the covariance of the free parameters by the chosen estimator."""
    if covariance in ("sample", "corrected"):
        return sample
    if covariance == "diagonal":
        return np.diag(np.diag(sample))
    estimator = linalg.shrunk_covariance if covariance == "shrunk" else covariance
    estimate = np.array(estimator(gather_all(matrices, layout)[:, free]), dtype=float)
    # numpy.cov of one parameter is a scalar
    return estimate.reshape(1, 1) if estimate.ndim == 0 else estimate


def squares_effective_size(arrays: Sequence[np.ndarray], free: np.ndarray) -> float:
    """Return the effective size of the squared centred draws: what a covariance is worth.

    Parameters
    ----------
    arrays : sequence of (chain, draw, ...) arrays
    free : array of int
        Which parameters, along all arrays' elements end to end.

    Returns
    -------
    float
        Harmonic mean over the parameters, since the bias goes with one over the effective size.
    """
    squares = _squares(arrays, free, None)
    sizes = [containers.effective_size(one) for one in squares]
    total = squares[0].size
    sizes = np.where(np.isfinite(sizes), np.minimum(sizes, total), total)
    return float(1.0 / np.mean(1.0 / sizes))


def quick_squares_effective_size(arrays: Sequence[np.ndarray], free: np.ndarray) -> float:
    """Return an estimate of `squares_effective_size` that costs next to nothing.

    It takes a few parameters and first draws, and the chains for autoregressive of order one: the
    lag-one autocorrelation r of the squares gives (1 - r) / (1 + r) effective draws a draw. Enough
    for a warning; the correction itself uses the full estimate.
    """
    squares = _squares(arrays, free[:: -(-free.size // QUICK_PARAMETERS)], QUICK_DRAWS)
    variance = np.einsum("pcd,pcd->p", squares, squares)
    lagged = np.einsum("pcd,pcd->p", squares[..., 1:], squares[..., :-1])
    correlation = np.clip(lagged / np.maximum(variance, np.finfo(float).tiny), 0.0, 0.999)
    chains, draws = arrays[0].shape[:2]
    return float(chains * draws / np.mean((1.0 + correlation) / (1.0 - correlation)))


def _squares(arrays: Sequence[np.ndarray], chosen: np.ndarray, draws: int | None) -> np.ndarray:
    """Return centred squares of the centred draws of some parameters: (parameter, chain, draw)."""
    flat = [
        array[:, :draws].reshape(array.shape[0], array[0, :draws].shape[0], -1) for array in arrays
    ]
    stops = list(itertools.accumulate(array.shape[2] for array in flat))
    owners = [bisect.bisect_right(stops, index) for index in chosen]
    values = np.array(
        [flat[k][..., index - stops[k]] for k, index in zip(owners, chosen, strict=True)],
        dtype=float,
    )
    count = values[0].size
    squares = (values - values.sum(axis=(1, 2), keepdims=True) / count) ** 2
    return squares - squares.sum(axis=(1, 2), keepdims=True) / count


def precision_bias(effective: float, parameters: int) -> float:
    """Return by how much 1 - sqrt(E[V] / V) the sds come out too small with so many draws.

    For n draws ``E[S^-1] = (n - 1) / (n - d - 2) V^-1``.
    """
    if effective <= parameters + 2:
        return 1.0
    return 1.0 - float(np.sqrt((effective - parameters - 2) / (effective - 1)))


def correction(effective: float, parameters: int) -> float | None:
    """Return the factor that makes a sample precision unbiased; None where draws are too few."""
    if effective <= 2 * (parameters + 2):
        return None
    return (effective - parameters - 2) / (effective - 1)


def pool(
    batches: Sequence[Moments],
    weights: np.ndarray,
    missing_prior: float = 0.0,
    prior: Moments | None = None,
) -> Pooled:
    """Pool the batches' Gaussian approximations.

    ``P = sum_b P_b / p_b + (1 - sum_b a_b / p_b) P_0`` and likewise for ``P mu``; exact for
    Gaussian sub-posteriors of every kind.

    Parameters
    ----------
    batches : sequence of Moments
    weights : array
        ``1 / p_b``.
    missing_prior : float
        ``1 - sum_b a_b / p_b``.
    prior : Moments, optional
        Moments of the prior's draws; needed when `missing_prior` is not zero.
    """
    terms = list(zip(weights, batches, strict=True))
    if missing_prior:
        terms.append((missing_prior, prior))
    precision = np.zeros_like(batches[0].precision)
    # Relative to the first mean: a pooled mean far from zero loses no digits of its sds.
    origin = batches[0].mean
    natural = np.zeros_like(origin)
    for weight, moments in terms:
        precision += weight * moments.precision
        natural += weight * (moments.precision @ (moments.mean - origin))
    factor = linalg.cholesky(precision)
    covariance = linalg.inverse(precision)
    return Pooled(origin + covariance @ natural, covariance, precision, factor)

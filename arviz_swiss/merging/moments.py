"""One batch's mean, covariance and precision; and pooling them."""

import bisect
import itertools
from collections.abc import Callable, Sequence

import numpy as np

from arviz_swiss.base import linalg
from arviz_swiss.data import statistics
from arviz_swiss.data.layout import Layout, gather, gather_all, row_blocks

COVARIANCES = ("sample", "corrected", "shrunk", "diagonal")
QUICK_PARAMETERS = 4
QUICK_DRAWS = 500


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
    sizes = [statistics.effective_size(one) for one in squares]
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

"""What dependent draws are worth in independent ones, for many series at once.

For tests and errors, where speed counts; what users read is ArviZ's estimate (`data.statistics`).
"""

import bisect
import itertools
from collections.abc import Sequence

import numpy as np

QUICK_PARAMETERS = 4
QUICK_DRAWS = 500


def effective_sizes(series: np.ndarray) -> np.ndarray:
    """Return what the mean of each column of (chain, draw, column) is worth, at most all draws.

    Autocorrelations are summed up to the first pair with a negative sum [1]_. Columns are centred
    on the mean of all chains, so that chains which disagree are worth little.

    References
    ----------
    .. [1] Geyer (1992), Practical Markov chain Monte Carlo, Statistical Science 7.
       https://doi.org/10.1214/ss/1177011137
    """
    chains, length, _ = series.shape
    centred = series - series.mean(axis=(0, 1))
    spectrum = np.fft.rfft(centred, 2 * length, axis=1)
    lags = np.fft.irfft(np.abs(spectrum) ** 2, 2 * length, axis=1)[:, :length].sum(axis=0)
    correlations = lags / np.where(lags[0] > 0, lags[0], 1.0)
    even = correlations[: length - length % 2]
    pairs = even[::2] + even[1::2]
    kept = np.cumprod(pairs > 0, axis=0)
    times = 2 * np.sum(np.minimum.accumulate(pairs, axis=0) * kept, axis=0) - 1
    return chains * length / np.clip(times, 1.0, chains * length)


def quick_squares_effective_size(arrays: Sequence[np.ndarray], free: np.ndarray) -> float:
    """Return the effective size of centred squares at next to no cost: enough for a warning.

    From few parameters and first draws: lag-one autocorrelation r gives (1 - r) / (1 + r) a draw.
    """
    squares = centred_squares(arrays, free[:: -(-free.size // QUICK_PARAMETERS)], QUICK_DRAWS)
    variance = np.einsum("pcd,pcd->p", squares, squares)
    lagged = np.einsum("pcd,pcd->p", squares[..., 1:], squares[..., :-1])
    correlation = np.clip(lagged / np.maximum(variance, np.finfo(float).tiny), 0.0, 0.999)
    chains, draws = arrays[0].shape[:2]
    return float(chains * draws / np.mean((1.0 + correlation) / (1.0 - correlation)))


def centred_squares(
    arrays: Sequence[np.ndarray], parameters: np.ndarray, draws: int | None = None
) -> np.ndarray:
    """Return centred squares of centred draws of some parameters, as (parameter, chain, draw)."""
    flat = [
        array[:, :draws].reshape(array.shape[0], array[0, :draws].shape[0], -1) for array in arrays
    ]
    stops = list(itertools.accumulate(array.shape[2] for array in flat))
    owners = [bisect.bisect_right(stops, index) for index in parameters]
    values = np.array(
        [flat[k][..., index - stops[k]] for k, index in zip(owners, parameters, strict=True)],
        dtype=float,
    )
    count = values[0].size
    squares = (values - values.sum(axis=(1, 2), keepdims=True) / count) ** 2
    return squares - squares.sum(axis=(1, 2), keepdims=True) / count

"""What dependent draws are worth in independent ones, for many series at once, and by chance.

For tests and errors; what users read has the values of ArviZ (`base.convergence`).
"""

import bisect
import itertools
import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import f, norm

from arviz_swiss.base.ranks import Scores, by_parameter, normal_scores

QUICK_PARAMETERS = 4
QUICK_DRAWS = 500
# So often the variance of chain means is estimated anew.
MEAN_ROUNDS = 4


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
    columns = by_parameter(series)
    pairs = _paired(_autocorrelations(columns - columns.mean(axis=(1, 2), keepdims=True)))
    return chains * length / np.clip(_summed(pairs), 1.0, chains * length)


def _autocorrelations(centred: np.ndarray) -> np.ndarray:
    """Return (column, lag) autocorrelations of all chains of (column, chain, draw) together.

    Zero for a constant. Spectra are summed over chains, so that one of all is transformed back.
    """
    length = centred.shape[2]
    spectra = np.fft.rfft(centred, 2 * length).view(float)
    power = np.einsum("pcf,pcf->pf", spectra, spectra)
    lags = np.fft.irfft(power[:, ::2] + power[:, 1::2], 2 * length)[:, :length]
    return lags / np.where(lags[:, :1] > 0, lags[:, :1], 1.0)


def _paired(correlations: np.ndarray) -> np.ndarray:
    """Return the sums of pairs of lags, the first two and so on."""
    even = correlations[..., : correlations.shape[-1] - correlations.shape[-1] % 2]
    return even[..., ::2] + even[..., 1::2]


def _summed(pairs: np.ndarray) -> np.ndarray:
    """Return autocorrelation times: twice the sum up to the first pair with a negative sum."""
    return 2 * np.sum(np.maximum(np.minimum.accumulate(pairs, axis=1), 0.0), axis=1) - 1


def times_within(columns: np.ndarray) -> np.ndarray:
    """Return the autocorrelation time of each column of (column, chain, draw), one at least.

    Chains are centred each on its own mean, so that one which lies elsewhere does not seem slow. By
    that the autocovariances come out too small by the variance of a chain's mean, which the time
    itself tells, and which is given back to them.
    """
    length = columns.shape[2]
    pairs = _paired(_autocorrelations(columns - columns.mean(axis=2, keepdims=True)))
    times = np.clip(_summed(pairs), 1.0, length)
    taper = _paired(1 - np.arange(length) / length)
    for _ in range(MEAN_ROUNDS):
        share = np.minimum(times / length, 0.9)
        lost = (share / (1 - share))[:, None]
        times = np.clip(_summed((pairs + lost * taper) / (1 + lost)), 1.0, length)
    return times


def rhat_by_chance(chance: float, chains: int, length: int, effective: np.ndarray) -> np.ndarray:
    r"""Return the R-hat that converged chains of a length exceed with a chance.

    Means of m chains of one distribution, each of n draws worth k independent ones, scatter with
    the variance :math:`\sigma^2 / k`, so that with F of m - 1 and m (k - 1) degrees of freedom

    .. math:: \hat R^2 = (n - 1) / n + F / k.
    """
    degrees = chains * np.maximum(effective - 1, 0.1)
    return np.sqrt((length - 1) / length + f.isf(chance, chains - 1, degrees) / effective)


def sizes_within(series: np.ndarray) -> np.ndarray:
    """Return what each column of (chain, draw, column) is worth, by autocorrelation within chains.

    The less of normal scores of the draws and of their distances from the median. Chains that
    disagree are worth as much as others: that is for R-hat to tell.
    """
    return size_within_scores(normal_scores(by_parameter(series)))


def size_within_scores(scores: Scores) -> np.ndarray:
    """Return what `sizes_within` does, of normal scores."""
    _, chains, length = scores.plain.shape
    times = times_within(scores.plain), times_within(scores.folded)
    return chains * length / np.maximum(*times)


def rhat_limits(
    chains: int, length: int, sizes: np.ndarray, chance: float, least: float = 0.0
) -> np.ndarray:
    """Return the R-hat that draws worth `sizes` within their chains exceed with a chance.

    R-hat is that of `data.statistics`: the larger one of normal scores of the draws and of their
    distances from the median, with chains split in two, a single one in four. Nothing is excused by
    draws being worth fewer than `least`.
    """
    pieces = 4 if chains == 1 else 2 * chains
    each = chains * length // pieces
    effective = np.minimum(np.maximum(sizes, least) / pieces, each)
    return rhat_by_chance(chance / 2, pieces, each, effective)


def size_by_chance(size: float, chance: float) -> float:
    """Return the estimate by `sizes_within` that a true size falls short of with a chance, at most.

    The log of an estimate has a variance that goes with one over the size [1]_. That it is 30 over
    the size is no theory: the number is fitted to simulated autoregressive chains, of which it
    covers the lower tail, which is what counts here, down to a single chain of 150 draws.

    References
    ----------
    .. [1] Sokal (1997), Monte Carlo methods in statistical mechanics: foundations and new
       algorithms. https://doi.org/10.1007/978-1-4899-0319-8_6
    """
    return float(size * np.exp(norm.ppf(chance) * np.sqrt(30 / size)))


def quick_squares_effective_size(arrays: Sequence[np.ndarray], free: np.ndarray) -> float:
    """Return the effective size of centred squares at next to no cost: enough for a warning.

    From few parameters and first draws.
    """
    times = quick_squares_times(arrays, free[few_parameters(free.size)])
    return size_by_times(times, math.prod(arrays[0].shape[:2]))


def few_parameters(count: int) -> slice:
    """Return which of so many parameters are looked at where that is enough."""
    return slice(None, None, -(-count // QUICK_PARAMETERS))


def quick_squares_times(arrays: Sequence[np.ndarray], parameters: np.ndarray) -> np.ndarray:
    """Return autocorrelation times of centred squares of some parameters, from first draws.

    Lag-one autocorrelation r gives (1 + r) / (1 - r).
    """
    squares = centred_squares(arrays, parameters, QUICK_DRAWS)
    variance = np.einsum("pcd,pcd->p", squares, squares)
    lagged = np.einsum("pcd,pcd->p", squares[..., 1:], squares[..., :-1])
    correlation = np.clip(lagged / np.maximum(variance, np.finfo(float).tiny), 0.0, 0.999)
    return (1.0 + correlation) / (1.0 - correlation)


def size_by_times(times: np.ndarray, draws: int) -> float:
    """Return what so many draws are worth, by the mean of parameters' autocorrelation times."""
    return float(draws / np.mean(times))


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

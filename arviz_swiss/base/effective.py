"""What dependent draws are worth in independent ones."""

import numpy as np


def effective_sizes(series: np.ndarray) -> np.ndarray:
    """Return how many independent draws the mean of each column is worth, never more than all.

    Autocorrelations are summed up to the first pair with a negative sum [1]_. Columns are centred
    on the mean of all chains, so that chains which disagree are worth little.

    Parameters
    ----------
    series : (chain, draw, column) array

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

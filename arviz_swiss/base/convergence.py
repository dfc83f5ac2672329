"""R-hat and effective sample sizes with the values of ArviZ, for all parameters at once.

Draws are (parameter, chain, draw) arrays here, since every parameter's are sorted and transformed.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.fft import next_fast_len

from arviz_swiss.base.effective import size_within_scores
from arviz_swiss.base.ranks import Scores, by_parameter, normal_scores

# Fewer draws a chain tell nothing, and so few of a single chain cannot be cut in four.
FEWEST, FEWEST_ALONE = 4, 8
TAILS = (0.05, 0.95)
# So many draws at once, of one parameter at least: what is computed of them stays in the cache.
AT_ONCE = 100_000


class Convergence(NamedTuple):
    """Of every parameter: R-hat, bulk and tail effective sizes, and that within chains alone.

    `ordered` are the draws in order, (parameter, draw), which other statistics need too.
    """

    rhat: np.ndarray
    bulk: np.ndarray
    tail: np.ndarray
    within: np.ndarray
    ordered: np.ndarray


def convergence(
    series: np.ndarray, quantile: Callable[[np.ndarray, float], np.ndarray]
) -> Convergence:
    """Return ranked split R-hat and effective sizes of (chain, draw, parameter) draws [1]_.

    `quantile` takes draws in order, (parameter, draw), and a probability. A single chain is
    compared with itself: it is cut in four.

    References
    ----------
    .. [1] Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), Rank-normalization, folding, and
       localization: an improved R-hat for assessing convergence of MCMC, Bayesian Analysis 16.
       https://doi.org/10.1214/20-BA1221
    """
    columns = by_parameter(series)
    blocks = np.array_split(columns, min(len(columns), -(-columns.size // AT_ONCE)))
    found = [_convergence(block, quantile) for block in blocks]
    return Convergence(*map(np.concatenate, zip(*found, strict=True)))


def _convergence(columns: np.ndarray, quantile: Callable) -> Convergence:
    scores = normal_scores(columns)
    within = size_within_scores(scores)
    unknown = np.full(len(columns), np.nan)
    if columns.shape[2] < FEWEST:
        return Convergence(unknown, unknown, unknown, within, scores.ordered)
    split = _split(columns)
    of_split = _scores_of(split, columns, scores)
    if columns.shape[1] > 1:
        rhat = _ranked_rhat(of_split)
    elif columns.shape[2] >= FEWEST_ALONE:
        half = columns.shape[2] // 2
        halves = columns[..., : 2 * half].reshape(-1, 2, half)
        rhat = _ranked_rhat(_scores_of(_split(halves), columns, scores))
    else:
        rhat = unknown
    levels = [quantile(scores.ordered, tail)[:, None, None] for tail in TAILS]
    tail = np.minimum(*(_sizes((split <= level).astype(float)) for level in levels))
    return Convergence(rhat, _sizes(of_split.plain), tail, within, scores.ordered)


def mean_sizes(series: np.ndarray) -> np.ndarray:
    """Return the effective size of every parameter's mean, of (chain, draw, parameter) draws."""
    return _sizes(_split(by_parameter(series)))


def _split(columns: np.ndarray) -> np.ndarray:
    """Return the chains' halves as chains, without the draw in the middle of an odd number."""
    parameters, chains, length = columns.shape
    half = length // 2
    if length % 2:
        columns = np.concatenate([columns[..., :half], columns[..., -half:]], axis=2)
    return columns.reshape(parameters, 2 * chains, half)


def _scores_of(pieces: np.ndarray, columns: np.ndarray, scores: Scores) -> Scores:
    """Return the pieces' scores: those of all draws, unless some are missing."""
    if pieces.size < columns.size:
        return normal_scores(pieces)
    plain, folded = (array.reshape(pieces.shape) for array in scores[:2])
    return Scores(plain, folded, scores.ordered)


def _ranked_rhat(scores: Scores) -> np.ndarray:
    # distances from the median that are all equal have no R-hat
    return np.fmax(_rhat(scores.plain), _rhat(scores.folded))


def _rhat(chains: np.ndarray) -> np.ndarray:
    length = chains.shape[2]
    between = length * chains.mean(axis=2).var(axis=1, ddof=1)
    # a constant has none, and that of chains that are stuck apart is infinite
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt((between / chains.var(axis=2, ddof=1).mean(axis=1) + length - 1) / length)


def _sizes(chains: np.ndarray) -> np.ndarray:
    """Return effective sizes by autocorrelations of all chains, up to Geyer's first negative pair.

    Pairs of autocorrelations count as the least so far, the first of the pair that ends the sum by
    itself. Autocovariances are averaged over chains before they are transformed back.
    """
    _, count, length = chains.shape
    means = chains.mean(axis=2)
    padded = next_fast_len(2 * length)
    spectra = np.fft.rfft(chains - means[..., None], padded).view(float)
    power = np.einsum("pcf,pcf->pf", spectra, spectra)
    power = power[:, ::2] + power[:, 1::2]
    last = max((length - 3) // 2, 0)
    covariances = np.fft.irfft(power, padded)[:, : 2 * last + 2] / (length * count)
    variance = covariances[:, :1] * length / (length - 1)
    total = covariances[:, :1] + means.var(axis=1, ddof=1 if count > 1 else 0)[:, None]
    constant = np.ptp(chains, axis=(1, 2)) < np.finfo(float).resolution
    total[constant] = 1.0
    correlations = 1 - (variance - covariances) / total
    correlations[:, 0] = 1.0
    pairs = correlations[:, ::2] + correlations[:, 1::2]
    ends = pairs <= 0
    end = np.where(ends.any(axis=1), ends.argmax(axis=1), last)[:, None]
    sums = np.cumsum(np.minimum.accumulate(pairs, axis=1), axis=1)
    before = np.where(end > 0, np.take_along_axis(sums, np.maximum(end - 1, 0), axis=1), 0.0)
    first = np.take_along_axis(correlations, 2 * end, axis=1)
    kept = (first > 0) | (np.take_along_axis(pairs, end, axis=1) >= 0)
    times = (2 * before + np.where(kept, first, 0.0) - 1)[:, 0]
    sizes = count * length / np.maximum(times, 1 / np.log10(count * length))
    return np.where(constant, count * length, sizes)

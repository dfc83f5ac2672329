"""Do the batches agree? Heterogeneity of their means, and which batches stand apart."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2, t

from arviz_swiss.base import linalg
from arviz_swiss.base.gaussian import Gaussian, Moments, pool, precision_bias
from arviz_swiss.base.linalg import Spectrum

DISAGREE_ALL = 0.001
DISAGREE_ONE = 0.01
# Smaller distances, in sds of a typical batch, do not matter however surely they are there.
MATERIAL = 3.0
# Beyond this share, and two, the batches disagree as a whole, and single names tell nothing.
MOST_NAMED = 1 / 3
MOST_LISTED = 5
# Of many batches, one in so many is set aside before the rest are compared again: doing that after
# each would take as long as the square of their number.
AT_ONCE = 20
# This many sds from the median batch, of what chance scatters means, no batch is by chance.
CLEAR = 5.0


class Scores(NamedTuple):
    """A batch's distance from the pooled mean in the eigenbasis of ``L' V_b L``.

    `excess` is ``p_b w - 1``, the variance of the distance under a random partition, `known` where
    it is not zero: a direction that one batch alone determines has no other batch to compare with.
    """

    distance: np.ndarray
    excess: np.ndarray
    known: np.ndarray


class Heterogeneity(NamedTuple):
    """Q, the same allowing for the bias of few draws, its degrees of freedom, and both tails."""

    q: float
    fair: float
    degrees: int
    pvalue: float
    lower_pvalue: float


class Disagreement(NamedTuple):
    """Which batches disagree, and whether the rest still do.

    `named` are positions, the worst first: none when there are too many to name, of which `worst`
    then holds the first few. `rest_pvalue` is the p-value of Q of the batches that are not named,
    and `parameter_pvalue` that of each parameter by itself, times the number of parameters.
    """

    named: list[int]
    worst: list[int]
    rest_pvalue: float
    parameter_pvalue: np.ndarray


def scores(
    batches: Sequence[Moments], pooled: Gaussian, spectra: Sequence[Spectrum], powers: np.ndarray
) -> list[Scores]:
    """Return the batches' distances from the pooled mean, whitened."""
    result = []
    for moments, spectrum, power in zip(batches, spectra, powers, strict=True):
        distance = spectrum.vectors.T @ (pooled.factor.T @ (moments.mean - pooled.mean))
        excess = power * spectrum.values - 1.0
        result.append(Scores(distance, excess, excess > 1e-6))
    return result


def compare_alone(
    batches: Sequence[Moments], powers: np.ndarray
) -> tuple[list[Scores], list[Spectrum]]:
    """Return the batches' distances from the mean of them alone, without any draws of the prior."""
    pooled = pool(batches, 1.0 / powers)
    spectra = [linalg.spectrum(pooled.factor, moments.covariance) for moments in batches]
    return scores(batches, pooled, spectra, powers), spectra


def fairness(batches: Sequence[Moments], stands_for: float = 1.0) -> np.ndarray:
    """Return what a batch's heterogeneity must be multiplied by before it is chi-squared.

    Few draws make precisions too large, and distances with them. And when batches were dropped, the
    means scatter more than a posterior tells that stands for more rows than it has seen.
    """
    parameters = batches[0].mean.size
    bias = np.array([precision_bias(moments.effective, parameters) for moments in batches])
    return (1.0 - bias) ** 2 / stands_for


def batch_heterogeneity(every: Sequence[Scores], fair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each batch's ``(mu_b - mu)' (p_b V_b - V)^-1 (mu_b - mu)`` and its p-value."""
    values = np.array([np.sum(s.distance[s.known] ** 2 / s.excess[s.known]) for s in every])
    degrees = np.array([max(int(s.known.sum()), 1) for s in every])
    return values, chi2.sf(values * fair, degrees)


def heterogeneity(
    every: Sequence[Scores], spectra: Sequence[Spectrum], powers: np.ndarray, fair: np.ndarray
) -> Heterogeneity:
    """Return ``Q = sum_b (mu_b - mu)' P_b (mu_b - mu) / p_b``, with its p-values."""
    squares = [np.sum(s.distance**2 / w.values) for s, w in zip(every, spectra, strict=True)]
    terms = np.array(squares) / powers
    degrees = every[0].distance.size * (len(every) - 1)
    corrected = float(terms @ fair)
    tails = (chi2.sf(corrected, degrees), chi2.cdf(corrected, degrees)) if degrees else (1.0, 1.0)
    return Heterogeneity(float(terms.sum()), corrected, degrees, *map(float, tails))


def name_disagreeing(
    batches: Sequence[Moments], powers: np.ndarray, aside: Collection[int] = ()
) -> Disagreement:
    """Name the batches that disagree with the rest; batches `aside` are not compared with.

    A batch that is far off pulls the pooled mean away from all others, which then seem to disagree
    too. So the worst batch is set aside, with those as clearly off, and the rest are pooled again,
    until they agree. Of two batches that disagree, both are named; if too many would be, none is.
    """
    unused = set(aside)
    compared = [b for b in range(len(batches)) if b not in unused]
    rest, named = compared, list[int]()
    most = max(2, int(MOST_NAMED * len(compared)))
    while len(rest) > 1:
        others = [batches[b] for b in rest]
        least, overall = _pvalues(others, powers[rest])
        if least.min() >= DISAGREE_ONE / len(rest):
            return Disagreement(named, [], overall, parameter_pvalues(others, powers[rest]))
        at_once = max(1, len(compared) // AT_ONCE)
        worst = range(2) if len(rest) == 2 else _worst(others, powers[rest], least, at_once)
        named = named + [rest[position] for position in worst]
        odd = set(named)
        rest = [b for b in rest if b not in odd]
        if len(named) > most or len(rest) == 1:
            everyone = [batches[b] for b in compared]
            _, overall = _pvalues(everyone, powers[compared])
            by_parameter = parameter_pvalues(everyone, powers[compared])
            return Disagreement([], named[:MOST_LISTED], overall, by_parameter)
    return Disagreement(named, [], 1.0, np.ones(batches[0].mean.size))


def _worst(
    batches: Sequence[Moments], powers: np.ndarray, pvalues: np.ndarray, at_once: int
) -> list[int]:
    """Return the batches to set aside next: those clearly off the median, else the least likely."""
    distance = np.abs(_away(batches, powers)[1]).max(axis=1)
    is_off = pvalues < DISAGREE_ONE / len(batches)
    distance[~is_off] = 0.0
    clear = distance >= max(CLEAR, distance.max() / 2)
    if not clear.any():
        least = np.argsort(pvalues, kind="stable")[:at_once]
        return least[is_off[least]].tolist()
    order = np.argsort(-distance, kind="stable")
    return order[clear[order]].tolist()


def _away(batches: Sequence[Moments], powers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the means' distances from their median, in sds of a typical batch and of chance."""
    means = np.array([moments.mean for moments in batches])
    spread = np.sqrt([np.diag(moments.covariance) for moments in batches])
    away = means - np.median(means, axis=0)
    return away / np.median(spread, axis=0), away / (spread * np.sqrt(powers)[:, None])


def parameter_pvalues(batches: Sequence[Moments], powers: np.ndarray) -> np.ndarray:
    """Return each parameter's p-value of heterogeneity, times the number of parameters."""
    means = np.array([moments.mean for moments in batches])
    variances = np.array([np.diag(moments.covariance) for moments in batches])
    return np.minimum(1.0, means.shape[1] * cochran(means, variances, powers)[1])


def _pvalues(batches: Sequence[Moments], powers: np.ndarray) -> tuple[np.ndarray, float]:
    """Return each batch's least p-value of agreeing with the others, and that of Q."""
    every, spectra = compare_alone(batches, powers)
    fair = fairness(batches)
    _, pvalues = batch_heterogeneity(every, fair)
    overall = heterogeneity(every, spectra, powers, fair).pvalue
    return np.minimum(pvalues, standing_apart(batches, powers)), overall


def cochran(
    means: np.ndarray, variances: np.ndarray, powers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return Cochran's Q of each column of (batch, parameter) arrays, and its p-value.

    Where others scatter less than they should, Q of all together hides one that scatters more.
    """
    weights = 1.0 / (powers[:, None] * variances)
    centre = (weights * means).sum(axis=0) / weights.sum(axis=0)
    q = (weights * (means - centre) ** 2).sum(axis=0)
    degrees = len(means) - 1
    return q, chi2.sf(q, degrees) if degrees else np.ones_like(q)


def standing_apart(batches: Sequence[Moments], powers: np.ndarray) -> np.ndarray:
    """Return each batch's p-value of being an outlier among the others, as they scatter.

    Per parameter a t-test of its mean against those of the others, with two degrees of freedom less
    than there are batches; the least p-value counts, times the number of parameters.
    """
    away, standard = _away(batches, powers)
    count, parameters = away.shape
    if count < 4:
        return np.ones(count)
    others = (standard.sum(axis=0) - standard) / (count - 1)
    squares = (standard**2).sum(axis=0) - standard**2 - (count - 1) * others**2
    sd = np.sqrt(np.maximum(squares, 0.0) / (count - 2))
    gap = np.abs(standard - others)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = gap / (sd * np.sqrt(count / (count - 1)))
    pvalues = np.where(gap > 0, 2 * t.sf(ratio, count - 2), 1.0)
    pvalues[np.abs(away) < MATERIAL] = 1.0
    return np.minimum(1.0, parameters * pvalues.min(axis=1))

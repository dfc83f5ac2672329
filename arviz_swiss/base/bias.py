"""How far off a merge is to be expected: by small inflated batches, or by the prior's shape."""

from collections.abc import Iterable, Sequence

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtri

from arviz_swiss.base import linalg
from arviz_swiss.base.gaussian import Gaussian, Moments

# How surely an error must differ from chance: its estimate over the sd that chance gives it.
SURE = 3.0
# With fewer batches the estimate cannot exceed so many sds.
FEWEST = 5
# Parts of a batch's draws, the scatter of which tells how noisy their third moments are.
PARTS = 4
# How far around the merged mean, in sds of the prior, its slope is looked at; and how surely,
# over all parameters, it must differ from a Gaussian's.
WINDOW = 0.5
SURE_SLOPE = 0.001


def expected_error(batches: Sequence[Moments], pooled: Gaussian, powers: np.ndarray) -> float:
    """Return by how many posterior sds (Mahalanobis) the mean of inflated batches is expected off.

    An order of magnitude; zero where chance explains it. Sees third derivatives that are the same
    for all data, as of regressions with a canonical link; `skewness_error` needs the draws. NaN for
    fewer than five batches, and those not inflated, whose skewness makes up for it.

    Notes
    -----
    To second order, the score of the full posterior at the pooled mean is half of the sum over
    batches of third derivatives times ``d_b d_b'``, with ``d_b = mu_b - mu``. Where the log
    likelihood depends on the data linearly, the same third derivatives make precisions change from
    batch to batch, ``P_b = P - T d_b``. So the error is half of ``V sum_b w_b (P_b - P) d_b``,
    which is half the distance from the pooled mean to the plain average of the batches' means.
    Precisions also vary by chance, with the rows and the draws: only products of two different
    batches' terms count. Both factors being centred, chance makes these sum to a (B - 1)-th of the
    squares.
    """
    if len(batches) < FEWEST or not _are_inflated(powers):
        return np.nan
    shares = (1.0 / powers) / np.sum(1.0 / powers)
    terms = [
        solve_triangular(pooled.factor, moments.precision @ away, lower=True)
        - pooled.factor.T @ away
        for moments in batches
        for away in [moments.mean - pooled.mean]
    ]
    return 0.5 * _length(np.array(terms), shares, centred=True)


def skewness_error(
    draws: Iterable[np.ndarray], batches: Sequence[Moments], pooled: Gaussian, powers: np.ndarray
) -> float:
    """Return by how many posterior sds (Mahalanobis) the draws' skewness says the mean is off.

    As `expected_error`, but also of a scale, and from two batches on. The draws are each batch's
    (draw, parameter) array as sampled, chain by chain.

    Notes
    -----
    To leading order the third derivatives that `expected_error` needs are a batch's third moments,
    with draws z whitened by its own covariance. So the error is half of the mean over batches of
    ``E[z z' D z]``, with D the mean of ``d_b d_b' - V_b + V``, whitened alike. Only its diagonal
    counts: the rest is chance in a random partition. So are products of the same draws.
    """
    too_few = len(batches) < 2 or min(moments.draws for moments in batches) < PARTS
    if too_few or not _are_inflated(powers):
        return np.nan
    shares = (1.0 / powers) / np.sum(1.0 / powers)
    factors = [linalg.cholesky(moments.precision) for moments in batches]
    spread = np.zeros_like(pooled.mean)
    for share, factor, moments in zip(shares, factors, batches, strict=True):
        away = factor.T @ (moments.mean - pooled.mean)
        widths = np.einsum("ij,ik,kj->j", factor, pooled.covariance, factor, optimize=True)
        spread += share * (away**2 + widths - 1.0)
    terms = []
    for matrix, factor in zip(draws, factors, strict=True):
        for part in np.array_split((matrix - matrix.mean(axis=0)) @ factor, PARTS):
            squares = part**2 @ spread
            terms.append((squares - squares.mean()) @ part / len(part))
    return 0.5 * _length(np.array(terms), np.repeat(shares / PARTS, PARTS))


def prior_error(draws: np.ndarray, prior: Moments, pooled: Gaussian, missing_prior: float) -> float:
    """Return by how many posterior sds (Mahalanobis) the prior's shape puts the merged mean off.

    The multiple of the prior that the pooling takes as a Gaussian leaves in the score what its log
    density's slope at the merged mean, by the numbers of draws on either side, differs from that
    Gaussian's. An order of magnitude, by single parameters; zero where chance explains it.
    """
    spread = np.sqrt(np.diag(prior.covariance))
    away = (draws - pooled.mean) / spread
    above = 1.0 + np.count_nonzero((away > 0) & (away < WINDOW), axis=0)
    below = 1.0 + np.count_nonzero((away <= 0) & (away > -WINDOW), axis=0)
    excess = np.log(above / below) / WINDOW + (pooled.mean - prior.mean) / spread
    noise = np.sqrt(1.0 / above + 1.0 / below) / WINDOW
    excess[np.abs(excess) < -ndtri(SURE_SLOPE / excess.size) * noise] = 0.0
    score = solve_triangular(pooled.factor, missing_prior * excess / spread, lower=True)
    return float(np.linalg.norm(score))


def _are_inflated(powers: np.ndarray) -> bool:
    return bool(np.exp(np.mean(np.log(powers))) > 1.0)


def _length(terms: np.ndarray, shares: np.ndarray, centred: bool = False) -> float:
    """Return the length of the mean of noisy terms, zero where chance explains it."""
    weighted = shares[:, None] * terms
    squares = np.einsum("bp,bp->b", weighted, weighted)
    total = weighted.sum(axis=0)
    by_centring = squares.sum() / (len(terms) - 1) if centred else 0.0
    squared = total @ total - squares.sum() - by_centring
    # The sum of all squared products of two terms, by the smaller of the two Gram matrices.
    gram = weighted.T @ weighted if len(terms) > terms.shape[1] else weighted @ weighted.T
    by_chance = np.sqrt(2.0 * max(np.sum(gram**2) - np.sum(squares**2), 0.0))
    if squared <= SURE * by_chance:
        return 0.0
    return float(np.sqrt(squared / (1.0 - np.sum(shares**2))))

"""Exact importance weights of shared parameters, each group's local variables integrated out."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from arviz_swiss.base.integrals import (
    DRAWS,
    LogIntegrals,
    LogTerms,
    Place,
    log_integrals,
    log_ratios,
)
from arviz_swiss.base.sites import Site
from arviz_swiss.base.weights import effective_size, weighted_moments
from arviz_swiss.data.statistics import pareto_smoothed

# Draws of each group by which its k-hat is estimated.
GROUP_DRAWS = 256


class GroupDensity(NamedTuple):
    """A batch's density by groups: their log terms, those of no group, and where they lie."""

    terms: LogTerms
    apart: Callable[[np.ndarray], np.ndarray]
    place: Place


class TiltedDraws(NamedTuple):
    """Draws (draws, parameters) of a batch's tilted distribution, and what these were moved to.

    `merged` are `original` after the batch's affine map; `site` is that of the tilted distribution,
    in the white coordinates of the batch's `Place`.
    """

    original: np.ndarray
    merged: np.ndarray
    site: Site
    prior_power: float


class GroupWeights(NamedTuple):
    """Pareto-smoothed log weights of all batches' draws, which sum to one, and what they say.

    `shift` is how far weights move the mean of each parameter, in sds, `shift_error` what noise
    alone would do; `sd_ratio` the weighted sd relative to that of the draws; `noise` the root mean
    square noise of log weights by the integrals, where the draws are.
    """

    log_weights: np.ndarray
    khat: float
    effective_size: float
    shift: np.ndarray
    shift_error: np.ndarray
    sd_ratio: np.ndarray
    noise: float


def group_weights(
    log_prior: Callable[[np.ndarray], np.ndarray],
    densities: Sequence[GroupDensity],
    draws: Sequence[TiltedDraws],
    local_draws: int = DRAWS,
    seed: int = 0,
) -> GroupWeights:
    """Weight merged draws by the full posterior over the tilted distribution they were drawn from.

    A tilted distribution is known up to a constant, so that weights are relative to the mean of
    those of its batch. Batches of draws come in the order of the densities; each integral is over
    so many `local_draws`.
    """
    merged = np.concatenate([batch.merged for batch in draws])
    full = [_log_density(each, merged, local_draws, seed + i) for i, each in enumerate(densities)]
    log_full = log_prior(merged) + sum(each.values for each in full)
    variance = sum(each.noise**2 for each in full)
    tilted = [
        _log_tilted(log_prior, density, batch, local_draws, seed + i)
        for i, (density, batch) in enumerate(zip(densities, draws, strict=True))
    ]
    variance = variance + np.concatenate([each.noise**2 for each in tilted])
    log_ratios = log_full - np.concatenate([each.values for each in tilted])
    counts = [len(batch.merged) for batch in draws]
    parts = np.split(log_ratios, np.cumsum(counts)[:-1])
    return _weigh(merged, np.concatenate([_relative(part) for part in parts]), variance)


def group_khats(density: GroupDensity, draws: int = GROUP_DRAWS, seed: int = 0) -> np.ndarray:
    """Return k-hat of every group's importance ratios, the shared parameters at their mean."""
    ratios = log_ratios(density.terms, density.place, draws, seed)
    return np.array([pareto_smoothed(column)[1] for column in ratios.T])


def _log_density(
    density: GroupDensity, points: np.ndarray, local_draws: int, seed: int
) -> LogIntegrals:
    """Return what the batch's data say of shared parameters, without their prior."""
    integrals = log_integrals(density.terms, density.place, points, local_draws, seed)
    return integrals._replace(values=integrals.values + density.apart(points))


def _log_tilted(
    log_prior: Callable[[np.ndarray], np.ndarray],
    density: GroupDensity,
    draws: TiltedDraws,
    local_draws: int,
    seed: int,
) -> LogIntegrals:
    """Return the log density of a batch's tilted distribution at its own draws."""
    own = _log_density(density, draws.original, local_draws, seed)
    mean, factor = density.place.mean, density.place.factor
    z = np.linalg.solve(factor, (draws.original - mean).T).T
    cavity = np.eye(len(mean)) - draws.site.precision
    others = -np.sum(z * (z @ cavity), axis=1) / 2 - z @ draws.site.shift
    prior = draws.prior_power * log_prior(draws.original)
    return own._replace(values=prior + own.values + others)


def _relative(log_ratios: np.ndarray) -> np.ndarray:
    """Return log ratios over their mean; of a batch without any density, minus infinity."""
    # outside the support not a number is a ratio of zeros
    log_ratios = np.where(np.isfinite(log_ratios), log_ratios, -np.inf)
    total = logsumexp(log_ratios)
    return log_ratios - total + np.log(log_ratios.size) if np.isfinite(total) else log_ratios


def _weigh(merged: np.ndarray, log_ratios: np.ndarray, variance: np.ndarray) -> GroupWeights:
    log_weights, khat = pareto_smoothed(log_ratios)
    weights = np.exp(log_weights)
    count = len(merged)
    mean, sd = weighted_moments(merged, np.full(count, 1 / count))
    weighted_mean, weighted_sd = weighted_moments(merged, weights)
    parts = count * weights[:, None] * (merged - weighted_mean) - (merged - mean)
    known = np.isfinite(variance)
    return GroupWeights(
        log_weights,
        khat,
        effective_size(log_weights),
        (weighted_mean - mean) / sd,
        np.sqrt(np.sum(parts**2, axis=0)) / count / sd,
        weighted_sd / sd,
        float(np.sqrt(np.mean(variance[known]))) if known.any() else np.inf,
    )

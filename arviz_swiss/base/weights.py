"""Importance weights: mixtures, what weights change, effective size, resampling, thinning."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import logsumexp

NEWTON_STEPS = 200
# In log units: further than this a Hessian says nothing.
LONGEST_STEP = 20.0
# Relative to the draws of a source: what rounding leaves of a gradient.
CONVERGED = 1e-12
# How often signs are drawn for the noise of a covariance.
SIGNS = 20


class Mixture(NamedTuple):
    """The density of the mixture that draws of several sources make, up to a constant.

    `constants` are the sources' log normalising constants, the first one zero; `shares` the
    (draw, source) parts of the mixture; `uncertainty` a root R of the constants' covariance R R'.
    """

    log_density: np.ndarray
    constants: np.ndarray
    shares: np.ndarray
    uncertainty: np.ndarray


def mixture_of(log_densities: np.ndarray, owners: np.ndarray) -> Mixture:
    r"""Find the constants of the densities that draws come from, and the density of them all.

    Each source's density is known up to a constant of its own; the constants solve ::

        Z_j = sum_i d_j(y_i) / sum_k n_k d_k(y_i) / Z_k

    They minimise a convex function of the :math:`f_k = -\log Z_k`,

    .. math:: \sum_i \log \sum_k n_k d_k(y_i) e^{f_k} - \sum_k n_k f_k,

    found by Newton's method. With :math:`S = N^{-1/2} P' P N^{-1/2}`, P the `shares` and N the
    numbers of draws, their covariance is :math:`N^{-1/2} S (1 - S)^+ N^{-1/2}` [1]_. An eigenvalue
    of S near 1, beside the one that is always there, tells of sources that do not overlap.

    Log densities are (source, draw), minus infinity where a source has none, finite at its own
    draws; owners say which source each draw comes from, and every source has some.

    References
    ----------
    .. [1] Shirts & Chodera (2008), Statistically optimal analysis of samples from multiple
       equilibrium states, Journal of Chemical Physics 129. https://doi.org/10.1063/1.2978177
    """
    counts = np.bincount(owners, minlength=len(log_densities)).astype(float)
    own = np.array([log_densities[j, owners == j].max() for j in range(len(counts))])
    # Counted into the densities, which then begin near zero, whatever their scale.
    scaled = log_densities + (np.log(counts) - own)[:, None]
    minus_logs = _solve(scaled, counts)
    log_parts = scaled + minus_logs[:, None]
    log_density = logsumexp(log_parts, axis=0)
    shares = np.exp(log_parts - log_density).T
    constants = own - minus_logs
    return Mixture(
        log_density + constants[0], constants - constants[0], shares, _uncertainty(shares, counts)
    )


def _solve(scaled: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the minimum of the convex function, with zero as the first."""
    minus_logs = np.zeros(len(counts))
    value, shares = _value(scaled, counts, minus_logs)
    for _ in range(NEWTON_STEPS):
        gradient = shares.sum(axis=1) - counts
        if np.all(np.abs(gradient) <= CONVERGED * counts):
            break
        for step in _steps(shares, gradient, counts):
            moved = minus_logs + step
            lower, there = _value(scaled, counts, moved)
            # Near the minimum the values differ by rounding alone, and the gradient tells.
            rounding = 1e-14 * scaled.shape[1] * (1 + np.abs(moved).max())
            if lower < value - rounding or (
                lower <= value + rounding
                and np.abs(there.sum(axis=1) - counts).max() < np.abs(gradient).max()
            ):
                minus_logs, value, shares = moved, lower, there
                break
        else:
            break
    return minus_logs - minus_logs[0]


def _value(
    scaled: np.ndarray, counts: np.ndarray, minus_logs: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the convex function, and the shares (source, draw) that its derivatives are of."""
    log_parts = scaled + minus_logs[:, None]
    mixture = logsumexp(log_parts, axis=0)
    return float(mixture.sum() - counts @ minus_logs), np.exp(log_parts - mixture)


def _steps(shares: np.ndarray, gradient: np.ndarray, counts: np.ndarray):
    """Give steps to try: Newton's, shorter and shorter; then that of the fixed point above."""
    sums = shares.sum(axis=1)
    newton = np.zeros(len(counts))
    if len(counts) > 1:
        hessian = (np.diag(sums) - shares @ shares.T)[1:, 1:]
        # Sources that share no draw leave it singular.
        hessian[np.diag_indices_from(hessian)] += 1e-14 * counts[1:]
        try:
            newton[1:] = -cho_solve(cho_factor(hessian), gradient[1:])
        except np.linalg.LinAlgError:
            newton[1:] = -np.linalg.lstsq(hessian, gradient[1:], rcond=None)[0]
    newton *= min(1.0, LONGEST_STEP / max(np.abs(newton).max(), 1e-300))
    for halvings in range(12):
        yield newton / 2**halvings
    yield np.log(counts) - np.log(np.maximum(sums, 1e-300))


def _uncertainty(shares: np.ndarray, counts: np.ndarray) -> np.ndarray:
    scaled = shares / np.sqrt(counts)
    values, vectors = np.linalg.eigh(scaled.T @ scaled)
    # The last one is 1: a factor common to all constants, which nothing depends on.
    values, vectors = values[:-1].clip(0.0, 1 - 1e-12), vectors[:, :-1]
    return vectors * np.sqrt(values / (1 - values)) / np.sqrt(counts)[:, None]


def mixture_error(mixture: Mixture, weights: np.ndarray) -> float:
    """Return how uncertain the constants leave the log weights of draws: the sd of the worst part.

    Sources that overlap with no other do no harm where the target has no mass.
    """
    if mixture.uncertainty.size == 0:
        return 0.0
    parts = mixture.shares @ mixture.uncertainty
    centred = parts - weights @ parts
    return float(np.sqrt(np.linalg.eigvalsh((centred.T * weights) @ centred)[-1].clip(0.0)))


class Change(NamedTuple):
    """What weights do to the mean (Mahalanobis) and to an sd (relative) where they do most.

    Noise alone has `shift_error` as root mean square, and `stretch_error` in one of twenty cases.
    """

    shift: float
    shift_error: float
    stretch: float
    stretch_error: float


def change_by(whitened: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> Change:
    r"""Return how far weights move the mean and the covariance of draws, in any direction.

    With :math:`u_i = n w_i`, the shift is the mean of :math:`(u_i - 1) z_i`. By the delta method
    its covariance is that of :math:`\psi_i = u_i (z_i - \bar z_w) - (z_i - \bar z)` over n, so its
    squared length has the mean :math:`\sum |\psi_i|^2 / n^2` where nothing but noise moves it. The
    change of the covariance is the mean of matrices made alike of outer products: its norm by
    noise alone is that of their mean with random signs. The draws' covariance is the identity, and
    their weights sum to one.
    """
    count = len(whitened)
    ratios = count * weights
    plain, weighted = whitened - whitened.mean(axis=0), whitened - weights @ whitened
    parts = ratios[:, None] * weighted - plain
    shift = whitened.T @ (weights - 1 / count)
    after, before = (weighted.T * weights) @ weighted, plain.T @ plain / count
    noise = []
    for _ in range(SIGNS):
        signs = rng.choice([-1.0, 1.0], count) / count
        signed = signs * ratios
        noise.append(
            _stretch(
                (weighted.T * signed) @ weighted
                - (plain.T * signs) @ plain
                - signed.sum() * after
                + signs.sum() * before
            )
        )
    return Change(
        float(np.linalg.norm(shift)),
        float(np.sqrt(np.sum(parts**2)) / count),
        _stretch(after - before),
        max(noise),
    )


def _stretch(change: np.ndarray) -> float:
    """Return the largest relative change of an sd by a change of the whitened covariance."""
    return float(np.abs(np.sqrt((1 + np.linalg.eigvalsh(change)).clip(0.0)) - 1).max())


def beyond_noise(change: Change) -> tuple[float, float]:
    """Return shift and stretch without what noise adds to them, zero where it explains them.

    A shift's square is too large by that of its error; a stretch t with noise of norm e shows as
    t + e^2 / 4t, the largest eigenvalue of a disturbed matrix.
    """
    shift = np.sqrt(max(change.shift**2 - change.shift_error**2, 0.0))
    inside = change.stretch**2 - change.stretch_error**2
    stretch = (change.stretch + np.sqrt(inside)) / 2 if inside > 0 else 0.0
    return float(shift), float(stretch)


def effective_size(log_weights: np.ndarray) -> float:
    """Return ``(sum w)^2 / sum w^2``: how many equally weighted draws the draws are worth."""
    return float(np.exp(2 * logsumexp(log_weights) - logsumexp(2 * log_weights)))


def weighted_moments(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and sd of each column, by weights that sum to one."""
    mean = weights @ values
    return mean, np.sqrt(weights @ (values - mean) ** 2)


def systematic(weights: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return `count` positions in order, each as often as its weight, of a sum of one, says."""
    steps = (rng.random() + np.arange(count)) / count
    # the last sum may fall short of one by rounding
    return np.searchsorted(np.cumsum(weights), steps).clip(max=weights.size - 1)


def resampled(weights: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return the positions of systematic resampling in random order."""
    return rng.permutation(systematic(weights, count, rng))


def spread_evenly(length: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return `count` of `length` positions, evenly spaced from a random start, all if too few."""
    count = min(count, length)
    return np.floor((rng.random() + np.arange(count)) * (length / count)).astype(int)

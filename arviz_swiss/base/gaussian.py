"""Gaussian approximations: moments of batches, pooling them, and improving them by gradients."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from arviz_swiss.base import linalg

# What one round may at most do to the precision, in any direction.
CLIP = (0.2, 5.0)


class Glance(NamedTuple):
    """Of every parameter, from some of a batch's draws: R-hat is NaN where unknown."""

    skewness: np.ndarray
    rhat: np.ndarray


class Moments(NamedTuple):
    """A batch's moments over its free parameters, and a glance at the shape of its draws.

    `covariance` is what the draws have and a map starts from; `precision` is what the pooling
    counts, which differs from its inverse only when corrected for bias.
    """

    mean: np.ndarray
    covariance: np.ndarray
    precision: np.ndarray
    draws: int
    effective: float
    glance: Glance | None = None


class Gaussian(NamedTuple):
    """Mean, covariance and precision, with L, the lower Cholesky factor of the precision."""

    mean: np.ndarray
    covariance: np.ndarray
    precision: np.ndarray
    factor: np.ndarray


class Round(NamedTuple):
    """The moments after a gradient round, what has changed, and by how much noise alone would.

    `step` is the Mahalanobis length of the mean's, `change` the norm of the precision's relative
    one; `unlimited` eigenvalues are negative where the log density has no maximum. `damping` is the
    share of the step that was taken.
    """

    moments: Gaussian
    step: float
    step_error: float
    change: float
    change_error: float
    eigenvalues: np.ndarray
    unlimited: np.ndarray
    damping: float = 1.0


def precision_bias(effective: float, parameters: int) -> float:
    """Return the share that sds are too small by: ``E[S^-1] = (n - 1) / (n - d - 2) V^-1``."""
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
) -> Gaussian:
    """Pool Gaussians: ``P = sum_b P_b / p_b + (1 - sum_b a_b / p_b) P_0``, and so ``P mu``.

    The weights are ``1 / p_b``; `missing_prior` is ``1 - sum_b a_b / p_b``.
    """
    terms = list(zip(weights, batches, strict=True))
    if missing_prior:
        assert prior is not None, "a prior that counts other than once needs its moments"
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
    return Gaussian(origin + covariance @ natural, covariance, precision, factor)


def gaussian(mean: np.ndarray, covariance: np.ndarray) -> Gaussian:
    """Return the moments with their factor; LinAlgError if the covariance is not one."""
    precision = linalg.inverse(covariance)
    return Gaussian(mean, covariance, precision, linalg.cholesky(precision))


def permuted(moments: Gaussian, places: Sequence[int]) -> Gaussian:
    """Return the moments of the parameters at these places, in that order."""
    square = np.ix_(places, places)
    precision = moments.precision[square]
    return Gaussian(
        moments.mean[list(places)],
        moments.covariance[square],
        precision,
        linalg.cholesky(precision),
    )


def map_between(old: Gaussian, new: Gaussian) -> np.ndarray:
    """Return the map of SwISS between two moments, ``(V_new P_old)^(1/2)``."""
    return linalg.principal_map(new.factor, linalg.spectrum(new.factor, old.covariance))


def moments_of(means: np.ndarray, covariances: np.ndarray, shares: np.ndarray) -> Gaussian:
    """Return the moments of a mixture of batches, whose shares sum to one."""
    mean = shares @ means
    centred = means - mean
    covariance = np.tensordot(shares, covariances, 1) + (centred.T * shares) @ centred
    return gaussian(mean, covariance)


def gradient_round(points: np.ndarray, scores: np.ndarray, old: Gaussian) -> Round:
    r"""Improve the moments of a target from its scores at points that are nearly its draws.

    With the residual :math:`R = s(x) + V^{-1} (x - \mu)`, which is zero everywhere if the target is
    Gaussian with these moments,

    .. math:: P_{new} = V^{-1} - M, \quad \mu_{new} = \mu + V_{new} \bar R

    where :math:`\bar R + M (x - \mu)` is the linear regression of R on the points: exact for every
    Gaussian target, whatever the points. All is done in the coordinates :math:`z = L'(x - \mu)`.
    There must be more points, as rows, than parameters.
    """
    count, size = points.shape
    standard = (points - old.mean) @ old.factor
    residuals = solve_triangular(old.factor, scores.T, lower=True).T + standard
    design = np.column_stack([np.ones(count), standard])
    coefficients = np.linalg.lstsq(design, residuals, rcond=None)[0]
    pull, slope = coefficients[0], coefficients[1:]
    noise = residuals - design @ coefficients

    unlimited, vectors = np.linalg.eigh(np.eye(size) - (slope + slope.T) / 2)
    values = np.clip(unlimited, *CLIP)
    spread = vectors / np.sqrt(values)
    half = solve_triangular(old.factor, spread, lower=True, trans="T")
    new = gaussian(old.mean + half @ (spread.T @ pull), half @ half.T)

    # Each point's share in the coefficients: their errors, however the noise varies with x.
    share = design @ np.linalg.inv(design.T @ design)
    lost = count / max(count - size - 1, 1)
    pull_variance = lost * np.sum(share[:, 0] ** 2 * np.sum((noise @ spread) ** 2, axis=1))
    # Squared norm of the symmetric part of the outer product of a point's share and its noise.
    along = share[:, 1:]
    outer = np.sum(along**2, axis=1) * np.sum(noise**2, axis=1) + np.sum(along * noise, axis=1) ** 2
    slope_variance = lost * np.sum(outer) / 2
    return Round(
        new,
        float(np.linalg.norm(spread.T @ pull)),
        float(np.sqrt(pull_variance)),
        float(np.linalg.norm(values - 1)),
        float(np.sqrt(slope_variance)),
        values,
        unlimited,
    )

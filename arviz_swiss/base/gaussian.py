"""NumPy kernels of `refine`: gradient rounds; no xarray."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from arviz_swiss.base import linalg

# What one round may at most do to the precision, in any direction.
CLIP = (0.2, 5.0)


class Gaussian(NamedTuple):
    """Mean and covariance, with L, the lower Cholesky factor of the precision."""

    mean: np.ndarray
    covariance: np.ndarray
    factor: np.ndarray


class Round(NamedTuple):
    """The moments after a gradient round, what has changed, and by how much noise alone would.

    `step` is the Mahalanobis distance between the old and the new mean; `change` the norm of the
    precision's relative change; `eigenvalues` are those of the new precision seen from the old, and
    `unlimited` what they would be without limits: negative where the log density has no maximum.
    """

    moments: Gaussian
    step: float
    step_error: float
    change: float
    change_error: float
    eigenvalues: np.ndarray
    unlimited: np.ndarray


def gaussian(mean: np.ndarray, covariance: np.ndarray) -> Gaussian:
    """Return the moments with their factor; LinAlgError if the covariance is not one."""
    return Gaussian(mean, covariance, linalg.cholesky(linalg.inverse(covariance)))


def map_between(old: Gaussian, new: Gaussian) -> np.ndarray:
    """Return the map of SwISS between two moments, ``(V_new P_old)^(1/2)``."""
    return linalg.principal_map(new.factor, linalg.spectrum(new.factor, old.covariance))


def moments_of(means: np.ndarray, covariances: np.ndarray, shares: np.ndarray) -> Gaussian:
    """Return the moments of a mixture: of the draws of all batches, by batch.

    Parameters
    ----------
    means : (batch, parameter) array
    covariances : (batch, parameter, parameter) array
    shares : (batch,) array
        Sums to one.
    """
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

    Parameters
    ----------
    points : (points, parameters) array
        More than there are parameters.
    scores : (points, parameters) array
        Gradient of the target's log density.
    old : Gaussian
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


def spread_evenly(length: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return `count` of `length` positions, evenly spaced from a random start, all if too few."""
    count = min(count, length)
    return np.floor((rng.random() + np.arange(count)) * (length / count)).astype(int)

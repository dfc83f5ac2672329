"""Moments of batches and of the merged posterior, and pooling them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from arviz_swiss.base import linalg


class Glance(NamedTuple):
    """Of every parameter, from some of a batch's draws: R-hat is NaN where unknown."""

    skewness: np.ndarray
    rhat: np.ndarray


class Moments(NamedTuple):
    """A batch's moments over its free parameters.

    `covariance` is what the draws have and a map starts from; `precision` is what the pooling
    counts, which differs from its inverse only when corrected for bias. `glance` is what some of
    the draws tell of their shape.
    """

    mean: np.ndarray
    covariance: np.ndarray
    precision: np.ndarray
    draws: int
    effective: float
    glance: Glance | None = None


class Pooled(NamedTuple):
    """Moments of the merged posterior, with L, the lower Cholesky factor of its precision."""

    mean: np.ndarray
    covariance: np.ndarray
    precision: np.ndarray
    factor: np.ndarray


def precision_bias(effective: float, parameters: int) -> float:
    """Return by how much 1 - sqrt(E[V] / V) the sds come out too small with so many draws.

    For n draws ``E[S^-1] = (n - 1) / (n - d - 2) V^-1``.
    """
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
) -> Pooled:
    """Pool the batches' Gaussian approximations.

    ``P = sum_b P_b / p_b + (1 - sum_b a_b / p_b) P_0`` and likewise for ``P mu``; exact for
    Gaussian sub-posteriors of every kind.

    Parameters
    ----------
    batches : sequence of Moments
    weights : array
        ``1 / p_b``.
    missing_prior : float
        ``1 - sum_b a_b / p_b``.
    prior : Moments, optional
        Moments of the prior's draws; needed when `missing_prior` is not zero.
    """
    terms = list(zip(weights, batches, strict=True))
    if missing_prior:
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
    return Pooled(origin + covariance @ natural, covariance, precision, factor)

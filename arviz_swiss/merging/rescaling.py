"""Sub-posteriors of one kind turned into the other: rescaled about their batch mean.

A batch's draws target ``prior^a likelihood^p``. As a Gaussian with covariance V, its power c has
covariance V / c and the same mean: an inflated sub-posterior comes from ``c = 1 / a``, a
fractionated one from ``c = 1 / p``. Exact for Gaussian sub-posteriors.
"""

from collections.abc import Sequence

import numpy as np

from arviz_swiss.base.gaussian import Gaussian, Moments
from arviz_swiss.base.linalg import AffineMap, Spectrum
from arviz_swiss.merging.powers import Powers
from arviz_swiss.methods.registry import Given, Method


def variance_factors(method: Method, powers: Powers) -> np.ndarray | None:
    """Return what each batch's covariance must be multiplied by; None if it is right already.

    Raises
    ------
    ValueError
        When the prior counts other than once and the method cannot mend it.
    """
    if powers.missing_prior and not method.pools:
        raise ValueError(
            f'method "{method.name}" takes the batches as they are and cannot add or subtract '
            f"the prior, which would count {1 - powers.missing_prior:.4g} times instead of once. "
            'Use method="swiss" or "gaussian", or sample "fractionated" or "inflated" batches.'
        )
    factors = powers.prior if method.expects == "inflated" else powers.likelihood
    return None if np.allclose(factors, 1.0, rtol=1e-12) else factors


def rescale(
    moments: Sequence[Moments],
    pooled: Gaussian,
    spectra: Sequence[Spectrum],
    weights: np.ndarray,
    factors: np.ndarray | None,
) -> Given:
    """Return what the method gets, the covariances multiplied by the factors.

    The weight of a batch is one over its power, which rescaling divides by the same factor.
    """
    if factors is None:
        return Given(moments, pooled, spectra, weights / weights.sum())
    weights = weights * factors
    return Given(
        [
            one._replace(covariance=one.covariance * factor, precision=one.precision / factor)
            for one, factor in zip(moments, factors, strict=True)
        ],
        pooled,
        [
            one._replace(values=one.values * factor)
            for one, factor in zip(spectra, factors, strict=True)
        ],
        weights / weights.sum(),
    )


def rescaled_maps(maps: Sequence[AffineMap], factors: np.ndarray | None) -> list[AffineMap]:
    """Return the maps of the draws as they are, from those of the rescaled draws."""
    if factors is None:
        return list(maps)
    return [
        one._replace(scale=one.scale * np.sqrt(factor))
        for one, factor in zip(maps, factors, strict=True)
    ]

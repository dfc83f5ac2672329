"""Methods that draw from one Gaussian, fitted to the batches' moments."""

import numpy as np

from arviz_swiss.base import linalg
from arviz_swiss.methods.affine import find_barycenter, weighted_mean
from arviz_swiss.methods.registry import Given, register


@register("gaussian", expects="fractionated", makes="draws", pools=True)
def gaussian(given: Given, draws: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return draws from the product of the batches' Gaussian approximations.

    References
    ----------
    .. [1] Neiswanger, Wang & Xing (2014), Asymptotically exact, embarrassingly parallel MCMC,
       Uncertainty in Artificial Intelligence. https://doi.org/10.48550/arXiv.1311.4780
    """
    return _normal(given.pooled.mean, given.pooled.covariance, draws.shape[1:], rng)


@register("barycenter", expects="inflated", makes="draws")
def barycenter(
    given: Given, draws: np.ndarray, rng: np.random.Generator, *, standardise: bool = True
) -> np.ndarray:
    """Return draws from the Wasserstein barycenter of the batches' Gaussian approximations.

    Distances are counted in the parameters' sds, unless `standardise` is False.

    References
    ----------
    .. [1] Srivastava, Cevher, Dinh & Dunson (2015), WASP: Scalable Bayes via barycenters of subset
       posteriors, Artificial Intelligence and Statistics.
       https://proceedings.mlr.press/v38/srivastava15.html
    """
    units, _, found = find_barycenter(given, standardise)
    return _normal(weighted_mean(given), found * np.outer(units, units), draws.shape[1:], rng)


def _normal(mean, covariance, shape, rng: np.random.Generator) -> np.ndarray:
    return mean + rng.standard_normal(shape) @ linalg.cholesky(covariance).T

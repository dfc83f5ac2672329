"""Methods that need the batches' moments alone: affine maps, and draws of one Gaussian."""

import numpy as np

from arviz_swiss.base import linalg
from arviz_swiss.base.linalg import AffineMap
from arviz_swiss.methods.registry import Given, register


@register("swiss", expects="inflated", pools=True)
def swiss(given: Given) -> list[AffineMap]:
    """Return the maps of SwISS: ``A_b = (V P_b)^(1/2)``, to the pooled mean.

    References
    ----------
    .. [1] Vyner, Nemeth & Sherlock (2023), SwISS: A scalable Markov chain Monte Carlo
       divide-and-conquer strategy, Stat 12. https://doi.org/10.1002/sta4.523
    """
    pooled = given.pooled
    return [
        AffineMap(linalg.principal_map(pooled.factor, spectrum), moments.mean, pooled.mean)
        for moments, spectrum in zip(given.moments, given.spectra, strict=True)
    ]


@register("recentre", expects="inflated")
def recentre(given: Given) -> list[AffineMap]:
    """Return the maps of average re-centring: ``A_b = I``, to the plain mean of the batch means.

    References
    ----------
    .. [1] Wu & Robert (2017), Average of recentered parallel MCMC for big data.
       https://doi.org/10.48550/arXiv.1706.04780
    """
    target = np.mean([moments.mean for moments in given.moments], axis=0)
    unchanged = np.eye(target.size)
    return [AffineMap(unchanged, moments.mean, target) for moments in given.moments]


@register("location_scatter", expects="inflated")
def location_scatter(given: Given, *, standardise: bool = True) -> list[AffineMap]:
    """Return the optimal-transport maps from the batches to their Gaussian Wasserstein barycenter.

    Distances are counted in the parameters' sds, unless `standardise` is False.

    References
    ----------
    .. [1] Srivastava, Li & Dunson (2018), Scalable Bayes via barycenter in Wasserstein space,
       Journal of Machine Learning Research 19. https://doi.org/10.48550/arXiv.1508.05880
    """
    target = _weighted_mean(given)
    units, covariances, centre = _barycenter(given, standardise)
    rescale = units[:, None] / units
    return [
        AffineMap(linalg.transport_map(covariance, centre) * rescale, moments.mean, target)
        for covariance, moments in zip(covariances, given.moments, strict=True)
    ]


@register("pool", expects="inflated")
def pool(given: Given) -> list[AffineMap]:
    """Return maps that leave every draw where it is: the draws end to end.

    References
    ----------
    .. [1] Entezari, Craiu & Rosenthal (2018), Likelihood inflating sampling algorithm, Canadian
       Journal of Statistics 46. https://doi.org/10.1002/cjs.11343
    """
    unchanged = np.eye(given.pooled.mean.size)
    return [AffineMap(unchanged, moments.mean, moments.mean) for moments in given.moments]


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
    units, _, centre = _barycenter(given, standardise)
    return _normal(_weighted_mean(given), centre * np.outer(units, units), draws.shape[1:], rng)


def _weighted_mean(given: Given) -> np.ndarray:
    """Return the mean of the batch means by the batches' weights."""
    return given.weights @ np.array([moments.mean for moments in given.moments])


def _barycenter(given: Given, standardise: bool) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Return the units, and in them the batches' covariances and their Wasserstein barycenter."""
    variances = given.weights @ np.array([np.diag(moments.covariance) for moments in given.moments])
    units = np.sqrt(variances) if standardise else np.ones_like(variances)
    covariances = [moments.covariance / np.outer(units, units) for moments in given.moments]
    try:
        return units, covariances, linalg.wasserstein_barycenter(covariances, given.weights)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"the batches' Wasserstein barycenter was not found ({error}): their covariances, or "
            'the parameters\' units, differ too much. Leave standardise=True, or use "swiss".'
        ) from error


def _normal(mean, covariance, shape, rng: np.random.Generator) -> np.ndarray:
    return mean + rng.standard_normal(shape) @ linalg.cholesky(covariance).T

"""Methods that draw from the product of the batches' kernel density estimates.

The product of B kernel estimates of n draws is a mixture of n^B components, one for each choice of
a draw from every batch. A Metropolis-within-Gibbs sampler ("IMG") walks through the choices while
the bandwidth shrinks ("anneals").
"""

import numpy as np
from scipy.special import softmax

from arviz_swiss.base import linalg
from arviz_swiss.base.counts import check_count
from arviz_swiss.base.effective import effective_sizes
from arviz_swiss.data.messages import warn
from arviz_swiss.methods import img
from arviz_swiss.methods.registry import Given, checked_bandwidth, register

# An estimate that rests on fewer draws of a batch is that of those draws, not of the batch.
FEWEST_USED = 10
FEWEST_EFFECTIVE = 25
# From the product of the Gaussians, in its sds and as a factor: nothing that few draws could say.
NOTABLE_SHIFT, NOTABLE_WIDTH = 0.25, 1.25
# How far the noise of the kernels' weights may put the product's mean, in sds (Mahalanobis); by
# what factor kernels are widened until it does not; and at how many places it is looked at.
MOST_NOISE, WIDER, PLACES = 0.35, 1.5, 32


@register("semiparametric", expects="fractionated", makes="draws", any_shape=True)
def semiparametric(
    given: Given,
    draws: np.ndarray,
    rng: np.random.Generator,
    *,
    bandwidth: float | None = None,
    standardise: bool = True,
    sweeps: int | None = None,
) -> np.ndarray:
    """Return draws from the product of semiparametric density estimates.

    Each batch's density is estimated by its Gaussian approximation times a kernel estimate of what
    that leaves over [2]_; the product of the Gaussians is exact, only the rest is smoothed [1]_.

    Parameters
    ----------
    bandwidth : float, optional
        The kernels' sd is ``bandwidth * n^(-1 / (4 + d))`` for n draws of d parameters. When
        absent, ``2 (4 B)^(-1 / (2 d^1.5))`` for B batches, and wider by factors of 1.5 until the
        weights of the kernels rest on enough draws: as many as leave the mean of the product less
        than .35 sds (Mahalanobis) off by chance. With ``standardise=False`` it is 1.
    standardise : bool, default True
        Measure the bandwidth in units of the batches' mean covariance, so that the result does not
        depend on the parameters' units. False measures it in the parameters' own units, as the R
        package parallelMCMCcombine does.
    sweeps : int, optional
        How often each draw's walk visits every batch; 50 to 500, by the size of the problem, when
        absent.

    Warns
    -----
    MergeWarning
        When the draws made rest on a few draws of a batch, such as some in its tails, and lie
        elsewhere than the product of the batches' Gaussian approximations.

    References
    ----------
    .. [1] Neiswanger, Wang & Xing (2014), Asymptotically exact, embarrassingly parallel MCMC,
       Uncertainty in Artificial Intelligence. https://doi.org/10.48550/arXiv.1311.4780
    .. [2] Hjort & Glad (1995), Nonparametric density estimation with a parametric start, Annals of
       Statistics 23. https://doi.org/10.1214/aos/1176324627
    """
    basis = _units(given, standardise)
    product = basis.T @ given.pooled.precision @ basis
    precision, rotation = np.linalg.eigh(product)
    basis = basis @ rotation
    logs = np.empty(draws.shape[:-1])
    for batch, moments, log in zip(draws, given.moments, logs, strict=True):
        whitened = (batch - moments.mean) @ linalg.cholesky(moments.precision)
        log[...] = -0.5 * np.sum(whitened**2, axis=-1)
    if bandwidth is None:
        bandwidth = _enough_bandwidth(given, draws, basis, precision, logs) if standardise else 1.0
    remedy = 'a larger bandwidth, which comes nearer to "gaussian"'
    return _walk(given, draws, basis, precision, logs, bandwidth, sweeps, rng, remedy)


@register("nonparametric", expects="fractionated", makes="draws", any_shape=True)
def nonparametric(
    given: Given,
    draws: np.ndarray,
    rng: np.random.Generator,
    *,
    bandwidth: float | None = None,
    standardise: bool = True,
    sweeps: int | None = None,
) -> np.ndarray:
    """Return draws from the product of kernel density estimates.

    Parameters
    ----------
    bandwidth : float, optional
        As of `semiparametric`, but ``B^(-1 / (2 d^2))`` for B batches when absent.
    standardise, sweeps : optional
        As of `semiparametric`, which also says when there is a warning.

    References
    ----------
    .. [1] Neiswanger, Wang & Xing (2014), Asymptotically exact, embarrassingly parallel MCMC,
       Uncertainty in Artificial Intelligence. https://doi.org/10.48550/arXiv.1311.4780
    """
    if bandwidth is None:
        # Wide kernels make the product as much wider; narrow ones find too few draws in many
        # dimensions.
        bandwidth = len(draws) ** (-0.5 / draws.shape[-1] ** 2) if standardise else 1.0
    basis = _units(given, standardise)
    flat, no_logs = np.zeros(draws.shape[-1]), np.zeros(draws.shape[:-1])
    remedy = "more draws of each batch"
    return _walk(given, draws, basis, flat, no_logs, bandwidth, sweeps, rng, remedy)


def _units(given: Given, standardise: bool) -> np.ndarray:
    """Return K, of which theta = K x makes kernels round in x."""
    size = given.pooled.mean.size
    if not standardise:
        return np.eye(size)
    return linalg.cholesky(np.mean([moments.covariance for moments in given.moments], axis=0))


def _enough_bandwidth(given, draws, basis, precision, logs) -> float:
    """Return the least bandwidth, from a rule of thumb on, by which the product is found.

    In one dimension kernels must be narrow against the product, which is 1 / sqrt(B) as wide as a
    batch. In many, narrow kernels find too few draws, and wide ones leave the Gaussians.
    """
    size, batches = draws.shape[-1], len(draws)
    bandwidth = 2 * (4 * batches) ** (-0.5 / size**1.5)
    standard = _standard(given, draws, basis)
    unit = standard.shape[1] ** (-1 / (4 + size))
    while kernel_noise(standard, logs.reshape(batches, -1), precision, bandwidth * unit) > (
        MOST_NOISE
    ):
        bandwidth *= WIDER
    return float(bandwidth)


def kernel_noise(
    standard: np.ndarray, logs: np.ndarray, precision: np.ndarray, width: float
) -> float:
    r"""Return how far chance puts the mean of the product, in its sds (Mahalanobis).

    Batch b's share in the log density of the product at m is the log of the sum of
    :math:`w_i = N(x_i | m, h^2) / e^{l_i}` over its draws. Its slope there is the mean of
    :math:`(x_i - m) / h^2` by these weights, and moves the mean by so many variances of the
    product. What a draw adds to that, on average over places m in the product, is taken for its
    noise: few effective draws leave much of it, unless kernels are so wide that they do not matter.

    Draws are (batch, row, parameter), where the Gaussian product is centred with a diagonal
    `precision`; `logs` are their log densities :math:`l_i` under the batches' Gaussians.
    """
    half = np.random.default_rng(0).standard_normal((PLACES // 2, precision.size))
    places = np.concatenate([half, -half]) / np.sqrt(precision)
    total = 0.0
    for rows, own in zip(standard, logs, strict=True):
        level = -0.5 * np.sum(rows**2, axis=-1) / width**2 - own
        weights = softmax(rows @ places.T / width**2 + level[:, None], axis=0) / PLACES
        slopes = (rows * weights.sum(axis=1)[:, None] - weights @ places) / width**2
        total += np.sum(slopes**2 / precision)
    return float(np.sqrt(total))


def _standard(given: Given, draws: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Return the (batch, row, parameter) draws where kernels are round."""
    parameters = draws.shape[-1]
    centred = (draws - given.pooled.mean).reshape(-1, parameters)
    standard = np.ascontiguousarray(np.linalg.solve(basis, centred.T).T)
    return standard.reshape(len(draws), -1, parameters)


def _walk(given, draws, basis, precision, logs, bandwidth, sweeps, rng, remedy) -> np.ndarray:
    """Run the sampler where kernels are round; `remedy` is what to do if it finds no product."""
    if sweeps is not None:
        check_count("sweeps", sweeps)
    batches, chains, length, parameters = draws.shape
    walks = img.sample(
        _standard(given, draws, basis),
        logs.reshape(batches, -1),
        precision,
        checked_bandwidth(bandwidth),
        chains * length,
        sweeps,
        rng,
    )
    made = given.pooled.mean + walks.draws @ basis.T
    _warn_lost(made, walks.used, given, remedy)
    return made.reshape(chains, length, parameters)


def _warn_lost(made: np.ndarray, used: np.ndarray, given: Given, remedy: str) -> None:
    """Warn when the walks rest on few draws, and end elsewhere than the Gaussians' product.

    Either alone is no sign of error: kernels so wide that the Gaussians decide rest on few draws,
    and the product of skewed batches is not where their Gaussians have it.
    """
    # Walks of common descent are neighbours, as the draws of a chain are.
    effective = effective_sizes(made[None]).min()
    if used.min() >= FEWEST_USED and effective >= FEWEST_EFFECTIVE:
        return
    spread = np.sqrt(np.diag(given.pooled.covariance))
    shift = np.abs((made.mean(axis=0) - given.pooled.mean) / spread).max()
    ratios = made.std(axis=0, ddof=1) / spread
    width = ratios[np.abs(np.log(ratios)).argmax()]
    if shift < NOTABLE_SHIFT and 1 / NOTABLE_WIDTH < width < NOTABLE_WIDTH:
        return
    if used.min() < FEWEST_USED:
        few = f"{int(np.sum(used < FEWEST_USED))} of {used.size} batches"
        rest = f"{used.min():.2g} effective draws of a batch (fewer than {FEWEST_USED} in {few})"
    else:
        rest = f"{effective:.2g} independent walks"
    warn(
        f"the product of the batches' kernel estimates was not found: the merged draws rest on "
        f"{rest}, and are up to {shift:.2g} posterior sds off the mean and {width:.2g} times as "
        'wide as the batches\' moments imply. They are not to be trusted. Use method="swiss" or '
        f'"consensus"; or covariance="sample", if you passed another; or {remedy}.'
    )

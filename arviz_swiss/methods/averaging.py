"""Methods that average the batches' draws, one from each batch at a time."""

import numpy as np

from arviz_swiss.methods.registry import Given, register


@register("consensus", expects="fractionated", makes="draws")
def consensus(given: Given, draws: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return consensus Monte Carlo's draws: ``(sum_b P_b)^-1 sum_b P_b theta_b``.

    References
    ----------
    .. [1] Scott, Blocker, Bonassi, Chipman, George & McCulloch (2016), Bayes and big data: the
       consensus Monte Carlo algorithm, International Journal of Management Science and Engineering
       Management 11. https://doi.org/10.1080/17509653.2016.1142191
    """
    _, chains, length, parameters = draws.shape
    merged = np.zeros((chains * length, parameters))
    for batch, moments in zip(draws, given.moments, strict=True):
        share = moments.precision @ given.pooled.covariance
        merged += batch.reshape(-1, parameters) @ share
    return merged.reshape(chains, length, parameters)


@register("average", expects="fractionated", makes="draws")
def average(given: Given, draws: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the plain average of the batches' draws."""
    return draws.mean(axis=0)

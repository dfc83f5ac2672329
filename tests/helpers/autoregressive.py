"""Chains whose effective size is known."""

import numpy as np


def autoregressive(rng, correlation, chains, draws, size):
    """Return standard normal chains in which each draw has this correlation with the one before."""
    noise = rng.standard_normal((chains, draws, size))
    for i in range(1, draws):
        noise[:, i] = correlation * noise[:, i - 1] + np.sqrt(1 - correlation**2) * noise[:, i]
    return noise

"""Merges that several files of this folder refine."""

import numpy as np
import pytest
from refine_cases import GaussianDensity, LogRate
from scipy.special import digamma, polygamma

import arviz_swiss as az_swiss


@pytest.fixture
def gaussian_merge(exact_draws, random_covariance):
    """Return a function: draws and densities of a Gaussian model whose merge is exact."""

    def make(kind="inflated", batches=3, size=4, seed=0):
        rng = np.random.default_rng(seed)
        prior = (rng.standard_normal(size), np.linalg.inv(4 * random_covariance(rng, size)))
        densities, draws = {}, {}
        power, prior_power = (batches, 1.0) if kind == "inflated" else (1.0, 1 / batches)
        for position in range(batches):
            likelihood = (rng.standard_normal(size), np.linalg.inv(random_covariance(rng, size)))
            density = GaussianDensity(prior, likelihood)
            densities[f"b{position}"] = density
            mean, covariance = density.moments(power, prior_power)
            draws[f"b{position}"] = {"theta": exact_draws(rng, mean, covariance)}
        return az_swiss.merge(draws, kind=kind), densities, draws

    return make


@pytest.fixture(scope="module")
def log_rates():
    """Return a merge that is wrong, its densities, the exact moments, and the batches' draws."""
    rng = np.random.default_rng(1)
    counts, batches = np.array([2.0, 3.0, 5.0]), 8
    densities = [LogRate(counts, rng.gamma(counts)) for _ in range(batches)]
    draws = [
        {"u": np.log(rng.gamma(batches * counts, size=(2, 500, 3)) / (batches * one.exposures))}
        for one in densities
    ]
    total = sum(one.exposures for one in densities)
    mean = digamma(batches * counts) - np.log(total)
    return (
        az_swiss.merge(draws, kind="inflated"),
        densities,
        mean,
        np.sqrt(polygamma(1, batches * counts)),
        draws,
    )

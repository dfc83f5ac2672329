import numpy as np
import pytest
from arviz_density import kde
from scipy.stats import norm

from arviz_swiss.base.density import GRID, curves, smooth

MAKE = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "two modes": lambda rng, size: rng.standard_normal(size) + 8 * rng.integers(0, 2, size),
    "gamma": lambda rng, size: rng.gamma(2.0, size=size),
    "lognormal": lambda rng, size: rng.lognormal(0, 0.5, size=size),
    "student": lambda rng, size: rng.standard_t(5, size=size),
}


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize("draws", [400, 4000])
def test_bandwidths_are_arvizs(make, draws):
    """Up to its tolerance of 2e-12 of the square, and the highest of 511 waves, which it leaves."""
    ordered = np.sort(MAKE[make](np.random.default_rng(0), (20, draws)), axis=1)
    expected = np.array([kde(row)[2] for row in ordered])
    np.testing.assert_allclose(curves(ordered).bandwidth, expected, rtol=1e-5)


@pytest.mark.parametrize("make", MAKE)
def test_densities_are_arvizs(make):
    """Up to its kernel, which ends at pi sds and may stand off by half a cell."""
    ordered = np.sort(MAKE[make](np.random.default_rng(1), (20, 2000)), axis=1)
    densities = curves(ordered)
    for row, grid, values in zip(ordered, densities.grids, densities.values, strict=True):
        expected_grid, expected, _ = kde(row)
        np.testing.assert_allclose(grid, expected_grid, rtol=1e-9, atol=1e-9)
        assert 0.5 * np.abs(values - expected).mean() * np.ptp(row) < 0.02


def test_a_density_is_near_that_of_the_draws_and_sums_to_one():
    """Half the integrated absolute error of 20,000 draws is about .01."""
    ordered = np.sort(np.random.default_rng(2).standard_normal((3, 20_000)), axis=1)
    densities = curves(ordered)
    steps = (densities.high - densities.low) / GRID
    np.testing.assert_allclose(densities.values.sum(axis=1) * steps, 1, rtol=1e-9)
    errors = np.abs(densities.values - norm.pdf(densities.grids)).sum(axis=1) * steps
    assert (0.5 * errors).max() < 0.02


def test_smoothing_is_a_gaussian_kernel():
    counts = np.zeros((2, 600))
    counts[0, 300], counts[1, 200] = 1.0, 3.0
    places = np.arange(600)
    expected = [norm.pdf(places, 300, 20), 3 * norm.pdf(places, 200, 20)]
    np.testing.assert_allclose(smooth(counts, 20.0), expected, atol=1e-11)


def test_nothing_is_lost_at_the_ends():
    counts = np.zeros(400)
    counts[0] = 1.0
    found = smooth(counts, 10.0)
    assert found.sum() == pytest.approx(1)
    assert found[0] == pytest.approx(2 * norm.pdf(0.5, 0, 10), rel=1e-2)


@pytest.mark.parametrize("rows", [np.zeros(50), np.repeat([0.0, 1.0], 25), np.arange(5.0)])
def test_constants_and_few_values_have_a_density(rows):
    found = curves(np.sort(rows)[None])
    assert np.isfinite(found.values).all()
    assert (found.bandwidth == 0) == (np.ptp(rows) == 0)


def test_draws_most_of_which_are_the_same_have_a_bandwidth():
    rows = np.concatenate([np.zeros(300), np.random.default_rng(3).gamma(2.0, size=100)])
    found = curves(np.sort(rows)[None])
    assert 0 < found.bandwidth < rows.std()

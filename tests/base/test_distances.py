import numpy as np
import pytest
from scipy.stats import kurtosis, norm, skew, wasserstein_distance

from arviz_swiss.base import distances
from arviz_swiss.base.distances import excess_kurtosis, valley, valleys
from arviz_swiss.checking.statistics import VALLEY


@pytest.mark.parametrize("rows", [400, 500, 333])
def test_wasserstein_distances_are_scipys(rows):
    rng = np.random.default_rng(1)
    sample, reference = rng.gamma(2.0, size=(rows, 3)), rng.standard_normal((400, 3))
    expected = [wasserstein_distance(*pair) for pair in zip(sample.T, reference.T, strict=True)]
    np.testing.assert_allclose(
        distances.wasserstein(sample, reference) * reference.std(axis=0, ddof=1), expected
    )


def test_skewness_is_scipys():
    sample = np.random.default_rng(2).gamma(2.0, size=(500, 3))
    np.testing.assert_allclose(distances.skewness(sample), skew(sample, axis=0))
    np.testing.assert_allclose(distances.skewness_influence(sample).mean(axis=0), 0, atol=1e-12)


def test_moved_and_stretched_draws_are_as_far_off_as_they_were_moved():
    rng = np.random.default_rng(3)
    reference = rng.standard_normal((300, 4)) @ rng.standard_normal((4, 4))
    whitening = distances.whiten(reference)
    assert distances.mahalanobis(reference, whitening) == pytest.approx(0, abs=1e-12)
    assert distances.covariance_error(reference, whitening) == pytest.approx(0, abs=1e-12)
    covariance = np.cov(reference.T)
    shift = rng.standard_normal(4)
    expected = np.sqrt(shift @ np.linalg.solve(covariance, shift))
    assert distances.mahalanobis(reference + shift, whitening) == pytest.approx(expected)
    # a covariance of c times that of the reference: (c - 1) in every direction
    assert distances.covariance_error(3 * reference, whitening) == pytest.approx(8)


def test_exact_dependences_are_no_directions():
    weights = np.random.default_rng(4).dirichlet(np.ones(4), size=500)
    assert distances.whiten(weights).matrix.shape == (4, 3)


def test_samples_apart_have_no_density_in_common():
    rng = np.random.default_rng(5)
    sample = rng.standard_normal((1000, 1))
    estimates = distances.densities(sample)
    assert distances.integrated_absolute(sample, estimates)[0] == 0.0
    assert distances.integrated_absolute(sample + 50, estimates)[0] == 1.0


def test_excess_kurtosis_is_scipys():
    sample = np.random.default_rng(0).gamma(2.0, size=(500, 3))
    np.testing.assert_allclose(excess_kurtosis(sample), kurtosis(sample, axis=0))


@pytest.mark.parametrize(
    ("heights", "depth"), [([0, 4, 1, 2, 0], 0.5), ([0, 2, 0, 4, 0], 1.0), ([0, 3, 2, 1, 0], 0.0)]
)
def test_valley_is_the_depth_below_the_lower_mode(heights, depth):
    density = np.interp(np.linspace(0, 4, 401), np.arange(5), heights)
    assert valley(density) == pytest.approx(depth)


def test_two_normals_four_sds_apart():
    grid = np.linspace(-5, 9, 2001)
    density = norm.pdf(grid) + norm.pdf(grid, 4)
    assert valley(density) == pytest.approx(1 - 2 * norm.pdf(2) / density.max(), abs=1e-4)


def test_one_mode_has_no_valley():
    grid = np.linspace(-5, 5, 1001)
    assert valley(norm.pdf(grid)) == 0.0
    assert valley(np.exp(-grid[grid > 0])) == 0.0


def test_few_stray_draws_are_no_mode():
    grid = np.linspace(-5, 25, 3001)
    assert valley(0.97 * norm.pdf(grid) + 0.03 * norm.pdf(grid, 20)) == 0.0


def test_samples_of_one_mode_stay_below_the_threshold():
    sample = np.random.default_rng(0).standard_normal((400, 40))
    assert valleys(np.sort(sample.T, axis=1)).max() < 0.25


# Long tails: ripples that a density estimate has there are no modes.
@pytest.mark.parametrize(
    "make",
    [
        lambda rng, size: rng.lognormal(0, 1, size),
        lambda rng, size: rng.gamma(0.5, size=size),
        lambda rng, size: 1 / rng.gamma(3.0, size=size),
        lambda rng, size: np.abs(rng.standard_cauchy(size)).clip(max=50),
        lambda rng, size: rng.random(size),
    ],
    ids=["lognormal", "gamma", "inverse gamma", "half Cauchy", "uniform"],
)
@pytest.mark.parametrize("draws", [400, 1000, 4000])
def test_long_tails_have_one_mode(make, draws):
    sample = make(np.random.default_rng(0), (draws, 40))
    assert valleys(np.sort(sample.T, axis=1)).max() < VALLEY


def test_ripples_beside_two_modes_do_not_hide_them():
    grid = np.linspace(-5, 9, 2001)
    density = norm.pdf(grid) + norm.pdf(grid, 4)
    rippled = density * (1 + 0.02 * np.sin(40 * grid))
    assert valley(rippled) == pytest.approx(valley(density), abs=0.05)


def test_modes_at_the_ends_and_flat_densities():
    assert valley(np.array([4.0, 1.0, 2.0])) == pytest.approx(0.5)
    assert valley(np.ones(50)) == 0.0
    assert valley(np.array([2.0, 2.0, 0.0, 0.0, 2.0, 2.0])) == pytest.approx(1.0)

import numpy as np
import pytest
from batch_kinds import both_kinds, rows, theta
from scipy import stats

import arviz_swiss as az_swiss
from arviz_swiss.base import linalg

quiet = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")


def test_recentre_keeps_shapes_and_takes_the_plain_mean(random_batches):
    batches = random_batches(np.random.default_rng(6), 4)
    inflated, _ = both_kinds(batches, (8, 8, 4, 2))
    merged = theta(az_swiss.merge(inflated, method="recentre"))
    means = [batch["theta"].mean(axis=(0, 1)) for batch in batches]
    expected = np.concatenate(
        [
            batch["theta"] - mean + np.mean(means, axis=0)
            for batch, mean in zip(batches, means, strict=True)
        ]
    )
    np.testing.assert_allclose(merged, expected, atol=1e-13)


def test_pool_leaves_the_draws_alone(random_batches):
    batches = random_batches(np.random.default_rng(6), 4)
    merged = theta(az_swiss.merge(batches, method="pool", kind="inflated"))
    np.testing.assert_allclose(merged, np.concatenate([b["theta"] for b in batches]), atol=1e-13)


def test_location_scatter_and_barycenter_have_the_barycenters_moments(random_batches):
    powers = np.array([8.0, 8.0, 4.0, 2.0])
    batches = random_batches(np.random.default_rng(9), 4, draws=1000)
    inflated, _ = both_kinds(batches, powers)
    flat = [batch["theta"].reshape(-1, 3) for batch in batches]
    mean = (1 / powers) @ np.array([draws.mean(axis=0) for draws in flat])
    centre = linalg.wasserstein_barycenter([np.cov(draws.T) for draws in flat], 1 / powers)
    raw = {"standardise": False}
    moved = theta(az_swiss.merge(inflated, method="location_scatter", **raw)).reshape(4, -1, 3)
    for draws in moved:
        np.testing.assert_allclose(draws.mean(axis=0), mean, atol=1e-10)
        np.testing.assert_allclose(np.cov(draws.T), centre, atol=1e-8)
    made = rows(az_swiss.merge(inflated, method="barycenter", random_seed=0, **raw))
    white = (made - mean) @ np.linalg.cholesky(np.linalg.inv(centre))
    assert len(made) * np.sum(white.mean(axis=0) ** 2) < stats.chi2.ppf(1 - 1e-5, 3)
    assert np.linalg.norm(np.cov(white.T) - np.eye(3)) < 3 * np.sqrt(12 / len(made))


@quiet
@pytest.mark.parametrize("method", ["location_scatter", "barycenter"])
def test_barycenters_do_not_depend_on_units(random_batches, method):
    batches = random_batches(np.random.default_rng(9), 4, draws=1000)
    units = np.exp([-9.0, 0.0, 9.0])
    scaled = [{"theta": batch["theta"] * units} for batch in batches]
    plain, other = (
        theta(az_swiss.merge(each, method=method, random_seed=0, kind="inflated"))
        for each in (batches, scaled)
    )
    np.testing.assert_allclose(other / units, plain, atol=1e-8)


@quiet
def test_a_barycenter_that_is_not_found_says_what_to_do(random_batches):
    batches = random_batches(np.random.default_rng(9), 4, draws=1000)
    scaled = [{"theta": batch["theta"] * np.exp([-9.0, 0.0, 9.0])} for batch in batches]
    with pytest.raises(ValueError, match=r"barycenter was not found .*standardise=True, or .*swis"):
        az_swiss.merge(scaled, method="barycenter", standardise=False, kind="inflated")


def test_barycenter_weights_make_equal_covariances_exact(exact_draws):
    # with one covariance for all batches the pooled mean is the weighted mean
    rng, powers = np.random.default_rng(10), (4.0, 4.0, 2.0)
    batches = [{"theta": exact_draws(rng, rng.normal(size=2), np.eye(2))} for _ in powers]
    inflated, _ = both_kinds(batches, powers)
    swiss, other = (
        az_swiss.merge(inflated, method=method) for method in ("swiss", "location_scatter")
    )
    np.testing.assert_allclose(theta(other), theta(swiss), atol=1e-8)


def test_gaussian_subtracts_the_prior_as_swiss_does(random_batches):
    rng = np.random.default_rng(20)
    batches = random_batches(rng, 3)
    prior = {"theta": 10 * rng.normal(size=(1, 2000, 3))}
    made, moved = (
        az_swiss.merge(batches, method=method, kind="full_prior", prior=prior, random_seed=0)
        for method in ("gaussian", "swiss")
    )
    spread = rows(moved).std(axis=0)
    # 400 new draws: four standard errors
    assert np.all(np.abs(rows(made).mean(axis=0) - rows(moved).mean(axis=0)) < 4 * spread / 20)

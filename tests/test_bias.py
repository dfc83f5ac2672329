"""The error that is to be expected of a merge."""

import numpy as np
import pytest
from scipy.special import digamma, expit, polygamma

import arviz_swiss as az_swiss
from arviz_swiss.bias import expected_error
from arviz_swiss.moments import Moments, pool


def log_rate_moments(counts, exposure):
    """Return exact moments of independent log rates, given Poisson counts and a flat prior."""
    variance = polygamma(1, counts)
    mean = digamma(counts) - np.log(exposure)
    return Moments(mean, np.diag(variance), np.diag(1 / variance), 10**6, 1e6)


def merged_log_rates(rng, count, per_batch, size):
    counts = rng.poisson(per_batch, size=(count, size)) + 1.0
    powers = np.full(count, float(count))
    batches = [log_rate_moments(count * one, count * 1.0) for one in counts]
    pooled = pool(batches, 1 / powers)
    whole = log_rate_moments(counts.sum(axis=0), float(count))
    away = (pooled.mean - whole.mean) / np.sqrt(np.diag(whole.covariance))
    return np.linalg.norm(away), expected_error(batches, pooled, powers)


@pytest.mark.parametrize(
    ("count", "per_batch", "size"), [(10, 20, 5), (20, 20, 3), (10, 200, 5), (50, 100, 4)]
)
def test_the_error_of_skewed_batches_is_foreseen(count, per_batch, size):
    rng = np.random.default_rng(0)
    errors = np.array([merged_log_rates(rng, count, per_batch, size) for _ in range(20)])
    measured, expected = np.median(errors, axis=0)
    assert measured / 1.5 < expected < 1.5 * measured


def gaussian_regression(rng, rows, count, size):
    design = rng.standard_normal((rows, size))
    outcomes = design @ rng.standard_normal(size) + rng.standard_normal(rows)
    batches = []
    for part in np.array_split(np.arange(rows), count):
        precision = count * design[part].T @ design[part]
        covariance = np.linalg.inv(precision)
        mean = covariance @ (count * design[part].T @ outcomes[part])
        batches.append(Moments(mean, covariance, precision, 10**6, 1e6))
    return batches


@pytest.mark.parametrize(("rows", "count", "size"), [(1000, 5, 3), (1000, 20, 5), (7000, 10, 29)])
def test_designs_that_differ_by_chance_are_no_error(rows, count, size):
    rng = np.random.default_rng(1)
    powers = np.full(count, float(count))
    errors = []
    for _ in range(50):
        batches = gaussian_regression(rng, rows, count, size)
        errors.append(expected_error(batches, pool(batches, 1 / powers), powers))
    # At 2.5 sds chance exceeds the limit in some percent: 10 or more of 50 have p < 1e-4 at 4%.
    assert np.count_nonzero(errors) < 10


def test_nothing_is_said_of_two_batches_and_of_plain_ones():
    batches = [log_rate_moments(np.array([5.0]), 1.0), log_rate_moments(np.array([9.0]), 1.0)] * 2
    assert np.isnan(expected_error(batches, pool(batches, np.ones(4)), np.ones(4)))
    two = np.full(2, 2.0)
    assert np.isnan(expected_error(batches[:2], pool(batches[:2], 1 / two), two))


@pytest.mark.parametrize(("rows", "count", "intercept"), [(500, 10, -2.0), (1000, 20, -1.0)])
def test_small_batches_of_rare_events_are_not_approved(
    rows, count, intercept, logistic_regression, sample_batch
):
    rng = np.random.default_rng(3)
    size = 3
    design = np.c_[np.ones(rows), rng.standard_normal((rows, size - 1))]
    truth = np.r_[intercept, 0.5 * np.ones(size - 1)]
    outcomes = (rng.random(rows) < expit(design @ truth)).astype(float)
    densities = [
        logistic_regression(design[part], outcomes[part], np.ones(len(part)), 3.0)
        for part in np.array_split(np.arange(rows), count)
    ]
    batches = [
        {"beta": sample_batch(rng, one, size, power=count, warmup=30).reshape(4, -1, size)}
        for one in densities
    ]
    merged = az_swiss.merge(batches, kind="inflated")
    whole = logistic_regression(design, outcomes, np.ones(rows), 3.0)
    full = {"beta": sample_batch(rng, whole, size, draws=40, warmup=30).reshape(4, -1, size)}
    measured = float(az_swiss.discrepancy(merged, full)["mahalanobis"])
    expected = float(merged["swiss_diagnostics"]["expected_error"])
    assert measured > 0.5
    assert measured / 3 < expected < 3 * measured
    report = az_swiss.report(merged)
    assert "expected error" in {finding.flag for finding in report.findings}
    assert "Nothing speaks against" not in str(report)

    refined = az_swiss.refine(merged, densities, rounds=3, random_seed=0, progressbar=False)
    assert float(az_swiss.discrepancy(refined, full)["mahalanobis"]) < 0.2
    assert "expected error" not in str(az_swiss.report(refined))

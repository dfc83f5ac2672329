"""The error that is to be expected of a merge."""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import digamma, expit, polygamma

import arviz_swiss as az_swiss
from arviz_swiss.base.bias import SURE, _length, expected_error, prior_error, skewness_error
from arviz_swiss.base.gaussian import Moments, pool


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


def test_nothing_is_said_of_four_batches_and_of_plain_ones():
    batches = [log_rate_moments(np.array([5.0]), 1.0), log_rate_moments(np.array([9.0]), 1.0)] * 3
    assert np.isnan(expected_error(batches, pool(batches, np.ones(6)), np.ones(6)))
    four = np.full(4, 4.0)
    assert np.isnan(expected_error(batches[:4], pool(batches[:4], 1 / four), four))
    draws = [np.random.default_rng(0).standard_normal((100, 1))] * 6
    assert np.isnan(skewness_error(draws, batches, pool(batches, np.ones(6)), np.ones(6)))


def moments_of(draws):
    covariance = np.atleast_2d(np.cov(draws.T))
    precision = np.linalg.inv(covariance)
    return Moments(draws.mean(axis=0), covariance, precision, len(draws), float(len(draws)))


def error_by_skewness(draws):
    powers = np.full(len(draws), float(len(draws)))
    batches = [moments_of(matrix) for matrix in draws]
    pooled = pool(batches, 1 / powers)
    return pooled.mean, skewness_error(draws, batches, pooled, powers)


def log_sd_draws(rng, rows, squares, power, size):
    """Return draws of a log sd with a flat prior, given the sum of so many squares."""
    precisions = rng.gamma(power * rows / 2, 2 / (power * squares), size=size)
    return -0.5 * np.log(precisions)[:, None]


class LogSd(NamedTuple):
    """The density of a log sd with a flat prior, given the sum of so many squares."""

    rows: int
    squares: float

    def log_prior(self, x):
        return np.zeros(len(x))

    def grad_log_prior(self, x):
        return np.zeros_like(x)

    def log_likelihood(self, x):
        return -self.rows * x[:, 0] - 0.5 * self.squares * np.exp(-2 * x[:, 0])

    def grad_log_likelihood(self, x):
        return -self.rows + self.squares * np.exp(-2 * x)


@pytest.mark.parametrize(("count", "rows"), [(20, 20), (50, 20), (100, 20)])
def test_the_error_of_a_scale_is_foreseen(count, rows):
    rng = np.random.default_rng(2)
    errors = []
    for _ in range(10):
        squares = rng.chisquare(rows, size=count)
        draws = [log_sd_draws(rng, rows, one, count, 2000) for one in squares]
        half = count * rows / 2
        mean = 0.5 * (np.log(squares.sum() / 2) - digamma(half))
        found, expected = error_by_skewness(draws)
        errors.append((abs(found[0] - mean) / (0.5 * np.sqrt(polygamma(1, half))), expected))
    measured, expected = np.median(errors, axis=0)
    assert measured / 1.5 < expected < 1.5 * measured


def regression_draws(rng, design, outcomes, power, size):
    """Return exact draws of slopes and log sd, with a prior that is flat in them."""
    rows, parameters = design.shape
    squares = design.T @ design
    slopes = np.linalg.solve(squares, design.T @ outcomes)
    rest = np.sum((outcomes - design @ slopes) ** 2)
    variances = 1 / rng.gamma((power * rows - parameters) / 2, 2 / (power * rest), size=size)
    factor = np.linalg.cholesky(np.linalg.inv(squares) / power)
    away = rng.standard_normal((size, parameters)) @ factor.T
    return np.c_[slopes + np.sqrt(variances)[:, None] * away, 0.5 * np.log(variances)]


@pytest.mark.parametrize(("count", "rows", "size"), [(10, 100, 3), (20, 100, 10), (10, 1000, 30)])
def test_the_error_that_many_slopes_make_in_the_sd_is_foreseen(count, rows, size):
    rng = np.random.default_rng(3)
    errors = []
    for _ in range(10):
        design = rng.standard_normal((count * rows, size))
        outcomes = design.sum(axis=1) + rng.standard_normal(count * rows)
        draws = [
            regression_draws(rng, design[b::count], outcomes[b::count], count, 2000)
            for b in range(count)
        ]
        full = moments_of(regression_draws(rng, design, outcomes, 1, 20_000))
        found, expected = error_by_skewness(draws)
        away = found - full.mean
        errors.append((np.sqrt(away @ full.precision @ away), expected))
    measured, expected = np.median(errors, axis=0)
    assert measured / 1.5 < expected < 1.5 * measured


@pytest.mark.parametrize(
    ("count", "size", "draws"), [(3, 20, 1000), (3, 50, 1000), (5, 50, 1000), (20, 5, 400)]
)
def test_gaussian_batches_have_no_error(count, size, draws):
    rng = np.random.default_rng(4)
    powers, errors = np.full(count, float(count)), []
    for _ in range(30):
        means = np.sqrt(count) * rng.standard_normal((count, 1, size))
        samples = means + rng.standard_normal((count, draws, size))
        batches = [moments_of(matrix) for matrix in samples]
        pooled = pool(batches, 1 / powers)
        by_precision = expected_error(batches, pooled, powers)
        errors.append(
            (np.nan_to_num(by_precision), skewness_error(samples, batches, pooled, powers))
        )
    # Chance exceeds 3 of its sds in less than 1%: 4 or more of 30 have p < 3e-4.
    assert np.count_nonzero(errors, axis=0).max() < 4


def test_the_report_does_not_approve_of_a_biased_scale_and_refine_mends_it():
    rng = np.random.default_rng(5)
    count, rows = 50, 20
    squares = rng.chisquare(rows, size=count)
    batches = [
        {"log_s": log_sd_draws(rng, rows, one, count, 2000).reshape(4, 500)} for one in squares
    ]
    merged = az_swiss.merge(batches, kind="inflated")
    half = count * rows / 2
    mean, sd = 0.5 * (np.log(squares.sum() / 2) - digamma(half)), 0.5 * np.sqrt(polygamma(1, half))
    assert abs(float(merged["posterior"]["log_s"].mean()) - mean) > 0.8 * sd
    report = az_swiss.report(merged)
    assert "expected error" in {finding.flag for finding in report.findings}
    assert "xpect an error" in str(report)
    assert 0.5 < float(report.statistics["skewness_error"]) < 3

    densities = [LogSd(rows, one) for one in squares]
    refined = az_swiss.refine(merged, densities, rounds=3, random_seed=0, progressbar=False)
    assert abs(float(refined["posterior"]["log_s"].mean()) - mean) < 0.2 * sd
    assert "xpect an error" not in str(az_swiss.report(refined))


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
    report = az_swiss.report(refined)
    assert "expected error" not in {finding.flag for finding in report.findings}
    assert "xpect an error" not in str(report)


class LogRate(NamedTuple):
    """The density of a log rate with a Gamma(2, 1) prior, given a Poisson count."""

    count: int
    exposure: float

    def log_prior(self, x):
        return (2 * x - np.exp(x))[:, 0]

    def grad_log_prior(self, x):
        return 2 - np.exp(x)

    def log_likelihood(self, x):
        return (self.count * x - self.exposure * np.exp(x))[:, 0]

    def grad_log_likelihood(self, x):
        return self.count - self.exposure * np.exp(x)


@pytest.mark.parametrize("transforms", [None, {"rate": "log"}])
def test_a_prior_far_from_gaussian_is_not_subtracted_in_silence(transforms):
    rng = np.random.default_rng(6)
    count, exposure = 50, 5.0
    counts = rng.poisson(exposure * 6.0, size=count)

    def sampled(share):
        rates = rng.gamma(2 * share + counts, 1 / (share + exposure), size=(4, 2000, count))
        return [{"rate": rate} for rate in np.moveaxis(rates, -1, 0)]

    shape, scale = 2 + counts.sum(), 1 / (1 + count * exposure)
    mean, sd = shape * scale, np.sqrt(shape) * scale
    prior = {"rate": rng.gamma(2, 1, size=(1, 8000))}
    plain = sampled(1.0)
    with pytest.warns(az_swiss.MergeWarning, match="subtracts the prior 49 times as a Gaussian"):
        merged = az_swiss.merge(plain, kind="full_prior", prior=prior, transforms=transforms)
    measured = abs(float(merged["posterior"]["rate"].mean()) - mean) / sd
    expected = float(merged["swiss_diagnostics"]["prior_error"])
    assert measured > 1
    assert measured / 3 < expected < 3 * measured
    (finding,) = [one for one in az_swiss.report(merged).findings if one.flag == "prior's shape"]
    assert 'kind="fractionated"' in finding.remedy

    # What it advises: the prior to the power 1/B, in the space of the merge (here logs), or refine.
    mended = az_swiss.merge(sampled(1 / count), kind="fractionated", transforms={"rate": "log"})
    assert abs(float(mended["posterior"]["rate"].mean()) - mean) < 0.3 * sd
    if transforms:
        densities = [LogRate(one, exposure) for one in counts]
        refined = az_swiss.refine(merged, densities, rounds=3, random_seed=0, progressbar=False)
        assert abs(float(refined["posterior"]["rate"].mean()) - mean) < 0.3 * sd
        assert "prior's shape" not in {one.flag for one in az_swiss.report(refined).findings}


@pytest.mark.parametrize("size", [1, 50])
def test_a_gaussian_prior_has_no_error(size):
    rng = np.random.default_rng(7)
    posterior = pool([Moments(np.full(size, 1.5), np.eye(size), np.eye(size), 10, 10.0)], [1000.0])
    errors = []
    for _ in range(50):
        draws = rng.standard_normal((2000, size))
        errors.append(prior_error(draws, moments_of(draws), posterior, -49.0))
    # At p = .001 for all parameters together: 3 or more of 50 have p < 1e-4.
    assert np.count_nonzero(errors) < 3


class GaussianMean(NamedTuple):
    """The density of a mean with a flat prior, given the average of rows of unit variance."""

    average: np.ndarray
    rows: int

    def log_prior(self, x):
        return np.zeros(len(x))

    def grad_log_prior(self, x):
        return np.zeros_like(x)

    def log_likelihood(self, x):
        return -0.5 * self.rows * np.sum((x - self.average) ** 2, axis=1)

    def grad_log_likelihood(self, x):
        return -self.rows * (x - self.average)


def test_a_refined_merge_is_not_told_to_draw_more():
    rng = np.random.default_rng(9)
    count, size, rows = 5, 30, 100
    averages = rng.standard_normal((count, size)) / np.sqrt(rows)
    densities = [GaussianMean(average, rows) for average in averages]
    batches = [
        {"x": average + rng.standard_normal((4, 100, size)) / np.sqrt(count * rows)}
        for average in averages
    ]
    with pytest.warns(az_swiss.MergeWarning, match="too small"):
        merged = az_swiss.merge(batches, kind="inflated")
    assert "few draws" in {finding.flag for finding in az_swiss.report(merged).findings}
    refined = az_swiss.refine(merged, densities, rounds=3, random_seed=0, progressbar=False)
    sd = refined["posterior"]["x"].std(("chain", "draw")).values * np.sqrt(count * rows)
    np.testing.assert_allclose(sd, 1, atol=0.02)
    assert "few draws" not in {finding.flag for finding in az_swiss.report(refined).findings}


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize(("count", "size"), [(5, 3), (40, 7), (6, 30)])
def test_only_products_of_two_different_batches_count(count, size, centred):
    rng = np.random.default_rng(count)
    shares = rng.dirichlet(np.ones(count))
    for shift in (0.0, 0.3, 3.0):
        terms = rng.standard_normal((count, size)) + shift
        products = np.outer(shares, shares) * (terms @ terms.T)
        by_centring = np.trace(products) / (count - 1) if centred else 0.0
        np.fill_diagonal(products, 0.0)
        squared = products.sum() - by_centring
        is_sure = squared > SURE * np.sqrt(2 * np.sum(products**2))
        expected = np.sqrt(squared / (1 - np.sum(shares**2))) if is_sure else 0.0
        assert _length(terms, shares, centred) == pytest.approx(expected, rel=1e-12)

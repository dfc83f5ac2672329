"""The statistics are ArviZ's, and known values on both stacks."""

import arviz as az
import numpy as np
import pytest
import xarray as xr
from autoregressive import autoregressive
from scipy.stats import norm

from arviz_swiss.base.effective import effective_sizes
from arviz_swiss.data import statistics


def test_rows_of_the_summary_are_those_of_their_labels():
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((2, 200, 2, 3)) + np.arange(6).reshape(2, 3)
    dataset = xr.Dataset(
        {
            "m": (("chain", "draw", "row", "col"), draws),
            "t": (("chain", "draw", "col", "row"), draws.swapaxes(2, 3)),
        },
        coords={"row": ["a", "b"], "col": ["x", "y", "z"]},
    )
    table = statistics.summary(dataset)
    assert len(table) == 12
    means = draws.mean(axis=(0, 1))
    np.testing.assert_allclose(table["mean"], [*means.ravel(), *means.T.ravel()], rtol=1e-12)


def test_convergence_is_arvizs():
    draws = autoregressive(np.random.default_rng(1), 0.5, 4, 500, 1)[..., 0]
    tail = az.ess(draws, method="tail", prob=(0.05, 0.95))
    expected = np.array([az.rhat(draws), az.ess(draws, method="bulk"), tail], dtype=float)
    np.testing.assert_allclose(statistics.convergence(draws), expected, rtol=1e-12)


def test_one_chain_is_compared_with_itself():
    drifting = np.linspace(0, 5, 400) + np.random.default_rng(2).standard_normal(400)
    assert statistics.convergence(drifting[None])[0] > 1.3
    assert statistics.convergence(np.random.default_rng(3).standard_normal((1, 400)))[0] < 1.02
    assert np.isnan(statistics.convergence(np.zeros((2, 3)))).all()


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_both_effective_sizes_agree_on_chains_that_mix(correlation):
    series = autoregressive(np.random.default_rng(4), correlation, 4, 2000, 40)
    arvizs = [statistics.effective_size(column) for column in np.moveaxis(series, -1, 0)]
    ratios = effective_sizes(series) / np.minimum(arvizs, series[..., 0].size)
    assert np.median(ratios) == pytest.approx(1, abs=0.02)


def test_a_density_estimate_is_near_the_density():
    draws = np.random.default_rng(5).standard_normal(20_000)
    grid, density, bandwidth = statistics.kde(draws)
    assert 0.05 < bandwidth < 0.5
    # half the integrated absolute difference
    assert 0.5 * np.sum(np.abs(density - norm.pdf(grid))) * (grid[1] - grid[0]) < 0.02
    grid, _, bandwidth = statistics.kde(draws, bw=0.3, custom_lims=(-6, 6), grid_len=200)
    assert bandwidth == 0.3 and grid.size == 200
    np.testing.assert_allclose([grid[0], grid[-1]], [-6, 6], atol=12 / 200)


def test_khat_is_the_shape_of_the_tail():
    # Weights of draws with sd s for a standard normal have the tail shape 1 - s^2, and no tail for
    # s > 1; fitted to 190 draws, 1.75 / sqrt(190) = .13 is its standard error.
    rng = np.random.default_rng(6)
    for sd, low, high in ((1.1, -np.inf, 0.2), (0.5, 0.75 - 4 * 0.13, 0.75 + 4 * 0.13)):
        draws = sd * rng.standard_normal(4000)
        ratios = norm.logpdf(draws) - norm.logpdf(draws, 0, sd)
        log_weights, khat = statistics.pareto_smoothed(ratios)
        assert low < khat < high
        assert np.exp(log_weights).sum() == pytest.approx(1)


def test_ratios_that_are_equal_or_zero_have_no_tail():
    log_weights, khat = statistics.pareto_smoothed(np.full(50, 3.0))
    assert khat == 0
    np.testing.assert_allclose(np.exp(log_weights), 1 / 50)
    some = np.where(np.arange(50) < 10, -np.inf, 3.0)
    log_weights, khat = statistics.pareto_smoothed(some)
    assert khat == 0
    np.testing.assert_allclose(np.exp(log_weights), np.repeat([0, 1 / 40], [10, 40]))
    log_weights, khat = statistics.pareto_smoothed(np.full(50, -np.inf))
    assert khat == np.inf
    np.testing.assert_allclose(np.exp(log_weights), 1 / 50)

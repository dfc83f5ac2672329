"""The statistics are ArviZ's, and known values on both stacks."""

import arviz as az
import numpy as np
import pytest
import xarray as xr
from autoregressive import autoregressive
from scipy.stats import norm

from arviz_swiss.base.convergence import mean_sizes
from arviz_swiss.base.effective import effective_sizes, sizes_within
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


def repeated(rng, series):
    """Return series that stay where they are every other draw or so, as a Metropolis sampler's."""
    moves = rng.random(series.shape[:2]) < 0.5
    moves[:, 0] = True
    last = np.maximum.accumulate(np.where(moves, np.arange(series.shape[1]), 0), axis=1)
    return np.take_along_axis(series, last[..., None], axis=1)


def arviz_convergence(draws):
    """Return ArviZ's R-hat, bulk, tail and mean effective sizes of one (chain, draw) array."""
    halves = draws
    if len(draws) == 1 and draws.shape[1] >= 8:
        half = draws.shape[1] // 2
        halves = draws[0, : 2 * half].reshape(2, half)
    sizes = [az.ess(draws, method=method) for method in ("bulk", "mean")]
    tail = az.ess(draws, method="tail", prob=(0.05, 0.95))
    return np.array([az.rhat(halves), sizes[0], tail, sizes[1]], dtype=float)


@pytest.mark.parametrize("chains", [1, 2, 4])
# 101 and 1001: the quantiles that tails begin at are draws
@pytest.mark.parametrize("length", [8, 9, 11, 50, 101, 500, 1001])
@pytest.mark.parametrize("make", ["slow", "repeated", "rounded", "apart"])
def test_convergence_is_arvizs(chains, length, make):
    rng = np.random.default_rng(1)
    series = autoregressive(rng, 0.9 if make == "slow" else 0.3, chains, length, 3)
    if make == "repeated":
        series = repeated(rng, series)
    elif make == "rounded":
        series = np.round(series, 1)
    elif make == "apart":
        series += np.arange(chains)[:, None, None]
    found = statistics.convergence(series)
    expected = [arviz_convergence(series[..., j]) for j in range(3)]
    values = np.column_stack([found.rhat, found.bulk, found.tail, mean_sizes(series)])
    np.testing.assert_allclose(values, expected, rtol=1e-10)
    np.testing.assert_array_equal(found.ordered, np.sort(series.reshape(-1, 3).T, axis=1))
    np.testing.assert_array_equal(found.within, sizes_within(series))


def test_constants_and_chains_that_are_stuck():
    series = np.zeros((2, 100, 3))
    series[1, :, 1] = 1.0
    series[..., 2] = np.arange(100) % 2
    found = statistics.convergence(series)
    assert np.isnan(found.rhat[0]) and found.rhat[1] > 1e6
    assert found.bulk[0] == found.tail[0] == 200
    assert found.bulk[2] == pytest.approx(float(az.ess(series[..., 2], method="bulk")))


def test_one_chain_is_compared_with_itself():
    drifting = np.linspace(0, 5, 400) + np.random.default_rng(2).standard_normal(400)
    assert statistics.convergence(drifting[None, :, None]).rhat > 1.3
    steady = np.random.default_rng(3).standard_normal((1, 400, 1))
    assert statistics.convergence(steady).rhat < 1.02
    few = statistics.convergence(np.zeros((2, 3, 1)))
    assert np.isnan([few.rhat, few.bulk, few.tail]).all() and few.within == 6


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_both_effective_sizes_agree_on_chains_that_mix(correlation):
    series = autoregressive(np.random.default_rng(4), correlation, 4, 2000, 40)
    arvizs = [statistics.effective_size(column) for column in np.moveaxis(series, -1, 0)]
    ratios = effective_sizes(series) / np.minimum(arvizs, series[..., 0].size)
    assert np.median(ratios) == pytest.approx(1, abs=0.02)


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

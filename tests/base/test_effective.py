import numpy as np
import pytest
from autoregressive import autoregressive
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, rankdata

from arviz_swiss.base.effective import (
    effective_sizes,
    rhat_by_chance,
    rhat_limits,
    size_by_chance,
    sizes_within,
    times_within,
)
from arviz_swiss.base.ranks import by_parameter


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_effective_sizes_are_those_of_autoregressive_chains(correlation):
    rng = np.random.default_rng(1)
    series = autoregressive(rng, correlation, 4, 4000, 20)
    expected = 16_000 * (1 - correlation) / (1 + correlation)
    assert effective_sizes(series).mean() == pytest.approx(expected, rel=0.1)


@given(seed=st.integers(0, 2**32), chains=st.integers(1, 4), draws=st.integers(1, 9))
def test_effective_sizes_lie_between_one_and_all(seed, chains, draws):
    series = np.random.default_rng(seed).standard_normal((chains, draws, 3))
    series[..., 2] = 1.0
    found = effective_sizes(series)
    assert np.all((found >= 1) & (found <= chains * draws))


def test_chains_that_disagree_are_worth_little():
    series = np.random.default_rng(2).standard_normal((4, 100, 1))
    assert effective_sizes(series + 10 * np.arange(4)[:, None, None])[0] < 10


def test_families_of_neighbours_are_worth_their_number():
    rng = np.random.default_rng(24)
    independent = rng.normal(size=(1, 2000, 3))
    families = np.repeat(rng.normal(size=(1, 10, 3)), 200, axis=1)
    assert effective_sizes(independent).min() > 500
    assert effective_sizes(families).max() < 25


def rhat(pieces):
    """R-hat of (chain, draw, column), nothing split."""
    length = pieces.shape[1]
    within = pieces.var(axis=1, ddof=1).mean(axis=0)
    return np.sqrt((length - 1) / length + pieces.mean(axis=1).var(axis=0, ddof=1) / within)


def ranked_rhat(series):
    """The R-hat that users read: the larger of two, of normal scores, of pieces of the chains."""
    chains, length, columns = series.shape
    pieces = 4 if chains == 1 else 2 * chains
    each = chains * length // pieces
    split = series[:, : each * pieces // chains].reshape(pieces, each, columns)
    found = []
    for x in (split, np.abs(split - np.median(split, axis=(0, 1)))):
        ranks = rankdata(x.reshape(-1, columns), axis=0)
        found.append(rhat(norm.ppf((ranks - 0.375) / (len(ranks) + 0.25)).reshape(x.shape)))
    return np.maximum(*found)


def binomial_error(chance, count):
    return np.sqrt(chance * (1 - chance) / count)


@pytest.mark.parametrize(("chains", "length"), [(8, 30), (4, 37), (2, 500)])
@pytest.mark.parametrize("chance", [0.1, 0.01])
def test_rhat_of_independent_draws_has_its_distribution(chains, length, chance):
    found = rhat(np.random.default_rng(3).standard_normal((chains, length, 5000)))
    limit = rhat_by_chance(chance, chains, length, np.array(float(length)))
    assert abs(np.mean(found > limit) - chance) < 4 * binomial_error(chance, 5000)


CORRELATIONS = (-0.4, 0.0, 0.3, 0.6)


@pytest.mark.parametrize(("chains", "length"), [(4, 60), (1, 150), (2, 250)])
@pytest.mark.parametrize("correlation", CORRELATIONS)
def test_converged_chains_seldom_exceed_their_limit(chains, length, correlation):
    count, chance = 1500, 0.01
    series = autoregressive(np.random.default_rng(4), correlation, chains, length, count)
    limits = rhat_limits(chains, length, sizes_within(series), chance)
    share = np.mean(ranked_rhat(series) > limits)
    assert share <= chance + 4 * binomial_error(chance, count)


@pytest.mark.parametrize(("share", "off", "chance"), [(0.9, 1.0, 0.01), (0.99, 1.5, 0.01 / 560)])
def test_one_chain_elsewhere_is_found(share, off, chance):
    series = np.random.default_rng(5).standard_normal((4, 60, 1000))
    series[0] += off
    limits = rhat_limits(4, 60, sizes_within(series), chance, least=140)
    assert np.mean(ranked_rhat(series) > limits) > share


def test_slow_chains_are_not_excused():
    # each a walk of its own, worth next to nothing
    series = np.cumsum(np.random.default_rng(6).standard_normal((4, 250, 200)), axis=1)
    limits = rhat_limits(4, 250, sizes_within(series), 1e-5, least=100)
    assert np.mean(ranked_rhat(series) > limits) > 0.95


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6])
def test_times_within_are_those_of_autoregressive_chains(correlation):
    series = autoregressive(np.random.default_rng(7), correlation, 4, 60, 500)
    expected = (1 + correlation) / (1 - correlation)
    columns = by_parameter(series)
    apart = columns + 10 * np.arange(4)[:, None]
    assert np.median(times_within(columns)) == pytest.approx(expected, rel=0.15)
    np.testing.assert_allclose(times_within(apart), times_within(columns))


def test_constants_have_a_size():
    series = np.zeros((2, 10, 1))
    assert sizes_within(series) == 20
    assert np.isfinite(rhat_limits(2, 10, sizes_within(series), 0.01)).all()


@pytest.mark.parametrize(("chains", "length"), [(4, 60), (1, 150)])
@pytest.mark.parametrize("correlation", [0.1, 0.5])
@pytest.mark.parametrize("chance", [0.01, 0.001])
def test_estimates_seldom_fall_short_of_their_limit(chains, length, correlation, chance):
    count = 1500
    series = autoregressive(np.random.default_rng(8), correlation, chains, length, count)
    size = chains * length * (1 - correlation) / (1 + correlation)
    share = np.mean(sizes_within(series) < size_by_chance(size, chance))
    assert share <= chance + 4 * binomial_error(chance, count)

import numpy as np
import pytest
from autoregressive import autoregressive
from hypothesis import given
from hypothesis import strategies as st

from arviz_swiss.base.effective import effective_sizes


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

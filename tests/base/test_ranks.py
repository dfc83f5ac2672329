import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, rankdata

from arviz_swiss.base.ranks import by_parameter, normal_scores


def expected_scores(rows):
    return norm.ppf((rankdata(rows, axis=1) - 0.375) / (rows.shape[1] + 0.25))


@given(
    seed=st.integers(0, 2**32),
    chains=st.integers(1, 3),
    draws=st.integers(1, 30),
    decimals=st.sampled_from([0, 1, 9]),
)
def test_scores_are_those_of_scipys_ranks(seed, chains, draws, decimals):
    """Of whole numbers most are equal, of the last hardly any."""
    rng = np.random.default_rng(seed)
    columns = np.round(rng.standard_normal((4, chains, draws)), decimals)
    rows = columns.reshape(4, -1)
    scores = normal_scores(columns)
    np.testing.assert_array_equal(scores.ordered, np.sort(rows, axis=1))
    np.testing.assert_allclose(scores.plain.reshape(4, -1), expected_scores(rows), rtol=1e-14)
    folded = np.abs(rows - np.median(rows, axis=1, keepdims=True))
    np.testing.assert_allclose(scores.folded.reshape(4, -1), expected_scores(folded), rtol=1e-14)


@pytest.mark.parametrize("kind", [np.int64, np.float32])
def test_draws_of_a_parameter_stand_together_as_floats(kind):
    series = np.arange(24).reshape(2, 3, 4).astype(kind)
    columns = by_parameter(series)
    assert columns.flags.c_contiguous and columns.dtype == float
    np.testing.assert_array_equal(columns[3], series[..., 3])

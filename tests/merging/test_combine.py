"""From maps to merged draws."""

import numpy as np
import pytest
from merged_groups import group

import arviz_swiss as az_swiss
from arviz_swiss import MergeWarning

pytestmark = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")


def theta(draws):
    return [{"theta": values} for values in draws]


def test_unequal_draws_and_chains(random_batches, exact_draws):
    rng = np.random.default_rng(0)
    batches = theta(
        [
            exact_draws(rng, np.zeros(2), np.eye(2), chains=chains, draws=draws)
            for chains, draws in [(2, 100), (3, 60), (1, 200)]
        ]
    )
    with pytest.warns(MergeWarning, match="60 to 200 draws a chain"):
        merged = az_swiss.merge(batches, kind="inflated")
    assert dict(group(merged).sizes) == {"chain": 6, "draw": 60, "theta_dim_0": 2}
    assert group(merged)["batch"].values.tolist() == ["b0", "b0", "b1", "b1", "b1", "b2"]
    np.testing.assert_allclose(group(merged, "swiss_transform")["pooled_mean"], 0, atol=1e-12)
    assert group(merged, "swiss_transform")["draws"].values.tolist() == [200, 180, 200]


def test_the_finest_dtype_of_all_batches_is_kept():
    rng = np.random.default_rng(0)
    draws = [1e6 + rng.standard_normal((2, 200)) for _ in range(2)]
    first = {"mu": draws[0].astype(np.float32), "fixed": np.full((2, 200), 0.1, np.float32)}
    second = {"mu": draws[1], "fixed": np.full((2, 200), 0.1)}
    merged = az_swiss.merge([first, second], kind="inflated")
    assert group(merged)["mu"].dtype == float
    back = group(az_swiss.subposteriors(merged)["b1"])
    np.testing.assert_allclose(back["mu"], draws[1], rtol=0, atol=1e-8)


def test_order_of_batches_changes_only_the_order(random_batches):
    batches = dict(zip("pqrs", random_batches(np.random.default_rng(0)), strict=True))
    order = ["r", "p", "s", "q"]
    straight = group(az_swiss.merge(batches, kind="inflated"))
    shuffled = group(az_swiss.merge({label: batches[label] for label in order}, kind="inflated"))
    for label in order:
        np.testing.assert_allclose(
            shuffled["theta"].values[shuffled.batch == label],
            straight["theta"].values[straight.batch == label],
            atol=1e-12,
        )

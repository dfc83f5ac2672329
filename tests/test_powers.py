import numpy as np
import pytest
import xarray as xr

import arviz_swiss as az_swiss
from arviz_swiss import MergeWarning, containers


@pytest.fixture
def batches(to_container):
    """Three batches of 10, 20 and 30 observations."""
    rng = np.random.default_rng(0)
    return [
        to_container({"x": rng.standard_normal((2, 500))}, observed_data={"y": np.ones(size)})
        for size in (10, 20, 30)
    ]


def powers_of(merged):
    return containers.read(merged).groups["swiss_transform"]["power"].values.tolist()


def test_unequal_sizes_without_powers_are_warned_of(batches):
    with pytest.warns(MergeWarning, match="10 to 30 observations.*power 3.*total_size=N"):
        merged = az_swiss.merge(batches, kind="inflated")
    assert powers_of(merged) == [3, 3, 3]


def test_given_powers_are_used_without_a_warning(batches):
    assert powers_of(az_swiss.merge(batches, powers=[6, 3, 2])) == [6, 3, 2]
    assert powers_of(az_swiss.merge(batches, powers={"b2": 2, "b1": 3, "b0": 6})) == [6, 3, 2]


def test_powers_are_read_from_the_attributes():
    rng = np.random.default_rng(0)
    batches = [
        xr.Dataset({"x": (("chain", "draw"), rng.standard_normal((2, 500)))}).assign_attrs(
            swiss_power=power, swiss_kind="inflated"
        )
        for power in (6.0, 3.0, 2.0)
    ]
    assert powers_of(az_swiss.merge(batches)) == [6, 3, 2]


def test_weight_is_one_over_the_power():
    """With unit variances the merged mean is sum(mean / power)."""
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((1, 500))
    draws = (draws - draws.mean()) / draws.std(ddof=1)
    batches = [{"x": draws + mean} for mean in (0.0, 0.1, 0.2)]
    merged = az_swiss.merge(batches, powers=[6, 3, 2])
    np.testing.assert_allclose(
        containers.read(merged).groups["posterior"]["x"].mean(), 0.1 / 3 + 0.2 / 2
    )

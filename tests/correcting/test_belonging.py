import re

import numpy as np
import pytest
import xarray as xr

import arviz_swiss as az_swiss
from arviz_swiss.correcting.belonging import _check_observed
from arviz_swiss.merging.merged import open_merged
from arviz_swiss.merging.origin import summary

QUIET = {"progressbar": False, "random_seed": 1}
BATCHES = 4


class Known:
    """Rows of N(mu, 1) with a normal prior of mu; perhaps a negative log density."""

    def __init__(self, rows, sign=1.0):
        self.rows, self.sign = rows, sign

    def log_prior(self, x):
        return -0.5 * np.sum(x**2, axis=1) / 100

    def grad_log_prior(self, x):
        return -x / 100

    def log_likelihood(self, x):
        return -0.5 * self.sign * np.sum((self.rows - x[:, None]) ** 2, axis=(1, 2))

    def grad_log_likelihood(self, x):
        return self.sign * np.sum(self.rows - x[:, None], axis=1)


@pytest.fixture(scope="module")
def data():
    return np.random.default_rng(0).normal(1, 1, (120, 3))


@pytest.fixture(scope="module")
def merged(data, exact_draws, to_container):
    """Return the merge of inflated batches of the rows that `partition` gives with seed 7."""
    rng, batches = np.random.default_rng(1), []
    for rows in az_swiss.partition(data, BATCHES, random_seed=7):
        precision = BATCHES * len(rows) + 0.01
        mean = BATCHES * data[rows].sum(axis=0) / precision
        draws = exact_draws(rng, mean, np.eye(3) / precision)
        batches.append(to_container({"mu": draws}))
        batches[-1]["posterior"].attrs["swiss_random_seed"] = "7"
    return az_swiss.merge(batches, kind="inflated")


def arguments_of(error, data):
    """Return the arguments that the message says to pass."""
    (advised,) = re.findall(r"Pass (build=build, data=data),", str(error))
    return eval(f"dict({advised})", {"build": Known, "data": data})


def check_right(merged, rows, densities=None, **arguments):
    refined = az_swiss.refine(merged, densities, **arguments, **QUIET)
    draws = refined["posterior"]["mu"].values.reshape(-1, 3)
    precision = len(rows) + 0.01
    np.testing.assert_allclose(draws.mean(axis=0), rows.sum(axis=0) / precision, atol=1e-9)
    np.testing.assert_allclose(
        refined["swiss_transform"]["pooled_covariance"], np.eye(3) / precision, atol=1e-9
    )
    az_swiss.certify(refined, densities, **arguments, **QUIET)


@pytest.mark.parametrize("function", [az_swiss.refine, az_swiss.certify])
def test_one_density_for_several_batches_is_refused(merged, data, function):
    with pytest.raises(
        ValueError, match='same density is given for batches "b0", "b1", "b2", "b3'
    ) as caught:
        function(merged, [Known(data)] * BATCHES, **QUIET)
    check_right(merged, data, **arguments_of(caught.value, data))


def test_without_a_seed_one_density_of_all_rows_is_advised_and_right(data, exact_draws):
    rng, precision = np.random.default_rng(1), len(data) + 0.01
    halves = np.array_split(data, 2)
    means = [2 * rows.sum(axis=0) / precision for rows in halves]
    draws = [{"mu": exact_draws(rng, mean, np.eye(3) / precision)} for mean in means]
    merged = az_swiss.merge(draws, kind="inflated")
    with pytest.raises(ValueError, match=r"Pass one density for .*; to refine, one .* of all rows"):
        az_swiss.refine(merged, [Known(data)] * 2, **QUIET)
    for densities in (Known(data), [Known(rows) for rows in halves]):
        refined = az_swiss.refine(merged, densities, **QUIET)
        mean = refined["posterior"]["mu"].mean(("chain", "draw"))
        np.testing.assert_allclose(mean, data.sum(axis=0) / precision, atol=1e-9)


def test_all_data_for_every_batch_is_refused(merged, data):
    everything = [Known(np.random.default_rng(i).permutation(data)) for i in range(BATCHES)]
    with pytest.raises(
        ValueError, match=r"all 4 densities are equal.* 4 times as precise as the merge"
    ) as caught:
        az_swiss.refine(merged, everything, **QUIET)
    check_right(merged, data, **arguments_of(caught.value, data))
    with pytest.warns(az_swiss.MergeWarning, match=r"not certified .*\(2 times as wide"):
        az_swiss.certify(merged, everything, **QUIET)


def test_batches_of_equal_data_are_not_refused(exact_draws):
    rows = np.random.default_rng(2).normal(size=(10, 1))
    precision = 3 * 10 + 0.01
    mean = 3 * rows.sum(axis=0) / precision
    rng = np.random.default_rng(3)
    draws = [{"mu": exact_draws(rng, mean, np.eye(1) / precision)} for _ in range(3)]
    merged = az_swiss.merge(draws, kind="inflated")
    refined = az_swiss.refine(merged, [Known(rows.copy()) for _ in range(3)], **QUIET)
    np.testing.assert_allclose(refined["posterior"]["mu"], merged["posterior"]["mu"], atol=1e-8)


def test_tempered_densities_are_warned_of(merged, data):
    parts = az_swiss.partition(data, BATCHES, random_seed=7)
    tempered = [Known(np.tile(data[rows], (BATCHES, 1))) for rows in parts]
    with pytest.warns(az_swiss.MergeWarning, match=r"4 times as precise as the merge in every"):
        refined = az_swiss.refine(merged, tempered, **QUIET)
    findings = {one.flag: one for one in az_swiss.report(refined).findings}
    assert "plain densities of each batch's own rows" in findings["miscounted"].remedy
    check_right(merged, data, [Known(data[rows]) for rows in parts])


def test_a_negative_log_likelihood_of_one_batch_is_warned_of(merged, data):
    parts = az_swiss.partition(data, BATCHES, random_seed=7)
    signs = [1.0, 1.0, -1.0, 1.0]
    densities = [Known(data[rows], sign) for rows, sign in zip(parts, signs, strict=True)]
    with pytest.warns(az_swiss.MergeWarning, match="batch b2 curves upwards.*change its sign"):
        refined = az_swiss.refine(merged, densities, **QUIET)
    findings = {one.flag: one for one in az_swiss.report(refined).findings}
    assert "change its sign" in findings["curves upwards"].remedy
    densities[2].sign = 1.0
    check_right(merged, data, densities)


def test_rows_that_a_model_codes_in_another_way_have_a_way_out(merged):
    opened = open_merged(merged, "posterior")
    outcomes = np.random.default_rng(3).integers(0, 2, (BATCHES, 30))
    recorded = xr.DataArray(
        [[summary(rows)] for rows in outcomes],
        dims=("batch", "observed_variable", "statistic"),
        coords={"observed_variable": ["y"]},
    )
    signs = [{"y": 2 * rows - 1} for rows in outcomes]
    with pytest.raises(ValueError, match="name its observed variable otherwise"):
        _check_observed(signs, recorded, opened.labels, "")
    _check_observed([{"sign": values["y"]} for values in signs], recorded, opened.labels, "")

import re

import numpy as np
import pandas as pd
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


def follow(error, data):
    """Return the densities that the message says to make."""
    advised = re.search(r"models = (\[.*?\]), with", str(error)).group(1)
    return eval(advised, {"build": Known, "data": data, "partition": az_swiss.partition})


def check_right(merged, densities, data):
    refined = az_swiss.refine(merged, densities, **QUIET)
    draws = refined["posterior"]["mu"].values.reshape(-1, 3)
    precision = len(data) + 0.01
    np.testing.assert_allclose(draws.mean(axis=0), data.sum(axis=0) / precision, atol=1e-9)
    np.testing.assert_allclose(
        refined["swiss_transform"]["pooled_covariance"], np.eye(3) / precision, atol=1e-9
    )
    az_swiss.certify(refined, densities, **QUIET)


@pytest.mark.parametrize("function", [az_swiss.refine, az_swiss.certify])
def test_one_density_for_several_batches_is_refused(merged, data, function):
    with pytest.raises(
        ValueError, match='same density is given for batches "b0", "b1", "b2", "b3'
    ) as caught:
        function(merged, [Known(data)] * BATCHES, **QUIET)
    check_right(merged, follow(caught.value, data), data)


def test_the_advice_holds_for_tables_and_dicts_too(merged, data):
    with pytest.raises(ValueError, match="same density") as caught:
        az_swiss.refine(merged, [Known(data)] * BATCHES, **QUIET)
    table, columns = pd.DataFrame(data), {"y": data}
    ways = re.search(r"DataFrame: (.*); a dict: (.*)\)\.", str(caught.value)).groups()
    for given, way, rows_of in (
        (table, ways[0], lambda chosen: chosen.values),
        (columns, ways[1], lambda chosen: chosen["y"]),
    ):
        densities = [
            Known(rows_of(eval(way, {"data": given, "rows": rows})))
            for rows in az_swiss.partition(given, BATCHES, random_seed=7)
        ]
        check_right(merged, densities, data)


def test_all_data_for_every_batch_is_refused(merged, data):
    everything = [Known(np.random.default_rng(i).permutation(data)) for i in range(BATCHES)]
    with pytest.raises(
        ValueError, match=r"equal densities.* 4 times as precise as the merge"
    ) as caught:
        az_swiss.refine(merged, everything, **QUIET)
    check_right(merged, follow(caught.value, data), data)
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
    check_right(merged, [Known(data[rows]) for rows in parts], data)


def test_a_negative_log_likelihood_of_one_batch_is_warned_of(merged, data):
    parts = az_swiss.partition(data, BATCHES, random_seed=7)
    signs = [1.0, 1.0, -1.0, 1.0]
    densities = [Known(data[rows], sign) for rows, sign in zip(parts, signs, strict=True)]
    with pytest.warns(az_swiss.MergeWarning, match="batch b2 curves upwards.*change its sign"):
        refined = az_swiss.refine(merged, densities, **QUIET)
    findings = {one.flag: one for one in az_swiss.report(refined).findings}
    assert "change its sign" in findings["curves upwards"].remedy
    densities[2].sign = 1.0
    check_right(merged, densities, data)


def test_rows_that_a_model_codes_in_another_way_have_a_way_out(merged):
    opened = open_merged(merged, "posterior")
    outcomes = np.random.default_rng(3).integers(0, 2, (BATCHES, 30))
    recorded = xr.DataArray(
        [[summary(one)] for one in outcomes],
        dims=("batch", "observed_variable", "statistic"),
        coords={"observed_variable": ["y"]},
    )
    signs = dict(zip(opened.labels, ({"y": 2 * one - 1} for one in outcomes), strict=True))
    with pytest.raises(ValueError, match="name its observed variable otherwise"):
        _check_observed(signs, recorded, opened)
    renamed = {label: {"sign": values["y"]} for label, values in signs.items()}
    _check_observed(renamed, recorded, opened)

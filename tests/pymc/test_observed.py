"""The observed rows of models: counted, read, and compared with those of the batches."""

import re

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from terminal import watching

import arviz_swiss as az_swiss
from arviz_swiss.pymc.observed import (
    data_groups,
    imputed_names,
    observed_rows,
    observed_values,
)

QUIET = {"progressbar": False}


def test_rows_are_those_of_the_data_missing_ones_included():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, observed=pm.Data("y_data", [1.0, 2.0, 5.0]))
    assert observed_rows(model) == 3
    np.testing.assert_array_equal(observed_values(model)["y"], [1.0, 2.0, 5.0])
    with model:
        pm.set_data({"y_data": [7.0, 8.0]})
    assert observed_rows(model) == 2
    assert imputed_names(model) == []


def test_row_numbers_take_no_memory_and_labels_stay():
    with pm.Model(coords={"k": ["a", "b"], "site": [0, 2, 4]}) as model:
        pm.Data("x", np.ones((3, 2)), dims=("site", "k"))
        pm.Normal("y", pm.Normal("mu"), observed=np.ones(5))
    groups = data_groups(model)
    assert isinstance(groups["observed_data"].indexes["y_dim_0"], pd.RangeIndex)
    assert groups["observed_data"]["y_dim_0"].values.tolist() == [0, 1, 2, 3, 4]
    assert groups["constant_data"]["k"].values.tolist() == ["a", "b"]
    assert groups["constant_data"]["site"].values.tolist() == [0, 2, 4]


@pytest.mark.filterwarnings("ignore:Data in y contains missing values")
def test_missing_entries_are_rows_and_free_variables():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), observed=np.array([1.0, np.nan, 5.0, np.nan]))
    assert observed_rows(model) == 4
    assert imputed_names(model) == ["y_unobserved"]


def test_unequal_numbers_of_rows_have_no_common_one():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), observed=[1.0, 2.0])
        pm.Normal("z", 0, observed=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"one number of rows .*'y': 2, 'z': 3.*Pass the power"):
        observed_rows(model)


def normal_model(y):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("y", mu, 1, observed=pm.Data("y_data", y))
    return model


@pytest.fixture(scope="module")
def normal_rows():
    return np.random.default_rng(12).normal(1, 1, 120)


@pytest.fixture(params=["observed", "size"])
def normal_merge(request, normal_rows, exact_draws, to_container):
    """Return a merge that knows the rows of its batches, or only their number."""
    rng, batches = np.random.default_rng(13), []
    for rows in az_swiss.partition(normal_rows, 4, random_seed=3):
        y, precision = normal_rows[rows], 4 * len(rows) + 0.01
        draws = exact_draws(rng, [4 * y.sum() / precision], np.eye(1) / precision)[..., 0]
        known = {"observed_data": xr.Dataset({"y": ("y_dim_0", y)})}
        batch = to_container({"mu": draws}, **(known if request.param == "observed" else {}))
        batch["posterior"].attrs |= {"swiss_random_seed": "3", "swiss_size": len(rows)}
        batches.append(batch)
    return az_swiss.merge(batches, kind="inflated")


@pytest.mark.parametrize("function", [az_swiss.refine, az_swiss.certify])
@pytest.mark.parametrize("repeated", [True, False])
def test_models_of_all_data_are_refused(normal_merge, normal_rows, function, repeated):
    if repeated:
        models, message = [normal_model(normal_rows)] * 4, "the same density is given for batches"
    else:
        models = [normal_model(normal_rows) for _ in range(4)]
        message = "every batch holds the data of all batches: 120 values of y.* sampled with 30"
    with pytest.raises(ValueError, match=message) as caught:
        function(normal_merge, models, random_seed=1, **QUIET)
    (advised,) = re.findall(r"Pass (build=build, data=data),", str(caught.value))
    arguments = eval(f"dict({advised})", {"build": normal_model, "data": normal_rows})
    refined = az_swiss.refine(normal_merge, **arguments, random_seed=1, **QUIET)
    maps, precision = refined["swiss_transform"], 120.01
    assert float(refined["posterior"]["mu"].mean()) == pytest.approx(normal_rows.sum() / precision)
    assert maps["pooled_covariance"].item() == pytest.approx(1 / precision)
    az_swiss.certify(refined, **arguments, random_seed=1, **QUIET)


@pytest.mark.parametrize("normal_merge", ["observed"], indirect=True)
@pytest.mark.parametrize("function", [az_swiss.refine, az_swiss.certify])
def test_models_of_other_rows_are_refused(normal_merge, normal_rows, function):
    parts = az_swiss.partition(normal_rows, 4, random_seed=3)
    models = [normal_model(normal_rows[rows]) for rows in parts]
    message = r'batch 0 \("b0"\).* They are those of batch "b3": densities come in the order of'
    with pytest.raises(ValueError, match=message):
        function(normal_merge, models[::-1], **QUIET)
    others = [*models[:2], normal_model(normal_rows[:30]), models[3]]
    with pytest.raises(ValueError, match=r'batch 2 \("b2"\): the model observes 30 values of mean'):
        function(normal_merge, others, **QUIET)
    # by label, as the message says; the order of a batch's rows says nothing
    sorted_rows = {f"b{i}": normal_model(np.sort(normal_rows[parts[i]])) for i in (3, 1, 0, 2)}
    function(normal_merge, sorted_rows, random_seed=1, **QUIET)


@pytest.mark.parametrize("normal_merge", ["size"], indirect=True)
def test_reading_models_is_shown(normal_merge, normal_rows, monkeypatch):
    parts = az_swiss.partition(normal_rows, 4, random_seed=3)
    models = [normal_model(normal_rows[rows]) for rows in parts]
    for function, name in ((az_swiss.refine, "Refining"), (az_swiss.certify, "Certifying")):
        with watching(monkeypatch) as screen:
            function(normal_merge, models, random_seed=1)
        assert any(line.startswith(f"{name}, reading the models:   0%") for line in screen.shown)
        assert "100%" in screen.left[-1] and "reading" not in screen.left[-1]

"""The batches' data in the order of their labels; what cannot be joined is said."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from merged_groups import groups_of

import arviz_swiss as az_swiss
from arviz_swiss import MergeWarning
from arviz_swiss.data import containers
from arviz_swiss.merging.join import order_of


def rows_of(values, labels=None):
    coords = {} if labels is None else {"row": labels}
    return xr.Dataset({"y": ("row", np.asarray(values, float))}, coords)


def merged_groups(to_container, datasets, **groups):
    rng = np.random.default_rng(0)
    batches = [
        to_container(
            {"x": rng.standard_normal((2, 100))},
            **{name: values[b] for name, values in (groups | {"observed_data": datasets}).items()},
        )
        for b in range(len(datasets))
    ]
    return containers.read(az_swiss.merge(batches, kind="inflated")).groups


@pytest.mark.parametrize(
    "labels",
    [
        np.arange(12),
        np.array([f"r{k:02d}" for k in range(12)]),
        np.datetime64("2024-01-01", "ns") + np.arange(12) * np.timedelta64(1, "D"),
    ],
    ids=["numbers", "text", "dates"],
)
def test_rows_are_put_back_into_order(to_container, labels):
    y = np.random.default_rng(0).standard_normal(12)
    parts = az_swiss.partition(12, 3, random_seed=0)
    groups = merged_groups(to_container, [rows_of(y[part], labels[part]) for part in parts])
    np.testing.assert_array_equal(groups["observed_data"]["row"], labels)
    np.testing.assert_array_equal(groups["observed_data"]["y"], y)
    assert not {"swiss_left_out", "swiss_unordered"} & set(groups["posterior"].attrs)


def test_an_order_that_batches_contradict_is_said(to_container):
    groups = merged_groups(to_container, [rows_of([1, 2], ["b", "a"]), rows_of([3, 4], ["c", "d"])])
    assert groups["observed_data"]["row"].values.tolist() == ["a", "b", "c", "d"]
    assert groups["observed_data"]["y"].values.tolist() == [2, 1, 3, 4]
    assert groups["posterior"].attrs["swiss_unordered"] == "row"


def test_labels_that_cannot_be_sorted():
    order = order_of([pd.Index([1, 2]), pd.Index(["a"])])
    assert order.positions.tolist() == [0, 1, 2] and not order.is_known
    order = order_of([pd.Index([1, 2]), pd.Index(["a"])], ["a", 2, 1])
    assert order.positions.tolist() == [2, 1, 0] and order.is_known


@pytest.mark.parametrize(
    "labels, is_known",
    [
        ([["d"], ["b"], ["a"], ["c"]], False),
        ([["a", "d"], ["b", "c"]], False),
        ([[2], [0], [1]], True),
        ([[10], [30], [20]], False),
        ([list("acegi"), list("bdfhj")], True),
        ([list("abc")], True),
    ],
    ids=["one a batch", "two a batch", "0, 1, ...", "numbers", "many", "one batch"],
)
def test_sorted_by_chance_is_no_known_order(labels, is_known):
    order = order_of([pd.Index(own) for own in labels])
    together = np.concatenate(labels)
    assert together[order.positions].tolist() == sorted(together.tolist())
    assert order.is_known == is_known


def test_a_model_of_more_than_the_batches_gives_their_order():
    order = order_of([pd.Index(["d", "b"]), pd.Index(["a"])], ["b", "c", "a", "d"])
    assert order.positions.tolist() == [1, 2, 0] and order.is_known


def test_outcomes_of_zero_and_one_are_no_numbers_of_groups():
    """Two groups in every batch: codes 0 and 1 are left out, but y is kept."""
    rng = np.random.default_rng(0)
    batches = []
    for b in range(3):
        values = {"mu": rng.standard_normal((2, 100)), "z": rng.standard_normal((2, 100, 2))}
        groups = containers.read(values).groups
        posterior = groups["posterior"].rename(z_dim_0="site")
        groups["posterior"] = posterior.assign_coords(site=[f"s{b}", f"t{b}"])
        rows = {"row": np.arange(4 * b, 4 * b + 4)}
        groups["observed_data"] = xr.Dataset({"y": ("row", np.array([0, 1, 1, 0]))}, rows)
        groups["constant_data"] = xr.Dataset({"site_of": ("row", np.array([0, 0, 1, 1]))}, rows)
        batches.append(containers.build(groups))
    with pytest.warns(MergeWarning, match="order of the elements along site .* is not known"):
        merged = az_swiss.merge(batches, kind="fractionated")
    groups = containers.read(merged).groups
    assert groups["observed_data"]["y"].values.tolist() == [0, 1, 1, 0] * 3
    assert groups["posterior"].attrs["swiss_left_out"] == "constant_data/site_of"


@pytest.mark.parametrize("labels", [None, np.arange(5)])
def test_rows_without_labels_are_left_out_though_equal(to_container, labels):
    """Five rows without an event in every batch are ten rows, not five."""
    data = [rows_of(np.zeros(5), labels)] * 2
    exposure = [xr.Dataset({"exposure": ("i", np.ones(5)), "knots": ("k", np.arange(3.0))})] * 2
    groups = merged_groups(to_container, data, constant_data=exposure)
    assert "observed_data" not in groups
    assert list(groups["constant_data"].data_vars) == ["knots"]
    left_out = groups["posterior"].attrs["swiss_left_out"]
    assert left_out == "observed_data/y, constant_data/exposure"


def test_what_was_computed_from_unmoved_draws_is_left_out_and_said(to_container):
    computed = [{"y": np.zeros((2, 100, 2))}] * 2
    groups = merged_groups(
        to_container,
        [rows_of([1, 2], [0, 1]), rows_of([3, 4], [2, 3])],
        log_likelihood=computed,
        posterior_predictive=computed,
    )
    assert not {"log_likelihood", "posterior_predictive"} & set(groups)
    left_out = groups["posterior"].attrs["swiss_left_out"]
    assert left_out == "log_likelihood, posterior_predictive"


def test_the_report_says_what_was_left_out_and_why(to_container):
    computed = [{"y": np.zeros((2, 100, 5))}] * 2
    groups = merged_groups(to_container, [rows_of(np.zeros(5))] * 2, log_likelihood=computed)
    report = az_swiss.report(containers.build(groups))
    *_, data, draws = report.notes
    assert data.startswith("Without observed_data/y: rows without labels of their own (dims=, ")
    assert draws == (
        "Without log_likelihood of draws before they moved: compute anew from the merged ones."
    )


def test_the_report_says_what_order_is_unknown(to_container):
    groups = merged_groups(to_container, [rows_of([1, 2], ["b", "a"]), rows_of([3, 4], ["c", "d"])])
    merged = containers.build(groups)
    assert "The order along row is not known" in str(az_swiss.report(merged))


def test_another_groups_statistics_are_not_attached(to_container):
    rng = np.random.default_rng(0)
    batches = [
        to_container(
            {"x": rng.normal(size=(4, 200))},
            prior={"x": rng.normal(size=(1, 100))},
            sample_stats={"diverging": np.zeros((4, 200), dtype=bool)},
        )
        for _ in range(2)
    ]
    assert "sample_stats" in groups_of(az_swiss.merge(batches, kind="inflated"))
    assert "sample_stats" not in groups_of(az_swiss.merge(batches, group="prior", kind="inflated"))


def test_data_of_the_batches_are_copied(to_container):
    rng = np.random.default_rng(0)
    y = np.ones(5)
    batches = [
        to_container({"x": rng.normal(size=(2, 100))}, constant_data={"y": y.copy()})
        for _ in range(2)
    ]
    merged = az_swiss.merge(batches, kind="inflated")
    groups_of(merged)["constant_data"]["y"].values[:] = -1
    assert (groups_of(batches[0])["constant_data"]["y"].values == 1).all()

"""Tests of arviz_swiss.partition."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from arviz_swiss.parallel.partition import packed, partition, row_count, take, unpacked


def is_partition(indices, n_rows):
    return np.array_equal(np.sort(np.concatenate(indices)), np.arange(n_rows))


def counts_per_batch(labels, indices):
    """Table of how often each label occurs, one row per batch."""
    names = np.unique(labels)
    return np.array([[np.sum(labels[index] == name) for name in names] for index in indices])


@given(n_rows=st.integers(1, 60), data=st.data())
@settings(max_examples=50, deadline=None)
def test_every_row_is_in_exactly_one_batch_and_no_batch_is_empty(n_rows, data):
    batches = data.draw(st.integers(1, n_rows))
    indices = partition(n_rows, batches, random_seed=data.draw(st.integers(0, 99)))
    sizes = [index.size for index in indices]
    assert len(indices) == batches
    assert is_partition(indices, n_rows)
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    assert all(np.all(np.diff(index) > 0) for index in indices)


@given(labels=st.lists(st.integers(0, 5), min_size=2, max_size=60), data=st.data())
@settings(max_examples=100, deadline=None)
def test_each_stratum_is_spread_evenly(labels, data):
    labels = np.array(labels)
    batches = data.draw(st.integers(1, labels.size))
    indices = partition(labels.size, batches, stratify=labels, random_seed=1)
    assert is_partition(indices, labels.size)
    assert np.ptp(counts_per_batch(labels, indices), axis=0).max() <= 1
    assert np.ptp([index.size for index in indices]) <= 1


@given(labels=st.lists(st.integers(0, 30), min_size=2, max_size=60), data=st.data())
@settings(max_examples=100, deadline=None)
def test_groups_stay_together_and_no_batch_is_empty(labels, data):
    labels = np.array(labels)
    batches = data.draw(st.integers(1, np.unique(labels).size))
    indices = partition(labels.size, batches, groups=labels, random_seed=1)
    assert is_partition(indices, labels.size)
    assert np.all((counts_per_batch(labels, indices) > 0).sum(axis=0) == 1)
    assert min(index.size for index in indices) >= 1


@given(sizes=st.lists(st.integers(1, 9), min_size=2, max_size=25), data=st.data())
@settings(max_examples=50, deadline=None)
def test_whole_groups_of_each_stratum_are_spread_evenly(sizes, data):
    groups = np.repeat(np.arange(len(sizes)), sizes)
    stratum_of_group = np.array(
        data.draw(st.lists(st.integers(0, 2), min_size=len(sizes), max_size=len(sizes)))
    )
    batches = data.draw(st.integers(1, len(sizes)))
    indices = partition(
        groups.size, batches, groups=groups, stratify=stratum_of_group[groups], random_seed=1
    )
    assert is_partition(indices, groups.size)
    groups_of_batch = [np.unique(groups[index]) for index in indices]
    assert is_partition(groups_of_batch, len(sizes))
    assert np.ptp(counts_per_batch(stratum_of_group, groups_of_batch), axis=0).max() <= 1
    assert min(index.size for index in indices) >= 1


def test_unequal_groups_give_balanced_batches():
    groups = np.repeat(np.arange(101), [100, *[1] * 100])
    assert [index.size for index in partition(200, 2, groups=groups, random_seed=0)] == [100, 100]


def test_rows_are_shuffled():
    # a share of a quarter among 250 rows has a sd of at most .027; neither blocks nor every
    # fourth row in turn come near it
    for index in partition(1000, 4, random_seed=3):
        assert abs(np.mean(index < 250) - 0.25) < 6 * 0.027
        assert abs(np.mean(index % 4 == 0) - 0.25) < 6 * 0.027


def test_chance_decides_which_batch_gets_the_extra_row():
    larger = {int(np.argmax([i.size for i in partition(7, 3, random_seed=s)])) for s in range(20)}
    assert larger == {0, 1, 2}


def test_strata_of_one_row_each_give_no_batch_the_smaller_values():
    # systematic dealing of sorted values would put the smallest of every ten in the same batch
    values = np.arange(10_000.0)
    means = [values[i].mean() for i in partition(10_000, 10, stratify=values, random_seed=0)]
    assert np.std(means) > 10


def test_the_seed_decides():
    first, again, other = (np.concatenate(partition(50, 3, random_seed=seed)) for seed in (7, 7, 8))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def tables():
    x, y = np.arange(12.0).reshape(6, 2), np.arange(6)
    return {
        "array": x,
        "list": x.tolist(),
        "DataFrame": pd.DataFrame(x, columns=["a", "b"], index=list("uvwxyz")),
        "Series": pd.Series(y, index=list("uvwxyz")),
        "dict": {"x": x, "y": y.tolist(), "frame": pd.DataFrame({"y": y})},
        "Dataset": xr.Dataset({"x": (("feature", "row"), x.T), "y": ("row", y)}),
        "DataArray": xr.DataArray(x, dims=["row", "feature"]),
    }


@pytest.mark.parametrize("kind", tables())
def test_every_kind_of_table_gives_the_same_rows(kind):
    table = tables()[kind]
    assert row_count(table) == 6
    expected = partition(6, 2, random_seed=5)
    for index, same in zip(partition(table, 2, random_seed=5), expected, strict=True):
        assert np.array_equal(index, same)
    assert row_count(take(table, expected[0])) == 3


def test_take_keeps_the_type_and_the_order_asked_for():
    table = tables()
    assert take(table["array"], [2, 0]).tolist() == [[4.0, 5.0], [0.0, 1.0]]
    assert take(table["DataFrame"], [2, 0]).index.tolist() == ["w", "u"]
    assert take(table["Series"], [2, 0]).tolist() == [2, 0]
    assert take(table["dict"], [2, 0])["frame"]["y"].tolist() == [2, 0]
    dataset = take(table["Dataset"], [2, 0])
    assert dataset["x"].dims == ("feature", "row")
    assert dataset["y"].values.tolist() == [2, 0]
    assert take(table["DataArray"], [2, 0]).values.tolist() == [[4.0, 5.0], [0.0, 1.0]]


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["a", "b", "a", "b", "c", "c"], dtype=object),
        ["a", "b", "a", "b", "c", "c"],
        ("a", "b", "a", "b", "c", "c"),
        pd.Categorical(["a", "b", "a", "b", "c", "c"]),
        pd.Series(["a", "b", "a", "b", "c", "c"], index=range(6, 0, -1)),
        np.array([1, "b", 1, "b", 2.5, 2.5], dtype=object),
        np.array([np.int64(k) for k in (1, 2, 1, 2, 3, 3)], dtype=object),
        np.array([np.str_(k) for k in "ababcc"], dtype=object),
    ],
    ids=["object", "list", "tuple", "categorical", "series", "mixed", "NumPy int", "NumPy str"],
)
def test_labels_of_every_type(labels):
    indices = partition(6, 3, groups=labels, random_seed=0)
    assert sorted(index.tolist() for index in indices) == [[0, 2], [1, 3], [4, 5]]


def test_labels_can_be_named_by_column():
    frame = pd.DataFrame({"site": list("aabbcc"), "rare": [1, 1, 0, 0, 0, 0]})
    for data in (frame, dict(frame), frame.to_xarray()):
        groups = partition(data, 3, groups="site", random_seed=0)
        assert sorted(index.tolist() for index in groups) == [[0, 1], [2, 3], [4, 5]]
        strata = partition(data, 2, stratify="rare", random_seed=0)
        assert [int(frame["rare"].iloc[index].sum()) for index in strata] == [1, 1]


@pytest.mark.parametrize("name", [1, 2.5, pd.Timestamp("2020"), ("a", "b")])
def test_columns_may_have_any_name(name):
    frame = pd.DataFrame({name: list("aabbcc")}, columns=pd.Index([name], tupleize_cols=False))
    for data in (frame, {name: frame.to_numpy()[:, 0]}):
        groups = partition(data, 3, groups=name, random_seed=0)
        assert sorted(index.tolist() for index in groups) == [[0, 1], [2, 3], [4, 5]]


def test_the_rows_of_an_array_are_no_labels():
    table = np.arange(4).reshape(2, 2)
    with pytest.raises(ValueError, match=r"groups=1 is not a column of the data \(ndarray\)"):
        partition(table, 2, groups=1)
    assert len(partition(table, 2, groups=(0, 1))) == 2


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "message"),
    [
        ((3, 4), {}, ValueError, "4 batches of only 3 rows would leave a batch empty"),
        ((0, 1), {}, ValueError, "no rows to divide"),
        ((4, 3), {"groups": [0, 0, 1, 1]}, ValueError, "3 batches of only 2 groups"),
        ((4, 2), {"groups": [0, 0, 1]}, ValueError, r"groups .* expected shape \(4,\), got \(3,\)"),
        ((4, 2), {"stratify": [0] * 5}, ValueError, r"stratify .* expected shape \(4,\), got"),
        ((4, 2), {"groups": [0, np.nan, 1, 1]}, ValueError, "1 missing labels, the first in row 1"),
        ((4, 2), {"groups": ["a", "b", None, "a"]}, ValueError, "the first in row 2"),
        ((3, 2), {"groups": pd.array([1, 2, pd.NA])}, ValueError, "the first in row 2"),
        ((3, 2), {"groups": np.array(["NaT", "2020", "2021"], "M8[D]")}, ValueError, "in row 0"),
        (
            (4, 2),
            {"groups": [0, 0, 1, 1], "stratify": [0, 1, 0, 0]},
            ValueError,
            "varies in 1 of 2 groups",
        ),
        ((4, 2), {"groups": "site"}, ValueError, "groups='site' is not a column"),
        ((4, 0), {}, ValueError, "at least 1, got 0"),
        ((4, 2.0), {}, TypeError, "must be an integer, got 2.0"),
        ((4.0, 2), {}, TypeError, "Cannot count the rows of 'float'"),
        ((np.float64(4), 2), {}, TypeError, "Cannot count the rows of 'float64'"),
        ((([1, 2], [3, 4]), 2), {}, TypeError, "Cannot count the rows of 'tuple'"),
        (([np.ones((5, 2)), np.ones(5)], 2), {}, TypeError, "may hold rows or columns"),
        (({"x": [[1, 2], [3]], "y": [1, 2]}, 2), {}, TypeError, "Entry 'x' of the data has no"),
        (({"x": [1, 2], "y": [1, 2, 3]}, 2), {}, ValueError, r"got \{'x': 2, 'y': 3\}"),
        (({"x": [1, 2], "n": 2}, 2), {}, TypeError, "Entry 'n' of the data has no rows"),
        (({}, 1), {}, ValueError, "got none"),
        ((xr.Dataset({"x": (("a", "b"), np.ones((2, 2)))}), 2), {}, ValueError, "'a', 'b'"),
        (
            (xr.Dataset({"x": ("a", [1, 2]), "y": ("b", [1, 2])}), 2),
            {},
            ValueError,
            "found none",
        ),
    ],
)
def test_bad_input_is_named(args, kwargs, error, message):
    with pytest.raises(error, match=message):
        partition(*args, **kwargs)


def test_a_million_rows_take_seconds_at_most():
    indices = partition(1_000_000, 8, stratify=np.arange(1_000_000) % 3)
    assert is_partition(indices, 1_000_000)


def test_what_may_be_rows_or_columns_is_refused():
    columns = [np.arange(6), np.arange(6)]
    with pytest.raises(TypeError, match="columns as a dict of arrays"):
        partition(columns, 2)
    with pytest.raises(TypeError, match="got only their number of rows, 40"):
        take(40, [0, 1])


def test_rows_of_a_task_that_stays_here_are_copied_when_they_are_unpacked():
    data, index = np.arange(500_000.0).reshape(50_000, 10), np.arange(0, 50_000, 2)
    tracemalloc.start()
    waiting = [packed(data, index, stays_here=True) for _ in range(4)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < data.nbytes / 100
    np.testing.assert_array_equal(unpacked(waiting[0]), data[index])


def test_rows_of_a_task_that_leaves_go_along():
    data = np.arange(10.0)
    np.testing.assert_array_equal(packed(data, np.array([3, 5])), [3.0, 5.0])

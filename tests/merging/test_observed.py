import numpy as np
import xarray as xr

from arviz_swiss.merging.origin import summarise_observed, summary


def test_counts_means_and_sds_are_those_of_what_is_there():
    values = np.array([[1.0, 2.0], [np.nan, 6.0]])
    assert summary(values) == [3.0, 3.0, np.std([1, 2, 6])]
    assert summary(np.ma.masked_less(np.array([1, -9, 3]), 0)) == [2.0, 2.0, 1.0]
    assert summary(np.array([True, False])) == [2.0, 0.5, 0.5]
    assert summary(np.array([np.nan])) == [0.0, 0.0, 0.0]


def test_only_what_all_batches_have_is_summarised():
    first = xr.Dataset(
        {"y": ("row", [1, 2]), "z": ("row", [1.0, 1.0]), "name": ("row", ["a", "b"])}
    )
    second = xr.Dataset({"y": ("row", [4, 6, 8]), "name": ("row", ["a", "b", "c"])})
    found = summarise_observed([first, second])
    assert found["observed_variable"].values.tolist() == ["y"]
    assert found.sel(statistic="count").values.ravel().tolist() == [2, 3]
    assert found.sel(statistic="mean").values.ravel().tolist() == [1.5, 6.0]
    assert summarise_observed([first, None]) is None
    assert summarise_observed([first[["name"]], second[["name"]]]) is None

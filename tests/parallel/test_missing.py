"""Which columns of a batch have missing values, for every kind of rows."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr

import arviz_swiss as az_swiss
from arviz_swiss.parallel.missing import describe_missing

HOLES = {
    "x": np.array([1.0, np.nan, np.nan]),
    "y": np.array([1.0, 2.0, 3.0]),
    "z": np.array([0, 1, 2]),
}


@pytest.mark.parametrize(
    "rows",
    [
        HOLES,
        pd.DataFrame(HOLES),
        pa.table({"x": pa.array([1.0, None, None]), "y": HOLES["y"]}),
        xr.Dataset({name: ("row", values) for name, values in HOLES.items()}),
        {"x": np.array([["a", None], [None, None], ["b", "c"]], dtype=object), "z": HOLES["z"]},
    ],
    ids=["dict", "pandas", "pyarrow", "xarray", "objects"],
)
def test_columns_with_missing_values_are_named(rows):
    assert describe_missing(rows).startswith("its rows have missing values in x (2): ")


def test_arrays_have_numbers_for_names():
    rows = np.column_stack([HOLES["y"], HOLES["x"]])
    assert "in column 1 (2)" in describe_missing(rows)
    assert "in the data (2)" in describe_missing(HOLES["x"])


@pytest.mark.parametrize("rows", [{"y": HOLES["y"]}, HOLES["z"], pd.DataFrame({"t": ["a", "b"]})])
def test_nothing_is_said_of_whole_rows(rows):
    assert describe_missing(rows) == ""


def test_errors_of_batches_carry_hints():
    error = az_swiss.BatchError(
        {"b3": ValueError("no start")}, {}, None, {"b3": "its rows are odd"}
    )
    assert "b3 (ValueError: no start; its rows are odd)." in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)

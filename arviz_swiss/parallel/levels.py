"""Factors that recur in many groups: columns that know their levels in all rows, in any batch."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from arviz_swiss.data import schema
from arviz_swiss.parallel import frames
from arviz_swiss.parallel.partition import column, index_names, is_dataset, is_missing, row_count
from arviz_swiss.parallel.tables import Table, tell_levels

# Attribute of a Dataset's variable, which has no categories.
LEVELS = "levels"


def shared_names(shared: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of columns that a user gave; refuse anything else."""
    names = [shared] if isinstance(shared, str) else () if shared is None else shared
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise TypeError(
            f"shared must be the name of a column of the data, or a list of names, got {shared!r}."
        )
    return tuple(names)


def share_levels(data: Any, names: Sequence[str]) -> Any:
    """Return the data with columns that hold their levels in all rows, whatever is taken of them.

    Columns of a DataFrame become categorical, arrays of a dict categorical Series, and variables of
    a Dataset get an attribute. What has categories keeps them. The data given are not changed.
    """
    if isinstance(data, Table):
        return tell_levels(data, names)
    for name in names:
        values = column(data, name, "shared")
        if name in index_names(data):
            raise ValueError(
                f"shared={name!r} is in the index of the data, which cannot hold the levels of all "
                "rows. Make it a column: pass data.reset_index()."
            )
        if values.shape != (row_count(data),):
            raise ValueError(
                f"shared={name!r} must have one level per row: expected shape "
                f"({row_count(data)},), got {values.shape}."
            )
        missing = is_missing(values)
        if missing.any():
            raise ValueError(
                f"shared={name!r} has {np.count_nonzero(missing)} missing levels, the first in row "
                f"{np.argmax(missing)}. Give those rows a level, or drop them."
            )
        data = _with_levels(data, name)
    return data


def share_recorded(data: Any, attrs: Mapping[str, Any]) -> Any:
    """Return the data as they were divided, by what batches record."""
    return share_levels(data, json.loads(attrs.get(schema.SHARED, "[]")))


def levels_of(data: Any, name: str) -> list[Any]:
    """Return the levels of a factor that occur in these rows."""
    return pd.unique(pd.Series(column(data, name, "shared"))).tolist()


def how_to_use(data: Any, name: str) -> str:
    """Return the lines of `build` by which a model has the levels of all rows."""
    if is_dataset(data):
        levels = f'levels = data["{name}"].attrs["{LEVELS}"]'
        codes = f'np.searchsorted(levels, data["{name}"])'
        return f'    {levels}\n    coords={{"{name}": levels}}\n    {codes}  # the rows\' levels'
    levels, codes = {
        frames.POLARS: ("dtype.categories.to_list()", "to_physical().to_numpy()"),
        frames.ARROW: ("combine_chunks().dictionary.to_pylist()", "combine_chunks().indices"),
    }.get(frames.library_of(data), ("cat.categories", "cat.codes"))
    column_of = f'data["{name}"]'
    return (
        f'    coords={{"{name}": {column_of}.{levels}}}\n'
        f"    {column_of}.{codes}  # the rows' levels"
    )


def _with_levels(data: Any, name: str) -> Any:
    if is_dataset(data):
        values = data[name]
        levels = pd.Categorical(np.asarray(values)).categories.to_numpy()
        told = values.assign_attrs({LEVELS: values.attrs.get(LEVELS, levels)})
        return (data.assign_coords if name in data.coords else data.assign)({name: told})
    if isinstance(data, pd.DataFrame):
        return data.assign(**{name: _categorical(data[name])})
    if frames.is_frame(data):
        return frames.with_levels(data, name)
    if isinstance(data, Mapping):
        return {**data, name: _categorical(pd.Series(data[name]))}
    raise TypeError(
        f"shared={name!r}: columns of {type(data).__name__!r} cannot hold the levels of all rows. "
        "Pass a DataFrame, a dict of arrays, or an xarray Dataset."
    )


def _categorical(values: pd.Series) -> pd.Series:
    is_categorical = isinstance(values.dtype, pd.CategoricalDtype)
    return values if is_categorical else values.astype("category")

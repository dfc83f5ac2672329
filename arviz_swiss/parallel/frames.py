"""Frames of other libraries than pandas: what they hold, and frames made of Arrow's tables."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    import pyarrow as pa

# What `build` gets of rows that come from files or by lazy frames.
PANDAS, POLARS, ARROW = "pandas", "polars", "pyarrow"
# Libraries whose frames in memory are read by narwhals; pandas needs no help.
LIBRARIES = {"polars", "pyarrow", "modin", "cudf"}


def library_of(data: Any) -> str:
    """Return the name of the library that an object's class is from."""
    return type(data).__module__.partition(".")[0]


def is_frame(data: Any) -> bool:
    """Tell a table in memory with named columns of another library than pandas."""
    return library_of(data) in LIBRARIES and hasattr(data, "shape") and hasattr(data, "columns")


def narwhal(frame: Any) -> Any:
    """Return a frame in memory as narwhals shows all of them."""
    return needed("narwhals").from_native(frame, eager_only=True)


def needed(module: str) -> Any:
    """Import what comes with the extra `big`."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise ImportError(
            f"tables of this kind need {name}: pip install 'arviz-swiss[big]' (or {name} alone)."
        ) from error


def column_names(frame: Any) -> list[str]:
    """Return the names of the columns of a frame in memory."""
    return list(narwhal(frame).columns)


def column_array(frame: Any, name: str) -> np.ndarray:
    """Return one column of a frame in memory as an array; missing text is None."""
    column = narwhal(frame)[name]
    # categories of text have no array of their own in every library
    return np.asarray(column.to_pandas()) if library_of(frame) == ARROW else column.to_numpy()


def column_arrays(frame: Any) -> Iterator[np.ndarray]:
    """Yield the columns of a frame in memory one by one."""
    for name in column_names(frame):
        yield column_array(frame, name)


def take_rows(frame: Any, index: np.ndarray) -> Any:
    """Return some rows of a frame in memory, as a frame of the same library."""
    return narwhal(frame)[index].to_native()


def with_levels(frame: Any, name: str) -> Any:
    """Return a frame in memory one of whose columns knows its levels in all rows.

    A column that has categories keeps them.
    """
    if library_of(frame) == ARROW:
        import pyarrow as pa

        column = frame[name]
        if pa.types.is_dictionary(column.type):
            return frame
        return told_levels(frame, {name: sorted_levels(column.unique())})
    if library_of(frame) == POLARS:
        import polars as pl

        if isinstance(frame.schema[name], pl.Enum | pl.Categorical):
            return frame
        check_text(name, frame.schema[name] == pl.String)
        return frame.with_columns(pl.col(name).cast(pl.Enum(frame[name].unique().sort())))
    raise TypeError(
        f"shared={name!r}: columns of {type(frame).__name__!r} cannot hold the levels of all rows. "
        "Pass a pandas or polars DataFrame, a pyarrow Table, a dict of arrays, or an xarray "
        "Dataset."
    )


def check_text(name: str, is_text: bool) -> None:
    """Refuse levels that polars has no categories of."""
    if not is_text:
        raise TypeError(
            f"shared={name!r}: polars has categories of text only. Cast the column, with "
            f'pl.col("{name}").cast(pl.String), or pass a pandas DataFrame.'
        )


def sorted_levels(values: "pa.Array") -> "pa.Array":
    """Return distinct levels in the order that pandas gives categories."""
    import pyarrow as pa

    categories = pd.Categorical(values.to_pandas()).categories
    return pa.array(categories, type=values.type)


def told_levels(table: "pa.Table", levels: Mapping[str, "pa.Array"]) -> "pa.Table":
    """Return an Arrow table with columns of categories: the levels of all rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, values in levels.items():
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        ordered = pa.types.is_dictionary(field.type) and field.type.ordered
        chunks = [
            pa.DictionaryArray.from_arrays(
                pc.index_in(plain_values(chunk), value_set=values), values, ordered=ordered
            )
            for chunk in table.column(place).chunks
        ]
        kind = pa.dictionary(pa.int32(), values.type, ordered)
        table = table.set_column(place, pa.field(name, kind), pa.chunked_array(chunks, type=kind))
    return table


def plain_values(column: "pa.Array") -> "pa.Array":
    """Return a column of Arrow's without the codes of categories."""
    import pyarrow as pa

    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def from_arrow(table: "pa.Table", library: str, levels: Mapping[str, "pa.Array"]) -> Any:
    """Return rows as a frame of one library, with columns that know the levels of all rows."""
    if library != POLARS:
        table = told_levels(table, levels)
        return table if library == ARROW else table.to_pandas(self_destruct=True)
    import polars as pl

    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame.with_columns(
        pl.col(name).cast(pl.Enum(values.to_pylist())) for name, values in levels.items()
    )

"""The rows of batches in files: opened where they are needed, and not before."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from arviz_swiss.parallel.frames import PANDAS, from_arrow

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class BatchRows:
    """Where the rows of one batch are: small enough to go to any worker.

    `library` is that of the frame that they become, `levels` those in all rows of columns of
    categories, `with_missing` the columns that lack values in any batch.
    """

    path: str
    rows: int
    library: str
    levels: Mapping[str, "pa.Array"] = field(default_factory=dict, repr=False)
    with_missing: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.rows

    def load(self) -> Any:
        """Read the rows, a column at a time where that leaves the same frame."""
        frame = _by_columns(self) if self.library == PANDAS else None
        return load_rows([self]) if frame is None else _typed_alike(frame, self.with_missing)


def load_rows(batches: Sequence[BatchRows], most: int | None = None) -> Any:
    """Read the rows of some batches, one after the other, into one frame.

    If of each no more than `most` are wanted, they are from all over the batch.
    """
    import pyarrow as pa

    first = batches[0]
    table = pa.concat_tables([_read(batch, most) for batch in batches]).unify_dictionaries()
    rows = from_arrow(table, first.library, first.levels)
    del table
    # it would keep as much again for what is read next
    pa.default_memory_pool().release_unused()
    return _typed_alike(rows, first.with_missing) if first.library == PANDAS else rows


def _typed_alike(frame: pd.DataFrame, with_missing: Sequence[str]) -> pd.DataFrame:
    """Give columns that lack values in other rows the type that pandas has for all rows."""
    types = {"i": float, "u": float, "b": object}
    found = {
        name: types[frame[name].dtype.kind]
        for name in with_missing
        if name in frame and isinstance(frame[name].dtype, np.dtype)
        if frame[name].dtype.kind in types
    }
    return frame.astype(found) if found else frame


def _by_columns(batch: BatchRows) -> pd.DataFrame | None:
    """Read numbers column by column: a table of Arrow's and a frame are twice as much.

    None if there is anything else, of which Arrow's tables know more than their columns do.
    """
    import pyarrow as pa

    with _opened(batch.path) as file:
        schema = file.schema_arrow
        known = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
        has_index = any(isinstance(each, str) for each in known.get("index_columns", ()))
        plain = all(
            pa.types.is_floating(kind) or pa.types.is_integer(kind) for kind in schema.types
        )
        if has_index or batch.levels or not plain or len(set(schema.names)) < len(schema.names):
            return None
        columns = {}
        for name in schema.names:
            frame = file.read(columns=[name], use_threads=False).to_pandas()
            if frame.columns.name is not None or name not in frame.columns:
                return None  # labels that are numbers, or have a name of their own
            columns[name] = frame[name]
            pa.default_memory_pool().release_unused()
    return pd.DataFrame(columns, copy=False) if columns else None


def _read(batch: BatchRows, most: int | None) -> "pa.Table":
    import pyarrow as pa

    with _opened(batch.path) as file:
        if most is None or batch.rows <= most:
            return file.read(use_threads=False)
        parts, start, step = [], 0, -(-batch.rows // most)
        for block in file.iter_batches(use_threads=False):
            places = np.arange(-start % step, block.num_rows, step)
            parts.append(block.take(pa.array(places)))
            start += block.num_rows
        return pa.Table.from_batches(parts, file.schema_arrow)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Any]:
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            yield file
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"the rows of a batch are not at {path}. If it was moved or deleted, run the same call "
            "again; if this worker is on another machine, pass a folder that all machines see."
        ) from error


@dataclass(frozen=True)
class Split:
    """All rows, divided into files of one batch each; `fingerprint` is that of the rows."""

    batches: tuple[BatchRows, ...]
    fingerprint: str
    division: str
    folder: str

    @property
    def rows(self) -> int:
        """The number of all rows."""
        return sum(map(len, self.batches))

"""The rows of batches in files: opened where they are needed, and not before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from arviz_swiss.parallel.frames import from_arrow

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class BatchRows:
    """Where the rows of one batch are: small enough to go to any worker.

    `library` is that of the frame that they become, `levels` those in all rows of columns of
    categories.
    """

    path: str
    rows: int
    library: str
    levels: Mapping[str, "pa.Array"] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return self.rows

    def load(self) -> Any:
        """Read the rows."""
        return load_rows([self])


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
    return rows


def _read(batch: BatchRows, most: int | None) -> "pa.Table":
    import pyarrow as pa
    from pyarrow import parquet

    path = batch.path
    try:
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            if most is None or batch.rows <= most:
                return file.read(use_threads=False)
            parts, start, step = [], 0, -(-batch.rows // most)
            for block in file.iter_batches(use_threads=False):
                places = np.arange(-start % step, block.num_rows, step)
                parts.append(block.take(pa.array(places)))
                start += block.num_rows
            return pa.Table.from_batches(parts, file.schema_arrow)
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

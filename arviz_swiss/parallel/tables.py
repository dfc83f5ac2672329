"""A table that does not fit in memory: its columns, levels and some of its rows."""

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from arviz_swiss.data import temporaries
from arviz_swiss.data.progress import SOON, progress
from arviz_swiss.parallel.frames import (
    PANDAS,
    POLARS,
    check_text,
    from_arrow,
    plain_values,
    sorted_levels,
)
from arviz_swiss.parallel.row_hashes import RowHash, hash_files, hash_rows
from arviz_swiss.parallel.sources import FOLDER, PolarsSource, Source, find_source

if TYPE_CHECKING:
    import pyarrow as pa

# Begins the names of folders for the rows of calls without a folder.
TEMPORARY = "arviz_swiss"
# Of the table of labels: how many rows have each. A column of the data may have any other name.
COUNT = "\0count"
# What pandas calls an index without a name in files.
UNNAMED = re.compile(r"__index_level_\d+__")
# Labels that are counted together, beside all that were seen before.
SEEN_AT_ONCE = 2**20


class Groups(NamedTuple):
    """The labels of groups in the order of their first rows, how many rows each has, its stratum.

    Strata are numbers; without strata all are zero.
    """

    labels: "pa.Array"
    sizes: np.ndarray
    strata: np.ndarray


class Table:
    """Rows that are read from a source when they are needed.

    `levels` are those in all rows of columns of categories, `with_missing` the columns that lack
    values, known when the rows have been divided; `folder` is where the rows of batches
    are written to, and `show` tells whether that is shown.
    """

    def __init__(self, source: Source):
        self.source = source
        self.levels: dict[str, pa.Array] = {}
        self.with_missing: tuple[str, ...] = ()
        self.folder: Path | None = None
        self.show = False
        self._rows: int | None = None
        # of files: their sizes, times and hashes by path, as far as they are known
        self.files: dict[str, Any] = {}
        self._fingerprint: str | None = None
        self._groups: dict[tuple[str, str | None], Groups] = {}

    @property
    def rows(self) -> int:
        """The number of rows, counted once."""
        if self._rows is None:
            self._rows = self.source.count()
        return self._rows

    @property
    def fingerprint(self) -> str:
        """A short text by which the rows are known again: all are read for it, once."""
        if self._fingerprint is None:
            schema = self.source.schema
            if fragments := self.source.fragments():
                self._fingerprint, self.files = hash_files(fragments, schema, self.files, self.show)
            else:
                self._fingerprint = hash_rows(self.source.blocks(), schema)
        return self._fingerprint

    def telling(self, blocks: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        """Yield all rows as they are read, and know them again by them."""
        if self._fingerprint is not None or self.source.fragments():
            yield from blocks
            return
        rows = RowHash(self.source.schema)
        for block in blocks:
            rows.add(block)
            yield block
        self._fingerprint = rows.text()

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.source.schema.names)

    @property
    def index_names(self) -> list[str]:
        """The names of columns that come to pandas as an index."""
        metadata = self.source.schema.pandas_metadata if self.source.library == PANDAS else None
        index = (metadata or {}).get("index_columns", ())
        return [name for name in index if isinstance(name, str) and name in self.columns]

    def column_name(self, labels: Any, argument: str) -> str:
        """Return the name of a column; refuse labels, which would be as long as the table."""
        unnamed = [name for name in self.index_names if UNNAMED.fullmatch(name)]
        known = [name for name in self.columns if name not in unnamed]
        if isinstance(labels, str) and labels in known:
            return labels
        names = ", ".join(known)
        hint = " If it is the index, write it with its name, by frame.rename_axis(name)."
        if np.isscalar(labels):
            raise ValueError(
                f"{argument}={labels!r} is not a column of the data, which has {names}. Pass the "
                f"name of a column.{hint if unnamed else ''}"
            )
        raise TypeError(
            f"{argument} must be the name of a column where rows are read from files or lazy "
            f"frames, got {type(labels).__name__!r}. Write the labels as a column beside {names}."
        )

    def groups(self, groups: Any, stratify: Any = None) -> Groups:
        """Return the groups of all rows, found by one pass over their columns."""
        name = self.column_name(groups, "groups")
        stratum = None if stratify is None else self.column_name(stratify, "stratify")
        if (name, stratum) not in self._groups:
            self._groups[name, stratum] = _groups(self, name, stratum)
        return self._groups[name, stratum]

    def checked_blocks(
        self, names: Sequence[tuple[str, str]], columns: Sequence[str] | None = None
    ) -> Iterator["pa.RecordBatch"]:
        """Yield all rows, without missing values in some columns, named with their arguments."""
        import pyarrow.compute as pc

        start = 0
        for block in self.source.blocks(columns):
            for name, argument in names:
                missing = pc.is_null(block.column(name), nan_is_null=True)
                if pc.any(missing).as_py():
                    row = start + int(np.argmax(missing.to_numpy(zero_copy_only=False)))
                    raise ValueError(
                        f"{argument}={name!r} has missing labels, the first in row {row}. Give "
                        "those rows a label, or drop them."
                    )
            start += block.num_rows
            yield block


@contextlib.contextmanager
def opened_table(data: Any, folder: Any = None, show: bool = False) -> Iterator[Any]:
    """Give a table of rows that are not in memory; anything else as it is.

    The rows of batches are written into `folder`, without one into a temporary folder that is there
    as long as the context.
    """
    if isinstance(data, Table):
        yield data
        return
    source = find_source(data)
    if source is None:
        yield data
        return
    table = Table(source)
    table.show = show
    if folder is not None:
        table.folder = Path(folder).absolute() / FOLDER
        yield table
        return
    with _temporary_folder() as temporary:
        table.folder = temporary / FOLDER
        yield table


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Give a folder that goes at the end, and remove those of processes that were killed."""
    place = Path(tempfile.gettempdir()) / TEMPORARY
    temporaries.clean(place.parent, TEMPORARY)
    folder = temporaries.temporary_name(place)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def tell_levels(table: Table, names: Sequence[str]) -> Table:
    """Find the levels in all rows of shared columns, and of those that are categories already.

    Files keep the categories of their own rows only, in an order of their own.
    """
    import pyarrow as pa

    for name in names:
        table.column_name(name, "shared")
        if name in table.index_names:
            raise ValueError(
                f"shared={name!r} is in the index of the data, which cannot hold the levels of all "
                "rows. Make it a column: write the files from frame.reset_index(), or pass "
                "dask.dataframe.read_parquet(path).reset_index()."
            )
    found: dict[str, pa.Array] = {}
    has_own = {f.name for f in table.source.schema if pa.types.is_dictionary(f.type)}
    if isinstance(table.source, PolarsSource):
        known = table.source.enumerations()
        found |= {name: values.to_arrow() for name, values in known.items()}
        has_own &= set(names)
    wanted = [name for name in dict.fromkeys([*names, *sorted(has_own)]) if name not in found]
    if wanted:
        found |= _levels(table, wanted, [(name, "shared") for name in names])
    if table.source.library == POLARS:
        for name in names:
            values = found[name].type
            check_text(name, pa.types.is_string(values) or pa.types.is_large_string(values))
    table.levels = found
    return table


def _levels(
    table: Table, wanted: Sequence[str], checked: Sequence[tuple[str, str]]
) -> dict[str, "pa.Array"]:
    """Return the distinct values of columns, sorted; those of categories in their order."""
    import pyarrow as pa

    seen: dict[str, pa.Array] = {}
    for block in table.checked_blocks(checked, wanted):
        for name in wanted:
            column = block.column(name)
            is_own = pa.types.is_dictionary(column.type)
            values = column.dictionary if is_own else column.unique()
            before = seen.get(name, values[:0])
            seen[name] = pa.concat_arrays([before, values]).unique().drop_null()
    kinds = {name: table.source.schema.field(name).type for name in wanted}
    return {
        name: values if pa.types.is_dictionary(kinds[name]) else sorted_levels(values)
        for name, values in seen.items()
    }


def _groups(table: Table, name: str, stratum: str | None) -> Groups:
    import pyarrow as pa

    names = [name] if stratum in (None, name) else [name, str(stratum)]
    checked = [(name, "groups"), *([] if stratum is None else [(stratum, "stratify")])]
    seen: pa.Table | None = None
    waiting: list[pa.Table] = []
    with progress(table.rows, "Finding groups", table.show, unit="row", delay=SOON) as bar:
        for block in table.checked_blocks(checked, names):
            keys = {key: plain_values(block.column(key)) for key in names}
            waiting.append(_counted(pa.table({**keys, COUNT: np.ones(block.num_rows, int)}), names))
            if sum(map(len, waiting)) > SEEN_AT_ONCE:
                together = pa.concat_tables([*filter(None, [seen]), *waiting])
                seen, waiting = _counted(together, names), []
            bar(block.num_rows)
    if seen is not None or waiting:
        seen = _counted(pa.concat_tables([*filter(None, [seen]), *waiting]), names)
    if not seen:
        raise ValueError("the data has no rows to divide.")
    labels = _column(seen, name)
    if len(labels.unique()) < len(labels):
        twice = next(v for v in labels.value_counts() if v["counts"].as_py() > 1)["values"]
        raise ValueError(
            f"stratify must be constant within each group, but it varies in group {twice}. "
            "Stratify by something that belongs to the group, or leave out groups or stratify."
        )
    strata = np.zeros(len(labels), dtype=np.intp)
    if stratum is not None:
        strata = _column(seen, stratum).dictionary_encode().indices.to_numpy()
    return Groups(labels, _column(seen, COUNT).to_numpy(), strata)


def _counted(rows: "pa.Table", names: Sequence[str]) -> "pa.Table":
    """Return distinct labels in the order of their first rows, and the sums of their counts."""
    counted = rows.group_by(list(names), use_threads=False).aggregate([(COUNT, "sum")])
    return counted.rename_columns([*names, COUNT])


def _column(table: "pa.Table", name: str) -> "pa.Array":
    column = table.column(name).combine_chunks()
    return column.chunk(0) if hasattr(column, "chunks") else column


def some_rows(table: Table, count: int, groups: Any, seed: int) -> Any:
    """Return about so many rows from all over the table, of whole groups, as a frame."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not table.rows:
        raise ValueError("the data has no rows to divide, got 0.")
    rng = np.random.default_rng(seed)
    if groups is None:
        chosen = np.sort(rng.choice(table.rows, min(count, table.rows), replace=False))

        def pick(block: pa.RecordBatch, start: int) -> pa.RecordBatch:
            first, last = np.searchsorted(chosen, [start, start + block.num_rows])
            return block.take(pa.array(chosen[first:last] - start))
    else:
        name, labels = table.column_name(groups, "groups"), _some_groups(table, count, groups, rng)

        def pick(block: pa.RecordBatch, start: int) -> pa.RecordBatch:
            return block.filter(pc.is_in(plain_values(block.column(name)), value_set=labels))

    parts, start = [], 0
    for block in table.source.blocks():
        parts.append(pick(block, start))
        start += block.num_rows
    rows = pa.Table.from_batches(parts).replace_schema_metadata(table.source.schema.metadata)
    return from_arrow(rows, table.source.library, table.levels)


def _some_groups(table: Table, count: int, groups: Any, rng: np.random.Generator) -> "pa.Array":
    """Return labels of groups at random that have about so many rows, of four groups at least."""
    import pyarrow as pa

    found = table.groups(groups)
    order = rng.permutation(len(found.sizes))
    enough = int(np.searchsorted(np.cumsum(found.sizes[order]), count)) + 1
    return found.labels.take(pa.array(order[: max(enough, 4)]))

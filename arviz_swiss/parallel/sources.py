"""Where rows that do not fit in memory come from: Parquet files, Dask DataFrames, lazy frames.

A source gives its rows block by block, always in the same order.
"""

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from arviz_swiss.parallel.frames import ARROW, PANDAS, POLARS, library_of, needed

if TYPE_CHECKING:
    import pyarrow as pa

# Rows that are read at once.
BLOCK = 2**16
# Bytes of a column that are read from a file at once.
BUFFER = 2**16
# The folder beside the batches' draws that holds their rows.
FOLDER = "swiss_rows"
PARQUET = (".parquet", ".parq", ".pq")
# How names of tables end, those included that are refused with a remedy.
TABLES = (*PARQUET, ".csv", ".csv.gz", ".tsv", ".json", ".ndjson", ".arrow", ".feather", ".ipc")
# Functions of polars that read them.
READERS = {
    ".csv": "scan_csv",
    ".json": "scan_ndjson",
    ".ndjson": "scan_ndjson",
    ".arrow": "scan_ipc",
    ".feather": "scan_ipc",
    ".ipc": "scan_ipc",
}
# Texts of a list that are looked for as files.
FIRST_TEXTS = 100
# The first bytes of every Parquet file.
MAGIC = b"PAR1"


class Source(Protocol):
    """Rows that are read block by block; `library` is that of the frames made of them."""

    library: str
    schema: "pa.Schema"

    def blocks(self, columns: Sequence[str] | None = None) -> Iterator["pa.RecordBatch"]:
        """Yield all rows, or some columns of them, in order."""
        ...

    def count(self) -> int:
        """Return the number of rows."""
        ...

    def fragments(self) -> list[Any]:
        """Return the files, if rows are known again by these; none if by the rows."""
        ...


def find_source(data: Any) -> Source | None:
    """Return the source of rows that are not in memory; None for all that is."""
    if isinstance(data, str | os.PathLike):
        return FileSource([os.fspath(data)])
    if _are_paths(data):
        return FileSource(list(map(os.fspath, data)))
    library, name = library_of(data), type(data).__name__
    if library == "pyarrow" and hasattr(data, "scanner"):
        return DatasetSource(data)
    if library == "polars" and name == "LazyFrame":
        return PolarsSource(data)
    if library == "dask" and hasattr(data, "divisions") and hasattr(data, "columns"):
        return DaskSource(data)
    return None


def _are_paths(data: Any) -> bool:
    """Tell a list of paths; texts are rows like any others, unless some are names of tables."""
    if isinstance(data, np.ndarray):
        data = data.tolist() if data.ndim == 1 and data.dtype.kind in "UO" else []
    if not isinstance(data, list | tuple) or not data:
        return False
    if not all(isinstance(entry, str | os.PathLike) for entry in data):
        return False
    if any(isinstance(entry, os.PathLike) or entry.lower().endswith(TABLES) for entry in data):
        return True
    return any(map(os.path.isfile, data[:FIRST_TEXTS]))


class DatasetSource:
    """A Dataset of pyarrow, whose rows come as its tables."""

    library = ARROW

    def __init__(self, dataset: Any):
        self._dataset = dataset
        self.schema = dataset.schema

    def blocks(self, columns: Sequence[str] | None = None) -> Iterator["pa.RecordBatch"]:
        """Yield all rows, a few blocks read ahead."""
        import pyarrow.dataset as pds

        options = None
        if isinstance(getattr(self._dataset, "format", None), pds.ParquetFileFormat):
            # by default the whole of a file is read ahead
            options = pds.ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True)
        yield from self._dataset.to_batches(
            columns=None if columns is None else list(columns),
            batch_size=BLOCK,
            batch_readahead=1,
            fragment_readahead=1,
            fragment_scan_options=options,
        )

    def count(self) -> int:
        """Return the number of rows, by what files say of themselves where they do."""
        return self._dataset.count_rows()

    def fragments(self) -> list[Any]:
        """Return none: a Dataset may leave out rows of its files."""
        return []


class FileSource(DatasetSource):
    """Parquet files by their paths, whose rows come as DataFrames of pandas."""

    library = PANDAS

    def __init__(self, paths: Sequence[str]):
        datasets = needed("pyarrow.dataset")
        files = _files(paths)
        # folders above what was given are no columns
        base = _base(paths[0]) if len(paths) == 1 else None
        for file in files:
            _check_whole(file)
        dataset = datasets.dataset(
            files[0] if "://" in files[0] and len(files) == 1 else files,
            format="parquet",
            partitioning=None if base is None else "hive",
            partition_base_dir=base,
        )
        super().__init__(dataset)
        _check_schemas(self._dataset)

    def fragments(self) -> list[Any]:
        """Return the files, all of whose rows are read."""
        return list(self._dataset.get_fragments())

    def blocks(self, columns: Sequence[str] | None = None) -> Iterator["pa.RecordBatch"]:
        """Yield all rows, file by file: a Dataset would hold as much as a whole row group."""
        import pyarrow as pa
        import pyarrow.dataset as pds
        from pyarrow import parquet

        names = self.schema.names if columns is None else list(columns)
        for fragment in self._dataset.get_fragments():
            keys = pds.get_partition_keys(fragment.partition_expression)
            own = [name for name in names if name not in keys]
            with fragment.filesystem.open_input_file(fragment.path) as opened:
                file = parquet.ParquetFile(opened, pre_buffer=False, buffer_size=BUFFER)
                for block in file.iter_batches(BLOCK, columns=own, use_threads=False):
                    arrays = [
                        pa.repeat(pa.scalar(keys[name], self.schema.field(name).type), len(block))
                        if name in keys
                        else block.column(name)
                        for name in names
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, names)


class DaskSource:
    """A Dask DataFrame, partition by partition."""

    library = PANDAS

    def __init__(self, frame: Any):
        self._frame = frame
        self._keeps_index = frame.index.name is not None
        self.schema = needed("pyarrow").Schema.from_pandas(
            frame._meta_nonempty, preserve_index=self._keeps_index
        )

    def blocks(self, columns: Sequence[str] | None = None) -> Iterator["pa.RecordBatch"]:
        """Yield all rows; one partition is in memory at a time."""
        import pyarrow as pa

        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(name) for name in names], self.schema.metadata)
        frame = self._frame[[name for name in names if name in self._frame.columns]]
        for number in range(frame.npartitions):
            rows = frame.partitions[number].compute()
            try:
                table = pa.Table.from_pandas(rows, schema, preserve_index=self._keeps_index)
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"partition {number} of the Dask DataFrame has other columns or types than the "
                    f"frame says it has: {error}. Make them alike, by frame.astype or meta=."
                ) from error
            yield from table.to_batches(max_chunksize=BLOCK)

    def count(self) -> int:
        """Return the number of rows, which Dask may have to compute."""
        return len(self._frame)

    def fragments(self) -> list[Any]:
        """Return none."""
        return []


class PolarsSource:
    """A LazyFrame of polars, by its streaming engine."""

    library = POLARS

    def __init__(self, frame: Any):
        needed("pyarrow")
        self._frame = frame
        self.schema = self._to_arrow(frame.head(0).collect()).schema

    def enumerations(self) -> dict[str, Any]:
        """Return the categories of columns that are told them by their type."""
        import polars as pl

        types = self._frame.collect_schema()
        return {k: dtype.categories for k, dtype in types.items() if isinstance(dtype, pl.Enum)}

    def blocks(self, columns: Sequence[str] | None = None) -> Iterator["pa.RecordBatch"]:
        """Yield all rows in order."""
        frame = self._frame if columns is None else self._frame.select(list(columns))
        for rows in frame.collect_batches(chunk_size=BLOCK, maintain_order=True):
            yield from self._to_arrow(rows).to_batches(max_chunksize=BLOCK)

    def count(self) -> int:
        """Return the number of rows, which polars may have to compute."""
        import polars as pl

        return self._frame.select(pl.len()).collect().item()

    def fragments(self) -> list[Any]:
        """Return none."""
        return []

    @staticmethod
    def _to_arrow(frame: Any) -> "pa.Table":
        import polars as pl

        return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def _files(paths: Sequence[str]) -> list[str]:
    """Return the files that paths lead to; refuse what leads to none."""
    files: list[str] = []
    for path in paths:
        if "://" in path:
            files.append(path)
            continue
        path = _absolute(path)
        found = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
        if not found:
            raise FileNotFoundError(
                f"no file is at {path}. Pass the path of a Parquet file, of a folder of them, a "
                'pattern such as "rows/*.parquet", or a list of paths.'
            )
        files += [file for entry in found for file in _inside(entry)]
    if twice := [path for path in dict.fromkeys(files) if files.count(path) > 1]:
        raise ValueError(f"{twice[0]} is given twice: its rows would count twice. Pass it once.")
    for path in files:
        _check_format(path)
    return files


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _base(path: str) -> str | None:
    """Return the folder below which names of folders are columns; None where there are none."""
    if "://" in path:
        return None
    folder = _absolute(path)
    if os.path.isfile(folder):
        return None
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def _inside(path: str) -> list[str]:
    """Return a file, or those of a folder but for hidden ones and rows that were divided there."""
    if not os.path.isdir(path):
        return [path]
    tables = [file for file in Path(path).rglob("*") if file.suffix.lower() in PARQUET]
    shown = [file for file in tables if file.is_file() and _is_shown(file.relative_to(path))]
    files = list(map(str, shown))
    if not files:
        raise FileNotFoundError(
            f"folder {path} has no Parquet files ({', '.join(PARQUET)}). Pass the folder "
            "that has them."
        )
    return sorted(files)


def _is_shown(path: Path) -> bool:
    return not any(part.startswith((".", "_")) or part == FOLDER for part in path.parts)


def _check_format(path: str) -> None:
    if not os.path.isfile(path):
        return
    with open(path, "rb") as file:
        if file.read(len(MAGIC)) == MAGIC:
            return
    suffix = Path(path).suffix.lower()
    reader = READERS.get(suffix)
    how = (
        f'Write it as one, by polars.{reader}("{path}").sink_parquet("rows.parquet"), and pass '
        f'that; or pass polars.{reader}("{path}").'
        if reader
        else "Pass Parquet files; other tables as frames, Dask DataFrames or LazyFrames of polars."
    )
    raise ValueError(f"{path} is no Parquet file. {how}")


def _check_whole(path: str) -> None:
    """Refuse a file that ends early, or whose columns cannot be told by their names."""
    if not os.path.isfile(path):
        return
    parquet = needed("pyarrow.parquet")
    try:
        names = parquet.read_schema(path).names
    except (ValueError, OSError) as error:
        raise ValueError(
            f"{path} cannot be read: it is damaged, or was not written to its end. Write it again."
        ) from error
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(
            f"{path} has several columns called {twice[0]!r}. Give each a name of its own."
        )


def _check_schemas(dataset: Any) -> None:
    """Refuse files of other columns than the first: their rows would have missing values."""
    first = None
    for fragment in dataset.get_fragments():
        if first is None:
            first = fragment
        elif not fragment.physical_schema.equals(first.physical_schema):
            expected, given = (_by_name(f.physical_schema) for f in (first, fragment))
            names = [k for k in {**expected, **given} if expected.get(k) != given.get(k)]
            if not names:
                continue  # in another order
            name = names[0]
            raise ValueError(
                f"{fragment.path} has other columns than {first.path}: {name} is "
                f"{given.get(name, 'not there')}, and {expected.get(name, 'not there')} in the "
                "first. Give all files the same columns and types, or pass a Dask DataFrame or a "
                "LazyFrame of polars that makes them so."
            )
    if first is None:
        raise ValueError("there are no files to read. Pass paths of Parquet files.")


def _by_name(schema: "pa.Schema") -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}

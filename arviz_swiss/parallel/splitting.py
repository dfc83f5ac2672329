"""Divide a table that does not fit in memory: one pass, one Parquet file a batch.

Files are written into a folder that gets its name when all of them are complete.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from arviz_swiss.data import temporaries
from arviz_swiss.data.progress import Bar, progress
from arviz_swiss.parallel import store
from arviz_swiss.parallel.assigning import Assignment, assign, check_filled
from arviz_swiss.parallel.batch_rows import BatchRows, Split
from arviz_swiss.parallel.sources import BLOCK, FOLDER
from arviz_swiss.parallel.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa

RECORD = "split.json"
# Changes whenever the same settings would divide rows otherwise.
VERSION = 2
# Bytes that wait to be written: a part of all, so that files have few row groups, within bounds.
LEAST_WAITING, MOST_WAITING, PARTS = 2**26, 2**29, 64
# Files that are written at a time: systems let a process open about a thousand.
FILES_AT_ONCE = 256
# Of files of many batches: the number of each row's batch among them.
OWNER = "\0batch"


def split(
    table: Table,
    batches: int,
    *,
    groups: Any = None,
    stratify: Any = None,
    random_seed: int,
) -> Split:
    """Return the rows of each batch as files, written unless the folder has them already."""
    assert table.folder is not None
    record = {
        "version": VERSION,
        "batches": int(batches),
        "groups": groups,
        "stratify": stratify,
        "random_seed": int(random_seed),
    }
    _check_outside(table)
    temporaries.clean(table.folder.parent, FOLDER)
    found = _find(table, record)
    if found is None:
        assignment = assign(table, batches, groups, stratify, random_seed)
        found = _write_split(table, batches, assignment, record)
    return _split_of(table, record, found)


def _check_outside(table: Table) -> None:
    """Refuse rows that lie where those of batches are written."""
    assert table.folder is not None
    folder = table.folder.resolve()
    for fragment in table.source.fragments():
        if folder in Path(fragment.path).resolve().parents:
            raise ValueError(
                f"{fragment.path} is in {table.folder}, where the rows of batches are written. "
                f"Pass another folder than {table.folder.parent}."
            )


def is_split(folder: str) -> bool:
    """Tell whether the folder of a run holds the rows of its batches."""
    return (Path(folder) / FOLDER / RECORD).exists()


def recorded_seed(table: Table) -> int | None:
    """Return the seed by which a folder's rows were divided; None if they were not yet."""
    assert table.folder is not None
    with contextlib.suppress(OSError, ValueError, KeyError):
        record = json.loads((table.folder / RECORD).read_text(encoding="utf-8"))
        return int(record["random_seed"])
    return None


def check_current(split: Split) -> None:
    """Refuse to go on with rows that another process has replaced since they were found."""
    path = Path(split.folder) / RECORD
    with contextlib.suppress(OSError, ValueError, KeyError):
        recorded = json.loads(path.read_text(encoding="utf-8"))
        counts, data = recorded.pop("rows"), recorded.pop("data")
        record = {k: v for k, v in recorded.items() if k not in ("files", "writer", "with_missing")}
        if store.fingerprint([record, data, counts]) == split.division:
            return
    raise ValueError(
        f"another process has divided the rows in {split.folder} otherwise meanwhile. Pass another "
        "folder, or the same arguments in both."
    )


def _split_of(table: Table, record: dict[str, Any], counts: Sequence[int]) -> Split:
    assert table.folder is not None
    rows = (
        BatchRows(
            str(_path(table.folder, number)),
            count,
            table.source.library,
            table.levels,
            table.with_missing,
        )
        for number, count in enumerate(counts)
    )
    division = store.fingerprint([record, table.fingerprint, list(counts)])
    return Split(tuple(rows), table.fingerprint, division, str(table.folder))


def _find(table: Table, record: dict[str, Any]) -> list[int] | None:
    """Return the sizes of the batches that a folder holds; None if it is not there."""
    folder = table.folder
    assert folder is not None
    try:
        recorded = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        counts = recorded.pop("rows")
        table.files = recorded.pop("files", {}) | table.files
        table.with_missing = tuple(recorded.pop("with_missing", ()))
        writer = recorded.pop("writer", None)
    except FileNotFoundError:
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(
                f"folder {folder} is where the rows of batches are written, but it holds others "
                f"than arviz_swiss has written. Pass another folder than {folder.parent}."
            ) from None
        return None
    except (ValueError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{folder / RECORD} cannot be read ({error}). Delete {folder}, and the same call "
            "divides the rows again."
        ) from error
    try:
        store.require_same(recorded, {**record, "data": table.fingerprint}, folder)
    except ValueError:
        # nothing was sampled of rows that a call has divided which failed before
        if (folder.parent / store.SETTINGS).exists() or not temporaries.is_free(writer):
            raise
        shutil.rmtree(folder)
        return None
    missing = [str(_path(folder, n)) for n in range(len(counts)) if not _path(folder, n).exists()]
    if missing:
        raise FileNotFoundError(
            f"{missing[0]} is not there, but {folder / RECORD} says that it was written. Delete "
            f"{folder}, and the same call divides the rows again."
        )
    return counts


def _write_split(
    table: Table, batches: int, assignment: Assignment, record: dict[str, Any]
) -> list[int]:
    folder = table.folder
    assert folder is not None
    temporary = temporaries.temporary_name(folder)
    try:
        with _writing(folder):
            temporary.mkdir(parents=True)
        with progress(table.rows, "Splitting", table.show, unit="row") as bar:
            counts = _scatter(table, batches, assignment, temporary, bar)
        check_filled(counts)
        made = {**record, "data": table.fingerprint, "rows": counts.tolist(), "files": table.files}
        made |= {"with_missing": table.with_missing, "writer": temporaries.this_process()}
        text = json.dumps(made, indent=2) + "\n"
        with _writing(folder):
            (temporary / RECORD).write_text(text, encoding="utf-8")
            with contextlib.suppress(OSError):  # an empty one may be there
                folder.rmdir()
            try:
                os.rename(temporary, folder)
            except OSError:
                # another process has divided rows meanwhile; if it has ended, they may be gone now
                found = _find(table, record)
                if found is not None:
                    return found
                os.rename(temporary, folder)
        return counts.tolist()
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Say of errors of the disk what could not be written."""
    try:
        yield
    except OSError as error:
        raise OSError(
            error.errno,
            f"the rows of the batches could not be written to {folder.parent}: "
            f"{error.strerror or error}. Pass a folder with as much room as the data take, and run "
            "the same call again",
        ) from error


def _scatter(
    table: Table, batches: int, assignment: Assignment, folder: Path, bar: Bar
) -> np.ndarray:
    """Write every row into the file of its batch, and return how many rows each has."""
    names = table.source.schema.names
    with_missing: set[str] = set()

    def blocks() -> Iterator[tuple["pa.RecordBatch", np.ndarray]]:
        for block in table.telling(table.checked_blocks(assignment.columns)):
            with_missing.update(
                n for n, c in zip(names, block.columns, strict=True) if c.null_count
            )
            yield block, assignment.owners(block)
            bar(block.num_rows)

    paths, schema = [_path(folder, number) for number in range(batches)], table.source.schema
    write = _write_files if batches <= FILES_AT_ONCE else _write_by_bundles
    counts = write(blocks(), paths, schema)
    table.with_missing = tuple(sorted(with_missing))
    return counts


def _write_by_bundles(
    blocks: Iterator[tuple["pa.RecordBatch", np.ndarray]], paths: Sequence[Path], schema: Any
) -> np.ndarray:
    """Write more files than can be open at once, by way of files of many batches each."""
    import pyarrow as pa
    from pyarrow import parquet

    bundles = [
        paths[start : start + FILES_AT_ONCE] for start in range(0, len(paths), FILES_AT_ONCE)
    ]
    files = [bundle[0].with_suffix(".bundle") for bundle in bundles]
    with_owner = schema.append(pa.field(OWNER, pa.int32()))

    def bundled() -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        for block, owner in blocks:
            inside = pa.array((owner % FILES_AT_ONCE).astype(np.int32))
            yield block.append_column(OWNER, inside), owner // FILES_AT_ONCE

    _write_files(bundled(), files, with_owner)
    counts = []
    for file, bundle in zip(files, bundles, strict=True):
        parts = parquet.ParquetFile(file).iter_batches(BLOCK, use_threads=False)
        owned = ((part.select(schema.names), part.column(OWNER).to_numpy()) for part in parts)
        counts.append(_write_files(owned, bundle, schema))
        file.unlink()
    return np.concatenate(counts)


def _write_files(
    blocks: Iterator[tuple["pa.RecordBatch", np.ndarray]], paths: Sequence[Path], schema: Any
) -> np.ndarray:
    """Write rows to the files whose numbers come beside them; rows of one file keep their order."""
    import pyarrow as pa
    from pyarrow import parquet

    counts = np.zeros(len(paths), dtype=np.int64)
    texts = [field.name for field in schema if not _is_number(field.type)]
    waiting: list[tuple[pa.RecordBatch, np.ndarray]] = []
    held = written = 0
    folder = paths[0].parent
    with contextlib.ExitStack() as stack:
        with _writing(folder):
            files = [
                stack.enter_context(
                    parquet.ParquetWriter(
                        path,
                        schema,
                        compression="lz4",
                        use_dictionary=texts,
                        write_statistics=False,
                    )
                )
                for path in paths
            ]
        for block, owner in blocks:
            sizes = np.bincount(owner, minlength=len(paths))
            rows = block.take(pa.array(np.argsort(owner, kind="stable")))
            waiting.append((rows, np.concatenate([[0], np.cumsum(sizes)])))
            counts += sizes
            held += rows.nbytes
            if held > min(max(LEAST_WAITING, written // PARTS), MOST_WAITING):
                with _writing(folder):
                    _write_groups(files, waiting, schema)
                waiting, held, written = [], 0, written + held
        with _writing(folder):
            _write_groups(files, waiting, schema)
            stack.close()
    with _writing(folder):
        for path in paths:
            with open(path, "rb") as file:
                os.fsync(file.fileno())
    return counts


def _write_groups(
    files: Sequence[Any], waiting: Sequence[tuple["pa.RecordBatch", np.ndarray]], schema: Any
) -> None:
    """Write what waits, sorted by file and cut at these places, as a row group of each file."""
    import pyarrow as pa

    for number, file in enumerate(files):
        parts = [
            rows.slice(cuts[number], cuts[number + 1] - cuts[number])
            for rows, cuts in waiting
            if cuts[number] < cuts[number + 1]
        ]
        if parts:
            table = pa.Table.from_batches(parts).cast(schema)
            file.write_table(table, row_group_size=len(table))


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)


def _path(folder: Path, number: int) -> Path:
    return folder / f"b{number}.parquet"

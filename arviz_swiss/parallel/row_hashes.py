"""Know rows again by all that they hold: files by their bytes, other rows block by block."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arviz_swiss.data.progress import BYTES, SOON, Bar, progress
from arviz_swiss.parallel.frames import plain_values
from arviz_swiss.parallel.store import fingerprint

if TYPE_CHECKING:
    import pyarrow as pa

# Rows that are hashed at once. Of other numbers the same rows have other hashes.
ROWS_HASHED = 2**16
# Bytes of a file that are read at once.
BYTES_READ = 2**20


class RowHash:
    """A hash of rows in their order, the same however they are cut into blocks."""

    def __init__(self, schema: "pa.Schema"):
        self._digest = hashlib.blake2b(repr(describe(schema)).encode(), digest_size=16)
        self._waiting: list[pa.RecordBatch] = []
        self._held = 0

    def add(self, block: "pa.RecordBatch") -> None:
        """Add rows that come next."""
        start = 0
        while self._held + block.num_rows - start >= ROWS_HASHED:
            end = start + ROWS_HASHED - self._held
            self._waiting.append(block.slice(start, end - start))
            self._hash_waiting()
            start = end
        if start < block.num_rows:
            self._waiting.append(block.slice(start))
            self._held += block.num_rows - start

    def text(self) -> str:
        """Return the hash of all rows that were added."""
        if self._held:
            self._hash_waiting()
        return self._digest.hexdigest()

    def _hash_waiting(self) -> None:
        import pyarrow as pa

        for number in range(self._waiting[0].num_columns):
            values = pa.concat_arrays([plain_values(b.column(number)) for b in self._waiting])
            for part in _parts(values):
                self._digest.update(part)
        self._waiting, self._held = [], 0


def _parts(values: "pa.Array") -> Iterable[Any]:
    """Yield the bytes of an array: where it has values, and these.

    What lies in memory below missing values, or behind the last bit, is no part of it.
    """
    import pyarrow as pa

    if values.null_count:
        yield values.is_null().cast(pa.uint8()).buffers()[1]
        values = values.drop_null()
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    yield pa.record_batch([values], ["values"]).serialize()


def hash_rows(blocks: Iterable["pa.RecordBatch"], schema: "pa.Schema") -> str:
    """Return a short text by which rows are known again."""
    rows = RowHash(schema)
    for block in blocks:
        rows.add(block)
    return rows.text()


def hash_files(
    fragments: Sequence[Any],
    schema: "pa.Schema",
    known: Mapping[str, Sequence[Any]],
    show: bool = False,
) -> tuple[str, dict[str, list[Any]]]:
    """Return a short text by which files are known again, and by path what to know of each.

    `known` is what was told of them before: a file that has not changed since is not read again.
    `show` tells whether that is shown.
    """
    files: dict[str, list[Any]] = {}
    told = []
    states = [_state(fragment) for fragment in fragments]
    changed = [
        fragment.path not in known or list(known[fragment.path][:-1]) != state
        for fragment, state in zip(fragments, states, strict=True)
    ]
    size = sum(state[0] for state, is_new in zip(states, changed, strict=True) if is_new)
    with progress(size, "Reading files", show, unit=BYTES, delay=SOON) as bar:
        for fragment, state, is_new in zip(fragments, states, changed, strict=True):
            digest = _hash_file(fragment, bar) if is_new else str(known[fragment.path][-1])
            files[fragment.path] = [*state, digest]
        bar.finish()
    for fragment in fragments:
        digest = files[fragment.path][-1]
        # columns may be told by folders
        told.append([os.path.basename(fragment.path), str(fragment.partition_expression), digest])
    return fingerprint([describe(schema), told]), files


def _state(fragment: Any) -> list[int]:
    """Return a file's size and when it was changed, which tell that it is as it was."""
    info = fragment.filesystem.get_file_info(fragment.path)
    # a file that is given an old date has a new one of its entry
    changed = os.stat(fragment.path).st_ctime_ns if os.path.exists(fragment.path) else 0
    return [info.size, info.mtime_ns or 0, changed]


def _hash_file(fragment: Any, bar: Bar) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with fragment.filesystem.open_input_stream(fragment.path) as stream:
        while block := stream.read(BYTES_READ):
            digest.update(block)
            bar(len(block))
    return digest.hexdigest()


def describe(schema: "pa.Schema") -> list[list[str]]:
    """Return names and types of columns."""
    return [[field.name, str(field.type)] for field in schema]

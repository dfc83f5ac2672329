"""Which batch each row of a table belongs to, block by block: the same however rows are cut."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from arviz_swiss.base.seeds import generator
from arviz_swiss.data.progress import SOON, progress
from arviz_swiss.parallel.dealing import deal_groups, pack_groups
from arviz_swiss.parallel.frames import plain_values
from arviz_swiss.parallel.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa

# Strata have a deck each; of more than this, values are all but distinct.
MOST_STRATA = 100_000


class Assignment(NamedTuple):
    """A function of the next block of rows that returns the batch of each, and what it reads.

    `columns` are pairs of a name and the argument that it was given for. Blocks must come in order,
    all of them.
    """

    owners: Callable[["pa.RecordBatch"], np.ndarray]
    columns: tuple[tuple[str, str], ...] = ()


def assign(
    table: Table, batches: int, groups: Any = None, stratify: Any = None, random_seed: Any = None
) -> Assignment:
    """Return how rows go to batches: independently at random, by whole groups, or stratified."""
    rng = generator(random_seed)
    if groups is not None:
        return _by_group(table, batches, groups, stratify, rng)
    if stratify is not None:
        return _by_stratum(table, batches, stratify, rng)

    def owners(block: "pa.RecordBatch") -> np.ndarray:
        # one number of the generator for one row, whatever rows it is asked for together with
        return (rng.random(block.num_rows) * batches).astype(np.intp)

    return Assignment(owners)


def _by_group(
    table: Table, batches: int, groups: Any, stratify: Any, rng: np.random.Generator
) -> Assignment:
    """Deal whole groups, as evenly as they allow: their sizes are known before."""
    import pyarrow.compute as pc

    found = table.groups(groups, stratify)
    count = len(found.sizes)
    if count < batches:
        raise ValueError(
            f"{batches} batches of only {count} groups would leave a batch empty. Pass "
            f"batches={count} or fewer, or finer groups."
        )
    if stratify is None:
        of_group = pack_groups(found.sizes, batches, rng)
    else:
        of_group = deal_groups(found.strata, found.sizes, batches, rng)

    def owners(block: "pa.RecordBatch") -> np.ndarray:
        codes = pc.index_in(plain_values(block.column(groups)), value_set=found.labels)
        return of_group[codes.to_numpy(zero_copy_only=False)]

    return Assignment(owners, ((groups, "groups"),))


def _by_stratum(table: Table, batches: int, stratify: Any, rng: np.random.Generator) -> Assignment:
    """Deal the rows of each stratum from decks that hold every batch once, shuffled each time."""
    name = table.column_name(stratify, "stratify")
    numbers: dict[Any, int] = {}
    decks: list[tuple[np.random.Generator, np.ndarray]] = []

    def deal(stratum: int, count: int) -> np.ndarray:
        own, left = decks[stratum]
        more = -(-max(count - left.size, 0) // batches)
        fresh = own.permuted(np.tile(np.arange(batches), (more, 1)), axis=1).ravel()
        left = np.concatenate([left, fresh])
        decks[stratum] = own, left[count:]
        return left[:count]

    def owners(block: "pa.RecordBatch") -> np.ndarray:
        encoded = plain_values(block.column(name)).dictionary_encode()
        for label in encoded.dictionary.to_pylist():
            if label not in numbers:
                numbers[label] = len(numbers)
                decks.append((rng.spawn(1)[0], np.empty(0, dtype=np.intp)))
        if len(numbers) > MOST_STRATA:
            raise ValueError(
                f"stratify={name!r} has more than {MOST_STRATA} values, so that hardly two rows "
                "share one. Pass a column of fewer values, such as quantiles of it."
            )
        codes = encoded.indices.to_numpy()
        batch_of = np.empty(codes.size, dtype=np.intp)
        order = np.argsort(codes, kind="stable")
        sizes = np.bincount(codes, minlength=len(encoded.dictionary))
        for label, rows in zip(
            encoded.dictionary.to_pylist(), np.split(order, np.cumsum(sizes)[:-1]), strict=True
        ):
            batch_of[rows] = deal(numbers[label], rows.size)
        return batch_of

    return Assignment(owners, ((name, "stratify"),))


def row_numbers(table: Table, assignment: Assignment, batches: int) -> list[np.ndarray]:
    """Return the row numbers of each batch."""
    import pyarrow as pa

    if assignment.columns:
        names = [name for name, _ in assignment.columns]
        blocks = table.checked_blocks(assignment.columns, names)
    else:
        # nothing of the rows but their number is needed
        nothing = pa.RecordBatch.from_arrays([pa.nulls(table.rows)], ["nothing"])
        blocks = iter([nothing])
    parts = [np.empty(0, dtype=np.intp)]
    with progress(table.rows, "Partitioning", table.show, unit="row", delay=SOON) as bar:
        for block in blocks:
            parts.append(assignment.owners(block))
            bar(block.num_rows)
    owner = np.concatenate(parts)
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.cumsum(np.bincount(owner, minlength=batches))[:-1])


def check_filled(counts: np.ndarray) -> None:
    """Refuse batches without rows."""
    if not counts.sum():
        raise ValueError("the data has no rows to divide, got 0.")
    empty = int(np.count_nonzero(counts == 0))
    if empty:
        raise ValueError(
            f"{empty} of {counts.size} batches got none of the {counts.sum()} rows, which go to "
            f"batches at random. Pass batches={max(int(counts.sum()) // 10, 1)} or fewer."
        )

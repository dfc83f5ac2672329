"""Whether one batch was given twice: its rows would count twice."""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from arviz_swiss.base.gaussian import Moments
from arviz_swiss.data import schema
from arviz_swiss.data.layout import Layout
from arviz_swiss.merging.batches import Batch, load_arrays

# Means that differ by more of their sds are those of different draws. They are sorted by so many
# decimals: equal ones stand side by side, whatever the rounding of their last digits.
SAME_MEAN, ROUNDED = 1e-6, 6


def check_distinct(batches: Sequence[Batch], moments: Sequence[Moments], layout: Layout) -> None:
    """Refuse a batch that occurs twice: by its draws, or by what its sampling recorded.

    Parameters
    ----------
    batches : sequence of Batch
    moments : sequence of Moments
        Theirs: only batches with the same mean are read again, to compare all their draws.
    layout : Layout
        Of the variables that are compared.
    """
    recorded: dict[tuple[Any, ...], Batch] = {}
    for batch in batches:
        label, seed, rows = (
            batch.attrs.get(name) for name in (schema.BATCH, schema.RANDOM_SEED, schema.PARTITION)
        )
        if label is None or rows is None:
            continue
        first = recorded.setdefault((label, seed, rows), batch)
        if first is not batch:
            _refuse(first, batch, f'are both batch "{label}" of the partition by seed {seed}')
    for positions in _with_same_mean(moments):
        by_draws: dict[bytes, Batch] = {}
        for position in positions:
            first = by_draws.setdefault(_digest(batches[position], layout), batches[position])
            if first is not batches[position]:
                _refuse(first, batches[position], "have the same draws")


def _with_same_mean(moments: Sequence[Moments]) -> list[list[int]]:
    """Return sets of batches with the same mean, the positions of each in order."""
    means = np.array([batch.mean for batch in moments])
    sds = np.sqrt(np.diag(moments[0].covariance))
    order = np.lexsort(np.round((means - means[0]).T / sds[:, None], ROUNDED)).tolist()
    sets = [[order[0]]]
    for one, other in pairwise(order):
        if (np.abs(means[one] - means[other]) > SAME_MEAN * sds).any():
            sets.append([])
        sets[-1].append(other)
    return [sorted(positions) for positions in sets if len(positions) > 1]


def _digest(batch: Batch, layout: Layout) -> bytes:
    """Return a fingerprint of the draws, whatever their precision and the order of chains."""
    arrays = [np.asarray(array, np.float32) for array in load_arrays(batch, layout).values()]
    chains = []
    for chain in range(len(arrays[0])):
        digest = hashlib.blake2b()
        for array in arrays:
            digest.update(f"{array.shape}".encode())
            digest.update(np.ascontiguousarray(array[chain]))
        chains.append(digest.digest())
    return b"".join(sorted(chains))


def _refuse(first: Batch, second: Batch, why: str) -> None:
    raise ValueError(
        f"{first} and {second} {why}: its rows would count twice. Give each batch once; if "
        "other rows were meant, sample those."
    )

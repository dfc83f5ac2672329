"""Whether one batch was given twice: its rows would count twice."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from arviz_swiss.batches import Batch, load_arrays
from arviz_swiss.flatten import Layout
from arviz_swiss.moments import Moments

# Means that differ by more of their sds are those of different draws.
SAME_MEAN = 1e-9


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
    recorded: dict[tuple[str, str], Batch] = {}
    for batch in batches:
        label, seed = (batch.attrs.get(name) for name in ("swiss_batch", "swiss_random_seed"))
        if label is None or seed is None:
            continue
        first = recorded.setdefault((str(label), str(seed)), batch)
        if first is not batch:
            _refuse(first, batch, f'are both batch "{label}" of the partition by seed {seed}')
    for one, other in _with_same_mean(moments):
        first, second = sorted((batches[one], batches[other]), key=lambda batch: batch.position)
        if _same_draws(first, second, layout):
            _refuse(first, second, "have the same draws")


def _with_same_mean(moments: Sequence[Moments]) -> list[tuple[int, int]]:
    """Return pairs of batches with the same mean, each next to the other in its order."""
    means = np.array([batch.mean for batch in moments])
    sds = np.sqrt(np.diag(moments[0].covariance))
    order = np.lexsort(np.round((means - means[0]).T / sds[:, None], 6))
    close = (np.abs(means[one] - means[other]) <= SAME_MEAN * sds for one, other in pairwise(order))
    return [pair for pair, same in zip(pairwise(order), close, strict=True) if same.all()]


def _same_draws(one: Batch, other: Batch, layout: Layout) -> bool:
    ours, theirs = load_arrays(one, layout), load_arrays(other, layout)
    return all(np.array_equal(ours[name], theirs[name]) for name in layout.names)


def _refuse(first: Batch, second: Batch, why: str) -> None:
    raise ValueError(
        f"{first} and {second} {why}: its rows would count twice. Give each batch once; if "
        "other rows were meant, sample those."
    )

"""Deal rows, or whole groups of them, to batches: evenly within each stratum."""

import numpy as np


def deal_rows(strata: np.ndarray, batches: int, rng: np.random.Generator) -> np.ndarray:
    """Batch of each row: strata are dealt one after the other, the leftovers to small batches."""
    owner = np.empty(strata.size, dtype=np.intp)
    sizes = np.zeros(batches, dtype=np.intp)
    shuffled = rng.permutation(strata.size)
    by_stratum = shuffled[np.argsort(strata[shuffled], kind="stable")]
    runs = np.split(by_stratum, np.cumsum(np.bincount(strata))[:-1])
    for number in rng.permutation(len(runs)):
        rows = runs[number]
        leftover = _smallest(sizes, rows.size % batches, rng)
        sizes[leftover] += 1
        owner[rows] = np.concatenate([np.arange(rows.size - leftover.size) % batches, leftover])
    return owner


def deal_groups(
    strata: np.ndarray, sizes: np.ndarray, batches: int, rng: np.random.Generator
) -> np.ndarray:
    """Batch of each group: in each round of a stratum the larger groups go to smaller batches."""
    owner = np.empty(sizes.size, dtype=np.intp)
    filled = np.zeros(batches, dtype=np.intp)
    largest_first = _largest_first(sizes, rng)
    for number in rng.permutation(strata.max() + 1):
        groups = largest_first[strata[largest_first] == number]
        for start in range(0, groups.size, batches):
            dealt = groups[start : start + batches]
            owner[dealt] = _smallest(filled, dealt.size, rng)
            filled[owner[dealt]] += sizes[dealt]
    return owner


def pack_groups(sizes: np.ndarray, batches: int, rng: np.random.Generator) -> np.ndarray:
    """Batch of each group: the largest group left goes to the smallest batch."""
    owner = np.empty(sizes.size, dtype=np.intp)
    filled = np.zeros(batches, dtype=np.intp)
    for group in _largest_first(sizes, rng):
        owner[group] = _smallest(filled, 1, rng)[0]
        filled[owner[group]] += sizes[group]
    return owner


def _largest_first(sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Order of the groups by decreasing size, ties at random."""
    return np.lexsort((rng.random(sizes.size), -sizes))


def _smallest(sizes: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers of the `count` smallest batches, ties at random."""
    return np.lexsort((rng.random(sizes.size), sizes))[:count]


def group_strata(groups: np.ndarray, strata: np.ndarray) -> np.ndarray:
    """Stratum of each group, which all its rows must share."""
    first_row = np.unique(groups, return_index=True)[1]
    of_group = strata[first_row]
    varying = np.unique(groups[of_group[groups] != strata])
    if varying.size:
        raise ValueError(
            f"stratify must be constant within each group, but it varies in {varying.size} of "
            f"{first_row.size} groups (the first has row {first_row[varying[0]]}). Stratify by "
            "something that belongs to the group, or leave out groups or stratify."
        )
    return of_group

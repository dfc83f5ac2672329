"""Labels of the batches, and arguments that name batches by label or position.

File names sort as text: ``sorted(glob("b*.nc"))`` puts b10 before b2. What is then given as a list
may be in the order of the files, or in that of the numbers.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from arviz_swiss.data.messages import brief

MOST_NAMED = 20


def choose_labels(recorded: Sequence[Any], files: Sequence[str]) -> list[str]:
    """Return the labels that the sampling recorded, else the files' names, else b0, b1, ..."""
    for labels in (recorded, [Path(file).stem for file in files]):
        if all(isinstance(x, str) and x for x in labels) and len(set(labels)) == len(labels):
            return list(labels)
    return [f"b{position}" for position in range(len(recorded))]


def by_batch(
    given: Any, labels: Sequence[str], argument: str, noun: str, holder: str = "merge"
) -> list[Any]:
    """Return an argument's values in the order of the batches, one a batch.

    A sequence is in that order, and refused where labels number the batches, but not in rising
    order. Keys of a mapping or Series are labels, compared as text; or positions, where none of
    them is a label. `argument`, `noun` and `holder` (of the batches) are what errors call them.
    """
    if isinstance(given, pd.Series):
        if not given.index.is_unique:
            raise ValueError(
                f"{argument} is a Series with labels that occur twice: give each batch's once."
            )
        given = given.to_dict()
    if isinstance(given, Mapping):
        return _by_key(given, labels, argument, noun, holder)
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        raise TypeError(
            f"{argument} must be a sequence of one {noun} a batch, or a mapping of batch label to "
            f"{noun}, got {type(given).__name__}."
        )
    if len(given) != len(labels):
        raise ValueError(
            f"{argument} has {len(given)} elements for {len(labels)} batches. Pass one a batch, in "
            "their order, or a mapping by batch label."
        )
    if are_shuffled(labels):
        raise ValueError(
            f"{argument} is a list, but the batches are in the order {brief(labels, 6)}: is it in "
            f"this order, or in that of the numbers? Pass a mapping of batch label to {noun}."
        )
    return list(given)


def _by_key(
    given: Mapping[Any, Any], labels: Sequence[str], argument: str, noun: str, holder: str
) -> list[Any]:
    values = {str(key): value for key, value in given.items()}
    are_positions = all(isinstance(key, int | np.integer) for key in given)
    if are_positions and not set(values) & set(labels) and not are_shuffled(labels):
        keys = [str(position) for position in range(len(labels))]
    else:
        keys = list(labels)
    missing = [named(labels, position) for position, key in enumerate(keys) if key not in values]
    odd = [f"no {noun} for {brief(missing)}"] if missing else []
    if unknown := [key for key in values if key not in keys]:
        odd.append(f"unknown batches {brief(unknown)}")
    if odd:
        raise ValueError(
            f"{argument} has batches {brief(list(values), MOST_NAMED)}; {holder} has "
            f"{brief(labels, MOST_NAMED)}: {', '.join(odd)}."
        )
    return [values[key] for key in keys]


def positions_kept(drop: Any, labels: Sequence[str]) -> list[int]:
    """Return the positions of the batches that `drop` does not name, by label or position."""
    if drop is None:
        return list(range(len(labels)))
    keys = [drop] if isinstance(drop, str) or not isinstance(drop, Iterable) else drop
    dropped = {_dropped(key, labels) for key in keys}
    if len(dropped) == len(labels):
        raise ValueError(f"drop names all {len(labels)} batches: there is nothing left to merge.")
    return [position for position in range(len(labels)) if position not in dropped]


def _dropped(key: Any, labels: Sequence[str]) -> int:
    """Return the position of the batch that one element of `drop` names."""
    if isinstance(key, bool | np.bool_):
        raise TypeError(f"drop takes labels or positions of batches, got {key!r}.")
    by_label = labels.index(str(key)) if str(key) in labels else None
    is_position = isinstance(key, int | np.integer) and 0 <= key < len(labels)
    if is_position and by_label not in (None, key):
        raise ValueError(
            f"drop names {key}, which is the label of {named(labels, by_label)} and the position "
            f'of {named(labels, key)}. Name the label as text: drop=["{key}"].'
        )
    if by_label is None and not is_position:
        batches = brief([f'"{label}"' for label in labels], MOST_NAMED)
        positions = "" if isinstance(key, str) else f", at positions 0 to {len(labels) - 1}"
        raise ValueError(f"drop names {key!r}, but the batches are {batches}{positions}.")
    return int(key) if by_label is None else by_label


def named(labels: Sequence[str], position: int) -> str:
    """Return what errors call a batch: its position and its label."""
    return f'batch {position} ("{labels[position]}")'


def numbers_of(labels: Sequence[str]) -> list[int] | None:
    """Return the numbers in labels that differ in nothing else; None if there are no such."""
    parts, place = _split(labels)
    return None if place is None else [int(part[place]) for part in parts]


def renumbered(labels: Sequence[str], number: int) -> str:
    """Return a label like these with another number, filled with zeros to the first's width."""
    (first, *_), place = _split(labels)
    if place is None:
        raise ValueError(f"no number tells {brief(labels)} apart")
    return "".join([*first[:place], str(number).zfill(len(first[place])), *first[place + 1 :]])


def _split(labels: Sequence[str]) -> tuple[list[list[str]], int | None]:
    """Return labels as text, number, text, ...; and where the number is that tells them apart."""
    parts = [re.split(r"(\d+)", label) for label in labels]
    if len({len(part) for part in parts}) > 1:
        return parts, None
    numbers = range(1, len(parts[0]), 2)
    places = [at for at, texts in enumerate(zip(*parts, strict=True)) if len(set(texts)) > 1]
    places = places or list(numbers)
    return parts, places[0] if len(places) == 1 and places[0] in numbers else None


def are_shuffled(labels: Sequence[str]) -> bool:
    """Tell whether labels number the batches, but not in rising order."""
    numbers = numbers_of(labels)
    return numbers is not None and numbers != sorted(numbers)

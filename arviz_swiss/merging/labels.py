"""Labels of the batches; those that are numbers, such as b0, b1, ..., b10, and their order.

File names sort as text: ``sorted(glob("b*.nc"))`` puts b10 before b2. What is then given as a list
may be in the order of the files, or in that of the numbers.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def choose_labels(recorded: Sequence[Any], files: Sequence[str]) -> list[str]:
    """Return the labels that the sampling recorded, else the files' names, else b0, b1, ..."""
    for labels in (recorded, [Path(file).stem for file in files]):
        if all(isinstance(x, str) and x for x in labels) and len(set(labels)) == len(labels):
            return list(labels)
    return [f"b{position}" for position in range(len(recorded))]


def numbers_of(labels: Sequence[str]) -> list[int] | None:
    """Return the numbers in labels that differ in nothing else; None if there are no such."""
    parts, place = _split(labels)
    return None if place is None else [int(part[place]) for part in parts]


def renumbered(labels: Sequence[str], number: int) -> str:
    """Return a label like these with another number, filled with zeros to the first's width."""
    (first, *_), place = _split(labels)
    return "".join([*first[:place], str(number).zfill(len(first[place])), *first[place + 1 :]])


def _split(labels: Sequence[str]) -> tuple[list[list[str]], int | None]:
    """Return labels as text, number, text, ...; and where the number is that tells them apart."""
    parts = [re.split(r"(\d+)", label) for label in labels]
    if len({len(part) for part in parts}) > 1:
        return parts, None
    numbers = range(1, len(parts[0]), 2)
    differing = [
        place for place, found in enumerate(zip(*parts, strict=True)) if len(set(found)) > 1
    ]
    places = differing or (numbers if len(numbers) == 1 else [])
    return parts, places[0] if len(places) == 1 and places[0] in numbers else None


def are_shuffled(labels: Sequence[str]) -> bool:
    """Tell whether labels number the batches, but not in rising order."""
    numbers = numbers_of(labels)
    return numbers is not None and numbers != sorted(numbers)


def describe(labels: Sequence[str]) -> str:
    """Return the order of the labels for an error, shortened."""
    return ", ".join(labels[:6]) + (", ..." if len(labels) > 6 else "")

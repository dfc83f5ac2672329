"""Factors crossed with the groups: their levels recur in many batches, and some batches lack some.

A variable of such a factor is no batch's own. It must have all levels in every batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from arviz_swiss.parallel.levels import how_to_use, levels_of
from arviz_swiss.pymc.structure import Structure, as_shared, counts, differing_axes


def levels_in(data: Any, shared: Sequence[str]) -> dict[str, list[Any]]:
    """Return the levels of each shared factor that are in these rows."""
    return {factor: levels_of(data, factor) for factor in shared}


def check_levels(
    structures: Sequence[Structure], levels: Sequence[Mapping[str, Sequence[Any]]], data: Any
) -> None:
    """Refuse variables that have the levels of a shared factor in the rows of each model alone.

    `levels` are those in the rows of each; `data` are the rows of one of them.
    """
    for factor in levels[0]:
        for name, axis in _varying_axes(structures):
            pairs = zip(structures, levels, strict=True)
            if all(_has_levels(each, name, axis, present[factor]) for each, present in pairs):
                raise ValueError(
                    f"Free variable {name} has only those levels of {factor} that are in the rows "
                    f'of its batch, although shared="{factor}" tells every batch all of them. Let '
                    f"build take them:\n{how_to_use(data, factor)}"
                )


def _varying_axes(structures: Sequence[Structure]) -> Iterator[tuple[str, int]]:
    """Yield variables and their axes that are not the same in all models."""
    for name, shape in structures[0].shapes.items():
        if not all(len(each.shapes.get(name, ())) == len(shape) for each in structures):
            continue
        for axis in range(len(shape)):
            if len({(each.shapes[name][axis], each.labels[name][axis]) for each in structures}) > 1:
                yield name, axis


def _has_levels(structure: Structure, name: str, axis: int, present: Sequence[Any]) -> bool:
    labels = structure.labels[name][axis]
    if labels is None or counts(labels):
        return structure.shapes[name][axis] == len(present)
    return set(labels) == set(present)


def check_together(
    local: Sequence[str], first: Structure, second: Structure, together: Structure
) -> None:
    """Refuse local variables without labels that are fewer in both batches than one by one.

    Groups that each batch has its own of add up.
    """
    structures = (first, second, together)
    imputed = {name for each in structures for name in each.imputed}
    for name in local:
        if name in imputed or name not in together.shapes:
            continue
        for axis in differing_axes(first, second, name):
            labels = [each.labels[name][axis] for each in structures]
            own, other, both = (each.shapes[name][axis] for each in structures)
            is_numbered = all(each is None or counts(each) for each in labels)
            if is_numbered and both < own + other and not own == other == both:
                raise ValueError(
                    f"Free variable {name} has {own} elements in batch b0 and {other} in batch b1, "
                    f"but {both} in a model of both: some stand for the same in both, and batches "
                    f"cannot know which. Pass groups= by which each is in one batch only; if it "
                    "recurs in all groups, as months or countries do, "
                    f"{as_shared(first, name, axis)}."
                )

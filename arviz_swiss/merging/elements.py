"""The elements of merged variables: their order in the merge, and back to it by label.

A merged object belongs to its user, who may reorder, transpose and rename what is in it. Maps and
transforms go by the order that elements had in the merge, so that order is recorded with the maps,
and every function on merged objects brings the draws back to it first.
"""

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd
import xarray as xr

from arviz_swiss.data import schema
from arviz_swiss.data.containers import SAMPLE_DIMS, Groups
from arviz_swiss.data.layout import Layout, place, positions_of, with_times_as_stored
from arviz_swiss.data.messages import brief

MOST_NAMED = 8
MAP_DIMS = ("round", "batch", "parameter", "parameter_bis")
WHOLE = "Pass the merged object with all that was merged, and select from the result"


class Elements(NamedTuple):
    """One variable's dimensions and the labels of its elements, in the order of the merge."""

    dims: tuple[str, ...]
    labels: list[str]


def element_coords(own: Layout, moved: Layout, transformed: Collection[str]) -> dict[str, Any]:
    """Return coordinates that record the order of elements, on both scales where they differ."""
    changed = moved._replace(variables=tuple(v for v in moved.variables if v.name in transformed))
    return _record(schema.ELEMENT, own) | (
        _record(schema.UNCONSTRAINED_ELEMENT, changed) if changed.variables else {}
    )


def _record(along: str, layout: Layout) -> dict[str, Any]:
    dims = [json.dumps(each.dims) for each in layout.variables for _ in range(each.size)]
    return {
        along: layout.labels(),
        f"{along}_variable": (along, layout.owners()),
        f"{along}_dims": (along, dims),
    }


def _recorded(maps: xr.Dataset, along: str) -> dict[str, Elements]:
    labels, owners, dims = (
        maps[name].values.astype(str) for name in (along, f"{along}_variable", f"{along}_dims")
    )
    recorded = {}
    for name in dict.fromkeys(owners.tolist()):
        own = owners == name
        recorded[name] = Elements(tuple(json.loads(dims[own][0])), labels[own].tolist())
    return recorded


def in_order(groups: Groups, group: str) -> Groups:
    """Return the groups of a merged object with everything in the order of the merge.

    Elements are matched by label, dimensions by name, or by their labels where they were renamed;
    chains and draws come in the order of their labels, and the same in all groups.
    """
    maps = _transposed(groups[schema.TRANSFORM])
    maps = _along(maps, "parameter_bis", maps.get_index("parameter"), schema.TRANSFORM)
    ordered = {**groups, schema.TRANSFORM: maps}
    _check_draws(groups[group], maps, group)
    for name in (schema.DIAGNOSTICS, schema.PILOT):
        if name in groups:
            dataset = _transposed(groups[name])
            for dim in ("batch", "parameter", "parameter_bis"):
                dataset = _along(dataset, dim, maps.get_index(dim), name)
            ordered[name] = dataset
    draws = groups[group]
    for dim in SAMPLE_DIMS:
        if not (index := draws.get_index(dim)).is_monotonic_increasing:
            draws = draws.isel({dim: np.argsort(index.values, kind="stable")})
    ordered[group] = (
        _ordered(draws, maps, schema.ELEMENT, group) if schema.ELEMENT in maps.coords else draws
    )
    if schema.UNCONSTRAINED_ELEMENT in maps.coords:
        moved = schema.unconstrained(group)
        if moved not in groups:
            raise ValueError(
                f'the merged object has no group "{moved}" any more, which holds the draws in the '
                f"space of the merge. {WHOLE}."
            )
        alike = _same_draws(groups[moved], draws, moved)
        ordered[moved] = _ordered(alike, maps, schema.UNCONSTRAINED_ELEMENT, moved)
    for name in (schema.REDRAWN, schema.PRODUCT):
        if name in groups:
            ordered[name] = _same_draws(groups[name], draws, name)
    stats = ordered.pop(schema.SAMPLE_STATS, None)
    if stats is not None:
        with contextlib.suppress(ValueError):
            ordered[schema.SAMPLE_STATS] = _same_draws(stats, draws, schema.SAMPLE_STATS)
    return ordered


def as_given(groups: Groups, given: Groups) -> Groups:
    """Return groups that came from `in_order` with their draws in the order that was given."""
    return {
        name: _as_given(dataset, given[name])
        if name in given and "draw" in dataset.dims
        else dataset
        for name, dataset in groups.items()
    }


def others_that_vary(draws: xr.Dataset, moved: Collection[str]) -> list[str]:
    """Name variables of the draws that no map moves, and which change with those that it does."""
    dims = set(SAMPLE_DIMS)
    beside = {str(k): v for k, v in draws.items() if k not in moved and dims <= set(v.dims)}
    return [k for k, v in beside.items() if not (v == v.isel(chain=0, draw=0)).all()]


def _as_given(dataset: xr.Dataset, given: xr.Dataset) -> xr.Dataset:
    for dim in dataset.dims:
        present, before = dataset.get_index(dim), given.get_index(dim)
        if not present.equals(before):
            dataset = _selected(dataset, dim, before[before.isin(present)])
    arrays = {n: a for n, a in dataset.data_vars.items() if n in given and a.dims != given[n].dims}
    turned = {name: array.transpose(*given[name].dims) for name, array in arrays.items()}
    return dataset.assign(turned) if turned else dataset


def _selected(dataset: xr.Dataset, dim: Hashable, labels: pd.Index) -> xr.Dataset:
    """Return the elements with these labels; not by `sel`, which takes booleans as a mask."""
    return dataset.isel({dim: dataset.get_index(dim).get_indexer(labels)})


def _transposed(dataset: xr.Dataset) -> xr.Dataset:
    dims = [dim for dim in MAP_DIMS if dim in dataset.dims]
    return dataset.transpose(*dims, ...)


def _along(dataset: xr.Dataset, dim: str, labels: pd.Index, group: str) -> xr.Dataset:
    """Return the dataset with these labels along a dimension, in this order."""
    if dim not in dataset.dims or dataset.get_index(dim).equals(labels):
        return dataset
    if set(dataset.get_index(dim)) != set(labels):
        raise ValueError(
            f'group "{group}" has other labels along {dim} than group "{schema.TRANSFORM}": '
            f"something was selected from one of them. {WHOLE}."
        )
    return _selected(dataset, dim, labels)


def _check_draws(draws: xr.Dataset, maps: xr.Dataset, group: str) -> None:
    """Refuse draws without chain or draw, and those of batches that the maps do not have."""
    if missing := [dim for dim in SAMPLE_DIMS if dim not in draws.dims]:
        raise ValueError(
            f'group "{group}" has no dimension {" or ".join(missing)} any more, its dimensions are '
            f"{tuple(draws.dims)}. {WHOLE}."
        )
    if 0 in (draws.sizes[dim] for dim in SAMPLE_DIMS):
        raise ValueError(f'group "{group}" has no draws any more. {WHOLE}.')
    if "scale" in maps and "batch" not in draws.coords:
        raise ValueError(
            f'group "{group}" has no coordinate batch any more, which tells whose chains they are. '
            f"{WHOLE}."
        )
    if "batch" in draws.coords:
        known = set(maps["batch"].values.astype(str).tolist())
        owners = dict.fromkeys(draws["batch"].values.astype(str).tolist())
        if strange := [label for label in owners if label not in known]:
            raise ValueError(
                f'group "{group}" has chains of batch {", ".join(strange)}, which group '
                f'"{schema.TRANSFORM}" does not have any more. {WHOLE}.'
            )


def _same_draws(dataset: xr.Dataset, draws: xr.Dataset, group: str) -> xr.Dataset:
    """Return the dataset with the chains and draws of another, by label."""
    for dim in SAMPLE_DIMS:
        present, wanted = dataset.get_index(dim), draws.get_index(dim)
        if present.equals(wanted):
            continue
        if not (present.is_unique and wanted.isin(present).all()):
            raise ValueError(
                f'group "{group}" lacks draws that the merged draws have, along {dim}. Select '
                "chains and draws of all groups alike, or none."
            )
        dataset = _selected(dataset, dim, wanted)
    if "batch" in dataset.coords and "batch" in draws.coords:
        owners, expected = (each["batch"].values.astype(str) for each in (dataset, draws))
        if not np.array_equal(owners, expected):
            raise other_draws(group)
    return dataset


def other_draws(group: str) -> ValueError:
    """Return the error about a group whose draws are not those of the merged draws' labels."""
    return ValueError(
        f'group "{group}" holds other draws than the merged ones of the same labels. Select chains '
        "and draws of all groups alike, keep the labels of chain and draw, and change values in "
        "the result only."
    )


def _ordered(dataset: xr.Dataset, maps: xr.Dataset, along: str, group: str) -> xr.Dataset:
    """Return the draws with dimensions and elements in the order that is recorded."""
    for name, elements in _recorded(maps, along).items():
        if name not in dataset.data_vars:
            raise ValueError(
                f'group "{group}" has no variable {name} any more, which was merged. {WHOLE}.'
            )
        where = f'group "{group}", variable {name}'
        dims = _dims_of(dataset, name, elements, where)
        labels = _labels(dataset, name, dims)
        if labels != elements.labels:
            places = positions_of(elements.labels, labels)
            if places is None:
                _refuse_elements(labels, elements.labels, where)
            orders = _orders(places, [dataset.sizes[dim] for dim in dims])
            dataset = dataset.isel(dict(zip(dims, orders, strict=True)))
            if _labels(dataset, name, dims) != elements.labels:
                raise ValueError(f"{where}: the labels do not tell the elements apart. {WHOLE}.")
        if dataset[name].dims != (*SAMPLE_DIMS, *dims):
            dataset = dataset.assign({name: dataset[name].transpose(*SAMPLE_DIMS, *dims)})
    return dataset


def _dims_of(dataset: xr.Dataset, name: str, elements: Elements, where: str) -> tuple[str, ...]:
    """Return the variable's own dimensions in the order of the merge."""
    present = [str(dim) for dim in dataset[name].dims if dim not in SAMPLE_DIMS]
    if set(present) == set(elements.dims):
        return elements.dims
    if len(present) != len(elements.dims):
        raise ValueError(
            f"{where}: dimensions {tuple(present)}, but {elements.dims} when it was merged. "
            f"{WHOLE}."
        )
    candidates = list(_renamed(present, elements.dims))
    fitting = [
        dims for dims in candidates if set(_labels(dataset, name, dims)) == set(elements.labels)
    ]
    if not fitting:
        _refuse_elements(_labels(dataset, name, candidates[0]), elements.labels, where)
    if len(fitting) > 1:
        raise ValueError(
            f"{where}: dimensions {elements.dims} have become {tuple(present)}, and their labels "
            "do not tell which is which. Give at least one of them its name back."
        )
    return fitting[0]


def _renamed(present: Sequence[str], merged: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Give the ways in which dimensions can have been renamed; those with their names stay."""
    new = [dim for dim in present if dim not in merged]
    for names in itertools.permutations(new):
        rest = iter(names)
        yield tuple(dim if dim in present else next(rest) for dim in merged)


def _labels(dataset: xr.Dataset, name: str, dims: tuple[str, ...]) -> list[str]:
    variable = place(name, dims, tuple(dataset.sizes[dim] for dim in dims), 0)
    coords = {dim: dataset[dim] for dim in dims if dim in dataset.coords}
    return with_times_as_stored(Layout((variable,), coords)).labels()


def _refuse_elements(present: Sequence[str], expected: Sequence[str], where: str) -> NoReturn:
    """Say how elements are not those of the merge, each once."""
    counts, known = Counter(present), set(expected)
    missing = [label for label in expected if label not in counts]
    others = [label for label in present if label not in known]
    twice = [label for label, count in counts.items() if count > 1]
    reasons = (("without", missing), ("with the unknown", others), ("more than once with", twice))
    if len(missing) == len(expected) == len(others) == len(present):
        raise ValueError(
            f"{where}: the labels have changed, from {brief(expected, 3)} to {brief(present, 3)}. "
            "Give the elements their labels back (assign_coords), and relabel the result."
        )
    told = "; ".join(f"{word} {brief(labels, MOST_NAMED)}" for word, labels in reasons if labels)
    raise ValueError(f"{where}: not the elements that were merged: {told}. {WHOLE}.")


def _orders(places: np.ndarray, shape: Sequence[int]) -> list[np.ndarray]:
    """Return for each dimension the positions that bring the elements to these places."""
    return [
        np.moveaxis(index.reshape(shape), axis, 0).reshape(length, -1)[:, 0]
        for axis, (index, length) in enumerate(
            zip(np.unravel_index(places, shape), shape, strict=True)
        )
    ]

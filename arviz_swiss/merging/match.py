"""Batches that fit together: variables matched by name, their elements by coordinate label."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, NoReturn

import numpy as np
import pandas as pd

from arviz_swiss.data import schema
from arviz_swiss.data.containers import SAMPLE_DIMS, check_names
from arviz_swiss.data.layout import Layout, layout_of, positions_of, with_times_as_stored
from arviz_swiss.data.selection import checked_names, select_names
from arviz_swiss.merging.batches import Batch, own_dims

# By dimension: where the first batch's labels are, or None if these are not the same.
Orders = dict[str, np.ndarray | None]


class Matched(NamedTuple):
    """Batches whose shared variables agree, and the layout of those variables."""

    batches: list[Batch]
    layout: Layout
    local: list[str]
    deterministic: list[str]


class Roles(NamedTuple):
    """A batch's variables: those to merge or to go along, and, where known, deterministic ones."""

    parameters: list[str]
    deterministic: list[str]


def match(
    batches: Sequence[Batch],
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    free: Sequence[str] | None = None,
) -> Matched:
    """Match variables by name, coordinates by label; `free` are a model's free variables."""
    return match_roles(batches, find_roles(batches, var_names, filter_vars, free))


def find_roles(
    batches: Sequence[Batch],
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    free: Sequence[str] | None = None,
) -> list[Roles]:
    """Return what the user, a model or the sampling say of every batch's variables."""
    names, own = checked_names(var_names, filter_vars), recorded_local(batches)
    recorded = batches[0].attrs.get(schema.SAMPLED_VARIABLES)
    roles = []
    for batch in batches:
        sampled = free
        if free is None:
            sampled = batch.attrs.get(schema.SAMPLED_VARIABLES, recorded)
        roles.append(_roles(batch, names, filter_vars, sampled, free is not None, own))
    return roles


def recorded_local(batches: Sequence[Batch]) -> set[str]:
    """Return the variables that the sampling found to belong to one batch alone."""
    return {name for batch in batches for name in batch.attrs.get(schema.LOCAL, "").split(",")}


def match_roles(batches: Sequence[Batch], roles: Sequence[Roles]) -> Matched:
    """Match the variables to merge by name, coordinates by label."""
    first, own = batches[0], recorded_local(batches)
    parameters = [each.parameters for each in roles]
    _check_names(batches, parameters, own)
    names = [name for name in parameters[0] if name not in own]
    for batch in batches:
        for name in names:
            _check_variable(first, batch, name)
    orders = _orders(first, batches, names)
    shared = _shared(batches, names, orders)
    merged = set(shared)
    local = [name for name in _union(parameters) if name not in merged]
    if not shared:
        raise ValueError(
            f"no variable is shared by all batches: the coordinates of {', '.join(local)} differ "
            "between batches. Give shared parameters the same dims and coords in every batch."
        )
    _check_unique(first, shared)
    layout = with_times_as_stored(layout_of(first.draws, shared))
    check_labels(first, layout)
    indexers = [_indexers(first, orders_of_batch, shared) for orders_of_batch in orders]
    matched = [b._replace(indexers=each) for b, each in zip(batches, indexers, strict=True)]
    return Matched(matched, layout, local, _union(each.deterministic for each in roles))


def match_to(first: Batch, other: Batch, layout: Layout) -> Batch:
    """Return `other` with its coordinates matched to those of `first`."""
    for name in layout.names:
        if name not in other.draws.data_vars:
            raise ValueError(
                f'{other}: group "{other.group}" has no variable {name}, which is merged.'
            )
        _check_variable(first, other, name)
    orders = _orders(first, [other], layout.names)[0]
    for name in layout.names:
        if not _has_same_labels(first, name, orders):
            raise ValueError(
                f'{other}, variable {name}: coordinates of group "{other.group}" differ from those '
                f"of {first}."
            )
    return other._replace(indexers=_indexers(first, orders, layout.names))


def check_holdable(matched: Matched, container: str) -> None:
    """Refuse variables and dimensions that the merged object cannot hold by their names."""
    if container != "DataTree":
        return
    dims = (dim for variable in matched.layout.variables for dim in variable.dims)
    try:
        check_names([*matched.layout.names, *matched.local, *dims])
    except ValueError as error:
        raise ValueError(f"{matched.batches[0]}, {error} (var_names)") from error


def _roles(
    batch: Batch,
    var_names: str | list[str] | None,
    filter_vars: str | None,
    sampled: str | Sequence[str] | None,
    has_model: bool,
    local: Collection[str],
) -> Roles:
    """Return the batch's variables to merge and, where something tells, the deterministic ones."""
    names = select_names(batch.draws, var_names, filter_vars, where=f"{batch}: ")
    chosen = np.atleast_1d([] if var_names is None or has_model else var_names).tolist()
    if sampled is None or not all(name.startswith("~") for name in chosen):
        return Roles(names, [])
    free = set(np.atleast_1d(sampled).tolist())
    if has_model and (missing := free - set(batch.draws.data_vars) - set(local)):
        raise ValueError(
            f"{batch} has no variable {', '.join(sorted(missing))}, which the model has. Pass the "
            "plain model that the batches were sampled with."
        )
    parameters = [name for name in names if name in free or name in local] or names
    merged = set(parameters)
    return Roles(parameters, [name for name in names if name not in merged])


def _union(names: Iterable[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(name for some in names for name in some))


def _shared(batches: Sequence[Batch], names: Sequence[str], orders: Sequence[Orders]) -> list[str]:
    """Return the variables with the same elements in all batches; refuse those with some."""
    first, shared = batches[0], []
    for name in names:
        if all(_has_same_labels(first, name, own) for own in orders):
            shared.append(name)
        else:
            _check_apart(batches, name)
    return shared


def _check_unique(batch: Batch, names: Sequence[str]) -> None:
    for name in names:
        for dim in own_dims(batch, name):
            index = _index(batch, dim)
            if not index.is_unique:
                twice = index[index.duplicated()][0]
                raise ValueError(
                    f"{batch}, variable {name}: the label {twice!r} of dimension {dim} occurs more "
                    "than once, so elements cannot be matched by label. Give unique labels."
                )


def _check_names(
    batches: Sequence[Batch], parameters: Sequence[Sequence[str]], local: Collection[str]
) -> None:
    """Refuse batches without the same parameters, those of one batch alone aside."""
    first, expected = batches[0], dict.fromkeys(n for n in parameters[0] if n not in local)
    for batch, names in zip(batches, parameters, strict=True):
        present = set(names)
        missing = [name for name in expected if name not in present]
        extra = [name for name in names if name not in expected and name not in local]
        for poor, rich, lacking in ((batch, first, missing), (first, batch, extra)):
            if lacking:
                raise ValueError(
                    f"{poor} has no variable {', '.join(lacking)}, which {rich} has. Every batch "
                    "needs the same variables; choose shared ones with var_names."
                )
    for batch, names in zip(batches, parameters, strict=True):
        variables = batch.draws.variables
        labelled = variables["batch"].dims if "batch" in variables else ()
        taken = {"batch", *labelled} - set(SAMPLE_DIMS)
        if wrong := [n for n in names if n == "batch" or taken & set(variables[n].dims)]:
            raise ValueError(
                f'{batch}, variable {wrong[0]}: merge calls the batches "batch", so no variable, '
                "dimension or coordinate can have that name. Rename it."
            )


def _check_variable(first: Batch, batch: Batch, name: str) -> None:
    array, expected = batch.draws.variables[name], first.draws.variables[name]
    if not set(SAMPLE_DIMS) <= set(array.dims):
        raise ValueError(
            f"{batch}, variable {name}: dimensions {array.dims}, expected (chain, draw, ...). "
            f'Leave it out with var_names="~{name}".'
        )
    if array.dtype.kind != "f":
        raise ValueError(
            f"{batch}, variable {name}: dtype {array.dtype}. Only real-valued parameters can be "
            f'merged; leave discrete ones out with var_names="~{name}", or convert it to float.'
        )
    if set(array.dims) != set(expected.dims):
        raise ValueError(
            f"{batch}, variable {name}: dimensions {array.dims}, but {expected.dims} in {first}. "
            "Rename them to agree."
        )


def _index(batch: Batch, dim: str) -> pd.Index:
    variables = batch.draws.variables
    return variables[dim].to_index() if dim in variables else pd.RangeIndex(batch.draws.sizes[dim])


def _orders(first: Batch, batches: Sequence[Batch], names: Sequence[str]) -> list[Orders]:
    """Return each batch's orders of the dimensions whose labels are not those of the first."""
    dims = _union(own_dims(first, name) for name in names)
    expected = {dim: _index(first, dim) for dim in dims}
    orders: list[Orders] = []
    for batch in batches:
        present = {dim: _index(batch, dim) for dim in dims}
        other = [dim for dim in dims if not expected[dim].equals(present[dim])]
        orders.append({dim: positions_of(expected[dim], present[dim]) for dim in other})
    return orders


def _has_same_labels(first: Batch, name: str, orders: Orders) -> bool:
    return not orders or all(orders.get(dim, ()) is not None for dim in own_dims(first, name))


def _check_apart(batches: Sequence[Batch], name: str) -> None:
    """Refuse a variable of which two batches share some elements, by labels that say something."""
    for dim in own_dims(batches[0], name):
        indices = [_index(batch, dim) for batch in batches]
        if all(index.equals(indices[0]) for index in indices):
            continue
        if all(index.equals(pd.RangeIndex(len(index))) for index in indices):
            continue
        owners: dict[str, int] = {}
        for position, index in enumerate(indices):
            for label in map(str, index):
                other = owners.setdefault(label, position)
                if other != position and positions_of(indices[other], index) is None:
                    _refuse_overlap(name, dim, label, batches[other], batches[position])


def _refuse_overlap(name: str, dim: str, label: str, first: Batch, other: Batch) -> NoReturn:
    known, present = ({str(label) for label in _index(batch, dim)} for batch in (first, other))
    if known == present:
        types = " and ".join(str(_index(batch, dim).dtype) for batch in (first, other))
        raise ValueError(
            f"variable {name}: the labels of dimension {dim} are the same as text in {first} and "
            f"{other}, but not equal (types {types}). Give all batches labels of one type."
        )
    odd = sorted(known ^ present)[0]
    has, lacks = (first, other) if odd in known else (other, first)
    raise ValueError(
        f"variable {name}: both {first} and {other} have the label {label!r} of dimension {dim}, "
        f"but {odd!r} is in {has} and not in {lacks}. If {name} is shared, give it the same labels "
        "in every batch, absent levels too; if it belongs to groups, put whole groups into one "
        "batch (groups=)."
    )


def _indexers(first: Batch, orders: Orders, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the orders of these variables' dimensions."""
    dims = _union(own_dims(first, name) for name in names) if orders else []
    return {dim: order for dim in dims if (order := orders.get(dim)) is not None}


def check_labels(batch: Batch, layout: Layout) -> None:
    """Refuse elements that have the same label as text, by which a merged object knows them."""
    labels, owners = layout.labels(), layout.owners()
    seen: dict[str, int] = {}
    for position, label in enumerate(labels):
        both = seen.setdefault(label, position), position
        if both[0] < position:
            elements = " and ".join(_element(layout, place) for place in both)
            names = " and ".join(dict.fromkeys(owners[place] for place in both))
            raise ValueError(
                f"{batch}, variable {names}: {elements} would both be called {label}, so they "
                "could not be told apart. Rename a coordinate label or a variable."
            )


def _element(layout: Layout, position: int) -> str:
    """Describe one element, by dimension and coordinate label."""
    variable = next(v for v in layout.variables if position < v.columns.stop)
    index = np.unravel_index(position - variable.columns.start, variable.shape)
    along = [
        f"{dim}={layout.coords[dim].values[at]!s}" if dim in layout.coords else f"{dim}={at}"
        for dim, at in zip(variable.dims, index, strict=True)
    ]
    return f"{variable.name} ({'; '.join(along)})" if along else variable.name

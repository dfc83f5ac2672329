"""The batches' data, put together again."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from arviz_swiss.data import containers, schema
from arviz_swiss.merging.batches import Batch

DATA_GROUPS = ("observed_data", "constant_data")
# Joined in other ways, or not at all for a reason that is said elsewhere.
OTHER_GROUPS = ("sample_stats",)
# Of so many orders that the batches could have, one that is sorted is no chance.
ENOUGH_ORDERS = 1000


class Order(NamedTuple):
    """Positions that bring labels, batches end to end, into an order: the full data's, if known."""

    positions: np.ndarray
    is_known: bool


class JoinedData(NamedTuple):
    """The data groups, what could not be joined, and dimensions of unknown order."""

    groups: containers.Groups
    left_out: list[str]
    unordered: list[str]


def order_of(indices: Sequence[pd.Index], wanted: Sequence[Any] | None = None) -> Order:
    """Return the order of the batches' labels in the full data.

    That is the order of `wanted`, a model's labels, if it has them all; else they are sorted. A
    batch keeps the order of the rows that it was given, so that batches whose labels are not sorted
    show that the full data's are not. Labels that are sorted in every batch show that the full
    data's are, if there are enough of them that chance would not do it, or if they are 0, 1, ...
    """
    labels = indices[0].append(list(indices[1:]))
    if wanted is not None and (wanted := pd.Index(wanted)).is_unique:
        places = wanted.get_indexer(labels)
        if (places >= 0).all():
            return Order(np.argsort(places, kind="stable"), True)
    try:
        positions = np.asarray(labels.argsort(kind="stable"))
    except TypeError:  # numbers and text cannot be compared
        return Order(np.arange(len(labels)), False)
    if not all(index.is_monotonic_increasing for index in indices):
        return Order(positions, False)
    is_evident = (
        len(indices) == 1
        or labels[positions].equals(pd.RangeIndex(len(labels)))
        or sum(math.lgamma(len(index) + 1) for index in indices) > math.log(ENOUGH_ORDERS)
    )
    return Order(positions, is_evident)


def join_data(
    batches: Sequence[Batch],
    coords: Mapping[str, Sequence[Any] | None] | None = None,
    local_dims: Collection[str] = (),
) -> JoinedData:
    """Return the batches' data groups, joined in the order of their labels.

    A variable that is the same in all batches is kept once. One whose labels along one dimension
    are all different is joined there. Labels that repeat, such as default 0, 1, ..., do not tell
    the rows apart: such a variable is left out.

    Parameters
    ----------
    coords : mapping of dimension to labels, optional
        The model's, which give the order if they hold the labels of all batches.
    local_dims : collection of str
        Dimensions of variables of one batch alone. Data that number their elements within a batch,
        such as the group of each row, number other elements in the merged object: left out.
    """
    groups, left_out, unordered = {}, [], {}
    rows = _lengths_of_rows(batches)
    for group in DATA_GROUPS:
        datasets = [batch.groups.get(group) for batch in batches]
        present = [dataset for dataset in datasets if dataset is not None]
        names = list(dict.fromkeys(name for dataset in present for name in dataset.data_vars))
        arrays = {}
        for name in names:
            parts = [dataset[name] for dataset in present if name in dataset]
            if len(parts) < len(batches) or any(part.dims != parts[0].dims for part in parts):
                left_out.append(f"{group}/{name}")
            elif len(parts) > 1 and (
                _has_unlabelled_rows(parts, rows)
                or (group == "constant_data" and _number_elements(parts, batches, local_dims))
            ):
                left_out.append(f"{group}/{name}")
            elif all(parts[0].equals(part) for part in parts[1:]):
                arrays[name] = parts[0].copy(deep=True).load()
            elif (dim := _dim_to_join(parts)) is None:
                left_out.append(f"{group}/{name}")
            else:
                order = order_of([part.get_index(dim) for part in parts], (coords or {}).get(dim))
                arrays[name] = _concatenated(parts, dim).isel({dim: order.positions})
                if not order.is_known:
                    unordered[dim] = None
        if arrays:
            attrs = containers.safe_attrs(present[0].attrs)
            groups[group] = xr.Dataset(arrays).assign_attrs(attrs)
    return JoinedData(groups, left_out, list(unordered))


def groups_not_joined(batches: Sequence[Batch]) -> list[str]:
    """Name the batches' groups of which a merged object has nothing.

    What was computed from the draws, such as log likelihoods, is not valid at moved ones.
    """
    merged = batches[0].group
    used = {merged, schema.unconstrained(merged), *DATA_GROUPS, *OTHER_GROUPS}
    found = sorted({name for batch in batches for name in batch.groups})
    return [name for name in found if name not in used and not name.startswith("swiss_")]


def _lengths_of_rows(batches: Sequence[Batch]) -> set[tuple[int, ...]]:
    """Return the numbers of rows, by batch, of observed variables whose labels are default ones."""
    lengths = set()
    observed = [batch.groups.get("observed_data") for batch in batches]
    if any(dataset is None for dataset in observed):
        return lengths
    for name, array in observed[0].data_vars.items():
        if array.dims and all(
            name in dataset and dataset[name].dims == array.dims for dataset in observed
        ):
            parts = [dataset[name] for dataset in observed]
            if all(_is_default(part, array.dims[0]) for part in parts):
                lengths.add(tuple(part.shape[0] for part in parts))
    return lengths


def _has_unlabelled_rows(parts: Sequence[xr.DataArray], rows: Collection[tuple[int, ...]]) -> bool:
    """Tell rows that are without labels: what is equal in all batches may yet be other rows."""
    first = parts[0]
    return bool(first.dims) and (
        all(_is_default(part, first.dims[0]) for part in parts)
        and tuple(part.shape[0] for part in parts) in rows
    )


def _number_elements(
    parts: Sequence[xr.DataArray], batches: Sequence[Batch], dims: Collection[str]
) -> bool:
    """Tell data that count, in every batch, all elements along a dimension of that batch."""
    if any(part.dtype.kind not in "iu" for part in parts):
        return False
    found = [np.unique(part.values) for part in parts]
    return any(
        all(
            np.array_equal(numbers, np.arange(batch.draws.sizes[dim]))
            for numbers, batch in zip(found, batches, strict=True)
        )
        for dim in dims
    )


def _is_default(array: xr.DataArray, dim: str) -> bool:
    return array.get_index(dim).equals(pd.RangeIndex(array.sizes[dim]))


def _dim_to_join(arrays: Sequence[xr.DataArray]) -> str | None:
    """Return the one dimension along which the batches' labels all differ."""
    first = arrays[0]
    differing = [
        dim
        for dim in first.dims
        if not all(first.get_index(dim).equals(array.get_index(dim)) for array in arrays[1:])
    ]
    if len(differing) != 1 or differing[0] not in first.coords:
        return None
    (dim,) = differing
    labels = [array.get_index(dim) for array in arrays]
    return dim if labels[0].append(labels[1:]).is_unique else None


def _concatenated(arrays: Sequence[xr.DataArray], dim: str) -> xr.DataArray:
    return xr.concat(arrays, dim=dim, join="exact", coords="minimal", compat="override").load()

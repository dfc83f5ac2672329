"""What the batches hold beside their draws, put together again: data, the samplers' statistics."""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import SAMPLE_DIMS, Groups
from arviz_swiss.merging.batches import Batch
from arviz_swiss.merging.combine import Draws

DATA_GROUPS = (schema.OBSERVED_DATA, schema.CONSTANT_DATA)
# Not valid at moved draws.
MOVED_STATS = {"lp", "logp", "model_logp", "energy"}
# Of so many orders that the batches could have, one that is sorted is no chance.
ENOUGH_ORDERS = 1000


class Order(NamedTuple):
    """Positions that bring labels, batches end to end, into an order: the full data's, if known."""

    positions: np.ndarray
    is_known: bool


def order_of(indices: Sequence[pd.Index], wanted: Sequence[Any] | None = None) -> Order:
    """Return the order of the batches' labels in the full data.

    That is the order of `wanted`, a model's labels, if it has them all; else they are sorted. A
    batch keeps the order of the rows that it was given, so that batches whose labels are not sorted
    show that the full data's are not. Labels that are sorted in every batch show that the full
    data's are, if there are enough of them that chance would not do it, or if they are 0, 1, ...
    """
    labels = indices[0].append(list(indices[1:]))
    known = None if wanted is None else pd.Index(wanted)
    if known is not None and known.is_unique:
        places = known.get_indexer(labels)
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


class Joined(NamedTuple):
    """The batches' other groups, what could not be joined, and dimensions of unknown order."""

    groups: Groups
    left_out: list[str]
    unordered: list[str]


def join_groups(
    batches: Sequence[Batch],
    draws: Draws,
    coords: Mapping[str, Sequence[Any] | None],
    local_dims: Collection[str],
) -> Joined:
    """Return what the batches hold beside their draws, put together again.

    `coords` are a model's labels by dimension, which give the order if they hold those of all
    batches. Data that number the elements along `local_dims` within a batch, such as the group of
    each row, would number other elements in the merged object: left out.
    """
    data = _join_data(batches, coords, local_dims)
    left_out = data.left_out + _groups_not_joined(batches)
    stats = _join_stats(batches, draws)
    if stats is not None:
        return Joined({schema.SAMPLE_STATS: stats, **data.groups}, left_out, data.unordered)
    if any(schema.SAMPLE_STATS in batch.groups for batch in batches):
        left_out.append(schema.SAMPLE_STATS)
    return data._replace(left_out=left_out)


def _join_data(
    batches: Sequence[Batch],
    coords: Mapping[str, Sequence[Any] | None],
    local_dims: Collection[str],
) -> Joined:
    """Return the batches' data groups, joined in the order of their labels.

    A variable that is the same in all batches is kept once. One whose labels along one dimension
    are all different is joined there. Labels that repeat, such as default 0, 1, ..., do not tell
    the rows apart: such a variable is left out.
    """
    data, rows = Joined({}, [], []), _lengths_of_rows(batches)
    for group in DATA_GROUPS:
        present = [batch.groups[group] for batch in batches if group in batch.groups]
        numbered_dims = local_dims if group == schema.CONSTANT_DATA else ()
        arrays = {}
        for name in dict.fromkeys(name for dataset in present for name in dataset.data_vars):
            parts = [dataset[name] for dataset in present if name in dataset]
            can_join = _can_join(parts, batches, rows, numbered_dims)
            array, unordered = _join(parts, coords) if can_join else (None, [])
            if array is None:
                data.left_out.append(f"{group}/{name}")
            else:
                arrays[name] = array
                data.unordered.extend(unordered)
        if arrays:
            attrs = containers.safe_attrs(present[0].attrs)
            data.groups[group] = xr.Dataset(arrays).assign_attrs(attrs)
    return data


def _can_join(
    parts: Sequence[xr.DataArray],
    batches: Sequence[Batch],
    rows: Collection[tuple[int, ...]],
    numbered_dims: Collection[str],
) -> bool:
    """Tell a variable of all batches, of which it is clear what its rows and values stand for."""
    if len(parts) < len(batches) or any(part.dims != parts[0].dims for part in parts):
        return False
    return len(parts) == 1 or not (
        _has_unlabelled_rows(parts, rows) or _number_elements(parts, batches, numbered_dims)
    )


def _join(
    parts: Sequence[xr.DataArray], coords: Mapping[str, Sequence[Any] | None]
) -> tuple[xr.DataArray | None, list[str]]:
    """Return one variable of all batches, if it can be joined, and its dimensions not in order."""
    if all(parts[0].equals(part) for part in parts[1:]):
        return parts[0].copy(deep=True).load(), []
    dim = _dim_to_join(parts)
    if dim is None:
        return None, []
    order = order_of([part.get_index(dim) for part in parts], coords.get(dim))
    joined = xr.concat(parts, dim=dim, join="exact", coords="minimal", compat="override").load()
    return joined.isel({dim: order.positions}), [] if order.is_known else [dim]


def _groups_not_joined(batches: Sequence[Batch]) -> list[str]:
    """Name the batches' groups of which a merged object has nothing.

    What was computed from the draws, such as log likelihoods, is not valid at moved ones.
    """
    merged = batches[0].group
    used = {merged, schema.unconstrained(merged), *DATA_GROUPS, schema.SAMPLE_STATS}
    present = sorted({name for batch in batches for name in batch.groups})
    return [name for name in present if name not in used and not name.startswith(schema.PREFIX)]


def _lengths_of_rows(batches: Sequence[Batch]) -> set[tuple[int, ...]]:
    """Return the numbers of rows, by batch, of observed variables whose labels are default ones."""
    lengths: set[tuple[int, ...]] = set()
    groups = [batch.groups.get(schema.OBSERVED_DATA) for batch in batches]
    observed = [dataset for dataset in groups if dataset is not None]
    if len(observed) < len(groups):
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
    numbers_of = [np.unique(part.values) for part in parts]
    return any(
        all(
            np.array_equal(numbers, np.arange(batch.draws.sizes[dim]))
            for numbers, batch in zip(numbers_of, batches, strict=True)
        )
        for dim in dims
    )


def _is_default(array: xr.DataArray, dim: Hashable) -> bool:
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
    return str(dim) if labels[0].append(labels[1:]).is_unique else None


def _join_stats(batches: Sequence[Batch], draws: Draws) -> xr.Dataset | None:
    """Return the sampler's statistics, one value a draw, that all batches have, chains end to end.

    None for new draws, and where a batch has no statistics, or not for all of its draws.
    """
    sampled = (schema.POSTERIOR, schema.unconstrained(schema.POSTERIOR))
    if draws.owners is None or batches[0].group not in sampled:
        return None
    stats = [own for batch in batches if (own := _stats_of(batch, draws.length)) is not None]
    if len(stats) < len(batches):
        return None
    names = [name for name in stats[0].data_vars if all(name in own for own in stats)]
    if not names:
        return None
    return xr.Dataset(
        {name: (SAMPLE_DIMS, np.concatenate([own[name].values for own in stats])) for name in names}
    )


def _stats_of(batch: Batch, length: int) -> xr.Dataset | None:
    """Return a batch's statistics for the draws that are kept, matched by label."""
    stats = batch.groups.get(schema.SAMPLE_STATS)
    if stats is None:
        return None
    names = [
        name
        for name, array in stats.data_vars.items()
        if set(array.dims) == set(SAMPLE_DIMS) and name not in MOVED_STATS
    ]
    stats = stats[names].transpose(*SAMPLE_DIMS, missing_dims="ignore")
    wanted = batch.draws[list(SAMPLE_DIMS)].isel(draw=slice(length))
    for dim in SAMPLE_DIMS:
        if dim not in stats.dims:
            return None
        if stats.get_index(dim).equals(wanted.get_index(dim)):
            continue
        try:
            stats = stats.sel({dim: wanted.get_index(dim)})
        except (KeyError, ValueError, pd.errors.InvalidIndexError):
            return None
    return stats

"""What the batches hold beside their draws, put together again: data, the samplers' statistics."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import SAMPLE_DIMS, Groups
from arviz_swiss.merging.batches import Batch

DATA_GROUPS = (schema.OBSERVED_DATA, schema.CONSTANT_DATA)
# Not valid at moved draws.
MOVED_STATS = {"lp", "logp", "model_logp", "energy", schema.LOG_WEIGHT}
# Groups whose draws the samplers' statistics are of.
SAMPLED = (schema.POSTERIOR, schema.unconstrained(schema.POSTERIOR))
# Of so many orders that the batches could have, one that is sorted is no chance.
ENOUGH_ORDERS = 1000


class Order(NamedTuple):
    """Positions that bring labels, batches end to end, into an order: the full data's, if known."""

    positions: np.ndarray
    is_known: bool


def order_of(indices: Sequence[pd.Index], wanted: Sequence[Any] | None = None) -> Order:
    """Return the order of the batches' labels in the full data.

    That is the order of `wanted`, a model's labels, if it has them all; else they are sorted. That
    is known to be right if every batch's labels, which keep the order of the rows, are sorted, and
    are 0, 1, ... or too many for chance.
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
    coords: Mapping[str, Sequence[Any] | None],
    local_dims: Collection[str],
    stats: Collection[str],
) -> Joined:
    """Return the batches' data, in the order of a model's `coords`, and what is left out.

    Data that number the elements along `local_dims` within a batch, such as the group of each row,
    would number other elements in the merged object: left out. `stats` are the samplers' statistics
    that are kept.
    """
    groups, left_out, unordered = _join_data(batches, coords, local_dims)
    # What was computed from the draws, such as log likelihoods, is not valid at moved ones.
    merged = batches[0].group
    used = {merged, schema.unconstrained(merged), *DATA_GROUPS, schema.SAMPLE_STATS}
    rest = {name for batch in batches for name in batch.groups} - used
    left_out += sorted(name for name in rest if not name.startswith(schema.PREFIX))
    if not stats and any(schema.SAMPLE_STATS in batch.groups for batch in batches):
        left_out.append(schema.SAMPLE_STATS)
    return Joined(groups, left_out, unordered)


def _join_data(
    batches: Sequence[Batch],
    coords: Mapping[str, Sequence[Any] | None],
    local_dims: Collection[str],
) -> Joined:
    """Return the data groups: what is the same in all batches once, the rest joined by label.

    Labels that repeat, such as default 0, 1, ..., do not tell rows apart: left out.
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
    # Of rows without labels, what is equal in all batches may yet be other rows.
    return len(parts) == 1 or not (
        _default_lengths(parts) in rows or _number_elements(parts, batches, numbered_dims)
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


def _lengths_of_rows(batches: Sequence[Batch]) -> set[tuple[int, ...]]:
    """Return the numbers of rows, by batch, of observed variables whose labels are default ones."""
    observed = [b.groups[schema.OBSERVED_DATA] for b in batches if schema.OBSERVED_DATA in b.groups]
    lengths = set()
    for name, array in observed[0].data_vars.items() if len(observed) == len(batches) else ():
        parts = [dataset[name] for dataset in observed if name in dataset]
        if len(parts) == len(batches) and all(part.dims == array.dims for part in parts):
            lengths.add(_default_lengths(parts))
    return lengths - {()}


def _default_lengths(parts: Sequence[xr.DataArray]) -> tuple[int, ...]:
    """Return the lengths of the first dimension, if it has default labels in all batches."""
    dims = parts[0].dims[:1]
    is_default = dims and all(
        part.get_index(dims[0]).equals(pd.RangeIndex(part.shape[0])) for part in parts
    )
    return tuple(part.shape[0] for part in parts) if is_default else ()


def _number_elements(
    parts: Sequence[xr.DataArray], batches: Sequence[Batch], dims: Collection[str]
) -> bool:
    """Tell data that count, in every batch, all elements along a dimension of that batch."""
    if any(part.dtype.kind not in "iu" for part in parts):
        return False
    pairs = [(np.unique(part), batch.draws) for part, batch in zip(parts, batches, strict=True)]
    return any(
        all(np.array_equal(numbers, np.arange(draws.sizes[dim])) for numbers, draws in pairs)
        for dim in dims
    )


def _dim_to_join(arrays: Sequence[xr.DataArray]) -> str | None:
    """Return the one dimension along which the batches' labels all differ."""
    labels = {dim: [array.get_index(dim) for array in arrays] for dim in arrays[0].dims}
    differing = [d for d, (first, *rest) in labels.items() if not all(map(first.equals, rest))]
    if len(differing) != 1 or differing[0] not in arrays[0].coords:
        return None
    first, *rest = labels[differing[0]]
    return str(differing[0]) if first.append(rest).is_unique else None


def shared_stats(batches: Sequence[Batch], length: int) -> list[str]:
    """Name the statistics that all batches have of so many draws a chain."""
    first, *others = (stats_of(batch, length) for batch in batches)
    return [name for name in first if all(name in other for other in others)]


def stats_dtypes(batches: Sequence[Batch], names: Sequence[str]) -> dict[str, np.dtype]:
    """Return the dtype by name that holds the values of all batches."""
    stats = [batch.groups[schema.SAMPLE_STATS].variables for batch in batches] if names else []
    return {name: np.result_type(*(own[name].dtype for own in stats)) for name in names}


def join_stats(
    batches: Sequence[Batch], dtypes: Mapping[str, np.dtype], length: int
) -> xr.Dataset | None:
    """Return these statistics of so many draws a chain, batches end to end; None for none."""
    if not dtypes:
        return None
    stats = [s for batch in batches if (s := _kept_stats(batch, length)) is not None]
    return xr.Dataset(
        {
            name: (SAMPLE_DIMS, np.concatenate([own[name].values for own in stats]).astype(dtype))
            for name, dtype in dtypes.items()
        }
    )


def stats_of(batch: Batch, length: int) -> list[str]:
    """Name a batch's statistics of so many draws a chain that are valid at moved ones, too."""
    if batch.group not in SAMPLED or schema.SAMPLE_STATS not in batch.groups:
        return []
    stats = _kept_stats(batch, length)
    return [] if stats is None else [str(name) for name in stats.data_vars]


def _kept_stats(batch: Batch, length: int) -> xr.Dataset | None:
    """Return a batch's statistics for the draws that are kept, matched by label."""
    stats = batch.groups.get(schema.SAMPLE_STATS)
    if stats is None:
        return None
    by_draw = [n for n, array in stats.data_vars.items() if set(array.dims) == set(SAMPLE_DIMS)]
    stats = stats[[name for name in by_draw if name not in MOVED_STATS]].transpose(
        *SAMPLE_DIMS, missing_dims="ignore"
    )
    wanted = batch.draws[list(SAMPLE_DIMS)].isel(draw=slice(length))
    if not set(SAMPLE_DIMS) <= set(stats.dims):
        return None
    labels = {dim: wanted.get_index(dim) for dim in SAMPLE_DIMS}
    other = {dim: own for dim, own in labels.items() if not own.equals(stats.get_index(dim))}
    try:
        return stats.sel(other)
    except (KeyError, ValueError, pd.errors.InvalidIndexError):
        return None

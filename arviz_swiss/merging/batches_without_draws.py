"""Batches without their draws: what names, dimensions and labels they have, and a few numbers.

Where draws may not travel, a stand-in takes the batch's place in all that asks for no draw: its
variables have the dimensions, labels, dtypes and attributes of the batch's, and one value, repeated
without taking memory, that tells the range of its draws.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import SAMPLE_DIMS, Groups
from arviz_swiss.data.layout import Layout, dataset_from, layout_of
from arviz_swiss.merging.batches import Batch
from arviz_swiss.merging.powers import observed_sizes

# Values that stand for draws: between 0 and 1, positive, any, or not all finite.
BETWEEN, POSITIVE, ANY, NOT_FINITE = 0.5, 2.0, -1.0, np.nan


def variables_of(batch: Batch, names: Iterable[str]) -> xr.Dataset:
    """Return the named variables without their draws, each with one value for all its draws."""
    layout = layout_of(batch.draws, list(names))
    arrays = {}
    for variable in layout.variables:
        stored = batch.draws.variables[variable.name]
        value = _value_of(np.asarray(stored.copy(deep=False).values))
        kept = value if stored.dtype.kind == "f" else 0
        arrays[variable.name] = np.full(variable.shape, kept, stored.dtype)
    dataset = dataset_from(arrays, layout, {}, sample_dims=())
    for name in dataset.data_vars:
        dataset[name].attrs = containers.safe_attrs(batch.draws[name].attrs)
    return dataset.assign_attrs(containers.safe_attrs(batch.attrs))


def _value_of(draws: np.ndarray) -> float:
    """Return what stands for the draws of one variable."""
    if draws.dtype.kind != "f" or not np.isfinite(draws).all():
        return NOT_FINITE
    if draws.min(initial=1.0) > 0:
        return BETWEEN if draws.max(initial=0.0) < 1 else POSITIVE
    return ANY


def variables_in(layout: Layout) -> xr.Dataset:
    """Return the variables of a layout without draws."""
    arrays = {variable.name: np.zeros(variable.shape) for variable in layout.variables}
    return dataset_from(arrays, layout, {}, sample_dims=())


def layout_in(variables: xr.Dataset) -> Layout:
    """Return the layout of variables without draws, in their order."""
    return layout_of(variables, [str(name) for name in variables.data_vars])


def facts_of(batch: Batch) -> dict[str, Any]:
    """Return what the merge asks of a batch's other groups: numbers of rows and divergences."""
    diverging = batch.groups.get(schema.SAMPLE_STATS, {}).get("diverging")
    sizes = observed_sizes([batch])
    return {
        "chains": batch.sizes[0],
        "length": batch.sizes[1],
        "divergent": None if diverging is None else float(diverging.mean()),
        "observed_size": None if sizes is None else sizes[0],
    }


def stand_in(
    label: str,
    position: int,
    variables: xr.Dataset,
    group: str,
    facts: Mapping[str, Any],
    file: str = "",
) -> Batch:
    """Return a batch without draws, by its variables and facts."""
    shape = (facts["chains"], facts["length"])
    draws = xr.Dataset(
        {
            name: (
                (*SAMPLE_DIMS, *array.dims),
                np.broadcast_to(array.values, (*shape, *array.shape)),
                array.attrs,
            )
            for name, array in variables.data_vars.items()
        },
        coords=variables.coords,
        attrs=variables.attrs,
    )
    groups: Groups = {group: draws}
    if facts["divergent"] is not None:
        share = np.broadcast_to(np.float64(facts["divergent"]), shape)
        groups[schema.SAMPLE_STATS] = xr.Dataset({"diverging": (SAMPLE_DIMS, share)})
    if facts["observed_size"] is not None:
        rows = np.broadcast_to(np.float64(0), facts["observed_size"])
        groups[schema.OBSERVED_DATA] = xr.Dataset({"observed": ("row", rows)})
    return Batch(label, position, groups, group, {}, file)

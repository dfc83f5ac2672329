"""The batches' data, put together again."""

from collections.abc import Sequence

import pandas as pd
import xarray as xr

from arviz_swiss import containers
from arviz_swiss.batches import Batch

DATA_GROUPS = ("observed_data", "constant_data")


def join_data(batches: Sequence[Batch]) -> tuple[containers.Groups, list[str]]:
    """Return the batches' data groups, concatenated, and the variables that could not be.

    A variable that is the same in all batches is kept once. One whose labels along one dimension
    are all different is concatenated there. Labels that repeat, such as default 0, 1, ..., do not
    tell the rows apart: such a variable is left out.
    """
    groups, left_out = {}, []
    for group in DATA_GROUPS:
        datasets = [batch.groups.get(group) for batch in batches]
        present = [dataset for dataset in datasets if dataset is not None]
        names = list(dict.fromkeys(name for dataset in present for name in dataset.data_vars))
        arrays = {}
        for name in names:
            joined = _join([dataset[name] for dataset in present if name in dataset], len(batches))
            if joined is None:
                left_out.append(f"{group}/{name}")
            else:
                arrays[name] = joined
        if arrays:
            attrs = containers.safe_attrs(present[0].attrs)
            groups[group] = xr.Dataset(arrays).assign_attrs(attrs)
    return groups, left_out


def _join(arrays: Sequence[xr.DataArray], expected: int) -> xr.DataArray | None:
    first = arrays[0]
    if len(arrays) < expected or any(array.dims != first.dims for array in arrays):
        return None
    if all(first.equals(array) for array in arrays[1:]):
        return first.copy(deep=True).load()
    differing = [
        dim
        for dim in first.dims
        if not all(_labels(first, dim).equals(_labels(array, dim)) for array in arrays[1:])
    ]
    if len(differing) != 1:
        return None
    (dim,) = differing
    labels = [_labels(array, dim) for array in arrays]
    joined = labels[0].append(labels[1:])
    if dim not in first.coords or not joined.is_unique:
        return None
    return xr.concat(arrays, dim=dim, join="exact", coords="minimal", compat="override").load()


def _labels(array: xr.DataArray, dim: str) -> pd.Index:
    return array.get_index(dim)

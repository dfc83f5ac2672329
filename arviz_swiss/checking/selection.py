"""Which variables and elements of a merged object, by ArviZ's var_names, filter_vars and coords."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.data import containers
from arviz_swiss.data.containers import Groups
from arviz_swiss.data.layout import layout_of
from arviz_swiss.merging.merged import in_merge_space


def selected(
    dataset: xr.Dataset,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    coords: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """Return the variables and elements that ArviZ's arguments select."""
    _check_coords(coords)
    chosen = dataset[containers.select_names(dataset, var_names, filter_vars)]
    if unknown := [dim for dim in coords or {} if dim not in dataset.dims]:
        raise ValueError(
            f"coords name {', '.join(unknown)}; the dimensions are {', '.join(dataset.dims)}."
        )
    # One value stays a dimension of length one, so that labels keep its index.
    wanted = {
        dim: np.atleast_1d(value) if not isinstance(value, slice) else value
        for dim, value in (coords or {}).items()
        if dim in chosen.dims
    }
    try:
        return chosen.sel(wanted)
    except (KeyError, IndexError) as error:
        raise ValueError(f"coords={dict(coords)!r}: {_missing_label(chosen, wanted)}.") from error


def _missing_label(dataset: xr.Dataset, wanted: Mapping[str, Any]) -> str:
    for dim, labels in wanted.items():
        index = dataset.get_index(dim)
        missing = [] if isinstance(labels, slice) else [x for x in labels if x not in index]
        if missing:
            present = ", ".join(str(label) for label in index[:10])
            more = ", ..." if len(index) > 10 else ""
            label = np.asarray(missing[0])
            shown = str(label) if label.dtype.kind in "mM" else repr(label.item())
            return f"{dim} has no label {shown}; its labels are {present}{more}"
    return "it selects no elements"


def _check_coords(coords: Any) -> None:
    if coords is not None and not isinstance(coords, Mapping):
        raise TypeError(f"coords must be a mapping of dimension to labels, got {coords!r}.")


def selected_as_merged(
    groups: Groups, group: str, var_names=None, filter_vars=None, coords=None
) -> xr.Dataset:
    """Return what ArviZ's arguments select of the merged variables, in the space of the merge."""
    _check_coords(coords)
    moved, own = in_merge_space(groups, group), groups[group]
    # A transform that changes the number of elements gives them a dimension of its own, along which
    # the variable's labels choose nothing.
    lost = {d: v for d, v in (coords or {}).items() if d in own.dims and d not in moved.dims}
    selected(own, coords=lost)
    left = {dim: value for dim, value in (coords or {}).items() if dim not in lost}
    return selected(moved, var_names, filter_vars, left)


def parameter_positions(
    groups: Groups, group: str, var_names=None, filter_vars=None, coords=None
) -> np.ndarray:
    """Return the positions along `parameter` of `swiss_transform` that the arguments select."""
    dataset = selected_as_merged(groups, group, var_names, filter_vars, coords)
    wanted = set(layout_of(dataset, list(dataset.data_vars)).labels())
    labels = groups["swiss_transform"]["parameter"].values.astype(str)
    positions = np.array([index for index, label in enumerate(labels) if label in wanted], int)
    if not positions.size:
        raise ValueError(f"var_names={var_names!r}: only constants are selected.")
    return positions

"""Which variables and elements of a dataset, by ArviZ's var_names, filter_vars and coords."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.data import containers


def selected(
    dataset: xr.Dataset,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    coords: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """Return the variables and elements that ArviZ's arguments select."""
    check_coords(coords)
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


def check_coords(coords: Any) -> None:
    """Refuse coords that are no mapping."""
    if coords is not None and not isinstance(coords, Mapping):
        raise TypeError(f"coords must be a mapping of dimension to labels, got {coords!r}.")

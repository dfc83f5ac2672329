"""Which variables and elements of a dataset, by ArviZ's var_names, filter_vars and coords."""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.data.containers import SAMPLE_DIMS
from arviz_swiss.data.messages import brief


def checked_names(var_names: Any, filter_vars: Any = None) -> str | list[str] | None:
    """Return `var_names` as ArviZ takes it; refuse what neither names nor selects variables."""
    if filter_vars not in (None, "like", "regex"):
        raise ValueError(f'filter_vars must be None, "like" or "regex", got {filter_vars!r}.')
    if isinstance(var_names, Iterable) and not isinstance(var_names, str | bytes | Mapping):
        var_names = list(var_names)
    names = var_names if isinstance(var_names, list) else [var_names]
    if var_names is not None and not all(isinstance(name, str) for name in names):
        raise TypeError(f"var_names must be a name or a list of names, got {var_names!r}.")
    for name in names if filter_vars == "regex" and var_names is not None else ():
        try:
            re.compile(name.removeprefix("~"))
        except re.error as error:
            raise ValueError(f"var_names={name!r} is no regular expression: {error}.") from error
    return var_names


def select_names(
    dataset: xr.Dataset,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    where: str = "",
) -> list[str]:
    """Return the names that `var_names` and `filter_vars` select, in the dataset's order.

    ValueError, which begins with `where`, if they select none.
    """
    names = checked_names(var_names, filter_vars)
    if names is None:
        return list(dataset.data_vars)
    wanted = tuple(names) if isinstance(names, list) else names
    selected = _selected(tuple(dataset.data_vars), wanted, filter_vars)
    if not selected:
        present = ", ".join(dataset.data_vars)
        listed = [names] if isinstance(names, str) else names
        missing = [name for name in listed if name.removeprefix("~") not in dataset.data_vars]
        which = f": no {', '.join(missing)}" if missing and not filter_vars else " selects nothing"
        raise ValueError(f"{where}var_names={names!r}{which}; the variables are {present}.")
    return [name for name in dataset.data_vars if name in selected]


@functools.lru_cache(maxsize=8)
def _selected(
    present: tuple[str, ...], var_names: str | tuple[str, ...], filter_vars: str | None
) -> frozenset[str]:
    """Return what ArviZ selects of the variables present, once for all batches that have these."""
    import arviz

    # Names are all that is asked for, of whatever dimensions the draws have.
    stand_in = xr.Dataset({name: (SAMPLE_DIMS, np.zeros((1, 1))) for name in present})
    wanted = list(var_names) if isinstance(var_names, tuple) else var_names
    options = {"filter_vars": filter_vars, "combined": False, "keep_dataset": True}
    try:
        return frozenset(arviz.extract(stand_in, var_names=wanted, **options).data_vars)
    except KeyError:
        return frozenset()


def selected(
    dataset: xr.Dataset,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    coords: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """Return the variables and elements that ArviZ's arguments select."""
    check_coords(coords)
    labels = dict(coords or {})
    variables = dataset[select_names(dataset, var_names, filter_vars)]
    if unknown := [dim for dim in labels if dim not in dataset.dims]:
        raise ValueError(
            f"coords name {', '.join(unknown)}; the dimensions are {', '.join(dataset.dims)}."
        )
    # One value stays a dimension of length one, so that labels keep its index.
    indexers = {
        dim: value if isinstance(value, slice) else np.atleast_1d(value)
        for dim, value in labels.items()
        if dim in variables.dims
    }
    try:
        return variables.sel(indexers)
    except (KeyError, IndexError) as error:
        raise ValueError(f"coords={labels!r}: {_missing_label(variables, indexers)}.") from error


def _missing_label(dataset: xr.Dataset, indexers: Mapping[str, Any]) -> str:
    for dim, labels in indexers.items():
        index = dataset.get_index(dim)
        missing = [] if isinstance(labels, slice) else [x for x in labels if x not in index]
        if missing:
            label = np.asarray(missing[0])
            shown = str(label) if label.dtype.kind in "mM" else repr(label.item())
            return f"{dim} has no label {shown}; its labels are {brief(index.astype(str), 10)}"
    return "it selects no elements"


def check_coords(coords: Any) -> None:
    """Refuse coords that are no mapping."""
    if coords is not None and not isinstance(coords, Mapping):
        raise TypeError(f"coords must be a mapping of dimension to labels, got {coords!r}.")

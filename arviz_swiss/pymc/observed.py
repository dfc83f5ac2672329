"""The observed rows of a PyMC model, and the missing entries among them."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pymc.pytensorf import extract_obs_data

from arviz_swiss.data.containers import Groups, read
from arviz_swiss.pymc.graphs import UNCOMPILED


def observed_rows(model: pm.Model) -> int:
    """Count the rows that all observed variables must share, missing entries included."""
    rows = {name: int(value_of(count)) for name, count in symbolic_rows(model).items()}
    if len(set(rows.values())) != 1:
        raise ValueError(
            "total_size= needs one number of rows common to all observed variables, got "
            f"{rows or 'no observed variables'}. Pass the power itself."
        )
    return next(iter(rows.values()))


def observed_values(model: pm.Model) -> dict[str, np.ndarray]:
    """Return the data of the observed variables; those that PyMC cannot tell are left out."""
    values = {}
    for rv in model.observed_RVs:
        try:
            values[rv.name] = extract_obs_data(model.rvs_to_values[rv])
        except TypeError:
            continue
    return values


def data_groups(model: pm.Model, prior: Mapping[str, np.ndarray] | None = None) -> Groups:
    """Return the groups of a model's data, and of draws from its prior, as PyMC makes them."""
    groups = read(pm.to_inference_data(prior=dict(prior or {}), model=model)).groups
    wanted = ("prior", "observed_data", "constant_data")
    present = [name for name in wanted if name in groups and groups[name].data_vars]
    return {name: _with_ranges(groups[name]) for name in present}


def _with_ranges(dataset: xr.Dataset) -> xr.Dataset:
    """Return the Dataset with row numbers as ranges: written out they are a column a variable."""
    ranges = {
        dim: pd.RangeIndex(size)
        for dim, size in dataset.sizes.items()
        if dim in dataset.indexes and dataset.indexes[dim].equals(pd.RangeIndex(size))
    }
    return dataset.assign_coords({d: (d, i, dataset[d].attrs) for d, i in ranges.items()})


def symbolic_rows(model: pm.Model) -> dict[str, pt.TensorVariable | int]:
    """Length of the first axis of each observed variable, as it follows from the data."""
    rows: dict[str, pt.TensorVariable | int] = {}
    for rv in model.observed_RVs:
        imputed = _imputed_whole(model, rv.name, "_observed")
        value = model.rvs_to_values[rv]
        if imputed is not None:
            rows[imputed.name] = int(value_of(imputed.shape[0]))
        elif value.type.ndim == 0:
            raise ValueError(
                f"Observed variable {rv.name!r} is a scalar and has no rows to relate to "
                "total_size=. Pass the power itself."
            )
        else:
            rows[rv.name] = pt.cast(value.shape[0], "float64")
    return rows


def _imputed_whole(model: pm.Model, name: str, suffix: str):
    """Return the whole variable of which `name` is the observed or the missing part, if it is."""
    whole = name.removesuffix(suffix)
    parts = {f"{whole}_observed", f"{whole}_unobserved"}
    if whole == name or not parts <= set(model.named_vars):
        return None
    return next((var for var in model.deterministics if var.name == whole), None)


def imputed_names(model: pm.Model) -> list[str]:
    """Names of the free variables that are missing entries of observed data."""
    names = [rv.name for rv in model.free_RVs]
    return [name for name in names if _imputed_whole(model, name, "_unobserved") is not None]


def value_of(number) -> float:
    """Return a number that may be symbolic, at the present data."""
    return float(number.eval(mode=UNCOMPILED) if isinstance(number, pt.Variable) else number)

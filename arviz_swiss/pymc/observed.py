"""The observed rows of a PyMC model, and the missing entries among them."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.pytensorf import extract_obs_data

__all__ = ["imputed_names", "observed_rows", "observed_values", "symbolic_rows", "value_of"]


def observed_rows(model: pm.Model) -> int:
    """Count the rows of the observed variables, missing entries included.

    Parameters
    ----------
    model : pymc.Model
        The model of one batch.

    Returns
    -------
    int
        The length of the first axis, which all observed variables must share.

    Raises
    ------
    ValueError
        If there is no observed variable, one is a scalar, or they differ in length.

    Examples
    --------
    >>> import pymc as pm
    >>> from arviz_swiss.pymc.observed import observed_rows
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", observed=[1.0, 2.0, 5.0])
    >>> observed_rows(model)
    3
    """
    rows = {name: int(value_of(count)) for name, count in symbolic_rows(model).items()}
    if len(set(rows.values())) != 1:
        raise ValueError(
            "total_size= needs one number of rows common to all observed variables, got "
            f"{rows or 'no observed variables'}. Pass the power itself."
        )
    return next(iter(rows.values()))


def observed_values(model: pm.Model) -> dict[str, np.ndarray]:
    """Return the data of the observed variables; those that PyMC cannot tell are left out.

    Parameters
    ----------
    model : pymc.Model

    Examples
    --------
    >>> import pymc as pm
    >>> from arviz_swiss.pymc.observed import observed_values
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", observed=[1.0, 2.0, 5.0])
    >>> observed_values(model)["y"].tolist()
    [1.0, 2.0, 5.0]
    """
    values = {}
    for rv in model.observed_RVs:
        try:
            values[rv.name] = extract_obs_data(model.rvs_to_values[rv])
        except TypeError:
            continue
    return values


def symbolic_rows(model: pm.Model) -> dict[str, pt.TensorVariable | int]:
    """Length of the first axis of each observed variable, as it follows from the data."""
    rows = {}
    for rv in model.observed_RVs:
        imputed = _imputed_whole(model, rv.name, "_observed")
        value = model.rvs_to_values[rv]
        if imputed is not None:
            rows[imputed.name] = int(imputed.shape[0].eval())
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
    found = [var for var in model.deterministics if var.name == whole]
    return found[0] if found else None


def imputed_names(model: pm.Model) -> list[str]:
    """Names of the free variables that are missing entries of observed data."""
    names = [rv.name for rv in model.free_RVs]
    return [name for name in names if _imputed_whole(model, name, "_unobserved") is not None]


def value_of(number) -> float:
    """Return a number that may be symbolic, at the present data."""
    return float(number.eval() if isinstance(number, pt.Variable) else number)

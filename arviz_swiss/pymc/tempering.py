"""What `inflate` and `fractionate` share: a copy of the model, a power, and what is told of it."""

import json
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.model.fgraph import fgraph_from_model, model_from_fgraph
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.replace import clone_replace

from arviz_swiss.data import schema
from arviz_swiss.data.messages import warn
from arviz_swiss.pymc.observed import observed_rows, symbolic_rows, value_of


class Tempering(NamedTuple):
    """How a model was tempered: the powers of its likelihood and of its prior.

    The powers are symbolic scalars when they follow the number of rows in ``pm.Data``.
    """

    power: float | pt.TensorVariable = 1.0
    prior_power: float | pt.TensorVariable = 1.0
    transformed: tuple[str, ...] = ()
    untransformed: tuple[str, ...] = ()
    local: tuple[str, ...] = ()


class Powers(NamedTuple):
    """The powers of a batch's likelihood and prior."""

    likelihood: float
    prior: float


def tempering_attrs(model: pm.Model) -> dict[str, float | str]:
    """Describe how a model was tempered, in attributes that `merge` reads and files can hold.

    Parameters
    ----------
    model : pymc.Model
        A model made by `inflate` or `fractionate`, or an ordinary one.

    Returns
    -------
    dict
        ``swiss_power`` and ``swiss_prior_power``, the powers at the present data, and JSON lists
        of names: ``swiss_transformed``, whose prior was raised to the power on the real line, and
        ``swiss_untransformed``, on their own scale as asked for.

    Raises
    ------
    ValueError
        If the model uses ``total_size=`` itself.

    Examples
    --------
    >>> import pymc as pm
    >>> from arviz_swiss.pymc import fractionate, tempering_attrs
    >>> with pm.Model() as model:
    ...     tau = pm.HalfNormal("tau")
    ...     y = pm.Normal("y", 0, tau, observed=[1.0, 2.0])
    >>> for attr, value in tempering_attrs(fractionate(model, 0.25)).items():
    ...     print(attr, value)
    swiss_power 1.0
    swiss_prior_power 0.25
    swiss_transformed ["tau"]
    swiss_untransformed []
    """
    _check_no_total_size(model)
    tempering = getattr(model, "swiss_tempering", Tempering())
    return {
        schema.POWER: value_of(tempering.power),
        schema.PRIOR_POWER: value_of(tempering.prior_power),
        schema.TRANSFORMED: json.dumps(list(tempering.transformed)),
        schema.UNTRANSFORMED: json.dumps(list(tempering.untransformed)),
    }


def copy_model(model: pm.Model) -> pm.Model:
    """Copy a model with its initial values, which ``Model.copy`` refuses, in the same order."""
    without_initial_values = object.__new__(type(model))
    without_initial_values.__dict__ = {**model.__dict__, "rvs_to_initial_values": {}}
    copied = model_from_fgraph(fgraph_from_model(without_initial_values)[0], mutate_fgraph=True)
    containers = {data: copied[data.name] for data in model.data_vars}
    for data, container in containers.items():
        # one array in two containers, each of which may get another: copies are as large as rows
        container.set_value(data.get_value(borrow=True), borrow=True)
    for rv, value in model.rvs_to_initial_values.items():
        if isinstance(value, pt.Variable):
            value = clone_replace(value, containers)
        copied.set_initval(copied[rv.name], value)
    for kind in ("free_RVs", "observed_RVs", "deterministics", "potentials", "data_vars"):
        order = [var.name for var in getattr(model, kind)]
        getattr(copied, kind).sort(key=lambda var, order=order: order.index(var.name))
    return copied


def rows_of_total(model: pm.Model, total_size: Any) -> Any:
    """Rows of the batch, symbolic where they may change, known not to exceed the total."""
    rows = observed_rows(model)
    is_number = isinstance(total_size, int | float | np.number)
    if not is_number or total_size != np.floor(total_size) or total_size < rows:
        raise ValueError(
            f"total_size must be the number of rows of all batches together, an integer of at "
            f"least the {rows} rows of this batch; got {total_size!r}."
        )
    return next(iter(symbolic_rows(model).values()))


def add_extra_power(model: pm.Model, name: str, term, power) -> None:
    """Add a Potential that brings a term of the log density from power 1 to `power`."""
    # minus infinity times a negative or zero number would not be minus infinity
    extra = pt.switch(pt.eq(term, -np.inf), -np.inf, (power - 1.0) * term)
    with model:
        pm.Potential(name, extra)


def check_temperable(model: pm.Model) -> None:
    """Refuse what is no model, or has a power already."""
    if not isinstance(model, pm.Model):
        raise TypeError(f"Expected a pymc.Model, got {type(model).__name__!r}.")
    if hasattr(model, "swiss_tempering"):
        raise ValueError(
            "The model has been tempered already, by inflate or fractionate. Temper the original "
            "model."
        )
    _check_no_total_size(model)


def check_plain(model: pm.Model, label: str) -> None:
    """Refuse a model whose likelihood or prior is raised to a power."""
    if hasattr(model, "swiss_tempering"):
        raise ValueError(
            f'batch "{label}": the model is tempered. Pass the plain model of the batch: the '
            "powers are known from the merged object."
        )
    try:
        tempering_attrs(model)
    except ValueError as error:
        raise ValueError(
            f'batch "{label}": the model uses total_size=, which raises its likelihood to a power. '
            "Pass the plain model, without it: the powers are known from the merged object."
        ) from error


def _check_no_total_size(model: pm.Model) -> None:
    names = [
        rv.name
        for rv in model.observed_RVs
        if rv.owner is not None and isinstance(rv.owner.op, MinibatchRandomVariable)
    ]
    if names:
        raise ValueError(
            f"Observed variables {names} use total_size=, which already raises the likelihood to a "
            "power. Leave total_size= out of the model and pass it to inflate."
        )


def check_one_of(function: str, **given) -> None:
    """Refuse none or several of arguments that exclude each other."""
    if sum(value is not None for value in given.values()) != 1:
        raise ValueError(f"{function} needs exactly one of {' and '.join(given)}, got {given}.")


def check_number(name: str, value, *, upper: float) -> float:
    """Return a power as a number, or refuse it."""
    if not isinstance(value, int | float | np.number) or not 0 < value <= upper or np.isinf(value):
        bound = f" and at most {upper:g}" if np.isfinite(upper) else " and finite"
        raise ValueError(f"{name} must be a number greater than 0{bound}, got {value!r}.")
    return float(value)


def warn_of_potentials(model: pm.Model, effect: str) -> None:
    """Warn that Potentials are left alone."""
    if model.potentials:
        names = [potential.name for potential in model.potentials]
        warn(
            f"Potentials {names} are left at power one: each {effect}. Write terms of the "
            "likelihood as observed variables, and terms of the prior as free variables."
        )

"""Raise the likelihood or the prior of a PyMC model to a power."""

import json
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.model.fgraph import fgraph_from_model, model_from_fgraph
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.replace import clone_replace

from arviz_swiss.data import schema
from arviz_swiss.data.messages import MergeWarning
from arviz_swiss.pymc.observed import imputed_names, observed_rows, symbolic_rows, value_of

__all__ = ["Tempering", "copy_model", "fractionate", "inflate", "tempering_attrs"]


class Tempering(NamedTuple):
    """How a model was tempered: the powers of its likelihood and of its prior.

    The powers are symbolic scalars when they follow the number of rows in ``pm.Data``.
    """

    power: float | pt.TensorVariable = 1.0
    prior_power: float | pt.TensorVariable = 1.0
    transformed: tuple[str, ...] = ()
    untransformed: tuple[str, ...] = ()
    local: tuple[str, ...] = ()


def inflate(
    model: pm.Model, power: float | None = None, *, total_size: int | None = None
) -> pm.Model:
    r"""Raise the likelihood of a model to a power: an inflated sub-posterior.

    Parameters
    ----------
    model : pymc.Model
        The model of one batch. It is not changed.
    power : float, optional
        The power, for instance the number of batches.
    total_size : int, optional
        Number of rows of all batches together; the power is then ``total_size`` divided by the
        number of rows of this batch, and follows it when ``pm.set_data`` changes the rows.
        Exactly one of `power` and `total_size` must be given.

    Returns
    -------
    pymc.Model
        A copy with the same variables, dims, coords, data containers and initial values. Its data
        containers are its own: ``pm.set_data`` on the one does not affect the other. Use it to
        sample, and the original model for predictions and log likelihoods.

    Raises
    ------
    ValueError
        If the model has no observed variable, was tempered already, uses ``total_size=`` itself,
        or if its observed variables differ in their number of rows and `total_size` is given.

    Warns
    -----
    MergeWarning
        If the model has Potentials: they are left at power one.

    See Also
    --------
    fractionate : Raise the prior to a power instead.

    Notes
    -----
    The density is :math:`p(\theta) \, p(y_b \mid \theta)^{p_b}`, times the Potentials of the model.
    All observed variables are raised to the same power, and so are the observed entries of data
    with missing values; the missing entries are latent variables, whose density is left alone. That
    is right where nothing else depends on them, as on missing outcomes.

    Raising the likelihood to a power is wrong where a batch has latent variables of its own, such
    as random effects of its groups, or missing predictors: use `fractionate` there.

    Examples
    --------
    >>> import pymc as pm
    >>> from arviz_swiss.pymc import inflate
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     y = pm.Normal("y", mu, observed=[1.0, 2.0])
    >>> inflated = inflate(model, total_size=20)
    >>> point = {"mu": 0.5}
    >>> likelihood = model.compile_logp(vars=model.observed_RVs)(point)
    >>> difference = inflated.compile_logp()(point) - model.compile_logp()(point)
    >>> round(float(difference / likelihood), 6)
    9.0
    """
    _check_temperable(model)
    if not model.observed_RVs:
        hint = " Its likelihood may be in a Potential, whose power cannot be known."
        raise ValueError(
            "The model has no observed variables, so there is no likelihood to raise to a power."
            f"{hint if model.potentials else ''} Give a variable observed=, or a pm.CustomDist."
        )
    _check_one_of("inflate", power=power, total_size=total_size)
    _warn_of_potentials(model, "multiplies the likelihood by a term that is not inflated")
    tempered = copy_model(model)
    if power is None:
        power = total_size / _rows_of_total(tempered, total_size)
    else:
        power = _check_number("power", power, upper=np.inf)
    likelihood = tempered.logp(vars=tempered.observed_RVs, jacobian=False)
    _add_extra_power(tempered, "swiss_likelihood", likelihood, power)
    tempered.swiss_tempering = Tempering(power=power)
    return tempered


def fractionate(
    model: pm.Model,
    fraction: float | None = None,
    *,
    total_size: int | None = None,
    untransformed: Sequence[str] = (),
    local: Sequence[str] = (),
) -> pm.Model:
    r"""Raise the prior of the shared parameters to a power: a fractionated sub-posterior.

    Parameters
    ----------
    model : pymc.Model
        The model of one batch. It is not changed.
    fraction : float, optional
        The power, at most 1, for instance one divided by the number of batches. The fractions of
        all batches must sum to 1.
    total_size : int, optional
        Number of rows of all batches together; the fraction is then the number of rows of this
        batch divided by ``total_size``, and follows it when ``pm.set_data`` changes the rows.
        Exactly one of `fraction` and `total_size` must be given.
    untransformed : sequence of str, optional
        Free variables that will be merged on their own scale, with ``transforms={name: None}``.
    local : sequence of str, optional
        Free variables that belong to this batch alone, such as random effects of its groups. Their
        densities given the shared parameters are left alone. Missing entries of observed data are
        always local.

    Returns
    -------
    pymc.Model
        A copy with the same variables, dims, coords, data containers and initial values. Its data
        containers are its own: ``pm.set_data`` on the one does not affect the other. Use it to
        sample, and the original model for predictions and log likelihoods.

    Raises
    ------
    ValueError
        If a name is not a free variable, no free variable is shared, the model was tempered
        already, or uses ``total_size=`` itself.

    Warns
    -----
    MergeWarning
        If the model has Potentials: they are left at power one.

    See Also
    --------
    inflate : Raise the likelihood to a power instead.

    Notes
    -----
    With shared parameters :math:`\theta`, their images :math:`u(\theta)` on the real line, and
    local variables :math:`z_b`, the density of :math:`u` is

    .. math::

        \left\{ p(\theta) \, \left|\frac{\partial \theta}{\partial u}\right| \right\}^{a_b}
        p(z_b \mid \theta) \, p(y_b \mid z_b, \theta).

    The Jacobian is raised to the power as well, because the product of the batches' densities must
    be the posterior density in the space where the batches are merged. A variable in
    `untransformed` has the density :math:`p(\theta)^{a_b}` on its own scale instead.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from arviz_swiss.pymc import fractionate
    >>> with pm.Model(coords={"group": [4, 5]}) as model:
    ...     tau = pm.HalfNormal("tau")
    ...     z = pm.Normal("z", 0, tau, dims="group")
    ...     y = pm.Normal("y", z, observed=[1.0, 2.0], dims="group")
    >>> fractionated = fractionate(model, 1 / 4, local=["z"])
    >>> point = {"tau_log__": 0.3, "z": np.array([0.1, 0.2])}
    >>> prior = model.compile_logp(vars=[tau])(point)
    >>> difference = fractionated.compile_logp()(point) - model.compile_logp()(point)
    >>> round(float(difference / prior), 6)
    -0.75
    """
    _check_temperable(model)
    _check_one_of("fractionate", fraction=fraction, total_size=total_size)
    untransformed = _check_free_names(model, "untransformed", untransformed)
    local = _check_free_names(model, "local", local)
    local += tuple(name for name in imputed_names(model) if name not in local)
    shared = [rv.name for rv in model.free_RVs if rv.name not in local]
    if not shared:
        raise ValueError(
            "All free variables are local, so there is no prior to share between the batches. "
            "Leave the shared parameters out of local=."
        )
    _warn_of_potentials(model, "is counted once in each batch")
    tempered = copy_model(model)
    if fraction is None:
        fraction = _rows_of_total(tempered, total_size) / total_size
    else:
        fraction = _check_number("fraction", fraction, upper=1.0)
    with_jacobian = [tempered[name] for name in shared if name not in untransformed]
    without = [tempered[name] for name in shared if name in untransformed]
    prior = pt.as_tensor_variable(0.0)
    if with_jacobian:
        prior += tempered.logp(vars=with_jacobian, jacobian=True)
    if without:
        prior += tempered.logp(vars=without, jacobian=False)
    _add_extra_power(tempered, "swiss_prior", prior, fraction)
    transformed = tuple(
        rv.name for rv in with_jacobian if tempered.rvs_to_transforms[rv] is not None
    )
    tempered.swiss_tempering = Tempering(
        prior_power=fraction, transformed=transformed, untransformed=untransformed, local=local
    )
    return tempered


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
    """Copy a model with its initial values, which ``Model.copy`` refuses, in the same order.

    Parameters
    ----------
    model : pymc.Model
        The model to copy. It is not changed.

    Returns
    -------
    pymc.Model
        The copy. Data containers are copied too.

    Examples
    --------
    >>> import pymc as pm
    >>> from arviz_swiss.pymc.tempering import copy_model
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", initval=3.0)
    >>> copy_model(model).initial_point()
    {'mu': array(3.)}
    """
    without_initial_values = object.__new__(type(model))
    without_initial_values.__dict__ = {**model.__dict__, "rvs_to_initial_values": {}}
    copied = model_from_fgraph(fgraph_from_model(without_initial_values)[0], mutate_fgraph=True)
    containers = {data: copied[data.name] for data in model.data_vars}
    for rv, value in model.rvs_to_initial_values.items():
        if isinstance(value, pt.Variable):
            value = clone_replace(value, containers)
        copied.set_initval(copied[rv.name], value)
    for kind in ("free_RVs", "observed_RVs", "deterministics", "potentials", "data_vars"):
        order = [var.name for var in getattr(model, kind)]
        getattr(copied, kind).sort(key=lambda var, order=order: order.index(var.name))
    return copied


def _rows_of_total(model: pm.Model, total_size: int) -> pt.TensorVariable | int:
    """Rows of the batch, symbolic where they may change, known not to exceed the total."""
    rows = observed_rows(model)
    is_number = isinstance(total_size, int | float | np.number)
    if not is_number or total_size != np.floor(total_size) or total_size < rows:
        raise ValueError(
            f"total_size must be the number of rows of all batches together, an integer of at "
            f"least the {rows} rows of this batch; got {total_size!r}."
        )
    return next(iter(symbolic_rows(model).values()))


def _add_extra_power(model: pm.Model, name: str, term, power) -> None:
    """Add a Potential that brings a term of the log density from power 1 to `power`."""
    # minus infinity times a negative or zero number would not be minus infinity
    extra = pt.switch(pt.eq(term, -np.inf), -np.inf, (power - 1.0) * term)
    with model:
        pm.Potential(name, extra)


def _check_temperable(model: pm.Model) -> None:
    if not isinstance(model, pm.Model):
        raise TypeError(f"Expected a pymc.Model, got {type(model).__name__!r}.")
    if hasattr(model, "swiss_tempering"):
        raise ValueError(
            "The model has been tempered already, by inflate or fractionate. Temper the original "
            "model."
        )
    _check_no_total_size(model)


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


def _check_one_of(function: str, **given) -> None:
    if sum(value is not None for value in given.values()) != 1:
        raise ValueError(f"{function} needs exactly one of {' and '.join(given)}, got {given}.")


def _check_number(name: str, value, *, upper: float) -> float:
    if not isinstance(value, int | float | np.number) or not 0 < value <= upper or np.isinf(value):
        bound = f" and at most {upper:g}" if np.isfinite(upper) else " and finite"
        raise ValueError(f"{name} must be a number greater than 0{bound}, got {value!r}.")
    return float(value)


def _check_free_names(model: pm.Model, argument: str, names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        names = [names]
    free = [rv.name for rv in model.free_RVs]
    unknown = [name for name in names if name not in free]
    if unknown:
        raise ValueError(
            f"{argument}={unknown} are not free variables of the model, which has {free}."
        )
    return tuple(names)


def _warn_of_potentials(model: pm.Model, effect: str) -> None:
    if model.potentials:
        names = [potential.name for potential in model.potentials]
        warnings.warn(
            f"Potentials {names} are left at power one: each {effect}. Write terms of the "
            "likelihood as observed variables, and terms of the prior as free variables.",
            MergeWarning,
            stacklevel=3,
        )

"""Raise the prior of a PyMC model's shared parameters to a power."""

from collections.abc import Sequence

import pymc as pm
import pytensor.tensor as pt

from arviz_swiss.pymc.observed import imputed_names
from arviz_swiss.pymc.tempering import (
    Tempering,
    add_extra_power,
    check_number,
    check_one_of,
    check_temperable,
    copy_model,
    rows_of_total,
    warn_of_potentials,
)


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
    check_temperable(model)
    check_one_of("fractionate", fraction=fraction, total_size=total_size)
    untransformed = _check_free_names(model, "untransformed", untransformed)
    local = _check_free_names(model, "local", local)
    local += tuple(name for name in imputed_names(model) if name not in local)
    shared = [rv.name for rv in model.free_RVs if rv.name not in local]
    if not shared:
        raise ValueError(
            "All free variables are local, so there is no prior to share between the batches. "
            "Leave the shared parameters out of local=."
        )
    warn_of_potentials(model, "is counted once in each batch")
    tempered = copy_model(model)
    if total_size is not None:
        fraction = rows_of_total(tempered, total_size) / total_size
    else:
        fraction = check_number("fraction", fraction, upper=1.0)
    with_jacobian = [tempered[name] for name in shared if name not in untransformed]
    without = [tempered[name] for name in shared if name in untransformed]
    prior = pt.as_tensor_variable(0.0)
    if with_jacobian:
        prior += tempered.logp(vars=with_jacobian, jacobian=True)
    if without:
        prior += tempered.logp(vars=without, jacobian=False)
    add_extra_power(tempered, "swiss_prior", prior, fraction)
    transformed = tuple(
        rv.name for rv in with_jacobian if tempered.rvs_to_transforms[rv] is not None
    )
    tempered.swiss_tempering = Tempering(
        prior_power=fraction, transformed=transformed, untransformed=untransformed, local=local
    )
    return tempered


def _check_free_names(model: pm.Model, argument: str, names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        names = [names]
    free = [rv.name for rv in model.free_RVs]
    if unknown := [name for name in names if name not in free]:
        raise ValueError(
            f"{argument}={unknown} are not free variables of the model, which has {free}."
        )
    return tuple(names)

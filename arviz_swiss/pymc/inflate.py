"""Raise the likelihood of a PyMC model to a power."""

import numpy as np
import pymc as pm

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
    check_temperable(model)
    if not model.observed_RVs:
        hint = " Its likelihood may be in a Potential, whose power cannot be known."
        raise ValueError(
            "The model has no observed variables, so there is no likelihood to raise to a power."
            f"{hint if model.potentials else ''} Give a variable observed=, or a pm.CustomDist."
        )
    check_one_of("inflate", power=power, total_size=total_size)
    warn_of_potentials(model, "multiplies the likelihood by a term that is not inflated")
    tempered = copy_model(model)
    if total_size is not None:
        power = total_size / rows_of_total(tempered, total_size)
    else:
        power = check_number("power", power, upper=np.inf)
    likelihood = tempered.logp(vars=tempered.observed_RVs, jacobian=False)
    add_extra_power(tempered, "swiss_likelihood", likelihood, power)
    tempered.swiss_tempering = Tempering(power=power)
    return tempered

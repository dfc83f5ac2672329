"""merge(): read, flatten, moments, pool, maps, apply, pack; in the order of the paper."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from arviz_swiss import methods
from arviz_swiss.base import linalg
from arviz_swiss.base.bias import prior_error
from arviz_swiss.base.moments import Moments, Pooled, pool
from arviz_swiss.base.seeds import generator
from arviz_swiss.data import containers, schema
from arviz_swiss.merging import pack
from arviz_swiss.merging.batches import (
    check_holdable,
    match,
    opened,
    prior_batches,
    warn_left_out,
)
from arviz_swiss.merging.checks import check_covariance
from arviz_swiss.merging.diagnostics import (
    diagnose_moments,
    warn_few_draws,
    warn_few_prior_draws,
    warn_heterogeneity,
    warn_prior_shape,
)
from arviz_swiss.merging.draws import make_draws, move_batches
from arviz_swiss.merging.elements import element_coords
from arviz_swiss.merging.glance import warn_poor_batches
from arviz_swiss.merging.joining import groups_not_joined, join_data
from arviz_swiss.merging.kinds import LOOKS_INFLATED, warn_kind
from arviz_swiss.merging.labels import positions_kept
from arviz_swiss.merging.local import find_local, find_local_space
from arviz_swiss.merging.local_draws import move_local, warn_unordered
from arviz_swiss.merging.models import coords_of, free_variables, plain_model
from arviz_swiss.merging.origin import check_one_run
from arviz_swiss.merging.powers import (
    Powers,
    check_prior_counted,
    check_prior_used,
    describe_rest,
    keep,
    resolve_powers,
)
from arviz_swiss.merging.repeats import check_distinct
from arviz_swiss.merging.rescaling import rescale, rescaled_maps, variance_factors
from arviz_swiss.merging.space import check_powered_space, find_space, split_choices
from arviz_swiss.merging.summaries import find_frame, summarise, summarise_prior


def merge(
    idatas: Sequence[Any] | Mapping[str, Any],
    *,
    method: str = "swiss",
    kind: str | None = None,
    powers: float | Sequence[float] | Mapping[str, float] | None = None,
    prior: Any = None,
    drop: str | int | Sequence[str | int] | None = None,
    transforms: Mapping[str, Any] | None = None,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    group: str = "posterior",
    covariance: str | Callable = "sample",
    model: Any = None,
    random_seed: int | np.random.Generator | None = None,
    **options: Any,
) -> Any:
    r"""Merge the draws of sub-posteriors, one per batch of the data, into one posterior.

    By default each batch's draws are moved by one affine map, so that all have the mean and the
    covariance that Gaussian sub-posteriors imply for the full posterior.

    Parameters
    ----------
    idatas : sequence, or mapping of label to batch
        One InferenceData or DataTree per batch; or a Dataset, a dict of (chain, draw, ...) arrays,
        a fit that ArviZ's converter knows, or the path of a netCDF or zarr file. Files are read one
        at a time. Those of a list are called by what they recorded (`swiss_batch`), else by their
        file, else b0, b1, ...
    method : str, default "swiss"
        How to merge. "swiss", "recentre", "location_scatter" and "pool" move each batch's draws;
        "consensus", "average", "quantile", "median", "gaussian", "barycenter", "semiparametric" and
        "nonparametric" make new ones, as many as one batch has. Given draws of the kind that the
        method is not made for, it takes them rescaled about their batch mean by the square root of
        the power (exact for Gaussian sub-posteriors), and the attribute `swiss_rescaled` says so.
    kind : {"inflated", "fractionated", "full_prior"}, optional
        What the batches were sampled from: prior times likelihood to a power (the paper), prior to
        the power 1/B times likelihood (consensus Monte Carlo), or plain prior times likelihood
        (needs draws of the prior). Read from the attribute `swiss_kind` when absent; with neither,
        nor `powers`, "inflated" is a guess, and a warning says so.
    powers : float, sequence, or mapping or Series of label to float, optional
        The power that each batch's likelihood was raised to. Read from the attribute `swiss_power`
        of the group when absent, else the number of batches ("inflated") or 1. With PyMC's
        ``total_size=N`` it is ``N / n_b``.
    prior : InferenceData, DataTree, Dataset, ..., optional
        Draws of the prior, in a group `prior`; each batch's own `prior` group when absent. Only
        for powers that would not count the prior once; with others it is an error.
    drop : label, position, or sequence of them, optional
        Batches to leave out, such as one that `report` names. Inflated ones that remain have their
        weights scaled to sum to one, and stand for as many rows as before; fractionated ones give
        the posterior of the remaining data under the prior's remaining share. The attribute
        `swiss_stands_for` says so.
    transforms : mapping of variable to transform, optional
        Where to merge a constrained variable: "log", "logit", ("interval", low, high), "simplex",
        "ordered", "cholesky", "cholesky_corr", or an object with ``forward`` and ``backward``.
        Draws are merged in unconstrained space and mapped back. None keeps a variable on its own
        scale, also with `model`. Batch-local variables are moved where their transform leads, too.
    var_names : str or sequence of str, optional
        Variables to merge, as in ArviZ (``"~name"`` leaves one out).
    filter_vars : {None, "like", "regex"}, optional
        How to read `var_names`, as in ArviZ.
    group : str, default "posterior"
        The group to merge.
    covariance : {"sample", "corrected", "shrunk", "diagonal"} or callable, default "sample"
        How to estimate a batch's covariance. "corrected" removes the bias that few draws leave in
        the precision; "shrunk" (Ledoit-Wolf) runs also with fewer draws than parameters, but then
        makes the sds of correlated ones too small; "diagonal" ignores correlations; a callable
        takes (draws, parameters) and returns a matrix.
    model : pymc.Model or bambi.Model, optional
        The plain model of all the data, whose coords give the order of groups and rows; where
        batches have no groups of their own, that of any batch will do. Draws are merged in the
        model's unconstrained space and mapped back, and its deterministics are computed from the
        merged draws.
    random_seed : int or Generator, optional
        Seed of methods that draw random numbers; SwISS does not.
    **options
        Options of the method: `bandwidth` and `standardise` of "semiparametric", "nonparametric"
        and "median", `sweeps` of the first two, `landmarks` of "median"; see `arviz_swiss.methods`.

    Returns
    -------
    InferenceData or DataTree
        The same kind as the input, with groups `posterior` (chains of all batches end to end,
        coordinate `batch` on `chain`), `sample_stats`, `unconstrained_posterior` where transforms
        were used, `swiss_transform` (moments and maps) and `swiss_diagnostics` (merge quality).
        Variables of one batch alone, such as random effects, are in `posterior` too unless the
        batches are inflated: all groups side by side, in the order of the coords of a `model` of
        all data, else sorted. Every merged draw has, of each batch, one of its draws, moved by the
        linear regression on the shared variables in unconstrained space; `swiss_local` holds the
        regressions, and each group's batch as coordinate `batch_<dim>`. So are deterministics of
        them, computed by the `model` where it can. `observed_data` and `constant_data` are joined
        in the same order where rows have labels. The attributes `swiss_left_out` and
        `swiss_unordered` name what could not be joined, and dimensions of unknown order.
        Newly made draws belong to no batch: they come without `batch` and `sample_stats`.

    Raises
    ------
    ValueError
        When batches do not fit together or are of two runs, draws cannot give a covariance, or the
        prior would not be counted once. The message names batch and variable and says what to do.
    TypeError
        When `batches` is no list or mapping, an argument is of another type than it takes, or the
        method has no such option.

    Warns
    -----
    MergeWarning
        When the kind is only guessed or the batches do not look like it; when batches disagree,
        are strongly skewed, divergent or not converged; when draws are few, also for
        ``covariance="shrunk"``, or batches have different numbers of them; when variables are left
        out, or the order of groups is not known; and when a method by kernels has not found the
        product of its estimates.

    See Also
    --------
    subposteriors : undo the merge
    compare_methods : merge by several methods, and compare them

    Notes
    -----
    Batch b has draws with mean :math:`\mu_b` and covariance :math:`V_b = P_b^{-1}` from prior to
    the power :math:`a_b` times likelihood to the power :math:`p_b`. Pooling is

    .. math::
        P = \sum_b P_b / p_b + (1 - \sum_b a_b / p_b) P_0, \quad
        P \mu = \sum_b P_b \mu_b / p_b + (1 - \sum_b a_b / p_b) P_0 \mu_0

    with the prior's own moments :math:`P_0, \mu_0`. SwISS [1]_ maps a draw to
    :math:`A_b (\theta - \mu_b) + \mu` with :math:`A_b = (V P_b)^{1/2}`.

    References
    ----------
    .. [1] Vyner, Nemeth & Sherlock (2023), SwISS: A scalable Markov chain Monte Carlo
       divide-and-conquer strategy, Stat 12. https://doi.org/10.1002/sta4.523

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> rng = np.random.default_rng(0)
    >>> batches = [{"mu": rng.normal(mean, 1, size=(4, 500))} for mean in (-0.5, 0.5)]
    >>> merged = az_swiss.merge(batches, kind="inflated")
    >>> merged["posterior"].sizes["chain"]
    8
    >>> bool(abs(merged["posterior"]["mu"].mean()) < 0.1)
    True
    """
    chosen = methods.find(method)
    methods.check_options(chosen, options, list(inspect.signature(merge).parameters))
    check_covariance(covariance)
    model = plain_model(model, "model")
    with opened(idatas, group) as (batches, container):
        kept = positions_kept(drop, [batch.label for batch in batches])
        dropped = [batch.label for batch in batches if batch.position not in kept]
        counted = keep(resolve_powers(batches, kind, powers), kept)
        remaining = [batches[position] for position in kept]
        check_one_run(remaining)
        matched = match(remaining, var_names, filter_vars, free_variables(model))
        check_holdable(matched, container)
        batches = matched.batches
        check_prior_used(counted, prior)
        priors = prior_batches(batches, prior) if counted.missing_prior else []
        check_prior_counted(counted, has_prior=bool(priors), batches=batches)
        factors = variance_factors(chosen, counted)
        # Inflating changes the distribution of local variables given the shared ones.
        local = find_local(matched, model) if counted.kind != "inflated" else {}
        choices, local_choices = split_choices(transforms, {*matched.local, *local})
        space = find_space(matched, choices, model)
        local_space = find_local_space(matched, local, local_choices, model)
        check_powered_space(batches, space, counted.kind, choices)
        frame = find_frame(matched, space)
        warn_left_out(matched, {*space.deterministic_names, *local}, model is not None)

        moments = [summarise(batch, frame, covariance) for batch in batches]
        if group != "prior":
            check_distinct(batches, moments, frame.constrained)
        prior_moments, prior_draws = None, None
        if priors:
            prior_moments, prior_draws = summarise_prior(priors, frame, covariance)
        pooled = _pool(moments, counted, prior_moments)
        spectra = [linalg.spectrum(pooled.factor, batch.covariance) for batch in moments]
        given = rescale(moments, pooled, spectra, counted.weights, factors)
        diagnostics = diagnose_moments(
            moments,
            pooled,
            spectra,
            counted.likelihood,
            counted.stands_for,
            alone=prior_moments is None,
        )
        warn_few_draws(diagnostics, counted.weights, covariance)
        if prior_moments is not None:
            off = prior_error(prior_draws, prior_moments, pooled, counted.missing_prior)
            diagnostics = diagnostics._replace(prior_error=off)
            warn_prior_shape(off, counted.missing_prior)
        if prior_moments is not None and covariance == "sample":
            warn_few_prior_draws(prior_moments, pooled, counted.missing_prior)
        sampled = counted.likelihood * counted.stands_for
        doubt = warn_kind(diagnostics, sampled, counted.kind_from, len(kept) + len(dropped))
        if doubt != LOOKS_INFLATED:
            warn_heterogeneity(diagnostics, batches, moments, sampled, lambda: frame.labels)

        needs_gaussian = not chosen.any_shape
        warn_poor_batches(batches, [m.glance for m in moments], frame, counted.kind, needs_gaussian)

        if chosen.makes == "maps":
            affine = rescaled_maps(chosen.combine(given, **options), factors)
            draws = move_batches(batches, frame, affine)
        else:
            affine = None
            rng = generator(random_seed)
            combine = partial(chosen.combine, given, rng=rng, **options)
            draws = make_draws(batches, frame, moments, factors, combine)
        data, left_out, unordered = join_data(batches, coords_of(model), set(local.values()))
        left_out += groups_not_joined(batches)
        beside = None
        if local:
            beside = move_local(
                matched, local, local_space, frame, moments, draws, coords_of(model)
            )
            warn_unordered(matched, local, beside)
            unordered += beside.unordered
        has_stats = draws.owners and group in ("posterior", "unconstrained_posterior")
        stats = pack.join_stats(batches, draws.length) if has_stats else None
        if stats is None and any("sample_stats" in batch.groups for batch in batches):
            left_out.append("sample_stats")
        said = {schema.METHOD: method, schema.KIND: counted.kind}
        if left_out:
            said[schema.LEFT_OUT] = ", ".join(left_out)
        if local:
            said[schema.LOCAL] = ",".join(name for name in matched.local if name in local)
        if unordered:
            said[schema.UNORDERED] = ", ".join(dict.fromkeys(unordered))
        if factors is not None:
            said[schema.RESCALED] = f"from {counted.kind} to {chosen.expects}"
        if dropped:
            said |= {schema.DROPPED: dropped, schema.STANDS_FOR: describe_rest(counted)}
        groups = pack.pack_draws(draws, frame, batches, stats, said) | data
        if beside is not None:
            groups = pack.add_local(groups, group, beside)
        coords = pack.transform_coords(batches, frame)
        elements = element_coords(frame.constrained, frame.layout, frame.space.transforms)
        groups[schema.TRANSFORM] = pack.pack_transform(
            batches, moments, affine, pooled, counted, coords | elements
        ).assign_attrs(
            {
                schema.COVARIANCE_ESTIMATOR: "own" if callable(covariance) else covariance,
                schema.KIND_FROM: counted.kind_from,
            }
        )
        groups[schema.DIAGNOSTICS] = pack.pack_diagnostics(diagnostics, coords)
        return containers.build(groups, container)


def _pool(moments: Sequence[Moments], powers: Powers, prior: Moments | None) -> Pooled:
    try:
        return pool(moments, powers.weights, powers.missing_prior, prior)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "the pooled precision is not positive definite: the prior, subtracted "
            f"{-powers.missing_prior:.4g} times, outweighs what the batches know. Draw more of the "
            'prior and the batches, or sample "fractionated" or "inflated" batches, which need no '
            "subtraction."
        ) from error

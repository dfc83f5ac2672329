"""merge(): read, flatten, moments, pool, maps, apply, pack; in the order of the paper."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from arviz_swiss import methods
from arviz_swiss.base import linalg
from arviz_swiss.base.bias import prior_error
from arviz_swiss.base.gaussian import Gaussian, Moments
from arviz_swiss.base.linalg import Spectrum
from arviz_swiss.base.seeds import generator
from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import Container, Groups
from arviz_swiss.merging import combine, pack, warn
from arviz_swiss.merging.batches import Batch, opened
from arviz_swiss.merging.diagnostics import LOOKS_INFLATED, MomentDiagnostics, diagnose_moments
from arviz_swiss.merging.elements import element_coords
from arviz_swiss.merging.join import join_groups
from arviz_swiss.merging.labels import positions_kept
from arviz_swiss.merging.local import LocalSpace, find_local, find_local_space
from arviz_swiss.merging.local_draws import move_local
from arviz_swiss.merging.match import Matched, check_holdable, match
from arviz_swiss.merging.models import coords_of, free_variables, plain_model
from arviz_swiss.merging.moments import (
    Estimator,
    Frame,
    check_covariance,
    find_frame,
    summarise,
    summarise_prior,
)
from arviz_swiss.merging.origin import check_distinct, check_one_run
from arviz_swiss.merging.powers import (
    TILTED,
    Powers,
    describe_rest,
    find_priors,
    keep,
    resolve_powers,
)
from arviz_swiss.merging.space import check_powered_space, find_space, split_choices
from arviz_swiss.methods.registry import Method


class Flat(NamedTuple):
    """Matched batches, the frame of their draws, what goes along by dimension, a model's labels."""

    matched: Matched
    frame: Frame
    local: dict[str, str]
    local_space: LocalSpace
    coords: dict[str, Any]


class Summary(NamedTuple):
    """Moments of the batches, of the prior where it is needed, and of the merged posterior."""

    moments: list[Moments]
    prior: Moments | None
    pooled: Gaussian
    spectra: list[Spectrum]
    diagnostics: MomentDiagnostics


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
) -> Container:
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
        Where to merge a constrained variable: "log", "softplus", "logit", ("interval", low, high),
        "simplex", "ordered", "cholesky", "cholesky_corr", or an object with ``forward`` and
        ``backward``. Draws are merged in unconstrained space and mapped back. None keeps a variable
        on its own scale, also with `model`. Batch-local variables are moved where their transform
        leads, too.
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
        When `idatas` is no list or mapping, an argument is of another type than it takes, or the
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
    recipe = methods.find(method)
    methods.check_options(recipe, options, list(inspect.signature(merge).parameters))
    check_covariance(covariance)
    rng = generator(random_seed)
    model = plain_model(model, "model")
    with opened(idatas, group) as (batches, container):
        every = resolve_powers(batches, kind, powers)
        positions = positions_kept(drop, [batch.label for batch in batches])
        kept, counts = [batches[position] for position in positions], keep(every, positions)
        check_one_run(kept)
        matched = match(kept, var_names, filter_vars, free_variables(model))
        check_holdable(matched, container)
        priors = find_priors(matched.batches, counts, prior)
        factors = combine.variance_factors(recipe, counts)
        flat = flatten(matched, counts, transforms, model)
        summary = summarise_batches(flat, counts, priors, covariance)
        _warn(flat, counts, summary, covariance, recipe, model is not None, len(batches))
        moments, pooled, spectra = summary.moments, summary.pooled, summary.spectra
        given = combine.rescale(moments, pooled, spectra, counts.weights, factors)
        if recipe.makes == "maps":
            maps = combine.rescaled_maps(recipe.combine(given, **options), factors)
            draws = combine.move_batches(matched.batches, flat.frame, maps)
        else:
            make = partial(recipe.combine, given, rng=rng, **options)
            draws = combine.make_draws(matched.batches, flat.frame, moments, factors, make)
        attrs: dict[str, Any] = {schema.METHOD: method, schema.KIND: counts.kind}
        if factors is not None:
            attrs[schema.RESCALED] = f"from {counts.kind} to {recipe.expects}"
        if dropped := [batch.label for batch in batches if batch.position not in positions]:
            attrs |= {schema.DROPPED: dropped, schema.STANDS_FOR: describe_rest(counts)}
        groups = pack_groups(flat, counts, summary, draws, attrs)
        groups[schema.TRANSFORM].attrs = {
            schema.COVARIANCE_ESTIMATOR: "own" if callable(covariance) else covariance,
            schema.KIND_FROM: counts.kind_from,
        }
        return containers.build(groups, container)


def flatten(
    matched: Matched, powers: Powers, transforms: Mapping[str, Any] | None, model: Any
) -> Flat:
    """Find the space of the merge, and the order of its parameters."""
    # Inflating changes the distribution of local variables given the shared ones.
    local = find_local(matched, model) if powers.kind != "inflated" else {}
    choices, local_choices = split_choices(transforms, {*matched.local, *local})
    space = find_space(matched, choices, model)
    local_space = find_local_space(matched, local, local_choices, model)
    check_powered_space(matched.batches, space, powers.kind, choices)
    return Flat(matched, find_frame(matched, space), local, local_space, coords_of(model))


def summarise_batches(
    flat: Flat,
    powers: Powers,
    priors: Sequence[Batch],
    covariance: Estimator,
    pooled: Gaussian | None = None,
) -> Summary:
    """Return the batches' moments, pool them, and tell what they say about the merge.

    Where the moments of the merged posterior are known already, these are taken for `pooled`.
    """
    batches = flat.matched.batches
    moments = [summarise(batch, flat.frame, covariance) for batch in batches]
    if batches[0].group != schema.PRIOR:
        check_distinct(batches, moments, flat.frame.constrained)
    prior, prior_draws = summarise_prior(priors, flat.frame, covariance)
    pooled = pooled or combine.pool_batches(moments, powers, prior)
    spectra = [linalg.spectrum(pooled.factor, batch.covariance) for batch in moments]
    diagnostics = diagnose_moments(
        moments,
        pooled,
        spectra,
        powers.scatter(np.array([batch.effective for batch in moments])),
        powers.stands_for,
        alone=prior is None and powers.kind != TILTED,
    )
    if prior is not None:
        error = prior_error(prior_draws, prior, pooled, powers.missing_prior)
        diagnostics = diagnostics._replace(prior_error=error)
    return Summary(moments, prior, pooled, spectra, diagnostics)


def _warn(
    flat: Flat,
    powers: Powers,
    summary: Summary,
    covariance: Estimator,
    recipe: Method,
    has_model: bool,
    count: int,
) -> None:
    """Warn of what makes the merged posterior less than it seems; `count` is with dropped ones."""
    batches, diagnostics = flat.matched.batches, summary.diagnostics
    along = {*flat.frame.space.deterministic_names, *flat.local}
    warn.warn_left_out(flat.matched, along, has_model)
    warn.warn_few_draws(diagnostics, powers.weights, covariance)
    if summary.prior is not None:
        warn.warn_prior_shape(diagnostics.prior_error, powers.missing_prior)
        if covariance == "sample":
            warn.warn_few_prior_draws(summary.prior, summary.pooled, powers.missing_prior)
    doubt = warn.warn_kind(diagnostics, powers.sampled, powers.kind_from, count)
    if doubt != LOOKS_INFLATED:
        warn.warn_heterogeneity(diagnostics, batches, summary.moments, powers.sampled, flat.frame)
    glances = [batch.glance for batch in summary.moments if batch.glance is not None]
    warn.warn_poor_batches(batches, glances, flat.frame, powers.kind, recipe.any_shape)


def pack_groups(
    flat: Flat, powers: Powers, summary: Summary, draws: combine.Draws, attrs: dict[str, Any]
) -> Groups:
    """Return the groups of the merged object, local variables and data beside the draws."""
    (batches, *_), frame, local = flat.matched, flat.frame, flat.local
    beside = None
    if local:
        beside = move_local(
            flat.matched, local, flat.local_space, frame, summary.moments, draws, flat.coords
        )
        warn.warn_unordered(flat.matched, local, beside)
        attrs[schema.LOCAL] = ",".join(name for name in flat.matched.local if name in local)
    joined = join_groups(batches, draws, flat.coords, set(local.values()))
    if joined.left_out:
        attrs[schema.LEFT_OUT] = ", ".join(joined.left_out)
    if unordered := [*joined.unordered, *(beside.unordered if beside else ())]:
        attrs[schema.UNORDERED] = ", ".join(dict.fromkeys(unordered))
    groups = pack.pack_draws(draws, frame, batches[0], attrs)
    groups = pack.add_joined(groups, joined.groups, draws)
    if beside is not None:
        groups = pack.add_local(groups, batches[0].group, beside)
    coords = {
        "batch": np.array([batch.label for batch in batches]),
        "parameter": frame.labels,
        "variable": ("parameter", frame.owners),
    }
    elements = element_coords(frame.constrained, frame.layout, frame.space.transforms)
    maps = pack.pack_transform(
        batches, summary.moments, draws.maps, summary.pooled, powers, coords | elements
    )
    diagnostics = pack.pack_diagnostics(summary.diagnostics, coords)
    return {**groups, schema.TRANSFORM: maps, schema.DIAGNOSTICS: diagnostics}

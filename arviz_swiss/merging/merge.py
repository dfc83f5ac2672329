"""merge(): read, flatten, moments, pool, maps, apply, pack; in the order of the paper."""

import contextlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss import methods
from arviz_swiss.base.gaussian import Gaussian, Moments
from arviz_swiss.base.linalg import AffineMap
from arviz_swiss.base.seeds import generator
from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import Container, Groups
from arviz_swiss.data.progress import HIDDEN, SOON, Bar, progress
from arviz_swiss.merging import combine
from arviz_swiss.merging.batches import Batch, opened
from arviz_swiss.merging.estimate import (
    Estimator,
    check_covariance,
    find_frame,
    summarise,
    summarise_prior,
)
from arviz_swiss.merging.into import check_into, check_no_input, write_into
from arviz_swiss.merging.local import find_local, find_local_space
from arviz_swiss.merging.local_draws import pack_moves
from arviz_swiss.merging.match import Matched, check_holdable, match
from arviz_swiss.merging.models import coords_of, free_variables, plain_model
from arviz_swiss.merging.origin import fingerprint_draws, join_observed, observed_by
from arviz_swiss.merging.other_groups import find_beside, pack_part
from arviz_swiss.merging.powers import Powers, find_priors
from arviz_swiss.merging.product import check_wanted, find_log_densities, make_product
from arviz_swiss.merging.shared_steps import (
    Flat,
    Summary,
    choose_batches,
    describe_merge,
    describe_origin,
    give,
    pack_settled,
    pool_summary,
    warn_of,
)
from arviz_swiss.merging.space import check_powered_space, find_space, split_choices


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
    log_densities: Sequence[Any] | Mapping[str, Any] | None = None,
    random_seed: int | np.random.Generator | None = None,
    into: str | os.PathLike | None = None,
    overwrite: bool = False,
    progressbar: bool = True,
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
        "consensus", "average", "quantile", "median", "gaussian", "barycenter", "semiparametric",
        "nonparametric" and "gaussian_process" make new ones, as many as one batch has; the last one
        of log densities too, for up to 12 parameters. Given draws of the kind that the
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
    log_densities : sequence, or mapping of label to array, optional
        For "gaussian_process" alone: of each batch, the log density that it was sampled from at its
        (chain, draw) draws, up to a constant, in the space of the merge, as `log_densities` returns
        them. When absent, the statistic `lp` or `logp` of the batch's `sample_stats`: samplers
        record it in unconstrained space, so merge there, with `model` or `transforms`.
    random_seed : int or Generator, optional
        Seed of methods that draw random numbers; SwISS does not.
    into : str or path, optional
        A zarr store to write the result into, where draws do not fit in memory. Batches are read
        twice, one at a time, and the result is opened lazily. For methods that move draws.
    overwrite : bool, default False
        Whether a merged object of that name is replaced, once the new one is complete. Nothing
        else is ever replaced, nor a store that is being merged.
    progressbar : bool, default True
        Show progress in a terminal or a notebook, if tqdm is installed: a bar over the batches
        while their moments are taken, and one while their draws are moved, each where it takes more
        than a second.
    **options
        Options of the method: `bandwidth` and `standardise` of "semiparametric", "nonparametric"
        and "median", `sweeps` of the first two, `landmarks` of "median", `points` of
        "gaussian_process"; see `arviz_swiss.methods`.

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
    FileExistsError
        When `into` is there already, and not to be overwritten.
    TypeError
        When `idatas` is no list or mapping, an argument is of another type than it takes, or the
        method has no such option.

    Warns
    -----
    MergeWarning
        When the kind is only guessed or the batches do not look like it; when batches disagree,
        are strongly skewed, divergent or not converged; when draws are few, also for
        ``covariance="shrunk"``, or batches have different numbers of them; when variables are left
        out, or the order of groups is not known; and when a method by kernels or Gaussian
        processes has not found the product of its estimates.

    See Also
    --------
    subposteriors : undo the merge
    moments, plan : the same merge where draws may not meet
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
    check_wanted(recipe, log_densities)
    check_covariance(covariance)
    rng = generator(random_seed)
    model = plain_model(model, "model")
    target = None if into is None else check_into(into, overwrite, recipe)
    sparing = contextlib.nullcontext() if target is None else containers.few_open_files()
    with sparing, opened(idatas, group) as (batches, container):
        chosen = choose_batches(batches, kind, powers, drop)
        matched = match(chosen.batches, var_names, filter_vars, free_variables(model))
        check_holdable(matched, container)
        priors = find_priors(matched.batches, chosen.powers, prior)
        if target is not None:
            check_no_input(target, [*batches, *priors])
        factors = combine.variance_factors(recipe, chosen.powers)
        flat = flatten(matched, chosen.powers, transforms, model)
        watched = partial(progress, len(matched.batches), show=progressbar, delay=SOON)
        with watched("Merging, moments") as bar:
            summary = summarise_batches(flat, chosen.powers, priors, covariance, bar=bar)
        warn_of(flat, chosen.powers, summary, covariance, recipe, model is not None, chosen.total)
        given, maps = give(summary, chosen.powers, factors), None
        if recipe.makes == "maps":
            maps = combine.rescaled_maps(recipe.combine(given, **options), factors)
        attrs = describe_merge(chosen, recipe, factors)
        origin, observed = describe_origin(chosen.powers, covariance), observed_of(matched.batches)
        settled = pack_settled(flat, chosen.powers, summary, maps, observed, origin)
        with watched("Merging, draws") as bar:
            if target is not None and maps is not None:
                write_into(target, flat, summary, maps, attrs, settled, bar)
                return containers.build(containers.read(target).groups, container)
            if maps is not None:
                draws = move_all(flat, maps, bar)
            elif recipe.makes == "terms":
                terms = combine.rescaled_maps(recipe.combine(given, **options), factors)
                draws = combine.sum_batches(matched.batches, flat.frame, terms, bar)
            elif recipe.makes == "product":
                known = find_log_densities(flat, log_densities)
                make = partial(recipe.combine, given, rng=rng, **options)
                draws, settled[schema.PRODUCT] = make_product(flat, chosen.powers, known, make, bar)
            else:
                make = partial(recipe.combine, given, rng=rng, **options)
                draws = make_all(flat, summary, factors, make, bar)
        return containers.build(
            pack_groups(flat, summary.moments, draws, attrs) | settled, container
        )


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
    bar: Bar = HIDDEN,
) -> Summary:
    """Return the batches' moments, pool them, and tell what they say about the merge.

    Where the moments of the merged posterior are known already, these are taken for `pooled`.
    """
    moments = []
    for batch in flat.matched.batches:
        moments.append(summarise(batch, flat.frame, covariance))
        bar()
    prior = summarise_prior(priors, flat.frame, covariance)
    fingerprint = partial(fingerprint_draws, layout=flat.frame.constrained)
    return pool_summary(flat, powers, moments, prior, fingerprint, pooled)


def move_all(flat: Flat, maps: Sequence[AffineMap], bar: Bar = HIDDEN) -> combine.Draws:
    """Return all batches' draws, moved, end to end."""
    batches, frame = flat.matched.batches, flat.frame
    dtypes = combine.dtypes_of(batches, frame.layout.names)
    length = combine.kept_length(batches)
    return combine.move_batches(batches, frame, maps, length, dtypes, bar=bar)


def make_all(
    flat: Flat,
    summary: Summary,
    factors: np.ndarray | None,
    make: Callable[..., np.ndarray],
    bar: Bar,
) -> combine.Draws:
    """Return draws that are newly made from those of all batches."""
    batches, frame = flat.matched.batches, flat.frame
    return combine.make_draws(batches, frame, summary.moments, factors, make, bar)


def observed_of(batches: Sequence[Batch]) -> xr.DataArray | None:
    """Return what is recorded of the batches' observed values."""
    return join_observed([observed_by(batch) for batch in batches])


def pack_groups(
    flat: Flat, moments: Sequence[Moments], draws: combine.Draws, attrs: dict[str, Any]
) -> Groups:
    """Return the merged draws' groups, local variables and data beside them."""
    batches, frame = flat.matched.batches, flat.frame
    beside = find_beside(flat, moments, draws.length if draws.owners else None, attrs)
    groups = pack_part(flat, moments, beside, draws, batches) | beside.data
    if beside.moves is not None:
        groups[schema.LOCAL_MAPS] = pack_moves(beside.moves, batches, frame)
    return groups

"""reweigh(): the batches' own draws, weighed against the full posterior where they are."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.special import logsumexp

from arviz_swiss.base import mode, weights
from arviz_swiss.base.counts import check_count
from arviz_swiss.base.gaussian import Gaussian, gaussian
from arviz_swiss.base.seeds import generator
from arviz_swiss.correcting.batch_model import is_modelled
from arviz_swiss.correcting.batch_model import opened as here
from arviz_swiss.correcting.belonging import check_all_there
from arviz_swiss.correcting.certificate import FEWEST, NOTABLE
from arviz_swiss.correcting.densities import Source, batch_densities, space_for_models
from arviz_swiss.correcting.evaluation import Evaluate, Request, evaluating
from arviz_swiss.correcting.full_posterior import all_terms
from arviz_swiss.correcting.resample import CHAINS, PRIOR_GROUPS
from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import Container, Groups
from arviz_swiss.data.layout import dataset_from, layout_of
from arviz_swiss.data.messages import warn
from arviz_swiss.data.progress import progress
from arviz_swiss.data.statistics import pareto_smoothed
from arviz_swiss.merging.merged import Merged, open_merged
from arviz_swiss.merging.pack import labelled
from arviz_swiss.merging.records import USABLE_KHAT
from arviz_swiss.merging.space import Space

DRAWS = 4000
NO_MODE = (
    "no mode of the full posterior with a curvature that makes a Gaussian was found, from the "
    "pooled mean on ({}). Leave laplace out, or refine the merge and certify it."
)


class Pool(NamedTuple):
    """Draws of several sources (draws, parameters), and the position of each one's source."""

    points: np.ndarray
    sources: np.ndarray


class Weighed(NamedTuple):
    """Log weights whose exponentials sum to one, and how good they are."""

    log_weights: np.ndarray
    khat: float
    effective: float
    overlap_error: float


def reweigh(
    merged: Container | str | PathLike,
    densities: Any = None,
    *,
    laplace: int = 0,
    build: Callable[[Any], Any] | None = None,
    data: Any = None,
    groups: Any = None,
    stratify: Any = None,
    folder: str | PathLike | None = None,
    draws: int = DRAWS,
    transforms: Mapping[str, Any] | None = None,
    model: Any = None,
    executor: Any = None,
    random_seed: int | np.random.Generator | None = None,
    group: str = "posterior",
    progressbar: bool = True,
) -> Container:
    r"""Return draws of the full posterior, by importance weights of the batches' own draws.

    A merge that moves nothing: all batches' draws are laid end to end, and weighed by the density
    of the full posterior over that of the mixture they make. It asks nothing of the batches' shape,
    but that together they cover the posterior. In more than a few parameters they do not: each
    inflated batch of B lies about sqrt(B) sds off in every direction. Then `laplace` draws of the
    Gaussian at the mode help, or `refine` and `certify`, which weigh draws after they were moved.

    Parameters
    ----------
    merged : InferenceData or DataTree, or the path of its file
        As `merge` returned it, by any method that moves draws: they are moved back.
    densities : sequence, or mapping of batch label to density
        One a batch, as `certify` takes them.
    laplace : int, default 0
        How many draws of the Gaussian at the mode of the full posterior to add to the mixture.
    build, data, groups, stratify, folder : optional
        Instead of `densities`, as in `refine`.
    draws : int, default 4000
        About how many of the batches' draws to weigh, spread evenly over all chains; each needs the
        density of every batch. So many are returned, fewer if there are not so many.
    transforms, model : optional
        As in `refine`: transforms of the merge that no file can hold, and the model that computes
        deterministics.
    executor : concurrent.futures.Executor or dask.distributed.Client, optional
        As in `refine`.
    random_seed : int or Generator, optional
    group : str, default "posterior"
    progressbar : bool, default True
        Show progress in a terminal or a notebook, if tqdm is installed.

    Returns
    -------
    InferenceData or DataTree
        Unweighted draws in random order and 4 chains, as of `resample`; data and the prior's draws
        are kept. The group `swiss_reweighed` holds `khat`, `effective_size` and `weighed` of the
        weights, `overlap_error` from how little the batches overlap, and the share of the weights
        that `laplace` draws have. It is not a merged object any more.

    Raises
    ------
    ValueError
        When draws were newly made, the batches have variables of their own or were dropped, their
        priors differ, a batch's own draws have no density, none of the draws has one in the full
        posterior, or no mode is found for `laplace`.
    TypeError
        When a density lacks methods.

    Warns
    -----
    MergeWarning
        When the weights are not to be relied on: k-hat above .7, or batches that barely overlap.

    See Also
    --------
    certify, resample : the same for draws after they were moved, which fit better

    Notes
    -----
    Batch b's draws come from :math:`\pi_b \propto p^{a_b} f_b^{p_b}`, and n_b of them are in the
    pool. Each has the weight

    .. math:: w(x) = p(x) \prod_b f_b(x) / \sum_b n_b \, \pi_b(x) / Z_b

    with constants :math:`Z_b` that follow from the draws, as in `certify`. Inflated draws in a
    pool are those of LISA [1]_; to weigh them as one mixture, with draws from a Laplace
    approximation added to it, is what the Laplace enriched multiple importance estimator does [2]_.

    References
    ----------
    .. [1] Entezari, Craiu & Rosenthal (2018), Likelihood inflating sampling algorithm, Canadian
       Journal of Statistics 46. https://doi.org/10.1002/cjs.11343
    .. [2] Box (2022), Importance sampling methods for Bayesian inference with partitioned data.
       https://doi.org/10.48550/arXiv.2210.06620

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> from types import SimpleNamespace
    >>> def normal(centre):
    ...     return SimpleNamespace(
    ...         log_prior=lambda x: np.zeros(len(x)),
    ...         log_likelihood=lambda x: -0.5 * (x[:, 0] - centre) ** 2,
    ...         grad_log_prior=np.zeros_like,
    ...         grad_log_likelihood=lambda x: centre - x,
    ...     )
    >>> rng, centres = np.random.default_rng(1), (-1.0, 1.0)
    >>> densities = [normal(centre) for centre in centres]
    >>> batches = [{"mu": rng.normal(centre, 2**-0.5, size=(4, 500))} for centre in centres]
    >>> merged = az_swiss.merge(batches, method="pool", kind="inflated")
    >>> result = az_swiss.reweigh(merged, densities, random_seed=1, progressbar=False)
    >>> dict(result["posterior"].sizes)
    {'chain': 4, 'draw': 1000}
    >>> sd = float(result["posterior"]["mu"].std())
    >>> bool(abs(sd - 0.5**0.5) < 0.05)
    True
    """
    opened = open_merged(merged, group)
    check_all_there(opened)
    opened.require_moved(
        'the batches\' own draws are not at hand. Merge the same batches with method="pool" and '
        "pass that."
    )
    if local := opened.attrs.get(schema.LOCAL):
        raise ValueError(
            f"the batches have variables of their own ({local}), so that their draws of the shared "
            "ones have no density that could be evaluated. Refine the merge and certify it."
        )
    check_count("draws", draws, FEWEST)
    if laplace:
        check_count("laplace", laplace)
    rng = generator(random_seed)
    with Source(densities, build, data, groups, stratify, folder).reading(
        opened, progressbar
    ) as source:
        matched = batch_densities(opened, source)
        first = next(iter(matched.values()))
        if is_modelled(first):
            model = model or here(first)
        space = opened.space(transforms, model)
        with (
            # steps to the mode ask each batch as well, nobody knows how often
            progress(None if laplace else len(matched), "Weighing", progressbar) as bar,
            evaluating(matched, space_for_models(opened), executor, bar) as evaluate,
        ):
            pool = _pool(opened, draws, rng)
            added = None
            if laplace:
                added = _at_mode(evaluate, opened)
                pool = _enriched(pool, added, laplace, rng)
            weighed = _weigh(evaluate, opened, pool, added)
            bar.finish()
    count = CHAINS * (min(draws, len(pool.points)) // CHAINS)
    positions = weights.resampled(np.exp(weighed.log_weights), count, rng)
    record = _record(weighed, pool, len(opened.labels) if laplace else None)
    told = _describe(weighed, pool, laplace)
    if weighed.khat > USABLE_KHAT or weighed.overlap_error > NOTABLE:
        more = "" if laplace else "Add laplace= draws; or "
        refine = (
            "refine the merge by SwISS, and certify it, which weighs draws after they are moved."
        )
        warn(
            f"{told}: the draws are not to be trusted, as the batches do not cover the posterior. "
            f"{more}{refine if more else refine.capitalize()}"
        )
    made = _as_groups(opened, space, pool.points[positions], told)
    kept = {name: each for name, each in opened.groups.items() if _stays(name, each)}
    result = {**made, **kept, schema.REWEIGHED: record}
    return containers.build(result, opened.container)


def _pool(opened: Merged, draws: int, rng: np.random.Generator) -> Pool:
    """Return some of every batch's own draws, the same of every chain."""
    chains, length = opened.sizes
    positions = weights.spread_evenly(length, -(-draws // chains), rng)
    own = [
        opened.before(position)[:, positions].reshape(-1, opened.free.size)
        for position in range(len(opened.labels))
    ]
    sources = np.repeat(np.arange(len(own)), [len(each) for each in own])
    return Pool(np.concatenate(own), sources)


def _at_mode(evaluate: Evaluate, opened: Merged) -> Gaussian:
    """Return the Gaussian at the mode of the full posterior, found from the pooled mean on."""
    labels = opened.labels

    def score(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        wanted = {
            label: [Request("log_likelihood", points, True), Request("grad_log_likelihood", points)]
            for label in labels
        }
        wanted[labels[0]] += [Request("log_prior", points, True), Request("grad_log_prior", points)]
        answers = evaluate(wanted)
        value, gradient = answers[labels[0]][2:]
        return (
            value + sum(answer[0] for answer in answers.values()),
            gradient + sum(answer[1] for answer in answers.values()),
        )

    try:
        centre, precision = mode.follow(score, opened.pooled.mean, opened.pooled.precision)
        mode.factor_of(precision)
    except (mode.NoMode, ValueError) as error:
        raise ValueError(NO_MODE.format(error)) from error
    return gaussian(centre, np.linalg.inv(precision))


def _enriched(pool: Pool, added: Gaussian, count: int, rng: np.random.Generator) -> Pool:
    """Return a pool with draws of a Gaussian as the last source."""
    standard = rng.standard_normal((count, added.mean.size))
    points = added.mean + standard @ np.linalg.cholesky(added.covariance).T
    last = np.full(count, pool.sources.max() + 1)
    return Pool(np.concatenate([pool.points, points]), np.concatenate([pool.sources, last]))


def _weigh(evaluate: Evaluate, opened: Merged, pool: Pool, added: Gaussian | None) -> Weighed:
    """Return the weights of the pool against the full posterior, as one mixture."""
    terms = all_terms(evaluate, opened.labels, pool.points)
    powers = (opened.maps[name].values[:, None] for name in ("power", "prior_power"))
    power, prior_power = powers
    logs = power * terms.likelihoods + prior_power * terms.prior
    for position, label in enumerate(opened.labels):
        if not np.isfinite(logs[position, pool.sources == position]).all():
            raise ValueError(
                f'batch "{label}": some of its own draws have no density. The density given is not '
                "the one that the batch was sampled from."
            )
    if added is not None:
        white = (pool.points - added.mean) @ np.linalg.cholesky(added.precision)
        logs = np.concatenate([logs, -0.5 * np.sum(white**2, axis=1)[None]])
    mixture = weights.mixture_of(logs, pool.sources)
    ratios = terms.full - mixture.log_density
    if not np.isfinite(ratios).any():
        raise ValueError(
            "none of the draws has a density in the full posterior. Merge in unconstrained space, "
            "with transforms= or model=."
        )
    log_weights, khat = pareto_smoothed(ratios - logsumexp(ratios) + np.log(ratios.size))
    return Weighed(
        log_weights,
        khat,
        weights.effective_size(log_weights),
        weights.mixture_error(mixture, np.exp(log_weights)),
    )


def _record(weighed: Weighed, pool: Pool, added: int | None) -> xr.Dataset:
    meanings = schema.VARIABLES[schema.REWEIGHED]
    is_added = pool.sources == added if added is not None else np.zeros(len(pool.sources), bool)
    values = {
        "khat": weighed.khat,
        "effective_size": weighed.effective,
        "weighed": len(pool.points),
        "laplace": int(is_added.sum()),
        "laplace_share": float(np.exp(weighed.log_weights)[is_added].sum()),
        "overlap_error": weighed.overlap_error,
    }
    return xr.Dataset(
        {name: ((), value, {"description": meanings[name]}) for name, value in values.items()}
    )


def _describe(weighed: Weighed, pool: Pool, laplace: int) -> str:
    added = f", {laplace} of them of the Gaussian at the mode" if laplace else ""
    return (
        f"reweighed: k-hat {weighed.khat:.2f}, {len(pool.points)} draws{added}, worth "
        f"{weighed.effective:.0f} equally weighted ones"
    )


def _stays(name: str, dataset: xr.Dataset) -> bool:
    """Tell data and the prior's draws, which are as before."""
    if name.startswith(schema.PREFIX):
        return False
    return name in PRIOR_GROUPS or not {*containers.SAMPLE_DIMS} & {*dataset.dims}


def _as_groups(opened: Merged, space: Space, rows: np.ndarray, told: str) -> Groups:
    """Return the groups of new draws, (draws, parameters), of the shared variables."""
    layout = opened.layout
    flat = np.empty((len(rows), layout.size))
    flat[:] = np.concatenate([array[0, 0].ravel() for array in opened.arrays])
    flat[:, opened.free] = rows
    shape = (CHAINS, len(rows) // CHAINS)
    images = {
        variable.name: flat[:, variable.columns].reshape(*shape, *variable.shape)
        for variable in layout.variables
    }
    own = space.backward(images) if opened.transformed else images
    coords = dict(zip(containers.SAMPLE_DIMS, map(np.arange, shape), strict=True))
    kept = _typed(own, opened.draws, layout.names)
    posterior = dataset_from(kept, layout_of(opened.draws, layout.names), coords)
    computed = labelled(space, space.deterministics(own))
    posterior = posterior.assign({**_constants(opened.draws, shape), **computed})
    attrs = {k: v for k, v in opened.attrs.items() if not k.startswith(schema.PREFIX)}
    posterior.attrs = {**attrs, schema.RESAMPLED: told}
    groups = {opened.group: posterior}
    if opened.transformed:
        moved = {name: images[name] for name in opened.transformed}
        groups[schema.unconstrained(opened.group)] = dataset_from(moved, layout, coords)
    return groups


def _constants(draws: xr.Dataset, shape: tuple[int, int]) -> dict[str, xr.DataArray]:
    """Return variables that are the same in all draws, of which none is a parameter."""
    found = {}
    for name, array in draws.data_vars.items():
        first = array.isel(chain=0, draw=0, drop=True).drop_vars("batch", errors="ignore")
        if not bool((array == first).all()):
            continue
        sizes = dict(zip(containers.SAMPLE_DIMS, shape, strict=True))
        found[str(name)] = first.expand_dims(sizes).assign_attrs(array.attrs)
    return found


def _typed(
    arrays: Mapping[str, np.ndarray], like: xr.Dataset, names: Sequence[str]
) -> dict[str, np.ndarray]:
    return {name: arrays[name].astype(like[name].dtype, copy=False) for name in names}

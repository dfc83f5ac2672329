"""certify(): weigh merged draws against the full posterior."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.base import weights
from arviz_swiss.base.counts import check_count
from arviz_swiss.base.seeds import generator
from arviz_swiss.correcting.batch_model import BatchModel, is_modelled
from arviz_swiss.correcting.batch_model import opened as here
from arviz_swiss.correcting.belonging import check_all_there, check_draws
from arviz_swiss.correcting.certificate import FEWEST, Thinned, build_certificate
from arviz_swiss.correcting.certify_local import certify_tilted
from arviz_swiss.correcting.certify_product import certify_product, has_product
from arviz_swiss.correcting.certify_redrawn import certify_redrawn
from arviz_swiss.correcting.densities import (
    JointSpace,
    Source,
    batch_densities,
    space_for_models,
    summed_densities,
)
from arviz_swiss.correcting.draw_weights import with_weights
from arviz_swiss.correcting.evaluation import Evaluate, Moved, evaluating
from arviz_swiss.correcting.full_posterior import log_densities
from arviz_swiss.correcting.pilot import PilotDraws, draw_pilot
from arviz_swiss.correcting.refine_local import local_axes, only_models
from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import Container
from arviz_swiss.data.messages import warn
from arviz_swiss.data.progress import progress
from arviz_swiss.merging.merged import Merged, open_merged
from arviz_swiss.merging.powers import TILTED
from arviz_swiss.merging.records import read_certificate

# How many draws are weighed: fewer where each weight is an integral over a batch's own variables.
DRAWS, LOCAL_DRAWS = 1000, 300


def certify(
    merged: Container | str | PathLike,
    densities: Any = None,
    *,
    build: Callable[[Any], Any] | None = None,
    data: Any = None,
    groups: Any = None,
    stratify: Any = None,
    folder: str | PathLike | None = None,
    draws: int | None = None,
    executor: Any = None,
    random_seed: int | np.random.Generator | None = None,
    group: str = "posterior",
    progressbar: bool = True,
) -> Container:
    r"""Say how far a merge can be trusted: weigh its draws against the full posterior.

    Merged draws come from the batches' densities through known maps, so their importance weights
    need no estimate of a density. Weights of little variation certify the merge, and correct what
    error it has; Pareto's k-hat tells.

    Parameters
    ----------
    merged : InferenceData or DataTree, or the path of its file
        As `merge` or `refine` returned it, by a method that moves the batches' draws or by
        "gaussian_process".
    densities : sequence, or mapping of batch label to density
        One a batch, as `refine` takes them: merged draws are weighed by what each batch was sampled
        from, which a density of all the data does not tell, unless they are of Gaussian
        processes, whose density is recorded with them. Where batches have variables of their
        own, the PyMC model of each.
    build, data, groups, stratify, folder : optional
        Instead of `densities`, as in `refine`.
    draws : int, optional
        About how many merged draws to weigh, spread evenly over all chains, or over as many chains
        where there are more; by default 1000, or 300 where batches have variables of their own,
        over which each weight is an integral, and at least one of every chain there.
    executor : concurrent.futures.Executor or dask.distributed.Client, optional
        As in `refine`.
    random_seed : int or Generator, optional
        Seed of the choice of draws.
    group : str, default "posterior"
    progressbar : bool, default True
        Show progress in a terminal or a notebook, if tqdm is installed.

    Returns
    -------
    InferenceData or DataTree
        With a new group `swiss_certificate`: `log_weight` of the draws that were weighed, `khat` of
        all and `batch_khat` by batch (NaN where a batch has fewer than 25 of the draws),
        `batch_offset`, `batch_width`, `effective_size`, weighted `mean` and `sd`, `mean_shift` and
        `sd_shift` from the unweighted, in sds; `mahalanobis_shift` and `covariance_change`, the
        same in the direction where they are largest, in the space of the merge, with their Monte
        Carlo errors `mahalanobis_error` and `covariance_error`; `overlap_error`, of the log weights
        where batches barely overlap. Where the object holds a pilot, as `sample` makes it,
        `pilot_khat` and `pilot_effective_size` of `pilot_draws` draws say what the pilot's Gaussian
        alone would have got. Where batches have variables of their own, `group_khat` is the largest
        k-hat of a batch's integrals over those of one group, `integral_noise` what these leave in
        the log weights, and `batch_offset` and `batch_width` are NaN. The attribute `status` is
        "certified", "usable" or "not certified", `reason` and `remedy` say why and what to do;
        `report` writes them out. If all draws were weighed, and are certified or usable, their
        `log_weight` is in `sample_stats` too.

        Draws are certified if the weights move the mean by no more than .2 sds, and the sd of no
        direction by more than 20%, beyond Monte Carlo error, and k-hat is below .5, or below .7
        where over 90% of the draws are effective. Otherwise they are usable with the weights
        (`resample`) up to a k-hat of .7, and not certified above. Nor are they where a batch's
        draws do not come from its density at the powers that `merge` was told, where the batches
        do not overlap, or where too few draws were weighed to tell. Where batches have variables of
        their own, a shared parameter that is skewed by more than .3 makes draws usable at best.

    Raises
    ------
    ValueError
        When draws were newly made (their density is not known), the batches have variables of
        their own and were not refined, their priors differ, a density is not finite or of other
        rows than its batch's, several batches have the same one, or `data` are not those that were
        divided.
    TypeError
        When a density lacks methods, or is no PyMC model though batches have variables of their
        own, or neither `densities` nor `build` and `data` are given, or both.
    RuntimeError
        When the density of a batch with variables of its own is no product over groups.

    Warns
    -----
    MergeWarning
        When the draws are not certified, or only usable with the weights.

    See Also
    --------
    resample : unweighted draws by these weights

    Notes
    -----
    Batch b's draws x come from :math:`\pi_b \propto p^{a_b} f_b^{p_b}`, with prior p and likelihood
    :math:`f_b`, and go to :math:`y = T_b(x)`. All merged draws together are a sample of the mixture
    of the batches' mapped densities, and have weights

    .. math:: w(y) = p(y) \prod_b f_b(y) / \sum_b n_b \, \pi_b(T_b^{-1} y) / Z_b.

    The constants :math:`Z_b`, which hold the maps' determinants too, follow from the draws [2]_.
    A few batches of another shape than the full posterior do no harm to these weights, where others
    cover it; `batch_khat` shows them. The weights see only where draws are: if all batches missed
    the same part of the posterior, they cannot tell.

    That a batch's draws come from :math:`\pi_b` is tested too, by its score :math:`s_b`:

    .. math:: E[s_b] = 0, \quad E[(x - c)' s_b] = -d

    for d parameters and any fixed c. `batch_offset` says how many sds off the draws are by the
    first, `batch_width` how many times too wide by the second: another than 1 if `merge` was told
    the wrong kind or powers. Errors are by the effective size of each series. Parameters with an
    edge, where points fell outside, are left out, since neither holds for them.

    Where batches have variables :math:`\alpha` of their own, in groups with densities :math:`f_g`,
    a draw :math:`\theta` of batch b that was moved to y has the weight

    .. math:: w(y) = p(y) \prod_g \int f_g(y, \alpha) d\alpha / \int t_b(\theta, \alpha) d\alpha

    with the tilted distribution :math:`t_b` of `refine`, relative to the mean weight of the batch.
    Integrals are by importance sampling around the mode of each group.

    References
    ----------
    .. [1] Vehtari, Simpson, Gelman, Yao & Gabry (2024), Pareto smoothed importance sampling,
       Journal of Machine Learning Research 25. https://doi.org/10.48550/arXiv.1507.02646
    .. [2] Shirts & Chodera (2008), Statistically optimal analysis of samples from multiple
       equilibrium states, Journal of Chemical Physics 129. https://doi.org/10.1063/1.2978177

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
    >>> merged = az_swiss.merge(batches, kind="inflated")
    >>> certified = az_swiss.certify(merged, densities, random_seed=1, progressbar=False)
    >>> certified["swiss_certificate"].attrs["status"]
    'certified'
    """
    opened = open_merged(merged, group)
    check_all_there(opened)
    if opened.is_redrawn:
        check_draws(opened)
    elif not has_product(opened):
        opened.require_moved(
            'their density is not known, so they cannot be certified. Merge with method="swiss".'
        )
    if draws is not None:
        check_count("draws", draws, FEWEST)
    rng = generator(random_seed)
    is_local = bool(opened.attrs.get(schema.LOCAL))
    draws = draws or (LOCAL_DRAWS if is_local else DRAWS)
    with Source(densities, build, data, groups, stratify, folder).reading(
        opened, progressbar
    ) as source:
        find = summed_densities if has_product(opened) else batch_densities
        matched = find(opened, source)
        space = _joint_space(opened, matched) if is_local else space_for_models(opened)
        with (
            progress(len(matched), "Certifying", progressbar) as bar,
            evaluating(matched, space, executor, bar) as evaluate,
        ):
            if opened.is_redrawn:
                certificate = certify_redrawn(opened, evaluate, draws, rng)
            elif has_product(opened):
                certificate = certify_product(opened, evaluate, list(matched), draws, rng)
            elif is_local:
                thinned = _thin(opened, draws, rng, every_chain=True)
                certificate = certify_tilted(opened, evaluate, thinned, rng)
            else:
                thinned = _thin(opened, draws, rng, every_chain=False)
                pilot = draw_pilot(opened, draws, rng)
                certificate = _certify_shared(opened, matched, evaluate, thinned, pilot, rng)
    given = containers.read(merged, group).groups
    result = with_weights({**given, schema.CERTIFICATE: certificate}, group)
    record = read_certificate(result)
    if record is not None and not record.is_certified:
        warn(record.describe())
    return containers.build(result, opened.container, containers.root_attrs(merged))


def _certify_shared(
    opened: Merged,
    matched: Mapping[str, Any],
    evaluate: Evaluate,
    thinned: Thinned,
    pilot: PilotDraws,
    rng: np.random.Generator,
) -> xr.Dataset:
    """Return the certificate of a merge by the batches' densities."""
    both = (opened.maps[name].values.tolist() for name in ("power", "prior_power"))
    powers = dict(zip(opened.labels, zip(*both, strict=True), strict=True))
    _check_potentials(matched, powers)
    logs = log_densities(
        evaluate,
        opened.labels,
        thinned.merged,
        thinned.original,
        thinned.own,
        powers,
        beside=pilot.points,
    )
    _check_own(opened.labels, logs.sources, thinned.owners)
    return build_certificate(opened, thinned, logs, pilot, rng)


def _joint_space(opened: Merged, densities: Mapping[str, Any]) -> JointSpace:
    """Return what models must know of shared and local variables; refuse what was not refined."""
    if opened.kind != TILTED or schema.SITES not in opened.groups:
        raise ValueError(
            f"the batches have variables of their own ({opened.attrs[schema.LOCAL]}), and what "
            "they say of the shared ones by themselves is far from the full posterior. Refine the "
            "merge first: refine(merged, models)."
        )
    first = here(next(iter(only_models(opened, densities).values())))
    return JointSpace(tuple(opened.parameters.tolist()), local_axes(opened, first))


def _thin(opened: Merged, draws: int, rng: np.random.Generator, every_chain: bool) -> Thinned:
    """Choose the same draws of every chain, and the maps back to where they came from.

    Every batch's density is evaluated at every draw. Of more chains than draws are wanted, only so
    many have any, unless each batch needs some: else the cost would grow as the batches' square.
    """
    count, length = opened.sizes
    positions = weights.spread_evenly(length, -(-draws // count), rng)
    chains = np.arange(count)
    if count > draws and not every_chain:
        chains = weights.spread_evenly(count, draws, rng)
    merged = opened.rows(chains[:, None], positions)
    places, original, own = np.empty(count, dtype=int), {}, {}
    weighed = np.zeros(count, dtype=bool)
    weighed[chains] = True
    for position, label in enumerate(opened.labels):
        mine, back = opened.chains_of(position), opened.inverse_of(position)
        places[mine] = position
        own[label] = Moved(opened.rows(mine[:, None], positions), back).array()
        if weighed[mine].any():
            original[label] = Moved(merged, back)
    owners = np.repeat(places[chains], positions.size)
    return Thinned(chains, positions, owners, merged, original, own)


def _check_potentials(
    densities: Mapping[str, Any], powers: Mapping[str, tuple[float, float]]
) -> None:
    """Refuse PyMC models with Potentials, which count with the prior, if that was tempered."""
    for label, density in densities.items():
        if powers[label][1] == 1 or not is_modelled(density):
            continue
        density = here(density)
        if density.potentials:
            names = ", ".join(potential.name for potential in density.potentials)
            raise ValueError(
                f'batch "{label}": Potentials {names} count with the prior, which was raised to '
                f"the power {powers[label][1]:.4g}, and they were not. What the batch was sampled "
                "from is not known, so the merge cannot be certified. Write them as variables."
            )
        if isinstance(densities[label], BatchModel):
            return  # one build makes them all


def _check_own(labels: Sequence[str], sources: np.ndarray, owners: np.ndarray) -> None:
    for source, position in enumerate(np.unique(owners)):
        if not np.isfinite(sources[source, owners == position]).all():
            raise ValueError(
                f'batch "{labels[position]}": some of its own draws have no density. The density '
                "given is not the one that the batch was sampled from."
            )

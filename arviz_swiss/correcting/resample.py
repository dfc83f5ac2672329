"""resample(): unweighted draws by the weights of a certificate."""

from os import PathLike
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.base import weights
from arviz_swiss.base.counts import check_count
from arviz_swiss.base.seeds import generator
from arviz_swiss.correcting.draw_weights import without_weights
from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import Container, Groups
from arviz_swiss.data.messages import warn
from arviz_swiss.merging.merged import MERGED, read_whole
from arviz_swiss.merging.records import NOT_CERTIFIED, Certificate, read_certificate

CHAINS = 4
# Their draws are their own, whatever the posterior's weights.
PRIOR_GROUPS = ("prior", "prior_predictive", "sample_stats_prior", "unconstrained_prior")


def resample(
    merged: Container | str | PathLike,
    *,
    draws: int | None = None,
    random_seed: int | np.random.Generator | None = None,
    group: str = "posterior",
) -> Container:
    """Return unweighted draws by the weights of a certificate: an ordinary posterior.

    Parameters
    ----------
    merged : InferenceData or DataTree, or the path of its file
        As `certify` returned it.
    draws : int, optional
        How many to return; by default about as many as were weighed. More than are effective
        repeat one another.
    random_seed : int or Generator, optional
    group : str, default "posterior"

    Returns
    -------
    InferenceData or DataTree
        The draws that were weighed, each as often as its weight says, in random order and in 4
        chains (fewer, if 4 do not divide `draws`). Groups of the same draws, such as
        `posterior_predictive` and `log_likelihood`, go with them; data and the prior's draws are
        kept as they are. It is not a merged object any more.

    Raises
    ------
    ValueError
        When `merged` is no merged object or has no certificate, when draws that were weighed are
        not there any more, or when `draws` is not a positive integer.
    TypeError
        When `merged` is neither a container nor a file.

    Warns
    -----
    MergeWarning
        When the merge was not certified: its weights cannot mend it. When fewer draws were weighed
        than the merge has: the others are lost, and the error by chance grows. When a group has
        draws of its own and is left out.

    See Also
    --------
    certify

    Notes
    -----
    Only what `certify` weighed can be drawn: ask it for more draws if you need more. The mean of
    d parameters from n effective draws is off by about sqrt(d / n) sds (Mahalanobis).

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
    >>> weighed = az_swiss.certify(merged, densities, draws=4000, progressbar=False)
    >>> dict(az_swiss.resample(weighed, draws=1000, random_seed=1)["posterior"].sizes)
    {'chain': 4, 'draw': 250}
    """
    contents = read_whole(merged, group)
    groups = without_weights(contents.groups)
    record = _certificate_of(groups)
    certificate = record.dataset
    chains_returned, length = _shape(draws, certificate["log_weight"].size)
    kept, picked, lost = _split(groups, group)
    if losses := _losses(groups, group, record, chains_returned * length, lost):
        warn(losses)
    shares = np.exp(certificate["log_weight"].transpose(*containers.SAMPLE_DIMS).values)
    rng = generator(random_seed)
    positions = weights.resampled(shares.ravel() / shares.sum(), chains_returned * length, rng)
    rows, columns = np.divmod(positions, shares.shape[1])
    _check_there(groups[group], certificate)
    places = certificate.get_index("chain")[rows], certificate.get_index("draw")[columns]
    drawn = {name: _picked(groups[name], *places, chains_returned) for name in picked}
    drawn[group].attrs[schema.RESAMPLED] = record.describe()
    return containers.build(drawn | {name: groups[name] for name in kept}, contents.container)


def _certificate_of(groups: Groups) -> Certificate:
    if schema.TRANSFORM not in groups:
        raise ValueError(
            f"not a merged object: no group {schema.TRANSFORM}. Pass {MERGED}, after certify."
        )
    record = read_certificate(groups)
    if record is None:
        raise ValueError(
            "there is no certificate to take weights from: call certify first, and after every "
            f"refine. The groups are: {', '.join(groups) or 'none'}."
        )
    return record


def _shape(draws: int | None, weighed: int) -> tuple[int, int]:
    """Return how many chains of how many draws to make."""
    if draws is None:
        return CHAINS, weighed // CHAINS
    check_count("draws", draws)
    chains = next(count for count in range(CHAINS, 0, -1) if draws % count == 0)
    return chains, int(draws) // chains


def _split(groups: Groups, group: str) -> tuple[list[str], list[str], list[str]]:
    """Return the groups to keep as they are, to pick draws from, and to leave out."""
    kept, picked, lost = [], [], []
    for name, dataset in groups.items():
        if name.startswith(schema.PREFIX):
            continue
        if name in PRIOR_GROUPS or not {*containers.SAMPLE_DIMS} & {*dataset.dims}:
            kept.append(name)
        elif _has_draws_of(groups[group], dataset):
            picked.append(name)
        else:
            lost.append(name)
    return kept, picked, lost


def _has_draws_of(posterior: xr.Dataset, dataset: xr.Dataset) -> bool:
    return all(
        dim in dataset.dims
        and dataset.get_index(dim).symmetric_difference(posterior.get_index(dim)).empty
        for dim in containers.SAMPLE_DIMS
    )


def _losses(groups: Groups, group: str, record: Certificate, returned: int, lost: list[str]) -> str:
    """Say what is lost by taking the weighed draws for the merged ones; nothing if nothing is."""
    certificate = record.dataset
    sentences = []
    if record.verdict.status == NOT_CERTIFIED:
        sentences.append(f"{record.describe()} Draws by its weights are not to be trusted either.")
    weighed = certificate["log_weight"].size
    merged = groups[group].sizes["chain"] * groups[group].sizes["draw"]
    if weighed < merged:
        effective = min(float(certificate["effective_size"]), returned)
        error = np.sqrt(groups[schema.TRANSFORM].sizes["parameter"] / effective)
        sentences.append(
            f"only {weighed} of {merged} merged draws were weighed, and the others are lost: what "
            f"is returned is worth {effective:.0f} independent draws, whose mean is off by "
            f"{error:.2g} sds (Mahalanobis) by chance."
        )
        if record.is_certified:
            sentences.append(
                "The merge is certified as it is: use all its draws, without the weights."
            )
        else:
            sentences.append(f"certify(merged, densities, draws={merged}) weighs all.")
    if lost:
        sentences.append(
            f"{', '.join(lost)} cannot go with the draws, having other chains or draws than "
            f"{group}: left out. Compute them again from what is returned."
        )
    return " ".join(sentences)


def _check_there(posterior: xr.Dataset, certificate: xr.Dataset) -> None:
    for dim in containers.SAMPLE_DIMS:
        if not certificate.get_index(dim).isin(posterior.get_index(dim)).all():
            raise ValueError(
                f"draws that the certificate weighs are not there any more: their {dim} was left "
                "out. Certify again after selecting draws, or resample before it."
            )


def _picked(
    dataset: xr.Dataset, chains: np.ndarray, draws: np.ndarray, chains_returned: int
) -> xr.Dataset:
    """Return single draws of a dataset, in random order, as chains of their own."""
    along = schema.RESAMPLED
    single = dataset.sel(
        chain=xr.DataArray(np.asarray(chains), dims=along),
        draw=xr.DataArray(np.asarray(draws), dims=along),
    ).drop_vars(["chain", "draw", "batch"], errors="ignore")
    shape = (chains_returned, len(draws) // chains_returned)
    arrays: dict[Any, Any] = {}
    for name, array in single.data_vars.items():
        arrays[name] = array
        if along in array.dims:
            ordered = array.transpose(along, ...)
            values = ordered.values.reshape(*shape, *ordered.shape[1:])
            arrays[name] = ((*containers.SAMPLE_DIMS, *ordered.dims[1:]), values, array.attrs)
    coords = {name: coord for name, coord in single.coords.items() if along not in coord.dims}
    coords |= dict(zip(containers.SAMPLE_DIMS, map(np.arange, shape), strict=True))
    attrs = {k: v for k, v in dataset.attrs.items() if not k.startswith(schema.PREFIX)}
    return xr.Dataset(arrays, coords=coords, attrs=attrs)

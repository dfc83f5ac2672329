"""The groups of a merged object."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from arviz_swiss.base.gaussian import Gaussian, Moments
from arviz_swiss.base.linalg import AffineMap
from arviz_swiss.data import containers, schema
from arviz_swiss.data.layout import dataset_from, parameter_coords
from arviz_swiss.merging.batches import Batch
from arviz_swiss.merging.diagnostics import MomentDiagnostics
from arviz_swiss.merging.draws import Draws
from arviz_swiss.merging.local_draws import LocalDraws
from arviz_swiss.merging.observed import summarise_observed
from arviz_swiss.merging.powers import Powers, batch_sizes
from arviz_swiss.merging.space import Arrays, Space
from arviz_swiss.merging.summaries import Frame

# Not valid at moved draws.
MOVED_STATS = {"lp", "logp", "model_logp", "energy"}


def chain_coords(draws: Draws) -> dict[str, Any]:
    """Return the coordinates of the merged draws.

    `batch` is a plain coordinate on `chain`, never an index: that would break ArviZ's extract.
    """
    chains = next(iter(draws.constrained.values())).shape[0]
    coords = {"chain": np.arange(chains), "draw": np.arange(draws.length)}
    if draws.owners is not None:
        coords["batch"] = ("chain", np.array(draws.owners))
    return coords


def pack_draws(
    draws: Draws,
    frame: Frame,
    batches: Sequence[Batch],
    stats: xr.Dataset | None,
    said: Mapping[str, Any],
) -> containers.Groups:
    """Return the groups of merged draws, with the first batch's attributes and what is `said`."""
    first = batches[0]
    own = (*schema.BATCH_ATTRS, *schema.MERGE_ATTRS)
    kept = {name: value for name, value in first.attrs.items() if name not in own}
    if frame.space.transforms:
        said = {
            **said,
            schema.TRANSFORMS: frame.space.describe(),
            schema.SPACE: frame.space.name,
        }
    attrs = containers.safe_attrs({**kept, **said})
    coords = chain_coords(draws)
    posterior = dataset_from(draws.constrained, frame.constrained, coords).assign_attrs(attrs)
    for name in posterior.data_vars:
        posterior[name].attrs = containers.safe_attrs(first.draws[name].attrs)
    computed = labelled(frame.space, frame.space.deterministics(draws.constrained))
    groups = {first.group: posterior.assign(computed)}
    if draws.unconstrained:
        groups[schema.unconstrained(first.group)] = dataset_from(
            draws.unconstrained, frame.layout, coords
        )
    if stats is not None:
        groups["sample_stats"] = stats.assign_coords(coords)
    return groups


def add_local(groups: containers.Groups, group: str, local: LocalDraws) -> containers.Groups:
    """Return the groups with local variables, and `swiss_local` with what undoes their moves."""
    posterior = groups[group]
    kept = {dim: index for dim, index in local.posterior.indexes.items() if dim in posterior.dims}
    lost = [
        name
        for name, array in posterior.data_vars.items()
        if name in local.posterior
        or any(not kept[dim].equals(array.get_index(dim)) for dim in array.dims if dim in kept)
    ]
    posterior = posterior.drop_vars(lost)
    posterior = posterior.drop_vars([dim for dim in kept if dim not in posterior.dims])
    posterior = posterior.merge(local.posterior, join="exact", compat="override")
    posterior.attrs = groups[group].attrs
    return {**groups, group: posterior, schema.LOCAL_MAPS: local.maps}


def labelled(space: Space, computed: Arrays) -> dict[str, xr.DataArray]:
    """Return the deterministics of a space's model with its dimensions and coordinates."""
    return {
        name: xr.DataArray(
            values,
            dims=(*containers.SAMPLE_DIMS, *space.dims[name]),
            coords={dim: space.coords[dim] for dim in space.dims[name] if dim in space.coords},
        )
        for name, values in computed.items()
    }


def join_stats(batches: Sequence[Batch], length: int) -> xr.Dataset | None:
    """Return the sampler's statistics, one value a draw, that all batches have.

    Parameters
    ----------
    length : int
        How many first draws of each chain are kept.

    Returns
    -------
    Dataset or None
        Chains end to end. None where a batch has no statistics, or not for all of its draws.
    """
    stats = [_stats_of(batch, length) for batch in batches]
    if any(dataset is None for dataset in stats):
        return None
    names = [name for name in stats[0].data_vars if all(name in dataset for dataset in stats)]
    if not names:
        return None
    dims = containers.SAMPLE_DIMS
    return xr.Dataset(
        {name: (dims, np.concatenate([one[name].values for one in stats])) for name in names}
    )


def _stats_of(batch: Batch, length: int) -> xr.Dataset | None:
    """Return a batch's statistics for the draws that are kept, matched by label."""
    stats = batch.groups.get("sample_stats")
    if stats is None:
        return None
    dims = containers.SAMPLE_DIMS
    names = [
        name
        for name, array in stats.data_vars.items()
        if set(array.dims) == set(dims) and name not in MOVED_STATS
    ]
    stats = stats[names].transpose(*dims, missing_dims="ignore")
    wanted = batch.draws[list(dims)].isel(draw=slice(length))
    for dim in dims:
        if dim not in stats.dims:
            return None
        if stats.get_index(dim).equals(wanted.get_index(dim)):
            continue
        try:
            stats = stats.sel({dim: wanted.get_index(dim)})
        except (KeyError, ValueError, pd.errors.InvalidIndexError):
            return None
    return stats


def pack_transform(
    batches: Sequence[Batch],
    moments: Sequence[Moments],
    maps: Sequence[AffineMap] | None,
    pooled: Gaussian,
    powers: Powers,
    coords: Mapping[str, Any],
) -> xr.Dataset:
    """Return what was done to each batch: enough to undo the merge, if by maps."""
    square = ("parameter", "parameter_bis")
    data = {
        "mean": (("batch", "parameter"), np.array([m.mean for m in moments])),
        "covariance": (("batch", *square), np.array([m.covariance for m in moments])),
        "power": ("batch", powers.likelihood),
        "prior_power": ("batch", powers.prior),
        "draws": ("batch", np.array([m.draws for m in moments])),
        "stands_for": powers.stands_for,
        "pooled_mean": ("parameter", pooled.mean),
        "pooled_covariance": (square, pooled.covariance),
    }
    if (sizes := batch_sizes(batches)) is not None:
        data["size"] = ("batch", np.array(sizes))
    observed = summarise_observed([batch.groups.get("observed_data") for batch in batches])
    if observed is not None:
        data["observed_summary"] = observed
    if maps is not None:
        data["scale"] = (("batch", *square), np.array([affine.scale for affine in maps]))
        data["target"] = (("batch", "parameter"), np.array([affine.target for affine in maps]))
    return xr.Dataset(data, coords={**coords, "parameter_bis": coords["parameter"]})


def pack_diagnostics(diagnostics: MomentDiagnostics, coords: Mapping[str, Any]) -> xr.Dataset:
    """Return the statistics of the merge by batch and parameter."""
    dims = ((), ("batch",), ("batch", "parameter"))
    data = {
        name: (
            dims[np.ndim(value)],
            value,
            {"description": schema.VARIABLES[schema.DIAGNOSTICS][name]},
        )
        for name, value in diagnostics._asdict().items()
    }
    return xr.Dataset(data, coords=coords)


def transform_coords(batches: Sequence[Batch], frame: Frame) -> dict[str, Any]:
    """Return the coordinates of the batches and of the parameters that vary."""
    along = parameter_coords(frame.layout)
    dim, owners = along["variable"]
    return {
        "batch": np.array([batch.label for batch in batches]),
        "parameter": np.array(along["parameter"])[frame.free],
        "variable": (dim, np.array(owners)[frame.free]),
    }

"""The groups of a merged object that the merge itself makes: draws, maps, diagnostics."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.base.gaussian import Gaussian, Moments
from arviz_swiss.base.linalg import AffineMap
from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import SAMPLE_DIMS, Groups
from arviz_swiss.data.layout import dataset_from
from arviz_swiss.merging.batches import Batch
from arviz_swiss.merging.combine import Draws
from arviz_swiss.merging.diagnostics import MomentDiagnostics
from arviz_swiss.merging.estimate import Frame
from arviz_swiss.merging.powers import Powers, batch_sizes
from arviz_swiss.merging.space import Arrays, Space


def _chain_coords(draws: Draws) -> dict[str, Any]:
    """Return the draws' coordinates; `batch` is no index, which would break ArviZ's extract."""
    chains = next(iter(draws.constrained.values())).shape[0]
    numbers = np.arange(draws.start, draws.start + chains)
    coords: dict[str, Any] = {"chain": numbers, "draw": np.arange(draws.length)}
    if draws.owners is not None:
        coords["batch"] = ("chain", np.array(draws.owners))
    return coords


def pack_draws(draws: Draws, frame: Frame, first: Batch, attrs: Mapping[str, Any]) -> Groups:
    """Return the groups of merged draws, with the first batch's attributes and those of ours."""
    own = (*schema.BATCH_ATTRS, *schema.MERGE_ATTRS)
    inherited = {name: value for name, value in first.attrs.items() if name not in own}
    if frame.space.transforms:
        where = {schema.TRANSFORMS: frame.space.describe(), schema.SPACE: frame.space.name}
        attrs = {**attrs, **where}
    coords = _chain_coords(draws)
    posterior = dataset_from(draws.constrained, frame.constrained, coords)
    posterior.attrs = containers.safe_attrs({**inherited, **attrs})
    for name in posterior.data_vars:
        own_attrs = first.draws.variables[name].attrs
        posterior.variables[name].attrs = containers.safe_attrs(own_attrs)
    computed = labelled(frame.space, frame.space.deterministics(draws.constrained))
    groups = {first.group: posterior.assign(computed) if computed else posterior}
    if draws.unconstrained:
        moved = dataset_from(draws.unconstrained, frame.layout, coords)
        groups[schema.unconstrained(first.group)] = moved
    return groups


def add_stats(groups: Groups, stats: xr.Dataset | None, draws: Draws) -> Groups:
    """Return the groups of draws with the samplers' statistics, if any, of chains counted alike."""
    if stats is None:
        return groups
    return groups | {schema.SAMPLE_STATS: stats.assign_coords(_chain_coords(draws))}


def add_local(groups: Groups, group: str, local: xr.Dataset) -> Groups:
    """Return the groups with local variables beside the merged ones."""
    posterior = groups[group]
    kept = {dim: index for dim, index in local.indexes.items() if dim in posterior.dims}
    lost = [
        name
        for name, array in posterior.data_vars.items()
        if name in local
        or any(not kept[dim].equals(array.get_index(dim)) for dim in array.dims if dim in kept)
    ]
    posterior = posterior.drop_vars(lost)
    posterior = posterior.drop_vars([dim for dim in kept if dim not in posterior.dims])
    posterior = posterior.merge(local, join="exact", compat="override")
    posterior.attrs = groups[group].attrs
    return {**groups, group: posterior}


def labelled(space: Space, computed: Arrays) -> dict[str, xr.DataArray]:
    """Return the deterministics of a space's model with its dimensions and coordinates."""
    return {
        name: xr.DataArray(
            values,
            dims=(*SAMPLE_DIMS, *space.dims[name]),
            coords={dim: space.coords[dim] for dim in space.dims[name] if dim in space.coords},
        )
        for name, values in computed.items()
    }


def pack_transform(
    batches: Sequence[Batch],
    moments: Sequence[Moments],
    maps: Sequence[AffineMap] | None,
    pooled: Gaussian,
    powers: Powers,
    observed: xr.DataArray | None,
    coords: Mapping[str, Any],
) -> xr.Dataset:
    """Return what was done to each batch: enough to undo the merge, if by maps."""
    square = ("parameter", "parameter_bis")
    data: dict[str, Any] = {
        "mean": (("batch", "parameter"), np.array([own.mean for own in moments])),
        "covariance": (("batch", *square), np.array([own.covariance for own in moments])),
        "power": ("batch", powers.likelihood),
        "prior_power": ("batch", powers.prior),
        "draws": ("batch", np.array([own.draws for own in moments])),
        "stands_for": ((), powers.stands_for),
        "pooled_mean": ("parameter", pooled.mean),
        "pooled_covariance": (square, pooled.covariance),
    }
    if (sizes := batch_sizes(batches)) is not None:
        data["size"] = ("batch", np.array(sizes))
    if observed is not None:
        data["observed_summary"] = observed
    if maps is not None:
        data["scale"] = (("batch", *square), np.array([affine.scale for affine in maps]))
        data["target"] = (("batch", "parameter"), np.array([affine.target for affine in maps]))
    dataset = xr.Dataset(data, coords={**coords, "parameter_bis": coords["parameter"]})
    return _described(dataset, schema.TRANSFORM)


def pack_diagnostics(diagnostics: MomentDiagnostics, coords: Mapping[str, Any]) -> xr.Dataset:
    """Return the statistics of the merge by batch and parameter."""
    dims = ((), ("batch",), ("batch", "parameter"))
    data = {name: (dims[np.ndim(value)], value) for name, value in diagnostics._asdict().items()}
    return _described(xr.Dataset(data, coords=coords), schema.DIAGNOSTICS)


def _described(dataset: xr.Dataset, group: str) -> xr.Dataset:
    for name in schema.VARIABLES[group].keys() & dataset.variables.keys():
        dataset[name].attrs["description"] = schema.VARIABLES[group][name]
    return dataset

"""subposteriors(): undo a merge."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import Container, Groups
from arviz_swiss.data.layout import flatten
from arviz_swiss.merging.elements import others_that_vary
from arviz_swiss.merging.local import LocalSpace
from arviz_swiss.merging.local_draws import change
from arviz_swiss.merging.merged import Merged, open_merged
from arviz_swiss.merging.space import Arrays, Space


def subposteriors(
    merged: Any,
    *,
    group: str = "posterior",
    transforms: Mapping[str, Any] | None = None,
    model: Any = None,
) -> dict[str, Container]:
    """Undo a merge: return the original draws, batch by batch.

    Parameters
    ----------
    merged : InferenceData or DataTree
        As `merge` returned it, or read back from a file; in any order, as elements are matched by
        label, but with all that was merged.
    group : str, default "posterior"
    transforms : mapping of variable to transform, optional
        Your own transform objects, if you merged with any: a merged object cannot hold them.
    model : pymc.Model, optional
        The model that you merged with, if any, likewise.

    Returns
    -------
    dict of str to InferenceData or DataTree
        By batch label, with the draws before the merge, the sampler's statistics, and the powers in
        the attributes: what `merge` takes. So many draws of each chain as the merge kept, and the
        merged variables only. After ``merge(drop=...)`` powers are as if there had been no other
        batches; fractionated ones cannot be merged again then: the prior would not count once.

    Raises
    ------
    ValueError
        When `merged` is not a merged object, or its draws were newly made ("consensus", ...).

    See Also
    --------
    merge

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> rng = np.random.default_rng(0)
    >>> batches = {name: {"mu": rng.normal(size=(2, 500))} for name in ("north", "south")}
    >>> back = az_swiss.subposteriors(az_swiss.merge(batches, kind="inflated"))
    >>> bool(np.allclose(back["north"]["posterior"]["mu"], batches["north"]["mu"]))
    True
    """
    opened = open_merged(merged, group)
    opened.require_moved("there are no moved draws to move back. Keep the batches themselves.")
    space, local_space = opened.space(transforms, model), opened.local_space(transforms, model)
    present = set() if opened.owners is None else set(opened.owners.tolist())
    return {
        label: containers.build(_unmerge(opened, position, space, local_space), opened.container)
        for position, label in enumerate(opened.labels)
        if label in present
    }


def _unmerge(opened: Merged, position: int, space: Space, local_space: LocalSpace | None) -> Groups:
    """Return the groups of one batch."""
    batch, chains = opened.maps.isel(batch=position), opened.chains_of(position)
    merged = opened.draws.isel(chain=chains).drop_vars("batch")
    back = opened.images_before(position)
    arrays = space.backward(_arrays_of(back))
    posterior = merged.drop_vars(space.deterministic_names, errors="ignore")
    posterior = posterior.assign(
        {n: merged[n].copy(data=v.astype(merged[n].dtype)) for n, v in arrays.items()}
    )
    by_group = set(opened.groups[schema.LOCAL_MAPS].dims) if local_space is not None else set()
    others = others_that_vary(posterior, arrays)
    posterior = posterior.drop_vars([n for n in others if not by_group & {*posterior[n].dims}])
    if local_space is not None:
        local = _local_of(opened, position, local_space, back, posterior)
        dims = [dim for dim in opened.groups[schema.LOCAL_MAPS].dims if dim in posterior.dims]
        posterior = posterior.drop_dims(dims).merge(local, join="exact", compat="override")
    posterior = posterior.assign_coords(chain=np.arange(posterior.sizes["chain"]))
    posterior.attrs = {
        name: value for name, value in merged.attrs.items() if name not in schema.MERGE_ATTRS
    }
    posterior.attrs |= {
        schema.BATCH: opened.labels[position],
        schema.POWER: float(batch["power"]),
        schema.PRIOR_POWER: float(batch["prior_power"]),
    }
    if "size" in batch:
        posterior.attrs[schema.SIZE] = int(batch["size"])
    groups = {opened.group: posterior}
    if schema.SAMPLE_STATS in opened.groups:
        # weights are of the merged draws
        stats = opened.groups[schema.SAMPLE_STATS].drop_vars(schema.LOG_WEIGHT, errors="ignore")
        if stats.data_vars:
            own = stats.isel(chain=chains).drop_vars("batch")
            groups[schema.SAMPLE_STATS] = own.assign_coords(chain=posterior["chain"])
    return groups


def _local_of(
    opened: Merged, position: int, space: LocalSpace, back: xr.Dataset, posterior: xr.Dataset
) -> xr.Dataset:
    """Return a batch's own local draws, given its shared ones before the merge."""
    maps, label = opened.groups[schema.LOCAL_MAPS], opened.labels[position]
    draws = opened.draws.isel(chain=opened.chains_of(position)).drop_vars("batch")
    names = [str(name) for name in maps.data_vars]
    own = _elements_of(label, draws, maps)
    ours = draws[names].sel(own)
    ours = ours.map(lambda array: array.transpose(*maps[array.name].attrs["dims"]))
    arrays = _arrays_of(ours)
    images = arrays | space.forward(_arrays_of(draws.drop_vars(names, errors="ignore")) | arrays)
    ends = opened.images.isel(chain=opened.chains_of(position)).drop_vars("batch")
    step = (flatten(ends) - flatten(back[list(ends.data_vars)]).values).sel(
        parameter=opened.parameters
    )
    moved: Arrays = {}
    for name, image in images.items():
        mine = maps[schema.owner_coord(f"{name}_element")].values.astype(str) == label
        moved[name] = image - change(step.values, maps[name].values[:, mine], image.shape)
    moved |= space.backward(moved, _arrays_of(posterior.drop_vars(names, errors="ignore")))
    restored = ours.assign({n: ours[n].copy(data=moved[n].astype(ours[n].dtype)) for n in names})
    for dim, labels in own.items():
        if (coord := schema.own_coord(dim)) in maps.coords:
            restored = restored.assign_coords({dim: maps[coord].sel({dim: labels}).values})
    return restored


def _arrays_of(dataset: xr.Dataset) -> Arrays:
    return {str(name): array.values for name, array in dataset.data_vars.items()}


def _elements_of(label: str, draws: xr.Dataset, maps: xr.Dataset) -> dict[str, np.ndarray]:
    """Return the labels of one batch's elements by dimension; refuse any that are not there."""
    own = {}
    for dim in dict.fromkeys(array.attrs["dim"] for array in maps.data_vars.values()):
        labels = maps[dim].values[maps[schema.owner_coord(dim)].values.astype(str) == label]
        missing = draws.get_index(dim).get_indexer(pd.Index(labels)) < 0
        if missing.any():
            raise ValueError(
                f"the merged object has no element {labels[missing][0]!s} along {dim}, which batch "
                f'"{label}" had. Undo the merge before selecting elements.'
            )
        own[dim] = labels
    return own

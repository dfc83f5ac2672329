"""subposteriors(): undo a merge."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import Groups
from arviz_swiss.data.layout import flatten
from arviz_swiss.merging.local import LocalSpace
from arviz_swiss.merging.local_draws import before_the_merge
from arviz_swiss.merging.merged import Merged, open_merged
from arviz_swiss.merging.space import Space


def subposteriors(
    merged: Any,
    *,
    group: str = "posterior",
    transforms: Mapping[str, Any] | None = None,
    model: Any = None,
) -> dict[str, Any]:
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
    return {
        label: containers.build(_unmerge(opened, position, space, local_space), opened.container)
        for position, label in enumerate(opened.labels)
        if label in opened.owners
    }


def _unmerge(opened: Merged, position: int, space: Space, local_space: LocalSpace | None) -> Groups:
    """Return the groups of one batch."""
    batch, chains = opened.maps.isel(batch=position), opened.chains_of(position)
    merged = opened.draws.isel(chain=chains).drop_vars("batch")
    back = opened.images_before(position)
    arrays = space.backward({name: back[name].values for name in back.data_vars})
    posterior = merged.drop_vars(space.deterministic_names, errors="ignore")
    posterior = posterior.assign(
        {n: merged[n].copy(data=v.astype(merged[n].dtype)) for n, v in arrays.items()}
    )
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
        stats = opened.groups[schema.SAMPLE_STATS].isel(chain=chains).drop_vars("batch")
        groups[schema.SAMPLE_STATS] = stats.assign_coords(chain=posterior["chain"])
    return groups


def _local_of(
    opened: Merged, position: int, space: LocalSpace, back: xr.Dataset, posterior: xr.Dataset
) -> xr.Dataset:
    """Return a batch's local variables, given its shared ones before the merge."""
    chains, maps = opened.chains_of(position), opened.groups[schema.LOCAL_MAPS]
    ends = opened.images.isel(chain=chains).drop_vars("batch")
    step = flatten(ends) - flatten(back[list(ends.data_vars)]).values
    return before_the_merge(
        opened.draws.isel(chain=chains).drop_vars("batch"),
        maps,
        opened.labels[position],
        space,
        step.sel(parameter=opened.parameters).values,
        {n: posterior[n].values for n in posterior.data_vars if n not in maps},
    )

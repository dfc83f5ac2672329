"""subposteriors(): undo a merge."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.base.linalg import AffineMap, embed, invert
from arviz_swiss.data import containers
from arviz_swiss.data.containers import Groups
from arviz_swiss.data.layout import as_rows, flatten, layout_of, move, sample_arrays
from arviz_swiss.merging.local import LocalSpace
from arviz_swiss.merging.local_draws import before_the_merge
from arviz_swiss.merging.merged import (
    free_places,
    in_merge_space,
    local_space_of,
    open_merged,
    space_of,
)
from arviz_swiss.merging.pack import MERGE_ATTRS


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
    groups, maps, owners = opened.groups, opened.maps, opened.owners
    check_moved(groups, group)
    space = space_of(groups, group, transforms, model)
    has_local = "swiss_local" in groups
    local_space = local_space_of(groups, group, transforms, model) if has_local else None
    return {
        label: containers.build(
            _unmerge(groups, group, maps.isel(batch=position), owners == label, space, local_space),
            opened.container,
        )
        for position, label in enumerate(opened.labels)
        if label in owners
    }


def check_moved(groups: Groups, group: str) -> None:
    """Refuse a merge whose draws were newly made: they cannot be moved back."""
    if "scale" not in groups["swiss_transform"]:
        method = groups[group].attrs.get("swiss_method", "unknown")
        raise ValueError(
            f'merged with method "{method}", whose draws were newly made from those of all '
            "batches: there are no moved draws to move back. Keep the batches themselves."
        )


def _unmerge(
    groups: Groups, group: str, one: xr.Dataset, chains: np.ndarray, space, local_space
) -> Groups:
    """Return the groups of one batch, of which `one` holds the map and `chains` the place."""
    merged = groups[group].isel(chain=chains).drop_vars("batch")
    back = unmoved(groups, group, one, chains)
    arrays = space.backward({name: back[name].values for name in back.data_vars})
    posterior = merged.drop_vars(space.deterministic_names, errors="ignore")
    posterior = posterior.assign(
        {n: merged[n].copy(data=v.astype(merged[n].dtype)) for n, v in arrays.items()}
    )
    if local_space is not None:
        local = _local_of(groups, group, one, chains, local_space, back, posterior)
        dims = [dim for dim in groups["swiss_local"].dims if dim in posterior.dims]
        posterior = posterior.drop_dims(dims).merge(local, join="exact", compat="override")
    posterior = posterior.assign_coords(chain=np.arange(posterior.sizes["chain"]))
    posterior.attrs = {
        name: value for name, value in merged.attrs.items() if name not in MERGE_ATTRS
    }
    posterior.attrs |= {
        "swiss_batch": str(one["batch"].values),
        "swiss_power": float(one["power"]),
        "swiss_prior_power": float(one["prior_power"]),
    }
    if "size" in one:
        posterior.attrs["swiss_size"] = int(one["size"])
    result = {group: posterior}
    if "sample_stats" in groups:
        stats = groups["sample_stats"].isel(chain=chains).drop_vars("batch")
        result["sample_stats"] = stats.assign_coords(chain=posterior["chain"])
    return result


def _local_of(
    groups: Groups,
    group: str,
    one: xr.Dataset,
    chains: np.ndarray,
    space: LocalSpace,
    back: xr.Dataset,
    posterior: xr.Dataset,
) -> xr.Dataset:
    """Return a batch's local variables, given its shared ones before the merge."""
    ends = in_merge_space(groups, group).isel(chain=chains).drop_vars("batch")
    step = flatten(ends) - flatten(back[list(ends.data_vars)]).values
    return before_the_merge(
        groups[group].isel(chain=chains).drop_vars("batch"),
        groups["swiss_local"],
        str(one["batch"].values),
        space,
        step.sel(parameter=one["parameter"].values.astype(str)).values,
        {n: posterior[n].values for n in posterior.data_vars if n not in groups["swiss_local"]},
    )


def unmoved(groups: Groups, group: str, one: xr.Dataset, chains: np.ndarray) -> xr.Dataset:
    """Return one batch's draws before the map, in the space of the merge.

    Parameters
    ----------
    groups : dict of str to Dataset
        Groups of a merged object.
    one : Dataset
        The batch's part of `swiss_transform`.
    chains : array of bool
        Which chains are the batch's.
    """
    moved = in_merge_space(groups, group).isel(chain=chains).drop_vars("batch")
    return _moved_back(moved, one)


def _moved_back(moved: xr.Dataset, one: xr.Dataset) -> xr.Dataset:
    layout = layout_of(moved, list(moved.data_vars))
    arrays = [array.astype(float) for array in sample_arrays(moved, layout)]
    rows = as_rows(arrays, layout)
    free = free_places(layout, one)
    affine = AffineMap(one["scale"].values, one["mean"].values, one["target"].values)
    units = np.sqrt(np.diag(one["pooled_covariance"].values))
    constants = np.concatenate([matrix[0] for matrix in rows])
    out = [np.empty_like(matrix) for matrix in rows]
    move(rows, layout, embed(invert(affine, units), free, constants), out)
    return xr.Dataset(
        {
            variable.name: ((*containers.SAMPLE_DIMS, *variable.dims), matrix.reshape(array.shape))
            for variable, matrix, array in zip(layout.variables, out, arrays, strict=True)
        },
        coords=layout.coords,
    )

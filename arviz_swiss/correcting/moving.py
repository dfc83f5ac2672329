"""Merged draws moved to other moments, and what stays valid beside them."""

from collections.abc import Collection, Mapping

import numpy as np
import xarray as xr

from arviz_swiss.base import gaussian
from arviz_swiss.base.gaussian import Gaussian
from arviz_swiss.base.linalg import AffineMap, embed
from arviz_swiss.correcting.draw_weights import without_weights
from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import Groups
from arviz_swiss.data.layout import move
from arviz_swiss.merging.elements import others_that_vary
from arviz_swiss.merging.merged import Merged
from arviz_swiss.merging.pack import labelled
from arviz_swiss.merging.space import Space

# Groups with draws that stay valid when the merged draws move.
STILL_VALID = ("prior", "prior_predictive", "sample_stats", "sample_stats_prior")


def moved_groups(opened: Merged, space: Space, old: Gaussian, new: Gaussian) -> Groups:
    """Return the groups with all draws mapped from the old moments to the new."""
    affine = AffineMap(gaussian.map_between(old, new), old.mean, new.mean)
    rows = opened.matrices()
    constants = np.concatenate([matrix[0] for matrix in rows]).astype(float)
    out = [np.empty_like(matrix) for matrix in rows]
    move(rows, opened.layout, embed(affine, opened.free, constants), out)
    unconstrained = {
        name: matrix.reshape(array.shape)
        for name, matrix, array in zip(opened.layout.names, out, opened.arrays, strict=True)
    }
    constrained = space.backward(unconstrained) if opened.transformed else unconstrained
    groups = {
        name: dataset
        for name, dataset in without_weights(opened.groups).items()
        if name in STILL_VALID or "draw" not in dataset.dims
    }
    posterior = _replaced(opened.draws, constrained)
    computed = labelled(space, space.deterministics(constrained))
    posterior = posterior.assign({name: computed[name] for name in computed if name in posterior})
    groups[opened.group] = _without_others(posterior, {*unconstrained, *constrained, *computed})
    if opened.transformed:
        before = opened.groups[schema.unconstrained(opened.group)]
        moved = {name: unconstrained[name] for name in opened.transformed}
        groups[schema.unconstrained(opened.group)] = _replaced(before, moved)
    if schema.DIAGNOSTICS in groups:
        groups[schema.DIAGNOSTICS] = _seen_from(new, opened)
    return {name: groups[name] for name in opened.groups if name in groups}


def _without_others(draws: xr.Dataset, moved: Collection[str]) -> xr.Dataset:
    """Return the draws without variables that were computed of them before, and say so."""
    others = others_that_vary(draws, moved)
    if not others:
        return draws
    left_out = draws.attrs.get(schema.LEFT_OUT, "").split(", ")
    names = ", ".join(dict.fromkeys([*filter(None, left_out), *others]))
    return draws.drop_vars(others).assign_attrs({schema.LEFT_OUT: names})


def _seen_from(moments: Gaussian, opened: Merged) -> xr.Dataset:
    """Return the diagnostics with the batches' shifts and sds seen from the refined posterior."""
    maps, spread = opened.maps, np.sqrt(np.diag(moments.covariance))
    by_batch = {
        "shift": (maps["mean"].values - moments.mean) / spread,
        "sd_ratio": np.sqrt(np.einsum("bii->bi", maps["covariance"].values)) / spread,
    }
    diagnostics = opened.groups[schema.DIAGNOSTICS]
    return diagnostics.assign(
        {name: diagnostics[name].copy(data=values) for name, values in by_batch.items()}
    )


def _replaced(dataset: xr.Dataset, arrays: Mapping[str, np.ndarray]) -> xr.Dataset:
    """Return the dataset with new values, of dimensions (chain, draw, ...), for some variables."""
    new = {}
    for name, values in arrays.items():
        if name in dataset:
            old = dataset[name]
            ordered = old.transpose(*containers.SAMPLE_DIMS, ...)
            new[name] = ordered.copy(data=values.astype(old.dtype)).transpose(*old.dims)
    return dataset.assign(new)

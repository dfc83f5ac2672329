"""A merged object as `refine`, `certify` and `subposteriors` open it."""

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from arviz_swiss.base import gaussian, linalg
from arviz_swiss.base.gaussian import Gaussian
from arviz_swiss.base.moments import Moments
from arviz_swiss.data import containers
from arviz_swiss.data import transforms as bijections
from arviz_swiss.data.containers import Contents, Groups
from arviz_swiss.data.layout import Layout, as_rows, gather_all, layout_of, sample_arrays
from arviz_swiss.merging.elements import WHOLE, in_order, other_draws
from arviz_swiss.merging.local import LocalSpace, LocalTransforms
from arviz_swiss.merging.moments import sample_moments
from arviz_swiss.merging.space import Space, TransformSpace, model_space

MERGED = "what merge returned, one InferenceData or DataTree, or the path of its complete file"
# Attributes of `swiss_transform`: a word for what speaks against the last rounds of `refine`, a
# sentence, and what to do.
REFINE_ATTRS = ("swiss_refine_flag", "swiss_refine_doubt", "swiss_refine_remedy")
# A constant that some batches stored in single precision varies by so much.
ROUNDING = 1e-6
# PyMC's transforms that need no model to be undone, by their names, and ours that do the same.
WITHOUT_MODEL = {"log": "log", "logodds": "logit"}
# Chains, and draws of each, by which to see whether two groups hold the same draws.
TRIED = 8
# Draws that differ by more of their sds are not the same.
SAME_SDS = 1e-3


class Merged(NamedTuple):
    """The groups of a merged object, and its draws in the space of the merge.

    `layout` and `arrays` are those of the merged variables; `free` are the parameters that vary,
    in the order of the coordinate `parameter` of the group `swiss_transform`.
    """

    groups: Groups
    container: str
    group: str
    layout: Layout
    arrays: list[np.ndarray]
    free: np.ndarray

    @property
    def maps(self) -> xr.Dataset:
        """What the merge did to each batch."""
        return self.groups["swiss_transform"]

    @property
    def draws(self) -> xr.Dataset:
        """The merged draws on their own scale."""
        return self.groups[self.group]

    @property
    def labels(self) -> list[str]:
        """Labels of the batches."""
        return self.maps["batch"].values.astype(str).tolist()

    @property
    def owners(self) -> np.ndarray | None:
        """The label of each chain's batch; None where draws were newly made."""
        return self.draws["batch"].values.astype(str) if "batch" in self.draws.coords else None

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of chains, and of draws a chain."""
        return self.arrays[0].shape[:2]

    @property
    def transformed(self) -> list[str]:
        """Variables that are merged on another scale than their own."""
        return list(self.groups.get(f"unconstrained_{self.group}", ()))


def read_merged(merged: Any, group: str) -> tuple[Groups, str]:
    """Return a merged object's groups, in the order of the merge, and its kind of container.

    Refuse any other object.
    """
    contents = read_whole(merged, group)
    if group not in contents.groups and "swiss_transform" in contents.groups:
        raise ValueError(
            f'the merged object has no group "{group}": group= must be the one that was merged. '
            f"Its groups are: {', '.join(contents.groups)}."
        )
    if missing := [name for name in (group, "swiss_transform") if name not in contents.groups]:
        raise ValueError(
            f"not a merged object: no group {', '.join(missing)}, found "
            f"{', '.join(contents.groups) or 'none'}. Pass {MERGED}."
        )
    groups = in_order(contents.groups, group)
    _check_paired(
        groups, group, TransformSpace(_known_transforms(groups[group].attrs), merged_names(groups))
    )
    return groups, contents.kind or containers.native_kind()


def _known_transforms(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the transforms that a merged object holds; not the user's own, nor all of a model."""
    spelled = json.loads(attrs.get("swiss_transforms", "{}"))
    if attrs.get("swiss_space") == "model":
        return {
            n: WITHOUT_MODEL[choice] for n, choice in spelled.items() if choice in WITHOUT_MODEL
        }
    return {name: choice for name, choice in spelled.items() if not isinstance(choice, dict)}


def _check_paired(groups: Groups, group: str, space: Space) -> None:
    """Refuse draws in the space of the merge that are not those on their own scale.

    Both are matched by the labels of chain and draw, which some selections number anew.
    """
    moved = f"unconstrained_{group}"
    if not space.transforms or moved not in groups:
        return
    draws = groups[group]
    few = {
        dim: np.unique(np.linspace(0, draws.sizes[dim] - 1, TRIED).astype(int))
        for dim in containers.SAMPLE_DIMS
    }
    images = in_merge_space(groups, group).isel(few)
    known = images if space.name == "model" else images[list(space.transforms)]
    back = space.backward({name: known[name].values for name in known.data_vars})
    for name in space.transforms:
        own = draws[name].isel(few).values
        units = draws[name].std(containers.SAMPLE_DIMS).values
        if (np.abs(back[name] - own) > SAME_SDS * units + ROUNDING * np.abs(own)).any():
            raise other_draws(moved)


def read_whole(merged: Any, group: str) -> Contents:
    """Return what a container holds, or its file, which is read at once; refuse anything else."""
    is_file = isinstance(merged, str | os.PathLike)
    if not is_file and (isinstance(merged, xr.Dataset) or not containers.is_container(merged)):
        raise TypeError(f"not a merged object: got {containers.brief_type(merged)}. Pass {MERGED}.")
    with containers.reading(f"file {os.fspath(merged)}" if is_file else "merged", MERGED):
        contents = containers.read(merged, group)
        if not is_file:
            return contents
        loaded = {name: dataset.load() for name, dataset in contents.groups.items()}
        containers.close(contents.groups)
        return Contents(loaded, contents.kind)


def open_merged(merged: Any, group: str) -> Merged:
    """Return a merged object with its draws in the space of the merge."""
    return open_groups(*read_merged(merged, group), group)


def check_shared(opened: Merged) -> None:
    """Refuse batches with latent variables of their own, and merges without some batches."""
    if dropped := opened.draws.attrs.get("swiss_dropped"):
        raise ValueError(
            f"batches were dropped from this merge ({dropped}), so there is no full posterior to "
            "compare it with. Merge all batches, or sample the dropped ones again."
        )
    if local := opened.draws.attrs.get("swiss_local"):
        raise ValueError(
            f"the batches have latent variables of their own ({local}). The full posterior's "
            "density of the shared parameters is an integral over all of them, which the batches' "
            "densities do not give: such a merge cannot be refined or certified."
        )


def open_groups(groups: Groups, container: str, group: str) -> Merged:
    """Return a merged object with its draws in the space of the merge.

    Parameters
    ----------
    groups : dict of str to Dataset
        In the order of the merge, as `read_merged` returns them.
    """
    moved = in_merge_space(groups, group)
    layout = layout_of(moved, list(moved.data_vars))
    free = free_places(layout, groups["swiss_transform"])
    opened = Merged(groups, container, group, layout, sample_arrays(moved, layout), free)
    _check_constants(opened)
    return opened


def free_places(layout: Layout, maps: xr.Dataset) -> np.ndarray:
    """Return where the parameters that vary lie in a layout, by label."""
    places = {label: place for place, label in enumerate(layout.labels())}
    parameters = maps["parameter"].values.astype(str).tolist()
    if missing := [label for label in parameters if label not in places]:
        raise ValueError(
            f"the merged object has no draws of {', '.join(missing[:8])} any more. {WHOLE}."
        )
    return np.array([places[label] for label in parameters])


def _check_constants(opened: Merged) -> None:
    """Refuse draws that vary along a parameter of which there is no map."""
    if opened.free.size == opened.layout.size:
        return
    rows = gather_all(all_rows(opened), opened.layout)
    spread = np.ptp(rows, axis=0) > ROUNDING * np.abs(rows).max(axis=0)
    spread[opened.free] = False
    if spread.any():
        labels = np.array(opened.layout.labels())[spread]
        raise ValueError(
            f'group "swiss_transform" has no parameter {", ".join(labels[:8])} any more, which '
            f"varies. {WHOLE}."
        )


def in_merge_space(groups: Groups, group: str) -> xr.Dataset:
    """Return the merged variables' draws in the space of the merge, in the order of the merge."""
    names = merged_names(groups)
    unconstrained = groups.get(f"unconstrained_{group}", xr.Dataset())
    own = [name for name in names if name in unconstrained]
    if not own:
        return groups[group][names]
    plain = groups[group][[name for name in names if name not in own]]
    kept = plain.drop_vars([name for name in plain.coords if name in unconstrained.coords])
    return kept.merge(unconstrained[own], join="exact", compat="override")[names]


def rounds_taken(maps: xr.Dataset) -> np.ndarray:
    """Return which rounds of `refine` moved the draws; those that led away were undone."""
    count = maps.sizes.get("round", 1) - 1
    # older versions undid none
    return maps["taken"].values[1:] if "taken" in maps else np.ones(count, dtype=bool)


def is_refined(maps: xr.Dataset) -> bool:
    """Tell whether rounds of `refine` moved the draws."""
    return bool(rounds_taken(maps).any())


def is_settled(maps: xr.Dataset) -> bool:
    """Tell whether rounds of `refine` moved the draws, and nothing speaks against them."""
    return is_refined(maps) and REFINE_ATTRS[0] not in maps.attrs


def was_undone(maps: xr.Dataset) -> bool:
    """Tell whether the last rounds of `refine` led away from the posterior."""
    return not rounds_taken(maps)[-1:].all()


def merged_names(groups: Groups) -> list[str]:
    """Return the variables that were merged, in the order of the merge."""
    return list(dict.fromkeys(groups["swiss_transform"]["variable"].values.astype(str).tolist()))


def space_of(groups: Groups, group: str, transforms: Mapping[str, Any] | None, model: Any) -> Space:
    """Return the space that the batches were merged in.

    Parameters
    ----------
    transforms, model
        What the merge was given and a merged object cannot hold: own transforms, a PyMC model.
    """
    attrs = groups[group].attrs
    names = merged_names(groups)
    spelled = attrs.get("swiss_transforms", "{}")
    if attrs.get("swiss_space") != "model":
        space = TransformSpace(bijections.restore(spelled, transforms), names)
        _check_paired(groups, group, space)
        return space
    if model is None:
        raise ValueError("merged in the space of a PyMC model: pass that model as model=.")
    moved = json.loads(spelled)
    full = model_space(model, names, None)
    kept = {name: None for name in full.transforms if name not in moved}
    space = model_space(model, names, kept).fitted_to(layout_of(groups[group], names))
    _check_paired(groups, group, space)
    return space


def local_space_of(
    groups: Groups, group: str, transforms: Mapping[str, Any] | None, model: Any
) -> LocalSpace:
    """Return the space that local variables were moved in; arguments as of `space_of`."""
    maps, draws = groups["swiss_local"], groups[group]
    moved = json.loads(maps.attrs["swiss_transforms"])
    through = json.loads(maps.attrs.get("swiss_through", "{}"))
    if not moved and not through:
        return LocalTransforms({})
    if maps.attrs["swiss_space"] != "model":
        return LocalTransforms(bijections.restore(maps.attrs["swiss_transforms"], transforms))
    if model is None:
        raise ValueError("merged in the space of a PyMC model: pass that model as model=.")
    from arviz_swiss.pymc.batch_space import BatchSpace

    axes = {
        name: list(array.attrs["dims"]).index(array.attrs["dim"]) - len(containers.SAMPLE_DIMS)
        for name, array in maps.data_vars.items()
        if name in [variable.name for variable in model.free_RVs]
    }
    shared = [name for name in draws.data_vars if name not in maps]
    space = BatchSpace(
        model,
        axes,
        shared,
        untransformed=[name for name in axes if name not in moved],
        deterministics=list(through.values()),
    )
    return space.through(through)


def free_rows(merged: Merged, chains: Any, draws: Any) -> np.ndarray:
    """Return some draws of the parameters that vary, as a (rows, parameters) array.

    Parameters
    ----------
    chains, draws
        Index arrays, slices or masks; index arrays of the same length pick single draws.
    """
    picked = [array[chains, draws] for array in merged.arrays]
    rows = [
        array.reshape(-1, variable.size)
        for array, variable in zip(picked, merged.layout.variables, strict=True)
    ]
    return gather_all(rows, merged.layout)[:, merged.free]


def all_rows(merged: Merged) -> list[np.ndarray]:
    """Return all draws as one (rows, parameters) matrix a variable."""
    return as_rows(merged.arrays, merged.layout)


def present_moments(opened: Merged) -> Gaussian:
    """Return the moments that the merged draws have; those of the pooling, if merged by SwISS."""
    rows = [array.reshape(*opened.sizes, -1) for array in all_rows(opened)]
    owners = opened.owners if opened.owners is not None else np.zeros(opened.sizes[0])
    means, covariances, shares = [], [], []
    for owner in np.unique(owners):
        own = owners == owner
        matrices = [array[own].reshape(-1, array.shape[-1]) for array in rows]
        mean, covariance, _ = sample_moments(matrices, opened.layout)
        means.append(mean[opened.free])
        covariances.append(covariance[np.ix_(opened.free, opened.free)])
        shares.append(own.mean())
    return gaussian.moments_of(np.array(means), np.array(covariances), np.array(shares))


def batch_moments(groups: Groups) -> list[Moments]:
    """Return the batches' moments as the merge took them."""
    maps = groups["swiss_transform"]
    effective = groups["swiss_diagnostics"]["effective_size"].values
    return [
        Moments(mean, covariance, linalg.inverse(covariance), int(draws), float(size))
        for mean, covariance, draws, size in zip(
            maps["mean"].values,
            maps["covariance"].values,
            maps["draws"].values,
            effective,
            strict=True,
        )
    ]

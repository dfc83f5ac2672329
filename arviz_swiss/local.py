"""Variables that belong to one batch alone, such as the random effects of its groups.

They are not merged but follow the shared parameters: a draw's local part z, in unconstrained space,
moves by the linear regression of local on shared draws, ``z + G_b (theta' - theta)``, where theta
goes to theta'. For Gaussian sub-posteriors that is exact: z given theta depends on the batch's own
data only, so its conditional distribution is the same in the full posterior.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import xarray as xr

from arviz_swiss import containers
from arviz_swiss.batches import Batch, Matched, load_arrays, own_dims
from arviz_swiss.checks import check_finite
from arviz_swiss.flatten import Layout, as_rows, gather_all, layout_of, sample_arrays
from arviz_swiss.maps import AffineMap
from arviz_swiss.moments import Moments
from arviz_swiss.moving import Draws
from arviz_swiss.spaces import TRIED, Arrays, TransformSpace, check_only_none
from arviz_swiss.summaries import Frame, unconstrained


class LocalSpace(Protocol):
    """What moving local variables asks of a space; all arrays are (chain, draw, ...), by name."""

    transforms: dict[str, Any]

    def forward(self, arrays: Arrays) -> Arrays:
        """Return the transformed ones of all variables of a batch in unconstrained space."""

    def backward(self, images: Arrays, shared: Arrays) -> Arrays:
        """Return the transformed ones on their own scale."""

    def deterministics(self, arrays: Arrays) -> Arrays:
        """Return what can be computed from all variables of a batch."""


class LocalTransforms:
    """Each local variable through the transform that the user chose."""

    def __init__(self, choices: Mapping[str, Any]):
        self._space = TransformSpace(choices, list(choices))
        self.transforms = self._space.transforms

    def forward(self, arrays: Arrays) -> Arrays:
        """Return the transformed variables in unconstrained space."""
        return self._space.forward({name: arrays[name] for name in self.transforms})

    def backward(self, images: Arrays, shared: Arrays) -> Arrays:
        """Return the transformed variables on their own scale."""
        return self._space.backward({name: images[name] for name in self.transforms})

    def deterministics(self, arrays: Arrays) -> Arrays:
        """Return nothing: there is no model to compute by."""
        return {}


def find_local(matched: Matched, model: Any = None) -> dict[str, str]:
    """Return, of local variables, the dimension along which batches stand side by side.

    It is the one whose labels differ between batches; where all have the same labels (default
    0, 1, ... for as many groups), the first. A variable without dimensions, or with several that
    differ, has no such place and is not among the result. Deterministics that have the dimension
    of a local variable are local; or one of its length, if lengths differ between batches or the
    model says that the deterministic depends on local variables.
    """
    batches, found = matched.batches, {}
    for name in matched.local:
        if any(name not in batch.draws for batch in batches):
            continue
        own = own_dims(batches[0], name)
        differing = [dim for dim in own if not _same_index(batches, name, dim)]
        if own and len(differing) < 2:
            found[name] = (differing or own)[0]
    if not found:
        return {}
    depending = _depending(model, matched.local)
    for name in matched.deterministic:
        if all(_is_real(batch, name) for batch in batches):
            dim = _dim_of_deterministic(batches, name, found, name in depending)
            if dim is not None:
                found[name] = dim
    return found


def find_local_space(
    matched: Matched, local: Mapping[str, str], choices: Mapping[str, Any], model: Any
) -> LocalSpace:
    """Return the space in which local variables are moved: the model's, or by the transforms."""
    if model is None:
        return LocalTransforms(choices)
    check_only_none(choices)
    from arviz_swiss.pymc.batch_space import BatchSpace

    first = matched.batches[0]
    axes = {
        name: own_dims(first, name).index(dim)
        for name, dim in local.items()
        if name in matched.local
    }
    return BatchSpace(
        model,
        axes,
        matched.layout.names,
        untransformed=list(choices),
        deterministics=[name for name in local if name not in axes],
    )


def _depending(model: Any, names: Sequence[str]) -> Collection[str]:
    if model is None:
        return ()
    from arviz_swiss.pymc.batch_space import depending

    return depending(model, names)


def _same_index(batches: Sequence[Batch], name: str, dim: str) -> bool:
    first, *others = (batch.draws[name].get_index(dim) for batch in batches)
    return all(first.equals(other) for other in others)


def _is_real(batch: Batch, name: str) -> bool:
    values = batch.draws.variables.get(name)
    return values is not None and values.dtype.kind == "f" and np.isfinite(values.values).all()


def _dim_of_deterministic(
    batches: Sequence[Batch], name: str, local: Mapping[str, str], depends: bool
) -> str | None:
    """Return the dimension along which a deterministic goes with local variables."""
    own = own_dims(batches[0], name)
    if any(own_dims(batch, name) != own for batch in batches):
        return None
    lengths = [
        [batch.draws[one].sizes[dim] for batch in batches]
        for one, dim in local.items()
        if one in batches[0].draws
    ]
    for dim in own:
        if any(other != dim and not _same_index(batches, name, other) for other in own):
            continue
        here = [batch.draws[name].sizes[dim] for batch in batches]
        alike = here in lengths and (depends or len(set(here)) > 1)
        if dim in local.values() or alike:
            return dim
    return None


def move_local(
    batches: Sequence[Batch],
    local: Mapping[str, str],
    space: LocalSpace,
    frame: Frame,
    moments: Sequence[Moments],
    affine: Sequence[AffineMap],
    draws: Draws,
) -> xr.Dataset:
    """Return all batches' local variables, moved with the shared ones, side by side.

    The draws of a batch's elements come from its own chains, so `chain` counts within the batch,
    up to the smallest number of chains of any; the coordinate `batch` tells where an element
    belongs. Labels that repeat between batches are prefixed by the batch's label.

    Parameters
    ----------
    local : mapping of variable name to dimension
        As `find_local` returns it.
    draws : Draws
        The merged draws of the shared variables, so many of each chain as are kept.
    """
    chains = min(batch.sizes[0] for batch in batches)
    computed = _computed(batches, list(local), space, frame)
    parts, start = [], 0
    for batch, own, one in zip(batches, moments, affine, strict=True):
        shared = {name: array[start : start + chains] for name, array in draws.constrained.items()}
        start += batch.sizes[0]
        layout = layout_of(batch.draws, list(local))
        arrays = dict(zip(layout.names, sample_arrays(batch.draws, layout), strict=True))
        moved = _moved(batch, arrays, computed, space, frame, own, one, shared)
        parts.append(_pack(layout, moved))
    parts = _tell_apart(parts, batches, local)
    joined = [
        xr.concat([part[name] for part in parts], dim, join="exact", coords="minimal").to_dataset()
        for name, dim in local.items()
    ]
    return xr.merge(joined, join="exact", compat="equals")


def _computed(
    batches: Sequence[Batch], names: Sequence[str], space: LocalSpace, frame: Frame
) -> set[str]:
    """Name the deterministics that the model computes from every batch's draws as they are there.

    A model that belongs to one batch may hold that batch's data in them, which is wrong for others.
    """
    found = set(names)
    for batch in batches:
        layout = layout_of(batch.draws, names)
        local = dict(zip(layout.names, sample_arrays(batch.draws, layout), strict=True))
        few = {
            name: array[:1, :TRIED]
            for name, array in (load_arrays(batch, frame.constrained) | local).items()
        }
        given = space.deterministics(few)
        found &= {
            name
            for name, array in given.items()
            if array.shape == few[name].shape
            and np.allclose(array, few[name], rtol=1e-4, atol=1e-8, equal_nan=True)
        }
    return found


def _moved(
    batch: Batch,
    arrays: Arrays,
    computed: Collection[str],
    space: LocalSpace,
    frame: Frame,
    moments: Moments,
    affine: AffineMap,
    shared: Arrays,
) -> Arrays:
    """Return one batch's local variables, moved in unconstrained space."""
    images = {name: array for name, array in arrays.items() if name not in computed}
    images |= space.forward(load_arrays(batch, frame.constrained) | arrays)
    if not all(np.isfinite(image).all() for image in images.values()):
        check_finite(batch, images, space.transforms)
    moved = _regressed(images, unconstrained(batch, frame), frame, moments, affine)
    chains, length = next(iter(shared.values())).shape[:2]
    moved = {name: image[:chains, :length] for name, image in moved.items()}
    moved |= space.backward(moved, shared)
    found = space.deterministics(shared | moved)
    return {
        name: (found if name in computed else moved)[name].astype(array.dtype)
        for name, array in arrays.items()
    }


def _regressed(
    images: Arrays, shared: Arrays, frame: Frame, moments: Moments, affine: AffineMap
) -> Arrays:
    """Return local draws moved by their linear regression on the shared ones."""
    sizes = next(iter(images.values())).shape[:2]
    local = np.concatenate([image.reshape(sizes[0] * sizes[1], -1) for image in images.values()], 1)
    rows = gather_all(as_rows(list(shared.values()), frame.layout), frame.layout)
    centred = rows[:, frame.free] - moments.mean
    # Solved for, not by the precision: that may be shrunk, diagonal or corrected.
    regression = np.linalg.lstsq(centred, local - local.mean(axis=0), rcond=None)[0]
    step = (
        centred @ (affine.scale - np.eye(affine.scale.shape[0])).T + affine.target - affine.source
    )
    ends = np.cumsum([image[0, 0].size for image in images.values()])[:-1]
    moved = np.split(local + step @ regression, ends, axis=1)
    return {
        name: part.reshape(image.shape)
        for (name, image), part in zip(images.items(), moved, strict=True)
    }


def _pack(layout: Layout, moved: Arrays) -> xr.Dataset:
    data = {
        variable.name: ((*containers.SAMPLE_DIMS, *variable.dims), moved[variable.name])
        for variable in layout.variables
    }
    chains, length = next(iter(moved.values())).shape[:2]
    coords = {"chain": np.arange(chains), "draw": np.arange(length)}
    return xr.Dataset(data, coords={**layout.coords, **coords})


def _tell_apart(
    parts: Sequence[xr.Dataset], batches: Sequence[Batch], local: Mapping[str, str]
) -> list[xr.Dataset]:
    """Return the parts with labels that are unique between batches, and the batches' labels."""
    parts = list(parts)
    for position, (dim, name) in enumerate({dim: name for name, dim in local.items()}.items()):
        indices = [part[name].get_index(dim) for part in parts]
        repeated = not indices[0].append(indices[1:]).is_unique
        owner = "batch" if position == 0 else f"batch_{dim}"
        for k, (batch, index) in enumerate(zip(batches, indices, strict=True)):
            labels = [f"{batch.label}:{label}" for label in index] if repeated else index
            part = parts[k].drop_vars(dim, errors="ignore").assign_coords({dim: labels})
            parts[k] = part.assign_coords({owner: (dim, np.full(len(labels), batch.label))})
    return parts

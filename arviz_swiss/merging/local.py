"""Variables that belong to one batch alone, such as the random effects of its groups: which, where.

`local_draws` moves them and puts those of all batches side by side.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pandas as pd
import xarray as xr

from arviz_swiss.data import schema, transforms
from arviz_swiss.data.containers import SAMPLE_DIMS
from arviz_swiss.merging.batches import Batch, is_missing_values, own_dims
from arviz_swiss.merging.match import Matched
from arviz_swiss.merging.models import batch_space, depending, with_transforms
from arviz_swiss.merging.space import MODEL, Arrays, TransformSpace, check_only_none, required


class LocalSpace(Protocol):
    """What moving local variables asks of a space; all arrays are (chain, draw, ...), by name."""

    name: str
    transforms: dict[str, Any]

    def describe(self) -> str:
        """Return the transforms as text."""

    def forward(self, arrays: Arrays) -> Arrays:
        """Return the transformed ones of all variables of a batch in unconstrained space."""

    def backward(self, arrays: Arrays, shared: Arrays) -> Arrays:
        """Return the transformed ones on their own scale."""

    def deterministics(self, arrays: Arrays) -> Arrays:
        """Return what can be computed from all variables of a batch."""

    def slopes(self, arrays: Arrays) -> dict[tuple[str, str], np.ndarray]:
        """Return, of pairs of a variable and a deterministic that is a line in it, the slopes."""

    def through(self, deterministics: Mapping[str, str]) -> "LocalSpace":
        """Return a space in which these variables are moved as deterministics of them."""


class LocalTransforms(TransformSpace):
    """Each local variable through the transform that the user chose; there is no model."""

    def __init__(self, choices: Mapping[str, Any]):
        super().__init__(choices, list(choices))

    def forward(self, arrays: Arrays) -> Arrays:
        """Return the transformed variables in unconstrained space."""
        return super().forward({name: arrays[name] for name in self.transforms})

    def backward(self, arrays: Arrays, shared: Arrays | None = None) -> Arrays:
        """Return the transformed variables on their own scale."""
        return super().backward({name: arrays[name] for name in self.transforms})

    def slopes(self, arrays: Arrays) -> dict[tuple[str, str], np.ndarray]:
        """Return nothing: only a model has lines."""
        return {}

    def through(self, deterministics: Mapping[str, str]) -> "LocalTransforms":
        """Return the space itself."""
        return self


def find_local(matched: Matched, model: Any = None) -> dict[str, str]:
    """Return, of local variables, the dimension along which batches stand side by side.

    It is the one whose labels differ between batches, else the first with default ones; variables
    without, or with several, and missing values of observed data have none. Deterministics go with
    a local variable along its dimension; or one of its length, if lengths differ between batches or
    the model says that they depend on it.
    """
    batches = matched.batches
    local: dict[str, str] = {}
    shared_dims = {dim for variable in matched.layout.variables for dim in variable.dims}
    for name in matched.local:
        if any(name not in batch.draws for batch in batches) or is_missing_values(batches, name):
            continue
        own = own_dims(batches[0], name)
        if any(set(own_dims(batch, name)) != set(own) for batch in batches):
            continue
        differing = [dim for dim in own if not _same_index(batches, name, dim)]
        dims = differing or [dim for dim in own if dim not in shared_dims]
        if dims and len(differing) < 2:
            local[name] = min(dims, key=lambda dim: not _has_default_labels(batches[0], dim))
    if not local:
        return {}
    dependents = depending(model, matched.local)
    for name in matched.deterministic:
        if all(_is_real(batch, name) for batch in batches):
            dim = _dim_of_deterministic(batches, name, local, name in dependents)
            if dim is not None and dim not in shared_dims:
                local[name] = dim
    return local


def find_local_space(
    matched: Matched, local: Mapping[str, str], choices: Mapping[str, Any], model: Any
) -> LocalSpace:
    """Return the space in which local variables are moved: the model's, or by the transforms."""
    if model is None:
        return LocalTransforms(choices)
    check_only_none(choices)
    first = matched.batches[0]
    free = {name: dim for name, dim in local.items() if name in matched.local}
    axes = {name: own_dims(first, name).index(dim) for name, dim in free.items()}
    return batch_space(
        model,
        axes,
        matched.layout.names,
        untransformed=list(choices),
        deterministics=[name for name in local if name not in axes],
    )


def restore_local_space(
    maps: xr.Dataset, draws: xr.Dataset, choices: Mapping[str, Any] | None, model: Any
) -> LocalSpace:
    """Return the space that local variables were moved in, by what `swiss_local` records."""
    moved = json.loads(maps.attrs[schema.TRANSFORMS])
    through = json.loads(maps.attrs.get(schema.THROUGH, "{}"))
    if not moved and not through:
        return LocalTransforms({})
    if maps.attrs[schema.SPACE] != MODEL:
        return LocalTransforms(transforms.restore(maps.attrs[schema.TRANSFORMS], choices))
    free = [variable.name for variable in required(model).free_RVs]
    axes = {
        str(name): list(array.attrs["dims"]).index(array.attrs["dim"]) - len(SAMPLE_DIMS)
        for name, array in maps.data_vars.items()
        if name in free
    }
    model = with_transforms(model, maps.attrs[schema.TRANSFORMS], "model")
    space = batch_space(
        model,
        axes,
        [str(name) for name in draws.data_vars if name not in maps],
        untransformed=[name for name in axes if name not in moved],
        deterministics=list(through.values()),
    )
    return space.through(through)


def _same_index(batches: Sequence[Batch], name: str, dim: str) -> bool:
    first, *others = (batch.draws[name].get_index(dim) for batch in batches)
    return all(first.equals(other) for other in others)


def _has_default_labels(batch: Batch, dim: str) -> bool:
    return batch.draws.get_index(dim).equals(pd.RangeIndex(batch.draws.sizes[dim]))


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
        [batch.draws[variable].sizes[dim] for batch in batches]
        for variable, dim in local.items()
        if variable in batches[0].draws
    ]
    for dim in own:
        if any(other != dim and not _same_index(batches, name, other) for other in own):
            continue
        here = [batch.draws[name].sizes[dim] for batch in batches]
        alike = here in lengths and (depends or len(set(here)) > 1)
        if dim in local.values() or alike:
            return dim
    return None

"""The coordinates in which batches are sampled: a model's variables on the real line, as a vector.

They are those in which the draws are merged, when they are merged with that model.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import pymc as pm
import xarray as xr

from arviz_swiss.correcting.densities import MergeSpace
from arviz_swiss.data.containers import SAMPLE_DIMS
from arviz_swiss.data.layout import Layout, layout_of
from arviz_swiss.pymc.compiling import LOCK, without_compiler
from arviz_swiss.pymc.space import ModelSpace, data_dependent


def start_of(model: pm.Model) -> dict[str, np.ndarray]:
    """Return where PyMC would begin: the unconstrained values of every free variable."""
    with LOCK, without_compiler():
        # a seed, for initial values that are drawn from the prior
        point = model.initial_point(random_seed=0)
    return {
        rv.name: np.asarray(point[model.rvs_to_values[rv].name], float) for rv in model.free_RVs
    }


class Coordinates:
    """Vectors of a model's unconstrained variables, where PyMC would begin, and the way back."""

    def __init__(self, model: pm.Model):
        with LOCK:
            self._space = ModelSpace(model, deterministics=())
            # a chain of one draw
            images = {name: image[None, None] for name, image in start_of(model).items()}
            self._own = self._to_dataset(images)
        own = layout_of(self._own, self._space.names)
        self.layout: Layout = self._space.layout(own, images)
        self.start = self._gather(images)[0, 0]
        self.merge_space = MergeSpace(
            self.layout,
            own,
            tuple(self._space.transforms),
            np.arange(self.layout.size),
            self.start,
            {name: self._own[name].values[0] for name in self._space.names},
            {name: image[0] for name, image in images.items()},
        )

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The label of every parameter, as ArviZ and merged objects have it."""
        return tuple(self.layout.labels())

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.layout.size

    def to_dataset(self, draws: np.ndarray) -> xr.Dataset:
        """Return draws (chain, draw, parameter) as the model's variables, on their own scale."""
        images = {
            variable.name: draws[..., variable.columns].reshape(*draws.shape[:2], *variable.shape)
            for variable in self.layout.variables
        }
        with LOCK:
            return self._to_dataset(images)

    def with_deterministics(self, draws: xr.Dataset) -> xr.Dataset:
        """Add the model's deterministics, but for those of data in ``pm.Data``, which stay out.

        Of those that batches do not agree in the merge finds out by their values.
        """
        with LOCK:
            model = self._space.model
            rows = data_dependent(model)
            names = [var.name for var in model.deterministics if var.name not in rows]
            if not names:
                return draws
            space = ModelSpace(model, deterministics=names)
            arrays = {name: draws[name].values for name in space.names}
            values = space.deterministics(arrays)
        return _labelled(draws, values, space)

    def from_dataset(self, posterior: xr.Dataset) -> np.ndarray:
        """Return the draws of a model's variables as (chain, draw, parameter), matched by label."""
        order = {
            dim: self._own[dim].values
            for dim in self._own.dims
            if dim not in SAMPLE_DIMS and dim in posterior.coords
        }
        posterior = posterior.sel(order)
        arrays = {
            name: posterior[name].transpose(*SAMPLE_DIMS, *self._space.dims[name]).values
            for name in self._space.names
        }
        with LOCK:
            return self._gather(self._space.forward(arrays))

    def _gather(self, images: Mapping[str, np.ndarray]) -> np.ndarray:
        shape = next(iter(images.values())).shape[:2]
        parts = [images[name].reshape(*shape, -1) for name in self._space.names]
        return np.concatenate(parts, axis=-1)

    def _to_dataset(self, images: Mapping[str, np.ndarray]) -> xr.Dataset:
        return _labelled(xr.Dataset(), self._space.backward(images), self._space)


def unconstrained_rows(
    model: pm.Model, draws: xr.Dataset, names: Sequence[str]
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return labels and draws, (draws, parameters), of some variables in the model's space."""
    own = layout_of(draws, list(names))
    with LOCK:
        space = ModelSpace(model, var_names=names, deterministics=()).fitted_to(own)
        arrays = {
            name: draws[name].transpose(*SAMPLE_DIMS, *space.dims[name]).values
            for name in space.names
        }
        images = space.forward(arrays)
    layout = space.layout(own, images)
    rows = [images[variable.name].reshape(-1, variable.size) for variable in layout.variables]
    return tuple(layout.labels()), np.concatenate(rows, axis=1)


def _labelled(draws: xr.Dataset, arrays: Mapping[str, np.ndarray], space: ModelSpace) -> xr.Dataset:
    """Add arrays of a model's variables to draws, with dimensions and coordinates."""
    dims = {name: (*SAMPLE_DIMS, *space.dims[name]) for name in arrays}
    dataset = draws.assign({name: (dims[name], array) for name, array in arrays.items()})
    coords = {
        dim: space.coords.get(dim, np.arange(length))
        for dim, length in dataset.sizes.items()
        if dim not in dataset.coords
    }
    return dataset.assign_coords(coords)

"""The density of a batch's shared and local variables, from its PyMC model."""

from collections.abc import Mapping, Sequence

import numpy as np
import pymc as pm

from arviz_swiss.data.containers import Groups
from arviz_swiss.pymc.coordinates import Coordinates
from arviz_swiss.pymc.density import ModelDensity
from arviz_swiss.pymc.observed import data_groups, imputed_names


class ModelJointDensity:
    """Log density and gradients of one batch, by shared and by local variables.

    `parameters` are the labels of the shared ones in the order of the caller; `axes` names the
    variables of the batch alone, and tells along which axis of each its groups lie.
    """

    def __init__(
        self, model: pm.Model, parameters: Sequence[str], axes: Mapping[str, int], label: str = ""
    ):
        self._model, self._parameters, self._axes = model, tuple(parameters), dict(axes)
        self._label = label
        self.coordinates = Coordinates(model)
        local = [*axes, *imputed_names(model)]
        self._density = ModelDensity(model, self.coordinates.merge_space, label, local)
        places = {name: place for place, name in enumerate(self.coordinates.parameters)}
        self.shared = np.array([places[name] for name in parameters])
        self.local = np.setdiff1d(np.arange(self.coordinates.size), self.shared)
        self.families = _families(self.coordinates, local, axes, self.local)
        self.start = self.coordinates.start[self.local]

    def __reduce__(self):
        """Pickle what it was made of: functions stay where they are."""
        return ModelJointDensity, (self._model, self._parameters, self._axes, self._label)

    def score(
        self, shared: np.ndarray, local: np.ndarray, prior_power: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return log densities (points,), and gradients by shared and by local variables."""
        points = np.empty((len(shared), self.coordinates.size))
        points[:, self.shared], points[:, self.local] = shared, local
        values, gradients = self._density.tempered(points, 1.0, prior_power)
        return values, gradients[:, self.shared], gradients[:, self.local]

    def to_groups(self, shared: np.ndarray, local: np.ndarray) -> Groups:
        """Return draws (chain, draw, ...) as the model's variables, and the model's data."""
        draws = np.empty((*shared.shape[:2], self.coordinates.size))
        draws[..., self.shared], draws[..., self.local] = shared, local
        posterior = self.coordinates.with_deterministics(self.coordinates.to_dataset(draws))
        return {"posterior": posterior, **data_groups(self._model)}


def _families(
    coordinates: Coordinates, local: Sequence[str], axes: Mapping[str, int], places: np.ndarray
) -> list[np.ndarray]:
    """Return where the local variables of each group lie, (groups, k).

    Variables of as many groups are taken for variables of the same groups.
    """
    by_count: dict[int, list[np.ndarray]] = {}
    position = np.empty(coordinates.size, int)
    position[places] = np.arange(places.size)
    for variable in coordinates.layout.variables:
        if variable.name in local:
            own = np.arange(variable.columns.start, variable.columns.stop).reshape(variable.shape)
            own = np.moveaxis(own, axes.get(variable.name, 0), 0) if own.ndim else own[None]
            by_count.setdefault(len(own), []).append(position[own.reshape(len(own), -1)])
    return [np.concatenate(parts, axis=1) for parts in by_count.values()]

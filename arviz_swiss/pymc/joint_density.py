"""The density of a batch's shared and local variables, from its PyMC model."""

from collections.abc import Sequence

import numpy as np
import pymc as pm

from arviz_swiss.pymc.coordinates import Coordinates
from arviz_swiss.pymc.density import ModelDensity


class ModelJointDensity:
    """Log density and gradients of one batch, by shared and by local variables.

    `parameters` are the labels of the shared ones in the order of the caller; `local` names the
    variables of the batch alone, and `axes` along which dimension of each its groups lie.
    """

    def __init__(
        self,
        model: pm.Model,
        parameters: Sequence[str],
        local: Sequence[str],
        axes: dict[str, int],
        label: str = "",
    ):
        self.coordinates = Coordinates(model)
        self._density = ModelDensity(model, self.coordinates.merge_space, label, local)
        places = {name: place for place, name in enumerate(self.coordinates.parameters)}
        self.shared = np.array([places[name] for name in parameters])
        self.local = np.setdiff1d(np.arange(self.coordinates.size), self.shared)
        self.families = _families(self.coordinates, local, axes, self.local)
        self.start = self.coordinates.start[self.local]

    def score(
        self, shared: np.ndarray, local: np.ndarray, prior_power: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return log densities (points,), and gradients by shared and by local variables."""
        values, gradients = self._density.tempered(self._points(shared, local), 1.0, prior_power)
        return values, gradients[:, self.shared], gradients[:, self.local]

    def terms(self, shared: np.ndarray, local: np.ndarray) -> np.ndarray:
        """Return the log terms of local variables' prior and of rows, (points, terms)."""
        return self._density.likelihood_terms(self._points(shared, local))

    def log_prior(self, shared: np.ndarray, local: np.ndarray | None = None) -> np.ndarray:
        """Return the log prior of shared variables, (points,), which asks for no local ones."""
        if local is None:
            local = np.broadcast_to(self.start, (len(shared), self.start.size))
        return self._density.log_prior(self._points(shared, local))

    def _points(self, shared: np.ndarray, local: np.ndarray) -> np.ndarray:
        points = np.empty((len(shared), self.coordinates.size))
        points[:, self.shared], points[:, self.local] = shared, local
        return points


def _families(
    coordinates: Coordinates, local: Sequence[str], axes: dict[str, int], places: np.ndarray
) -> list[np.ndarray]:
    """Return where the local variables of each group lie, (groups, k), groups of one size together."""
    by_count: dict[int, list[np.ndarray]] = {}
    position = np.empty(coordinates.size, int)
    position[places] = np.arange(places.size)
    for variable in coordinates.layout.variables:
        if variable.name in local:
            own = np.arange(variable.columns.start, variable.columns.stop).reshape(variable.shape)
            own = np.moveaxis(own, axes[variable.name], 0) if own.ndim else own[None]
            by_count.setdefault(len(own), []).append(position[own.reshape(len(own), -1)])
    return [np.concatenate(parts, axis=1) for parts in by_count.values()]

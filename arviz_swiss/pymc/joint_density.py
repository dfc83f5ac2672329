"""The density of a batch's shared and local variables, from its PyMC model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm

from arviz_swiss.data.containers import Groups
from arviz_swiss.data.messages import brief
from arviz_swiss.pymc.coordinates import Coordinates
from arviz_swiss.pymc.density import ModelDensity
from arviz_swiss.pymc.observed import data_groups


class ModelJointDensity:
    """Log density and gradients of one batch, by shared and by local variables.

    `parameters` are the labels of the shared ones in the order of the caller; `local` names the
    variables of the batch alone, and `axes` along which dimension of each its groups lie, the first
    unless told. The power of the prior is that of the shared variables' prior, and of Potentials
    that depend on no local variable.
    """

    def __init__(
        self,
        model: pm.Model,
        parameters: Sequence[str],
        local: Sequence[str],
        axes: Mapping[str, int],
        label: str = "",
    ):
        self.model = model
        self._made_of = (model, tuple(parameters), tuple(local), dict(axes), label)
        self.coordinates = Coordinates(model)
        _check_names(self.coordinates, parameters, local, label)
        self._density = ModelDensity(model, self.coordinates.merge_space, label, local)
        places = {name: place for place, name in enumerate(self.coordinates.parameters)}
        self.shared = np.array([places[name] for name in parameters], int)
        self.local = np.setdiff1d(np.arange(self.coordinates.size), self.shared)
        self.families: Sequence[np.ndarray] = _families(
            model, self.coordinates, local, axes, self.local
        )
        self.start = self.coordinates.start[self.local]

    def __reduce__(self):
        """Pickle what it was made of: functions stay where they are."""
        return ModelJointDensity, self._made_of

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

    def to_groups(self, shared: np.ndarray, local: np.ndarray) -> Groups:
        """Return draws (chain, draw, ...) as the model's variables, and the model's data."""
        draws = np.empty((*shared.shape[:2], self.coordinates.size))
        draws[..., self.shared], draws[..., self.local] = shared, local
        posterior = self.coordinates.with_deterministics(self.coordinates.to_dataset(draws))
        return {"posterior": posterior, **data_groups(self.model)}


def _check_names(
    coordinates: Coordinates, parameters: Sequence[str], local: Sequence[str], label: str
) -> None:
    """Refuse a model whose variables are not the shared and the local ones."""
    labels = zip(coordinates.parameters, coordinates.layout.owners(), strict=True)
    own = [name for name, owner in labels if owner not in local]
    if unknown := sorted(set(local) - set(coordinates.layout.names)):
        raise ValueError(
            f'batch "{label}": local variables {brief(unknown)} are not free variables of the '
            f"model, which has {brief(coordinates.layout.names)}."
        )
    if missing := sorted(set(parameters) - set(own)):
        raise ValueError(
            f'batch "{label}": the model does not have the shared parameters {brief(missing)}. '
            "Build the models of all batches with the same shared variables and coordinates."
        )
    if extra := [name for name in own if name not in set(parameters)]:
        raise ValueError(
            f'batch "{label}": {brief(extra)} are neither shared parameters nor of a local '
            "variable. Build the models of all batches with the same shared variables and "
            "coordinates, or name the variable among the local ones."
        )


def _families(
    model: pm.Model,
    coordinates: Coordinates,
    local: Sequence[str],
    axes: Mapping[str, int],
    places: np.ndarray,
) -> list[np.ndarray]:
    """Return where the local variables of each group lie, (groups, k).

    Variables along one dimension of the model belong together. One without a name of its dimension
    belongs to those of its length, unless there are several such dimensions.
    """
    entries: list[tuple[str | None, np.ndarray]] = []
    position = np.empty(coordinates.size, int)
    position[places] = np.arange(places.size)
    for variable in coordinates.layout.variables:
        if variable.name in local and variable.size:
            own = np.arange(variable.columns.start, variable.columns.stop).reshape(variable.shape)
            axis = axes.get(variable.name, 0)
            own = np.moveaxis(own, axis, 0) if own.ndim else own[None]
            dims = model.named_vars_to_dims.get(variable.name) or ()
            dim = dims[axis] if axis < len(dims) else None
            entries.append((dim, position[own.reshape(len(own), -1)]))
    parts: dict[Any, list[np.ndarray]] = {}
    for dim, columns in entries:
        named = {d for d, others in entries if d is not None and len(others) == len(columns)}
        dim = next(iter(named)) if dim is None and len(named) == 1 else dim
        parts.setdefault((len(columns), dim), []).append(columns)
    return [np.concatenate(columns, axis=1) for columns in parts.values()]

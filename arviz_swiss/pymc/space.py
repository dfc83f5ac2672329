"""A PyMC model's unconstrained space: draws there, back again, and their deterministics."""

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pymc.logprob.transforms import CircularTransform
from pymc.logprob.utils import replace_rvs_by_values

from arviz_swiss.data.layout import Layout, Variable, place
from arviz_swiss.pymc.graphs import (
    Arrays,
    Vectorized,
    check_present,
    dims_of,
    evaluate,
    image_dims,
    name_of,
    names_among,
    shapes_of,
    vectorize,
    wrapped,
)


class Order(NamedTuple):
    """How elements must be moved to come in the model's order.

    `ndim` counts the variable's own dimensions, which are the last of an array. For each of them,
    from the first on, `positions` tells where the model's elements are in the draws; None where the
    order is the same. Further dimensions have none.
    """

    ndim: int
    positions: tuple[np.ndarray | None, ...]

    def into(self, array: np.ndarray) -> np.ndarray:
        """Return an array of draws with its elements in the model's order."""
        return self._take(array, self.positions)

    def back(self, array: np.ndarray) -> np.ndarray:
        """Return an array in the model's order with its elements in that of the draws."""
        return self._take(array, [p if p is None else np.argsort(p) for p in self.positions])

    def of_image(self, ndim: int) -> "Order":
        """Return the order of the variable's image, which has so many dimensions of its own.

        Elements along a dimension that the transform changes are its own, and stay in place.
        """
        kept = ndim if ndim == self.ndim else ndim - 1
        return Order(ndim, self.positions[:kept])

    def _take(self, array: np.ndarray, positions) -> np.ndarray:
        array = np.asarray(array)
        for axis, places in enumerate(positions, start=array.ndim - self.ndim):
            if places is not None and array.shape[axis] == places.size:
                array = array.take(places, axis=axis)
        return array


def find_order(
    variable: Variable, layout: Layout, dims: tuple[str, ...], coords: Mapping[str, Any]
) -> Order:
    """Match a variable's elements in the draws to those in the model, by coordinate label.

    The order is the same along dimensions without labels, or whose labels are not the model's.
    Dimensions in another order than in the model are refused.
    """
    if dims != variable.dims:
        if set(dims) == set(variable.dims):
            raise ValueError(
                f"variable {variable.name}: dimensions {variable.dims}, but {dims} in the model. "
                "Transpose the draws."
            )
        return Order(len(dims), ())
    positions = (_positions(layout.coords.get(dim), coords.get(dim)) for dim in dims)
    return Order(len(dims), tuple(positions))


def _positions(given: Any, wanted: Any) -> np.ndarray | None:
    """Return where the wanted labels are among those given; None if all are in place."""
    if given is None or wanted is None:
        return None
    place = {label: position for position, label in enumerate(np.asarray(given).tolist())}
    labels = np.asarray(wanted).tolist()
    if set(place) != set(labels) or list(place) == labels:
        return None
    return np.array([place[label] for label in labels])


class ModelSpace:
    r"""The space in which PyMC samples a model: every free variable on the real line.

    Arrays have any number of sample dimensions first, the same for all variables of a call.

    Parameters
    ----------
    model : pymc.Model
        The model of any one batch; its observed data matter only for deterministics.
    var_names : sequence of str, optional
        Free variables of the space; all of the model when absent. Leave out those that belong to
        one batch alone.
    untransformed : sequence of str, optional
        Variables that stay on their own scale.
    deterministics : sequence of str, optional
        Deterministics that `deterministics` computes. When absent, all that depend on no other
        free variable than those in `var_names`. See `data_dependent` for those that depend on the
        batch's data.

    Attributes
    ----------
    names : tuple of str
        Free variables of the space, in the model's order.
    transforms : dict
        PyMC's transform of each variable that has one.
    deterministic_names : tuple of str
        Deterministics that can be computed.
    dims : dict
        Dimension names of each free variable and deterministic, as ArviZ names them.
    coords : dict
        Coordinate values of the model's dimensions.

    Raises
    ------
    ValueError
        If a name is unknown, a variable of the space is discrete, or the transform of one depends
        on a variable outside the space.

    Notes
    -----
    Draws of a variable on the circle, such as ``pm.VonMises``, are cut at :math:`\pm\pi` and can
    be torn apart there. `recentred` moves the cut opposite their circular mean.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from arviz_swiss.pymc import ModelSpace
    >>> with pm.Model() as model:
    ...     sigma = pm.HalfNormal("sigma")
    ...     variance = pm.Deterministic("variance", sigma**2)
    >>> space = ModelSpace(model)
    >>> unconstrained = space.forward({"sigma": np.array([[1.0, 2.0]])})
    >>> unconstrained
    {'sigma': array([[0.        , 0.69314718]])}
    >>> constrained = space.backward(unconstrained)
    >>> constrained
    {'sigma': array([[1., 2.]])}
    >>> space.deterministics(constrained)
    {'variance': array([[1., 4.]])}
    """

    name = "model"

    def __init__(
        self,
        model: pm.Model,
        *,
        var_names: Sequence[str] | None = None,
        untransformed: Sequence[str] = (),
        deterministics: Sequence[str] | None = None,
    ):
        free = {rv.name: rv for rv in model.free_RVs}
        names = list(free) if var_names is None else list(var_names)
        _check_known("var_names", names, free)
        _check_known("untransformed", untransformed, names)
        self.model = model
        self._free = {name: rv for name, rv in free.items() if name in names}
        self.names = tuple(self._free)
        _check_continuous(self._free)
        self.transforms = {
            name: model.rvs_to_transforms[rv]
            for name, rv in self._free.items()
            if model.rvs_to_transforms[rv] is not None and name not in untransformed
        }
        self._centres: Arrays = {}
        self._orders: dict[str, Order] = {}
        outside = [rv for name, rv in free.items() if name not in self.names]
        self._check_transforms(outside)
        self._deterministics = self._find_deterministics(deterministics, outside)
        self.deterministic_names = tuple(self._deterministics)
        self.dims = {
            name: dims_of(model, name, var.type.ndim)
            for name, var in (self._free | self._deterministics).items()
        }
        self.coords = {
            dim: np.asarray(values) for dim, values in model.coords.items() if values is not None
        }

    def forward(self, arrays: Mapping[str, np.ndarray]) -> Arrays:
        """Move draws to the real line; not finite where they lie on the edge of the support."""
        images = evaluate(self._forward, self._to_model(arrays))
        images = self._from_model(images, unconstrained=True)
        for name, centre in self._centres.items():
            images[name] = centre + wrapped(images[name] - centre)
        return images

    def backward(self, arrays: Mapping[str, np.ndarray]) -> Arrays:
        """Move draws from the real line back to their own scale."""
        return self._from_model(
            evaluate(self._backward, self._to_model(arrays, unconstrained=True))
        )

    def deterministics(self, arrays: Mapping[str, np.ndarray]) -> Arrays:
        """Compute the model's deterministics from draws on their own scale."""
        if not self._deterministics:
            return {}
        return evaluate(self._compute, self._to_model(arrays))

    def fitted_to(self, layout: Layout) -> "ModelSpace":
        """Return the same space for draws whose elements come in another order than the model's.

        Elements are matched to those of the layout, of draws on their own scale, by coordinate
        label; along a dimension without labels, or with others than the model's, by position.
        Deterministics still come in the model's order.
        """
        shapes = shapes_of(self._free)
        for variable in layout.variables:
            expected = shapes.get(variable.name, variable.shape)
            if sorted(variable.shape) != sorted(expected):
                raise ValueError(
                    f"variable {variable.name}: shape {variable.shape} in the draws, but "
                    f"{expected} in the model. Pass the plain model that the batches were sampled "
                    "with."
                )
        fitted = copy.copy(self)
        fitted._orders = {
            variable.name: find_order(variable, layout, self.dims[variable.name], self.coords)
            for variable in layout.variables
            if variable.name in self._free
        }
        return fitted

    def without_deterministics(self, names: Sequence[str]) -> "ModelSpace":
        """Return the same space, which does not compute these deterministics."""
        if not names:
            return self
        fewer = copy.copy(self)
        fewer.__dict__.pop("_compute", None)
        kept = {name: var for name, var in self._deterministics.items() if name not in names}
        fewer._deterministics, fewer.deterministic_names = kept, tuple(kept)
        return fewer

    def _to_model(self, arrays: Mapping[str, np.ndarray], unconstrained: bool = False) -> Arrays:
        """Bring elements from the order of the draws into the model's."""
        return {name: self._order(name, unconstrained).into(a) for name, a in arrays.items()}

    def _from_model(self, arrays: Mapping[str, np.ndarray], unconstrained: bool = False) -> Arrays:
        """Bring elements from the model's order into that of the draws."""
        return {name: self._order(name, unconstrained).back(a) for name, a in arrays.items()}

    def _order(self, name: str, unconstrained: bool) -> Order:
        order = self._orders.get(name)
        if order is None:
            return Order(0, ())
        if not (unconstrained and name in self.transforms):
            return order
        return order.of_image(self.model.rvs_to_values[self._free[name]].type.ndim)

    def recentred(self, batches: Iterable[Mapping[str, np.ndarray]]) -> "ModelSpace":
        """Return the same space, with variables on the circle cut opposite their circular mean.

        The draws of all batches, on their own scale, are read once, and only if the space has
        variables on the circle.
        """
        circular = self.circular
        recentred = copy.copy(self)
        if circular:
            totals = dict.fromkeys(circular, 0.0)
            for arrays in batches:
                check_present(arrays, circular)
                for name in circular:
                    on_circle = np.exp(1j * np.asarray(arrays[name]))
                    sample_ndim = on_circle.ndim - self._free[name].type.ndim
                    totals[name] += on_circle.sum(axis=tuple(range(sample_ndim)))
            recentred._centres = {n: np.asarray(np.angle(total)) for n, total in totals.items()}
        return recentred

    @property
    def circular(self) -> list[str]:
        """Variables on the circle, which is cut where the draws of all batches say."""
        return [n for n, t in self.transforms.items() if isinstance(t, CircularTransform)]

    def layout(self, constrained: Layout, example: Mapping[str, np.ndarray]) -> Layout:
        """Lay out the unconstrained variables along `parameter`, by the shapes of example draws.

        A dimension whose length the transform changes is renamed after it, as in
        ``color_simplex``, and counted from zero.
        """
        variables, coords, start = [], {}, 0
        for variable in constrained.variables:
            shape = example[variable.name].shape[2:]
            dims = image_dims(
                variable.dims, variable.shape, shape, self.transforms.get(variable.name)
            )
            variables.append(place(variable.name, dims, shape, start))
            start = variables[-1].columns.stop
            for dim, length in zip(dims, shape, strict=True):
                if dim not in variable.dims:
                    coords[dim] = xr.DataArray(np.arange(length), dims=dim)
            coords |= {k: v for k, v in constrained.coords.items() if set(v.dims) <= set(dims)}
        return Layout(tuple(variables), coords)

    def describe(self) -> str:
        """Return the transforms' names as text."""
        return json.dumps({name: name_of(tr) for name, tr in self.transforms.items()})

    @cached_property
    def _forward(self) -> Vectorized:
        inputs = {name: rv.type(name) for name, rv in self._free.items()}
        outputs = {
            name: self.transforms[name].forward(inputs[name], *rv.owner.inputs)
            if name in self.transforms
            else inputs[name]
            for name, rv in self._free.items()
        }
        return vectorize(inputs, self._replace(outputs, inputs, {}))

    @cached_property
    def _backward(self) -> Vectorized:
        inputs = {
            name: self.model.rvs_to_values[rv].type(name)
            if name in self.transforms
            else rv.type(name)
            for name, rv in self._free.items()
        }
        return vectorize(inputs, self._replace(self._free, inputs, self.transforms))

    @cached_property
    def _compute(self) -> Vectorized:
        inputs = {name: rv.type(name) for name, rv in self._free.items()}
        return vectorize(inputs, self._replace(self._deterministics, inputs, {}))

    def _replace(self, graphs: Mapping[str, Any], inputs: Mapping[str, Any], transforms) -> dict:
        """Replace random variables in graphs by the back-transformed inputs."""
        values = {rv: self.model.rvs_to_values[rv] for rv in self.model.observed_RVs}
        values |= {rv: inputs[name] for name, rv in self._free.items()}
        replaced = replace_rvs_by_values(
            list(graphs.values()),
            rvs_to_values=values,
            rvs_to_transforms={rv: transforms.get(name) for name, rv in self._free.items()},
        )
        return dict(zip(graphs, replaced, strict=True))

    def _check_transforms(self, outside: Sequence[pt.TensorVariable]) -> None:
        """Refuse transforms that cannot be computed within the space."""
        for name, transform in self.transforms.items():
            rv = self._free[name]
            graph = transform.forward(rv.type(), *rv.owner.inputs)
            if needed := names_among(graph, outside):
                raise ValueError(
                    f"The transform of {name!r} depends on {needed}, which are not in var_names="
                    f"{list(self.names)}. Add them, or pass untransformed=[{name!r}]."
                )

    def _find_deterministics(
        self, names: Sequence[str] | None, outside: Sequence[pt.TensorVariable]
    ) -> dict[str, pt.TensorVariable]:
        """Choose the deterministics to compute."""
        known = {var.name: var for var in self.model.deterministics}
        needs = {name: names_among(var, outside) for name, var in known.items()}
        if names is None:
            return {name: var for name, var in known.items() if not needs[name]}
        _check_known("deterministics", names, known)
        for name in names:
            if needs[name]:
                raise ValueError(
                    f"Deterministic {name!r} depends on {needs[name]}, which are not in var_names="
                    f"{list(self.names)}. Leave it out."
                )
        return {name: var for name, var in known.items() if name in names}


def data_dependent(model: pm.Model) -> tuple[str, ...]:
    """Name the deterministics that depend on the batch's data: ``pm.Data`` or observed variables.

    Data that the model holds as plain arrays are constants, and not noticed.
    """
    data = [*model.data_vars, *model.observed_RVs]
    return tuple(var.name for var in model.deterministics if names_among(var, data))


def _check_known(argument: str, names: Iterable[str], known: Iterable[str]) -> None:
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{argument}: {unknown} are not among {list(known)} of the model.")


def _check_continuous(free: Mapping[str, pt.TensorVariable]) -> None:
    if discrete := [name for name, rv in free.items() if not rv.type.dtype.startswith("float")]:
        raise ValueError(
            f"Free variables {discrete} are discrete, and merging moves draws on the real line. "
            "Marginalize them out of the model, for instance with a pm.Mixture, or leave them out "
            "of the variables to merge."
        )

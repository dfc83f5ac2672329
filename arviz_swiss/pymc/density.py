"""A batch's density from its PyMC model: log density and gradient of prior and likelihood apart."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.logprob import transformed_conditional_logp
from pymc.logprob.utils import local_check_parameter_to_ninf_switch, replace_rvs_by_values
from pytensor.graph.basic import Variable
from pytensor.graph.rewriting.basic import in2out
from pytensor.graph.rewriting.utils import rewrite_graph

from arviz_swiss.correcting.densities import MergeSpace
from arviz_swiss.correcting.evaluation import VALUES_AT_ONCE
from arviz_swiss.data.layout import Variable as Placed
from arviz_swiss.pymc.compiling import LOCK
from arviz_swiss.pymc.graphs import names_among, shapes_of
from arviz_swiss.pymc.observed import observed_values
from arviz_swiss.pymc.points import (
    POINTS_OF_BLOCK,
    ROWS_AT_ONCE,
    PointFunction,
    function_of_points,
)
from arviz_swiss.pymc.space import ModelSpace, Order, find_order
from arviz_swiss.pymc.tempering import check_plain

# A check of parameters that fails becomes a density of zero, as when PyMC samples.
_NO_DENSITY = in2out(local_check_parameter_to_ninf_switch)


class ModelDensity:
    """The log density of one batch, at many points at once.

    Batches whose models differ in their data alone share one function. Potentials are
    counted with the prior. A variable that was merged on its own scale has its density there,
    without a Jacobian. A model that is tempered, has other free variables than the merged ones, or
    transforms them in another way is refused. `local` variables, if there are any, are those whose
    density given the others is part of the likelihood, as are Potentials of them.
    """

    def __init__(
        self, model: pm.Model, space: MergeSpace, label: str = "", local: Sequence[str] = ()
    ):
        self._model, self._space, self._label, self._local = model, space, label, tuple(local)
        with LOCK:
            check_model(model, space, label)
            _check_shapes(model, space, label)
            self._inputs = _inputs(model, space)
            _check_transforms(model, space, label)
            self._orders = {
                variable.name: _order(model, variable, space, label)
                for variable in space.layout.variables
            }
        self._rows = sum(values.size for values in observed_values(model).values())
        self._at_once = max(VALUES_AT_ONCE // max(self._rows, space.size), 1)
        self._functions: dict[tuple, PointFunction] = {}
        self._terms: PointFunction | None = None

    def __reduce__(self):
        """Pickle what it was made of: functions stay where they are."""
        return ModelDensity, (self._model, self._space, self._label, self._local)

    def log_prior(self, x: np.ndarray) -> np.ndarray:
        """Return the log density of the prior, Jacobians included: (points,)."""
        return self._values(x, 0.0, 1.0)

    def log_likelihood(self, x: np.ndarray) -> np.ndarray:
        """Return the log likelihood: (points,)."""
        return self._values(x, 1.0, 0.0)

    def grad_log_prior(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient of the log prior: (points, parameters)."""
        return self.tempered(x, 0.0, 1.0)[1]

    def grad_log_likelihood(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient of the log likelihood: (points, parameters)."""
        return self.tempered(x, 1.0, 0.0)[1]

    def likelihood_terms(self, x: np.ndarray) -> np.ndarray:
        """Return the terms that the log likelihood is the sum of: (points, terms)."""
        if self._terms is None:  # others need not wait for threads that compile
            with LOCK:
                parts = _terms(self._model, self._inputs, self._space, "likelihood", self._local)
                graph = _safe(pt.concatenate([part.ravel() for part in parts]))
                self._terms = function_of_points(graph, list(self._inputs.values()), False)
        (terms,) = self._terms(self._split(x))
        return np.broadcast_to(terms, (len(x), terms.shape[-1]))

    def tempered(
        self, x: np.ndarray, power: float, prior_power: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the log of likelihood and prior, each to its power, (points,), and its gradient.

        A term whose power is zero is not computed. All chains of a batch with many rows at once
        would take several times as much memory as its rows.
        """
        if power and prior_power and self._rows > ROWS_AT_ONCE:
            # the likelihood alone is a sum over rows, which need not all be taken at once
            likelihood, prior = self.tempered(x, power, 0.0), self.tempered(x, 0.0, prior_power)
            return likelihood[0] + prior[0], likelihood[1] + prior[1]
        values, *arrays = self._called(self._function(power, prior_power, True), x)
        layout = self._space.layout
        whole = np.empty((len(x), layout.size))
        for name, array in zip(self._inputs, arrays, strict=True):
            variable = next(v for v in layout.variables if v.name == name)
            columns = np.arange(variable.columns.start, variable.columns.stop)
            whole[:, columns[self._orders[name]]] = array.reshape(len(x), -1)
        return values, whole[:, self._space.free]

    def _values(self, x: np.ndarray, power: float, prior_power: float) -> np.ndarray:
        return self._called(self._function(power, prior_power, False), x)[0]

    def _called(self, function: PointFunction, x: np.ndarray) -> list[np.ndarray]:
        """Return values and gradients, of few points at a time where rows are many."""
        step = min(self._at_once, len(x)) or 1
        if function.in_blocks:
            step = POINTS_OF_BLOCK
        parts = []
        for start in range(0, max(len(x), 1), step):
            points = x[start : start + step]
            values, *gradients = function(self._split(points))
            # a flat prior depends on no input, and comes without the points
            parts.append([np.broadcast_to(values, (len(points),)), *gradients])
        return (
            parts[0] if len(parts) == 1 else [np.concatenate(p) for p in zip(*parts, strict=True)]
        )

    def _split(self, x: np.ndarray) -> list[np.ndarray]:
        """Return the model's own variables, its dimensions and coordinates in its own order."""
        whole = np.repeat(self._space.constants[None], len(x), axis=0)
        whole[:, self._space.free] = x
        columns = {v.name: v.columns for v in self._space.layout.variables}
        return [
            whole[:, columns[name]][:, self._orders[name]]
            .reshape(len(x), *self._shape(name))
            .astype(value.type.dtype)
            for name, value in self._inputs.items()
        ]

    def _shape(self, name: str) -> tuple[int, ...]:
        return self._space.unconstrained[name].shape[1:]

    def _function(self, power: float, prior_power: float, gradient: bool) -> PointFunction:
        key = (power, prior_power, gradient)
        if key in self._functions:  # without waiting for threads that make one
            return self._functions[key]
        with LOCK:
            if key not in self._functions:
                terms = [
                    (power, lambda: self._graph("likelihood")),
                    (prior_power, lambda: self._graph("prior")),
                ]
                graph = pt.add(
                    *(_raised(make(), exponent) for exponent, make in terms if exponent != 0),
                    pt.constant(0.0),
                )
                values = list(self._inputs.values())
                self._functions[key] = function_of_points(graph, values, gradient)
        return self._functions[key]

    def _graph(self, term: str) -> Variable:
        return _graph(self._model, self._inputs, self._space, term, self._local)


def _raised(term: Any, power: float) -> Any:
    """Return a log density to a power, which batches have their own of."""
    # minus infinity times a power stays, and the power is data of a function that all share
    return term if power == 1 else pytensor.shared(float(power)) * term


def check_model(model: pm.Model, space: MergeSpace, label: str) -> None:
    """Refuse a model whose density in the space of the merge is not that of its batch."""
    check_plain(model, label)
    merged = set(space.layout.names)
    free = [rv.name for rv in model.free_RVs]
    if extra := [name for name in free if name not in merged]:
        raise ValueError(
            f'batch "{label}": the model has free variables {", ".join(extra)} that were not '
            "merged, such as latent variables of the batch alone. The density of the merged "
            "parameters is an integral over them, which the model does not give: such a merge "
            "cannot be refined or certified."
        )
    if missing := sorted(merged - set(free)):
        raise ValueError(
            f'batch "{label}": merged variables {", ".join(missing)} are not free variables of the '
            f"model, which has {', '.join(free)}."
        )
    if not model.observed_RVs:
        raise ValueError(f'batch "{label}": the model has no observed variables, so no likelihood.')


def _check_shapes(model: pm.Model, space: MergeSpace, label: str) -> None:
    """Refuse a model whose variables have other shapes than the merged ones."""
    for name, shape in shapes_of({rv.name: rv for rv in model.free_RVs}).items():
        merged = space.constrained[name].shape[1:]
        if sorted(merged) != sorted(shape):
            raise ValueError(
                f'batch "{label}", variable {name}: merged with shape {merged}, but it has {shape} '
                "in the model. Pass the plain model of the batch, as it was sampled."
            )


def _inputs(model: pm.Model, space: MergeSpace) -> dict[str, Variable]:
    """Return one value variable a free variable, on the scale of the merge."""
    return {
        rv.name: model.rvs_to_values[rv] if rv.name in space.transformed else rv.type(rv.name)
        for rv in model.free_RVs
    }


def _check_transforms(model: pm.Model, space: MergeSpace, label: str) -> None:
    """Refuse a model that leads to the merge's space by other transforms than the merge did."""
    own = {rv.name for rv in model.free_RVs if model.rvs_to_transforms[rv] is not None}
    for name in space.transformed:
        if name not in own:
            _refuse_transform(label, name, "the model does not transform it")
    stays = [name for name in own if name not in space.transformed]
    own_space = ModelSpace(model, untransformed=stays).fitted_to(space.own)
    images = own_space.backward(space.unconstrained)
    for name in space.transformed:
        expected = space.constrained[name]
        if images[name].shape != expected.shape or not np.allclose(
            images[name], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max()
        ):
            _refuse_transform(label, name, "the model's own transform is another one")


def _refuse_transform(label: str, name: str, why: str) -> None:
    raise ValueError(
        f'batch "{label}", variable {name}: merged on another scale than the model\'s: {why}. '
        "Merge with model=, or pass densities on the scale of your transforms."
    )


def _order(model: pm.Model, variable: Placed, space: MergeSpace, label: str) -> np.ndarray:
    """Return where the model's elements of a variable, in its order, lie in the merge's."""
    positions = np.arange(variable.size).reshape(variable.shape)
    dims = model.named_vars_to_dims.get(variable.name)
    if not dims or set(dims) != set(variable.dims):
        return _order_of_image(model, variable, space).into(positions).ravel()
    positions = positions.transpose([variable.dims.index(dim) for dim in dims])
    for axis, dim in enumerate(dims):
        values = model.coords.get(dim)
        if values is None or dim not in space.layout.coords:
            continue
        place = {value: i for i, value in enumerate(space.layout.coords[dim].values.tolist())}
        labels = np.asarray(values).tolist()
        if set(labels) != set(place):
            raise ValueError(
                f'batch "{label}", variable {variable.name}: the model\'s coordinates along {dim} '
                f"are not those of the merged object: {labels[:5]} and {list(place)[:5]}."
            )
        positions = positions.take([place[value] for value in labels], axis=axis)
    return positions.ravel()


def _order_of_image(model: pm.Model, variable: Placed, space: MergeSpace) -> Order:
    """Return the order of a variable whose transform changes dimensions: that of the others."""
    own = next(v for v in space.own.variables if v.name == variable.name)
    dims = tuple(model.named_vars_to_dims.get(variable.name) or ())
    if dims != own.dims:
        return Order(0, ())
    return find_order(own, space.own, dims, model.coords).of_image(len(variable.shape))


def _graph(
    model: pm.Model,
    inputs: Mapping[str, Variable],
    space: MergeSpace,
    term: str,
    local: Sequence[str],
) -> Variable:
    """Return the log prior or log likelihood of one point, a scalar."""
    terms = _terms(model, inputs, space, term, local)
    return _safe(pt.add(*map(pt.sum, terms), pt.constant(0.0)))


def _safe(graph: Variable) -> Variable:
    """Let a point outside have no density: of many points, it must not fail them all."""
    return rewrite_graph(graph, include=(), custom_rewrite=_NO_DENSITY, clone=False)


def _terms(
    model: pm.Model,
    inputs: Mapping[str, Variable],
    space: MergeSpace,
    term: str,
    local: Sequence[str],
) -> list[Any]:
    """Return the log prior or log likelihood of one point, element by element of each variable.

    The density of `local` variables given the others is counted with the likelihood, and so is a
    Potential of them: both are the batch's own, and no power of the prior is theirs.
    """
    values = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    values |= {rv: inputs[rv.name] for rv in model.free_RVs}
    transforms = {
        rv: model.rvs_to_transforms[rv] if rv.name in space.transformed else None
        for rv in model.free_RVs
    }
    transforms |= {rv: None for rv in model.observed_RVs}
    own = [rv for rv in model.free_RVs if rv.name in local]
    shared = [rv for rv in model.free_RVs if rv.name not in local]
    terms = list(
        transformed_conditional_logp(
            rvs=shared if term == "prior" else [*own, *model.observed_RVs],
            rvs_to_values=values,
            rvs_to_transforms=transforms,
        )
    )
    potentials = [
        each for each in model.potentials if bool(names_among(each, own)) == (term != "prior")
    ]
    if potentials:
        terms += replace_rvs_by_values(
            potentials, rvs_to_values=values, rvs_to_transforms=transforms
        )
    return terms

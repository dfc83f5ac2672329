"""Variables of one batch alone, through a model that may be that of another batch.

A batch has its own number of groups, so the graphs of the model are rebuilt for arrays of any
length.
"""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.transforms import CircularTransform
from pytensor.graph.traversal import ancestors

from arviz_swiss.pymc.graphs import (
    Arrays,
    Vectorized,
    arrays_of,
    evaluate,
    name_of,
    names_among,
    vectorize,
    wrapped,
)

# What a graph raises that is made for the sizes of the model's own batch.
UNFIT = (ValueError, TypeError, IndexError, AssertionError, NotImplementedError)


class BatchSpace:
    """The unconstrained space of batch-local variables, and deterministics of them.

    Arrays are (chain, draw, ...). The model may be that of any one batch. `local` names the free
    variables that each batch has its own of, with the axis along which batches differ; `shared`
    those that all share. Local variables in `untransformed` stay on their own scale. Of
    `deterministics` those are computed that the model's graph gives for any batch. A transform that
    depends on data of the model's own batch is refused.
    """

    name = "model"

    def __init__(
        self,
        model: pm.Model,
        local: Mapping[str, int],
        shared: Sequence[str],
        *,
        untransformed: Sequence[str] = (),
        deterministics: Sequence[str] = (),
    ):
        free = {rv.name: rv for rv in model.free_RVs}
        self.model = model
        self._axes = dict(local)
        self._untransformed = set(untransformed)
        self._through: dict[str, str] = {}
        self._roots = {name: rv for name, rv in free.items() if name in {*local, *shared}}
        self.transforms = {
            name: model.rvs_to_transforms[rv]
            for name, rv in self._roots.items()
            if name in local
            and name not in untransformed
            and model.rvs_to_transforms[rv] is not None
        }
        self._deterministics = {
            var.name: var
            for var in model.deterministics
            if var.name in deterministics and self._follows(var)
        }
        self._forward = {name: self._transform(name, "forward") for name in self.transforms}
        self._backward = {name: self._transform(name, "backward") for name in self.transforms}

    def describe(self) -> str:
        """Return the transforms' names as text."""
        return json.dumps({name: name_of(tr) for name, tr in self.transforms.items()})

    def forward(self, arrays: Mapping[str, np.ndarray]) -> Arrays:
        """Move one batch's local variables that have a transform to the real line.

        Angles are cut opposite their circular mean.
        """
        images = {name: evaluate(f, arrays)[name] for name, f in self._forward.items()}
        images |= {name: self._compute(image, arrays) for name, image in self._through.items()}
        for name, image in images.items():
            if isinstance(self.transforms.get(name), CircularTransform):
                centre = np.angle(np.exp(1j * image).sum(axis=(0, 1)))
                images[name] = centre + wrapped(image - centre)
        return images

    def backward(self, images: Mapping[str, np.ndarray], shared: Mapping[str, Any]) -> Arrays:
        """Move one batch's local variables that have a transform back to their own scale.

        `images` holds all local variables, as they were moved; `shared` those of all batches, on
        their own scale.
        """
        arrays = {**images, **shared}
        for name, function in self._backward.items():  # in the model's order: parents come first
            arrays[name] = evaluate(function, arrays)[name]
        for name, image in self._through.items():
            offset, slope = self._line(name, image, arrays)
            arrays[name] = (images[name] - offset) / slope
        return {name: arrays[name] for name in (*self._backward, *self._through)}

    def through(self, deterministics: Mapping[str, str]) -> "BatchSpace":
        """Return a space in which local variables are moved as deterministics of them.

        The mapping names, of a local variable without a transform, one that `slopes` gives.
        """
        other = copy.copy(self)
        other._through = dict(deterministics)
        return other

    def slopes(self, arrays: Mapping[str, np.ndarray]) -> dict[tuple[str, str], np.ndarray]:
        """Find deterministics such as mu + tau * z: given the shared variables, a line in z.

        Returns the slope of each element, by variable and deterministic, for local variables that
        stay on their own scale.
        """
        slopes = {}
        for image, graph in self._deterministics.items():
            names = [name for name in self._inputs(graph) if name in self._axes]
            if len(names) != 1 or names[0] in {*self.transforms, *self._untransformed}:
                continue
            (name,) = names
            try:
                there = self._compute(image, arrays)
                offset, slope = self._line(name, image, arrays)
            except UNFIT:
                continue
            if there.shape == arrays[name].shape and np.allclose(
                there, offset + slope * arrays[name], rtol=1e-6, atol=1e-8
            ):
                slopes[name, image] = slope
        return slopes

    def deterministics(self, arrays: Mapping[str, np.ndarray]) -> Arrays:
        """Compute those deterministics that can be, for arrays of these sizes."""
        values = {}
        for name in self._deterministics:
            try:
                values[name] = self._compute(name, arrays)
            except UNFIT:
                continue
        return values

    def _compute(self, name: str, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        graph = self._deterministics[name]
        function = vectorize(self._inputs(graph), {name: graph}, any_length=self._axes)
        return evaluate(function, arrays)[name]

    def _line(
        self, name: str, image: str, arrays: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return where a deterministic is at zero, and how far it goes by one."""
        ends = [np.full_like(arrays[name], end) for end in (0.0, 1.0)]
        start, end = (self._compute(image, {**arrays, name: values}) for values in ends)
        return start, end - start

    def _inputs(self, graph: pt.TensorVariable) -> dict[str, pt.TensorVariable]:
        within = set(ancestors([graph]))
        return {name: rv for name, rv in self._roots.items() if rv in within}

    def _follows(self, graph: pt.TensorVariable) -> bool:
        """Tell whether a deterministic depends on local variables, and no unknown ones."""
        roots = set(self._roots.values())
        reached = set(ancestors([graph], blockers=roots))
        others = [rv for rv in self.model.basic_RVs if rv not in roots]
        return not reached.intersection(others) and any(
            n in self._axes for n in self._inputs(graph)
        )

    def _transform(self, name: str, direction: str) -> Vectorized:
        rv = self._roots[name]
        ndim = (rv if direction == "forward" else self.model.rvs_to_values[rv]).type.ndim
        # Not pt.tensor, which takes Bambi's names, such as 1|site_sigma, for a dtype.
        value = pt.TensorType(rv.type.dtype, (None,) * ndim)(name)
        graph = getattr(self.transforms[name], direction)(value, *rv.owner.inputs)
        from_end = rv.type.ndim - self._axes[name]
        if any(a.ndim >= from_end and a.shape[-from_end] > 1 for a in arrays_of([graph])):
            raise ValueError(
                f"The transform of {name!r} depends on the data of one batch, and {name!r} belongs "
                f'to one batch alone. Pass transforms={{"{name}": None}} to move it on its own '
                f'scale, or var_names="~{name}" to leave it out.'
            )
        inputs = {k: v for k, v in self._inputs(graph).items() if k != name} | {name: value}
        return vectorize(inputs, {name: graph}, any_length=self._axes)


def depending(model: pm.Model, names: Sequence[str]) -> list[str]:
    """Name the deterministics that depend on the named free variables."""
    variables = [rv for rv in model.free_RVs if rv.name in names]
    return [var.name for var in model.deterministics if names_among(var, variables)]

"""Graphs of a PyMC model, evaluated at many draws at once."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors

Arrays = dict[str, np.ndarray]

# Elements of inputs and outputs that are held at a time: 32 MB, and intermediates beside them.
CHUNK_ELEMENTS = 2**22

# Each operation runs once for a whole chunk of draws: NumPy does it, and nobody waits for a
# compiler.
UNCOMPILED = Mode(linker="py", optimizer="fast_compile")


class Vectorized(NamedTuple):
    """A function of draws along one sample dimension."""

    ndims: dict[str, int]
    call: Callable[[Mapping[str, np.ndarray]], Arrays]


def vectorize(
    inputs: Mapping[str, Any], outputs: Mapping[str, Any], any_length: Iterable[str] = ()
) -> Vectorized:
    """Make a function of many draws from the graph of one draw.

    Inputs named in `any_length` may have other lengths than in the graph.
    """
    shapes = {
        name: (None,) * var.type.ndim if name in any_length else var.type.shape
        for name, var in inputs.items()
    }
    # Not pt.tensor, which takes Bambi's names, such as 1|site_sigma, for a dtype.
    many = {
        name: pt.TensorType(var.type.dtype, (None, *shapes[name]))(name)
        for name, var in inputs.items()
    }
    replacements = {inputs[name]: many[name] for name in inputs}
    vectorized = vectorize_graph(list(outputs.values()), replacements)
    function = pytensor.function(
        list(many.values()), vectorized, mode=UNCOMPILED, on_unused_input="ignore"
    )
    ndims = {name: var.type.ndim for name, var in inputs.items()}

    def call(arrays: Mapping[str, np.ndarray]) -> Arrays:
        values = [np.asarray(arrays[name], var.type.dtype) for name, var in inputs.items()]
        results = function(*values)
        # a graph that depends on no input comes back without the sample dimension
        return {
            name: np.broadcast_to(result, (len(values[0]), *result.shape))
            if result.ndim == var.type.ndim
            else result
            for (name, var), result in zip(outputs.items(), results, strict=True)
        }

    return Vectorized(ndims, call)


def evaluate(function: Vectorized, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """Call a function on chunks of draws, whatever the number of sample dimensions."""
    check_present(arrays, function.ndims)
    arrays = {name: np.asarray(arrays[name]) for name in function.ndims}
    shapes = {n: a.shape[: a.ndim - function.ndims[n]] for n, a in arrays.items()}
    if len(set(shapes.values())) != 1:
        raise ValueError(f"Variables must have the same sample dimensions first, got {shapes}.")
    sample_shape = next(iter(shapes.values()))
    count = math.prod(sample_shape)
    if count == 0:
        raise ValueError(f"There are no draws: the sample dimensions have shape {sample_shape}.")
    rows = {n: a.reshape(count, *a.shape[len(sample_shape) :]) for n, a in arrays.items()}
    trial = function.call({name: array[:1] for name, array in rows.items()})
    results = {name: np.empty((count, *a.shape[1:]), a.dtype) for name, a in trial.items()}
    per_draw = sum(array[:1].size for array in (*rows.values(), *results.values()))
    step = max(1, CHUNK_ELEMENTS // per_draw)
    for start in range(0, count, step):
        chunk = slice(start, start + step)
        for name, array in function.call({n: a[chunk] for n, a in rows.items()}).items():
            results[name][chunk] = array
    return {name: a.reshape((*sample_shape, *a.shape[1:])) for name, a in results.items()}


def names_among(graph: pt.TensorVariable, variables: Sequence[pt.TensorVariable]) -> list[str]:
    """Name those of the variables that a graph depends on."""
    reached = set(ancestors([graph]))
    return [str(var.name) for var in variables if var in reached]


def shapes_of(variables: Mapping[str, pt.TensorVariable]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of one draw, also where only dimensions and data of the model tell."""
    known = {name: var.type.shape for name, var in variables.items()}
    unknown = [name for name, shape in known.items() if None in shape]
    if unknown:
        shapes = pytensor.function([], [variables[n].shape for n in unknown], mode=UNCOMPILED)()
        known |= dict(zip(unknown, (tuple(shape.tolist()) for shape in shapes), strict=True))
    return known


def name_of(transform: Any) -> str:
    """Return the name of a transform, for people."""
    return getattr(transform, "name", type(transform).__name__.lower())


def wrapped(angle: np.ndarray) -> np.ndarray:
    """Bring angles between -pi and pi."""
    return angle - 2 * np.pi * np.round(angle / (2 * np.pi))


def arrays_of(graphs: Sequence[Variable]) -> list[np.ndarray]:
    """Return all constants and shared values that graphs hold, random number generators aside."""
    values = []
    for variable in ancestors(graphs):
        if isinstance(variable, Constant):
            values.append(variable.data)
        elif isinstance(variable, SharedVariable):
            values.append(variable.get_value(borrow=True))
    return [array for array in values if isinstance(array, np.ndarray)]


def graphs_of(model: pm.Model) -> list[Any]:
    """Return all variables of a model, and what stands for their values."""
    return [*model.named_vars.values(), *model.rvs_to_values.values()]


def bytes_of(model: pm.Model) -> int:
    """Return how many bytes of data a model holds."""
    return sum(array.nbytes for array in arrays_of(graphs_of(model)))


def dims_of(model: pm.Model, name: str, ndim: int) -> tuple[str, ...]:
    """Name the dimensions as ArviZ does where the model does not."""
    dims = model.named_vars_to_dims.get(name) or (None,) * ndim
    return tuple(f"{name}_dim_{i}" if dim is None else dim for i, dim in enumerate(dims))


def image_dims(
    dims: tuple[str, ...], shape: tuple[int, ...], image: tuple[int, ...], transform: Any
) -> tuple[str, ...]:
    """Rename the dimensions whose length the transform changes."""
    if len(shape) == len(image):
        return tuple(
            dim if before == after else f"{dim}_{name_of(transform)}"
            for dim, before, after in zip(dims, shape, image, strict=True)
        )
    kept = len(image) - 1
    return (*dims[:kept], f"{dims[-1]}_{name_of(transform)}")


def check_present(arrays: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse draws without these variables."""
    if missing := [name for name in names if name not in arrays]:
        raise ValueError(
            f"The model's free variables {missing} are not among the draws, which have "
            f"{list(arrays)}. Pass the model that made the draws, or name the variables to merge."
        )

"""Compile once for all batches: a compiled function serves every equal graph with other data."""

import contextlib
import dataclasses
import logging
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
from pytensor.compile.mode import get_mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.traversal import ancestors

_log = logging.getLogger("arviz_swiss")

# PyTensor's compilation and configuration are not safe to use from several threads at once.
LOCK = threading.RLock()

# Each entry holds the data of one batch. Two serve batches whose sizes differ by one row.
MODELS_KEPT = 2


class Graph(NamedTuple):
    """Computations of some values, and of data that may be exchanged."""

    outputs: Sequence[Variable]
    values: Sequence[Variable]
    data: Sequence[Variable]

    def equals(self, other: "Graph") -> bool:
        """Tell whether another graph computes the same, all but the data node by node."""
        inputs: list[Any] = [*self.values, *self.data]
        others: list[Any] = [*other.values, *other.data]
        if len(self.outputs) != len(other.outputs):
            return False
        if [each.type for each in inputs] != [each.type for each in others]:
            return False
        try:
            return equal_computations(
                list(self.outputs), list(other.outputs), in_xs=inputs, in_ys=others
            )
        except RecursionError:  # in doubt, another one
            return False


class _Model(NamedTuple):
    """What nutpie computes and stores for one model; `data` is None if some has no name."""

    graph: Graph
    data: dict[str, SharedVariable] | None
    stored: dict[str, Any]
    initial: list[Any]


class _Entry(NamedTuple):
    model: _Model
    compiled: Any
    reproducible: bool


# For all threads of the process, behind `LOCK`.
_entries: list[_Entry] = []


def compile_once(
    model: pm.Model, shapes: dict[str, tuple[int, ...]], reproducible: bool = False
) -> Any:
    """Compile a model for nutpie, or put its data into an equal model that was compiled before.

    Data in ``pm.Data`` can be swapped; data that the model holds as constants cannot. Any doubt,
    such as an operation that cannot be compared, is a reason to compile. `shapes` are those of the
    free variables. What is returned draws what ``nutpie.compile_pymc_model(model)`` would, and
    shares nothing that changes with the models of other batches: threads can sample them at once.
    """
    import nutpie

    with LOCK:
        new = _read_model(model, shapes)
        for entry in _entries:
            if entry.reproducible == reproducible and _is_same(
                entry.model, new, _swappable(entry.compiled)
            ):
                _log.debug("swapped data into a compiled model")
                return _swap(entry, new)
        with compiling_afresh(reproducible), warnings.catch_warnings():
            # of the layout of arrays inside a graph, which nobody can change from here
            warnings.filterwarnings("ignore", r"np\.dot\(\) is faster on contiguous")
            compiled = nutpie.compile_pymc_model(model)
            compiled.initial_point_func(0)  # PyTensor may compile it at its first call only
        _log.debug("compiled a model")
        _entries.append(_Entry(new, compiled, reproducible))
        del _entries[:-MODELS_KEPT]
        return _with_own_start(_entries[-1], new, compiled)


def compiles_once(models: Sequence[pm.Model], shapes: Sequence[dict[str, tuple[int, ...]]]) -> bool:
    """Tell whether one compilation will serve all these models."""
    with LOCK:
        first, *others = map(_read_model, models, shapes)
        return all(_is_same(first, other, set()) for other in others)


def compiling_afresh(reproducible: bool) -> contextlib.AbstractContextManager:
    """Compile inside this context whatever earlier processes have left on the disk, if asked to.

    Code that Numba reads back from its cache is optimized otherwise than code that it has just
    compiled. The last digit differs, and after some hundred steps of NUTS so do the draws. The
    price of equal draws is a compilation in every process, about a minute on PyMC 6.
    """
    if not reproducible:
        return contextlib.nullcontext()
    return pytensor.config.change_flags(numba__cache=False)


@contextlib.contextmanager
def without_advice_on_blas() -> Iterator[None]:
    """Ignore what every worker would say anew: that PyTensor from PyPI has no BLAS."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS")
        yield


def without_compiler() -> contextlib.AbstractContextManager:
    """Do without C also where PyTensor would compile on its own: inner functions and constants."""
    return pytensor.config.change_flags(cxx="")


def compiles_with_numba() -> bool:
    """Tell whether PyTensor's default is Numba, as from PyMC 6 on."""
    return type(get_mode(None).linker).__name__ == "NumbaLinker"


def _read_model(model: pm.Model, shapes: dict[str, tuple[int, ...]]) -> _Model:
    outputs = [model.logp(), *model.unobserved_value_vars]
    shared = [var for var in ancestors(outputs) if isinstance(var, SharedVariable)]
    data = {var.name: var for var in sorted(shared, key=lambda var: var.name or "") if var.name}
    stored: dict[str, Any] = {"shapes": shapes}
    for var in model.unobserved_RVs:
        dims = model.named_vars_to_dims.get(var.name) or ()
        stored[var.name] = tuple((dim, model.coords.get(dim)) for dim in dims)
    return _Model(
        Graph(outputs, list(model.value_vars), list(data.values())),
        data if len(data) == len(shared) else None,
        stored,
        initial=[model.rvs_to_initial_values[rv] for rv in model.free_RVs],
    )


def _is_same(old: _Model, new: _Model, swappable: set[str]) -> bool:
    """Tell whether the old model, with the data of the new one, is the new model."""
    if not new.data or not old.data or set(old.data) != set(new.data):
        return False
    if not swappable <= set(old.data) or old.stored != new.stored:
        return False
    if not all(map(_same_initial, old.initial, new.initial)):
        return False
    return old.graph.equals(new.graph) and not _stores_resized(old, new)


def _same_initial(old: Any, new: Any) -> bool:
    if isinstance(old, Variable) or isinstance(new, Variable):
        return False
    return old is new or (old is not None and new is not None and np.array_equal(old, new))


def _stores_resized(old: _Model, new: _Model) -> bool:
    """Tell whether a stored variable may change its size along with the data."""
    resized = {
        var
        for var, value, other in zip(
            old.graph.data,
            map(value_of_leaf, old.graph.data),
            map(value_of_leaf, new.graph.data),
            strict=True,
        )
        if value.shape != other.shape or (value.ndim == 0 and value != other)
    }
    return not resized.isdisjoint(ancestors(old.graph.outputs[1:]))


def _swap(entry: _Entry, new: _Model) -> Any:
    values = {name: value_of_leaf(var) for name, var in (new.data or {}).items()}
    swapped = entry.compiled.with_data(
        **{name: values[name] for name in _swappable(entry.compiled)}
    )
    return _with_own_start(entry, new, swapped)


def _with_own_start(entry: _Entry, new: _Model, compiled: Any) -> Any:
    """Let initial points be drawn with the model's own data, whichever model was compiled.

    The function that draws them reads the shared variables of that model, and nutpie calls it when
    other batches may be sampling.
    """
    draw = entry.compiled.initial_point_func
    shared = entry.model.data or {}
    values = {name: value_of_leaf(var) for name, var in (new.data or {}).items()}

    def initial_point(seed: Any) -> np.ndarray:
        with LOCK:
            before = {name: var.get_value(borrow=True) for name, var in shared.items()}
            try:
                for name, var in shared.items():
                    var.set_value(values[name], borrow=True)
                return draw(seed)
            finally:
                for name, var in shared.items():
                    var.set_value(before[name], borrow=True)

    return dataclasses.replace(compiled, initial_point_func=initial_point)


def _swappable(compiled: Any) -> set[str]:
    """Names of the shared variables that are left in the compiled functions."""
    functions = (compiled.logp_func, compiled.expand_func)
    return {var.name for function in functions for var in function.get_shared()}


def value_of_leaf(var: Any) -> np.ndarray:
    """Return the value of a constant or shared variable."""
    return np.asarray(var.data if isinstance(var, Constant) else var.get_value(borrow=True))

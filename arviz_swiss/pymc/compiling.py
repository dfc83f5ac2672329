"""Compile once for all batches: a compiled function serves every equal graph with other data."""

import contextlib
import logging
import os
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

CACHE_VARIABLE = "ARVIZ_SWISS_COMPILE_CACHE"

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


# One cache per thread: a compiled model is not shared between batches that run at the same time.
_models = threading.local()


def compile_once(model: pm.Model, shapes: dict[str, tuple[int, ...]]) -> Any:
    """Compile a model for nutpie, or put its data into an equal model that was compiled before.

    Data in ``pm.Data`` can be swapped; data that the model holds as constants cannot. Any doubt,
    such as an operation that cannot be compared, is a reason to compile. `shapes` are those of the
    free variables. What is returned equals ``nutpie.compile_pymc_model(model)``.
    """
    import nutpie

    new = _read_model(model, shapes)
    entries = getattr(_models, "entries", [])
    for old, compiled in entries:
        if _is_same(old, new, _swappable(compiled)):
            _log.debug("swapped data into a compiled model")
            return _swap(old, new, compiled)
    with without_cache():
        compiled = nutpie.compile_pymc_model(model)
        compiled.initial_point_func(0)  # PyTensor may compile it at its first call only
    _log.debug("compiled a model")
    _models.entries = [*entries, (new, compiled)][-MODELS_KEPT:]
    return compiled


def without_cache() -> contextlib.AbstractContextManager:
    """Compile afresh inside this context, whatever earlier processes have left on the disk.

    Code that Numba reads back from its cache is optimized otherwise than code that it has just
    compiled. The last digit differs, and after some hundred steps of NUTS so do the draws: the same
    seed would give other draws in the next process, or on another executor. The price is a
    compilation in every worker, about a minute on PyMC 6. Who would rather have the minute sets the
    environment variable ``ARVIZ_SWISS_COMPILE_CACHE=1``: then this does nothing.
    """
    if os.environ.get(CACHE_VARIABLE, "").lower() not in ("", "0", "no", "false"):
        return contextlib.nullcontext()
    return pytensor.config.change_flags(numba__cache=False)


@contextlib.contextmanager
def without_advice_on_blas() -> Iterator[None]:
    """Ignore what every worker would say anew: that PyTensor from PyPI has no BLAS."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS")
        yield


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


def _swap(old: _Model, new: _Model, compiled: Any) -> Any:
    values = {name: value_of_leaf(var) for name, var in (new.data or {}).items()}
    for name, var in (old.data or {}).items():
        # the function that draws initial points reads the shared variables themselves
        var.set_value(values[name])
    return compiled.with_data(**{name: values[name] for name in _swappable(compiled)})


def _swappable(compiled: Any) -> set[str]:
    """Names of the shared variables that are left in the compiled functions."""
    functions = (compiled.logp_func, compiled.expand_func)
    return {var.name for function in functions for var in function.get_shared()}


def value_of_leaf(var: Any) -> np.ndarray:
    """Return the value of a constant or shared variable."""
    return np.asarray(var.data if isinstance(var, Constant) else var.get_value(borrow=True))

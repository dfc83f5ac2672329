"""Compile a model for nutpie once, and swap the data of the other batches into it."""

import contextlib
import logging
import os
import threading
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
from pytensor.compile.mode import get_mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable, equal_computations
from pytensor.graph.traversal import ancestors

__all__ = ["compile_once", "compiles_with_numba", "without_advice_on_blas", "without_cache"]

_log = logging.getLogger("arviz_swiss")

CACHE_VARIABLE = "ARVIZ_SWISS_COMPILE_CACHE"

# One cache per thread: a compiled model is not shared between batches that run at the same time.
# Each entry holds the data of one batch. Two serve batches whose sizes differ by one row.
_cache = threading.local()
_KEPT = 2


class _Graph(NamedTuple):
    """What nutpie computes for one model: the log density, and the variables that it stores."""

    outputs: list[Variable]
    values: list[Variable]
    data: dict[str, SharedVariable] | None
    shapes: dict[str, tuple[int, ...]]
    stored: dict[str, tuple]
    initial: list


class _Entry(NamedTuple):
    graph: _Graph
    compiled: Any


def compile_once(model: pm.Model, shapes: dict[str, tuple[int, ...]]) -> Any:
    """Compile a model for nutpie, or put its data into an equal model that was compiled before.

    Parameters
    ----------
    model : pymc.Model
        The model of one batch, tempered.
    shapes : dict
        The shapes of its free variables.

    Returns
    -------
    nutpie.CompiledModel
        Equal to ``nutpie.compile_pymc_model(model)``.

    Notes
    -----
    The last models compiled in this thread are kept. Data in ``pm.Data`` can be swapped; data that
    the model holds as constants cannot. A compiled model is used again only if the computation
    graphs of the two models are the same, node by node and constant by constant, everything but the
    values of shared variables. Any doubt, such as an operation that cannot be compared, is a reason
    to compile.

    Examples
    --------
    >>> import nutpie
    >>> import pymc as pm
    >>> from arviz_swiss.pymc.compiling import compile_once
    >>> def build(y):
    ...     with pm.Model() as model:
    ...         mu = pm.Normal("mu")
    ...         pm.Normal("y", mu, observed=pm.Data("y_data", y))
    ...     return model
    >>> first = compile_once(build([1.0, 2.0]), {"mu": ()})
    >>> second = compile_once(build([5.0]), {"mu": ()})
    >>> second.compiled_logp_func is first.compiled_logp_func
    True
    """
    import nutpie

    graph = _read_graph(model, shapes)
    entries = getattr(_cache, "entries", [])
    for entry in entries:
        if _is_same(entry.graph, graph, entry.compiled):
            _log.debug("swapped data into a compiled model")
            return _swap(entry, graph)
    with without_cache():
        compiled = nutpie.compile_pymc_model(model)
        compiled.initial_point_func(0)  # PyTensor may compile it at its first call only
    _log.debug("compiled a model")
    _cache.entries = [*entries, _Entry(graph, compiled)][-_KEPT:]
    return compiled


def without_cache() -> contextlib.AbstractContextManager:
    """Compile afresh inside this context, whatever earlier processes have left on the disk.

    Code that Numba reads back from its cache is optimized otherwise than code that it has just
    compiled. The last digit differs, and after some hundred steps of NUTS so do the draws: the same
    seed would give other draws in the next process, or on another executor. A process that has
    compiled a function itself keeps it in memory, so that reading all back does not help. The price
    is a compilation in every worker, about a minute on PyMC 6. Who would rather have the minute
    sets the environment variable ``ARVIZ_SWISS_COMPILE_CACHE=1``: then this does nothing.

    Returns
    -------
    context manager
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
    """Tell whether PyTensor's default is Numba, as from PyMC 6 on.

    Returns
    -------
    bool
    """
    return type(get_mode(None).linker).__name__ == "NumbaLinker"


def _read_graph(model: pm.Model, shapes: dict[str, tuple[int, ...]]) -> _Graph:
    outputs = [model.logp(), *model.unobserved_value_vars]
    found = [var for var in ancestors(outputs) if isinstance(var, SharedVariable)]
    data = {var.name: var for var in found if var.name}
    stored = {}
    for var in model.unobserved_RVs:
        dims = model.named_vars_to_dims.get(var.name) or ()
        stored[var.name] = tuple((dim, model.coords.get(dim)) for dim in dims)
    return _Graph(
        outputs=outputs,
        values=list(model.value_vars),
        data=data if len(data) == len(found) else None,
        shapes=shapes,
        stored=stored,
        initial=[model.rvs_to_initial_values[rv] for rv in model.free_RVs],
    )


def _is_same(old: _Graph, new: _Graph, compiled: Any) -> bool:
    """Tell whether the old compiled model, with the data of the new one, is the new model."""
    if not new.data or not old.data or set(old.data) != set(new.data):
        return False
    if not _swappable(compiled) <= set(old.data):
        return False
    if old.shapes != new.shapes or old.stored != new.stored:
        return False
    if not all(map(_same_initial, old.initial, new.initial)):
        return False
    if len(old.outputs) != len(new.outputs) or len(old.values) != len(new.values):
        return False
    return _same_computations(old, new) and not _stores_resized(old, new)


def _same_initial(old: Any, new: Any) -> bool:
    if isinstance(old, Variable) or isinstance(new, Variable):
        return False
    return old is new or (old is not None and new is not None and np.array_equal(old, new))


def _same_computations(old: _Graph, new: _Graph) -> bool:
    names = list(old.data)
    try:
        return equal_computations(
            old.outputs,
            new.outputs,
            in_xs=[*old.values, *(old.data[name] for name in names)],
            in_ys=[*new.values, *(new.data[name] for name in names)],
        )
    except RecursionError:
        return False


def _stores_resized(old: _Graph, new: _Graph) -> bool:
    """Tell whether a stored variable may change its size along with the data."""
    resized = {
        old.data[name]
        for name in old.data
        if _value(old.data[name]).shape != _value(new.data[name]).shape
        or (_value(new.data[name]).ndim == 0 and _value(old.data[name]) != _value(new.data[name]))
    }
    return not resized.isdisjoint(ancestors(old.outputs[1:]))


def _swap(entry: _Entry, graph: _Graph) -> Any:
    values = {name: _value(var) for name, var in graph.data.items()}
    for name, value in values.items():
        # the function that draws initial points reads the shared variables themselves
        entry.graph.data[name].set_value(value)
    used = _swappable(entry.compiled)
    return entry.compiled.with_data(**{name: values[name] for name in used})


def _swappable(compiled: Any) -> set[str | None]:
    """Names of the shared variables that are left in the compiled functions."""
    functions = (compiled.logp_func, compiled.expand_func)
    return {var.name for function in functions for var in function.get_shared()}


def _value(var: SharedVariable) -> np.ndarray:
    return np.asarray(var.get_value(borrow=True))

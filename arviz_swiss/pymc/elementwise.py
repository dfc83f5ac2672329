"""Elementwise operations in NumPy: all elements at once where PyTensor would call Python for each.

PyTensor's own linker without a compiler calls a Python function for every element of operations
that NumPy does not have by that name, and refuses operations of more than 31 inputs.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.scalar import basic as scalars
from pytensor.scalar import math as special
from pytensor.tensor.elemwise import Elemwise
from scipy.special import polygamma

from arviz_swiss.pymc.blockwise import BlocksRewriter
from arviz_swiss.pymc.graphs import UNCOMPILED
from arviz_swiss.pymc.scatter import ScatterRewriter

# After all rewrites of PyTensor.
LAST = 1000.0
# Operands of a ufunc of NumPy.
MOST_OPERANDS = 32


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, x)


def _log1mexp(x: np.ndarray) -> np.ndarray:
    return np.where(x < -np.log(2), np.log1p(-np.exp(x)), np.log(-np.expm1(x)))


def _second(x: np.ndarray, fill: np.ndarray) -> np.ndarray:
    return np.broadcast_to(fill, np.broadcast_shapes(np.shape(x), np.shape(fill)))


def _trigamma(x: np.ndarray) -> np.ndarray:
    return polygamma(1, x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    odds = np.exp(-x)
    odds += 1.0
    return np.reciprocal(odds, out=odds)


def _same(x: np.ndarray) -> np.ndarray:
    return x


def _folded(function: Callable) -> Callable:
    def fold(*inputs: np.ndarray) -> np.ndarray:
        return functools.reduce(function, inputs)

    return fold


# What is cast to the type of the result and copied comes after.
NUMPY_WAYS: dict[type, Callable] = {
    special.Softplus: _softplus,
    special.Log1mexp: _log1mexp,
    special.TriGamma: _trigamma,
    scalars.Second: _second,
    scalars.Clip: np.clip,
    scalars.Identity: _same,
    scalars.Cast: _same,
    scalars.Add: _folded(np.add),
    scalars.Mul: _folded(np.multiply),
}


# Faster than the function of SciPy that PyTensor would call: by NumPy's exponential function.
FASTER: dict[type, Callable] = {special.Sigmoid: _sigmoid}


class AtOnce(Elemwise):
    """An elementwise operation that NumPy does its way."""

    def __init__(self, like: Elemwise, way: Callable):
        super().__init__(like.scalar_op, like.inplace_pattern, nfunc_spec=like.nfunc_spec)
        self.way = way

    def prepare_node(self, node: Any, storage_map: Any, compute_map: Any, impl: Any) -> None:
        """Make no function of single elements."""

    def perform(self, node: Any, inputs: list[np.ndarray], output_storage: list[list]) -> None:
        """Compute the output, which is never memory of an input."""
        self._check_runtime_broadcast(node, inputs)
        with np.errstate(all="ignore"):
            values = np.asarray(self.way(*inputs), dtype=node.outputs[0].type.dtype)
        is_own = values.flags.owndata and not any(values is each for each in inputs)
        output_storage[0][0] = values if is_own else values.copy()


class _Rewriter(GraphRewriter):
    """Put operations of NumPy in the place of PyTensor's, which other graphs share."""

    def apply(self, fgraph: FunctionGraph) -> None:
        for node in fgraph.toposort():
            if (way := _way(node)) is not None:
                node_at_once = Apply(
                    AtOnce(node.op, way), node.inputs, [node.outputs[0].type.clone()()]
                )
                fgraph.replace_all([(node.outputs[0], node_at_once.outputs[0])], reason="in_numpy")


IN_NUMPY: Mode = UNCOMPILED.register(
    *((rewriter, LAST) for rewriter in (_Rewriter(), BlocksRewriter(), ScatterRewriter()))
)


def _way(node: Any) -> Callable | None:
    """Return how NumPy does an operation at once, if that gains anything."""
    if not isinstance(node.op, Elemwise) or isinstance(node.op, AtOnce):
        return None
    kind = type(node.op.scalar_op)
    if kind in FASTER and not node.op.inplace_pattern and node.outputs[0].type.ndim:
        return FASTER[kind]
    return NUMPY_WAYS.get(kind) if _is_slow(node) else None


def _is_slow(node: Any) -> bool:
    """Tell whether PyTensor itself would call a function of single elements, or refuse to."""
    if not isinstance(node.op, Elemwise) or isinstance(node.op, AtOnce) or node.op.inplace_pattern:
        return False
    spec = node.op.nfunc_spec
    count = len(node.inputs)
    return not spec or spec[1] != count or count + len(node.outputs) > MOST_OPERANDS


def runs_at_once(node: Any) -> bool:
    """Tell whether an operation runs once for all elements, and not in a loop of Python's."""
    # what a loop is vectorised to is a loop inside of another operation
    core = getattr(node.op, "core_op", node.op)
    return not _is_slow(node) and type(core).__name__ not in ("Scan", "Loop")

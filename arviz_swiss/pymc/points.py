"""Functions of many points from the graph of one: no compiler, data apart, shared by equal graphs.

A graph that is vectorised over points runs each of its operations once for all of them, in NumPy.
A graph with loops of Python's is compiled where there is a compiler.
"""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.type import TensorType

from arviz_swiss.pymc.compiling import (
    LOCK,
    Graph,
    value_of_leaf,
    without_advice_on_blas,
    without_compiler,
)
from arviz_swiss.pymc.elementwise import IN_NUMPY, runs_at_once
from arviz_swiss.pymc.row_sums import find_row_sum

FUNCTIONS_KEPT = 16
# Smaller constants may be shapes and axes, which operations want to know beforehand.
LARGE = 20
# Of a sum over rows, so many are taken at once, and so many points: arrays of 2 MB at most, which
# stay in the processor's cache, and of operations that take longer than to call them.
ROWS_AT_ONCE, POINTS_OF_BLOCK = 2**13, 32


class PointFunction:
    """The graph of one point as a function of many: its values, or, of a scalar, gradients too.

    Whatever depends on data alone is computed once. Threads may call it at the same time. Data may
    come in blocks, over which values and gradients are summed.
    """

    def __init__(self, shared: "_Shared", blocks: Sequence[Sequence[np.ndarray]]):
        self.in_blocks = len(blocks) > 1
        self._shared = shared
        self._folded = [shared.fold(*arrays) for arrays in blocks]

    def __call__(self, points: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the values, points first, then the gradients if there are any, one an input."""
        function = self._shared.take()
        try:
            total = function(*points, *self._folded[0])
            for folded in self._folded[1:]:
                parts = function(*points, *folded)
                total = [a + b for a, b in zip(total, parts, strict=True)]
            return total
        finally:
            self._shared.free.append(function)


def function_of_points(
    graph: Variable, values: Sequence[Variable], gradient: bool
) -> PointFunction:
    """Make a function of many points; graphs that differ in their data alone share one.

    Data are those in ``pm.Data``, and all but the smallest constants. A sum over many rows is
    evaluated block by block. Who calls this holds `LOCK`.
    """
    lifted, arrays = _lift(graph, values)
    blocks = [arrays]
    if graph.type.ndim == 0 and max(map(np.size, arrays), default=0) > ROWS_AT_ONCE:
        row_sum = find_row_sum(lifted, arrays)
        if row_sum is not None:
            lifted, blocks = row_sum.graph, _blocks(arrays, row_sum.has_rows)
    shared = next((f for f in _kept if f.gradient == gradient and f.graph.equals(lifted)), None)
    if shared is None:
        shared = _Shared(lifted, gradient)
        _kept.append(shared)
        del _kept[:-FUNCTIONS_KEPT]
    return PointFunction(shared, blocks)


def _blocks(arrays: Sequence[np.ndarray], has_rows: Sequence[bool]) -> list[list[np.ndarray]]:
    """Cut data into blocks of rows, which are views; what has no rows is in all of them."""
    rows = next(len(array) for array, is_long in zip(arrays, has_rows, strict=True) if is_long)
    step = -(-rows // -(-rows // ROWS_AT_ONCE))
    return [
        [
            array[start : start + step] if is_long else array
            for array, is_long in zip(arrays, has_rows, strict=True)
        ]
        for start in range(0, rows, step)
    ]


class _Shared:
    """What equal graphs share: a function of the data, and one of points and what that returns."""

    def __init__(self, graph: Graph, gradient: bool):
        self.graph, self.gradient = graph, gradient
        # functions have storage of their own: as many as threads call at the same time
        self.free: list[Callable] = []
        many: list[Any] = [
            pt.tensor(dtype=value.type.dtype, shape=(None, *value.type.shape))
            for value in graph.values
        ]
        values: Any
        (values,) = vectorize_graph(graph.outputs, dict(zip(graph.values, many, strict=True)))
        # points do not interact: the gradient of the sum is each point's own gradient
        gradients = pt.grad(values.sum(), many, disconnected_inputs="ignore") if gradient else []
        outputs = [values, *gradients]
        border = _border(outputs, many, graph.data)
        # what is folded may be views of the data, which are large, and are never written to
        with without_compiler():
            self.fold = pytensor.function(
                [pytensor.In(each, borrow=True) for each in graph.data],
                [pytensor.Out(each, borrow=True) for each in border],
                mode=IN_NUMPY,
                on_unused_input="ignore",
            )
        folded = [variable.type() for variable in border]
        self._outputs = clone_replace(outputs, dict(zip(border, folded, strict=True)))
        self._inputs = [*many, *folded]

    def take(self) -> Callable:
        """Return a function that nobody is calling."""
        try:
            return self.free.pop()
        except IndexError:
            with LOCK:
                return self._make()

    def _make(self) -> Callable:
        with without_compiler():
            function = self._function(IN_NUMPY)
        nodes = function.maker.fgraph.toposort()
        in_numpy = all(map(runs_at_once, nodes)) or not pytensor.config.cxx
        if not in_numpy:
            with without_advice_on_blas():
                function = self._function(Mode("cvm", "fast_compile"))
        inner = any(map(_has_inner_function, nodes))
        return _one_by_one(function, in_numpy) if inner else function

    def _function(self, mode: Mode) -> Any:
        return pytensor.function(self._inputs, self._outputs, mode=mode, on_unused_input="ignore")


_kept: list[_Shared] = []


def _has_inner_function(node: Any) -> bool:
    return isinstance(getattr(node.op, "core_op", node.op), HasInnerGraph)


def _one_by_one(function: Callable, in_numpy: bool) -> Callable:
    """Let one thread at a time call a function with operations that are functions themselves.

    They have one storage, whichever function they are part of, and some are made at the first call.
    """

    @functools.wraps(function)
    def call(*inputs: Any) -> Any:
        with LOCK, without_compiler() if in_numpy else contextlib.nullcontext():
            return function(*inputs)

    return call


def _lift(graph: Variable, values: Sequence[Variable]) -> tuple[Graph, list[np.ndarray]]:
    """Make inputs of all data, with lengths left open, so that graphs of two batches are alike."""
    leaves = [var for var in ancestors([graph], blockers=values) if _is_data(var)]
    data: list[Variable] = [
        pt.tensor(
            dtype=leaf.type.dtype, shape=tuple(1 if n == 1 else None for n in leaf.type.shape)
        )
        for leaf in leaves
    ]
    (lifted,) = clone_replace(
        [graph], dict(zip(leaves, data, strict=True)), rebuild_strict=False, copy_inputs_over=True
    )
    return Graph([lifted], list(values), data), [value_of_leaf(leaf) for leaf in leaves]


def _is_data(var: Variable) -> bool:
    if not isinstance(var.type, TensorType):
        return False
    return isinstance(var, SharedVariable) or (isinstance(var, Constant) and var.data.size > LARGE)


def _border(
    outputs: Sequence[Variable], points: Sequence[Variable], data: Sequence[Variable]
) -> list[Variable]:
    """Return what depends on data alone and is used together with points."""
    moving, still = set(points), set(data)
    border: dict[Variable, None] = {}
    for node in io_toposort([*points, *data], outputs):
        if moving.isdisjoint(node.inputs):
            if not still.isdisjoint(node.inputs):
                still.update(node.outputs)
        else:
            moving.update(node.outputs)
            border |= dict.fromkeys(each for each in node.inputs if each in still)
    return list(border | dict.fromkeys(each for each in outputs if each in still))

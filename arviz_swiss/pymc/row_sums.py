"""Graphs that are sums over rows, which may be evaluated some rows at a time and added up.

A log likelihood is one, unless rows meet before they are summed. What is not understood is none.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import io_toposort
from pytensor.scalar import basic as scalars
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise

from arviz_swiss.pymc.compiling import Graph


class _Rows(NamedTuple):
    """Something of every row, along an axis.

    It is guarded if all of it is minus infinity where one row is outside. Of a block, only what is
    beside that row is: such rows may be added up, and nothing else.
    """

    axis: int
    guarded: bool = False


# A sum over rows, whether something holds for every row, and how many there are.
_SUM, _EVERY, _COUNT = "sum", "every", "count"
_State = _Rows | str | None


class _Meet(Exception):
    """Rows may meet."""


class RowSum(NamedTuple):
    """A graph that is a sum over rows, and which of its data have a row each, along axis 0.

    It has no constant of the number of rows.
    """

    graph: Graph
    has_rows: tuple[bool, ...]


def find_row_sum(graph: Graph, arrays: Sequence[np.ndarray]) -> RowSum | None:
    """Return a scalar graph as a sum over the rows of the longest data; None if it may be none."""
    rows = max((len(array) for array in arrays if array.ndim), default=0)
    if rows < 2:
        return None
    has_rows = tuple(array.ndim > 0 and len(array) == rows for array in arrays)
    states: dict[Variable, _State] = {
        variable: _Rows(0)
        for variable, is_long in zip(graph.data, has_rows, strict=True)
        if is_long
    }
    same: dict[Variable, Variable] = {}
    (output,) = graph.outputs
    try:
        for node in io_toposort([*graph.values, *graph.data], [output]):
            given = [states.get(each) for each in node.inputs]
            if not any(given):
                continue
            if type(node.op).__name__ == "Alloc":
                # to the shape of the outcomes, which is that of their densities already
                _check_same_shape(node, given, rows)
                same[node.outputs[0]] = node.inputs[0]
            state = _rule(node)(node, given)
            states |= dict.fromkeys(node.outputs, state)
    except _Meet:
        return None
    if states.get(output) != _SUM:
        return None
    if not same:
        return RowSum(graph, has_rows)
    # one may be inside another, which is then still there
    without = clone_replace([output], same, rebuild_strict=False)
    return find_row_sum(graph._replace(outputs=without), arrays)


def _require(condition: Any) -> None:
    if not condition:
        raise _Meet


def _rule(node: Any) -> Callable[[Any, list[_State]], _State]:
    """Return what tells the state of an operation's result, given those of its inputs."""
    for kind, rule in _BY_CLASS.items():
        if isinstance(node.op, kind):
            return rule
    # by name, as modules of PyTensor's move
    name = type(node.op).__name__
    if name == "Blockwise":
        name = type(node.op.core_op).__name__
        _require(_BY_NAME.get(name) is _product)
    _require(name in _BY_NAME)
    return _BY_NAME[name]


def _elementwise(node: Any, given: list[_State]) -> _State:
    kind = type(node.op.scalar_op)
    if _SUM in given:
        return _of_sums(kind, node, given)
    if _EVERY in given and kind is not scalars.Switch:
        _require(kind is scalars.AND and all(state in (_EVERY, None) for state in given))
        return _EVERY
    _require(_COUNT not in given)
    of_rows = [state for state in given if isinstance(state, _Rows)]
    _require(len({state.axis for state in of_rows}) == 1)
    axis = of_rows[0].axis
    for each, state in zip(node.inputs, given, strict=True):
        _require(isinstance(state, _Rows) or each.type.shape[axis] == 1)
    if _EVERY in given:
        # one row outside leaves no density, whichever rows are beside it
        _require(given[0] == _EVERY and given[1] in of_rows and _is(node.inputs[2], -np.inf))
        return _Rows(axis, guarded=True)
    guarded = any(state.guarded for state in of_rows)
    _require(not guarded or _keeps_guard(kind, node, given))
    return _Rows(axis, guarded)


def _keeps_guard(kind: type, node: Any, given: list[_State]) -> bool:
    """Tell whether all rows are minus infinity still where those that are guarded are."""
    first, *others = [isinstance(state, _Rows) and state.guarded for state in given]
    if kind is scalars.Add:
        return True
    if kind is scalars.Sub:
        return not any(others)
    choices = zip(node.inputs[1:], others, strict=True)
    return (
        kind is scalars.Switch
        and not first
        and all(is_guarded or _is(each, -np.inf) for each, is_guarded in choices)
    )


def _of_sums(kind: type, node: Any, given: list[_State]) -> _State:
    """Of sums over rows, what is linear in them is one."""
    _require(all(state in (_SUM, None) for state in given))
    others = [each for each, state in zip(node.inputs, given, strict=True) if state is None]
    if kind in (scalars.Add, scalars.Sub):
        _require(all(_is(each, 0.0) for each in others))
    elif kind is scalars.Mul:
        _require(given.count(_SUM) == 1)
    elif kind is scalars.TrueDiv:
        _require(given[0] == _SUM and given[1] is None)
    elif kind is scalars.Switch:
        _require(given == [None, _SUM, None] and _is(node.inputs[2], -np.inf))
    else:
        _require(kind is scalars.Neg)
    return _SUM


def _is(variable: Variable, value: float) -> bool:
    """Tell a constant of one value, however it is shaped."""
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
    return isinstance(variable, Constant) and bool(np.all(np.asarray(variable.data) == value))


def _shuffle(node: Any, given: list[_State]) -> _State:
    (state,) = given
    if not isinstance(state, _Rows):
        return state
    _require(state.axis in node.op.new_order)
    return state._replace(axis=node.op.new_order.index(state.axis))


def _reduce(node: Any, given: list[_State]) -> _State:
    (state,) = given
    kind = type(node.op.scalar_op)
    axes = range(node.inputs[0].type.ndim) if node.op.axis is None else node.op.axis
    if isinstance(state, _Rows):
        _require(kind is scalars.Add or not state.guarded)
        if state.axis not in axes:
            return state._replace(axis=state.axis - sum(axis < state.axis for axis in axes))
        is_all = kind is scalars.AND and node.inputs[0].type.dtype == "bool"
        _require(kind is scalars.Add or is_all)
        return _SUM if kind is scalars.Add else _EVERY
    _require((state, kind) in ((_SUM, scalars.Add), (_EVERY, scalars.AND)))
    return state


def _product(node: Any, given: list[_State]) -> _State:
    """Multiply matrices, of which only the first has rows: those of the product."""
    first, second = node.inputs
    _require(given == [_Rows(0), None])
    _require(first.type.ndim == 2 and second.type.ndim <= 2)
    # of operations on many matrices or vectors, an axis may be that of many
    core = getattr(node.op, "inputs_sig", None)
    _require(core is None or [len(dims) for dims in core] == [2, second.type.ndim])
    return given[0]


def _take_columns(node: Any, given: list[_State]) -> _State:
    """Index other axes than that of the rows, or a shape, which has one element."""
    if given[0] == _COUNT and not any(given[1:]):
        return _COUNT
    _require(isinstance(given[0], _Rows) and given[0].axis == 0 and not any(given[1:]))
    _require(node.op.idx_list and node.op.idx_list[0] == slice(None))
    return given[0]


def _look_up(node: Any, given: list[_State]) -> _State:
    """Take for each row what its index says, of something that has no rows."""
    _require(len(given) == 2 and given[0] is None and given[1] == _Rows(0))
    _require(node.inputs[1].type.ndim == 1 and node.inputs[1].type.dtype != "bool")
    places = getattr(node.op, "idx_list", None)
    _require(places is None or (len(places) == 1 and not isinstance(places[0], slice)))
    return given[1]


def _vector(node: Any, given: list[_State]) -> _State:
    """Make a vector of conditions, or the shape of what has rows and nothing else."""
    if given == [_COUNT]:
        return _COUNT
    _require(all(state in (_EVERY, None) for state in given))
    return _EVERY


def _unchanged(node: Any, given: list[_State]) -> _State:
    return given[0]


def _length(node: Any, given: list[_State]) -> _State:
    (state,) = given
    _require(isinstance(state, _Rows))
    return _COUNT if isinstance(state, _Rows) and node.op.i == state.axis else None


def _check_same_shape(node: Any, given: list[_State], rows: int) -> None:
    """Refuse to repeat anything: the axis of rows alone is there, and is as long as it was."""
    value, *lengths = node.inputs
    _require(isinstance(given[0], _Rows) and value.type.ndim == len(lengths) == 1)
    _require(given[1] == _COUNT or (given[1] is None and _number(lengths[0]) == rows))


def _number(variable: Variable) -> int | None:
    """Return a length that a graph holds as a constant."""
    owner = variable.owner
    if isinstance(variable, Constant):
        return int(variable.data) if np.ndim(variable.data) == 0 else None
    if owner is None or type(owner.op).__name__ != "Subtensor":
        return None
    shape = owner.inputs[0]
    if not isinstance(shape, Constant) or np.size(shape.data) != 1:
        return None
    return int(np.ravel(shape.data)[0])


_BY_CLASS: Mapping[type, Callable] = {
    Elemwise: _elementwise,
    DimShuffle: _shuffle,
    CAReduce: _reduce,
}
_BY_NAME: Mapping[str, Callable] = {
    "Alloc": _unchanged,
    "Dot": _product,
    "Matmul": _product,
    "Subtensor": _take_columns,
    "AdvancedSubtensor1": _look_up,
    "AdvancedSubtensor": _look_up,
    "MakeVector": _vector,
    "Shape_i": _length,
    "ScalarFromTensor": _unchanged,
    "TensorFromScalar": _unchanged,
}

"""Operations on small blocks in NumPy: all at once where PyTensor would call Python for each.

A normal distribution of several dimensions for each group solves one small triangular system a
group and point. PyTensor's own linker without a compiler does so in a loop, at several microseconds
each, and makes functions of their own of others (diagonal matrices), which threads must not share.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.tensor.blockwise import Blockwise

# Of larger blocks, LAPACK's one by one is faster than NumPy's row by row.
LARGEST_BLOCK = 64


def _solve_triangular(op: Any, batch_ndim: int, matrices: Any, sides: Any) -> np.ndarray | None:
    """Solve by substitution, a row of all systems at a time."""
    size = matrices.shape[-1]
    columns = sides[..., None] if op.b_ndim == 1 else sides
    blocks = np.broadcast_shapes(matrices.shape[:-2], columns.shape[:-2])
    if not 0 < size <= min(LARGEST_BLOCK, math.prod(blocks)):
        return None
    rows = np.moveaxis(matrices, (-2, -1), (0, 1))[..., None]
    known = np.moveaxis(columns, -2, 0)
    solution = np.empty(
        (size, *blocks, columns.shape[-1]), np.result_type(matrices, sides, np.float32)
    )
    for row in range(size) if op.lower else reversed(range(size)):
        solved = slice(None, row) if op.lower else slice(row + 1, None)
        rest = known[row] - (rows[row, solved] * solution[solved]).sum(axis=0)
        solution[row] = rest if op.unit_diagonal else rest / rows[row, row]
    if not op.unit_diagonal:
        # LAPACK solves no part of a singular system
        singular = (np.diagonal(matrices, axis1=-2, axis2=-1) == 0).any(axis=-1)
        if singular.any():
            solution[np.broadcast_to(singular[..., None], solution.shape)] = np.nan
    solution = np.moveaxis(solution, 0, -2)
    return solution[..., 0] if op.b_ndim == 1 else solution


def _cholesky(op: Any, batch_ndim: int, matrices: Any) -> np.ndarray | None:
    try:
        if op.lower:
            return np.linalg.cholesky(matrices)
        return np.linalg.cholesky(matrices.swapaxes(-2, -1)).swapaxes(-2, -1)
    except np.linalg.LinAlgError:  # which matrix is not positive definite, a loop tells
        return None


def _diagonal_matrix(op: Any, batch_ndim: int, diagonal: Any) -> np.ndarray:
    size = diagonal.shape[-1] + abs(op.offset)
    places = np.arange(diagonal.shape[-1])
    matrix = np.zeros((*diagonal.shape[:-1], size, size), diagonal.dtype)
    matrix[..., places + max(0, -op.offset), places + max(0, op.offset)] = diagonal
    return np.moveaxis(matrix, (-2, -1), (batch_ndim + op.axis1, batch_ndim + op.axis2))


def _range(op: Any, batch_ndim: int, *limits: Any) -> np.ndarray | None:
    """Return the same range for all blocks, if it is the same."""
    blocks = np.broadcast_shapes(*(each.shape for each in limits))
    if 0 in blocks or any((each != each.flat[0]).any() for each in limits):
        return None
    numbers = np.arange(*(each.flat[0] for each in limits), dtype=op.dtype)
    return np.broadcast_to(numbers, (*blocks, numbers.size)).copy()


def _indexed(op: Any, batch_ndim: int, array: Any, *indices: Any) -> np.ndarray | None:
    """Index the blocks alike: an index of leading dimensions leaves those of the batch behind."""
    if any(math.prod(index.shape[:batch_ndim]) != 1 for index in indices):
        return None
    batch, last = tuple(range(batch_ndim)), tuple(range(-batch_ndim, 0))
    output: list[Any] = [None]
    op.perform(
        Apply(op, [], []),
        [np.moveaxis(array, batch, last), *(i.reshape(i.shape[batch_ndim:]) for i in indices)],
        [output],
    )
    return np.moveaxis(output[0], last, batch).copy()


# By name, as modules of PyTensor's move. None in place of a result leaves the work to PyTensor.
NUMPY_WAYS: dict[str, Callable] = {
    "SolveTriangular": _solve_triangular,
    "Cholesky": _cholesky,
    "AllocDiag": _diagonal_matrix,
    "ARange": _range,
    "Subtensor": _indexed,
    "AdvancedSubtensor": _indexed,
}


class BlocksAtOnce(Op):
    """A blockwise operation that NumPy does its way, or else PyTensor, block by block."""

    def __init__(self, like: Any, way: Callable, batch_ndim: int):
        self.like, self.way, self.batch_ndim = like, way, batch_ndim
        self.block_op = like.core_op if isinstance(like, Blockwise) else like

    def perform(self, node: Any, inputs: Any, output_storage: Any) -> None:
        """Compute the output, which is never memory of an input."""
        with np.errstate(all="ignore"):
            values = self.way(self.block_op, self.batch_ndim, *inputs)
        if values is not None:
            output_storage[0][0] = np.asarray(values, dtype=node.outputs[0].type.dtype)
            return
        if isinstance(self.like, Blockwise) and not hasattr(node.tag, "gufunc"):
            # left to itself, PyTensor would call a compiler
            self.like.prepare_node(node, None, None, impl="py")
        self.like.perform(node, inputs, output_storage)


class BlocksRewriter(GraphRewriter):
    """Put operations of NumPy in the place of PyTensor's, which other graphs share."""

    def apply(self, fgraph: FunctionGraph) -> None:
        """Replace all operations that have a way."""
        for node in fgraph.toposort():
            if (op := _at_once(node)) is not None:
                (output,) = node.outputs
                replacement = Apply(op, node.inputs, [output.type.clone()()]).outputs[0]
                fgraph.replace_all([(output, replacement)], reason="in_numpy")


def _at_once(node: Any) -> BlocksAtOnce | None:
    is_blockwise = isinstance(node.op, Blockwise)
    core = node.op.core_op if is_blockwise else node.op
    name = type(core).__name__
    # diagonal matrices are functions inside of functions also where there are no blocks
    if not (is_blockwise or name == "AllocDiag") or node.op.destroy_map or node.op.view_map:
        return None
    way = NUMPY_WAYS.get(name)
    return way and BlocksAtOnce(node.op, way, node.op.batch_ndim(node) if is_blockwise else 0)

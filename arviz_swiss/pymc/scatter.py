"""Sums by group in NumPy, as gradients of what groups have in common need them.

The gradient of ``effect[group]`` adds up rows. For that NumPy's own ``add.at``, which PyTensor
calls, takes 20 ns a row and point, ``bincount`` 2.
"""

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.tensor.subtensor import AdvancedIncSubtensor

ALL = slice(None)


class AddByGroup(Op):
    """Add rows (points, rows) to the elements (points, ...) that their indices name."""

    __props__ = ()

    def perform(self, node: Any, inputs: Any, output_storage: Any) -> None:
        """Compute the output, which is never memory of an input."""
        array, rows, *indices = inputs
        shape = np.broadcast_shapes(*(index.shape for index in indices))
        places = np.ravel_multi_index(
            tuple(np.broadcast_to(index, shape) for index in indices), array.shape[1:], mode="wrap"
        ).ravel()
        rows = np.broadcast_to(rows, (len(array), *shape)).reshape(len(array), -1)
        sums = array.reshape(len(array), -1).copy()
        for point, values in zip(sums, rows, strict=True):
            point += np.bincount(places, weights=values, minlength=point.size)
        output_storage[0][0] = sums.reshape(array.shape)


class ScatterRewriter(GraphRewriter):
    """Put sums by ``bincount`` in the place of PyTensor's."""

    def apply(self, fgraph: FunctionGraph) -> None:
        """Replace all sums over rows of floating-point numbers."""
        for node in fgraph.toposort():
            if (indices := _indices(node)) is not None:
                (output,) = node.outputs
                inputs = [*node.inputs[:2], *indices]
                added = Apply(AddByGroup(), inputs, [output.type.clone()()]).outputs[0]
                fgraph.replace_all([(output, added)], reason="in_numpy")


def _indices(node: Any) -> list[Any] | None:
    """Return the indices of every dimension but the first, if those of all points are the same."""
    op = node.op
    if not isinstance(op, AdvancedIncSubtensor) or op.set_instead_of_inc or op.inplace:
        return None
    array, rows, *given = node.inputs
    # newer versions of PyTensor have slices in the operation, older ones among the inputs
    if hasattr(op, "idx_list"):
        first, *others = op.idx_list
        is_plain = all(isinstance(other, int) for other in others)
        indices = [given[other] for other in others] if is_plain else []
    else:
        first, *indices = given
        first = first.data if isinstance(first, Constant) else None
    kinds = [getattr(index.type, "dtype", "") for index in indices]
    fits = len(indices) == array.type.ndim - 1 and all(kind.startswith("int") for kind in kinds)
    is_rows = fits and max((i.type.ndim for i in indices), default=0) + 1 == rows.type.ndim
    is_real = array.type.dtype == rows.type.dtype == "float64"
    return indices if first == ALL and is_rows and is_real else None

"""Affine maps of draws: apply, embed, invert."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from arviz_swiss.flatten import Layout, gather, row_blocks, scatter


class AffineMap(NamedTuple):
    """The map ``draw -> scale (draw - source) + target`` of one batch."""

    scale: np.ndarray
    source: np.ndarray
    target: np.ndarray


def move(
    matrices: Sequence[np.ndarray], layout: Layout, affine: AffineMap, out: Sequence[np.ndarray]
) -> None:
    """Map all rows, block by block, into the matrices of `out`."""
    blocks = row_blocks(matrices[0].shape[0], layout.size)
    centred = np.empty((blocks[0].stop, layout.size))
    mapped = np.empty_like(centred)
    for block in blocks:
        rows = gather(matrices, layout, block, affine.source, centred)
        moved = np.matmul(rows, affine.scale.T, out=mapped[: rows.shape[0]])
        scatter(moved, layout, block, affine.target, out)


def embed(affine: AffineMap, free: np.ndarray, constants: np.ndarray) -> AffineMap:
    """Return the map of all parameters: free ones mapped, constant ones left where they are."""
    if np.array_equal(free, np.arange(constants.size)):
        return affine
    scale = np.eye(constants.size)
    scale[np.ix_(free, free)] = affine.scale
    source, target = constants.copy(), constants.copy()
    source[free], target[free] = affine.source, affine.target
    return AffineMap(scale, source, target)


def invert(affine: AffineMap, units: np.ndarray) -> AffineMap:
    """Return the map that undoes `affine`.

    Parameters
    ----------
    units : array
        The parameters' sizes, such as their sds: entry (i, j) of a map carries the unit of
        parameter i over that of j, and the solver needs them of one size.
    """
    scaled = affine.scale * (units / units[:, None])
    back = np.linalg.inv(scaled) * (units[:, None] / units)
    return AffineMap(back, affine.target, affine.source)

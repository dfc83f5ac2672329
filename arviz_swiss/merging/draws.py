"""From maps to merged draws: every batch moved into arrays that hold all chains end to end."""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from arviz_swiss.base.gaussian import Moments
from arviz_swiss.base.linalg import AffineMap, embed
from arviz_swiss.data.layout import as_rows, gather_all, move
from arviz_swiss.data.messages import MergeWarning
from arviz_swiss.merging.batches import Batch
from arviz_swiss.merging.space import Arrays
from arviz_swiss.merging.summaries import Frame, unconstrained


class Draws(NamedTuple):
    """Merged draws on their own scale and, of transformed variables, in unconstrained space.

    `owners` is the label of each chain's batch, None where draws were newly made.
    """

    constrained: Arrays
    unconstrained: Arrays
    length: int
    owners: list[str] | None


def move_batches(batches: Sequence[Batch], frame: Frame, affine: Sequence[AffineMap]) -> Draws:
    """Map every batch's draws into arrays that hold all chains end to end."""
    lengths = [batch.sizes[1] for batch in batches]
    if len(set(lengths)) > 1:
        _warn_unequal_lengths(lengths)
    length, chains = min(lengths), [batch.sizes[0] for batch in batches]
    starts = np.cumsum([0, *chains])
    dtypes = {name: _dtype(batches, name) for name in frame.layout.names}
    merged = {
        variable.name: np.empty((starts[-1], length, *variable.shape), dtypes[variable.name])
        for variable in frame.layout.variables
    }
    constrained = {
        variable.name: np.empty((starts[-1], length, *variable.shape), dtypes[variable.name])
        for variable in frame.constrained.variables
        if variable.name in frame.space.transforms
    }
    for batch, one, start in zip(batches, affine, starts, strict=False):
        arrays = list(unconstrained(batch, frame).values())
        part = {name: out[start : start + batch.sizes[0]] for name, out in merged.items()}
        move(
            as_rows(arrays, frame.layout, length),
            frame.layout,
            embed(one, frame.free, frame.constants),
            as_rows(list(part.values()), frame.layout),
        )
        if constrained:
            back = frame.space.backward(part)
            for name in constrained:
                constrained[name][start : start + batch.sizes[0]] = back[name]
    owners = [batch.label for batch in batches for _ in range(batch.sizes[0])]
    return Draws(merged | constrained, {name: merged[name] for name in constrained}, length, owners)


def make_draws(
    batches: Sequence[Batch],
    frame: Frame,
    moments: Sequence[Moments],
    factors: np.ndarray | None,
    combine: Callable,
) -> Draws:
    """Make new draws from all batches' draws, as many as the smallest batch has.

    Parameters
    ----------
    factors : array, optional
        What each batch's covariance is multiplied by, by rescaling its draws about their mean.
    combine : callable
        Takes `draws`, the (batch, chain, draw, parameter) array, and returns (chain, draw,
        parameter).
    """
    chains, length = (min(sizes) for sizes in zip(*(b.sizes for b in batches), strict=True))
    if any(batch.sizes != (chains, length) for batch in batches):
        _warn_unequal_sizes(chains, length)
    rows = np.empty((len(batches), chains, length, frame.free.size))
    for position, batch in enumerate(batches):
        _gather_free(batch, frame, rows[position])
        if factors is not None:
            rows[position] -= moments[position].mean
            rows[position] *= np.sqrt(factors[position])
            rows[position] += moments[position].mean
    made = np.empty((chains, length, frame.layout.size))
    made[...] = frame.constants
    made[..., frame.free] = combine(draws=rows)
    merged = {
        variable.name: made[..., variable.columns]
        .reshape(chains, length, *variable.shape)
        .astype(_dtype(batches, variable.name))
        for variable in frame.layout.variables
    }
    moved = {name: merged[name] for name in merged if name in frame.space.transforms}
    back = frame.space.backward(merged) if moved else merged
    constrained = {n: back[n].astype(merged[n].dtype, copy=False) for n in merged}
    return Draws(constrained, moved, length, None)


def _dtype(batches: Sequence[Batch], name: str) -> np.dtype:
    """Return the finest dtype that a variable has in any batch."""
    return np.result_type(*(batch.draws.variables[name].dtype for batch in batches))


def _gather_free(batch: Batch, frame: Frame, out: np.ndarray) -> None:
    """Write the free parameters' draws into `out`, of dimensions (chain, draw, parameter)."""
    chains, length, _ = out.shape
    arrays = [array[:chains, :length] for array in unconstrained(batch, frame).values()]
    if frame.free.size == frame.layout.size:
        for array, variable in zip(arrays, frame.layout.variables, strict=True):
            out[..., variable.columns] = array.reshape(chains, length, variable.size)
    else:
        rows = gather_all(as_rows(arrays, frame.layout), frame.layout)
        out[...] = rows[:, frame.free].reshape(out.shape)


def _warn_unequal_sizes(chains: int, length: int) -> None:
    warnings.warn(
        "the batches differ in their numbers of chains or draws: moments use all draws, the new "
        f"draws are made of the first {chains} chains and the first {length} draws of each.",
        MergeWarning,
        stacklevel=4,
    )


def _warn_unequal_lengths(lengths: Sequence[int]) -> None:
    warnings.warn(
        f"the batches have {min(lengths)} to {max(lengths)} draws a chain: moments use all, the "
        f"merged posterior keeps the first {min(lengths)} of each chain.",
        MergeWarning,
        stacklevel=4,
    )

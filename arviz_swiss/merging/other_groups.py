"""What stands beside the merged variables: local variables, data, the samplers' statistics."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from arviz_swiss.base.gaussian import Moments
from arviz_swiss.data import schema
from arviz_swiss.data.containers import Groups
from arviz_swiss.merging import pack, warn
from arviz_swiss.merging.batches import Batch
from arviz_swiss.merging.combine import Draws
from arviz_swiss.merging.join import join_groups, join_stats, shared_stats, stats_dtypes
from arviz_swiss.merging.local_draws import LocalMoves, find_moves, move_local
from arviz_swiss.merging.shared_steps import Flat


class Beside(NamedTuple):
    """How local variables are moved, the joined data, dtypes of statistics, and attributes."""

    moves: LocalMoves | None
    data: Groups
    stats: dict[str, np.dtype]
    attrs: dict[str, Any]


def find_beside(
    flat: Flat, moments: Sequence[Moments], length: int | None, attrs: Mapping[str, Any]
) -> Beside:
    """Return what stands beside the merged variables, and the attributes that say so.

    `length` is the number of draws a chain, None where draws are newly made: these have no
    statistics of a sampler.
    """
    batches, local = flat.matched.batches, flat.local
    moves, attrs = None, dict(attrs)
    if local:
        moves = find_moves(flat.matched, local, flat.local_space, flat.frame, moments, flat.coords)
        warn.warn_unordered(flat.matched, moves)
        attrs[schema.LOCAL] = ",".join(name for name in flat.matched.local if name in local)
    names = [] if length is None else shared_stats(batches, length)
    stats = stats_dtypes(batches, names)
    joined = join_groups(batches, flat.coords, set(local.values()), stats)
    if joined.left_out:
        attrs[schema.LEFT_OUT] = ", ".join(joined.left_out)
    if unordered := [*joined.unordered, *(moves.unordered if moves else ())]:
        attrs[schema.UNORDERED] = ", ".join(dict.fromkeys(unordered))
    return Beside(moves, joined.groups, stats, attrs)


def pack_part(
    flat: Flat,
    moments: Sequence[Moments],
    beside: Beside,
    draws: Draws,
    batches: Sequence[Batch],
) -> Groups:
    """Return the groups of some merged draws, those of these batches, or newly made ones."""
    every, frame = flat.matched.batches, flat.frame
    groups = pack.pack_draws(draws, frame, every[0], beside.attrs)
    groups = pack.add_stats(groups, join_stats(batches, beside.stats, draws.length), draws)
    if beside.moves is None:
        return groups
    local = move_local(beside.moves, every, frame, moments, draws)
    return pack.add_local(groups, every[0].group, local)

"""Whether the batches' draws come from the densities given for them, at the powers told to merge.

Importance weights are worth nothing otherwise.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2

from arviz_swiss.base import stein

# Fewer draws say nothing of a batch by itself; fewer still, not even with those of all batches.
FEWEST_ALONE, FEWEST_POOLED = 10, 4
# Chance of doubting a density though it is right.
STRANGE = 1e-4
# A relative error of the variance that does no harm: 5% of an sd.
TOLERATED = 0.1
DOUBT_REMEDY = (
    "pass the densities of the batches as they were sampled, each of its own rows and not of all "
    "the data, not tempered ones and not in another order than the batches (a mapping of label to "
    "density leaves no doubt), and merge with the kind= or powers= that they were sampled with"
)


class Own(NamedTuple):
    """A batch's own draws, the scores of its density there, and the covariance of all its draws.

    Draws and scores are (chain, draw, parameter) arrays.
    """

    label: str
    draws: np.ndarray
    scores: np.ndarray
    covariance: np.ndarray


class Provenance(NamedTuple):
    """How many sds each batch is off its density, how many times as wide, and a doubt in words."""

    offsets: np.ndarray
    widths: np.ndarray
    doubt: str


def edges(points: np.ndarray, log_densities: np.ndarray) -> np.ndarray:
    """Return which parameters have an edge: all, where no single ones can be told.

    A density that is not zero at an edge has another mean score than zero. Points without a density
    are outside in those parameters that explain most of them.
    """
    inside = np.isfinite(log_densities)
    has_edge = np.zeros(points.shape[1], dtype=bool)
    if inside.all():
        return has_edge
    if not inside.any():
        return ~has_edge
    low, high = points[inside].min(axis=0), points[inside].max(axis=0)
    outside = (points[~inside] < low) | (points[~inside] > high)
    while len(outside):
        explained = outside.sum(axis=0)
        if not explained.max():
            return np.ones_like(has_edge)
        most = explained.argmax()
        has_edge[most] = True
        outside = outside[~outside[:, most]]
    return has_edge


def examine(batches: Sequence[Own], tested: np.ndarray) -> Provenance:
    """Compare the batches' draws with their densities, in the parameters that can be tested."""
    offsets, widths = np.full((2, len(batches)), np.nan)
    strange, spreads, wide = [], [], []
    alone = STRANGE / len(batches)
    for position, (label, draws, scores, covariance) in enumerate(batches):
        count = draws.shape[0] * draws.shape[1]
        if count < FEWEST_POOLED or not tested.any():
            continue
        draws, scores = draws[..., tested], scores[..., tested]
        spread = stein.spread(draws, scores)
        spreads.append(spread)
        if count < FEWEST_ALONE:
            continue
        offset, statistic = stein.offset(scores, covariance[np.ix_(tested, tested)])
        offsets[position], widths[position] = offset, _width(spread)
        if chi2.sf(statistic, tested.sum()) < alone:
            strange.append(f"{label} (off by {offset:.2g} sds)")
        if _is_wrong(spread, alone):
            wide.append(f"{label} ({_width(spread):.2g} times as wide)")
    return Provenance(offsets, widths, _doubt(strange, _wide(spreads, wide)))


def _width(spread: stein.Spread) -> float:
    return float(np.sqrt(max(spread.ratio, 0.0)))


def _is_wrong(spread: stein.Spread, level: float) -> bool:
    return abs(spread.ratio - 1) > TOLERATED and stein.chance(spread) < level


def _wide(spreads: Sequence[stein.Spread], wide: Sequence[str]) -> str:
    """Return what is as wide as it should not be: some batches, or all of them together."""
    if not spreads or 0 < len(wide) <= len(spreads) / 2:
        return ", ".join(wide)
    pooled = stein.pooled_spread(spreads)
    if not wide and not _is_wrong(pooled, STRANGE):
        return ""
    return f"the batches ({_width(pooled):.2g} times as wide, on the whole)"


def _doubt(strange: Sequence[str], wide: str) -> str:
    """Say what is wrong; nothing if nothing is wrong."""
    clauses = []
    if wide:
        clauses.append(
            f"the draws of {wide} have not the sds of the densities given for them: wrong kind or "
            "powers"
        )
    if strange:
        clauses.append(
            f"the draws of {', '.join(strange)} do not come from the densities given for them"
        )
    return "; ".join(clauses)

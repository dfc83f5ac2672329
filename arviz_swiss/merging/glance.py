"""A glance at every batch's draws, cheap enough for `merge`: skewness, chains, divergences."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from arviz_swiss.base.gaussian import Glance
from arviz_swiss.data.messages import MergeWarning, brief
from arviz_swiss.merging.batches import Batch

# Draws of a batch to look at, and of each chain at least, for its mean to tell something.
LOOK_AT = 200
LOOK_AT_CHAIN = 50
# Stronger than what `report` tells, since this is seen by everyone who merges.
STRONGLY_SKEWED = 1.5
CHAINS_APART = 1.2
DIVERGENT = 0.01
MOST_NAMED = 3


class SkewAdvice(NamedTuple):
    """What decides the advice on skewed variables.

    `transformed` are the variables merged on another scale than their own, `suggested` the
    transforms that would help others, `kind` the kind of sub-posterior.
    """

    transformed: Collection[str]
    suggested: Mapping[str, str]
    kind: str


def glance(arrays: Sequence[np.ndarray], free: np.ndarray) -> Glance:
    """Look at evenly spaced draws of a batch.

    Parameters
    ----------
    arrays : sequence of (chain, draw, ...) arrays
    free : array of int
        Which parameters, along all arrays' elements end to end.
    """
    chains, length = arrays[0].shape[:2]
    each = max(LOOK_AT_CHAIN, LOOK_AT // chains)
    few = [array[:, :: max(1, length // each)] for array in arrays]
    count = few[0].shape[1]
    draws = np.concatenate([array.reshape(chains, count, -1) for array in few], axis=2)
    if free.size < draws.shape[2]:
        draws = draws[..., free]
    rows = draws.reshape(chains * count, -1)
    centred = rows - rows.mean(axis=0)
    squares = centred * centred
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = squares.mean(axis=0)
        skewed = np.einsum("ij,ij->j", squares, centred) / len(rows) / variance**1.5
        if chains == 1 or count < LOOK_AT_CHAIN:
            return Glance(skewed, np.full(free.size, np.nan))
        between = centred.reshape(draws.shape).mean(axis=1).var(axis=0)
        within = (variance - between) * count / (count - 1)
        between *= chains / (chains - 1)
        return Glance(skewed, np.sqrt((count - 1) / count + between / within))


def warn_poor_batches(
    batches: Sequence[Batch],
    glances: Sequence[Glance],
    frame: Any,
    kind: str,
    needs_gaussian: bool,
) -> None:
    """Warn, once, of batches that no merge can make good: skewed, unconverged or divergent.

    Parameters
    ----------
    frame : Frame
        The space of the merge, with the labels of its parameters.
    kind : str
        The kind of sub-posterior.
    needs_gaussian : bool
        Whether skewness harms the method.
    """
    parts = []
    skewed = np.median([one.skewness for one in glances], axis=0)
    matters = needs_gaussian and len(batches) > 1
    if matters and (strong := np.flatnonzero(np.abs(skewed) > STRONGLY_SKEWED)).size:
        strong = strong[np.argsort(-np.abs(skewed[strong]))]
        named = brief([f"{frame.labels[at]} ({skewed[at]:.1f})" for at in strong], MOST_NAMED)
        variables = np.array(frame.owners)[strong]
        ranges = {
            name: _range_of(batches, name)
            for name in set(variables.tolist()) - set(frame.space.transforms)
        }
        suggested = suggest_transforms(variables, skewed[strong], ranges)
        advice = SkewAdvice(frame.space.transforms, suggested, kind)
        remedy = advise_skewed(variables.tolist(), advice)
        parts.append(
            f"strongly skewed in the space of the merge (skewness of the median batch: {named}); "
            f"{remedy}"
        )
    rhat = np.nan_to_num(np.array([one.rhat for one in glances]))
    if (apart := np.flatnonzero(rhat.max(axis=1) > CHAINS_APART)).size:
        named = brief(
            [f"{batches[b]} ({frame.labels[int(rhat[b].argmax())]})" for b in apart], MOST_NAMED
        )
        parts.append(f"not converged, their chains lie apart: {named}; sample them again, longer")
    shares = np.array([_divergent_share(batch) for batch in batches])
    if (divergent := np.flatnonzero(shares > DIVERGENT)).size:
        named = brief(
            [f"{batches[b]} ({100 * shares[b]:.0f}% of draws)" for b in divergent], MOST_NAMED
        )
        parts.append(
            f"divergent: {named}; sample them with a larger target_accept, or another "
            "parametrisation"
        )
    if parts:
        warnings.warn(
            f"batches are {'. Batches are '.join(parts)}. The merged posterior can be many sds "
            "off; report(merged) tells more.",
            MergeWarning,
            stacklevel=3,
        )


def advise_skewed(variables: Sequence[str], advice: SkewAdvice) -> str:
    """Return what to do about variables that are strongly skewed where they are merged."""
    names = list(dict.fromkeys(variables))
    moved = [name for name in names if name in advice.transformed]
    mended = [name for name in names if name not in moved and name in advice.suggested]
    parts = []
    if mended:
        choices = ", ".join(f'"{name}": "{advice.suggested[name]}"' for name in mended)
        parts.append(f"merge on another scale, transforms={{{choices}}}")
    if moved:
        own = ", ".join(f'"{name}": None' for name in moved)
        again = f"sample again with untransformed={moved!r} and " if _is_powered(advice) else ""
        parts.append(
            "use larger batches (fewer of them)"
            f", or {again}merge on its own scale with transforms={{{own}}}"
        )
    elif len(mended) < len(names):
        parts.append("use larger batches (fewer of them)")
    return f"{', or '.join(parts)}, or refine the merge"


def suggest_transforms(
    variables: np.ndarray, skewness: np.ndarray, ranges: Mapping[str, tuple[float, float]]
) -> dict[str, str]:
    """Return the transforms that make skewed variables less so.

    A logarithm draws in the right tail alone; towards one, a logit draws in the left.

    Parameters
    ----------
    variables, skewness : array
        Of every skewed parameter.
    ranges : mapping of variable to the smallest and the largest of all draws
    """
    suggested = {}
    for name, (least, greatest) in ranges.items():
        own = skewness[variables == name]
        if least > 0 and (own > 0).all():
            suggested[name] = "log"
        elif least > 0 and greatest < 1:
            suggested[name] = "logit"
    return suggested


def _range_of(batches: Sequence[Batch], name: str) -> tuple[float, float]:
    draws = [batch.draws[name].values for batch in batches]
    return float(min(one.min() for one in draws)), float(max(one.max() for one in draws))


def _is_powered(advice: SkewAdvice) -> bool:
    """Tell whether the prior was raised to a power, in the space where it must be merged."""
    return advice.kind == "fractionated"


def _divergent_share(batch: Batch) -> float:
    stats = batch.groups.get("sample_stats")
    if stats is None or "diverging" not in stats:
        return 0.0
    diverging = stats["diverging"].values
    return float(diverging.mean()) if diverging.size else 0.0

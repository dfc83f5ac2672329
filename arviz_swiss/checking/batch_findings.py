"""What speaks against single batches: each function gives findings, the worst batch first."""

from collections.abc import Iterator

import numpy as np

from arviz_swiss.base.effective import size_by_chance
from arviz_swiss.base.heterogeneity import DISAGREE_ALL, name_disagreeing
from arviz_swiss.checking.evidence import Evidence, Finder, Finding
from arviz_swiss.checking.statistics import (
    FALSE_ALARM,
    STUCK,
    VALLEY,
    needed_effective,
    widths,
)
from arviz_swiss.data.messages import brief
from arviz_swiss.merging.merged import Merged
from arviz_swiss.merging.powers import TILTED

WIDE = 3.0
ALONE = 0.9
# How far a shape must exceed twice its noise.
SHAPE = 0.05


def worst_first(badness: np.ndarray, beyond: float) -> list[int]:
    """Return the batches whose badness is beyond a limit, the worst first."""
    order = np.argsort(-badness, kind="stable")
    return order[badness[order] > beyond].tolist()


def bad_batches(
    evidence: Evidence, badness: np.ndarray, beyond: float
) -> Iterator[tuple[str, str, tuple[int, int]]]:
    """Give the unbroken batches beyond a limit: label, worst parameter, where both stand."""
    ignored = np.isnan(badness) | evidence.is_broken[:, None]
    badness = np.where(ignored, -np.inf, badness)
    for position in worst_first(badness.max(axis=1), beyond):
        at = int(np.argmax(badness[position]))
        yield evidence.merged.labels[position], evidence.merged.parameters[at], (position, at)


def or_drop(merged: Merged, label: str) -> str:
    """Return how to leave a batch out, as the end of a remedy."""
    # A certificate tells whether any batch does harm.
    is_certain = merged.certificate is not None
    return "" if is_certain else f', or leave it out: merge(..., drop=["{label}"])'


def find_stuck(evidence: Evidence) -> Iterator[Finding]:
    """Find batches whose variance is next to nothing beside the others'."""
    merged, width = evidence.merged, widths(evidence.merged.maps)
    for label, _, at in bad_batches(evidence, -width, -STUCK):
        yield Finding(
            "stuck",
            (label,),
            f"{label} is stuck: in {brief(merged.parameters[width[at[0]] < STUCK])} its sd is "
            f"{width[at]:.1g} of the median batch's, and the merge takes it for certain knowledge.",
            f"sample this batch again{or_drop(merged, label)}.",
        )


def find_unconverged(evidence: Evidence) -> Iterator[Finding]:
    """Find batches whose chains differ from each other, by more than chance allows."""
    rhat, limit = evidence.values("rhat"), evidence.values("rhat_limit")
    for label, parameter, at in bad_batches(evidence, rhat / limit, 1.0):
        yield Finding(
            "did not converge",
            (label,),
            f"{label} did not converge: R-hat is {rhat[at]:.2f} in {parameter}.",
            "sample this batch again, longer or with another parametrisation"
            f"{or_drop(evidence.merged, label)}.",
        )


def find_few_effective(evidence: Evidence) -> Iterator[Finding]:
    """Find batches with too few effective draws, by more than chance explains.

    One of many parameters may have few by chance. In the median parameter that is less likely, the
    more parameters there are.
    """
    sizes = evidence.values("ess_within")
    batches, parameters = sizes.shape
    needed = needed_effective(parameters)
    limit = size_by_chance(needed, FALSE_ALARM / 2 / sizes.size)
    # by chance the log of a median of so many varies less
    middle = np.median(sizes, axis=1, keepdims=True)
    margin = np.log(size_by_chance(needed, FALSE_ALARM / 2 / batches) / needed)
    shortfall = np.fmax(limit / sizes, needed * np.exp(margin / np.sqrt(parameters)) / middle)
    for label, _, (position, _) in bad_batches(evidence, shortfall, 1.0):
        at = int(np.argmin(sizes[position]))
        count, where = sizes[position, at], evidence.merged.parameters[at]
        if count > limit:
            count, where = middle[position, 0], "the median parameter"
        yield Finding(
            "few effective draws",
            (label,),
            f"{label} has only {count:.0f} effective draws of {where}.",
            f"draw at least {needed} effective draws of every parameter in this batch.",
        )


def find_divergences(evidence: Evidence) -> Iterator[Finding]:
    """Find batches with divergent transitions, all in one."""
    labels, counts = evidence.merged.labels, evidence.values("divergences")
    if worst := worst_first(counts, 0):
        listed = brief([f"{labels[position]} ({int(counts[position])})" for position in worst])
        yield Finding(
            "divergences",
            tuple(labels[position] for position in worst),
            f"divergent transitions in {listed}: the sampler missed part of these sub-posteriors.",
            "sample them again with a larger target_accept, or another parametrisation.",
        )


def find_disagreeing(evidence: Evidence) -> Iterator[Finding]:
    """Find batches whose means are further from the others than chance allows."""
    merged = evidence.merged
    broken = set(np.flatnonzero(evidence.is_broken).tolist())
    disagreement = name_disagreeing(merged.batch_moments, merged.scatter, broken)
    yield from (_disagrees(merged, position) for position in disagreement.named)
    least = min(disagreement.rest_pvalue, float(disagreement.parameter_pvalue.min()))
    if not disagreement.worst and least >= DISAGREE_ALL:
        return
    pvalues = disagreement.parameter_pvalue
    worst = np.argsort(pvalues)[: int((pvalues < 0.01).sum())]
    where = f", most in {brief(merged.parameters[worst].tolist())}" if worst.size else ""
    signs = []
    if least < DISAGREE_ALL:
        signs.append(f"p = {least:.1g}" + (", without those named" if disagreement.named else ""))
    if disagreement.worst:
        furthest = brief([merged.labels[position] for position in disagreement.worst])
        signs.append(f"many batches are off, furthest {furthest}")
    if merged.kind == TILTED:
        yield Finding(
            "disagree",
            (),
            f"the batches, each with the others' word as its prior, do not agree on the posterior"
            f"{where} ({'; '.join(signs)}): the rounds have not settled, or the posterior is far "
            "from Gaussian.",
            "refine again, with more rounds= and draws=, or use fewer and larger batches.",
        )
        return
    yield Finding(
        "disagree",
        (),
        f"the batches disagree as a whole{where} ({'; '.join(signs)}). Sorted data, drift, or a "
        "misspecified model are the usual causes; the merged posterior may stand for none of the "
        "batches.",
        "shuffle the rows before splitting (partition does); if they were, the model does not "
        "describe all rows alike: extend it, for instance with a hierarchy over their groups.",
    )


def _disagrees(merged: Merged, position: int) -> Finding:
    label, maps = merged.labels[position], merged.maps
    means, spread = maps["mean"].values, np.sqrt(np.einsum("bii->bi", maps["covariance"].values))
    away = (means[position] - np.median(means, axis=0)) / np.median(spread, axis=0)
    worst = int(np.argmax(np.abs(away)))
    side = "above" if away[worst] > 0 else "below"
    return Finding(
        "disagrees",
        (label,),
        f"{label} disagrees with the other batches, most in {merged.parameters[worst]}: its "
        f"mean is {abs(away[worst]):.1f} typical batch sds {side} the median batch's.",
        "look at plot_shift(merged) and at this batch's data. If rows were not shuffled before "
        "splitting, shuffle them; if the batch itself is at fault, sample it again"
        f"{or_drop(merged, label)}.",
    )


def find_bimodal(evidence: Evidence) -> Iterator[Finding]:
    """Find batches with two modes; where most have them, the posterior itself does."""
    merged, valley = evidence.merged, evidence.values("valley")
    deep = (valley > VALLEY) & ~evidence.is_broken[:, None]
    common = 2 * deep.sum(axis=0) > len(deep)
    for label, _, at in bad_batches(evidence, np.where(common, 0.0, valley), VALLEY):
        where = merged.parameters[deep[at[0]] & ~common]
        yield Finding(
            "bimodal",
            (label,),
            f"{label} has two modes in {brief(where)}, most other batches one.",
            "look at plot_batches(merged); use larger batches, or sample this one again"
            f"{or_drop(merged, label)}.",
        )
    if common.any():
        yield Finding(
            "bimodal",
            (),
            f"{brief(merged.parameters[common])} has two modes in most batches: an affine map of "
            "the draws moves both modes together and cannot mend how they are weighted.",
            "check whether the modes are labels that switch (order them), and use larger batches.",
        )


def find_wide(evidence: Evidence) -> Iterator[Finding]:
    """Find batches that know much less than the others."""
    width = widths(evidence.merged.maps)
    for label, parameter, at in bad_batches(evidence, width, WIDE):
        yield Finding(
            "wide",
            (label,),
            f"{label} is {width[at]:.3g} times as wide as the median batch in {parameter}: it "
            "holds little about it, or its chains wandered off.",
            "stratify the split so that every batch has such rows, or use fewer, larger batches.",
        )


def find_shape(evidence: Evidence) -> Iterator[Finding]:
    """Find batches whose mapped marginals have another shape than the others'."""
    shape, noise = evidence.values("shape"), evidence.values("shape_noise")
    for label, parameter, at in bad_batches(evidence, shape - 2 * noise, SHAPE):
        yield Finding(
            "shape differs",
            (label,),
            f"{label} differs in shape from the other batches, most in {parameter}: "
            f"{shape[at]:.2f} of its mass lies elsewhere ({noise[at]:.2f} by chance).",
            "look at plot_batches(merged); use larger batches, or a transform that makes the "
            "sub-posteriors closer to Gaussian.",
        )


def find_alone(evidence: Evidence) -> Iterator[Finding]:
    """Find batches that nearly alone determine some direction of the merged posterior.

    The share of batch b in the precision along an eigenvector of ``L' V_b L`` is ``1 / (p_b w)``.
    """
    if len(evidence.merged.labels) == 1:
        return
    shares = evidence.values("eigenvalue_max") ** 2 / evidence.merged.maps["power"].values
    for label, _, at in bad_batches(evidence, shares[:, None], ALONE):
        yield Finding(
            "decides alone",
            (label,),
            f"{label} decides some direction of the merged posterior nearly alone "
            f"({min(shares[at[0]], 1.0):.0%} of its precision): no other batch can check it.",
            "shuffle the rows before splitting, or stratify the split so that every batch has rows "
            "about every parameter.",
        )


# Of a batch that these name, nothing more needs to be said.
FIND_BROKEN: tuple[Finder, ...] = (find_stuck, find_unconverged)
FIND_ODD: tuple[Finder, ...] = (
    find_disagreeing,
    find_bimodal,
    find_shape,
    find_wide,
    find_alone,
    find_divergences,
    find_few_effective,
)

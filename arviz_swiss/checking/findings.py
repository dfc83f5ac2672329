"""What speaks against a merge: one small function for each thing that can be wrong.

Each takes the groups of a merged object and gives `Finding`s, the worst batch first. `find_all`
begins with those that make a batch worthless; the other functions also take the labels of such
batches, of which nothing more needs to be said. `FINDERS` is the order in which a report tells the
rest: a new check is one more function.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from arviz_swiss.base.gaussian import correction
from arviz_swiss.base.heterogeneity import DISAGREE_ALL, Disagreement, name_disagreeing
from arviz_swiss.checking.statistics import RHAT, STUCK, VALLEY, widths
from arviz_swiss.data import schema
from arviz_swiss.data.messages import brief
from arviz_swiss.merging.diagnostics import (
    AVOID_PRIOR,
    MOST_SHRUNK,
    SAY_KIND,
    SHRINKAGE,
    describe_doubt,
    describe_guess,
    describe_prior_error,
    doubt_kind,
)
from arviz_swiss.merging.merged import Merged
from arviz_swiss.merging.warn import SkewAdvice, advise_skewed, suggest_transforms

FEW_EFFECTIVE = 100
WIDE = 3.0
SKEWED = 1.0
ALONE = 0.9
# Expected errors in posterior sds: worth a sentence, and a finding.
NOTED_ERROR = 0.2
LARGE_ERROR = 0.5
# A first step of `refine` that is so many times the expected error comes from somewhere else.
FAR = 10.0
# How far a shape must exceed twice its noise.
SHAPE = 0.05
# Flags of batches that differ from the others, which a certificate says more about.
ODD = ("disagrees", "bimodal", "shape differs", "wide", "decides alone")
HOLDS = (
    "nothing for the sake of this merge: the certificate says that its mean and sds are those of "
    "the full posterior. Without this batch they would not be."
)


class Finding(NamedTuple):
    """One thing that speaks against a merge.

    `flag` is a word or two for a table, `batches` the labels concerned (none: the whole merge),
    `what` a sentence about them, `remedy` what to do.
    """

    flag: str
    batches: tuple[str, ...]
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} What to do: {self.remedy}"


Finder = Callable[[Merged, frozenset[str]], Iterator[Finding]]


def find_all(merged: Merged) -> list[Finding]:
    """Return all findings about a merged object.

    A certificate compares the merge with the full posterior itself, which says more than any
    comparison of batches: what it says comes first, and before anything about single batches.
    """
    first = [*find_stuck(merged), *find_unconverged(merged)]
    broken = frozenset(label for finding in first for label in finding.batches)
    about = first + [finding for finder in FINDERS for finding in finder(merged, broken)]
    return [*find_uncertified(merged), *(_after_certificate(one, merged) for one in about)]


def _after_certificate(finding: Finding, merged: Merged) -> Finding:
    """Return a finding about an odd batch with the remedy that a certificate leaves."""
    certificate = merged.certificate
    if certificate is None or finding.flag not in ODD or not finding.batches:
        return finding
    if certificate.is_certified:
        return finding._replace(remedy=HOLDS)
    remedy = certificate.verdict.remedy
    first = f"first what the certificate asks for: {remedy}. Drop no batch before."
    return finding._replace(remedy=first)


def or_drop(merged: Merged, label: str) -> str:
    """Return how to leave a batch out, as the end of a remedy; nothing once there is a certificate.

    That one is about all batches, and tells whether any of them does harm.
    """
    if merged.certificate is not None:
        return ""
    return f', or leave it out: merge(..., drop=["{label}"])'


def flags_by_batch(findings: Sequence[Finding], labels: Sequence[str]) -> list[str]:
    """Return, for each batch, the flags of the findings that name it."""
    return [", ".join(f.flag for f in findings if label in f.batches) for label in labels]


def worst_first(badness: np.ndarray, beyond: float) -> list[int]:
    """Return the batches whose badness is beyond a limit, the worst first."""
    order = np.argsort(-badness, kind="stable")
    return order[badness[order] > beyond].tolist()


def find_stuck(merged: Merged) -> Iterator[Finding]:
    """Find batches whose variance is next to nothing beside the others'."""
    width = widths(merged.maps)
    for position in worst_first(-width.min(axis=1), -STUCK):
        label = merged.labels[position]
        where = merged.parameters[width[position] < STUCK]
        yield Finding(
            "stuck",
            (label,),
            f"{label} is stuck: in {brief(where)} its sd is {width[position].min():.1g} of the "
            "median batch's, and the merge takes it for certain knowledge.",
            f"sample this batch again{or_drop(merged, label)}.",
        )


def find_unconverged(merged: Merged) -> Iterator[Finding]:
    """Find batches whose chains differ from each other."""
    diagnostics, labels = merged.diagnostics, merged.labels
    if "rhat" not in diagnostics:
        return
    rhat = np.nan_to_num(diagnostics["rhat"].values)
    for position in worst_first(rhat.max(axis=1), RHAT):
        label, at = labels[position], int(np.argmax(rhat[position]))
        yield Finding(
            "did not converge",
            (label,),
            f"{label} did not converge: R-hat is {rhat[position, at]:.2f} in "
            f"{merged.parameters[at]}.",
            "sample this batch again, longer or with another parametrisation"
            f"{or_drop(merged, label)}.",
        )


def find_few_effective(merged: Merged, broken: frozenset[str]) -> Iterator[Finding]:
    """Find batches with few effective draws."""
    diagnostics, labels = merged.diagnostics, merged.labels
    if "ess_bulk" not in diagnostics:
        return
    least = np.fmin(diagnostics["ess_bulk"].values, diagnostics["ess_tail"].values)
    least = np.where(np.isnan(least) | _among(merged, broken)[:, None], np.inf, least)
    for position in worst_first(-least.min(axis=1), -FEW_EFFECTIVE):
        label, at = labels[position], int(np.argmin(least[position]))
        yield Finding(
            "few effective draws",
            (label,),
            f"{label} has only {least[position, at]:.0f} effective draws of "
            f"{merged.parameters[at]}.",
            f"draw at least {FEW_EFFECTIVE} effective draws of every parameter in this batch.",
        )


def find_divergences(merged: Merged, broken: frozenset[str]) -> Iterator[Finding]:
    """Find batches with divergent transitions, all in one."""
    diagnostics = merged.diagnostics
    if "divergences" not in diagnostics:
        return
    labels, counted = merged.labels, diagnostics["divergences"].values
    if counts := [(labels[one], int(counted[one])) for one in worst_first(counted, 0)]:
        named = brief([f"{label} ({count})" for label, count in counts])
        yield Finding(
            "divergences",
            tuple(label for label, _ in counts),
            f"divergent transitions in {named}: the sampler missed part of these sub-posteriors.",
            "sample them again with a larger target_accept, or another parametrisation.",
        )


def find_kind(merged: Merged, broken: frozenset[str]) -> Iterator[Finding]:
    """Find a kind that was guessed, or that the batches do not look like."""
    diagnostics, maps = merged.diagnostics, merged.maps
    kind_from = maps.attrs.get(schema.KIND_FROM, "argument")
    if _is_certified(merged):
        return
    if kind_from == "guess":
        count = round(float(maps["stands_for"] * maps.sizes["batch"]))
        yield Finding("kind guessed", (), describe_guess(count), f"say what they are: {SAY_KIND}.")
    if "q_fair" not in diagnostics:
        return
    powers = merged.sampled_powers
    scatter = float(diagnostics["q_fair"]), int(diagnostics["q_df"]), powers
    if doubt := doubt_kind(*scatter, kind_from):
        yield Finding(f"looks {doubt}", (), *describe_doubt(doubt, *scatter, kind_from))


def find_disagreeing(merged: Merged, broken: frozenset[str]) -> Iterator[Finding]:
    """Find batches whose means are further from the others than chance allows."""
    labels, powers = merged.labels, merged.sampled_powers
    found = name_disagreeing(
        merged.batch_moments, powers, {labels.index(label) for label in broken}
    )
    for position in found.named:
        yield _disagrees(merged, position)
    least = min(found.rest_pvalue, float(found.parameter_pvalue.min()))
    if found.worst or least < DISAGREE_ALL:
        yield _disagree_as_a_whole(merged, found, least)


def _disagree_as_a_whole(merged: Merged, found: Disagreement, least: float) -> Finding:
    labels, names = merged.labels, merged.parameters
    worst = np.argsort(found.parameter_pvalue)[: int((found.parameter_pvalue < 0.01).sum())]
    where = f", most in {brief(names[worst])}" if worst.size else ""
    signs = []
    if least < DISAGREE_ALL:
        signs.append(f"p = {least:.1g}" + (", without those named" if found.named else ""))
    if found.worst:
        furthest = brief([labels[position] for position in found.worst])
        signs.append(f"many batches are off, furthest {furthest}")
    return Finding(
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


def find_bimodal(merged: Merged, broken: frozenset[str]) -> Iterator[Finding]:
    """Find batches with two modes; where most have them, the posterior itself does."""
    diagnostics = merged.diagnostics
    if "valley" not in diagnostics:
        return
    valley, names = diagnostics["valley"].values, merged.parameters
    deep = (valley > VALLEY) & ~_among(merged, broken)[:, None]
    common = 2 * deep.sum(axis=0) > len(deep)
    own = deep & ~common
    for position in worst_first(np.where(own, valley, 0.0).max(axis=1), VALLEY):
        label = merged.labels[position]
        yield Finding(
            "bimodal",
            (label,),
            f"{label} has two modes in {brief(names[own[position]])}, most other batches one.",
            "look at plot_batches(merged); use larger batches, or sample this one again"
            f"{or_drop(merged, label)}.",
        )
    if common.any():
        yield Finding(
            "bimodal",
            (),
            f"{brief(names[common])} has two modes in most batches: an affine map of the draws "
            "moves both modes together and cannot mend how they are weighted.",
            "check whether the modes are labels that switch (order them), and use larger batches.",
        )


def find_wide(merged: Merged, broken: frozenset[str]) -> Iterator[Finding]:
    """Find batches that know much less than the others."""
    width, names = widths(merged.maps), merged.parameters
    width[_among(merged, broken)] = 0.0
    for position in worst_first(width.max(axis=1), WIDE):
        label, worst = merged.labels[position], int(np.argmax(width[position]))
        yield Finding(
            "wide",
            (label,),
            f"{label} is {width[position, worst]:.3g} times as wide as the median batch in "
            f"{names[worst]}: it holds little about it, or its chains wandered off.",
            "stratify the split so that every batch has such rows, or use fewer, larger batches.",
        )


def find_shape(merged: Merged, broken: frozenset[str]) -> Iterator[Finding]:
    """Find batches whose mapped marginals have another shape than the others'."""
    diagnostics, labels = merged.diagnostics, merged.labels
    if "shape" not in diagnostics:
        return
    shape, noise = diagnostics["shape"].values, diagnostics["shape_noise"].values
    beyond = np.nan_to_num(shape - 2 * noise)
    beyond[_among(merged, broken)] = 0.0
    for position in worst_first(beyond.max(axis=1), SHAPE):
        label, at = labels[position], int(np.argmax(beyond[position]))
        yield Finding(
            "shape differs",
            (label,),
            f"{label} differs in shape from the other batches, most in {merged.parameters[at]}: "
            f"{shape[position, at]:.2f} of its mass lies elsewhere ({noise[position, at]:.2f} by "
            "chance).",
            "look at plot_batches(merged); use larger batches, or a transform that makes the "
            "sub-posteriors closer to Gaussian.",
        )


def find_skewed(merged: Merged, broken: frozenset[str]) -> Iterator[Finding]:
    """Find parameters that are strongly skewed where they are merged."""
    diagnostics = merged.diagnostics
    if not {"skewness", "least", "greatest"} <= set(diagnostics):
        return
    if len(merged.labels) == 1 or _is_certified(merged):
        return
    skewness = np.median(diagnostics["skewness"].values, axis=0)
    strong = np.abs(skewness) > SKEWED
    if strong.any():
        advice = _skew_advice(merged, skewness, strong)
        yield Finding(
            "skewed",
            (),
            f"{brief(merged.parameters[strong])} is strongly skewed in the space of the merge "
            f"(skewness {skewness[np.argmax(np.abs(skewness))]:.1f}): far from Gaussian, where the "
            "merge is exact.",
            f"{advise_skewed(merged.variables[strong].tolist(), advice)}.",
        )


def _skew_advice(merged: Merged, skewness: np.ndarray, strong: np.ndarray) -> SkewAdvice:
    diagnostics = merged.diagnostics
    owners = merged.variables
    least, greatest = diagnostics["least"].values, diagnostics["greatest"].values
    ranges = {
        name: (float(least[:, owners == name].min()), float(greatest[:, owners == name].max()))
        for name in np.unique(owners[strong]).tolist()
    }
    suggested = suggest_transforms(owners[strong], skewness[strong], ranges)
    return SkewAdvice(merged.transformed, suggested, merged.kind)


def find_expected_error(merged: Merged, broken: frozenset[str]) -> Iterator[Finding]:
    """Find a merge of which the batches' number and skewness say that it is off."""
    if not broken and (error := expected_error(merged)) >= LARGE_ERROR:
        yield Finding("expected error", (), describe_error(error), remove_error(merged))


def expected_error(merged: Merged) -> float:
    """Return by how many posterior sds the mean is expected off; zero where that was mended."""
    if merged.refinement.is_settled or merged.certificate is not None:
        return 0.0
    return _merge_error(merged)


def _merge_error(merged: Merged) -> float:
    diagnostics = merged.diagnostics
    errors = [diagnostics.get(name, 0.0) for name in ("expected_error", "skewness_error")]
    return float(np.nan_to_num(errors).max())


def remove_error(merged: Merged) -> str:
    """Return how to remove the expected error."""
    if merged.refinement.undone:
        return "merge fewer, larger batches, since refine led away from the posterior."
    return "refine(merged, models) removes it; so do fewer, larger batches."


def find_prior_error(merged: Merged, broken: frozenset[str]) -> Iterator[Finding]:
    """Find a merge that the shape of the prior puts off."""
    maps = merged.maps
    error = float(merged.diagnostics.get("prior_error", 0.0))
    if merged.refinement.is_refined or merged.certificate is not None or not error >= LARGE_ERROR:
        return
    missing = 1.0 - float((maps["prior_power"] / maps["power"]).sum())
    yield Finding(
        "prior's shape",
        (),
        describe_prior_error(error, missing),
        f"{AVOID_PRIOR[0].lower()}{AVOID_PRIOR[1:]}",
    )


def describe_error(error: float) -> str:
    """Return the expected error in words."""
    return (
        f"expect an error of the order of {error:.1g} posterior sds: the batches are many, small "
        "or skewed, and their log densities not quadratic between their means."
    )


def find_refine(merged: Merged, broken: frozenset[str]) -> Iterator[Finding]:
    """Find what `refine` warned of, and a first step too long to be the error of a merge."""
    refinement = merged.refinement
    if _is_certified(merged):
        return
    if refinement.doubt is not None:
        flag, what, remedy = refinement.doubt
        yield Finding(flag, (), f"{what}.", f"{remedy[:1].lower()}{remedy[1:]}")
    if not refinement.is_refined:
        return
    first = float(refinement.steps[0])
    if first > FAR * max(_merge_error(merged), LARGE_ERROR):
        yield Finding(
            "long step",
            (),
            f"the first step of refine was {first:.3g} posterior sds long, far beyond the error of "
            "a merge: the densities are of other data than the draws, or in other units, or the "
            "batches did not converge.",
            "compare the densities with the batches' draws, and certify the result.",
        )


def find_few_draws(merged: Merged, broken: frozenset[str]) -> Iterator[Finding]:
    """Find merged sds that few draws made too small."""
    if merged.refinement.is_refined or _is_certified(merged):
        return
    weights = np.where(_among(merged, broken), 0.0, 1.0 / merged.maps["power"].values)
    bias = _uncorrected(merged)
    shrinkage = float(np.average(bias, weights=weights)) if weights.any() else 0.0
    if shrinkage > SHRINKAGE:
        yield Finding(
            "few draws",
            (),
            "the draws are few for so many parameters: by their covariances the merged sds are "
            f"{_too_small(merged, shrinkage)}.",
            "draw more, leave deterministics out (var_names, or model=), or merge with "
            'covariance="corrected".',
        )


def _is_certified(merged: Merged) -> bool:
    return merged.certificate is not None and merged.certificate.is_certified


def _too_small(merged: Merged, shrinkage: float) -> str:
    if merged.maps.attrs.get(schema.COVARIANCE_ESTIMATOR) == "shrunk":
        return f"up to about {100 * shrinkage:.0f}% too small, where parameters are correlated"
    return f"about {100 * shrinkage:.0f}% too small"


def _uncorrected(merged: Merged) -> np.ndarray:
    """Return the batches' shares by which sds are too small, zero where that was corrected for."""
    diagnostics, maps = merged.diagnostics, merged.maps
    bias = diagnostics["precision_bias"].values
    estimator = maps.attrs.get(schema.COVARIANCE_ESTIMATOR, "sample")
    if estimator == "sample":
        return bias
    if estimator == "shrunk":
        return np.minimum(bias, MOST_SHRUNK)
    if estimator != "corrected":
        return np.zeros_like(bias)
    sizes, parameters = diagnostics["effective_size"].values, maps.sizes["parameter"]
    return np.where([correction(size, parameters) is None for size in sizes], bias, 0.0)


def find_alone(merged: Merged, broken: frozenset[str]) -> Iterator[Finding]:
    """Find batches that nearly alone determine some direction of the merged posterior.

    The share of batch b in the precision along an eigenvector of ``L' V_b L`` is ``1 / (p_b w)``.
    """
    if len(merged.labels) == 1:
        return
    powers = merged.maps["power"].values
    shares = merged.diagnostics["eigenvalue_max"].values ** 2 / powers
    for position in worst_first(np.where(_among(merged, broken), 0.0, shares), ALONE):
        label, share = merged.labels[position], min(shares[position], 1.0)
        yield Finding(
            "decides alone",
            (label,),
            f"{label} decides some direction of the merged posterior nearly alone "
            f"({100 * share:.0f}% of its precision): no other batch can check it.",
            "shuffle the rows before splitting, or stratify the split so that every batch has rows "
            "about every parameter.",
        )


def find_uncertified(merged: Merged) -> Iterator[Finding]:
    """Find a certificate that does not certify."""
    if merged.certificate is not None and not merged.certificate.is_certified:
        verdict = merged.certificate.verdict
        reason = f"{verdict.reason[0].upper()}{verdict.reason[1:]}."
        yield Finding(verdict.status, (), reason, f"{verdict.remedy}.")


FINDERS: tuple[Finder, ...] = (
    find_kind,
    find_disagreeing,
    find_bimodal,
    find_shape,
    find_wide,
    find_alone,
    find_divergences,
    find_few_effective,
    find_skewed,
    find_expected_error,
    find_refine,
    find_prior_error,
    find_few_draws,
)


def _among(merged: Merged, chosen: frozenset[str]) -> np.ndarray:
    return np.array([label in chosen for label in merged.labels])

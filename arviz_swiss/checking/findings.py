"""What speaks against a merge as a whole, and all findings in the order in which they are told.

A check is one small function that takes `Evidence` and gives `Finding`s: a new one is one more
function, in `FINDERS`.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr

from arviz_swiss.base.gaussian import correction
from arviz_swiss.checking.batch_findings import FIND_BROKEN, FIND_ODD
from arviz_swiss.checking.evidence import Evidence, Finder, Finding
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
from arviz_swiss.merging.powers import TILTED
from arviz_swiss.merging.records import SKEWED_REMEDY, describe_skewed, skewed_parameters
from arviz_swiss.merging.warn import advise_skewed, suggest_transforms

SKEWED = 1.0
# Expected errors in posterior sds: worth a sentence, and a finding.
NOTED_ERROR = 0.2
LARGE_ERROR = 0.5
# A first step of `refine` that is so many times the expected error comes from somewhere else.
FAR = 10.0
# Flags of batches that differ from the others, which a certificate says more about.
ODD = ("disagrees", "bimodal", "shape differs", "wide", "decides alone")
CORRECT_IT = ', or merge with covariance="corrected"'
HOLDS = (
    "nothing for the sake of this merge: the certificate says that its mean and sds are those of "
    "the full posterior. Without this batch they would not be."
)


def find_all(merged: Merged, statistics: xr.Dataset) -> list[Finding]:
    """Return all findings about a merged object; of worthless batches nothing but that."""
    evidence = Evidence(merged, statistics)
    worthless = [finding for finder in FIND_BROKEN for finding in finder(evidence)]
    evidence = Evidence(merged, statistics, frozenset(named_batches(worthless)))
    others = [finding for finder in FINDERS for finding in finder(evidence)]
    told = (_after_certificate(finding, merged) for finding in worthless + others)
    # It compares with the full posterior, which says more than any comparison of batches.
    return [*find_uncertified(evidence), *told]


def _after_certificate(finding: Finding, merged: Merged) -> Finding:
    """Return a finding about an odd batch with the remedy that a certificate leaves."""
    certificate = merged.certificate
    if certificate is None or finding.flag not in ODD or not finding.batches:
        return finding
    if certificate.is_certified:
        return finding._replace(remedy=HOLDS)
    first = f"first what the certificate asks for: {certificate.verdict.remedy}"
    return finding._replace(remedy=f"{first}. Drop no batch before.")


def named_batches(findings: Sequence[Finding]) -> list[str]:
    """Return the batches that any finding names, in the order of the findings."""
    return list(dict.fromkeys(label for finding in findings for label in finding.batches))


def flags_by_batch(findings: Sequence[Finding], labels: Sequence[str]) -> list[str]:
    """Return, for each batch, the flags of the findings that name it."""
    return [", ".join(f.flag for f in findings if label in f.batches) for label in labels]


def find_uncertified(evidence: Evidence) -> Iterator[Finding]:
    """Find a certificate that does not certify."""
    certificate = evidence.merged.certificate
    if certificate is not None and not certificate.is_certified:
        status, reason, remedy = certificate.verdict
        yield Finding(status, (), f"{reason[0].upper()}{reason[1:]}.", f"{remedy}.")


def find_kind(evidence: Evidence) -> Iterator[Finding]:
    """Find a kind that was guessed, or that the batches do not look like."""
    maps = evidence.merged.maps
    kind_from = maps.attrs.get(schema.KIND_FROM, "argument")
    if evidence.is_certified:
        return
    if kind_from == "guess":
        count = round(float(maps["stands_for"] * maps.sizes["batch"]))
        yield Finding("kind guessed", (), describe_guess(count), f"say what they are: {SAY_KIND}.")
    if "q_fair" not in evidence.statistics or evidence.merged.kind == TILTED:
        return
    q, degrees = float(evidence.values("q_fair")), int(evidence.values("q_df"))
    scatter = q, degrees, evidence.merged.scatter
    if doubt := doubt_kind(*scatter, kind_from):
        yield Finding(f"looks {doubt}", (), *describe_doubt(doubt, *scatter, kind_from))


def find_skewed(evidence: Evidence) -> Iterator[Finding]:
    """Find parameters that are strongly skewed where they are merged."""
    merged = evidence.merged
    if len(merged.labels) == 1 or merged.refinement.is_settled or evidence.is_certified:
        return
    skewness = np.median(evidence.values("skewness"), axis=0)
    strong = np.abs(skewness) > SKEWED
    if not strong.any():
        return
    variables, least, greatest = merged.variables, *map(evidence.values, ("least", "greatest"))
    names = variables[strong].tolist()
    own = {name: variables == name for name in names}
    ranges = {name: (least[:, own[name]].min(), greatest[:, own[name]].max()) for name in names}
    suggested = suggest_transforms(variables[strong], skewness[strong], ranges)
    yield Finding(
        "skewed",
        (),
        f"{brief(merged.parameters[strong])} is strongly skewed in the space of the merge "
        f"(skewness {skewness[np.argmax(np.abs(skewness))]:.1f}): far from Gaussian, where the "
        "merge is exact.",
        f"{advise_skewed(names, merged.transformed, suggested, merged.kind)}.",
    )


def find_expected_error(evidence: Evidence) -> Iterator[Finding]:
    """Find a merge of which the batches' number and skewness say that it is off."""
    if not evidence.broken and (error := expected_error(evidence)) >= LARGE_ERROR:
        yield Finding("expected error", (), describe_error(error), remove_error(evidence.merged))


def expected_error(evidence: Evidence) -> float:
    """Return by how many posterior sds the mean is expected off; zero where that was mended."""
    if evidence.merged.refinement.is_settled or evidence.merged.certificate is not None:
        return 0.0
    return _merge_error(evidence)


def _merge_error(evidence: Evidence) -> float:
    names = ("expected_error", "skewness_error")
    return float(np.nan_to_num([evidence.statistics.get(name, 0.0) for name in names]).max())


def describe_error(error: float) -> str:
    """Return the expected error in words."""
    return (
        f"expect an error of the order of {error:.1g} posterior sds: the batches are many, small "
        "or skewed, and their log densities not quadratic between their means."
    )


def remove_error(merged: Merged) -> str:
    """Return how to remove the expected error."""
    if merged.refinement.undone:
        return "merge fewer, larger batches, since refine led away from the posterior."
    if schema.DROPPED in merged.attrs:
        return "merge fewer, larger batches, or all of them: refine needs all."
    return "refine(merged, models) removes it; so do fewer, larger batches."


def find_prior_error(evidence: Evidence) -> Iterator[Finding]:
    """Find a merge that the shape of the prior puts off."""
    merged, maps = evidence.merged, evidence.merged.maps
    error = float(evidence.statistics.get("prior_error", 0.0))
    if merged.refinement.is_refined or merged.certificate is not None or not error >= LARGE_ERROR:
        return
    missing = 1.0 - float((maps["prior_power"] / maps["power"]).sum())
    remedy = f"{AVOID_PRIOR[0].lower()}{AVOID_PRIOR[1:]}"
    yield Finding("prior's shape", (), describe_prior_error(error, missing), remedy)


def find_refine(evidence: Evidence) -> Iterator[Finding]:
    """Find what `refine` warned of, and a first step too long to be the error of a merge."""
    refinement = evidence.merged.refinement
    if evidence.is_certified:
        return
    if refinement.doubt is not None:
        flag, what, remedy = refinement.doubt
        yield Finding(flag, (), f"{what}.", f"{remedy[:1].lower()}{remedy[1:]}")
    if not refinement.is_refined or evidence.merged.kind == TILTED:
        return
    first = float(refinement.steps[0])
    if first > FAR * max(_merge_error(evidence), LARGE_ERROR):
        yield Finding(
            "long step",
            (),
            f"the first step of refine was {first:.3g} posterior sds long, far beyond the error of "
            "a merge: the densities are of other data than the draws, or in other units, or the "
            "batches did not converge.",
            "compare the densities with the batches' draws"
            f"{', and certify the result' if evidence.merged.is_moved else ''}.",
        )


def find_skewed_sites(evidence: Evidence) -> Iterator[Finding]:
    """Find parameters whose shape a Gaussian of each batch cannot stand for."""
    sites = evidence.merged.groups.get(schema.SITES)
    if sites is None or evidence.is_certified:
        return
    if evidence.merged.is_redrawn:  # by the density itself, whatever its shape
        return
    if parameters := skewed_parameters(sites):
        yield Finding("skewed", (), f"{describe_skewed(parameters)}.", f"{SKEWED_REMEDY}.")


def find_few_draws(evidence: Evidence) -> Iterator[Finding]:
    """Find merged sds that few draws made too small."""
    merged, maps = evidence.merged, evidence.merged.maps
    if merged.refinement.is_refined or evidence.is_certified or evidence.is_broken.all():
        return
    bias, sizes = evidence.values("precision_bias"), evidence.values("effective_size")
    is_too_few = np.array([correction(size, maps.sizes["parameter"]) is None for size in sizes])
    estimator = maps.attrs.get(schema.COVARIANCE_ESTIMATOR, "sample")
    left = {
        "sample": bias,
        "shrunk": np.minimum(bias, MOST_SHRUNK),
        "corrected": np.where(is_too_few, bias, 0.0),
    }
    weights = np.where(evidence.is_broken, 0.0, 1.0 / maps["power"].values)
    shrinkage = np.average(left.get(estimator, np.zeros_like(bias)), weights=weights)
    if shrinkage > SHRINKAGE:
        size = f"about {shrinkage:.0%} too small"
        if estimator == "shrunk":
            size = f"up to {size}, where parameters are correlated"
        yield Finding(
            "few draws",
            (),
            "the draws are few for so many parameters: by their covariances the merged sds are "
            f"{size}.",
            "draw more, or leave deterministics out (var_names, or model=)"
            f"{'' if is_too_few.any() else CORRECT_IT}.",
        )


FINDERS: tuple[Finder, ...] = (
    find_kind,
    *FIND_ODD,
    find_skewed,
    find_expected_error,
    find_refine,
    find_skewed_sites,
    find_prior_error,
    find_few_draws,
)

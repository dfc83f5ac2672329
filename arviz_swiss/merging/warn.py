"""What `merge` warns of, in words that say what it means for the result and what to do."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from arviz_swiss.base.gaussian import Gaussian, Glance, Moments, correction
from arviz_swiss.base.heterogeneity import (
    DISAGREE_ALL,
    DISAGREE_ONE,
    name_disagreeing,
    parameter_pvalues,
)
from arviz_swiss.data import schema
from arviz_swiss.data.messages import brief, warn
from arviz_swiss.merging.batches import MISSING, Batch, is_missing_values, range_of
from arviz_swiss.merging.diagnostics import (
    AVOID_PRIOR,
    LOOKS_INFLATED,
    LOOKS_PLAIN,
    MOST_SHRUNK,
    SAY_KIND,
    SHRINKAGE,
    MomentDiagnostics,
    describe_doubt,
    describe_guess,
    describe_prior_error,
    doubt_kind,
)
from arviz_swiss.merging.estimate import Estimator, Frame
from arviz_swiss.merging.local_draws import LocalMoves
from arviz_swiss.merging.match import Matched

# In posterior sds: `report` tells smaller errors too.
FAR_OFF = 1.0
# Below this p-value `merge` itself warns of a kind that the user named; `report` tells it anyway.
EXTREME = 1e-6
# Stronger than what `report` tells, since this is seen by everyone who merges.
STRONGLY_SKEWED = 1.5
CHAINS_APART = 1.2
DIVERGENT = 0.01
MOST_NAMED = 3


def warn_left_out(matched: Matched, kept: Collection[str], has_model: bool = False) -> None:
    """Name, in one warning, the variables that are neither merged nor kept in another way."""
    reasons = []
    missing = [name for name in matched.local if is_missing_values(matched.batches, name)]
    missing += [
        name for name in matched.deterministic if f"{name}{MISSING}" in missing and name not in kept
    ]
    if missing:
        reasons.append(
            f"{', '.join(missing)} (missing values: PyMC draws those of outcomes anew, given the "
            "merged parameters; those of predictors, without regard to the outcome)"
        )
    if lost := [name for name in matched.local if name not in {*kept, *missing}]:
        reasons.append(
            f"{', '.join(lost)} (batch-local, by coordinates that differ between batches: a model "
            "that has them draws them from the prior when it predicts from the merged posterior)"
        )
    if lost := [name for name in matched.deterministic if name not in {*kept, *missing}]:
        remedy = (
            ", and in the model no function of the merged variables alone: recompute from the draws"
            if has_model
            else ": pass model=, or recompute from the merged draws"
        )
        reasons.append(f"{', '.join(lost)} (deterministic{remedy})")
    if reasons:
        warn(
            f"left out of the merge: {'; '.join(reasons)}. Parameters that the batches share need "
            "the same coordinates in all of them; var_names chooses what to merge."
        )


def warn_kind(
    diagnostics: MomentDiagnostics, powers: np.ndarray, kind_from: str, count: int
) -> str | None:
    """Warn, once, of a kind that was guessed or is doubted; return what the batches look like."""
    scatter = diagnostics.q_fair, diagnostics.q_df, powers
    doubt = doubt_kind(*scatter, kind_from)
    parts: list[str] = []
    if kind_from == "guess":
        parts = [f"{describe_guess(count)} Say what they are: {SAY_KIND}."]
    is_extreme = doubt == LOOKS_PLAIN and diagnostics.q_lower_pvalue < EXTREME
    if doubt and (is_extreme or doubt == LOOKS_INFLATED or parts):
        parts += describe_doubt(doubt, *scatter, kind_from)
    if parts:
        text = " ".join(part[:1].upper() + part[1:] for part in parts)
        warn(text[:1].lower() + text[1:])
    return doubt


def warn_heterogeneity(
    diagnostics: MomentDiagnostics,
    batches: Sequence[Batch],
    moments: Sequence[Moments],
    powers: np.ndarray,
    frame: Frame,
) -> None:
    """Warn, once, when the batches disagree by more than chance allows."""
    by_parameter = parameter_pvalues(moments, powers)
    least = diagnostics.batch_q_pvalue.min()
    if diagnostics.q_pvalue < DISAGREE_ALL:
        sign = (
            f"Q = {diagnostics.q:.4g} on {diagnostics.q_df} degrees of freedom, "
            f"p = {diagnostics.q_pvalue:.2g}"
        )
    elif by_parameter.min() < DISAGREE_ALL:
        sign = f"in {frame.labels[int(by_parameter.argmin())]}: p = {by_parameter.min():.2g}"
    elif least < DISAGREE_ONE / len(batches):
        sign = f"p = {least:.2g} for one of {len(batches)} batches"
    else:
        return
    odd = name_disagreeing(moments, powers)
    labels = [str(batches[position]) for position in odd.named or odd.worst]
    named = f", most of all {brief(labels)}" if labels else ""
    warn(
        f"the batches disagree ({sign}){named}: sorted data, a misspecified model, or "
        "chains that did not converge. The merged posterior may stand for none of them. Shuffle "
        "the rows before splitting, and look at report(merged): one bad batch can be left out with "
        "merge(..., drop=)."
    )


def warn_few_draws(
    diagnostics: MomentDiagnostics, weights: np.ndarray, covariance: Estimator
) -> None:
    """Warn when few draws make the merged sds too small by over 2%, or cannot be corrected for."""
    parameters, fewest = diagnostics.shift.shape[1], int(diagnostics.effective_size.min())
    have = f"{fewest} effective draws of the squares for {parameters} parameters"
    shrinkage = float(np.average(diagnostics.precision_bias, weights=weights))
    if covariance == "sample" and shrinkage > SHRINKAGE:
        warn(
            f"the merged sds are about {100 * shrinkage:.0f}% too small: {have} make the "
            'batches\' precisions too large. Draw more, or pass covariance="corrected".'
        )
    if covariance == "corrected" and correction(fewest, parameters) is None:
        warn(
            f"{have} are too few to correct the precision of every batch: the merged sds remain "
            "too small. Draw more, or merge fewer parameters (var_names, model=)."
        )
    if covariance == "shrunk" and shrinkage > SHRINKAGE:
        warn(
            f"the merged sds of correlated parameters are up to about "
            f'{100 * min(shrinkage, MOST_SHRUNK):.0f}% too small: covariance="shrunk" cannot '
            f"make up for {have}. Leave deterministics out (var_names, or model=), or draw "
            f"more: {25 * (parameters + 2)} effective draws are enough."
        )


def warn_few_prior_draws(prior: Moments, pooled: Gaussian, missing_prior: float) -> None:
    """Warn when few draws make the prior's precision so large that sds are off by over 2%."""
    parameters = prior.mean.size
    factor = correction(prior.draws, parameters)
    excess = np.inf if factor is None else 1.0 / factor - 1.0
    share = np.einsum("ij,ji->", pooled.covariance, prior.precision) / parameters
    error = abs(missing_prior) * excess * share / 2
    if error > SHRINKAGE:
        size = f"about {100 * error:.0f}% too {'large' if missing_prior < 0 else 'small'}"
        warn(
            f"the merged sds are {size if error < 1 else 'not to be trusted'}: {prior.draws} draws "
            f"of the prior for {parameters} parameters make its precision too large, which counts "
            f"{abs(missing_prior):.4g} times. Draw more of the prior, or pass "
            'covariance="corrected".'
        )


def warn_prior_shape(error: float, missing_prior: float) -> None:
    """Warn when the prior, taken as a Gaussian, puts the merged mean off by over a posterior sd."""
    if error > FAR_OFF:
        warn(f"{describe_prior_error(error, missing_prior)} {AVOID_PRIOR}")


def warn_poor_batches(
    batches: Sequence[Batch], glances: Sequence[Glance], frame: Frame, kind: str, any_shape: bool
) -> None:
    """Warn, once, of batches that are unconverged, divergent or, unless that is well, skewed."""
    skewed = "" if any_shape or len(batches) < 2 else _tell_skewed(batches, glances, frame, kind)
    parts = [skewed, _tell_apart(batches, glances, frame), _tell_divergent(batches)]
    if told := [part for part in parts if part]:
        warn(
            f"batches are {'. Batches are '.join(told)}. The merged posterior can be many sds "
            "off; report(merged) tells more."
        )


def _tell_skewed(
    batches: Sequence[Batch], glances: Sequence[Glance], frame: Frame, kind: str
) -> str:
    skewness = np.median([glance.skewness for glance in glances], axis=0)
    strong = np.flatnonzero(np.abs(skewness) > STRONGLY_SKEWED)
    if not strong.size:
        return ""
    strong = strong[np.argsort(-np.abs(skewness[strong]))]
    named = brief([f"{frame.labels[at]} ({skewness[at]:.1f})" for at in strong], MOST_NAMED)
    variables, transformed = frame.owners[strong], frame.space.transforms
    ranges = {}
    for name in set(variables.tolist()) - set(transformed):
        ends = np.array([range_of(batch, name) for batch in batches])
        ranges[name] = float(ends[:, 0].min()), float(ends[:, 1].max())
    suggested = suggest_transforms(variables, skewness[strong], ranges)
    return (
        f"strongly skewed in the space of the merge (skewness of the median batch: {named}); "
        f"{advise_skewed(variables.tolist(), transformed, suggested, kind)}"
    )


def _tell_apart(batches: Sequence[Batch], glances: Sequence[Glance], frame: Frame) -> str:
    rhat = np.nan_to_num(np.array([glance.rhat for glance in glances]))
    apart = np.flatnonzero(rhat.max(axis=1) > CHAINS_APART)
    named = [f"{batches[b]} ({frame.labels[int(rhat[b].argmax())]})" for b in apart.tolist()]
    lie = f"their chains lie apart: {brief(named, MOST_NAMED)}; sample them again, longer"
    return f"not converged, {lie}" if named else ""


def _tell_divergent(batches: Sequence[Batch]) -> str:
    named = []
    for batch in batches:
        diverging = batch.groups.get(schema.SAMPLE_STATS, {}).get("diverging")
        if diverging is not None and (share := float(diverging.mean())) > DIVERGENT:
            named.append(f"{batch} ({100 * share:.0f}% of draws)")
    remedy = "sample them with a larger target_accept, or another parametrisation"
    return f"divergent: {brief(named, MOST_NAMED)}; {remedy}" if named else ""


def advise_skewed(
    variables: Sequence[str], transformed: Collection[str], suggested: Mapping[str, str], kind: str
) -> str:
    """Return what to do about skewed variables, some merged on another scale than their own."""
    names = list(dict.fromkeys(variables))
    moved = [name for name in names if name in transformed]
    mended = [name for name in names if name not in moved and name in suggested]
    parts = []
    if mended:
        choices = ", ".join(f'"{name}": "{suggested[name]}"' for name in mended)
        parts.append(f"merge on another scale, transforms={{{choices}}}")
    if moved:
        own = ", ".join(f'"{name}": None' for name in moved)
        # the prior was raised to a power in the space where it must be merged
        again = f"sample again with untransformed={moved!r} and " * (kind == "fractionated")
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
    """Return transforms, by range: a log draws in the right tail, a logit near one the left."""
    suggested = {}
    for name, (least, greatest) in ranges.items():
        own = skewness[variables == name]
        if least > 0 and (own > 0).all():
            suggested[name] = "log"
        elif least > 0 and greatest < 1:
            suggested[name] = "logit"
    return suggested


def warn_unordered(matched: Matched, moves: LocalMoves) -> None:
    """Say where predictions of a model of all data, which go by position, would be wrong."""
    dims = {moves.dims[name] for name in matched.local if name in moves.dims}
    wrong = [dim for dim in moves.unordered if dim in dims]
    if not wrong:
        return
    if repeated := [dim for dim in wrong if dim in moves.relabelled]:
        remedy = (
            f"The labels along {', '.join(repeated)} repeat between batches: give the model coords "
            "with a label of its own for every group, and sample again"
        )
    else:
        remedy = (
            "Pass the model of all data (after drop=, of the remaining rows) as model=, whose "
            "coords give the order"
        )
    warn(
        f"the order of the elements along {', '.join(wrong)} in the full data is not known. PyMC "
        "takes them by position, or draws them anew from the prior, so that predictions and log "
        f"likelihoods of the merged posterior would be wrong. {remedy}."
    )

"""How good is the merge? What the batches' moments alone can tell, without a full-data run."""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from arviz_swiss.base.bias import expected_error
from arviz_swiss.base.gaussian import Gaussian, Moments, correction, precision_bias
from arviz_swiss.base.heterogeneity import (
    DISAGREE_ALL,
    DISAGREE_ONE,
    batch_heterogeneity,
    compare_alone,
    fairness,
    heterogeneity,
    name_disagreeing,
    parameter_pvalues,
    scores,
)
from arviz_swiss.base.linalg import Spectrum
from arviz_swiss.data.messages import MergeWarning, brief

SHRINKAGE = 0.02
# With Ledoit-Wolf covariances sds of correlated parameters are too small by as much as with sample
# covariances, but never by more than this, also with half as many draws as parameters.
MOST_SHRUNK = 0.6
# In posterior sds: `report` tells smaller errors too.
FAR_OFF = 1.0
AVOID_PRIOR = (
    'Sample kind="fractionated" or "inflated" batches, which need no draws of the prior, or refine '
    "the merge."
)


class MomentDiagnostics(NamedTuple):
    """Statistics of the merge that need only moments; one row a batch, but for single numbers."""

    q: float
    q_fair: float
    q_df: int
    q_pvalue: float
    q_lower_pvalue: float
    expected_error: float
    batch_q: np.ndarray
    batch_q_pvalue: np.ndarray
    shift: np.ndarray
    sd_ratio: np.ndarray
    displacement: np.ndarray
    eigenvalue_min: np.ndarray
    eigenvalue_max: np.ndarray
    influence: np.ndarray
    effective_size: np.ndarray
    precision_bias: np.ndarray
    prior_error: float = np.nan


def diagnose_moments(
    batches: Sequence[Moments],
    pooled: Gaussian,
    spectra: Sequence[Spectrum],
    powers: np.ndarray,
    stands_for: float = 1.0,
    alone: bool = True,
) -> MomentDiagnostics:
    """Return the statistics of the merge that come from moments alone.

    With ``z = U' L' (mu_b - mu)`` and w the eigenvalues of ``L' V_b L``, the heterogeneity of a
    batch ``(mu_b - mu)' (p_b V_b - V)^-1 (mu_b - mu)`` is ``sum z^2 / (p_b w - 1)``, and leaving it
    out moves the merged mean by ``z / (p_b w - 1)``. A direction that one batch alone determines
    (``p_b w = 1``) has no other batch to compare with: it counts in no p-value, and the influence
    of that batch is infinite.

    Parameters
    ----------
    stands_for : float, default 1.0
        Rows that the merged posterior stands for over rows that it has seen.
    alone : bool, default True
        Whether the batches alone were pooled. With a prior added or subtracted they are compared
        with each other, since its error is no disagreement of theirs.
    """
    parameters = pooled.mean.size
    every = scores(batches, pooled, spectra, powers)
    values = [spectrum.values for spectrum in spectra]
    fair = fairness(batches, stands_for)
    compared = (every, spectra) if alone else compare_alone(batches, powers)
    every_q = heterogeneity(*compared, powers, fair)
    batch_q, batch_q_pvalue = batch_heterogeneity(compared[0], fair)
    influence = [
        np.sqrt(np.sum((s.distance / s.excess) ** 2)) if s.known.all() else np.inf for s in every
    ]
    spread = np.sqrt(np.diag(pooled.covariance))
    return MomentDiagnostics(
        q=every_q.q,
        q_fair=every_q.fair,
        q_df=every_q.degrees,
        q_pvalue=every_q.pvalue,
        q_lower_pvalue=every_q.lower_pvalue,
        expected_error=expected_error(batches, pooled, powers),
        batch_q=batch_q,
        batch_q_pvalue=batch_q_pvalue,
        shift=np.array([(moments.mean - pooled.mean) / spread for moments in batches]),
        sd_ratio=np.array([np.sqrt(np.diag(m.covariance)) / spread for m in batches]),
        displacement=np.array([np.sum((np.sqrt(w) - 1.0) ** 2) for w in values]),
        eigenvalue_min=np.array([w.max() ** -0.5 for w in values]),
        eigenvalue_max=np.array([w.min() ** -0.5 for w in values]),
        influence=np.array(influence),
        effective_size=np.array([moments.effective for moments in batches]),
        precision_bias=np.array([precision_bias(m.effective, parameters) for m in batches]),
    )


def warn_heterogeneity(
    diagnostics: MomentDiagnostics,
    batches: Sequence,
    moments: Sequence[Moments],
    powers: np.ndarray,
    labels: Callable[[], Sequence[str]],
) -> None:
    """Warn, once, when the batches disagree by more than chance allows.

    Parameters
    ----------
    labels : callable
        Gives the labels of the parameters.
    """
    by_parameter = parameter_pvalues(moments, powers)
    least = diagnostics.batch_q_pvalue.min()
    if diagnostics.q_pvalue < DISAGREE_ALL:
        sign = (
            f"Q = {diagnostics.q:.4g} on {diagnostics.q_df} degrees of freedom, "
            f"p = {diagnostics.q_pvalue:.2g}"
        )
    elif by_parameter.min() < DISAGREE_ALL:
        sign = f"in {labels()[int(by_parameter.argmin())]}: p = {by_parameter.min():.2g}"
    elif least < DISAGREE_ONE / len(batches):
        sign = f"p = {least:.2g} for one of {len(batches)} batches"
    else:
        return
    found = name_disagreeing(moments, powers)
    odd = [str(batches[position]) for position in found.named or found.worst]
    named = f", most of all {brief(odd)}" if odd else ""
    warnings.warn(
        f"the batches disagree ({sign}){named}: sorted data, a misspecified model, or "
        "chains that did not converge. The merged posterior may stand for none of them. Shuffle "
        "the rows before splitting, and look at report(merged): one bad batch can be left out with "
        "merge(..., drop=).",
        MergeWarning,
        stacklevel=3,
    )


def warn_few_draws(diagnostics: MomentDiagnostics, weights: np.ndarray, covariance) -> None:
    """Warn when few draws make the merged sds too small by over 2%, or cannot be corrected for."""
    parameters, fewest = diagnostics.shift.shape[1], int(diagnostics.effective_size.min())
    have = f"{fewest} effective draws of the squares for {parameters} parameters"
    if covariance == "sample":
        shrinkage = float(np.average(diagnostics.precision_bias, weights=weights))
        if shrinkage > SHRINKAGE:
            warnings.warn(
                f"the merged sds are about {100 * shrinkage:.0f}% too small: {have} make the "
                'batches\' precisions too large. Draw more, or pass covariance="corrected".',
                MergeWarning,
                stacklevel=3,
            )
    if covariance == "corrected" and correction(fewest, parameters) is None:
        warnings.warn(
            f"{have} are too few to correct the precision of every batch: the merged sds remain "
            "too small. Draw more, or merge fewer parameters (var_names, model=).",
            MergeWarning,
            stacklevel=3,
        )
    if covariance == "shrunk":
        shrinkage = float(np.average(diagnostics.precision_bias, weights=weights))
        if shrinkage > SHRINKAGE:
            warnings.warn(
                f"the merged sds of correlated parameters are up to about "
                f'{100 * min(shrinkage, MOST_SHRUNK):.0f}% too small: covariance="shrunk" cannot '
                f"make up for {have}. Leave deterministics out (var_names, or model=), or draw "
                f"more: {25 * (parameters + 2)} effective draws are enough.",
                MergeWarning,
                stacklevel=3,
            )


def warn_few_prior_draws(prior: Moments, pooled: Gaussian, missing_prior: float) -> None:
    """Warn when few draws of the prior put the merged sds off by over 2%.

    Few draws make its precision, of which the pooling takes a multiple, too large.
    """
    parameters = prior.mean.size
    factor = correction(prior.draws, parameters)
    excess = np.inf if factor is None else 1.0 / factor - 1.0
    share = np.einsum("ij,ji->", pooled.covariance, prior.precision) / parameters
    error = abs(missing_prior) * excess * share / 2
    if error > SHRINKAGE:
        size = f"about {100 * error:.0f}% too {'large' if missing_prior < 0 else 'small'}"
        warnings.warn(
            f"the merged sds are {size if error < 1 else 'not to be trusted'}: {prior.draws} draws "
            f"of the prior for {parameters} parameters make its precision too large, which counts "
            f"{abs(missing_prior):.4g} times. Draw more of the prior, or pass "
            'covariance="corrected".',
            MergeWarning,
            stacklevel=3,
        )


def warn_prior_shape(error: float, missing_prior: float) -> None:
    """Warn when the prior, taken as a Gaussian, puts the merged mean off by over a posterior sd."""
    if error > FAR_OFF:
        warnings.warn(
            f"{describe_prior_error(error, missing_prior)} {AVOID_PRIOR}",
            MergeWarning,
            stacklevel=3,
        )


def describe_prior_error(error: float, missing_prior: float) -> str:
    """Return what the prior's shape does to the merge, in words."""
    taken = "subtracts" if missing_prior < 0 else "adds"
    return (
        f"expect an error of the order of {error:.1g} posterior sds: the merge {taken} the prior "
        f"{abs(missing_prior):.4g} times as a Gaussian, from which it is far where the merged "
        "posterior lies."
    )

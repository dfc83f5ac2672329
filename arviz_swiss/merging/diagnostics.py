"""How good is the merge? What the batches' moments alone can tell, without a full-data run."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2

from arviz_swiss.base.bias import expected_error
from arviz_swiss.base.gaussian import Gaussian, Moments, precision_bias
from arviz_swiss.base.heterogeneity import (
    DISAGREE_ALL,
    batch_heterogeneity,
    compare_alone,
    fairness,
    heterogeneity,
    scores,
)
from arviz_swiss.base.linalg import Spectrum

# A share by which sds may be too small before it is said.
SHRINKAGE = 0.02
# With Ledoit-Wolf covariances sds of correlated parameters are too small by as much as with sample
# covariances, but never by more than this, also with half as many draws as parameters.
MOST_SHRUNK = 0.6
AVOID_PRIOR = (
    'Sample kind="fractionated" or "inflated" batches, which need no draws of the prior, or refine '
    "the merge."
)
# What the scatter of the batches' means says of their kind.
LOOKS_PLAIN = "plain"
LOOKS_INFLATED = "inflated"
LOOKS_ALIKE = "alike"

SAY_KIND = (
    'kind="inflated" (likelihood to a power; powers=, N / n_b with total_size=N), '
    'kind="full_prior" with prior= (draws of the prior; the model as it is on every batch), or '
    'kind="fractionated" (prior to the power 1/B)'
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
    out moves the merged mean by ``z / (p_b w - 1)``: infinitely, in a direction that it alone
    determines. Not `alone`, with a prior added or subtracted, whose error is no disagreement of
    theirs, batches are compared with each other.
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
        *every_q,
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


def doubt_kind(q: float, degrees: int, powers: np.ndarray, kind_from: str) -> str | None:
    """Return what the batches look like instead of the kind that they are taken for, else None.

    Under a random partition Q is chi-squared; of plain batches that are taken as inflated by r, Q r
    is, and of inflated ones taken as plain, Q / r. A doubt needs a Q in the tail that is likelier
    under the other kind: the likelihoods are equal where ``Q = degrees * log(r) / (r - 1)``, or r
    times that. A kind that the sampling recorded is not doubted, but batches may be too alike.
    """
    power = float(np.exp(np.mean(np.log(powers))))
    ratio = max(power, powers.size)
    if not degrees or ratio <= 1.0:
        return None
    equal = degrees * np.log(ratio) / (ratio - 1.0)
    recorded = kind_from == "attributes"
    if q < equal and chi2.cdf(q, degrees) < DISAGREE_ALL:
        is_alike = recorded or power <= 1.0 or chi2.cdf(q * ratio, degrees) < DISAGREE_ALL
        return LOOKS_ALIKE if is_alike else LOOKS_PLAIN
    if recorded or power > 1.0 or q < ratio * equal or chi2.sf(q, degrees) >= DISAGREE_ALL:
        return None
    tails = chi2.cdf(q / ratio, degrees), chi2.sf(q / ratio, degrees)
    return LOOKS_INFLATED if min(tails) >= DISAGREE_ALL else None


def describe_guess(count: int) -> str:
    """Return what it means that the kind of so many batches is not known."""
    return (
        'nothing says what the batches were sampled from, so they are taken as "inflated": prior '
        f"times likelihood to the power {count}. If they are plain runs of the model, the merged "
        f"sds are {np.sqrt(count):.2g} times too wide."
    )


def describe_doubt(
    doubt: str, q: float, degrees: int, powers: np.ndarray, kind_from: str
) -> tuple[str, str]:
    """Return what the batches look like, and what to do; a kind that was named is doubted last."""
    wide = f"{np.exp(np.mean(np.log(powers)) / 2):.2g}"
    tails = chi2.cdf(q, degrees), chi2.sf(q, degrees)
    less, more = (f"(Q = {q:.3g} on {degrees} degrees of freedom, p = {p:.1g})" for p in tails)
    if doubt == LOOKS_PLAIN and kind_from != "guess":
        return (
            "the batches' means scatter far less than those of inflated ones "
            f"{less}: the prior informs most parameters more than the data, or these look like "
            f"plain (full_prior) or fractionated batches. If they are, the merged sds are about "
            f"{wide} times too wide.",
            "if the prior is as strong as that, nothing. If the likelihood was not raised to a "
            'power, pass kind="full_prior" with prior= (draws of the prior), or '
            'kind="fractionated" if the prior was. If it was, see whether every batch has rows of '
            "its own.",
        )
    if doubt == LOOKS_PLAIN:
        return (
            f"these look like plain (full_prior) or fractionated batches: their means scatter far "
            f"less than those of inflated ones {less}. If they are, the merged sds are about "
            f"{wide} times too wide.",
            'if the likelihood was not raised to a power, pass kind="full_prior" with prior= '
            '(draws of the prior), or kind="fractionated" if the prior was. If it was, see '
            "whether every batch has rows of its own; where the prior informs most parameters "
            "more than the data, nothing is wrong.",
        )
    if doubt == LOOKS_INFLATED:
        return (
            "the batches disagree by about as much as inflated ones would if taken for plain ones "
            f"{more}.",
            'if the likelihood was raised to a power, pass kind="inflated" with powers=; if not, '
            "shuffle the rows before splitting, or extend the model.",
        )
    return (
        f"the batches are more alike than rows split at random make them {less}: every batch has "
        "the same rows, or the prior informs most parameters more than the data, or the kind is "
        "another one.",
        "see that every batch has rows of its own, and that kind and powers are those that it was "
        "sampled with.",
    )


def describe_prior_error(error: float, missing_prior: float) -> str:
    """Return what the prior's shape does to the merge, in words."""
    taken = "subtracts" if missing_prior < 0 else "adds"
    return (
        f"expect an error of the order of {error:.1g} posterior sds: the merge {taken} the prior "
        f"{abs(missing_prior):.4g} times as a Gaussian, from which it is far where the merged "
        "posterior lies."
    )

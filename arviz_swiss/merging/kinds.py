"""The kind of sub-posterior: whether it is known, and whether the batches' means scatter so.

Under a random partition Q is chi-squared. Batches whose likelihood was raised to no power, but that
are taken as inflated by p, have a p-th of that; inflated ones that are taken as plain p times that.
"""

import warnings

import numpy as np
from scipy.stats import chi2

from arviz_swiss.base.heterogeneity import DISAGREE_ALL
from arviz_swiss.data.messages import MergeWarning
from arviz_swiss.merging.diagnostics import MomentDiagnostics

# What the scatter of the batches' means says of their kind.
LOOKS_PLAIN = "plain"
LOOKS_INFLATED = "inflated"
LOOKS_ALIKE = "alike"

# Below this p-value `merge` itself warns of a kind that the user named; `report` tells it anyway.
EXTREME = 1e-6

SAY_KIND = (
    'kind="inflated" (likelihood to a power; powers=, N / n_b with total_size=N), '
    'kind="full_prior" with prior= (draws of the prior; the model as it is on every batch), or '
    'kind="fractionated" (prior to the power 1/B)'
)


def doubt_kind(q: float, degrees: int, powers: np.ndarray, kind_from: str) -> str | None:
    """Return what the batches look like instead of the kind that they are taken for, else None.

    A doubt needs a Q in the tail and one that is likelier under the other kind. With r the ratio of
    the powers, Q and Q r (or Q / r) are chi-squared, and the likelihoods are equal where
    ``Q = degrees * log(r) / (r - 1)`` (or r times that).

    Parameters
    ----------
    q : float
        Heterogeneity of the batch means, allowing for the bias of few draws.
    degrees : int
        Its degrees of freedom.
    powers : array
        The likelihood powers that the batches are taken to be sampled with.
    kind_from : str
        Where the kind was read. What sampled the batches and recorded it is not doubted.

    Returns
    -------
    str or None
        `LOOKS_PLAIN`, `LOOKS_INFLATED`; or `LOOKS_ALIKE` where the means scatter less than rows
        split at random allow for any kind.
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
    """Return what the batches look like, and what to do.

    Who named the kind knows it better than one of whom it was guessed: that a strong prior holds
    the means together then comes first.
    """
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


def warn_kind(
    diagnostics: MomentDiagnostics, powers: np.ndarray, kind_from: str, count: int
) -> str | None:
    """Warn, once, of a kind that was guessed or that the batches do not look like.

    Parameters
    ----------
    count : int
        How many batches there were before any was dropped.

    Returns
    -------
    str or None
        What the batches look like instead.
    """
    scatter = diagnostics.q_fair, diagnostics.q_df, powers
    doubt = doubt_kind(*scatter, kind_from)
    parts = []
    if kind_from == "guess":
        parts = [f"{describe_guess(count)} Say what they are: {SAY_KIND}."]
    is_extreme = doubt == LOOKS_PLAIN and diagnostics.q_lower_pvalue < EXTREME
    if is_extreme or doubt == LOOKS_INFLATED or (doubt and parts):
        parts += describe_doubt(doubt, *scatter, kind_from)
    if parts:
        text = " ".join(part[:1].upper() + part[1:] for part in parts)
        warnings.warn(text[:1].lower() + text[1:], MergeWarning, stacklevel=3)
    return doubt

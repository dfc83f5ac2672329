"""Powers of the likelihood and the prior in each batch, and how the batches' weights follow.

Batch b's draws target ``prior^a_b * likelihood_b^p_b``. Its weight in the pooling is ``1 / p_b``
whatever its size, and the prior is counted ``sum_b a_b / p_b`` times.
"""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd

from arviz_swiss.data import schema
from arviz_swiss.data.messages import brief, warn
from arviz_swiss.merging.batches import Batch, prior_batches
from arviz_swiss.merging.labels import by_batch, numbers_of, renumbered

KINDS = ("inflated", "fractionated", "full_prior")
# What `refine` samples where batches have variables of their own: the posterior, but for the other
# batches' data, which a Gaussian stands for.
TILTED = "tilted"


class Powers(NamedTuple):
    """Likelihood powers ``p_b`` and prior powers ``a_b`` of the batches, and their kind.

    `kind_from` is "argument", "attributes", "powers", or "guess". `prior_share` is how many times
    the prior is to count, `stands_for` the rows that the merged posterior stands for over those it
    has seen: both 1 unless batches were dropped.
    """

    likelihood: np.ndarray
    prior: np.ndarray
    kind: str
    kind_from: str = "argument"
    prior_share: float = 1.0
    stands_for: float = 1.0

    @property
    def weights(self) -> np.ndarray:
        """The batches' weights in the pooling."""
        return 1.0 / self.likelihood

    @property
    def sampled(self) -> np.ndarray:
        """The likelihood powers that the batches were sampled with, whichever were dropped."""
        return self.likelihood * self.stands_for

    def scatter(self, effective: np.ndarray) -> np.ndarray:
        """Return how the batches' means scatter by chance, in their covariances.

        Their data make them scatter, or where all tilted ones are of one distribution their draws,
        worth so many independent ones.
        """
        return 1.0 / effective if self.kind == TILTED else self.likelihood

    @property
    def missing_prior(self) -> float:
        """How many times the prior must be added for it to count as it is to."""
        missing = self.prior_share - float(np.sum(self.prior / self.likelihood))
        return 0.0 if abs(missing) < 1e-6 else missing


def resolve_powers(batches: Sequence[Batch], kind: str | None, powers: Any) -> Powers:
    """Return the powers from the argument, else from the attributes, else from the kind."""
    if kind is None and powers is None and len(batches) > 1:
        _check_attributed(batches)
    kind_from = _find_source(batches, kind, powers)
    kind = _resolve_kind(batches, kind)
    likelihood = _from_argument(batches, powers)
    if likelihood is None:
        likelihood = _from_attrs(batches, schema.POWER)
    if likelihood is None:
        likelihood = np.full(len(batches), float(len(batches)) if kind == "inflated" else 1.0)
        if kind_from != "guess":
            _warn_unequal_sizes(batches, kind)
    prior = _from_attrs(batches, schema.PRIOR_POWER)
    if prior is None:
        share = 1.0 / len(batches) if kind == "fractionated" else 1.0
        prior = np.full(len(batches), share)
    return Powers(likelihood, prior, kind, kind_from)


def attributed_power(batch: Batch) -> float | None:
    """Return the power that a batch's attribute tells; None where it tells none."""
    power = _attrs_of(batch).get(schema.POWER)
    return float(power) if isinstance(power, Real) else None


def check_told_powers(batches: Sequence[Batch], powers: Any, told: Sequence[float | None]) -> None:
    """Refuse powers other than those that the moments of the batches tell."""
    values = _from_argument(batches, powers)
    assert values is not None
    for batch, value, own in zip(batches, values, told, strict=True):
        if own is not None and not np.isclose(value, own, rtol=1e-9, atol=0):
            raise ValueError(
                f"powers= gives {batch} the power {value}, but its moments say {own}. Leave powers "
                f"out, or take the moments of this batch again with power={value} if that is right."
            )


def keep(powers: Powers, kept: Sequence[int]) -> Powers:
    """Return the powers of the kept batches, as if there were no others.

    Weights of inflated batches are scaled to the sum that all had, so that the prior counts as
    before. Fractionated batches take their share of the prior with them when they go.
    """
    rest = powers._replace(likelihood=powers.likelihood[kept], prior=powers.prior[kept])
    if powers.kind == "inflated":
        stands_for = float(powers.weights.sum() / rest.weights.sum())
        return rest._replace(likelihood=rest.likelihood / stands_for, stands_for=stands_for)
    if powers.kind == "fractionated":
        gone = powers.prior @ powers.weights - rest.prior @ rest.weights
        return rest._replace(prior_share=1.0 - float(gone))
    return rest


def describe_rest(powers: Powers) -> str:
    """Return what the merged posterior stands for after batches were dropped."""
    count, share = powers.likelihood.size, powers.prior_share
    remaining = f"the remaining {count} batches" if count > 1 else "the remaining batch"
    if powers.kind == "inflated":
        return f"as many rows as before, all like those of {remaining}"
    prior = "the whole prior" if share == 1.0 else f"the prior to the power {share:.4g}"
    return f"the rows of {remaining} only, under {prior}"


def find_priors(batches: Sequence[Batch], powers: Powers, prior: Any) -> list[Batch]:
    """Return draws of the prior where it counts other than once; refuse to do without them."""
    check_prior_used(powers, prior)
    if not powers.missing_prior:
        return []
    priors = prior_batches(batches, prior)
    if not priors:
        refuse_prior_count(powers, batches)
    return priors


def refuse_prior_count(
    powers: Powers, batches: Sequence[Batch], by_moments: bool = False
) -> NoReturn:
    """Refuse powers that count the prior other than once; of moments, say how to take them."""
    times = float(np.sum(powers.prior / powers.likelihood))
    to = " to moments, of one batch at least" if by_moments else ""
    if powers.kind == "full_prior" and by_moments:
        remedy = (
            'kind="full_prior" needs draws of the prior: take the moments of a batch again with '
            'kind="full_prior" and prior=, or those of all batches with kind="full_prior" if each '
            'has a "prior" group (pm.sample_prior_predictive)'
        )
    elif powers.kind == "full_prior":
        remedy = (
            'kind="full_prior" needs draws of the prior: pass prior=, or batches with a "prior" '
            "group (pm.sample_prior_predictive)"
        )
    elif abs(times - 1) < 0.01:
        remedy = "the powers look rounded: pass N / n_b unrounded, for total_size=N"
    elif times < 1:
        remedy = (
            f"are batches missing? {_what_is_there(batches, times)} Pass all of them; or the right "
            f"kind and powers (N / n_b for total_size=N); or draws of the prior as prior={to}, for "
            "the posterior of these rows alone"
        )
    else:
        remedy = (
            "pass the powers that the batches were sampled with (N / n_b for total_size=N), the "
            f"right kind, or draws of the prior as prior={to}"
        )
    raise ValueError(
        f'the prior would be counted {times:.8g} times instead of once (kind="{powers.kind}", '
        f"likelihood powers {_range(powers.likelihood)}, prior powers {_range(powers.prior)}): "
        f"{remedy}."
    )


def check_prior_used(powers: Powers, prior: Any) -> None:
    """Refuse draws of the prior that the user gave and that would not be used."""
    if prior is None or powers.missing_prior or powers.kind == "full_prior":
        return
    if powers.likelihood.size == 1 and powers.kind_from != "argument":
        return
    guessed = ", which is only a guess" if powers.kind_from == "guess" else ""
    raise ValueError(
        f'prior= is given, but would not be used: the batches are taken as "{powers.kind}"'
        f"{guessed}, with likelihood powers {_range(powers.likelihood)} and prior powers "
        f"{_range(powers.prior)}, which count the prior once already. If they are plain runs of "
        'the model, pass kind="full_prior"; otherwise leave prior out.'
    )


def _what_is_there(batches: Sequence[Batch], share: float) -> str:
    """Say what share of the rows the batches hold by their powers, and which are missing."""
    count = len(batches)
    total = max(round(count / share), count + 1)
    labels = [str(batch.attrs.get(schema.BATCH)) for batch in batches]
    numbers, named = numbers_of(labels), ""
    if numbers and max(numbers) < total:
        absent = [renumbered(labels, n) for n in range(total) if n not in numbers]
        named = f" ({brief(absent)} not among them)"
    return (
        f"These {count} hold {100 * share:.3g}% of the rows by their powers, so there should be "
        f"about {total}{named}."
    )


def batch_sizes(batches: Sequence[Batch]) -> list[int] | None:
    """Return the number of rows of each batch, as recorded, else observed; None where unknown."""
    if all(batch.attrs.get(schema.SIZE) is not None for batch in batches):
        return [int(batch.attrs[schema.SIZE]) for batch in batches]
    return observed_sizes(batches)


def observed_sizes(batches: Sequence[Batch]) -> list[int] | None:
    """Return the number of observed values of each batch, or None where any is unknown."""
    sizes = []
    for batch in batches:
        observed = batch.groups.get(schema.OBSERVED_DATA)
        if observed is None or not observed.data_vars:
            return None
        sizes.append(max(int(observed.variables[name].size) for name in observed.data_vars))
    return sizes


def _find_source(batches: Sequence[Batch], kind: str | None, powers: Any) -> str:
    """Return where the kind is read. Of one batch nothing is guessed, since all kinds coincide."""
    if kind is not None:
        return "argument"
    if all(_is_attributed(batch) for batch in batches):
        return "attributes"
    return "guess" if powers is None and len(batches) > 1 else "powers"


def _attrs_of(batch: Batch) -> Mapping[str, Any]:
    """Return the attributes; of a merged posterior none, as they are about its own batches."""
    return {} if {schema.METHOD, schema.RESAMPLED} & set(batch.attrs) else batch.attrs


def _is_attributed(batch: Batch) -> bool:
    return bool({schema.KIND, schema.POWER} & set(_attrs_of(batch)))


def _check_attributed(batches: Sequence[Batch]) -> None:
    """Refuse merged posteriors, and batches of which only some say what they were sampled from."""
    for batch in batches:
        if _attrs_of(batch) is not batch.attrs:
            raise ValueError(
                f"{batch} is itself a merged posterior, which counts the prior once, as a plain "
                'run of the model on its rows does. Pass kind="full_prior" with prior= (draws of '
                "the prior); or, if its batches were sampled for a merge of merged ones, the kind "
                "and powers that then remain."
            )
    silent = [batch for batch in batches if not _is_attributed(batch)]
    if silent and len(silent) < len(batches):
        other = next(batch for batch in batches if _is_attributed(batch))
        raise ValueError(
            f"{silent[0]} does not say what it was sampled from, {other} does (its attributes "
            f"{schema.KIND} and {schema.POWER}). Pass the kind and powers that hold for all "
            "batches."
        )


def _resolve_kind(batches: Sequence[Batch], kind: str | None) -> str:
    valid = "Valid kinds are " + ", ".join(f'"{name}"' for name in KINDS)
    if kind is not None and kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}. {valid}.")
    sampled_as: dict[str, Batch] = {}
    for batch in batches:
        if recorded := _attrs_of(batch).get(schema.KIND):
            sampled_as.setdefault(recorded, batch)
    if len(sampled_as) > 1:
        mixed = ", ".join(f"{batch} is {recorded}" for recorded, batch in sampled_as.items())
        raise ValueError(f"batches of different kinds: {mixed}. Sample them all in the same way.")
    for recorded, batch in sampled_as.items():
        if recorded not in (*KINDS, TILTED):
            where = f"{recorded!r} in its attribute {schema.KIND}"
            raise ValueError(f"{batch}: unknown kind {where}. {valid}.")
        if kind not in (None, recorded):
            raise ValueError(
                f'kind="{kind}", but {batch} was sampled as "{recorded}" (its attribute '
                f"{schema.KIND}). Leave kind out."
            )
    return kind or next(iter(sampled_as), "inflated")


def _from_argument(batches: Sequence[Batch], powers: Any) -> np.ndarray | None:
    if powers is None:
        return None
    labels = [batch.label for batch in batches]
    is_keyed = isinstance(powers, Mapping | pd.Series)
    values = _as_numbers(by_batch(powers, labels, "powers", "power") if is_keyed else powers)
    if values.ndim == 0:
        values = np.full(len(batches), float(values))
    if values.shape != (len(batches),):
        shown = f"{values.size} powers" if values.ndim == 1 else f"powers of shape {values.shape}"
        raise ValueError(
            f"{shown} for {len(batches)} batches: pass one number, one a batch, or a mapping by "
            "batch label."
        )
    if not is_keyed and np.ptp(values) > 0:
        values = np.array(by_batch(values, labels, "powers", "power"))
    return _check_positive(batches, values, "power")


def _as_numbers(powers: Any) -> np.ndarray:
    try:
        values = np.asarray(powers)
        if values.dtype.kind != "U":
            return values.astype(float)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"powers must be numbers, got {powers!r}")


def _from_attrs(batches: Sequence[Batch], attr: str) -> np.ndarray | None:
    """Return an attribute of every batch; None where no batch has it."""
    values = [_attrs_of(batch).get(attr) for batch in batches]
    if all(value is None for value in values):
        return None
    for batch, value in zip(batches, values, strict=True):
        if value is None:
            remedy = " or pass powers for all" if attr == schema.POWER else ""
            raise ValueError(
                f"{batch} has no attribute {attr}, other batches have. Set it in all{remedy}."
            )
        if not isinstance(value, Real):
            raise ValueError(f"{batch}: attribute {attr} is {value!r}, but must be a number.")
    return _check_positive(batches, np.asarray(values, dtype=float), attr)


def _check_positive(batches: Sequence[Batch], values: np.ndarray, what: str) -> np.ndarray:
    for batch, value in zip(batches, values, strict=True):
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{batch}: {what} {value:g}, but a power must be positive and finite.")
    return values


def _warn_unequal_sizes(batches: Sequence[Batch], kind: str) -> None:
    has_rows = batches[0].group != schema.PRIOR
    sizes = observed_sizes(batches) if has_rows and kind == "inflated" else None
    if sizes is None or len(set(sizes)) == 1:
        return
    warn(
        f"the batches have {min(sizes)} to {max(sizes)} observations and no powers are known: "
        f"assuming that each likelihood was raised to the power {len(batches)}, the number of "
        "batches. If you sampled with total_size=N, pass powers=N / n_b for each batch instead."
    )


def _range(values: np.ndarray) -> str:
    if np.ptp(values) < 1e-12 * np.max(values):
        return f"{values[0]:.4g}"
    return f"{values.min():.4g} to {values.max():.4g}"

"""What `certify` and `refine` recorded in a merged object: data first, words from it last."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from arviz_swiss.data import schema

# The method of draws that are no batch's, but newly made by the exact density.
REDRAWN = "redrawn"
CERTIFIED, USABLE, NOT_CERTIFIED = "certified", "usable", "not certified"
# Below these k-hats draws are good, or good with their weights.
GOOD_KHAT, USABLE_KHAT = 0.5, 0.7
# Relative difference of effective draws that counts for nothing.
ALIKE = 0.1


# Of a parameter, beyond twice its error: more skewness than this no Gaussian can stand for.
SKEWED = 0.3
SKEWED_REMEDY = (
    'resample to use the weights; for scales near zero pass transforms={name: "softplus"}; or use '
    "fewer and larger batches"
)


def skewed_parameters(sites: xr.Dataset) -> list[str]:
    """Return the parameters that are skewed by the scores of the batches, the worst first."""
    beyond = np.abs(sites["skewness"].values) - 2 * sites["skewness_error"].values
    order = np.argsort(-beyond)[: int((beyond > SKEWED).sum())]
    return sites["parameter"].values[order].astype(str).tolist()


def describe_skewed(parameters: Sequence[str]) -> str:
    """Return what it means that parameters are skewed, in words."""
    its = "its" if len(parameters) == 1 else "their"
    return (
        f"the posterior of {', '.join(parameters)} is skewed where it is merged, and what batches "
        f"know was passed on as Gaussians: {its} mean can be trusted, {its} sd roughly, {its} "
        "quantiles cannot"
    )


class Verdict(NamedTuple):
    """What a certificate says: one of three states, why, and what to do."""

    status: str
    reason: str
    remedy: str


class Certificate(NamedTuple):
    """A verdict and the weights that it rests on, the group `swiss_certificate`."""

    verdict: Verdict
    dataset: xr.Dataset

    @property
    def is_certified(self) -> bool:
        """Whether the draws can be used as they are."""
        return self.verdict.status == CERTIFIED

    @property
    def khat(self) -> float:
        """Pareto's k-hat of all weights."""
        return float(self.dataset["khat"])

    def describe(self) -> str:
        """Return the verdict in words, with k-hat."""
        left = self.dataset["log_weight"].size
        weighed = int(self.dataset.get("weighed", left))
        numbers = (
            f"k-hat {self.khat:.2f}, {float(self.dataset['effective_size']):.0f} effective of "
            f"{weighed} weighed draws"
        )
        if left < weighed:
            numbers += f", of which {left} were selected since"
        status, reason, remedy = self.verdict
        advice = f" {remedy[0].upper()}{remedy[1:]}." if remedy else ""
        return f"{status} ({numbers}): {reason}.{advice}"


def describe_pilot(certificate: Certificate, how: str) -> str:
    """Return what the pilot's Gaussian alone would have got, in words; nothing without a pilot.

    `how` says how the pilot was found, if that is known.
    """
    dataset = certificate.dataset
    if "pilot_khat" not in dataset:
        return ""
    khat = float(dataset["pilot_khat"])
    share = float(dataset["pilot_effective_size"] / dataset["pilot_draws"])
    merged = float(dataset["effective_size"] / dataset["weighed"])
    numbers = f"k-hat {khat:.2f}, {share:.0%} of its draws effective"
    against = f"against {certificate.khat:.2f} and {merged:.0%} of the merged draws"
    if khat < GOOD_KHAT and share >= (1 - ALIKE) * merged:
        is_alike = certificate.is_certified and share <= (1 + ALIKE) * merged
        would = "would have done as well" if is_alike else "would have done better"
    else:
        would = "would have done less well" if khat < USABLE_KHAT else "would not have done"
    return f"The pilot's Gaussian alone{f' ({how})' if how else ''} {would}: {numbers}, {against}."


def read_certificate(groups: dict[str, xr.Dataset]) -> Certificate | None:
    """Return the certificate among the groups of a merged object, if there is one."""
    dataset = groups.get(schema.CERTIFICATE)
    if dataset is None:
        return None
    names = (schema.STATUS, schema.REASON, schema.REMEDY)
    if not all(name in dataset.attrs for name in names):
        raise ValueError(
            f"the certificate has lost its attributes ({', '.join(names)}): call certify again."
        )
    return Certificate(Verdict(*(str(dataset.attrs[name]) for name in names)), dataset)


class Doubt(NamedTuple):
    """What speaks against rounds: a word or two for a table, a sentence, and what to do."""

    flag: str
    what: str
    remedy: str


class Refinement(NamedTuple):
    """Rounds of `refine`: the steps that moved the draws, how many last ones were undone."""

    steps: np.ndarray
    errors: np.ndarray
    undone: int
    doubt: Doubt | None

    @property
    def is_refined(self) -> bool:
        """Whether rounds moved the draws."""
        return self.steps.size > 0

    @property
    def is_settled(self) -> bool:
        """Whether rounds moved the draws, and nothing speaks against them."""
        return self.is_refined and self.doubt is None

    def describe(self) -> str:
        """Return what the rounds did, in words; nothing if there were none."""
        text = ""
        if self.is_refined:
            shown = ", ".join(f"{step:.2g}" for step in self.steps)
            text = (
                f"Refined in {count_rounds(self.steps.size)}, by {shown} posterior sds (the last "
                f"with an error of {self.errors[-1]:.2g})."
            )
        if self.undone:
            rounds = count_rounds(self.undone)
            text += f" Refining led away from the posterior and was undone ({rounds})."
        return text.strip()


def count_rounds(count: int) -> str:
    """Return a number of rounds in words."""
    return "1 round" if count == 1 else f"{count} rounds"


def read_refinement(maps: xr.Dataset) -> Refinement:
    """Return what `swiss_transform` tells of rounds of `refine`, which may have been none."""
    count = maps.sizes.get("round", 1) - 1
    taken = maps["taken"].values[1:] if "taken" in maps else np.ones(count, dtype=bool)
    steps, errors = (
        maps[name].values[1:][taken] if count else np.zeros(0) for name in ("step", "step_error")
    )
    is_doubted = all(name in maps.attrs for name in schema.REFINE_ATTRS)
    doubt = Doubt(*(str(maps.attrs[name]) for name in schema.REFINE_ATTRS)) if is_doubted else None
    return Refinement(steps, errors, int(np.argmax(np.append(taken[::-1], True))), doubt)

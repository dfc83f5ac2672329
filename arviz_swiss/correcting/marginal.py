"""A batch's density of shared parameters alone: its own variables are integrated out by group."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from arviz_swiss.base.conditional import NoConditional, find_conditional
from arviz_swiss.base.integrals import LogIntegrals, Place, draw_local, log_integrals, log_ratios
from arviz_swiss.correcting.evaluation import EvaluationFailed
from arviz_swiss.data.statistics import pareto_smoothed
from arviz_swiss.merging.models import group_terms

# Draws of each group by which its k-hat is estimated, and of which one draw is picked.
GROUP_DRAWS, CANDIDATES = 256, 16


class Marginals(NamedTuple):
    """Log likelihoods of a batch at merged points and at its own draws, and log priors there.

    `group_khat` is the largest of any group's integral.
    """

    merged: LogIntegrals
    own: LogIntegrals
    merged_prior: np.ndarray
    own_prior: np.ndarray
    group_khat: float

    def at(self, some: slice) -> "Marginals":
        """Return the same with some of the merged points only."""
        merged = LogIntegrals(self.merged.values[some], self.merged.noise[some])
        return self._replace(merged=merged, merged_prior=self.merged_prior[some])


class Marginalise(NamedTuple):
    """The points at which a batch's density of shared parameters is wanted.

    `mean` and `factor` are those of the pooled Gaussian, around which integrals are laid out.
    """

    merged: np.ndarray
    own: np.ndarray
    mean: np.ndarray
    factor: np.ndarray
    seed: int

    def answer(self, kept: Any, label: str) -> Marginals:
        """Integrate the density that a worker keeps."""
        density = kept.density
        terms, place = _laid_out(density, self.mean, self.factor, label)

        def integrate(points: np.ndarray) -> LogIntegrals:
            if not len(points):
                return LogIntegrals(np.empty(0), np.empty(0))
            found = log_integrals(terms, place, points, seed=self.seed)
            return found._replace(values=found.values + terms.apart(points))

        def log_prior(points: np.ndarray) -> np.ndarray:
            return density.log_prior(points) if len(points) else np.empty(0)

        by_group = log_ratios(terms, place, GROUP_DRAWS, self.seed)
        khats = [pareto_smoothed(column)[1] for column in by_group.T]
        return Marginals(
            integrate(self.merged),
            integrate(self.own),
            log_prior(self.merged),
            log_prior(self.own),
            float(np.max(khats)),
        )


class DrawLocal(NamedTuple):
    """The points of shared parameters at which a batch's local variables are to be drawn."""

    shared: np.ndarray
    mean: np.ndarray
    factor: np.ndarray
    seed: int

    def answer(self, kept: Any, label: str) -> np.ndarray:
        """Return draws (points, local) of the density that a worker keeps."""
        terms, place = _laid_out(kept.density, self.mean, self.factor, label)
        try:
            return draw_local(terms, place, self.shared, CANDIDATES, self.seed)
        except ValueError as error:
            raise EvaluationFailed(f'batch "{label}": {error}.') from error


def _laid_out(density: Any, mean: np.ndarray, factor: np.ndarray, label: str) -> tuple[Any, Place]:
    """Return a batch's density apart by groups, and where its local variables are."""

    def joint(shared: np.ndarray, local: np.ndarray) -> Any:
        return density.score(shared, local, 1.0)

    try:
        terms = group_terms(density, label)
    except ValueError as error:  # no product over groups
        raise EvaluationFailed(str(error)) from error
    try:
        conditional = find_conditional(joint, mean, factor, density.start, density.families)
    except NoConditional as error:
        raise EvaluationFailed(f'batch "{label}": {error}.') from error
    return terms, Place(mean, factor, conditional, density.families)


def log_full(answers: Mapping[str, Marginals]) -> LogIntegrals:
    """Return the log density of the full posterior of shared parameters at merged points."""
    every = list(answers.values())
    values = every[0].merged_prior + np.sum([answer.merged.values for answer in every], axis=0)
    noise = np.sqrt(np.sum([answer.merged.noise**2 for answer in every], axis=0))
    return LogIntegrals(values, noise)

"""A batch's density of shared parameters alone: its own variables are integrated out by group."""

from typing import Any, NamedTuple

import numpy as np

from arviz_swiss.base.conditional import NoConditional, find_conditional
from arviz_swiss.base.integrals import LogIntegrals, Place, log_integrals, log_ratios
from arviz_swiss.correcting.evaluation import EvaluationFailed
from arviz_swiss.data.statistics import pareto_smoothed
from arviz_swiss.merging.models import group_terms

# Draws of each group by which its k-hat is estimated.
GROUP_DRAWS = 256


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

        def joint(shared: np.ndarray, local: np.ndarray) -> Any:
            return density.score(shared, local, 1.0)

        try:
            terms = group_terms(density, label)
        except ValueError as error:  # no product over groups
            raise EvaluationFailed(str(error)) from error
        try:
            conditional = find_conditional(
                joint, self.mean, self.factor, density.start, density.families
            )
        except NoConditional as error:
            raise EvaluationFailed(f'batch "{label}": {error}.') from error
        place = Place(self.mean, self.factor, conditional, density.families)

        def integrate(points: np.ndarray) -> LogIntegrals:
            found = log_integrals(terms, place, points, seed=self.seed)
            return found._replace(values=found.values + terms.apart(points))

        by_group = log_ratios(terms, place, GROUP_DRAWS, self.seed)
        khats = [pareto_smoothed(column)[1] for column in by_group.T]
        return Marginals(
            integrate(self.merged),
            integrate(self.own),
            density.log_prior(self.merged),
            density.log_prior(self.own),
            float(np.max(khats)),
        )

"""The pilot: a Gaussian close to the full posterior, before any batch is sampled.

It is the Laplace approximation of all the data, by gradients that the batches sum up: what makes
sampling the batches cheap, and what their merge must beat.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from arviz_swiss.base import linalg
from arviz_swiss.base.hmc import LogDensity
from arviz_swiss.base.mode import NoMode, check_drops, factor_of, follow, newton, only_mode
from arviz_swiss.correcting.evaluation import Evaluate, EvaluationFailed, NotFinite, Request
from arviz_swiss.data.messages import brief
from arviz_swiss.pymc.coordinates import Coordinates

LAPLACE = "Laplace"
# Length in sds of a Newton step where the mode of a batch is found well enough.
NEAR = 0.5


class Pilot(NamedTuple):
    """Mean and covariance of a Gaussian of the named parameters, and how it was found."""

    parameters: tuple[str, ...]
    mean: np.ndarray
    covariance: np.ndarray
    how: str

    def ordered(self, parameters: Sequence[str]) -> "Pilot":
        """Return the same Gaussian of these parameters: batches may have them in another order."""
        known = {name: place for place, name in enumerate(self.parameters)}
        if len(known) != len(self.parameters) or known.keys() != set(parameters):
            differ = sorted(known.keys() ^ set(parameters))
            raise ValueError(
                f"the pilot's parameters are not those of the batch: {brief(differ, 8)}. All "
                "batches must have the same parameters."
            )
        places = [known[name] for name in parameters]
        return self._replace(
            parameters=tuple(parameters),
            mean=self.mean[places],
            covariance=self.covariance[np.ix_(places, places)],
        )

    @property
    def factor(self) -> np.ndarray:
        """The lower triangular L of coordinates z with theta = mean + L z."""
        return linalg.cholesky(self.covariance)


def laplace(
    evaluate: Evaluate, labels: Sequence[str], power: float, coordinates: Coordinates
) -> Pilot:
    """Find the mode and curvature of the full posterior, from those of the first batch.

    `labels` are of all batches; `power` is that of the first one's likelihood, which makes it look
    like the whole.
    """
    of_first = _log_density(evaluate, labels[:1], power)
    of_all = _log_density(evaluate, labels, 1.0)
    try:
        mode, precision = only_mode(of_first, coordinates.start)
        mode, precision = follow(of_all, mode, precision)
        pilot = Pilot(coordinates.parameters, mode, linalg.inverse(precision), LAPLACE)
        check_drops(of_all, pilot.mean, pilot.factor)
    except EvaluationFailed as error:
        raise NoMode(str(error)) from error
    return pilot


def _log_density(evaluate: Evaluate, labels: Sequence[str], power: float) -> LogDensity:
    """Return the log of the prior and of the likelihoods to a power, not a number outside."""

    def log_density(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        try:
            prior, likelihoods = _terms(evaluate, labels, points)
        except NotFinite:
            return np.full(len(points), np.nan), np.full(points.shape, np.nan)
        values, gradients = (a + power * b for a, b in zip(prior, likelihoods, strict=True))
        return values, gradients

    return log_density


def _terms(evaluate: Evaluate, labels: Sequence[str], points: np.ndarray) -> Any:
    """Return the prior's log density and gradient, and the sums of the likelihoods'."""
    requests = {
        label: [Request("log_likelihood", points), Request("grad_log_likelihood", points)]
        for label in labels
    }
    requests[labels[0]] += [Request("log_prior", points), Request("grad_log_prior", points)]
    answers = evaluate(requests)
    likelihoods = (sum(answers[label][place] for label in labels) for place in (0, 1))
    return answers[labels[0]][2:], tuple(likelihoods)


def gaussian_of(draws: np.ndarray, coordinates: Coordinates, how: str) -> Pilot:
    """Return the Gaussian of draws (chain, draw, parameter)."""
    rows = draws.reshape(-1, draws.shape[-1])
    if len(rows) <= rows.shape[1] or not np.isfinite(rows).all():
        raise NoMode("too few draws, or some that are not finite")
    covariance = np.atleast_2d(np.cov(rows.T))
    factor_of(covariance)
    return Pilot(coordinates.parameters, rows.mean(axis=0), covariance, how)


def own_mode(score: LogDensity, parameters: int) -> np.ndarray:
    """Return about where a batch has its mode, in coordinates whitened by the pilot.

    There its curvature is about one, so that a Newton step is the gradient itself.
    """
    return newton(score, np.zeros(parameters), np.eye(parameters), NEAR)[0]

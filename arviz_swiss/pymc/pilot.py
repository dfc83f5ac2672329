"""The pilot: a Gaussian close to the full posterior, before any batch is sampled.

It is the Laplace approximation of all the data, by gradients that the batches sum up: what makes
sampling the batches cheap, and what their merge must beat.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, optimize

from arviz_swiss.correcting.evaluation import Evaluate, EvaluationFailed, NotFinite, Request
from arviz_swiss.pymc.coordinates import Coordinates

LAPLACE = "Laplace"
# Differences of gradients, in parameters as they come and later in sds.
FIRST_DIFFERENCE, DIFFERENCE = 1e-4, 0.1
NEWTON_STEPS, HALVINGS = 20, 8
# Lengths of Newton steps in sds: where the mode is found well enough, and where a batch's is.
CLOSE, NEAR = 0.02, 0.5


class Pilot(NamedTuple):
    """Mean and covariance of a Gaussian of the named parameters, and how it was found."""

    parameters: tuple[str, ...]
    mean: np.ndarray
    covariance: np.ndarray
    how: str

    def ordered(self, parameters: Sequence[str]) -> "Pilot":
        """Return the same Gaussian of these parameters: batches may have them in another order."""
        places = [self.parameters.index(name) for name in parameters]
        return self._replace(
            parameters=tuple(parameters),
            mean=self.mean[places],
            covariance=self.covariance[np.ix_(places, places)],
        )

    @property
    def factor(self) -> np.ndarray:
        """The lower triangular L of coordinates z with theta = mean + L z."""
        return linalg.cholesky(self.covariance, lower=True)


class NoMode(RuntimeError):
    """The posterior has no mode with a curvature that makes a Gaussian of it."""


# Log densities (points,) and their gradients (points, parameters) at many points.
Score = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def laplace(
    evaluate: Evaluate, labels: Sequence[str], power: float, coordinates: Coordinates
) -> Pilot:
    """Find the mode and curvature of the full posterior, from those of the first batch.

    `labels` are of all batches; `power` is that of the first one's likelihood, which makes it look
    like the whole.
    """

    def of_first(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        prior, likelihoods = _terms(evaluate, labels[:1], points)
        return tuple(a + power * b for a, b in zip(prior, likelihoods, strict=True))  # type: ignore[return-value]

    def of_all(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        prior, likelihoods = _terms(evaluate, labels, points)
        return tuple(a + b for a, b in zip(prior, likelihoods, strict=True))  # type: ignore[return-value]

    try:
        mode = _climb(of_first, coordinates.start)
        precision = _curvature(of_first, mode, FIRST_DIFFERENCE * (1 + np.abs(mode)))
        mode = _newton(of_all, mode, precision)
        sds = np.sqrt(np.diag(_inverse(precision)))
        precision = _curvature(of_all, mode, DIFFERENCE * sds)
        mode = _newton(of_all, mode, precision)
        return Pilot(coordinates.parameters, mode, _inverse(precision), LAPLACE)
    except (NotFinite, EvaluationFailed) as error:
        raise NoMode(str(error)) from error


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
    _factor(covariance)
    return Pilot(coordinates.parameters, rows.mean(axis=0), covariance, how)


def own_mode(score: Score, parameters: int) -> np.ndarray:
    """Return about where a batch has its mode, in coordinates whitened by the pilot.

    There its curvature is about one, so that a Newton step is the gradient itself.
    """
    return _newton(score, np.zeros(parameters), np.eye(parameters), NEAR, strict=False)


def _climb(score: Score, start: np.ndarray) -> np.ndarray:
    def downhill(point: np.ndarray) -> tuple[float, np.ndarray]:
        try:
            values, gradients = score(point[None])
        except NotFinite:
            return np.inf, np.zeros_like(point)
        finite = np.isfinite(values[0])
        return (-values[0], -gradients[0]) if finite else (np.inf, np.zeros_like(point))

    found = optimize.minimize(
        downhill, start, jac=True, method="L-BFGS-B", options={"maxiter": 1000, "maxcor": 20}
    )
    if not np.isfinite(found.fun):
        raise NoMode("the log density is not finite where the search for a mode began")
    return found.x


def _curvature(score: Score, mode: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return minus the Hessian, by central differences of gradients."""
    shifts = np.diag(lengths)
    _, gradients = score(np.concatenate([mode + shifts, mode - shifts]))
    up, down = np.split(gradients, 2)
    precision = -(up - down) / (2 * lengths[:, None])
    if not np.isfinite(precision).all():
        raise NoMode("the gradient is not finite around the mode")
    return (precision + precision.T) / 2


def _newton(
    score: Score,
    point: np.ndarray,
    precision: np.ndarray,
    close: float = CLOSE,
    strict: bool = True,
) -> np.ndarray:
    """Climb by Newton steps with one curvature, each cut in half until it leads upwards."""
    factor = _factor(precision)
    values, gradients = score(point[None])
    for _ in range(NEWTON_STEPS):
        step = linalg.cho_solve((factor, True), gradients[0])
        length = np.sqrt(max(step @ gradients[0], 0.0))
        if length < close:
            return point + step if strict else point
        for halving in range(HALVINGS):
            further = point + step / 2**halving
            values_there, gradients_there = score(further[None])
            if values_there[0] > values[0] and np.isfinite(gradients_there).all():
                break
        else:
            if strict and length > NEAR:
                raise NoMode("no step leads further up, far from the mode")
            return point
        point, values, gradients = further, values_there, gradients_there
    if strict:
        raise NoMode(f"{NEWTON_STEPS} Newton steps did not reach the mode")
    return point


def _factor(precision: np.ndarray) -> np.ndarray:
    try:
        return linalg.cholesky(precision, lower=True)
    except linalg.LinAlgError as error:
        raise NoMode("the log density is not curved downwards in every direction") from error


def _inverse(precision: np.ndarray) -> np.ndarray:
    covariance = linalg.cho_solve((_factor(precision), True), np.eye(len(precision)))
    return (covariance + covariance.T) / 2

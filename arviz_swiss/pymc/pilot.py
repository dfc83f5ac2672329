"""The pilot: a Gaussian close to the full posterior, before any batch is sampled.

It is the Laplace approximation of all the data, by gradients that the batches sum up: what makes
sampling the batches cheap, and what their merge must beat.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, optimize

from arviz_swiss.correcting.evaluation import Evaluate, EvaluationFailed, NotFinite, Request
from arviz_swiss.data.messages import brief
from arviz_swiss.pymc.coordinates import Coordinates

LAPLACE = "Laplace"
# Differences of gradients: of a parameter of which nothing is known, relative to it, and in sds.
FIRST_DIFFERENCE, DIFFERENCE = 1e-4, 0.1
# Rounds in which the sd of each parameter is found, and how much the last may change.
SCALE_ROUNDS, SCALE_CHANGE = 12, 2.0
# Searches for a mode, each in the units that the sds have where the last one ended.
CLIMBS = 2
# Searches that must end in the same mode, in all; and sds beyond which modes are different.
SEARCHES, APART = 4, 5.0
# Least eigenvalue of a precision with ones on its diagonal: below, it is rounding error.
LEAST_EIGENVALUE = 1e-9
# Drops of the log density one sd from the mode: a half of a Gaussian.
LEAST_DROP, MOST_DROP = 0.05, 5.0
# Newton steps with one curvature, how often they are cut in half, and how many curvatures.
NEWTON_STEPS, HALVINGS, CURVATURES = 8, 8, 8
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
        return linalg.cholesky(self.covariance, lower=True)


class SeveralModes(RuntimeError):
    """Searches for the mode ended in several."""


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
        return tuple(a + power * b for a, b in zip(prior, likelihoods, strict=True))

    def of_all(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        prior, likelihoods = _terms(evaluate, labels, points)
        return tuple(a + b for a, b in zip(prior, likelihoods, strict=True))

    try:
        mode, precision = _only_mode(of_first, coordinates)
        mode, precision = _follow(of_all, mode, precision)
        pilot = Pilot(coordinates.parameters, mode, _inverse(precision), LAPLACE)
        _check_drops(of_all, pilot)
    except (NotFinite, EvaluationFailed) as error:
        raise NoMode(str(error)) from error
    return pilot


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
    return _newton(score, np.zeros(parameters), np.eye(parameters), NEAR)[0]


def _only_mode(score: Score, coordinates: Coordinates) -> tuple[np.ndarray, np.ndarray]:
    """Return the mode that all searches end in, and the curvature there.

    They begin where PyMC would, and around; what begins at one mode would never see another.
    """
    rng = np.random.default_rng(0)
    around = rng.uniform(-1, 1, size=(SEARCHES - 1, coordinates.size))
    starts = [coordinates.start, *(coordinates.start + around)]
    mode = _climb(score, starts[0])
    precision = _curvature(score, mode, DIFFERENCE * _scales(score, mode))
    factor = _factor(precision)
    for start in starts[1:]:
        try:
            other = _climb(score, start)
            if np.linalg.norm((other - mode) @ factor) < APART:
                continue
            other_precision = _curvature(score, other, DIFFERENCE * _scales(score, other))
            _, gradient = _try(score, other)
            step = linalg.cho_solve((_factor(other_precision), True), gradient)
        except (NoMode, NotFinite):
            continue
        if step @ gradient < 1:  # within an sd of a mode of its own
            farthest = int(np.argmax(np.abs(other - mode) * np.sqrt(np.diag(precision))))
            raise SeveralModes(
                "the first batch has several modes, which differ most in "
                f"{coordinates.parameters[farthest]}"
            )
    return mode, precision


def _climb(score: Score, start: np.ndarray) -> np.ndarray:
    """Search a mode, in units that are about the sds of the parameters, found on the way."""
    point = start
    for _ in range(CLIMBS):
        units, origin = _scales(score, point), point

        def downhill(
            steps: np.ndarray, units: np.ndarray = units, origin: np.ndarray = origin
        ) -> tuple[float, np.ndarray]:
            value, gradient = _try(score, origin + units * steps)
            return (-value, -units * gradient) if np.isfinite(value) else (np.inf, 0 * gradient)

        found = optimize.minimize(
            downhill,
            np.zeros_like(start),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 1000, "maxcor": 20},
        )
        if not np.isfinite(found.fun):
            raise NoMode("the log density is not finite where the search for a mode began")
        point = origin + units * found.x
    return point


def _try(score: Score, point: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the log density and gradient of one point, minus infinity where there is none."""
    try:
        values, gradients = score(point[None])
    except NotFinite:
        return -np.inf, np.zeros_like(point)
    finite = np.isfinite(values[0]) and np.isfinite(gradients[0]).all()
    return (values[0], gradients[0]) if finite else (-np.inf, np.zeros_like(point))


def _scales(score: Score, point: np.ndarray) -> np.ndarray:
    """Return about the sd of each parameter given the others, by differences of that length."""
    sds = FIRST_DIFFERENCE * (1 + np.abs(point)) / DIFFERENCE
    for _ in range(SCALE_ROUNDS):
        try:
            curvatures = np.diag(_curvature(score, point, DIFFERENCE * sds))
        except (NoMode, NotFinite):
            sds = sds / 10
            continue
        # where nothing is seen of a curvature, look further
        known = curvatures > 0
        found = np.where(known, 1 / np.sqrt(np.where(known, curvatures, 1.0)), 10 * sds)
        change = np.exp(np.abs(np.log(found / sds)).max())
        sds = found
        if change < SCALE_CHANGE:
            break
    return sds


def _check_drops(score: Score, pilot: Pilot) -> None:
    """Refuse a Gaussian that the log density does not follow one sd from its mean."""
    shifts = pilot.factor.T
    values, _ = score(np.concatenate([pilot.mean[None], pilot.mean + shifts, pilot.mean - shifts]))
    drops = values[0] - values[1:]
    if not (drops.min() > LEAST_DROP and np.minimum(*np.split(drops, 2)).max() < MOST_DROP):
        raise NoMode("one sd from its mode the log density is far from that of a Gaussian")


def _curvature(score: Score, mode: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return minus the Hessian, by central differences of gradients."""
    shifts = np.diag(lengths)
    _, gradients = score(np.concatenate([mode + shifts, mode - shifts]))
    up, down = np.split(gradients, 2)
    precision = -(up - down) / (2 * lengths[:, None])
    if not np.isfinite(precision).all():
        raise NoMode("the gradient is not finite around the mode")
    return (precision + precision.T) / 2


def _follow(score: Score, mode: np.ndarray, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mode near a point, and the curvature there, from one that is about right."""
    for _ in range(CURVATURES):
        mode, is_reached = _newton(score, mode, precision)
        precision = _curvature(score, mode, DIFFERENCE / np.sqrt(np.diag(precision)))
        if is_reached:
            return _newton(score, mode, precision)[0], precision
    raise NoMode(f"{CURVATURES * NEWTON_STEPS} Newton steps did not reach the mode")


def _newton(
    score: Score, point: np.ndarray, precision: np.ndarray, close: float = CLOSE
) -> tuple[np.ndarray, bool]:
    """Climb by Newton steps with one curvature, each cut in half until it leads upwards.

    Returns where they lead, and whether that is so close to the mode.
    """
    factor = _factor(precision)
    value, gradient = _try(score, point)
    for _ in range(NEWTON_STEPS):
        step = linalg.cho_solve((factor, True), gradient)
        length = np.sqrt(max(step @ gradient, 0.0))
        if length < close:
            return point + step, True
        for halving in range(HALVINGS):
            further = point + step / 2**halving
            value_there, gradient_there = _try(score, further)
            if value_there > value:
                break
        else:
            return point, False
        point, value, gradient = further, value_there, gradient_there
    return point, False


def _factor(precision: np.ndarray) -> np.ndarray:
    diagonal = np.diag(precision)
    if np.isfinite(precision).all() and (diagonal > 0).all():
        units = 1 / np.sqrt(diagonal)
        if linalg.eigvalsh(precision * np.outer(units, units))[0] > LEAST_EIGENVALUE:
            return linalg.cholesky(precision, lower=True)
    raise NoMode("the log density is not curved downwards in every direction")


def _inverse(precision: np.ndarray) -> np.ndarray:
    covariance = linalg.cho_solve((_factor(precision), True), np.eye(len(precision)))
    return (covariance + covariance.T) / 2

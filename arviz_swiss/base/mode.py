"""The mode of a log density and its curvature there, by few calls, each a pass over the data.

Log densities are minus infinity or not a number where there is
none, and gradients there may be anything.
"""

import numpy as np
from scipy import linalg, optimize

from arviz_swiss.base.hmc import LogDensity

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
# Length of a Newton step in sds where the mode is found well enough.
CLOSE = 0.02


class NoMode(RuntimeError):
    """A log density has no mode with a curvature that makes a Gaussian of it."""


class SeveralModes(RuntimeError):
    """Searches for the mode ended in several; `distances` of two of them in sds, by parameter."""

    def __init__(self, distances: np.ndarray):
        self.distances = distances
        super().__init__(f"several modes, {distances.max():.1f} sds apart in one parameter")


def only_mode(score: LogDensity, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mode that all searches end in, and the curvature there.

    They begin at a point and around it; what begins at one mode would never see another.
    """
    rng = np.random.default_rng(0)
    mode = _climb(score, start)
    precision = _curvature(score, mode, DIFFERENCE * scales(score, mode))
    factor = factor_of(precision)
    for shift in rng.uniform(-1, 1, size=(SEARCHES - 1, start.size)):
        try:
            other = _climb(score, start + shift)
            if np.linalg.norm((other - mode) @ factor) < APART:
                continue
            other_precision = _curvature(score, other, DIFFERENCE * scales(score, other))
            _, gradient = _try(score, other)
            step = linalg.cho_solve((factor_of(other_precision), True), gradient)
        except NoMode:
            continue
        if step @ gradient < 1:  # within an sd of a mode of its own
            raise SeveralModes(np.abs(other - mode) * np.sqrt(np.diag(precision)))
    return mode, precision


def _climb(score: LogDensity, start: np.ndarray) -> np.ndarray:
    """Search a mode, in units that are about the sds of the parameters, found on the way."""
    point = start
    for _ in range(CLIMBS):
        units, origin = scales(score, point), point

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


def _try(score: LogDensity, point: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the log density and gradient of one point, minus infinity where there is none."""
    values, gradients = score(point[None])
    finite = np.isfinite(values[0]) and np.isfinite(gradients[0]).all()
    return (values[0], gradients[0]) if finite else (-np.inf, np.zeros_like(point))


def scales(score: LogDensity, point: np.ndarray) -> np.ndarray:
    """Return about the sd of each parameter given the others, by differences of that length."""
    sds = FIRST_DIFFERENCE * (1 + np.abs(point)) / DIFFERENCE
    for _ in range(SCALE_ROUNDS):
        try:
            curvatures = np.diag(_curvature(score, point, DIFFERENCE * sds))
        except NoMode:
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


def check_drops(score: LogDensity, mode: np.ndarray, factor: np.ndarray) -> None:
    """Refuse a Gaussian, with a factor of its covariance, that the log density does not follow."""
    values, _ = score(np.concatenate([mode[None], mode + factor.T, mode - factor.T]))
    if np.isfinite(values[0]):
        drops = values[0] - values[1:]
        if drops.min() > LEAST_DROP and np.minimum(*np.split(drops, 2)).max() < MOST_DROP:
            return
    raise NoMode("one sd from its mode the log density is far from that of a Gaussian")


def _curvature(score: LogDensity, mode: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return minus the Hessian, by central differences of gradients."""
    shifts = np.diag(lengths)
    _, gradients = score(np.concatenate([mode + shifts, mode - shifts]))
    up, down = np.split(gradients, 2)
    with np.errstate(invalid="ignore"):  # infinite ones
        precision = -(up - down) / (2 * lengths[:, None])
    if not np.isfinite(precision).all():
        raise NoMode("the gradient is not finite around the mode")
    return (precision + precision.T) / 2


def follow(
    score: LogDensity, mode: np.ndarray, precision: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mode near a point, and the curvature there, from one that is about right."""
    for _ in range(CURVATURES):
        mode, is_reached = newton(score, mode, precision)
        precision = _curvature(score, mode, DIFFERENCE / np.sqrt(np.diag(precision)))
        if is_reached:
            return newton(score, mode, precision)[0], precision
    raise NoMode(f"{CURVATURES * NEWTON_STEPS} Newton steps did not reach the mode")


def newton(
    score: LogDensity, point: np.ndarray, precision: np.ndarray, close: float = CLOSE
) -> tuple[np.ndarray, bool]:
    """Climb by Newton steps with one curvature, each cut in half until it leads upwards.

    Returns where they lead, and whether that is so close to the mode.
    """
    factor = factor_of(precision)
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


def factor_of(precision: np.ndarray) -> np.ndarray:
    """Return the lower Cholesky factor; `NoMode` if it would be of rounding errors, or none."""
    diagonal = np.diag(precision)
    if np.isfinite(precision).all() and (diagonal > 0).all():
        units = 1 / np.sqrt(diagonal)
        if linalg.eigvalsh(precision * np.outer(units, units))[0] > LEAST_EIGENVALUE:
            return linalg.cholesky(precision, lower=True)
    raise NoMode("the log density is not curved downwards in every direction")

"""Hamiltonian Monte Carlo of several chains at once, for targets close to a standard normal one.

All chains move together: one call of the log density serves all, and the step size is adapted to
all. There is no mass matrix; whoever samples has whitened the coordinates.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# Log densities (points,) and their gradients (points, parameters) at many points.
LogDensity = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

# Twice as many chains with half the warm-up cost less, as one call of the density serves all.
CHAINS, WARMUP = 8, 20
# Lengths of trajectories, about the quarter of a period (pi / 2) after which a standard normal
# target has forgotten its start, and shares by which they vary. Longer ones are better for means
# and worse for variances, which the merge needs as well.
LENGTH, JITTER = 1.7, 0.3
LONGEST = 64
# Trajectories whose energy is off by more are far from the path that they should follow.
DIVERGED = 1000.0
# Nesterov's dual averaging: strength towards the first guess, early iterations, forgetting.
STRENGTH, EARLY, FORGETTING = 0.05, 10.0, 0.75


class NoStart(ValueError):
    """The log density is not finite where chains begin."""


class Chains(NamedTuple):
    """Draws (chain, draw, parameter), their log densities, and how they were made (chain, draw).

    `gradients` are those of the log density at the draws; `steps` are those of each trajectory,
    (draw,), for all chains; `step_size` is the one of all draws.
    """

    draws: np.ndarray
    log_density: np.ndarray
    gradients: np.ndarray
    acceptance: np.ndarray
    energy: np.ndarray
    diverging: np.ndarray
    steps: np.ndarray
    step_size: float


class _State(NamedTuple):
    points: np.ndarray
    values: np.ndarray
    gradients: np.ndarray


class _Move(NamedTuple):
    state: _State
    acceptance: np.ndarray
    energy: np.ndarray
    diverging: np.ndarray
    steps: int


def sample_chains(
    log_density: LogDensity,
    start: np.ndarray,
    *,
    tune: int,
    draws: int,
    rng: np.random.Generator,
    target_accept: float = 0.9,
) -> Chains:
    """Sample from points (chain, parameter) on; the first `tune` iterations adapt the step size.

    The length of trajectories is random, so that no direction comes back to where it was.
    """
    state = _State(start, *log_density(start))
    if not np.isfinite(state.values).all():
        raise NoStart("the log density is not finite where the chains begin.")
    adaptation = _StepSize(first_step_size(start.shape[1]), target_accept)
    for _ in range(tune):
        move = _move(log_density, state, adaptation.current, rng)
        state = move.state
        adaptation.update(move.acceptance.mean())
    step_size = adaptation.settled if tune else adaptation.current
    moves = []
    for _ in range(draws):
        moves.append(_move(log_density, state, step_size, rng))
        state = moves[-1].state
    return Chains(
        np.stack([move.state.points for move in moves], axis=1),
        np.stack([move.state.values for move in moves], axis=1),
        np.stack([move.state.gradients for move in moves], axis=1),
        np.stack([move.acceptance for move in moves], axis=1),
        np.stack([move.energy for move in moves], axis=1),
        np.stack([move.diverging for move in moves], axis=1),
        np.array([move.steps for move in moves]),
        step_size,
    )


def first_step_size(parameters: int) -> float:
    """Return the step that standard normal targets of so many parameters accept four times in five.

    The error of a trajectory's energy grows as the fourth power of the step and with the number
    of parameters.
    """
    return 1.4 * parameters**-0.25


def _move(
    log_density: LogDensity, state: _State, step_size: float, rng: np.random.Generator
) -> _Move:
    """Follow one trajectory of every chain, and accept its end or stay."""
    length = LENGTH * rng.uniform(1 - JITTER, 1 + JITTER)
    steps = int(np.clip(round(length / step_size), 1, LONGEST))
    momenta = rng.standard_normal(state.points.shape)
    before = (momenta**2).sum(axis=1) / 2 - state.values
    end, momenta = _follow(log_density, state, momenta, step_size, steps)
    with np.errstate(over="ignore", invalid="ignore"):
        energy = (momenta**2).sum(axis=1) / 2 - end.values
    # from no density there is no way back
    error = np.where(np.isfinite(energy), energy - before, np.inf)
    acceptance = np.exp(-np.maximum(error, 0.0))
    accepted = rng.random(len(error)) < acceptance
    kept = _State(
        np.where(accepted[:, None], end.points, state.points),
        np.where(accepted, end.values, state.values),
        np.where(accepted[:, None], end.gradients, state.gradients),
    )
    return _Move(kept, acceptance, np.where(accepted, energy, before), error > DIVERGED, steps)


def _follow(
    log_density: LogDensity, state: _State, momenta: np.ndarray, step_size: float, steps: int
) -> tuple[_State, np.ndarray]:
    """Take leapfrog steps; run backwards, they lead to where they began."""
    points, values, gradients = state
    momenta = momenta + step_size / 2 * gradients
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(steps):
            points = points + step_size * momenta
            values, gradients = log_density(points)
            momenta = momenta + (step_size if step < steps - 1 else step_size / 2) * gradients
    return _State(points, values, gradients), momenta


class _StepSize:
    """Dual averaging of the logarithm of the step size towards a rate of acceptance."""

    def __init__(self, first: float, target: float):
        self.current = self.settled = first
        self._centre, self._target = np.log(2 * first), target
        self._missed, self._count = 0.0, 0

    def update(self, acceptance: float) -> None:
        self._count += 1
        share = 1 / (self._count + EARLY)
        self._missed = (1 - share) * self._missed + share * (self._target - acceptance)
        log_step = self._centre - np.sqrt(self._count) / STRENGTH * self._missed
        weight = self._count**-FORGETTING
        self.settled = float(np.exp(weight * log_step + (1 - weight) * np.log(self.settled)))
        self.current = float(np.exp(log_step))

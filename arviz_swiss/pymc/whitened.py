"""One batch sampled by our own chains, in coordinates that its pilot has whitened."""

import time
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from arviz_swiss.base.effective import effective_sizes
from arviz_swiss.base.hmc import Chains, LogDensity, NoStart, sample_chains
from arviz_swiss.base.mode import NoMode
from arviz_swiss.data.containers import SAMPLE_DIMS, Groups
from arviz_swiss.parallel.executors import raise_if_abandoned
from arviz_swiss.pymc.batch_space import UNFIT
from arviz_swiss.pymc.coordinates import Coordinates
from arviz_swiss.pymc.density import ModelDensity
from arviz_swiss.pymc.observed import observed_values
from arviz_swiss.pymc.pilot import Pilot, gaussian_of, own_mode
from arviz_swiss.pymc.tempering import Powers

LIBRARY = "arviz_swiss"
# Chains that fail are begun anew, whitened by what they found, with so many times the warm-up.
LONGER = 5
# Random directions along which the curvature of a batch is compared to that of the pilot.
DIRECTIONS = 4
# Seconds a value and point, and of a batch in all, beyond which a compiler pays: for what NumPy
# does row by row, as the density of multivariate normal variables. Steps of a trajectory, about.
SLOW, PATIENCE, STEPS = 2e-6, 10.0, 4
TIMED = 4
# What tells that chains of a batch cannot be used.
MOST_DIVERGING, LEAST_ACCEPTED, LEAST_EFFECTIVE = 0.02, 0.5, 0.1


def sample_whitened(
    model: pm.Model,
    pilot: Pilot,
    powers: Powers,
    *,
    label: str,
    draws: int,
    tune: int,
    chains: int,
    seed: int,
    target_accept: float = 0.9,
) -> Groups | None:
    """Sample a batch by Hamiltonian Monte Carlo of all its chains at once; None if that fails.

    Chains that have not met, or are worth little, are begun anew in coordinates that are whitened
    by what they found.
    """
    started = time.perf_counter()
    coordinates = Coordinates(model)
    density = ModelDensity(model, coordinates.merge_space, label)
    rng = np.random.default_rng(seed)
    pilot = pilot.ordered(coordinates.parameters)
    try:
        pilot = _widened(pilot, density, powers, rng)
        seconds = _seconds(_score(density, pilot, powers), (chains, len(pilot.mean)))
    except UNFIT:  # graphs that cannot be vectorised
        return None
    values = sum(array.size for array in observed_values(model).values())
    if seconds > SLOW * chains * values and seconds * STEPS * (tune + draws) > PATIENCE:
        return None
    for warmup in (tune, LONGER * tune):
        try:
            found = _attempt(density, pilot, powers, chains, warmup, draws, rng, target_accept)
        except NoStart:
            return None
        theta, stats = pilot.mean + found.draws @ pilot.factor.T, _stats(found)
        if have_met(found.draws, stats):
            attrs = {
                "inference_library": LIBRARY,
                "sampling_time": time.perf_counter() - started,
                "tuning_steps": warmup,
            }
            posterior = coordinates.with_deterministics(coordinates.to_dataset(theta))
            return {"posterior": posterior.assign_attrs(attrs), "sample_stats": stats}
        try:
            pilot = gaussian_of(theta, coordinates, "the first chains of the batch")
        except NoMode:
            return None
    return None


def _seconds(score: LogDensity, shape: tuple[int, int]) -> float:
    """Return how long all chains take for one step, where nothing holds it up.

    A thread may wait for others, and make a function of its own first: the shortest time counts.
    """
    times = []
    for _ in range(TIMED):
        started = time.perf_counter()
        score(np.zeros(shape))
        times.append(time.perf_counter() - started)
    return min(times)


def _score(density: ModelDensity, pilot: Pilot, powers: Powers) -> LogDensity:
    """Return the log density of a batch, and its gradient, of white coordinates."""
    factor = pilot.factor

    def score(white: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        raise_if_abandoned()
        values, gradients = density.tempered(pilot.mean + white @ factor.T, *powers)
        return values, gradients @ factor

    return score


def _widened(
    pilot: Pilot, density: ModelDensity, powers: Powers, rng: np.random.Generator
) -> Pilot:
    """Return the pilot as wide as the batch: without a power on its likelihood, it is wider."""
    ends = rng.standard_normal((DIRECTIONS, len(pilot.mean)))
    _, gradients = _score(density, pilot, powers)(np.concatenate([ends, -ends]))
    up, down = np.split(gradients, 2)
    curvature = np.sum((down - up) * ends) / (2 * np.sum(ends**2))
    if not (np.isfinite(curvature) and curvature > 0):
        return pilot
    return pilot._replace(covariance=pilot.covariance / curvature)


def _attempt(
    density: ModelDensity,
    pilot: Pilot,
    powers: Powers,
    chains: int,
    tune: int,
    draws: int,
    rng: np.random.Generator,
    target_accept: float,
) -> Chains:
    score = _score(density, pilot, powers)
    mode = own_mode(score, len(pilot.mean))
    start = mode + rng.standard_normal((chains, mode.size))
    return sample_chains(score, start, tune=tune, draws=draws, rng=rng, target_accept=target_accept)


def have_met(draws: np.ndarray, stats: xr.Dataset) -> bool:
    """Tell whether chains (chain, draw, parameter) are of one distribution, and worth enough."""
    if "diverging" in stats and stats["diverging"].mean() > MOST_DIVERGING:
        return False
    # of each chain: one that stays where it is may be in the middle of the others
    if "acceptance_rate" in stats:
        if stats["acceptance_rate"].mean("draw").min() < LEAST_ACCEPTED:
            return False
    chains, length, _ = draws.shape
    return bool(effective_sizes(draws).min() > LEAST_EFFECTIVE * chains * length)


def _stats(found: Chains) -> xr.Dataset:
    chains, draws = found.energy.shape
    arrays: dict[str, Any] = {
        "lp": found.log_density,
        "acceptance_rate": found.acceptance,
        "diverging": found.diverging,
        "energy": found.energy,
        "n_steps": np.broadcast_to(found.steps, (chains, draws)).copy(),
        "step_size": np.full((chains, draws), found.step_size),
    }
    coords = {"chain": np.arange(chains), "draw": np.arange(draws)}
    return xr.Dataset({name: (SAMPLE_DIMS, array) for name, array in arrays.items()}, coords)

"""What the pilot's Gaussian alone would have got: draws of it, weighed against the posterior."""

from typing import Any, NamedTuple

import numpy as np

from arviz_swiss.base import weights
from arviz_swiss.data import schema, statistics
from arviz_swiss.merging.merged import Merged

# How many draws of the pilot to weigh for each merged one, and no fewer than k-hat needs.
SHARE, FEWEST = 0.25, 25


class PilotDraws(NamedTuple):
    """Draws of the pilot's Gaussian, (draws, parameters), and its log density there."""

    points: np.ndarray
    log_density: np.ndarray


def draw_pilot(opened: Merged, draws: int, rng: np.random.Generator) -> PilotDraws:
    """Draw from the pilot's Gaussian, beside so many merged draws; nothing without a pilot."""
    if schema.PILOT not in opened.groups:
        return PilotDraws(np.empty((0, opened.free.size)), np.empty(0))
    pilot = opened.groups[schema.PILOT]
    mean, factor = pilot["mean"].values, np.linalg.cholesky(pilot["covariance"].values)
    standard = rng.standard_normal((max(FEWEST, round(SHARE * draws)), mean.size))
    return PilotDraws(mean + standard @ factor.T, -0.5 * np.sum(standard**2, axis=1))


def weigh_pilot(pilot: PilotDraws, full: np.ndarray) -> dict[str, tuple[Any, Any]]:
    """Return what a certificate says of the pilot; nothing if there was none.

    `full` is the full posterior's log density at the draws.
    """
    if not full.size:
        return {}
    log_weights, khat = statistics.pareto_smoothed(full - pilot.log_density)
    effective = weights.effective_size(log_weights) if np.isfinite(full).any() else 0.0
    return {
        "pilot_khat": ((), khat),
        "pilot_effective_size": ((), effective),
        "pilot_draws": ((), full.size),
    }

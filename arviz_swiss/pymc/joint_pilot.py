"""The pilot of batches with variables of their own: rounds over the first batch alone.

There is no mode to go by: the density of random effects and their scale together has none. Draws of
the first batch tell where it has its mass, and by their scores what the shared parameters' Gaussian
is; as wide as all rows would make it, that is where rounds over all batches begin.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pymc as pm

from arviz_swiss.base.conditional import NoConditional, find_conditional
from arviz_swiss.base.gaussian import Round, gaussian
from arviz_swiss.base.hmc import CHAINS, WARMUP, NoStart
from arviz_swiss.base.mode import NoMode, scales
from arviz_swiss.correcting.ep_rounds import Effort, propagate, rough_draws
from arviz_swiss.correcting.tilted import Tilt, Tilted, sample_tilted
from arviz_swiss.data.progress import HIDDEN, Bar
from arviz_swiss.pymc.coordinates import Coordinates
from arviz_swiss.pymc.joint_density import ModelJointDensity
from arviz_swiss.pymc.observed import imputed_names
from arviz_swiss.pymc.pilot import Pilot

HOW = "rounds over batch b0"
ROUNDS = 15
# In sds of the first batch, and as a relative change of its precision: where steps are as short as
# this, rounds over all batches may begin. A batch alone may have no Gaussian to settle at.
NEAR = 1.0


def shared_parameters(model: pm.Model, axes: Mapping[str, int]) -> tuple[str, ...]:
    """Return the labels of the parameters that all batches share."""
    layout = Coordinates(model).layout
    local = {*axes, *imputed_names(model)}
    pairs = zip(layout.labels(), layout.owners(), strict=True)
    return tuple(label for label, owner in pairs if owner not in local)


def pilot_by_rounds(
    model: pm.Model, axes: Mapping[str, int], power: float, seed: int, bar: Bar = HIDDEN
) -> Pilot:
    """Return the Gaussian of the shared parameters in the first batch, as wide as all rows'.

    `power` is how many times the batch's rows all are. NoMode where rounds do not lead there.
    """
    parameters = shared_parameters(model, axes)
    density = ModelJointDensity(model, parameters, [*axes, *imputed_names(model)], axes, "b0")

    def sample(tilts: Mapping[str, Tilt]) -> dict[str, Tilted]:
        tilted = {label: sample_tilted(density, tilt) for label, tilt in tilts.items()}
        bar()
        return tilted

    draws = rough_draws(len(parameters), CHAINS)
    effort = Effort(CHAINS, WARMUP, draws, ROUNDS, step_error=np.inf)
    try:
        mean, sds = _first_guess(density)
        start = gaussian(mean, np.diag(sds**2))
        rng = np.random.default_rng(seed)
        history = propagate(sample, start, {"b0": 1.0}, effort, rng, bar, _is_near).history
    except (NoConditional, NoStart, ValueError, np.linalg.LinAlgError) as error:
        raise NoMode(f"rounds over the first batch failed: {error}") from error
    last = history[-1]
    if last.step > NEAR:
        raise NoMode(f"{len(history)} rounds over the first batch did not settle")
    return Pilot(parameters, last.moments.mean, last.moments.covariance / power, HOW)


def _is_near(history: Sequence[Round]) -> bool:
    return history[-1].step <= NEAR and history[-1].change <= NEAR


def _first_guess(density: ModelJointDensity) -> tuple[np.ndarray, np.ndarray]:
    """Return where PyMC would begin, and the sds of shared parameters there, given all others."""
    mean = density.coordinates.start[density.shared]
    unit = np.eye(mean.size)

    def joint(shared: np.ndarray, local: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return density.score(shared, local, 1.0)

    local = find_conditional(joint, mean, unit, density.start, density.families).centre

    def score(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients, _ = density.score(
            points, np.broadcast_to(local, (len(points), local.size)), 1.0
        )
        return values, gradients

    return mean, scales(score, mean)

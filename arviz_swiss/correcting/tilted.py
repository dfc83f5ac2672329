r"""A batch's tilted distribution: its own data, and what the others say of the shared parameters.

The others' word is the *cavity*, the pooled Gaussian without the batch's own site. Shared and
local variables are sampled together, in the white coordinates z and u of
:math:`\theta = \mu + L z, \alpha = m + G z + S u`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from arviz_swiss.base.conditional import (
    Conditional,
    NoConditional,
    control_variates,
    find_conditional,
    narrow,
    widen,
)
from arviz_swiss.base.effective import effective_sizes
from arviz_swiss.base.hmc import NoStart, sample_chains
from arviz_swiss.base.sites import Change, Site, site_change
from arviz_swiss.correcting.evaluation import EvaluationFailed

# Where chains hardly move, or diverge, all are begun anew with so many times the warm-up.
LONGER, LEAST_ACCEPTED = 5, 0.5
# Steps this short, in posterior sds, are accepted anywhere, and lead nowhere.
LEAST_STEP = 1e-5
REMEDY = (
    "Use fewer and larger batches; or write the local variables so that they are nearer to normal "
    "given the shared ones: centred where groups have many rows, in units of their scale where "
    "they have few."
)


# Draws a control variate, at least: those of many local variables a group cost more than they gain.
FEWEST_A_CONTROL = 4


class JointDensity(Protocol):
    """The density of a batch's shared and local variables, at many points at once.

    `families` are arrays (groups, k) of where the variables of each group lie among the local ones,
    `start` is where a search for these may begin.
    """

    families: Sequence[np.ndarray]
    start: np.ndarray

    def score(
        self, shared: np.ndarray, local: np.ndarray, prior_power: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return log densities (points,), and gradients by shared and by local variables."""
        ...


class Tilt(NamedTuple):
    """All that a batch is told in a round: the pooled Gaussian, its own site, how to sample.

    `start` is where the search for the local variables' mode begins, if that is known.
    """

    mean: np.ndarray
    factor: np.ndarray
    site: Site
    prior_power: float
    start: np.ndarray | None
    chains: int
    tune: int
    draws: int
    seed: int
    target_accept: float = 0.9

    def answer(self, kept: Any, label: str) -> "Tilted":
        """Sample the density that a worker keeps."""
        try:
            return sample_tilted(kept.density, self)
        except (NoConditional, NoStart, ValueError, np.linalg.LinAlgError) as error:
            raise EvaluationFailed(
                f'batch "{label}": its variables could not be sampled together with what the other '
                f"batches say of the shared ones: {str(error).rstrip('.')}. {REMEDY}"
            ) from error


class Tilted(NamedTuple):
    """Draws (chain, draw, ...) of a tilted distribution, and what they say of the site."""

    shared: np.ndarray
    local: np.ndarray
    white: np.ndarray
    conditional: Conditional
    change: Change
    acceptance: np.ndarray
    diverging: np.ndarray
    steps: np.ndarray
    step_size: float


def sample_tilted(density: JointDensity, tilt: Tilt) -> Tilted:
    """Sample a batch's tilted distribution, and regress its scores."""
    families, size = density.families, tilt.mean.size

    def joint(shared: np.ndarray, local: np.ndarray):
        return density.score(shared, local, tilt.prior_power)

    begin = density.start if tilt.start is None else tilt.start
    conditional = find_conditional(joint, tilt.mean, tilt.factor, begin, families)
    cavity = np.eye(size) - tilt.site.precision

    def place(white: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        z, u = white[..., :size], white[..., size:]
        local = conditional.centre + z @ conditional.slope.T + widen(conditional, families, u)
        return tilt.mean + z @ tilt.factor.T, local

    def log_density(white: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        z = white[:, :size]
        values, by_shared, by_local = joint(*place(white))
        pulled = z @ cavity
        by_z = by_shared @ tilt.factor + by_local @ conditional.slope - pulled - tilt.site.shift
        by_u = narrow(conditional, families, by_local)
        values = values - np.sum(z * pulled, axis=1) / 2 - z @ tilt.site.shift
        return values, np.concatenate([by_z, by_u], axis=1)

    rng = np.random.default_rng(tilt.seed)
    white = rng.standard_normal((tilt.chains, size + begin.size))
    for warmup in (tilt.tune, LONGER * tilt.tune):
        chains = sample_chains(
            log_density,
            white,
            tune=warmup,
            draws=tilt.draws,
            rng=rng,
            target_accept=tilt.target_accept,
        )
        moving = chains.acceptance.mean(axis=1) > LEAST_ACCEPTED
        moving &= chains.step_size > LEAST_STEP
        if moving.all() and not chains.diverging.any():
            break
        if moving.any():
            # one chain that began where it cannot move makes the steps of all too short
            white = chains.draws[rng.choice(np.flatnonzero(moving), tilt.chains), -1]
    if not moving.any():
        raise NoStart("no chain moves")
    shared, local = place(chains.draws)
    return Tilted(
        shared,
        local,
        chains.draws,
        conditional,
        _change(chains.draws, chains.gradients, tilt.factor, families),
        chains.acceptance,
        chains.diverging,
        chains.steps,
        chains.step_size,
    )


def _change(
    draws: np.ndarray, gradients: np.ndarray, factor: np.ndarray, families: Sequence[np.ndarray]
) -> Change:
    """Return what the draws say of the site, and of the skewness of each parameter."""
    size = len(factor)
    worth = float(np.median(effective_sizes(gradients[..., :size] + draws[..., :size])))
    worth /= draws.shape[0] * draws.shape[1]
    draws, gradients = (each.reshape(-1, each.shape[-1]) for each in (draws, gradients))
    controls = control_variates(draws[:, size:], gradients[:, size:], families)
    if controls.shape[1] > len(draws) // FEWEST_A_CONTROL:
        controls = controls[:, :0]
    directions = factor / np.linalg.norm(factor, axis=1, keepdims=True)
    return site_change(draws[:, :size], gradients[:, :size], controls, worth, directions)

"""Rounds of expectation propagation: every batch is sampled with the others' word as its prior."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from arviz_swiss.base.gaussian import Gaussian, Round, gaussian
from arviz_swiss.base.sites import Site, Step, change_site, pool_changes, white_factor
from arviz_swiss.correcting.rounds import settled
from arviz_swiss.correcting.tilted import Tilt, Tilted
from arviz_swiss.data.progress import Bar

# Draws of a round that only has to find the way: a parameter, and at least.
ROUGH_A_PARAMETER, ROUGH = 6, 120
# In posterior sds: after a shorter step the rounds are as long as the result needs.
NEAR = 0.5
# Of the step in posterior sds: more error than this asks for more draws, at most so many times as
# were wanted.
STEP_ERROR, MORE = 0.1, 4.0

SampleAll = Callable[[Mapping[str, Tilt]], dict[str, Tilted]]


class Effort(NamedTuple):
    """How to sample: chains of a batch, their warm-up, and draws of each; rounds at most.

    More error of the step than `step_error`, in posterior sds, asks for more draws.
    """

    chains: int
    tune: int
    draws: int
    rounds: int
    target_accept: float = 0.9
    step_error: float = STEP_ERROR


class Propagated(NamedTuple):
    """The rounds, draws of the last one, and the sites after it in coordinates white by it.

    `tilts` are what the batches were told in the last round; `skewness` is what all sites together
    make of each parameter's, with its error.
    """

    history: list[Round]
    tilts: dict[str, Tilt]
    tilted: dict[str, Tilted]
    factor: np.ndarray
    sites: dict[str, Site]
    skewness: np.ndarray
    skewness_error: np.ndarray


def propagate(
    sample: SampleAll,
    start: Gaussian,
    shares: Mapping[str, float],
    effort: Effort,
    rng: np.random.Generator,
    bar: Bar,
    enough: Callable[[Sequence[Round]], bool] = settled,
) -> Propagated:
    """Run rounds until mean and precision change by no more than their noise.

    `shares` are each batch's of the prior, and at first of the pooled precision. Rounds are short
    until the pooled Gaussian is near. `enough` tells by the rounds whether these were the last.
    """
    size = start.mean.size
    mean, factor = start.mean, np.linalg.cholesky(start.covariance)
    sites = {label: Site(share * np.eye(size), np.zeros(size)) for label, share in shares.items()}
    places: dict[str, np.ndarray | None] = dict.fromkeys(shares)
    history: list[Round] = []
    draws = min(rough_draws(size, effort.chains), effort.draws)
    while len(history) < effort.rounds:
        bar.stage(f"round {len(history) + 1} of at most {effort.rounds}")
        tilts = {
            label: Tilt(
                mean,
                factor,
                sites[label],
                share,
                places[label],
                effort.chains,
                effort.tune,
                draws,
                int(rng.integers(2**63)),
                effort.target_accept,
            )
            for label, share in shares.items()
        }
        tilted = sample(tilts)
        changes = [tilted[label].change for label in shares]
        step = pool_changes(list(sites.values()), changes)
        sites = {
            label: change_site(site, change, step)
            for (label, site), change in zip(sites.items(), changes, strict=True)
        }
        mean, factor = mean + factor @ step.mean, factor @ white_factor(step)
        places = {label: tilted[label].conditional.centre for label in shares}
        history.append(_round(mean, factor, step))
        if draws >= effort.draws and _is_exact(history[-1], draws, effort) and enough(history):
            break
        draws = _next_draws(history, draws, effort.draws)
    return Propagated(
        history,
        tilts,
        tilted,
        factor,
        sites,
        np.sum([change.skewness for change in changes], axis=0),
        np.sqrt(np.sum([change.skewness_noise for change in changes], axis=0)),
    )


def rough_draws(parameters: int, chains: int) -> int:
    """Return the draws of each chain in a round that only has to find the way."""
    return -(-max(ROUGH, ROUGH_A_PARAMETER * parameters) // chains)


def _is_exact(last: Round, draws: int, effort: Effort) -> bool:
    """Tell whether the last step was whole, and as exact as is wanted or more draws can make it."""
    is_long = draws >= MORE * effort.draws
    return last.damping == 1 and (last.step_error <= effort.step_error or is_long)


def _round(mean: np.ndarray, factor: np.ndarray, step: Step) -> Round:
    return Round(
        gaussian(mean, factor @ factor.T),
        step.length,
        step.length_error,
        step.change,
        step.change_error,
        np.linalg.eigvalsh(step.precision),
        step.unlimited,
        step.damping,
    )


def _next_draws(history: Sequence[Round], draws: int, wanted: int) -> int:
    """Return the length of the next round's chains."""
    last = history[-1]
    if last.step > NEAR:
        return draws
    if draws < wanted:
        return wanted
    more = max((last.step_error / STEP_ERROR) ** 2, 1.0)
    return int(np.ceil(min(draws * more, MORE * wanted)))

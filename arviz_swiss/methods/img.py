"""Draws from products of kernel density estimates, by Metropolis-within-Gibbs on indices.

A choice of one draw x_b from each of B batches, with mean m, has weight ::

    prod_b N(x_b | m, h^2) / exp(log_b)  *  N(m | 0, 1 / precision + h^2 / B)

and stands for the Gaussian with precision ``precision + B / h^2`` around m, pulled to zero by its
share of that. A proposal replaces one batch's draw: only m and a few sums change, so it costs
O(parameters).

One long walk through the choices moves slowly: neighbours differ in one draw of B. Many short walks
that start anywhere and are resampled by their weights while the bandwidth shrinks (a sequential
Monte Carlo sampler) cost the same and give nearly independent draws.
"""

import functools
import importlib.util
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from arviz_swiss.base.weights import effective_size, systematic

SWEEPS = (50, 500)
WORK = 15 * 10**7
# Compiling takes numba 4 s and saves a tenth to a half of the time.
WORTH_COMPILING = 3 * 10**9


class Walks(NamedTuple):
    """Draws of the product, (walk, parameter), and how many draws of each batch they rest on."""

    draws: np.ndarray
    used: np.ndarray


def sample(
    draws: np.ndarray,
    logs: np.ndarray,
    precision: np.ndarray,
    bandwidth: float,
    count: int,
    sweeps: int | None,
    rng: np.random.Generator,
    compiled: bool | None = None,
) -> Walks:
    """Return draws of the product of the batches' density estimates.

    Each draw is the end of a walk of its own, which starts at a random choice. In the first half of
    its sweeps the bandwidth shrinks, ``bandwidth * i^(-1 / (4 + d))`` with i from sqrt(n) to n, the
    number of draws a batch, the weights come in, raised to a power that grows to one, and walks are
    resampled by them. In the second half the walks only go on. Walks of common descent stay
    neighbours, so that an effective sample size counts them as what they are worth.

    The (batch, row, parameter) draws are in coordinates where the kernels are round and the
    Gaussian product is diagonal and centred; `logs` are their log densities under the batches'
    Gaussians and `precision` that of the product: zeros without a Gaussian start.
    """
    batches, rows, parameters = draws.shape
    work = batches * count * (parameters + 20)
    sweeps = sweeps or int(np.clip(WORK // work, *SWEEPS))
    if compiled is None:
        compiled = sweeps * work > WORTH_COMPILING and importlib.util.find_spec("numba") is not None
    advance = _compiled() if compiled else _advance
    norms = np.sum(draws**2, axis=-1)
    choices = rng.integers(rows, size=(batches, count))
    mean = sum(batch[own] for batch, own in zip(draws, choices, strict=True)) / batches
    weights, before = np.zeros(count), np.zeros(count)
    for sweep in range(sweeps):
        share = min(2 * (sweep + 1) / sweeps, 1.0)
        kernel = batches / (bandwidth * rows ** (-(1 + share) / (8 + 2 * parameters))) ** 2
        total = precision + kernel
        pull = share * kernel * kernel / total
        scores = share * (-0.5 * kernel / batches * norms - logs)
        weights += _log_weight(scores, pull, choices, mean) - before
        if effective_size(weights) < count / 2 or (share == 1.0 and np.ptp(weights) > 0):
            kept = systematic(softmax(weights), count, rng)
            choices, mean = np.ascontiguousarray(choices[:, kept]), mean[kept]
            weights[:] = 0.0
        proposed = rng.integers(rows, size=(batches, count))
        advance(draws, scores, pull, choices, mean, proposed, np.log(rng.random(proposed.shape)))
        before = _log_weight(scores, pull, choices, mean)
    noise = rng.standard_normal((count, parameters))
    return Walks(mean * (kernel / total) + noise / np.sqrt(total), _used(choices))


def _used(choices: np.ndarray) -> np.ndarray:
    """Return the effective number of different draws in each row."""
    count = choices.shape[1]
    return np.array([count**2 / np.sum(np.bincount(row).astype(float) ** 2) for row in choices])


def _log_weight(scores, pull, choices, mean) -> np.ndarray:
    return 0.5 * ((mean * mean) @ pull) + np.take_along_axis(scores, choices, axis=1).sum(axis=0)


def _advance(draws, scores, pull, choices, mean, proposed, thresholds) -> None:
    """Move all walkers, in place: `choices` by (batch, walker), `mean` by (walker, parameter)."""
    batches = draws.shape[0]
    level = (mean * mean) @ pull
    for batch in range(batches):
        old, new = choices[batch], proposed[batch]
        moved = mean + (draws[batch, new] - draws[batch, old]) / batches
        moved_level = (moved * moved) @ pull
        gain = 0.5 * (moved_level - level) + scores[batch, new] - scores[batch, old]
        accepted = thresholds[batch] < gain
        choices[batch, accepted] = new[accepted]
        mean[accepted] = moved[accepted]
        level[accepted] = moved_level[accepted]


def _advance_one_by_one(draws, scores, pull, choices, mean, proposed, thresholds) -> None:
    """Do the same as `_advance` in plain loops, for numba."""
    batches, _, parameters = draws.shape
    moved = np.empty(parameters)
    for walker in range(mean.shape[0]):
        level = 0.0
        for j in range(parameters):
            level += pull[j] * mean[walker, j] ** 2
        for batch in range(batches):
            old, new = choices[batch, walker], proposed[batch, walker]
            moved_level = 0.0
            for j in range(parameters):
                step = (draws[batch, new, j] - draws[batch, old, j]) / batches
                moved[j] = mean[walker, j] + step
                moved_level += pull[j] * moved[j] ** 2
            gain = 0.5 * (moved_level - level) + scores[batch, new] - scores[batch, old]
            if thresholds[batch, walker] < gain:
                choices[batch, walker] = new
                mean[walker] = moved
                level = moved_level


@functools.cache
def _compiled() -> Callable:
    import numba

    return numba.njit(_advance_one_by_one)

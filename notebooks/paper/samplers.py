"""Logistic regression sampled with NumPy alone: many chains, or many batches, at once.

The experiments need some hundreds of sub-posteriors of one small model. PyMC would spend its time
on starting; here thousands of chains take one step together.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit


def softplus(values: np.ndarray) -> np.ndarray:
    """Return log(1 + exp(values)); several times faster than `numpy.logaddexp`."""
    return np.maximum(values, 0.0) + np.log(1.0 + np.exp(-np.abs(values)))


class Logistic(NamedTuple):
    """Density of a logistic regression with independent normal priors of mean zero.

    Its four methods are what `arviz_swiss.refine` and `arviz_swiss.certify` ask for.

    Parameters
    ----------
    features : (row, parameter) array
    successes, trials : (row,) array
        Rows with the same features can be counted together.
    prior_sd : float
    """

    features: np.ndarray
    successes: np.ndarray
    trials: np.ndarray
    prior_sd: float

    def log_prior(self, points: np.ndarray) -> np.ndarray:
        """Return the log density of the prior up to a constant."""
        return -0.5 * np.sum(points**2, axis=-1) / self.prior_sd**2

    def grad_log_prior(self, points: np.ndarray) -> np.ndarray:
        """Return the gradient of the log prior."""
        return -points / self.prior_sd**2

    def log_likelihood(self, points: np.ndarray) -> np.ndarray:
        """Return the log likelihood of every point."""
        linear = points @ self.features.T
        return linear @ self.successes - softplus(linear) @ self.trials

    def grad_log_likelihood(self, points: np.ndarray) -> np.ndarray:
        """Return the gradient of the log likelihood."""
        return (self.successes - self.trials * expit(points @ self.features.T)) @ self.features


def laplace(
    density: Logistic, power: float = 1.0, prior_power: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mode of ``prior^prior_power likelihood^power``, and the precision there."""
    size = density.features.shape[1]
    mode = np.zeros(size)
    for _ in range(200):
        chance = expit(density.features @ mode)
        gradient = (
            power * (density.successes - density.trials * chance) @ density.features
            - prior_power * mode / density.prior_sd**2
        )
        weights = power * density.trials * chance * (1 - chance)
        precision = (density.features.T * weights) @ density.features
        precision += prior_power * np.eye(size) / density.prior_sd**2
        step = np.linalg.solve(precision, gradient)
        # A full Newton step overshoots where the likelihood is flat.
        mode = mode + step / max(1.0, np.abs(step).max())
        if np.abs(step).max() < 1e-10:
            break
    return mode, precision


class Sampled(NamedTuple):
    """Draws (batch, draw, parameter), and each batch's acceptance rate."""

    draws: np.ndarray
    acceptance: np.ndarray


def hamiltonian(
    features: np.ndarray,
    successes: np.ndarray,
    trials: np.ndarray,
    *,
    prior_sd: float,
    power: float,
    prior_power: float,
    draws: int,
    rng: np.random.Generator,
    walkers: int = 500,
    warmup: int = 120,
    thin: int = 3,
) -> Sampled:
    """Sample ``prior^prior_power likelihood^power`` of all batches at once.

    Every batch has its own set of walkers, started from its Laplace approximation. After half of
    the warm-up the walkers' own covariance replaces the Laplace one as metric. Walkers are
    independent of one another; the draws come in random order.

    Parameters
    ----------
    features : (row, parameter) array
        The distinct rows, the same in all batches.
    successes, trials : (batch, row) array
    prior_sd, power, prior_power : float
    draws : int
        How many to return for each batch.
    rng : Generator
    walkers, warmup, thin : int
    """
    batches, size = len(successes), features.shape[1]
    modes, precisions = zip(
        *(
            laplace(Logistic(features, s, t, prior_sd), power, prior_power)
            for s, t in zip(successes, trials, strict=True)
        ),
        strict=True,
    )
    scale = np.linalg.inv(np.linalg.cholesky(np.array(precisions))).transpose(0, 2, 1)
    noise = rng.standard_normal((batches, walkers, size))
    points = np.array(modes)[:, None] + noise @ scale.transpose(0, 2, 1)
    weighted, counted = power * successes[:, None], power * trials[:, None]

    def value_and_gradient(points):
        linear = points @ features.T
        value = np.sum(weighted * linear - counted * softplus(linear), axis=-1)
        value -= 0.5 * prior_power * np.sum(points**2, axis=-1) / prior_sd**2
        gradient = (weighted - counted * expit(linear)) @ features
        return value, gradient - prior_power * points / prior_sd**2

    kept, accepted = [], []
    value, gradient = value_and_gradient(points)
    keep = -(-draws // walkers)
    for iteration in range(warmup + keep * thin):
        if iteration == warmup // 2:
            centred = points - points.mean(axis=1, keepdims=True)
            scale = np.linalg.cholesky(centred.transpose(0, 2, 1) @ centred / (walkers - 1))
        step = rng.uniform(0.2, 0.45, size=(batches, 1, 1))
        momentum = rng.standard_normal((batches, walkers, size))
        energy = value - 0.5 * np.sum(momentum**2, axis=-1)
        place, slope = points, gradient
        momentum = momentum + 0.5 * step * (slope @ scale)
        for leap in range(6):
            place = place + step * (momentum @ scale.transpose(0, 2, 1))
            height, slope = value_and_gradient(place)
            momentum = momentum + (0.5 if leap == 5 else 1.0) * step * (slope @ scale)
        gain = height - 0.5 * np.sum(momentum**2, axis=-1) - energy
        accept = np.log(rng.random(gain.shape)) < gain
        points = np.where(accept[..., None], place, points)
        gradient = np.where(accept[..., None], slope, gradient)
        value = np.where(accept, height, value)
        if iteration >= warmup:
            accepted.append(accept.mean(axis=1))
            if (iteration - warmup) % thin == thin - 1:
                kept.append(points)
    gathered = np.concatenate(kept, axis=1)
    order = rng.permutation(gathered.shape[1])[:draws]
    return Sampled(gathered[:, order], np.mean(accepted, axis=0))


def independence(
    density: Logistic,
    *,
    power: float,
    prior_power: float,
    draws: int,
    rng: np.random.Generator,
    chains: int = 4,
    block: int = 500,
) -> Sampled:
    """Sample one batch by independence Metropolis, with its Laplace approximation as proposal.

    For large batches, whose posterior is nearly Gaussian: the acceptance rate tells.

    Parameters
    ----------
    density : Logistic
    power, prior_power : float
    draws : int
        How many to return, of all chains together.
    rng : Generator
    chains : int
    block : int
        Proposals whose density is evaluated together.
    """
    mode, precision = laplace(density, power, prior_power)
    size, warmup = mode.size, 50
    factor = np.linalg.cholesky(precision)
    length = draws // chains + warmup
    # A little wider than the approximation, so that no tail is missed.
    noise = 1.05 * rng.standard_normal((chains * length, size))
    proposals = mode + np.linalg.solve(factor.T, noise.T).T
    log_density = np.concatenate(
        [
            power * density.log_likelihood(part) + prior_power * density.log_prior(part)
            for part in np.array_split(proposals, max(1, len(proposals) // block))
        ]
    )
    log_weight = (log_density + 0.5 * np.sum((noise / 1.05) ** 2, axis=1)).reshape(chains, length)
    threshold = np.log(rng.random((chains, length)))
    chosen = np.zeros((chains, length), dtype=int)
    for chain in range(chains):
        for i in range(1, length):
            gain = log_weight[chain, i] - log_weight[chain, chosen[chain, i - 1]]
            chosen[chain, i] = i if threshold[chain, i] < gain else chosen[chain, i - 1]
    points = np.take_along_axis(proposals.reshape(chains, length, size), chosen[..., None], axis=1)[
        :, warmup:
    ]
    moved = np.mean(np.diff(chosen, axis=1) > 0)
    return Sampled(points, np.array(moved))


def as_chains(draws: np.ndarray, chains: int = 4) -> np.ndarray:
    """Return (draw, parameter) draws without order as (chain, draw, parameter)."""
    length = len(draws) // chains
    return draws[: chains * length].reshape(chains, length, draws.shape[-1])

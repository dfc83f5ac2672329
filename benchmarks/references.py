"""Posteriors that can be relied on, to measure what the ways of sampling find.

Draws of the Laplace approximation of all rows in antithetic pairs, with Pareto-smoothed weights
against the posterior itself: exact but for the noise of the weights, for a tenth of the cost of a
long run. Where k-hat says that this is not so, a long run of NUTS over all rows. Neither takes a
step with the package but ArviZ's Pareto smoothing.
"""

from pathlib import Path
from typing import NamedTuple

import density
import numpy as np

from arviz_swiss.data import statistics

PAIRS = 10_000
GOOD_KHAT = 0.2
CHAINS, DRAWS = 4, 2500
# Parts of which the standard error of the mean is estimated.
PARTS = 20


class Reference(NamedTuple):
    """Moments, draws of equal weight, and the mean's own error as a Mahalanobis distance."""

    mean: np.ndarray
    covariance: np.ndarray
    draws: np.ndarray
    error: float
    khat: float

    def __str__(self):
        if np.isnan(self.khat):
            return f"a run of {CHAINS} x {DRAWS} draws; its own error {self.error:.3f}"
        return (
            f"{2 * PAIRS} draws of the Laplace approximation with weights, k-hat {self.khat:.2f}; "
            f"its own error {self.error:.3f}"
        )


def load(name, problem, rows, data, folder):
    """Return the reference of a problem, from the folder if it is there, else made and kept."""
    path = Path(folder) / f"{name}-{rows}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with np.load(data) as file:
            reference = make(problem, dict(file))
        np.savez(path, **reference._asdict())
    with np.load(path) as file:
        arrays = {field: file[field] for field in Reference._fields}
    return Reference(**arrays)._replace(error=float(arrays["error"]), khat=float(arrays["khat"]))


def make(problem, data):
    model = problem.build(data)
    target = density.density_of(model, problem.names, len(data["y"]))
    reference = by_weights(target)
    return reference if reference.khat < GOOD_KHAT else by_sampling(model, problem.names)


def by_weights(target):
    """Return the reference that weighted draws of the Laplace approximation give."""
    rng = np.random.default_rng(2013)
    gaussian = density.laplace(target)
    half = rng.standard_normal((PAIRS, len(gaussian.mean)))
    points, own = gaussian.points(np.concatenate([half, -half]))
    log_weights, khat = statistics.pareto_smoothed(target.log(points) - own)
    weights, draws = np.exp(log_weights), target.parameters(points)
    mean = weights @ draws / weights.sum()
    covariance = np.cov(draws.T, aweights=weights)
    parts = np.arange(len(draws)) % PAIRS % PARTS
    means = [np.average(draws[parts == i], 0, weights[parts == i]) for i in range(PARTS)]
    error = np.sqrt(np.mean(distances(means, mean, covariance) ** 2) / (PARTS - 1))
    return Reference(mean, covariance, resample(rng, draws, weights), float(error), khat)


def resample(rng, draws, weights):
    """Return draws of equal weight, by one uniform number for all."""
    shares = np.cumsum(weights) / weights.sum()
    places = (rng.random() + np.arange(len(draws))) / len(draws)
    chosen = np.minimum(np.searchsorted(shares, places), len(draws) - 1)
    return rng.permutation(draws[chosen])


def by_sampling(model, names):
    """Return the reference that a long run of all rows gives."""
    import pymc as pm
    from ways import stack

    settings = {"nuts_sampler": "nutpie", "chains": CHAINS, "cores": 2, "tune": 1000}
    with model:
        found = pm.sample(DRAWS, **settings, random_seed=2013, progressbar=False)
    draws = stack(found.posterior, names)
    rows = draws.reshape(-1, draws.shape[-1])
    mean, covariance = rows.mean(axis=0), np.cov(rows.T)
    return Reference(mean, covariance, rows, noise(draws, covariance), np.nan)


def distances(points, mean, covariance):
    """Return the Mahalanobis distances of points to the mean."""
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), np.transpose(points - mean))
    return np.linalg.norm(whitened, axis=0)


def noise(draws, covariance):
    """Return how far the mean of draws by (chain, draw, parameter) is to be off by chance."""
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), np.moveaxis(draws, -1, -2))
    sizes = [statistics.effective_size(whitened[:, j]) for j in range(whitened.shape[1])]
    return float(np.sqrt(np.sum(1 / np.array(sizes))))


def effective_draws(run):
    """Return the effective draws of each parameter; weighted draws have one number for all."""
    parameters = run.draws.shape[-1]
    if run.log_weights is None:
        return statistics.convergence(run.draws).bulk
    weights = np.exp(run.log_weights)
    return np.full(parameters, weights.sum() ** 2 / (weights**2).sum())


def accuracy(run, reference):
    """Return the Mahalanobis distance of a run's mean, and the largest shift of one in sds."""
    rows = run.draws.reshape(-1, run.draws.shape[-1])
    weights = None if run.log_weights is None else np.exp(run.log_weights)
    mean = np.average(rows, axis=0, weights=weights)
    shifts = (mean - reference.mean) / np.sqrt(np.diag(reference.covariance))
    distance = distances(mean[None], reference.mean, reference.covariance)[0]
    return {"mahalanobis": float(distance), "shift": float(np.abs(shifts).max())}

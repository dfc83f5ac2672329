"""Densities whose merges are certified, or must not be."""

import warnings

import numpy as np
from scipy.special import expit, logsumexp
from scipy.stats import norm

import arviz_swiss as az_swiss

QUIET = {"progressbar": False}


class Normal:
    """A flat or normal prior of mean zero, and a normal likelihood, in independent directions."""

    def __init__(self, centre, sd, prior_sd=np.inf):
        self.centre, self.sd, self.prior_sd = np.atleast_1d(centre), sd, prior_sd

    def log_prior(self, x):
        return -0.5 * np.sum((x / self.prior_sd) ** 2, axis=1)

    def grad_log_prior(self, x):
        return -x / self.prior_sd**2

    def log_likelihood(self, x):
        return -0.5 * np.sum(((x - self.centre) / self.sd) ** 2, axis=1)

    def grad_log_likelihood(self, x):
        return (self.centre - x) / self.sd**2

    def draw(self, rng, power=1.0, prior_power=1.0, shape=(2, 400)):
        precision = power / self.sd**2 + prior_power / self.prior_sd**2
        mean = power * self.centre / self.sd**2 / precision
        return rng.normal(mean, precision**-0.5, size=(*shape, self.centre.size))


class TwoModes(Normal):
    """A likelihood with modes at plus and minus the centre, one of them heavier."""

    def __init__(self, centre, sd, heavy):
        super().__init__(centre, sd)
        self.logs = np.log([heavy, 1 - heavy])

    def _parts(self, x):
        return self.logs + norm.logpdf(x[:, :1], [-self.centre[0], self.centre[0]], self.sd)

    def log_likelihood(self, x):
        return logsumexp(self._parts(x), axis=1)

    def grad_log_likelihood(self, x):
        parts = self._parts(x)
        shares = np.exp(parts - logsumexp(parts, axis=1, keepdims=True))
        pulls = (np.array([-1, 1]) * self.centre[0] - x) / self.sd**2
        return np.sum(shares * pulls, axis=1, keepdims=True)


def normal_case(kind="inflated", batches=4, size=3, seed=0):
    rng = np.random.default_rng(seed)
    densities = [Normal(rng.normal(0, 0.5, size), 1.0, 2.0) for _ in range(batches)]
    power, prior_power = {"inflated": (batches, 1), "fractionated": (1, 1 / batches)}[kind]
    draws = [{"x": one.draw(rng, power, prior_power)} for one in densities]
    return az_swiss.merge(draws, kind=kind), densities


def khat_of(merged, densities):
    """Return k-hat; a merge that is not certified warns, and must."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", az_swiss.MergeWarning)
        certified = az_swiss.certify(merged, densities, random_seed=1, **QUIET)
    certificate = certified["swiss_certificate"]
    assert bool(caught) != (certificate.attrs["status"] == "certified")
    return float(certificate["khat"])


def draw_on_grid(rng, density, power, shape=(2, 400)):
    grid = np.linspace(-9, 9, 18001)
    weights = np.exp(power * density.log_likelihood(grid[:, None]))
    step = grid[1] - grid[0]
    drawn = rng.choice(grid, size=(*shape, 1), p=weights / weights.sum())
    return drawn + rng.uniform(-step / 2, step / 2, size=drawn.shape)


def logistic_case(logistic_regression, sample_batch, rng, batches=4, size=20):
    truth = rng.normal(0, 0.4, size)
    densities = []
    for _ in range(batches):
        design = rng.standard_normal((250, size))
        outcomes = (rng.random(250) < expit(design @ truth)).astype(float)
        densities.append(logistic_regression(design, outcomes, np.ones(250), sd=2.0))
    draws = [
        {"x": sample_batch(rng, one, size, power=batches).reshape(4, -1, size)} for one in densities
    ]
    return densities, draws

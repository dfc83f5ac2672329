"""Densities that refine is tried on, and how far from right a refined merge is."""

import numpy as np
import xarray as xr

import arviz_swiss as az_swiss
from arviz_swiss.data import containers
from arviz_swiss.merging.merged import open_merged


class GaussianDensity:
    """A Gaussian prior and a Gaussian likelihood, given by mean and precision."""

    def __init__(self, prior, likelihood):
        self.terms = {"prior": prior, "likelihood": likelihood}

    def _log(self, term, x):
        mean, precision = self.terms[term]
        return -0.5 * np.einsum("ij,jk,ik->i", x - mean, precision, x - mean)

    def _grad(self, term, x):
        mean, precision = self.terms[term]
        return -(x - mean) @ precision

    def log_prior(self, x):
        return self._log("prior", x)

    def log_likelihood(self, x):
        return self._log("likelihood", x)

    def grad_log_prior(self, x):
        return self._grad("prior", x)

    def grad_log_likelihood(self, x):
        return self._grad("likelihood", x)

    def moments(self, power, prior_power):
        weights = {"prior": prior_power, "likelihood": power}
        precision = sum(weights[term] * own for term, (_, own) in self.terms.items())
        natural = sum(weights[term] * own @ mean for term, (mean, own) in self.terms.items())
        return np.linalg.solve(precision, natural), np.linalg.inv(precision)


class LogRate:
    """Counts with a flat prior of the log rates: the log of Gamma draws, skewed for few counts."""

    def __init__(self, counts, exposures):
        self.counts, self.exposures = counts, exposures

    def log_prior(self, x):
        return np.zeros(len(x))

    def grad_log_prior(self, x):
        return np.zeros_like(x)

    def log_likelihood(self, x):
        return x @ self.counts - np.exp(x) @ self.exposures

    def grad_log_likelihood(self, x):
        return self.counts - np.exp(x) * self.exposures


def mahalanobis(merged, mean, covariance, name="theta"):
    between = merged["posterior"][name].mean(("chain", "draw")).values - mean
    return float(np.sqrt(between @ np.linalg.solve(covariance, between)))


def check_left_alone(left, merged, rounds):
    """Check that nothing but the record of rounds is new."""
    for group, dataset in containers.read(merged).groups.items():
        if group != "swiss_transform":
            xr.testing.assert_identical(containers.read(left).groups[group], dataset)
    record, before = left["swiss_transform"], merged["swiss_transform"]
    for name in before.data_vars:
        xr.testing.assert_identical(record[name], before[name])
    assert record["taken"].values.tolist() == [True] + rounds * [False]
    np.testing.assert_allclose(record["round_mean"][-1], before["pooled_mean"], atol=1e-9)
    said = open_merged(left, "posterior").refinement.describe()
    assert f"led away from the posterior and was undone ({rounds} round" in said


def flags_of(merged):
    return [finding.flag for finding in az_swiss.report(merged).findings]


def far_case(start, sd=0.04):
    """Return draws of one log rate that are far from its posterior, and the densities."""
    rng = np.random.default_rng(1)
    densities = [LogRate(np.array([t]), np.array([50.0])) for t in (150.0, 160.0, 140.0, 150.0)]
    return az_swiss.merge(
        [{"u": rng.normal(start, sd, (2, 500, 1))} for _ in densities], kind="inflated"
    ), densities


def off_by(refined):
    # 600 events of 200 hours
    return float(np.abs(refined["posterior"]["u"].mean() - np.log(3.0))) * 600**0.5

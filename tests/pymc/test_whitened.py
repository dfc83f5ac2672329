"""Batches in whitened coordinates: moments, and chains that cannot be used."""

import numpy as np
import pymc as pm
import pytest
from conjugate_batch import BATCHES, full_pilot, gaussian, linear
from scipy.stats import norm

from arviz_swiss.base.effective import effective_sizes
from arviz_swiss.pymc.pilot import Pilot
from arviz_swiss.pymc.tempering import Powers
from arviz_swiss.pymc.whitened import sample_whitened

pytestmark = pytest.mark.usefixtures("uncompiled")

KINDS = {"inflated": (BATCHES, 1.0), "fractionated": (1.0, 1 / BATCHES), "full_prior": (1.0, 1.0)}
SETTINGS = {"label": "b0", "draws": 150, "tune": 40, "chains": 4, "seed": 1}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("names", ["abc", "cab"])
def test_moments_of_a_conjugate_batch(kind, names):
    powers = Powers(*KINDS[kind])
    groups = sample_whitened(linear(names), full_pilot(), powers, **SETTINGS)
    posterior, stats = groups["posterior"], groups["sample_stats"]
    draws = posterior["beta"].sel(feature=list("abc")).values
    mean, covariance = gaussian(*powers)
    sds = np.sqrt(np.diag(covariance))
    for series, expected in (((draws - mean) / sds, 0.0), (((draws - mean) / sds) ** 2, 1.0)):
        errors = series.std(axis=(0, 1)) / np.sqrt(effective_sizes(series))
        np.testing.assert_array_less(np.abs(series.mean(axis=(0, 1)) - expected), 4.5 * errors)
    assert posterior.attrs["tuning_steps"] == SETTINGS["tune"]
    assert posterior.sizes["draw"] == 150
    assert not stats["diverging"].any()
    assert stats["acceptance_rate"].mean() > 0.6
    # a batch that is wider than the pilot has trajectories as short as others
    assert stats["n_steps"].mean() < 5
    assert effective_sizes(draws).min() > 0.25 * 600


def one_dimensional(log_density):
    with pm.Model() as model:
        theta = pm.Flat("theta")
        pm.Potential("density", log_density(theta))
        pm.Normal("y", 0.0, 1.0, observed=[0.0])
    return model


def bimodal(theta):
    return pm.math.logaddexp(-((theta - 1) ** 2) / 0.02, -((theta + 1) ** 2) / 0.02)


@pytest.mark.parametrize(
    "log_density",
    [
        pytest.param(bimodal, id="bimodal"),
        pytest.param(lambda theta: pm.math.switch(theta > 0.0, -np.inf, -np.inf), id="nowhere"),
    ],
)
def test_chains_that_cannot_be_used_are_not(log_density):
    pilot = Pilot(("theta",), np.zeros(1), np.eye(1), "Laplace")
    model = one_dimensional(log_density)
    few = {**SETTINGS, "draws": 30, "tune": 15}
    assert sample_whitened(model, pilot, Powers(1.0, 1.0), **few) is None


def test_the_same_seed_gives_the_same_draws():
    draws = [
        sample_whitened(linear(), full_pilot(), Powers(BATCHES, 1.0), **{**SETTINGS, "seed": seed})
        for seed in (1, 1, 2)
    ]
    first, again, other = (groups["posterior"]["beta"].values for groups in draws)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_pilot_of_other_parameters_is_refused():
    pilot = full_pilot()._replace(parameters=("beta[a]", "beta[b]", "beta[z]"))
    with pytest.raises(ValueError, match="pilot's parameters are not those of the batch"):
        sample_whitened(linear(), pilot, Powers(1.0, 1.0), **SETTINGS)


def test_chains_turn_back_where_a_parameter_is_not_allowed():
    edge = -2.4
    with pm.Model() as model:
        theta = pm.Normal("theta")
        # no sd beyond the edge: PyMC's check of it must not fail the other chains
        pm.Normal("y", 0.0, pm.math.switch(theta > edge, 1.0, -1.0), observed=[0.3])
    pilot = Pilot(("theta",), np.zeros(1), np.eye(1), "Laplace")
    groups = sample_whitened(model, pilot, Powers(1.0, 1.0), **SETTINGS)
    assert groups["sample_stats"]["diverging"].any(), "no trajectory left the support"
    draws = groups["posterior"]["theta"].values
    assert draws.min() > edge
    # a normal variable without what lies beyond
    expected = norm.pdf(edge) / norm.sf(edge)
    error = draws.std() / np.sqrt(effective_sizes(draws[..., None])[0])
    assert abs(draws.mean() - expected) < 4.5 * error

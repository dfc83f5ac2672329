"""Models of white coordinates: the density of the batch, sampled, and its draws back again."""

import numpy as np
import pymc as pm
import pytensor
import pytest
from conjugate_batch import BATCHES, full_pilot, gaussian, linear

from arviz_swiss.base.effective import effective_sizes
from arviz_swiss.pymc.coordinates import Coordinates
from arviz_swiss.pymc.density import ModelDensity
from arviz_swiss.pymc.pilot import Pilot
from arviz_swiss.pymc.tempering import Powers
from arviz_swiss.pymc.white_model import WHITE, unwhiten, whiten

pytestmark = pytest.mark.usefixtures("uncompiled")

RNG = np.random.default_rng(8)


def some_pilot(coordinates):
    root = np.eye(coordinates.size) + 0.1 * RNG.normal(size=(coordinates.size,) * 2)
    mean = 0.3 * RNG.normal(size=coordinates.size)
    return Pilot(coordinates.parameters, mean, root @ root.T, "Laplace")


def test_whitened_models_have_the_density_of_the_batch():
    model = linear(extra=True)
    coordinates = Coordinates(model)
    pilot = some_pilot(coordinates)
    density = ModelDensity(model, coordinates.merge_space)
    white, own = whiten(model, pilot, Powers(3.0, 0.5))
    assert own.parameters == coordinates.parameters
    log_density = white.compile_logp()
    points = RNG.normal(size=(5, coordinates.size))
    values, _ = density.tempered(pilot.mean + points @ pilot.factor.T, 3.0, 0.5)
    found = [float(log_density({WHITE: point})) for point in points]
    np.testing.assert_allclose(np.subtract(found, found[0]), values - values[0], rtol=1e-9)


def test_whitened_models_can_be_sampled():
    model, powers = linear(), Powers(BATCHES, 1.0)
    white, coordinates = whiten(model, full_pilot(), powers)
    with pytensor.config.change_flags(cxx=""), white:
        idata = pm.sample(
            draws=100,
            tune=50,
            chains=1,
            cores=1,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
            nuts_sampler="pymc",
        )
    posterior = unwhiten(idata["posterior"], full_pilot(), coordinates)
    mean, covariance = gaussian(*powers)
    draws = posterior["beta"].values
    errors = np.sqrt(np.diag(covariance) / effective_sizes(draws))
    np.testing.assert_array_less(np.abs(draws.mean(axis=(0, 1)) - mean), 4.5 * errors)
    assert posterior["feature"].values.tolist() == list("abc")

"""inflate against its definition, and sampled."""

import numpy as np
import pymc as pm
import pytest
from likelihoods import MODELS, Y, assert_same_density

from arviz_swiss.pymc import inflate

# PyTensor says so once, where it was installed by pip
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param]()


@pytest.mark.usefixtures("uncompiled")
def test_inflate_equals_its_definition(model):
    terms = [(1.0, model.free_RVs, True), (7.5, model.observed_RVs, False)]
    assert_same_density(inflate(model, 7.5), model, terms)


@pytest.mark.parametrize("nuts_sampler", ["pymc", "nutpie"])
def test_tempered_models_sample(nuts_sampler):
    # known-variance normal mean: the inflated posterior of n rows with power p is that of p n rows
    with pm.Model(coords={"row": np.arange(12)}) as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        pm.Deterministic("fitted", mu * np.ones(12), dims="row")
        pm.Normal("y", mu, 1.0, observed=Y, dims="row")
    idata = pm.sample(
        model=inflate(model, 10.0),
        nuts_sampler=nuts_sampler,
        draws=500,
        tune=300,
        chains=2,
        cores=1,
        random_seed=3,
        progressbar=False,
        compute_convergence_checks=False,
    )
    precision = 1.0 + 10.0 * 12
    draws = idata["posterior"]["mu"].values
    # 1000 draws, at least 200 of them effective: six standard errors
    assert abs(draws.mean() - 10.0 * Y.sum() / precision) < 6 * precision**-0.5 / 200**0.5
    assert abs(draws.std() * precision**0.5 - 1.0) < 6 / (2 * 200) ** 0.5
    assert list(idata["posterior"].data_vars) == ["mu", "fitted"]
    assert idata["posterior"]["fitted"].dims == ("chain", "draw", "row")
    np.testing.assert_array_equal(idata["observed_data"]["y"], Y)

"""fractionate against its definition."""

import numpy as np
import pymc as pm
import pytest
from likelihoods import MODELS, Y, assert_same_density, normal

from arviz_swiss.pymc import fractionate

# PyTensor says so once, where it was installed by pip
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param]()


@pytest.mark.usefixtures("uncompiled")
def test_fractionate_equals_its_definition(model):
    missing = [rv for rv in model.free_RVs if rv.name.endswith("_unobserved")]
    local = [rv for rv in model.free_RVs if rv.name == "z"]
    shared = [rv for rv in model.free_RVs if rv not in local + missing]
    terms = [(0.2, shared, True), (1.0, local + missing + model.observed_RVs, True)]
    assert_same_density(fractionate(model, 0.2, local=[rv.name for rv in local]), model, terms)


@pytest.mark.usefixtures("uncompiled")
def test_fractionate_leaves_the_jacobian_of_untransformed_variables_whole(model):
    missing = [rv for rv in model.free_RVs if rv.name.endswith("_unobserved")]
    first, *others = [rv for rv in model.free_RVs[::-1] if rv not in missing]
    terms = [
        (0.2, others, True),
        (1.0, [first], True),
        (-0.8, [first], False),
        (1.0, missing + model.observed_RVs, True),
    ]
    assert_same_density(fractionate(model, 0.2, untransformed=[first.name]), model, terms)


@pytest.mark.usefixtures("uncompiled")
def test_the_fractions_of_all_batches_make_one_posterior():
    point = {"mu": 0.7, "sigma_log__": -0.2}
    whole = normal().compile_logp()(point)
    parts = 0.0
    for rows in (Y[:3], Y[3:]):
        with pm.Model() as batch:
            mu = pm.Normal("mu", 0.5, 2.0)
            sigma = pm.HalfNormal("sigma", 1.5)
            pm.Normal("y", mu, sigma, observed=rows)
        parts += fractionate(batch, total_size=12).compile_logp()(point)
    np.testing.assert_allclose(parts, whole, rtol=1e-12)

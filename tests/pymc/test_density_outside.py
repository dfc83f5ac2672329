"""Points where a model has no density, among others where it has one."""

import numpy as np
import pymc as pm
import pytest

import arviz_swiss as az_swiss
from arviz_swiss.pymc.coordinates import Coordinates
from arviz_swiss.pymc.density import ModelDensity

pytestmark = pytest.mark.usefixtures("uncompiled")
QUIET = {"progressbar": False}


def with_scale(y):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        scale = pm.HalfNormal("scale", 1)
        pm.Normal("y", mu, scale, observed=y)
    return model


def test_a_point_whose_parameters_are_not_allowed_does_not_spoil_the_others():
    rng = np.random.default_rng(14)
    model = with_scale(rng.standard_normal(5))
    density = ModelDensity(model, Coordinates(model).merge_space)
    x = 0.5 * rng.standard_normal((5, 2))
    values, gradients = density.tempered(x, 2.0, 0.5)
    spoilt = x.copy()
    spoilt[1, 1] = -800.0  # a scale of zero
    others = [0, 2, 3, 4]
    for got, whole in zip(density.tempered(spoilt, 2.0, 0.5), (values, gradients), strict=True):
        np.testing.assert_array_equal(got[others], whole[others])
    assert density.tempered(spoilt, 2.0, 0.5)[0][1] == -np.inf
    for method in ("log_likelihood", "grad_log_likelihood", "log_prior", "grad_log_prior"):
        np.testing.assert_array_equal(
            getattr(density, method)(spoilt)[others], getattr(density, method)(x)[others]
        )


def test_merged_draws_outside_the_support_are_refused_or_count_for_nothing():
    rng = np.random.default_rng(15)
    models = [with_scale(rng.standard_normal(5)) for _ in range(2)]
    draws = [
        {"mu": rng.standard_normal((2, 300)), "scale": np.abs(rng.normal(0.5, 0.4, (2, 300)))}
        for _ in models
    ]
    merged = az_swiss.merge(draws, kind="inflated")
    outside = merged["posterior"]["scale"].values.ravel() < 0
    assert outside.any()
    with pytest.raises(ValueError, match=r"outside the bounds of scale\..*transforms= or model="):
        az_swiss.refine(merged, models, random_seed=1, **QUIET)
    with pytest.warns(az_swiss.MergeWarning, match="weights"):
        certified = az_swiss.certify(merged, models, draws=outside.size, random_seed=1, **QUIET)
    weights = certified["swiss_certificate"]["log_weight"].values.ravel()
    assert np.sum(weights == -np.inf) == outside.sum()

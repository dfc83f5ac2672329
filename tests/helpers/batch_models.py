"""Small models and data that tests of sampling share."""

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from arviz_swiss.data import containers

RNG = np.random.default_rng(3)
DATA = pd.DataFrame({"x": RNG.normal(size=50), "group": np.repeat(np.arange(10), 5)})
DATA["y"] = 1 + 2 * DATA["x"] + RNG.normal(size=50)


def build(batch):
    with pm.Model(coords={"coefficient": ["level", "slope"]}) as model:
        x, y = pm.Data("x", batch["x"]), pm.Data("y_data", batch["y"])
        beta = pm.Normal("beta", 0, 3, dims="coefficient")
        sigma = pm.HalfNormal("sigma", 2)
        pm.Deterministic("variance", sigma**2)
        pm.Normal("y", beta[0] + beta[1] * x, sigma, observed=y)
    return model


def mean_only(batch):
    return with_prior(10.0)(batch)


def with_prior(sd):
    def build(batch):
        with pm.Model() as model:
            mu = pm.Normal("mu", 0, sd)
            pm.Normal("y", mu, 1, observed=pm.Data("y_data", batch["y"]))
        return model

    return build


def hierarchy(batch, labelled=True):
    codes, names = pd.factorize(batch["group"])
    with pm.Model(coords={"group": names} if labelled else None) as model:
        mu = pm.Normal("mu", 0, 3)
        tau = pm.HalfNormal("tau", 1)
        size = {"dims": "group"} if labelled else {"shape": len(names)}
        u = pm.Normal("u", 0, tau, **size)
        pm.Normal("y", mu + u[codes], 1, observed=batch["y"])
    return model


def assert_same_draws(idatas, expected):
    assert len(idatas) == len(expected)
    for pair in zip(idatas, expected, strict=True):
        posteriors = [containers.read(idata).groups["posterior"] for idata in pair]
        xr.testing.assert_equal(*posteriors)
        assert posteriors[0].attrs["swiss_batch"] == posteriors[1].attrs["swiss_batch"]

"""A linear regression of one batch, and the posterior of many that are like it."""

import numpy as np
import pymc as pm

from arviz_swiss.pymc.pilot import Pilot

RNG = np.random.default_rng(8)
X = RNG.normal([0.5, 0, 0], size=(60, 3))
Y = X @ [1.0, -1.0, 0.5] + RNG.normal(size=60)
BATCHES = 20


def linear(names="abc", extra=False):
    places = ["abc".index(name) for name in names]
    with pm.Model(coords={"feature": list(names)}) as model:
        beta = pm.Normal("beta", 0, 2, dims="feature")
        pm.Normal("y", pm.math.dot(X[:, places], beta), 1, observed=Y)
        if extra:
            scale = pm.HalfNormal("scale", 2.0)
            pm.Potential("near", -((beta - scale) ** 2).sum())
    return model


def gaussian(power, prior_power):
    precision = power * X.T @ X + prior_power * np.eye(3) / 4
    return np.linalg.solve(precision, power * X.T @ Y), np.linalg.inv(precision)


def full_pilot():
    """Return the posterior of as many batches as there are, all like the one that is sampled."""
    return Pilot(tuple(f"beta[{name}]" for name in "abc"), *gaussian(BATCHES, 1.0), "Laplace")

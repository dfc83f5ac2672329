"""PyMC models of rows in groups, and their exact posteriors."""

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from arviz_swiss.data import containers

TAU = 0.7
SHARED = ("level", "slope")


def make_groups(groups=9, rows=20, tau=TAU, seed=0, sizes=None):
    """Return a table of rows in sites, whose labels are in no order of use."""
    rng = np.random.default_rng(seed)
    sizes = np.full(groups, rows) if sizes is None else np.asarray(sizes)
    names = np.array([f"s{at:02d}" for at in rng.permutation(len(sizes))])
    table = pd.DataFrame({"site": np.repeat(names, sizes), "x": rng.normal(size=sizes.sum())})
    effects = np.repeat(rng.normal(0, tau, len(sizes)), sizes)
    table["y"] = 1 + 0.5 * table["x"] + effects + rng.normal(size=len(table))
    return table


def normal_groups(batch):
    """Build a model that is Gaussian in all: the sd of the effects is known."""
    return _model(batch, lambda: TAU)


def scaled_groups(batch):
    """Build the same with an sd of the effects that is not known."""
    return _model(batch, lambda: pm.HalfNormal("tau", 1))


def _model(batch, scale):
    codes, names = pd.factorize(batch["site"])
    with pm.Model(coords={"site": names}) as model:
        level, slope = pm.Normal("level", 0, 3), pm.Normal("slope", 0, 2)
        effect = pm.Normal("effect", 0, scale(), dims="site")
        mean = level + slope * batch["x"].to_numpy() + effect[codes]
        pm.Normal("y", mean, 1, observed=batch["y"])
    return model


def exact_posterior(table, tau=TAU):
    """Return mean and covariance of level, slope and all effects, and the labels of these."""
    codes, names = pd.factorize(table["site"])
    design = np.column_stack([np.ones(len(table)), table["x"], np.eye(len(names))[codes]])
    prior = np.array([3.0**-2, 2.0**-2, *[tau**-2] * len(names)])
    covariance = np.linalg.inv(design.T @ design + np.diag(prior))
    return covariance @ design.T @ table["y"].to_numpy(), covariance, names


def exact_scaled_posterior(table):
    """Return means and sds of level, slope and tau, by a grid of the latter."""
    grid = np.linspace(0.005, 3, 400)
    codes, names = pd.factorize(table["site"])
    design = np.column_stack([np.ones(len(table)), table["x"], np.eye(len(names))[codes]])
    products, pull = design.T @ design, design.T @ table["y"].to_numpy()
    logs, means, variances = [], [], []
    for tau in grid:
        prior = np.array([3.0**-2, 2.0**-2, *[tau**-2] * len(names)])
        precision = products + np.diag(prior)
        covariance = np.linalg.inv(precision)
        mean = covariance @ pull
        determinants = np.log(prior).sum() - np.linalg.slogdet(precision)[1]
        logs.append((determinants + mean @ pull - tau**2) / 2)
        means.append([*mean[:2], tau])
        variances.append([*np.diag(covariance)[:2], 0.0])
    weights = np.exp(np.array(logs) - np.max(logs))
    weights /= weights.sum()
    mean = weights @ np.array(means)
    return mean, np.sqrt(weights @ (np.array(variances) + (np.array(means) - mean) ** 2))


def draw_fractionated(rng, part, rows, label):
    """Draw a batch whose share of the prior is its share of so many rows, exactly, a bit off."""
    share = len(part) / rows
    codes, names = pd.factorize(part["site"])
    design = np.column_stack([np.ones(len(part)), part["x"], np.eye(len(names))[codes]])
    prior = np.array([share / 9, share / 4, *[TAU**-2] * len(names)])
    covariance = np.linalg.inv(design.T @ design + np.diag(prior))
    mean = covariance @ design.T @ part["y"].to_numpy()
    draws = rng.multivariate_normal(mean, covariance, (4, 200))
    posterior = xr.Dataset(
        {
            "level": (("chain", "draw"), draws[..., 0] + 0.3),  # not right: there is work to do
            "slope": (("chain", "draw"), draws[..., 1]),
            "effect": (("chain", "draw", "site"), draws[..., 2:]),
        },
        coords={"chain": range(4), "draw": range(200), "site": names},
        attrs={
            "swiss_batch": label,
            "swiss_kind": "fractionated",
            "swiss_size": len(part),
            "swiss_local": "effect",
        },
    )
    return containers.build({"posterior": posterior})

"""Data and PyMC models with effects of groups, which the benchmarks sample whole and divided."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Hierarchy(NamedTuple):
    """Rows in groups, and the model of some of the groups.

    `load` takes the numbers of groups and of rows in each, and returns named arrays; `build` takes
    these. `names` are the model's parameters, the `effects` of groups last. `positive` maps shared
    parameters to their elements that are positive, None for all: there the unconstrained space is
    that of logarithms. `hard` is a posterior that is skewed itself, `times` how many times less CPU
    time an effective draw is to take, `draws` how many a divided run has in all, and
    `reference_draws` how many each chain of a reference has, of the model that `build_reference`
    makes where `build`'s is hard to sample.
    """

    title: str
    size: tuple[int, int]
    quick_size: tuple[int, int]
    batches: tuple[int, ...]
    load: Callable[[tuple[int, int]], dict[str, np.ndarray]]
    build: Callable[..., Any]
    names: tuple[str, ...]
    effects: str
    positive: dict[str, tuple[int, ...] | None]
    hard: bool = False
    times: float | None = None
    draws: int = 4000
    reference_draws: int = 5000
    build_reference: Callable[..., Any] | None = None


def sites(size):
    """Return the group of each row."""
    return np.repeat(np.arange(size[0]), size[1])


def simulate_intercepts(size, scale=0.7, more=0):
    """Return features, an intercept first, groups, and outcomes of 0 and 1."""
    rng = np.random.default_rng(14)
    site = sites(size)
    rows = len(site)
    columns = [np.ones(rows), *rng.standard_normal((2, rows))]
    columns += [rng.binomial(1, share, rows) for share in (0.3, 0.05)]
    columns += list(rng.standard_normal((more, rows)))
    features = np.column_stack(columns)
    slopes = np.concatenate([[-1.0, 0.8, -0.5, 0.4, 0.7], rng.normal(0, 0.3, more)])
    logits = features @ slopes + scale * rng.standard_normal(size[0])[site]
    return {"X": features, "site": site, "y": rng.binomial(1, 1 / (1 + np.exp(-logits)))}


def simulate_hard(size):
    return simulate_intercepts(size, scale=0.3)


def simulate_fixed(size):
    return simulate_intercepts(size, more=16)


def simulate_slopes(size):
    """Return two features, of which the first one's slope depends on the group, and counts."""
    rng = np.random.default_rng(30)
    site = sites(size)
    features = rng.standard_normal((len(site), 2))
    covariance = np.array([[0.25, 0.08], [0.08, 0.15]])
    effects = rng.multivariate_normal(np.zeros(2), covariance, size[0])[site]
    logs = 0.3 + effects[:, 0] + (0.3 + effects[:, 1]) * features[:, 0] - 0.2 * features[:, 1]
    return {"X": features, "site": site, "y": rng.poisson(np.exp(logs))}


def simulate_large(size, columns=10):
    """Return the data of section 4.3 of the paper: yes or no features, and logistic noise."""
    rng = np.random.default_rng(2023)
    site = sites(size)
    features = rng.binomial(1, 0.5, (len(site), columns)).astype(float)
    features[:, 0] = 1
    weights = rng.binomial(1, 0.5, (size[0], 2)).astype(float)
    effects = rng.multivariate_normal(np.zeros(2), [[1.0, 0.2], [0.2, 1.0]], size[0])
    level = features @ (-1.0) ** np.arange(columns) + (weights * effects).sum(axis=1)[site]
    return {
        "X": features,
        "z": weights[site],
        "site": site,
        "y": level + rng.logistic(size=len(site)),
    }


def labels_and_places(data):
    """Return the groups' labels and the place of each row's group among them."""
    return np.unique(data["site"], return_inverse=True)


def build_intercepts(data):
    """Return a logistic regression with an intercept of each group."""
    import pymc as pm

    labels, places = labels_and_places(data)
    with pm.Model(coords={"site": labels}) as model:
        beta = pm.Normal("beta", 0, 2.5, shape=data["X"].shape[1])
        tau = pm.HalfNormal("tau", 1)
        effect = pm.Normal("effect", 0, tau, dims="site")
        logits = pm.Data("X", data["X"]) @ beta + effect[pm.Data("place", places)]
        pm.Bernoulli("y", logit_p=logits, observed=pm.Data("outcome", data["y"]))
    return model


def build_non_centred(data):
    """Return the same regression, whose effects are the scale times a standard normal variable.

    Where the scale may be close to zero, chains move through this form, and get stuck in the other.
    """
    import pymc as pm

    labels, places = labels_and_places(data)
    with pm.Model(coords={"site": labels}) as model:
        beta = pm.Normal("beta", 0, 2.5, shape=data["X"].shape[1])
        tau = pm.HalfNormal("tau", 1)
        white = pm.Normal("white", 0, 1, dims="site")
        effect = pm.Deterministic("effect", tau * white, dims="site")
        logits = pm.Data("X", data["X"]) @ beta + effect[pm.Data("place", places)]
        pm.Bernoulli("y", logit_p=logits, observed=pm.Data("outcome", data["y"]))
    return model


def build_slopes(data):
    """Return a Poisson regression with an intercept and a slope of each group, correlated."""
    import pymc as pm

    labels, places = labels_and_places(data)
    with pm.Model(coords={"site": labels, "term": ["intercept", "slope"]}) as model:
        beta = pm.Normal("beta", 0, 2.5, shape=3)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1))
        effect = pm.MvNormal("effect", 0, chol=chol, dims=("site", "term"))
        features, place = pm.Data("X", data["X"]), pm.Data("place", places)
        logs = beta[0] + features @ beta[1:] + effect[place, 0] + effect[place, 1] * features[:, 0]
        pm.Poisson("y", pm.math.exp(logs), observed=pm.Data("count", data["y"]))
    return model


def build_large(data):
    """Return the model of section 4.3 of the paper, as ``notebooks/paper`` writes it.

    Of the two effects of a group their weighted sum alone touches the data, so that is sampled;
    groups whose weights are zero have none. The inverse Wishart prior of the covariance is written
    by Bartlett's decomposition.
    """
    import pymc as pm
    import pytensor.tensor as pt

    labels, first, places = np.unique(data["site"], return_index=True, return_inverse=True)
    weights = data["z"][first]
    touched = weights.any(axis=1)
    # rows of groups without an effect point past the end, at a zero
    place = np.where(touched, np.cumsum(touched) - 1, touched.sum())[places]
    with pm.Model(coords={"site": labels[touched]}) as model:
        beta = pm.Normal("beta", 0, np.sqrt(1000), shape=data["X"].shape[1])
        square1, square2 = pm.ChiSquared("square1", 5), pm.ChiSquared("square2", 4)
        below = pm.Normal("below")
        first_variance = 5 / square1 * (1 + below**2 / square2)
        covariance = -5 * below / (pt.sqrt(square1) * square2)
        z1, z2 = (pm.Data(f"z{k + 1}", weights[touched, k]) for k in range(2))
        variance = z1 * first_variance + 2 * z1 * z2 * covariance + z2 * 5 / square2
        effect = pm.Normal("effect", 0, pt.sqrt(variance), dims="site")
        all_effects = pt.concatenate([effect, np.zeros(1)])
        level = pm.Data("X", data["X"]) @ beta + all_effects[pm.Data("place", place)]
        pm.Logistic("y", level, 1, observed=pm.Data("outcome", data["y"]))
    return model


INTERCEPTS = {
    "build": build_intercepts,
    "names": ("beta", "tau", "effect"),
    "effects": "effect",
    "positive": {"tau": None},
}

HIERARCHIES = {
    "intercepts": Hierarchy(
        "logistic regression, an intercept of each group",
        (200, 50),
        (40, 50),
        (5, 10, 20),
        simulate_intercepts,
        **INTERCEPTS,
    ),
    "slopes": Hierarchy(
        "Poisson regression, an intercept and a slope of each group with their covariance",
        (300, 30),
        (40, 30),
        (10,),
        simulate_slopes,
        build_slopes,
        ("beta", "chol", "effect"),
        "effect",
        # the diagonal of the packed factor
        {"chol": (0, 2)},
    ),
    "fixed": Hierarchy(
        "logistic regression, 21 fixed effects",
        (200, 50),
        (40, 50),
        (10,),
        simulate_fixed,
        **INTERCEPTS,
    ),
    "hard": Hierarchy(
        "logistic regression, few rows a group and a small scale",
        (100, 10),
        (50, 10),
        (5, 10),
        simulate_hard,
        **INTERCEPTS,
        hard=True,
        build_reference=build_non_centred,
    ),
    "large": Hierarchy(
        "the paper's mixed effects, Table 1",
        (2000, 100),
        (60, 20),
        (10,),
        simulate_large,
        build_large,
        ("beta", "square1", "square2", "below", "effect"),
        "effect",
        {"square1": None, "square2": None},
        times=3,
        # as many effective draws of an effect as the run of all rows has
        draws=20_000,
        # of 200,000 rows
        reference_draws=1500,
    ),
}

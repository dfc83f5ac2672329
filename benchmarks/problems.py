"""Data and PyMC models that the benchmarks sample whole and divided."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Problem(NamedTuple):
    """Rows, and the model of some of them.

    `load` takes a number of rows and returns named arrays, `build` takes these, or minibatches of
    them with a total size; `names` are the model's parameters. `targets` are, for each state of the
    caches, how many times less CPU and wall-clock time dividing is to take.
    """

    title: str
    rows: int
    load: Callable[[int], dict[str, np.ndarray]]
    build: Callable[..., Any]
    names: tuple[str, ...]
    targets: dict[str, tuple[float, float]]


def load_late(rows):
    import flights

    return flights.late(rows)


def load_late_by_season(rows):
    import flights

    return flights.late_by_season(rows)


def load_arrival_delay(rows):
    import flights

    return flights.arrival_delay(rows)


def simulate_logistic(rows, columns=10):
    """Return features, an intercept first, and outcomes of 0 and 1."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((rows, columns))
    features[:, 0] = 1
    logits = features @ rng.normal(0, 0.5, columns)
    return {"X": features, "y": (rng.random(rows) < 1 / (1 + np.exp(-logits))).astype(int)}


def simulate_normal(rows):
    return {"y": np.random.default_rng(0).normal(1, 2, rows)}


def column(name, data):
    """Return data of the model, or a minibatch as it is."""
    import pymc as pm

    values = data[name]
    return pm.Data(name, values) if isinstance(values, np.ndarray) else values


def width(features):
    """Return the number of columns of an array or a minibatch."""
    return getattr(features, "type", features).shape[1]


def build_logistic(data, total_size=None):
    """Return a logistic regression."""
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 10, shape=width(data["X"]))
        logits = column("X", data) @ beta
        observed = {"observed": column("y", data), "total_size": total_size}
        pm.Bernoulli("late", logit_p=logits, **observed)
    return model


def build_student(data, total_size=None):
    """Return a regression with Student's t errors, their scale and degrees of freedom unknown."""
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 10, shape=width(data["X"]))
        sigma, nu = pm.HalfNormal("sigma", 5), pm.Gamma("nu", 2, 0.1)
        mean = column("X", data) @ beta
        observed = {"observed": column("y", data), "total_size": total_size}
        pm.StudentT("delay", nu=nu, mu=mean, sigma=sigma, **observed)
    return model


def build_normal(data, total_size=None):
    """Return a normal sample's model."""
    import pymc as pm

    with pm.Model() as model:
        mean, sd = pm.Normal("mean", 0, 10), pm.HalfNormal("sd", 5)
        observed = {"observed": column("y", data), "total_size": total_size}
        pm.Normal("value", mean, sd, **observed)
    return model


PROBLEMS = {
    "flights": Problem(
        "late arrivals, logistic regression",
        100_000,
        load_late,
        build_logistic,
        ("beta",),
        {"cold": (6, 4), "warm": (10, 6)},
    ),
    "all-flights": Problem(
        "late arrivals of all flights, logistic regression",
        327_346,
        load_late_by_season,
        build_logistic,
        ("beta",),
        {"cold": (5, 3)},
    ),
    "student": Problem(
        "arrival delays, Student's t regression",
        100_000,
        load_arrival_delay,
        build_student,
        ("beta", "sigma", "nu"),
        {"cold": (5, 3)},
    ),
    "simulated": Problem(
        "simulated logistic regression", 100_000, simulate_logistic, build_logistic, ("beta",), {}
    ),
    "trivial": Problem("a normal sample", 1000, simulate_normal, build_normal, ("mean", "sd"), {}),
}

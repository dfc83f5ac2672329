"""Small models of many kinds, with data in `pm.Data` or as constants."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

ROWS = 40


def some_data(rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.normal(size=(rows, 3)),
        "y": rng.normal(size=rows),
        "n": rng.poisson(2.0, size=rows),
        "b": rng.integers(0, 2, size=rows),
        "k": rng.integers(0, 3, size=rows),
        "group": rng.integers(0, 5, size=rows),
        "pair": rng.normal(size=(rows, 2)),
    }


class Held:
    """The columns of a table, each as `pm.Data` or as it is."""

    def __init__(self, data, as_data):
        self._data, self._as_data = data, as_data

    def __getattr__(self, name):
        array = self._data[name]
        return pm.Data(f"{name}_data", array) if self._as_data else array


def normal(data):
    beta, sigma = pm.Normal("beta", 0, 2, shape=3), pm.HalfNormal("sigma", 2)
    pm.Normal("y", pt.dot(data.x, beta), sigma, observed=data.y)


def bernoulli(data):
    beta = pm.Normal("beta", 0, 2, shape=3)
    pm.Bernoulli("y", logit_p=pt.dot(data.x, beta), observed=data.b)


def poisson(data):
    beta = pm.Normal("beta", 0, 0.5, shape=3)
    pm.Poisson("y", pt.exp(pt.dot(data.x, beta)), observed=data.n)


def negative_binomial(data):
    beta, alpha = pm.Normal("beta", 0, 0.5, shape=3), pm.Exponential("alpha", 1.0)
    pm.NegativeBinomial("y", mu=pt.exp(pt.dot(data.x, beta)), alpha=alpha, observed=data.n)


def student(data):
    nu, mu = pm.Gamma("nu", 2, 0.1), pm.Normal("mu", shape=3)
    pm.StudentT("y", nu=nu, mu=pt.dot(data.x, mu), sigma=pm.HalfNormal("s"), observed=data.y)


def ordered_logistic(data):
    cuts = pm.Normal(
        "cuts",
        0,
        2,
        shape=2,
        transform=pm.distributions.transforms.ordered,
        initval=np.array([-1.0, 1.0]),
    )
    eta = pt.dot(data.x, pm.Normal("beta", shape=3))
    pm.OrderedLogistic("y", eta=eta, cutpoints=cuts, observed=data.k, compute_p=False)


def softmax(data):
    beta = pm.Normal("beta", shape=(3, 3))
    pm.Categorical("y", logit_p=pt.dot(data.x, beta), observed=data.k)


def mixture(data):
    weights, mu = pm.Dirichlet("weights", np.ones(2)), pm.Normal("mu", shape=2)
    pm.NormalMixture("y", weights, mu, 0.7, observed=data.y)


def censored(data):
    mu, sigma = pm.Normal("mu"), pm.HalfNormal("sigma")
    latent = pm.Normal.dist(mu, sigma)
    pm.Censored("y", latent, lower=None, upper=5.0, observed=data.y)


def hierarchical(data):
    tau, mu = pm.HalfCauchy("tau", 1.0), pm.Normal("mu")
    u = pm.Normal("u", 0, tau, shape=5)
    pm.Normal("y", mu + u[data.group], 1, observed=data.y)


def correlated(data):
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
    pm.MvNormal("y", pm.Normal("mu", shape=2), chol=chol, observed=data.pair)


def zero_sum(data):
    u = pm.ZeroSumNormal("u", 1.0, shape=5)
    pm.Normal("y", u[data.group], 1, observed=data.y)


def random_walk(data):
    steps = pm.HalfNormal("steps")
    walk = pm.GaussianRandomWalk("walk", 0, steps, init_dist=pm.Normal.dist(0, 1), shape=6)
    pm.Normal("y", walk[data.group], 1, observed=data.y)


def truncated(data):
    mu, sigma = pm.Normal("mu"), pm.HalfNormal("sigma")
    pm.Truncated("y", pm.Normal.dist(mu, sigma), lower=-4.0, upper=4.0, observed=data.y)


def beta_binomial(data):
    a, b = pm.Gamma("a", 2, 1), pm.Gamma("b", 2, 1)
    pm.BetaBinomial("y", a, b, n=12, observed=data.n)


def weibull(data):
    alpha, beta = pm.Gamma("alpha", 2, 1), pm.Gamma("beta", 2, 1)
    pm.Weibull("y", alpha, beta, observed=abs(data.y))


def zero_inflated(data):
    psi, mu = pm.Beta("psi", 2, 2), pm.Gamma("mu", 2, 1)
    pm.ZeroInflatedPoisson("y", psi, mu, observed=data.n)


def forty_variables(data):
    """So many terms that NumPy's functions, of at most 32 operands, cannot take them at once."""
    level = sum(pm.Normal(f"v{i}") for i in range(40))
    pm.Normal("y", level, 3.0, observed=data.y)


MODELS = {
    make.__name__: make
    for make in (
        normal,
        bernoulli,
        poisson,
        negative_binomial,
        student,
        ordered_logistic,
        softmax,
        mixture,
        censored,
        hierarchical,
        correlated,
        zero_sum,
        random_walk,
        truncated,
        beta_binomial,
        weibull,
        zero_inflated,
        forty_variables,
    )
}


def build(kind, as_data=True, rows=ROWS, seed=0):
    with pm.Model() as model:
        MODELS[kind](Held(some_data(rows, seed), as_data))
    return model

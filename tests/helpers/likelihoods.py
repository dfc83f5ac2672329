"""Models of many likelihoods, and their densities put together from weighted parts."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt

# 12 rows; no constraint of any model below is violated by them
Y = np.array([0.3, 1.1, 0.2, 2.0, 0.7, 1.6, 0.9, 0.4, 1.3, 2.0, 0.5, 1.0])


def normal():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.5, 2.0)
        sigma = pm.HalfNormal("sigma", 1.5)
        pm.Normal("y", mu, sigma, observed=Y)
    return model


def censored():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        sigma = pm.HalfNormal("sigma")
        pm.Censored("y", pm.Normal.dist(mu, sigma), lower=None, upper=2.0, observed=Y)
    return model


def truncated():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        sigma = pm.HalfNormal("sigma")
        pm.Truncated("y", pm.Normal.dist(mu, sigma), lower=0.0, upper=3.0, observed=Y)
    return model


def custom_logp():
    def laplace(value, mu, scale):
        return -pt.log(2 * scale) - pt.abs(value - mu) / scale

    with pm.Model() as model:
        mu = pm.Normal("mu")
        scale = pm.Gamma("scale", 2.0, 2.0)
        pm.CustomDist("y", mu, scale, logp=laplace, observed=Y)
    return model


def custom_dist():
    def lognormal(mu, sigma, size):
        return pt.exp(pm.Normal.dist(mu, sigma, size=size))

    with pm.Model() as model:
        mu = pm.Normal("mu")
        sigma = pm.HalfNormal("sigma")
        pm.CustomDist("y", mu, sigma, dist=lognormal, observed=Y)
    return model


def mixture():
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(2))
        ordered = pm.distributions.transforms.ordered
        mu = pm.Normal("mu", shape=2, transform=ordered, initval=np.array([0.5, 1.5]))
        pm.NormalMixture("y", weights, mu, 0.5, observed=Y)
    return model


def multivariate():
    with pm.Model() as model:
        mu = pm.Normal("mu", shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", eta=2.0, n=2, sd_dist=pm.Exponential.dist(1.0))
        pm.MvNormal("y", mu, chol=chol, observed=Y.reshape(6, 2))
    return model


def imputed():
    with warnings.catch_warnings(), pm.Model() as model:
        warnings.simplefilter("ignore", pm.exceptions.ImputationWarning)
        mu = pm.Normal("mu")
        sigma = pm.HalfNormal("sigma")
        pm.Normal("y", mu, sigma, observed=np.ma.masked_less(Y, 0.4))
    return model


def several():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        p = pm.Beta("p", 2.0, 3.0)
        pm.Normal("y", mu, observed=Y)
        pm.Bernoulli("z", p, observed=(Y > 1).astype(int))
    return model


def hierarchical():
    with pm.Model(coords={"group": ["a", "b", "c"]}) as model:
        tau = pm.HalfCauchy("tau", 1.0)
        z = pm.Normal("z", 0.0, tau, dims="group")
        pm.Normal("y", z[np.arange(12) % 3], 1.0, observed=Y)
    return model


MODELS = {
    build.__name__: build
    for build in (
        normal,
        censored,
        truncated,
        custom_logp,
        custom_dist,
        mixture,
        multivariate,
        imputed,
        several,
        hierarchical,
    )
}


def random_points(model, count=3):
    rng = np.random.default_rng(20)
    start = model.initial_point(0)
    return [
        {name: value + 0.3 * rng.normal(size=np.shape(value)) for name, value in start.items()}
        for _ in range(count)
    ]


def log_density_and_gradient(model, terms):
    """Compile the weighted sum of parts of the log density, and its gradient.

    `terms` are triples: weight, variables, whether with the Jacobian.
    """
    total = sum(weight * model.logp(vars=rvs, jacobian=jac) for weight, rvs, jac in terms if rvs)
    outputs = [total, *pt.grad(total, model.continuous_value_vars)]
    return model.compile_fn(outputs, inputs=model.value_vars)


def assert_same_density(tempered, original, terms):
    expected = log_density_and_gradient(original, terms)
    everything = tempered.free_RVs + tempered.observed_RVs + tempered.potentials
    actual = log_density_and_gradient(tempered, [(1.0, everything, True)])
    for point in random_points(original):
        for got, want in zip(actual(point), expected(point), strict=True):
            assert np.all(np.isfinite(want))
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)

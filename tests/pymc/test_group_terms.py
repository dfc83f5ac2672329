"""Log densities by group, against those of models of one group alone."""

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.stats import norm

from arviz_swiss.base.conditional import find_conditional
from arviz_swiss.base.integrals import Place, log_integrals_by_group
from arviz_swiss.pymc import group_terms
from arviz_swiss.pymc.coordinates import Coordinates
from arviz_swiss.pymc.group_terms import GroupTerms, NoGroups
from arviz_swiss.pymc.joint_density import ModelJointDensity

GROUPS = 5


def some_rows(seed=0, groups=GROUPS, rows=4):
    rng = np.random.default_rng(seed)
    count = groups * rows
    data = pd.DataFrame({"g": np.repeat(np.arange(groups), rows), "x": rng.normal(size=count)})
    data["y"] = rng.normal(1, 1, size=count)
    data["b"] = rng.integers(0, 2, size=count)
    data["n"] = rng.poisson(2.0, size=count)
    return data.sample(frac=1, random_state=seed)


def sites(data):
    labels, codes = np.unique(data["g"], return_inverse=True)
    return pm.Model(coords={"site": labels, "effect": ["level", "slope"]}), codes


def logistic(data):
    model, codes = sites(data)
    with model:
        beta, tau = pm.Normal("beta", 0, 2, shape=2), pm.HalfNormal("tau", 1)
        a = pm.Normal("a", 0, tau, dims="site")
        eta = beta[0] + beta[1] * pm.Data("x", data["x"]) + a[pm.Data("codes", codes)]
        pm.Bernoulli("y", logit_p=eta, observed=data["b"])
    return model


def non_centred(data):
    model, codes = sites(data)
    with model:
        mu, tau = pm.Normal("mu", 0, 2), pm.HalfNormal("tau", 1)
        a = pm.Normal("a", 0, 1, dims="site")
        effect = pm.Deterministic("effect_of_site", mu + tau * a, dims="site")
        pm.Normal("y", effect[codes], pm.HalfNormal("sigma", 1), observed=data["y"])
    return model


def slopes(data):
    model, codes = sites(data)
    with model:
        b = pm.Normal("b", 0, 1, shape=2)
        chol, _, _ = pm.LKJCholeskyCov(
            "chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1), compute_corr=True
        )
        a = pm.MvNormal("a", 0, chol=chol, dims=("site", "effect"))
        eta = b[0] + a[codes, 0] + (b[1] + a[codes, 1]) * data["x"].to_numpy()
        pm.Poisson("y", pm.math.exp(eta), observed=data["n"])
    return model


def constrained(data):
    """Have a scale and shares of every group."""
    model, codes = sites(data)
    with model:
        rate = pm.Gamma("rate", 3, 1)
        a = pm.Exponential("a", rate, dims="site")
        shares = pm.Dirichlet("shares", np.ones(3) * 2, shape=(len(np.unique(codes)), 3))
        pm.Normal("y", shares[codes] @ np.array([-1.0, 0.0, 1.0]), a[codes], observed=data["y"])
    return model


def two_outcomes(data):
    model, codes = sites(data)
    with model:
        mu, tau = pm.Normal("mu", 0, 2), pm.HalfNormal("tau", 1)
        a = pm.Normal("a", mu, tau, dims="site")
        pm.Normal("y", a[codes], 1, observed=data["y"])
        pm.Poisson("n", pm.math.exp(0.3 * a[codes]), observed=data["n"])
    return model


MODELS = [logistic, non_centred, slopes, constrained, two_outcomes]
LOCAL = ["a", "shares"]


def density_of(model, local=LOCAL):
    names = [name for name in local if name in model.named_vars]
    parts = [f"{name}[" for name in names]
    labels = Coordinates(model).parameters
    shared = [
        label for label in labels if label not in names and not label.startswith(tuple(parts))
    ]
    return ModelJointDensity(model, shared, names, dict.fromkeys(names, 0), "north")


def points_of(density, count=4, seed=2):
    rng = np.random.default_rng(seed)
    shared, local = rng.normal(0, 0.4, (count, density.shared.size)), density.start
    return shared, local + rng.normal(0, 0.4, (count, local.size))


@pytest.mark.parametrize("build", MODELS)
def test_every_group_has_the_density_of_its_own_rows(build, monkeypatch):
    monkeypatch.setattr(group_terms, "CHUNK_VALUES", 100)  # more than one chunk
    data = some_rows()
    density = density_of(build(data))
    shared, local = points_of(density)
    found = GroupTerms(density)(shared, local)
    assert found.shape == (len(shared), GROUPS)
    (family,) = density.families
    for group in (1, GROUPS - 1):
        alone = density_of(build(data[data["g"] == group]))
        (own,) = alone.families
        points = np.empty((len(local), own.size))
        points[:, own[0]] = local[:, family[group]]
        expected = alone.score(shared, points, 0.0)[0]
        np.testing.assert_allclose(found[:, group], expected, rtol=1e-9, atol=1e-9)


def test_terms_of_shared_variables_alone_are_apart():
    data = some_rows()
    model = non_centred(data)
    with model:
        pm.Normal("expert", model["mu"], 0.5, observed=[1.0, 1.4])
    density = density_of(model)
    terms = GroupTerms(density)
    shared, local = points_of(density)
    mu = shared[:, :1]
    np.testing.assert_allclose(
        terms.apart(shared), norm.logpdf([1.0, 1.4], mu, 0.5).sum(axis=1), rtol=1e-8
    )
    whole = density.score(shared, local, 0.0)[0]
    np.testing.assert_allclose(terms(shared, local).sum(axis=1) + terms.apart(shared), whole)


def test_one_group_and_a_group_without_rows():
    data = some_rows()
    one = density_of(logistic(data[data["g"] == 3]))
    shared, local = points_of(one)
    found = GroupTerms(one)(shared, local)
    np.testing.assert_allclose(found[:, 0], one.score(shared, local, 0.0)[0])
    assert np.all(GroupTerms(one).apart(shared) == 0)
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1)
        a = pm.Normal("a", 0, tau, shape=3)
        pm.Normal("y", a[np.array([0, 2, 2])], 1, observed=[0.1, 0.2, 0.3])
    density = density_of(model)
    shared, local = points_of(density)
    empty = GroupTerms(density)(shared, local)[:, 1]
    np.testing.assert_allclose(empty, norm.logpdf(local[:, 1], 0, np.exp(shared[:, 0])))


def test_two_kinds_of_groups_in_rows_of_their_own():
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1)
        a, c = pm.Normal("a", 0, tau, shape=3), pm.Normal("c", 0, tau, shape=2)
        pm.Normal("y", a[np.array([0, 1, 2, 2])], 1, observed=np.arange(4.0))
        pm.Normal("w", c[np.array([0, 1, 1])], 1, observed=np.arange(3.0))
    density = density_of(model, ["a", "c"])
    shared, local = points_of(density)
    found = GroupTerms(density)(shared, local)
    assert found.shape == (len(shared), 5)
    last = norm.logpdf(local[:, 4], 0, np.exp(shared[:, 0]))
    last = last + norm.logpdf([[1.0, 2.0]], local[:, 4:], 1).sum(axis=1)
    np.testing.assert_allclose(found[:, 4], last)


def over_groups(model, codes, data):
    a = pm.MvNormal("a", np.zeros(GROUPS), np.eye(GROUPS) + 0.5, dims="site")
    pm.Normal("y", model["mu"] + a[codes], 1, observed=data["y"])


def independent_in_one_term(model, codes, data):
    a = pm.MvNormal("a", np.zeros(GROUPS), np.eye(GROUPS), dims="site")
    pm.Normal("y", model["mu"] + a[codes], 1, observed=data["y"])


def walk(model, codes, data):
    a = pm.GaussianRandomWalk(
        "a", sigma=1, init_dist=pm.Normal.dist(), steps=GROUPS - 1, dims="site"
    )
    pm.Normal("y", model["mu"] + a[codes], 1, observed=data["y"])


def neighbours(model, codes, data):
    a = pm.Normal("a", dims="site")
    pm.Normal("y", model["mu"] + a[codes] - a[(codes + 1) % GROUPS], 1, observed=data["y"])


def crossed(model, codes, data):
    a, c = pm.Normal("a", dims="site"), pm.Normal("c", shape=2)
    pm.Normal("y", model["mu"] + a[codes] + c[data["b"].to_numpy()], 1, observed=data["y"])


@pytest.mark.parametrize("add", [over_groups, independent_in_one_term, walk, neighbours, crossed])
def test_terms_of_two_groups_are_refused(add):
    data = some_rows()
    model, codes = sites(data)
    with model:
        pm.Normal("mu", 0, 2)
        add(model, codes, data)
    density = density_of(model, ["a", "c"])
    with pytest.raises(NoGroups, match=r'batch "north".* two groups or more'):
        GroupTerms(density, "north")


def test_a_potential_of_local_variables_is_refused():
    model = logistic(some_rows())
    with model:
        pm.Potential("sum_to_zero", -((model["a"].sum()) ** 2))
    with pytest.raises(NoGroups, match="depend on the local variables of two groups"):
        GroupTerms(density_of(model), "north")


def test_terms_that_are_not_finite_at_the_start_are_refused():
    with pm.Model() as model:
        low = pm.Normal("low", 0, 1, initval=5.0)
        a = pm.Normal("a", 0, 1, shape=3)
        pm.CustomDist(
            "y",
            a,
            low,
            logp=lambda y, a, low: pt.switch(y > low, -((y - a) ** 2), -np.inf),
            observed=np.zeros(3),
        )
    with pytest.raises(NoGroups, match=r"3 terms.* initial values"):
        GroupTerms(density_of(model), "north")


def test_integrals_of_a_conjugate_model_are_exact():
    data = some_rows()
    density = density_of(non_centred(data))
    terms = GroupTerms(density)
    mean, factor = np.array([0.5, -0.5, 0.1]), np.diag([0.2, 0.5, 0.3])

    def score(shared, local):
        return density.score(shared, local, 1.0)

    conditional = find_conditional(score, mean, factor, density.start, density.families)
    points = mean + np.random.default_rng(1).normal(size=(6, 3)) @ factor.T
    place = Place(mean, factor, conditional, density.families)
    found = log_integrals_by_group(terms, place, points)
    for (mu, log_tau, log_sigma), values in zip(points, found, strict=True):
        for group, value in enumerate(values):
            y = data.loc[data["g"] == group, "y"].to_numpy()
            spread = np.exp(2 * log_sigma) * np.eye(len(y)) + np.exp(2 * log_tau)
            expected = pm.logp(pm.MvNormal.dist(np.full(len(y), mu), spread), y)
            assert value == pytest.approx(float(expected.eval(mode="FAST_COMPILE")), abs=1e-8)

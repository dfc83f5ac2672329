"""Joint densities of shared and local variables, against PyMC's own and finite differences."""

import pickle

import cloudpickle
import numpy as np
import pymc as pm
import pytest

from arviz_swiss.base.conditional import find_conditional
from arviz_swiss.base.sites import Site
from arviz_swiss.correcting.tilted import Tilt, sample_tilted
from arviz_swiss.pymc.joint_density import ModelJointDensity

pytestmark = pytest.mark.usefixtures("uncompiled")

SHARED = ("beta[x]", "beta[w]", "tau")


def some_rows(seed=1, sites="abcd", rows=8):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(sites)), rows)
    return groups, rng.standard_normal((groups.size, 2)), rng.poisson(1.5, groups.size)


def build(sites="abcd", covariates="xw", extra=None, centred=True, rows=8):
    groups, design, counts = some_rows(sites=sites, rows=rows)
    design = design[:, ["xw".index(name) for name in covariates]]
    with pm.Model(coords={"site": list(sites), "covariate": list(covariates)}) as model:
        tau = pm.HalfNormal("tau", 1.0)
        beta = pm.Normal("beta", 0, 2.0, dims="covariate")
        effect = pm.Normal("effect", 0, tau if centred else 1.0, dims="site")
        scaled = effect if centred else tau * effect
        pm.Poisson("y", pm.math.exp(design @ beta + scaled[groups]), observed=counts)
        if extra:
            extra(tau, beta, effect)
    return model


def some_points(density, count=5, seed=2):
    rng = np.random.default_rng(seed)
    shared = 0.5 * rng.standard_normal((count, density.shared.size))
    return shared, 0.5 * rng.standard_normal((count, density.local.size))


def point_of(model, shared, local):
    """Return PyMC's own dictionary of one point of `build`, shared parameters as in SHARED."""
    order = ["xw".index(name) for name in model.coords["covariate"]]
    return {"beta": shared[:2][order], "tau_log__": shared[2], "effect": local}


def terms_of(model, names, points):
    logp = model.compile_logp(vars=[model[name] for name in names])
    return np.array([float(logp(point)) for point in points])


def check_gradients(density, shared, local, prior_power=0.3):
    _, by_shared, by_local = density.score(shared, local, prior_power)
    both = np.concatenate([shared, local], axis=1)
    gradients = np.concatenate([by_shared, by_local], axis=1)
    size = shared.shape[1]
    for x, gradient in zip(both, gradients, strict=True):
        step = 1e-5 * np.eye(x.size)
        ends = np.concatenate([x + step, x - step])
        values = density.score(ends[:, :size], ends[:, size:], prior_power)[0]
        differences = np.subtract(*np.split(values, 2)) / 2e-5
        np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("covariates", ["xw", "wx"])
@pytest.mark.parametrize("centred", [True, False])
def test_values_and_gradients_in_the_callers_order(covariates, centred):
    model = build(covariates=covariates, centred=centred)
    density = ModelJointDensity(model, SHARED, ["effect"], {"effect": 0})
    shared, local = some_points(density)
    points = [point_of(model, *each) for each in zip(shared, local, strict=True)]
    values = density.score(shared, local, 1.0)[0]
    np.testing.assert_allclose(values, terms_of(model, ["tau", "beta", "effect", "y"], points))
    check_gradients(density, shared, local)
    turned = ModelJointDensity(model, SHARED[::-1], ["effect"], {"effect": 0})
    other = turned.score(shared[:, ::-1], local, 1.0)
    np.testing.assert_allclose(other[0], values)
    np.testing.assert_allclose(other[1], density.score(shared, local, 1.0)[1][:, ::-1])


def test_powers_are_those_of_the_shared_variables_prior():
    model = build()
    density = ModelJointDensity(model, SHARED, ["effect"], {"effect": 0})
    shared, local = some_points(density)
    points = [point_of(model, *each) for each in zip(shared, local, strict=True)]
    prior, rest = (terms_of(model, names, points) for names in (["tau", "beta"], ["effect", "y"]))
    for power in (0.0, 0.05, 0.5, 1.0):
        values = density.score(shared, local, power)[0]
        np.testing.assert_allclose(values, power * prior + rest)
        check_gradients(density, shared, local, power)


def test_potentials_of_local_variables_are_the_batchs_own():
    def of_effects(tau, beta, effect):
        pm.Potential("soft", -(effect.sum() ** 2) / tau)

    def of_shared(tau, beta, effect):
        pm.Potential("bound", -(beta**4).sum() - tau)

    def of_both(tau, beta, effect):
        of_effects(tau, beta, effect)
        of_shared(tau, beta, effect)

    plain, *others = (
        ModelJointDensity(build(extra=extra), SHARED, ["effect"], {"effect": 0})
        for extra in (None, of_effects, of_shared, of_both)
    )
    shared, local = some_points(plain)
    own = -(local.sum(axis=1) ** 2) / np.exp(shared[:, 2])
    prior = -np.sum(shared[:, :2] ** 4, axis=1) - np.exp(shared[:, 2])
    for power in (0.0, 0.25, 1.0):
        base = plain.score(shared, local, power)[0]
        added = [density.score(shared, local, power)[0] - base for density in others]
        expected = [own, power * prior, own + power * prior]
        np.testing.assert_allclose(added, expected, atol=1e-9)
        check_gradients(others[2], shared, local, power)


def test_groups_in_another_order_and_a_dimension_that_is_not_the_first():
    groups, design, counts = some_rows()
    coords = {"kind": ["level", "slope"], "site": list("abcd")}
    with pm.Model(coords=coords) as model:
        tau = pm.HalfNormal("tau", 1.0)
        effect = pm.Normal("effect", 0, tau, dims=("kind", "site"))
        width = pm.HalfNormal("width", 1.0, dims="site")
        mu = effect[0, groups] + effect[1, groups] * design[:, 0]
        pm.Normal("y", mu, width[groups], observed=counts)
    density = ModelJointDensity(model, ["tau"], ["effect", "width"], {"effect": 1, "width": 0})
    labels = np.array(density.coordinates.parameters)[density.local]
    assert [labels[family].tolist() for family in density.families[0]] == [
        [f"effect[level, {site}]", f"effect[slope, {site}]", f"width[{site}]"] for site in "abcd"
    ]
    assert len(density.families) == 1
    # local variables with constraints are on the real line
    check_gradients(density, *some_points(density))


def frame(density, scale=0.1):
    shared = density.coordinates.start[density.shared]
    return find_conditional(
        lambda shared, local: density.score(shared, local, 0.5),
        shared,
        scale * np.eye(shared.size),
        density.start,
        density.families,
    )


def white_curvature(density, found):
    """Return the Hessian in white local variables at the mode: minus the identity."""
    size, step = density.local.size, 1e-4
    wide = np.zeros((size, size))
    for factors, family in zip(found.factors, density.families, strict=True):
        for factor, group in zip(factors, family, strict=True):
            wide[np.ix_(group, group)] = factor
    ends = found.centre + step * np.concatenate([wide.T, -wide.T])
    shared = np.broadcast_to(
        density.coordinates.start[density.shared], (2 * size, len(density.shared))
    )
    gradients = density.score(shared, ends, 0.5)[2] @ wide
    return np.subtract(*np.split(gradients, 2)) / (2 * step)


def two_sets():
    groups, design, counts = some_rows()
    with pm.Model(coords={"site": list("abcd"), "plot": list("klmn")}) as model:
        mu = pm.Normal("mu")
        site = pm.Normal("site_effect", mu, 0.5, dims="site")
        plot = pm.Normal("plot_effect", mu, 2.0, dims="plot")
        pm.Poisson("y", pm.math.exp(site[groups]), observed=counts)
        pm.Normal("z", plot[groups], 3.0, observed=design[:, 0])
    return model, ["mu"], ["site_effect", "plot_effect"], [(4, 1), (4, 1)]


def scalars():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        level, width = pm.Normal("level", mu, 1.0), pm.HalfNormal("width", 1.0)
        pm.Normal("y", level, width, observed=[0.3, 1.0, 2.0])
    return model, ["mu"], ["level", "width"], [(1, 2)]


def without_dims():
    groups, _, counts = some_rows()
    with pm.Model() as model:
        mu = pm.Normal("mu")
        level, slope = (pm.Normal(name, mu, 1.0, shape=4) for name in ("level", "slope"))
        x = np.linspace(-1, 1, groups.size)
        pm.Poisson("y", pm.math.exp(level[groups] + slope[groups] * x), observed=counts)
    return model, ["mu"], ["level", "slope"], [(4, 2)]


def constrained():
    groups, design, _ = some_rows()
    with pm.Model(coords={"site": list("abcd")}) as model:
        mu = pm.Normal("mu")
        width = pm.HalfNormal("width", 2.0, dims="site")
        pm.Normal("y", mu, width[groups], observed=design[:, 0])
    return model, ["mu"], ["width"], [(4, 1)]


def missing():
    outcomes = np.ma.masked_invalid([0.3, np.nan, 1.2, np.nan, 0.1])
    with pm.Model() as model:
        mu = pm.Normal("mu")
        with pytest.warns(Warning, match="impute"):
            pm.Normal("y", mu, 0.5, observed=outcomes)
    return model, ["mu"], ["y_unobserved"], [(2, 1)]


@pytest.mark.parametrize("case", [two_sets, scalars, without_dims, constrained, missing])
def test_local_variables_of_all_kinds(case):
    model, parameters, local, shapes = case()
    density = ModelJointDensity(model, parameters, local, dict.fromkeys(local, 0))
    assert [family.shape for family in density.families] == shapes
    places = np.sort(np.concatenate([family.ravel() for family in density.families]))
    np.testing.assert_array_equal(places, np.arange(density.local.size))
    check_gradients(density, *some_points(density))
    found = frame(density)
    identity = np.eye(density.local.size)
    np.testing.assert_allclose(white_curvature(density, found), -identity, atol=0.03)


def test_missing_outcomes_are_around_their_mean():
    model, parameters, local, _ = missing()
    density = ModelJointDensity(model, parameters, local, {})
    found = frame(density, scale=0.2)
    # y given mu is normal around it with an sd of a half, whatever the prior's power
    np.testing.assert_allclose(found.centre, 0, atol=1e-8)
    np.testing.assert_allclose(found.slope, 0.2, atol=1e-8)
    np.testing.assert_allclose(found.factors[0] ** 2, 0.25, rtol=1e-8)
    shared, rest = np.array([[0.4]]), np.array([[0.1, 0.9]])
    logp = model.compile_logp(vars=[v for v in model.basic_RVs if v.name != "mu"])
    expected = float(logp({"mu": 0.4, "y_unobserved": rest[0]}))
    assert density.score(shared, rest, 0.0)[0][0] == pytest.approx(expected)


def test_a_batch_without_groups_has_shared_variables_alone():
    with pm.Model(coords={"site": []}) as model:
        mu = pm.Normal("mu")
        pm.Normal("effect", mu, 1.0, dims="site")
        pm.Normal("y", mu, observed=[1.0])
    density = ModelJointDensity(model, ["mu"], ["effect"], {"effect": 0})
    assert density.families == [] and density.start.shape == (0,)
    site = Site(np.eye(1) / 2, np.zeros(1))
    tilted = sample_tilted(
        density, Tilt(np.zeros(1), np.eye(1), site, 0.5, density.start, 4, 5, 10, 1)
    )
    # half a prior and a row: 1 / 2 + 1, beside a half that the site was thought to have
    np.testing.assert_allclose(tilted.change.precision, 1.0, atol=1e-9)


def test_names_that_do_not_fit_are_refused():
    def refuses(message, parameters=SHARED, local=("effect",)):
        with pytest.raises(ValueError, match=message):
            ModelJointDensity(build(), parameters, local, {}, "north")

    refuses(r'batch "north".*shared parameters beta\[q\].*same shared', (*SHARED, "beta[q]"))
    refuses(r'batch "north": tau are neither shared .* nor', SHARED[:2])
    refuses(r'batch "north": local variables plot are not free', local=("effect", "plot"))
    refuses(r"shared parameters effect\[a\]", (*SHARED, "effect[a]"))


def test_a_pickled_density_is_the_same():
    density = ModelJointDensity(build(), SHARED, ["effect"], {"effect": 0}, "north")
    points = some_points(density)
    again = pickle.loads(cloudpickle.dumps(density))
    for one, other in zip(density.score(*points, 0.5), again.score(*points, 0.5), strict=True):
        np.testing.assert_array_equal(one, other)


def test_one_point_without_density_does_not_spoil_the_others():
    density = ModelJointDensity(build(), SHARED, ["effect"], {"effect": 0})
    shared, local = some_points(density)
    expected = density.score(shared, local, 0.5)
    shared = shared.copy()
    shared[2, 2] = -800.0  # tau is zero
    found = density.score(shared, local, 0.5)
    others = [0, 1, 3, 4]
    assert found[0][2] == -np.inf
    for got, plain in zip(found, expected, strict=True):
        np.testing.assert_array_equal(got[others], plain[others])

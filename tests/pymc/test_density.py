"""Densities of real PyMC models, against their own log densities and gradients."""

import numpy as np
import pymc as pm
import pytensor
import pytest
import xarray as xr

import arviz_swiss as az_swiss
from arviz_swiss.correcting.refine import space_for_models
from arviz_swiss.data import containers
from arviz_swiss.merging.merged import open_merged
from arviz_swiss.pymc import ModelSpace, density, inflate
from arviz_swiss.pymc import points as point_functions
from arviz_swiss.pymc.density import ModelDensity

QUIET = {"progressbar": False}


@pytest.fixture(scope="session")
def compiler():
    return pytensor.config.cxx


pytestmark = pytest.mark.usefixtures("uncompiled")


def regression(design, outcomes, names="abc", extra=None):
    with pm.Model(coords={"feature": list(names)}) as model:
        scale = pm.HalfNormal("scale", 2.0)
        shares = pm.Dirichlet("shares", np.ones(3))
        slopes = pm.Normal("slopes", 0, scale, dims="feature")
        level = pm.Uniform("level", -1, 3)
        pm.Normal("y", design @ slopes + level + shares[0], scale, observed=outcomes)
        if extra:
            extra(slopes)
    return model


def some_data(rng, rows=30):
    return rng.standard_normal((rows, 3)), rng.standard_normal(rows)


def merged_in(built, batches=2, names="abc", **options):
    """Return a merge of arbitrary draws of the model's variables."""
    rng = np.random.default_rng(1)
    space = ModelSpace(built)
    sizes = {"scale": (), "shares": (2,), "slopes": (3,), "level": ()}
    idatas = []
    for _ in range(batches):
        raw = {name: 0.3 * rng.standard_normal((2, 500, *size)) for name, size in sizes.items()}
        arrays = {
            name: (("chain", "draw", *space.dims[name]), values)
            for name, values in space.backward(raw).items()
        }
        dataset = xr.Dataset(arrays, coords={"feature": list(names)})
        idatas.append(containers.build({"posterior": dataset}))
    return az_swiss.merge(idatas, **{"kind": "inflated", **options})


def in_space_of(merged):
    opened = open_merged(merged, "posterior")
    return space_for_models(opened), opened


def point_of(model, space, x, names):
    """Return PyMC's own dictionary of one point."""
    point = {}
    for variable in space.layout.variables:
        value = model.rvs_to_values[model[variable.name]]
        array = x[variable.columns].reshape(variable.shape)
        if variable.name == "slopes":
            array = array[[list("abc").index(name) for name in names]]
        point[value.name] = array
    return point


def test_densities_and_scores_equal_autodiff():
    # the model has its coordinates in another order than the merged object
    rng, names = np.random.default_rng(2), "cab"
    model, first = (regression(*some_data(rng), names=order) for order in (names, "abc"))
    merged = merged_in(first, model=first)
    space, opened = in_space_of(merged)
    found = ModelDensity(model, space)
    points = 0.5 * rng.standard_normal((5, opened.free.size))
    log_prior, log_likelihood = found.log_prior(points), found.log_likelihood(points)
    scores = found.grad_log_prior(points) + found.grad_log_likelihood(points)
    prior = model.compile_logp(vars=model.free_RVs)
    likelihood = model.compile_logp(vars=model.observed_RVs)
    gradient = model.compile_dlogp()
    for row, x in enumerate(points):
        point = point_of(model, space, x, names)
        assert log_prior[row] == pytest.approx(float(prior(point)), abs=1e-8)
        assert log_likelihood[row] == pytest.approx(float(likelihood(point)), abs=1e-8)
        expected, place = gradient(point), 0
        for rv in model.free_RVs:
            variable = next(v for v in space.layout.variables if v.name == rv.name)
            own = scores[row, variable.columns]
            if rv.name == "slopes":
                own = own[["abc".index(name) for name in names]]
            np.testing.assert_allclose(own, expected[place : place + own.size], atol=1e-8)
            place += own.size
        assert place == expected.size


def test_gradients_are_those_of_the_log_densities():
    rng = np.random.default_rng(3)
    model = regression(*some_data(rng))
    space, opened = in_space_of(merged_in(model, model=model))
    found = ModelDensity(model, space)
    x, size, step = 0.3 * rng.standard_normal(opened.free.size), opened.free.size, 1e-5
    for term in ("prior", "likelihood"):
        log_density = getattr(found, f"log_{term}")
        differences = log_density(x + step * np.eye(size)) - log_density(x - step * np.eye(size))
        gradient = getattr(found, f"grad_log_{term}")(x[None])[0]
        np.testing.assert_allclose(gradient, differences / (2 * step), rtol=1e-4, atol=1e-6)


def test_a_variable_merged_on_its_own_scale_has_its_density_there():
    rng = np.random.default_rng(4)
    model = regression(*some_data(rng))
    merged = merged_in(model, model=model, transforms={"level": None, "scale": None})
    space, opened = in_space_of(merged)
    assert set(space.transformed) == {"shares"}
    found = ModelDensity(model, space)
    points = np.repeat(open_rows(opened)[:1], 2, axis=0)
    place = space.layout.names.index("level")
    columns = space.layout.variables[place].columns
    # a uniform prior: no Jacobian, so flat inside its bounds and nothing outside
    points[1, columns] += 0.1
    values = found.log_prior(points)
    assert values[0] == pytest.approx(values[1])
    points[1, columns] = 7.0
    assert found.log_prior(points)[1] == -np.inf


def open_rows(opened):
    return np.concatenate([a.reshape(2000, -1) for a in opened.arrays], axis=1)


def test_batches_that_differ_in_their_data_share_compiled_functions():
    rng = np.random.default_rng(5)
    models = [regression(*some_data(rng)) for _ in range(3)]
    space, opened = in_space_of(merged_in(models[0], model=models[0]))
    points = 0.3 * rng.standard_normal((4, opened.free.size))
    point_functions._kept.clear()
    values = [ModelDensity(model, space).log_likelihood(points) for model in models]
    assert len(point_functions._kept) == 1
    point_functions._kept.clear()
    for model, value in zip(models[::-1], values[::-1], strict=True):
        np.testing.assert_allclose(ModelDensity(model, space).log_likelihood(points), value)
    assert not np.allclose(values[0], values[1])
    ModelDensity(regression(*some_data(rng, rows=31)), space).log_likelihood(points)
    assert len(point_functions._kept) == 2


def test_rows_in_blocks_have_the_density_of_all(monkeypatch):
    rng = np.random.default_rng(5)
    model = regression(*some_data(rng))
    space, opened = in_space_of(merged_in(model, model=model))
    points = 0.3 * rng.standard_normal((5, opened.free.size))
    expected = ModelDensity(model, space).tempered(points, 1.0, 0.5)
    for module in (point_functions, density):
        monkeypatch.setattr(module, "ROWS_AT_ONCE", 7)
        monkeypatch.setattr(module, "POINTS_OF_BLOCK", 2)
    blocks = ModelDensity(model, space)
    assert blocks._function(1.0, 0.0, True).in_blocks
    for a, b in zip(blocks.tempered(points, 1.0, 0.5), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_potentials_count_with_the_prior_and_flat_priors_have_no_gradient():
    rng = np.random.default_rng(6)
    design, outcomes = some_data(rng)
    model = regression(design, outcomes, extra=lambda s: pm.Potential("p", -(s**2).sum()))
    plain = regression(design, outcomes)
    space, opened = in_space_of(merged_in(plain, model=plain))
    points = 0.3 * rng.standard_normal((4, opened.free.size))
    slopes = points[:, next(v.columns for v in space.layout.variables if v.name == "slopes")]
    difference = ModelDensity(model, space).log_prior(points) - ModelDensity(
        plain, space
    ).log_prior(points)
    np.testing.assert_allclose(difference, -np.sum(slopes**2, axis=1))

    with pm.Model() as flat:
        mu = pm.Flat("mu", shape=2)
        pm.Normal("y", mu[0] + mu[1], observed=[1.0, 2.0])
    draws = [{"mu": rng.standard_normal((2, 50, 2))} for _ in range(2)]
    space, _ = in_space_of(az_swiss.merge(draws, kind="inflated"))
    found = ModelDensity(flat, space)
    np.testing.assert_array_equal(found.log_prior(np.ones((3, 2))), np.zeros(3))
    np.testing.assert_array_equal(found.grad_log_prior(np.ones((3, 2))), np.zeros((3, 2)))


def test_models_that_do_not_fit_are_refused():
    rng = np.random.default_rng(7)
    design, outcomes = some_data(rng)
    model = regression(design, outcomes)
    space, _ = in_space_of(merged_in(model, model=model))

    def refuses(other, message, where=space):
        with pytest.raises(ValueError, match=message):
            ModelDensity(other, where, "b1")

    refuses(inflate(model, 3.0), 'batch "b1": the model is tempered')
    with pm.Model() as with_total_size:
        pm.Normal("y", pm.Normal("mu"), observed=outcomes, total_size=1000)
    refuses(with_total_size, 'batch "b1": the model uses total_size=.*Pass the plain model')
    latent = regression(design, outcomes, extra=lambda s: pm.Normal("effect", s[0], 1, shape=4))
    refuses(latent, "free variables effect that were not merged.*cannot be refined or certified")
    other = regression(design, outcomes, names="abd")
    refuses(other, "coordinates along feature are not those of the merged object")
    with pm.Model() as fewer:
        pm.Normal("slopes", shape=3)
    refuses(fewer, "merged variables level, scale, shares are not free variables")
    with pm.Model() as another:
        pm.HalfNormal("scale", 2.0)
        pm.Dirichlet("shares", np.ones(3))
        pm.Normal("slopes", shape=3)
        pm.Uniform("level", -2, 4)
        pm.Normal("y", observed=outcomes)
    refuses(another, "variable level: merged on another scale than the model's")
    # by transforms of one's own: additive log ratios are not PyMC's
    own = merged_in(model, transforms={"shares": "simplex"})
    refuses(model, "variable shares: merged on another scale", in_space_of(own)[0])


def test_transforms_of_the_merge_may_be_those_of_the_model():
    rng = np.random.default_rng(11)
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        level = pm.Uniform("level", -1, 3)
        pm.Normal("y", level, scale, observed=[0.3, 0.5])
    draws = [
        {"scale": rng.gamma(9, size=(2, 200)), "level": rng.uniform(0, 1, size=(2, 200))}
        for _ in range(2)
    ]
    merged = az_swiss.merge(
        draws, transforms={"scale": "log", "level": ("interval", -1, 3)}, kind="inflated"
    )
    space, _ = in_space_of(merged)
    point = {"scale_log__": 0.2, "level_interval__": -0.4}
    assert space.layout.names == ["scale", "level"]
    found = ModelDensity(model, space).log_prior(np.array([[0.2, -0.4]]))
    expected = model.compile_logp(vars=model.free_RVs)(point)
    assert found[0] == pytest.approx(float(expected), abs=1e-8)


def test_potentials_in_fractionated_batches_are_refused():
    rng = np.random.default_rng(8)
    design, outcomes = some_data(rng)
    models = [
        regression(design, outcomes, extra=lambda s: pm.Potential("p", -(s**2).sum()))
        for _ in range(2)
    ]
    merged = merged_in(models[0], model=models[0], kind="fractionated")
    with pytest.raises(ValueError, match=r"Potentials p count .* the power 0.5"):
        az_swiss.certify(merged, models, **QUIET)


def test_refining_with_models():
    rng = np.random.default_rng(9)
    data = [rng.normal(1.0, 2.0, size=40) for _ in range(3)]

    def build(y):
        with pm.Model() as model:
            mu = pm.Normal("mu", 0, 10)
            log_sd = pm.Normal("log_sd", 0, 1)
            pm.Deterministic("sd", np.exp(log_sd))
            rate = pm.Exponential("rate", 1.0)
            pm.Normal("y", mu, pm.math.exp(log_sd), observed=pm.Data("y_data", y))
            pm.Poisson("n", rate, observed=[1, 0, 2])
        return model

    models = [build(y) for y in data]
    draws = [
        {
            "mu": rng.normal(y.mean(), 0.2, size=(2, 300)),
            "log_sd": rng.normal(np.log(2), 0.07, size=(2, 300)),
            "rate": rng.gamma(10, 1 / 10, size=(2, 300)),
        }
        for y in data
    ]
    merged = az_swiss.merge(draws, model=models[0], kind="inflated")
    refined = az_swiss.refine(merged, models, random_seed=1, **QUIET)
    whole = np.concatenate(data)
    posterior = refined["posterior"]
    # conditional mean of mu given the sd, nearly
    assert posterior["mu"].mean() == pytest.approx(whole.mean(), abs=0.03)
    np.testing.assert_allclose(np.exp(posterior["log_sd"]), posterior["sd"])
    # Gamma(1 + 9, 1 + 9): the three rows of counts come in every batch
    assert posterior["rate"].mean() == pytest.approx(1.0, rel=0.05)
    back = az_swiss.subposteriors(refined, model=models[0])
    np.testing.assert_allclose(back["b1"]["posterior"]["rate"], draws[1]["rate"], rtol=1e-9)


def test_powers_weigh_values_and_gradients():
    rng = np.random.default_rng(12)
    design, outcomes = some_data(rng)
    model = regression(design, outcomes, extra=lambda s: pm.Potential("p", -(s**2).sum()))
    space, opened = in_space_of(merged_in(model, model=model))
    density = ModelDensity(model, space)
    x = 0.5 * rng.standard_normal((5, opened.free.size))
    for power, prior_power in [(2.5, 1), (3, 0.5), (0, 2), (2, 0)]:
        values, gradients = density.tempered(x, power, prior_power)
        np.testing.assert_allclose(
            values, power * density.log_likelihood(x) + prior_power * density.log_prior(x)
        )
        np.testing.assert_allclose(
            gradients,
            power * density.grad_log_likelihood(x) + prior_power * density.grad_log_prior(x),
            rtol=1e-10,
            atol=1e-10,
        )


def test_a_term_of_power_zero_is_not_computed(monkeypatch):
    rng = np.random.default_rng(13)
    model = regression(*some_data(rng))
    space, opened = in_space_of(merged_in(model, model=model))
    terms, graph = [], ModelDensity._graph

    def watched(self, term):
        terms.append(term)
        return graph(self, term)

    monkeypatch.setattr(ModelDensity, "_graph", watched)
    x = np.zeros((1, opened.free.size))
    for powers in [(2.0, 0.0), (0.0, 2.0)]:
        ModelDensity(model, space).tempered(x, *powers)
    assert terms == ["likelihood", "prior"]


def test_no_density_stays_none_at_any_power():
    with pm.Model() as model:
        level = pm.Uniform("level", -1, 3)
        pm.Uniform("y", level - 1, level + 1, observed=[0.2, 0.4])
    draws = [{"level": np.random.default_rng(b).uniform(0, 1, (2, 100))} for b in range(2)]
    merged = az_swiss.merge(draws, model=model, transforms={"level": None}, kind="inflated")
    density = ModelDensity(model, in_space_of(merged)[0])
    # inside; outside the prior's support; outside the likelihood's; outside both
    x = np.array([[0.3], [-1.001], [2.5], [9.0]])
    for powers in [(1.0, 1.0), (0.3, 2.0), (7.0, 0.1)]:
        values, _ = density.tempered(x, *powers)
        assert np.isfinite(values[0])
        np.testing.assert_array_equal(values[1:], -np.inf)


@pytest.mark.slow
def test_sampled_batches_are_refined_and_certified(run, compiler):
    rng = np.random.default_rng(10)
    design = rng.standard_normal((300, 2))
    outcomes = (rng.random(300) < 1 / (1 + np.exp(-design @ [1.5, -1.0]))).astype(int)

    def build(batch):
        with pm.Model() as model:
            slopes = pm.Normal("slopes", 0, 2, shape=2)
            logits = pm.Data("X", batch["X"]) @ slopes
            pm.Bernoulli("y", logit_p=logits, observed=pm.Data("y_data", batch["y"]))
        return model

    data = {"X": design, "y": outcomes}
    # compiled, as users run it
    with pytensor.config.change_flags(mode="Mode", cxx=compiler):
        idatas = run(build, data, batches=3, random_seed=1, draws=500, tune=500)
        rows = az_swiss.partition(data, 3, random_seed=1)
        models = [build({"X": design[i], "y": outcomes[i]}) for i in rows]
        merged = az_swiss.merge(idatas, model=models[0])
        refined = az_swiss.refine(merged, models, random_seed=1, **QUIET)
        certified = az_swiss.certify(refined, models, random_seed=1, **QUIET)
    assert certified["swiss_certificate"]["khat"] < 0.5
    assert certified["swiss_certificate"].attrs["status"] == "certified"


def test_many_rows_are_taken_few_points_at_a_time(monkeypatch):
    rng = np.random.default_rng(5)
    model = regression(*some_data(rng))
    space, opened = in_space_of(merged_in(model, model=model))
    points = 0.5 * rng.standard_normal((7, opened.free.size))
    expected = ModelDensity(model, space).tempered(points, 2.0, 0.5)
    sizes = []
    split = ModelDensity._split
    monkeypatch.setattr(ModelDensity, "_split", lambda s, x: (sizes.append(len(x)), split(s, x))[1])
    monkeypatch.setattr(density, "VALUES_AT_ONCE", 2 * model["y"].eval().size)
    found = ModelDensity(model, space).tempered(points, 2.0, 0.5)
    assert sizes == [2, 2, 2, 1]
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-10)

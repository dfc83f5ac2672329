"""What inflated and fractionated models have in common: copies, powers, attributes, bad input."""

import json

import numpy as np
import pymc as pm
import pytest
from likelihoods import (
    MODELS,
    Y,
    assert_same_density,
    censored,
    imputed,
    normal,
    random_points,
    several,
)
from scipy import stats

from arviz_swiss.data.messages import MergeWarning
from arviz_swiss.pymc import fractionate, inflate, tempering_attrs
from arviz_swiss.pymc.observed import observed_rows
from arviz_swiss.pymc.tempering import copy_model

pytestmark = [
    # PyTensor says so once, where it was installed by pip
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning"),
    pytest.mark.usefixtures("uncompiled"),
]


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param]()


def test_the_original_is_untouched(model):
    points = random_points(model)
    names, before = set(model.named_vars), [model.compile_logp()(point) for point in points]
    inflate(model, 3.0)
    fractionate(model, 0.5)
    assert set(model.named_vars) == names
    assert [model.compile_logp()(point) for point in points] == before
    assert tempering_attrs(model)["swiss_power"] == 1.0


def test_the_same_variables_in_the_same_order(model):
    for tempered in (inflate(model, 3.0), fractionate(model, 0.5)):
        for kind in ("free_RVs", "observed_RVs", "deterministics", "data_vars"):
            names = [var.name for var in getattr(model, kind)]
            assert [var.name for var in getattr(tempered, kind)] == names


def test_censored_against_scipy():
    def definition(mu, log_sigma):
        dist = stats.norm(mu, np.exp(log_sigma))
        likelihood = np.where(Y >= 2.0, dist.logsf(2.0), dist.logpdf(Y)).sum()
        prior = stats.norm.logpdf(mu) + stats.halfnorm.logpdf(np.exp(log_sigma)) + log_sigma
        return likelihood, prior

    likelihood, prior = definition(0.7, -0.2)
    point = {"mu": 0.7, "sigma_log__": -0.2}
    inflated = inflate(censored(), 4.0).compile_logp()(point)
    # PyMC's normal tail itself differs from SciPy's by about 1e-9
    np.testing.assert_allclose(inflated, prior + 4.0 * likelihood, rtol=1e-8)
    fractionated = fractionate(censored(), 0.25).compile_logp()(point)
    np.testing.assert_allclose(fractionated, 0.25 * prior + likelihood, rtol=1e-8)


def with_data(n_rows, **kwargs):
    with pm.Model(coords={"row": np.arange(n_rows)}) as model:
        x = pm.Data("x", Y[:n_rows] - 1.0, dims="row")
        y = pm.Data("y_data", Y[:n_rows], dims="row")
        slope = pm.Normal("slope")
        fitted = pm.Deterministic("fitted", slope * x, dims="row")
        pm.Normal("y", fitted, 1.0, observed=y, dims="row", **kwargs)
    return model


def set_rows(model, n_rows):
    with model:
        pm.set_data(
            {"x": Y[:n_rows] - 1.0, "y_data": Y[:n_rows]}, coords={"row": np.arange(n_rows)}
        )


def test_total_size_follows_the_data():
    tempered, reference = inflate(with_data(5), total_size=100), with_data(5, total_size=100)
    fraction = fractionate(with_data(5), total_size=100)
    density, expected = tempered.compile_logp(), reference.compile_logp()
    for n_rows in (5, 8, 3):
        for model in (tempered, reference, fraction):
            set_rows(model, n_rows)
        np.testing.assert_allclose(density({"slope": 0.4}), expected({"slope": 0.4}), rtol=1e-12)
        assert tempering_attrs(tempered)["swiss_power"] == 100 / n_rows
        assert tempering_attrs(fraction)["swiss_prior_power"] == n_rows / 100


def test_data_containers_are_independent_of_the_original():
    model = with_data(5)
    tempered = inflate(model, 2.0)
    set_rows(tempered, 8)
    assert observed_rows(tempered) == 8
    assert observed_rows(model) == 5
    assert len(model.coords["row"]) == 5
    set_rows(model, 4)
    assert observed_rows(tempered) == 8


def test_dims_and_coords_are_kept():
    model = with_data(5)
    for tempered in (inflate(model, 2.0), fractionate(model, 0.5)):
        dims = {name: tuple(dims) for name, dims in tempered.named_vars_to_dims.items()}
        assert dims == model.named_vars_to_dims
        assert tempered.coords == model.coords


def test_initial_values_are_kept():
    with pm.Model() as model:
        x = pm.Data("x", Y)
        pm.Normal("a", initval=np.array([1.0, 2.0]), shape=2)
        b = pm.HalfNormal("b", initval=0.5)
        pm.Normal("c", initval=x.mean())
        pm.Normal("d")
        pm.Normal("y", b, observed=Y)
    point = model.initial_point(0)
    for tempered in (inflate(model, 2.0), fractionate(model, 0.5), copy_model(model)):
        start = tempered.initial_point(0)
        assert list(start) == list(point)
        for name, value in point.items():
            np.testing.assert_array_equal(start[name], value)
        with tempered:
            pm.set_data({"x": Y + 1.0})
        assert tempered.initial_point(0)["c"] == point["c"] + 1.0
    assert model.rvs_to_initial_values[b] == 0.5


def test_potentials_are_left_alone_and_said():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, observed=Y)
        pm.Potential("soft", -((mu - 1.0) ** 2))
    rest = [(1.0, model.potentials, True)]
    with pytest.warns(MergeWarning, match=r"\['soft'\] are left at power one: each multiplies"):
        tempered = inflate(model, 5.0)
    terms = [(1.0, model.free_RVs, True), (5.0, model.observed_RVs, True), *rest]
    assert_same_density(tempered, model, terms)
    with pytest.warns(MergeWarning, match="each is counted once in each batch"):
        tempered = fractionate(model, 0.5)
    terms = [(0.5, model.free_RVs, True), (1.0, model.observed_RVs, True), *rest]
    assert_same_density(tempered, model, terms)


def test_outside_of_the_support_the_density_stays_zero():
    with pm.Model() as model:
        low = pm.Uniform("low", 0.0, 1.0, default_transform=None)
        pm.Uniform("y", low, 3.0, observed=Y)
    for tempered in (inflate(model, 3.0), inflate(model, 1.0), fractionate(model, 0.5)):
        density = tempered.compile_logp()
        assert np.isfinite(density({"low": 0.1}))
        assert density({"low": 0.9}) == -np.inf
        assert density({"low": -0.1}) == -np.inf


def test_missing_entries_count_as_rows():
    assert observed_rows(imputed()) == 12
    assert tempering_attrs(inflate(imputed(), total_size=120))["swiss_power"] == 10.0


def test_attributes_say_what_was_done():
    assert tempering_attrs(inflate(normal(), 3)) == {
        "swiss_power": 3.0,
        "swiss_prior_power": 1.0,
        "swiss_transformed": "[]",
        "swiss_untransformed": "[]",
    }
    attrs = tempering_attrs(fractionate(several(), 0.5))
    assert attrs["swiss_power"] == 1.0
    assert attrs["swiss_prior_power"] == 0.5
    assert json.loads(attrs["swiss_transformed"]) == ["p"]
    attrs = tempering_attrs(fractionate(several(), 0.5, untransformed="p"))
    assert json.loads(attrs["swiss_transformed"]) == []
    assert json.loads(attrs["swiss_untransformed"]) == ["p"]
    attrs = tempering_attrs(fractionate(several(), 0.5, local=["p"]))
    assert json.loads(attrs["swiss_transformed"]) == []


def test_a_prefixed_model_keeps_its_names():
    with pm.Model(name="left") as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, observed=Y)
    tempered = inflate(model, 2.0)
    assert [rv.name for rv in tempered.basic_RVs] == ["left::mu", "left::y"]
    terms = [(1.0, model.free_RVs, True), (2.0, model.observed_RVs, True)]
    assert_same_density(tempered, model, terms)


def no_observed():
    with pm.Model() as model:
        pm.Normal("mu")
    return model


def only_potential():
    with pm.Model() as model:
        pm.Potential("likelihood", -(pm.Normal("mu") ** 2))
    return model


def different_rows():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, observed=Y)
        pm.Normal("z", mu, observed=Y[:4])
    return model


def scalar_observed():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), observed=1.0)
    return model


@pytest.mark.parametrize(
    ("temper", "message"),
    [
        (
            lambda: inflate(no_observed(), 2),
            "no observed variables.*to a power. Give a variable observed=",
        ),
        (lambda: inflate(only_potential(), 2), "may be in a Potential"),
        (lambda: inflate(normal()), "exactly one of power and total_size"),
        (lambda: inflate(normal(), 2, total_size=24), "exactly one of power and total_size"),
        (lambda: fractionate(normal()), "exactly one of fraction and total_size"),
        (lambda: inflate(normal(), 0), "power must be a number greater than 0 and finite, got 0"),
        (lambda: inflate(normal(), np.inf), "power must be a number greater than 0 and finite"),
        (lambda: inflate(normal(), np.nan), "got nan"),
        (lambda: inflate(normal(), "4"), "got '4'"),
        (lambda: fractionate(normal(), 4), "fraction must be .* at most 1, got 4"),
        (lambda: inflate(normal(), total_size=11), "at least the 12 rows of this batch; got 11"),
        (lambda: inflate(normal(), total_size=24.5), "an integer .* got 24.5"),
        (lambda: inflate(different_rows(), total_size=24), r"\{'y': 12, 'z': 4\}"),
        (lambda: fractionate(no_observed(), total_size=24), "got no observed variables"),
        (lambda: inflate(scalar_observed(), total_size=24), "'y' is a scalar"),
        (lambda: inflate(with_data(5, total_size=9), 2), r"\['y'\] use total_size="),
        (lambda: fractionate(with_data(5, total_size=9), 0.5), r"\['y'\] use total_size="),
        (lambda: tempering_attrs(with_data(5, total_size=9)), r"\['y'\] use total_size="),
        (lambda: inflate(inflate(normal(), 2), 2), "tempered already"),
        (lambda: fractionate(normal(), 0.5, local=["nu"]), r"local=\['nu'\] are not free"),
        (lambda: fractionate(normal(), 0.5, untransformed=["y"]), r"has \['mu', 'sigma'\]"),
        (lambda: fractionate(normal(), 0.5, local=["mu", "sigma"]), "All free variables are local"),
    ],
)
def test_bad_input_is_named(temper, message):
    with pytest.raises(ValueError, match=message):
        temper()


def test_only_models_are_tempered():
    with pytest.raises(TypeError, match=r"Expected a pymc\.Model, got 'function'"):
        inflate(normal, 2)


def test_a_copy_holds_the_same_data_until_it_is_given_others():
    with pm.Model() as model:
        x = pm.Data("x", np.arange(3.0))
        pm.Normal("y", pm.Normal("mu") * x, observed=np.zeros(3))
    tempered = inflate(model, 2.0)
    held = [each["x"].get_value(borrow=True) for each in (model, tempered)]
    assert held[0] is held[1]
    pm.set_data({"x": np.ones(3)}, model=tempered)
    np.testing.assert_array_equal(model["x"].get_value(), np.arange(3.0))
    np.testing.assert_array_equal(tempered["x"].get_value(), np.ones(3))

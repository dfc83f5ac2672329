"""Compile once, swap data: the same draws as a fresh compilation, or a fresh compilation."""

import numpy as np
import nutpie
import pymc as pm
import pytensor
import pytest

from arviz_swiss.pymc.compiling import (
    _is_same,
    _read_model,
    compile_once,
    compiles_once,
    compiling_afresh,
)
from arviz_swiss.pymc.worker import temper

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 2)), RNG.normal(size=60)
FIRST, SECOND, LONGER = np.arange(20), np.arange(20, 40), np.arange(33, 60)
SHAPES = {"beta": (2,), "sigma": ()}
OUTSIDE = pytensor.shared(Y[FIRST], name="outside")


def build(index, x=None, y=None, prior=1.0, row_labels=None, rowwise=False, **kwargs):
    with pm.Model(coords={"row": row_labels} if row_labels is not None else None) as model:
        x = pm.Data("x", X[index]) if x is None else x
        y = pm.Data("y_data", Y[index]) if y is None else y
        beta = pm.Normal("beta", 0, prior, shape=2, **kwargs)
        sigma = pm.HalfNormal("sigma")
        pm.Deterministic("twice", 2 * beta)
        mean = pm.math.dot(x, beta)
        if rowwise:
            pm.Deterministic("mean", mean, dims="row" if row_labels is not None else None)
        pm.Normal("y", mean, sigma, observed=y)
    return model


def is_same(old, new, shapes=SHAPES):
    """Decide without compiling by nutpie: as if all data were left in the compiled functions."""
    return _is_same(_read_model(old, SHAPES), _read_model(new, shapes), set())


@pytest.mark.parametrize("kind", ["inflated", "fractionated", "full_prior"])
def test_batches_of_any_size_share_a_compilation(kind):
    first = temper(build(FIRST), kind, 20, 60)
    assert is_same(first, temper(build(SECOND), kind, 20, 60))
    assert is_same(first, temper(build(LONGER), kind, 27, 60))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda: build(SECOND, x=X[SECOND]), id="predictors are a constant"),
        pytest.param(lambda: build(SECOND, y=Y[SECOND]), id="outcome is a constant"),
        pytest.param(lambda: build(SECOND, prior=Y[SECOND].std()), id="prior from the data"),
        pytest.param(lambda: build(SECOND, initval=np.ones(2)), id="initial value"),
        pytest.param(lambda: build(SECOND, y=Y[SECOND].astype("float32")), id="type"),
    ],
)
def test_models_that_differ_are_compiled_anew(other):
    assert not is_same(build(FIRST), other())


def test_constants_in_both_models_are_compared():
    assert not is_same(build(FIRST, x=X[FIRST]), build(SECOND, x=X[SECOND]))
    assert is_same(build(FIRST, x=X[FIRST]), build(FIRST, x=X[FIRST]))


def test_stored_variables_that_change_size_or_labels_are_compiled_anew():
    def rowwise(index, labels=None):
        return build(index, rowwise=True, row_labels=labels)

    assert is_same(rowwise(FIRST), rowwise(SECOND))
    assert not is_same(rowwise(FIRST), rowwise(LONGER))
    assert not is_same(rowwise(FIRST, FIRST), rowwise(SECOND, SECOND))
    assert not is_same(build(FIRST), build(SECOND), {"beta": (3,), "sigma": ()})


def test_unnamed_shared_variables_are_compiled_anew():
    first, second = (build(i, y=pytensor.shared(Y[i])) for i in (FIRST, SECOND))
    assert not is_same(first, second)


def draws(compiled):
    return nutpie.sample(
        compiled,
        draws=30,
        tune=60,
        chains=2,
        cores=1,
        seed=5,
        progress_bar=False,
        save_warmup=False,
    ).posterior


@pytest.mark.slow
def test_draws_are_those_of_a_fresh_compilation(caplog):
    caplog.set_level("DEBUG", logger="arviz_swiss")
    model = temper(build(LONGER), "inflated", 27, 60)
    swapped = [
        compile_once(temper(build(i), "inflated", len(i), 60), SHAPES)
        for i in (FIRST, SECOND, LONGER, FIRST)
    ]
    assert [record.message.split()[0] for record in caplog.records] == ["compiled"] + 3 * [
        "swapped"
    ]
    fresh = draws(nutpie.compile_pymc_model(model))
    for name in ("beta", "sigma", "twice"):
        # Two compilations may round differently, and chains amplify that: 5e-8 after 60 draws.
        np.testing.assert_allclose(draws(swapped[2])[name], fresh[name], atol=1e-5)
        np.testing.assert_array_equal(draws(swapped[3])[name], draws(swapped[0])[name])
    assert not np.array_equal(draws(swapped[1])["beta"], fresh["beta"])


def test_a_shared_variable_that_build_overwrites_is_read_anew():
    def overwrite(index):
        OUTSIDE.set_value(Y[index])
        with pm.Model() as model:
            pm.Normal("y", pm.Normal("mu"), 1, observed=OUTSIDE)
        return model

    first = compile_once(overwrite(FIRST), {"mu": ()})
    second = compile_once(overwrite(SECOND), {"mu": ()})
    assert second.compiled_logp_func is first.compiled_logp_func
    assert any(np.array_equal(value, Y[SECOND]) for value in second.shared_data.values())
    assert not any(np.array_equal(value, Y[FIRST]) for value in second.shared_data.values())


def test_the_cache_is_read_unless_draws_shall_be_reproducible():
    assert pytensor.config.numba__cache
    for reproducible in (False, True):
        with compiling_afresh(reproducible):
            assert pytensor.config.numba__cache is not reproducible


def test_a_compilation_with_the_cache_is_not_used_where_draws_shall_be_reproducible(caplog):
    caplog.set_level("DEBUG", logger="arviz_swiss")

    def small(prior):
        with pm.Model() as model:
            pm.Normal("y", pm.Normal("mu", prior), 1, observed=pm.Data("data", Y[FIRST]))
        return model

    for reproducible in (False, True, True):
        compile_once(small(0.5), {"mu": ()}, reproducible)
    kinds = [record.message.split()[0] for record in caplog.records]
    assert kinds == ["compiled", "compiled", "swapped"]


def test_one_compilation_for_all_models():
    data, constants = [build(FIRST), build(LONGER)], [build(i, x=X[i]) for i in (FIRST, SECOND)]
    assert compiles_once(data, [SHAPES, SHAPES])
    assert compiles_once(data[:1], [SHAPES])
    assert not compiles_once(data, [SHAPES, {**SHAPES, "beta": (3,)}])
    assert not compiles_once(constants, [SHAPES, SHAPES])


def test_initial_points_are_of_the_own_data():
    def around_data(index):
        with pm.Model() as model:
            y = pm.Data("data", Y[index])
            pm.Normal("y", pm.Normal("mu", 1e3 * y.sum()), 1, observed=y)
        return model

    models = [around_data(index) for index in (FIRST, SECOND, LONGER)]
    compiled = [compile_once(model, {"mu": ()}) for model in models]
    for _ in range(2):
        for each, index in zip(compiled, (FIRST, SECOND, LONGER), strict=True):
            assert abs(each.initial_point_func(1)[0] - 1e3 * Y[index].sum()) <= 1  # jitter
    for model, index in zip(models, (FIRST, SECOND, LONGER), strict=True):
        np.testing.assert_array_equal(model["data"].get_value(), Y[index])

"""Functions of many points without a compiler, against PyMC's own of one point."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from many_models import MODELS, build, some_data
from pytensor.graph.basic import Apply
from pytensor.link.c.basic import CLinker
from pytensor.tensor.elemwise import Elemwise
from scipy import stats

from arviz_swiss.pymc import points
from arviz_swiss.pymc.compiling import LOCK
from arviz_swiss.pymc.elementwise import AtOnce, runs_at_once
from arviz_swiss.pymc.points import function_of_points

EDGES = np.array(
    [0.0, -0.0, 1.0, -1.0, 1e-300, 40.0, -40.0, 800.0, -800.0, np.inf, -np.inf, np.nan]
)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(points, "_kept", [])


@pytest.fixture
def no_compiler(monkeypatch):
    """Fail wherever PyTensor would call the C compiler."""

    def refuse(*args, **kwargs):
        raise AssertionError("compiled C")

    monkeypatch.setattr(CLinker, "make_thunk", refuse)


def function_of(model, gradient=True):
    with LOCK:
        return function_of_points(model.logp(), model.value_vars, gradient)


def some_points(model, count=3, seed=1):
    rng = np.random.default_rng(seed)
    with pytensor.config.change_flags(cxx=""):
        start = model.initial_point(0)
    return [
        np.stack([start[v.name] + 0.3 * rng.normal(size=start[v.name].shape) for _ in range(count)])
        for v in model.value_vars
    ]


def one_by_one(model, arrays):
    """Return PyMC's own log density and gradient, for one point after another."""
    with pytensor.config.change_flags(mode="FAST_COMPILE", cxx=""):
        logp = model.logp()
        function = model.compile_fn(
            [logp, *pt.grad(logp, model.value_vars)], inputs=model.value_vars
        )
        names = [value.name for value in model.value_vars]
        rows = [
            function(dict(zip(names, point, strict=True))) for point in zip(*arrays, strict=True)
        ]
    return [np.stack(column) for column in zip(*rows, strict=True)]


def compiled(function):
    """Return the PyTensor function that a function of points has called."""
    (called,) = function._shared.free
    return getattr(called, "__wrapped__", called)


KINDS = [(kind, True) for kind in MODELS if kind != "forty_variables"]


@pytest.mark.parametrize(
    ("kind", "as_data"), [*KINDS, ("normal", False), ("hierarchical", False), ("softmax", False)]
)
def test_values_and_gradients_are_those_of_pymc(kind, as_data, no_compiler):
    model = build(kind, as_data)
    function, arrays = function_of(model), some_points(model)
    results = function(arrays)
    for result, expected in zip(results, one_by_one(model, arrays), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-10)
    nodes = compiled(function).maker.fgraph.toposort()
    assert all(map(runs_at_once, nodes))


def test_more_terms_than_numpy_takes_at_once():
    model = build("forty_variables")
    arrays = some_points(model)
    values, *gradients = function_of(model)(arrays)
    y, each = some_data()["y"], np.stack(arrays, axis=1)
    residuals = y[:, None] - each.sum(axis=1)
    expected = stats.norm.logpdf(residuals, scale=3).sum(axis=0)
    np.testing.assert_allclose(values, expected + stats.norm.logpdf(each).sum(axis=1))
    np.testing.assert_allclose(np.stack(gradients, 1), residuals.sum(0)[:, None] / 9 - each)


def looping(mu, y):
    """Return a model whose likelihood is a loop, which NumPy has no way of."""
    with pm.Model() as model:
        theta = pm.Normal("theta", mu)
        scan = pytensor.scan(
            lambda now, before, slope: 0.5 * before + now * slope,
            sequences=[pt.as_tensor(y)],
            outputs_info=[0.0 * theta],
            non_sequences=[theta],
            return_updates=False,
        )
        pm.Normal("y", scan, 1.0, observed=y)
    return model


@pytest.mark.parametrize("compiler", [False, True])
def test_loops_are_compiled_where_there_is_a_compiler(compiler):
    y = some_data(rows=25)["y"]
    model = looping(0.3, y)
    if compiler and not pytensor.config.cxx:
        pytest.fail("this test needs a C compiler")
    with pytensor.config.change_flags(**({} if compiler else {"cxx": ""})):
        function, (theta,) = function_of(model, gradient=False), some_points(model)
        (values,) = function([theta])
    linker = type(compiled(function).maker.linker).__name__
    assert linker == ("VMLinker" if compiler else "PerformLinker")
    state, expected = np.zeros(3), stats.norm.logpdf(theta, 0.3)
    for each in y:
        state = 0.5 * state + each * theta
        expected += stats.norm.logpdf(each, state)
    np.testing.assert_allclose(values, expected)


@pytest.mark.parametrize(("as_data", "rows"), [(True, 57), (False, 40)])
def test_batches_share_a_function(as_data, rows):
    models = [build("normal", as_data, n, seed) for seed, n in enumerate((40, 40, rows))]
    functions = [function_of(model) for model in models]
    assert len(points._kept) == 1
    for model, function in zip(models, functions, strict=True):
        arrays = some_points(model)
        np.testing.assert_allclose(function(arrays)[0], one_by_one(model, arrays)[0])
    assert len(functions[0]._shared.free) == 1
    function_of(models[0], gradient=False)
    function_of(build("poisson"))
    assert len(points._kept) == 3


def test_only_so_many_functions_are_kept(monkeypatch):
    monkeypatch.setattr(points, "FUNCTIONS_KEPT", 2)
    for kind in ("normal", "poisson", "bernoulli"):
        function_of(build(kind), gradient=False)
    assert len(points._kept) == 2


def test_what_depends_on_data_alone_is_computed_once():
    model = build("negative_binomial")
    function = function_of(model)
    function(some_points(model))
    fgraph, count = compiled(function).maker.fgraph, len(model.value_vars)
    moving = set(fgraph.inputs[:count])
    for node in fgraph.toposort():
        if not moving.isdisjoint(node.inputs):
            moving.update(node.outputs)
    still = {
        str(node.op.scalar_op)
        for node in fgraph.toposort()
        if isinstance(node.op, Elemwise) and moving.isdisjoint(node.inputs)
        if any(each.type.ndim for each in node.inputs)
    }
    # log factorials of the counts are data; types of rows may be changed, once for all points
    assert still <= {"Cast{float64}", "Switch"}
    assert len(function._folded[0]) >= 3


def test_data_are_not_copied():
    x = np.random.default_rng(0).normal(size=(1000, 3))
    with pm.Model() as model:
        beta = pm.Normal("beta", shape=3)
        pm.Normal("y", pt.dot(pm.Data("x", x), beta), observed=pm.Data("y_data", x[:, 0]))
    function = function_of(model)
    held = model["x"].get_value(borrow=True)
    large = [array for array in function._folded[0] if np.size(array) == x.size]
    assert large
    assert all(np.shares_memory(array, held) for array in large)
    before = held.copy()
    function(some_points(model))
    np.testing.assert_array_equal(held, before)


@pytest.mark.parametrize("kind", ["student", "softmax", "mixture"])
def test_threads_get_what_one_gets(kind):
    models = [build(kind, seed=seed) for seed in range(4)]
    functions = [function_of(model) for model in models]
    arrays = [some_points(model, 20, seed) for seed, model in enumerate(models)]
    expected = [function(each) for function, each in zip(functions, arrays, strict=True)]
    together = threading.Barrier(4)

    def call(place):
        together.wait()
        return [functions[place](arrays[place]) for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        for place, results in enumerate(pool.map(call, range(4))):
            for result in results:
                for got, want in zip(result, expected[place], strict=True):
                    np.testing.assert_array_equal(got, want)


def test_threads_make_functions_one_at_a_time(monkeypatch):
    """PyTensor cannot make functions in two threads at once."""
    now, overlaps, make_shared = threading.Lock(), [], points._Shared._make

    def watched(shared):
        overlaps.append(not now.acquire(blocking=False))
        function = make_shared(shared)
        now.release()
        return function

    monkeypatch.setattr(points._Shared, "_make", watched)
    model = build("student")
    function, arrays = function_of(model), some_points(model, 2000)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(function, [arrays] * 6))
    assert 1 <= len(overlaps) <= 3
    assert not any(overlaps)


UNARY = {
    "softplus": pt.softplus,
    "log1mexp": pt.log1mexp,
    "trigamma": pt.tri_gamma,
    "to_int": lambda x: pt.cast(pt.switch(pt.isnan(x) | pt.isinf(x), 0.0, x), "int64"),
    "clip": lambda x: pt.clip(x, -1.0, 2.0),
    "second": lambda x: pt.second(x, pt.constant(3.0)),
    "sum": lambda x: pt.add(x, x, x, pt.constant(1.0)),
    "product": lambda x: pt.mul(x, x, pt.constant(2.0), x),
}


@pytest.mark.parametrize("name", UNARY)
def test_numpy_ways_equal_those_of_pytensor(name):
    x = pt.vector("x")
    node = UNARY[name](x).owner
    ways = [op for op in (points_way(node),) if op is not None]
    assert ways, f"{name} has no way of NumPy's"
    inputs = [EDGES if each.owner or each is x else each for each in node.inputs]
    arrays = [
        np.zeros_like(EDGES) if name == "to_int" else np.asarray(getattr(each, "data", each))
        for each in inputs
    ]
    if name == "to_int":
        arrays = [np.array([0.0, -0.9, 0.9, 3.7, -3.7, 1e9])]
    arrays = [np.broadcast_to(a, (a.size if a.ndim else arrays[0].size,)) for a in arrays]
    output = [[None]]
    AtOnce(node.op, ways[0]).perform(
        Apply(node.op, [pt.vector(dtype=str(a.dtype)) for a in arrays], [node.outputs[0].type()]),
        arrays,
        output,
    )
    scalar = node.op.scalar_op
    with np.errstate(all="ignore"):
        expected = [scalar.impl(*element) for element in zip(*arrays, strict=True)]
    (result,) = output[0]
    assert result.dtype == node.outputs[0].type.dtype
    assert result.flags.owndata
    assert not any(np.shares_memory(result, array) for array in arrays)
    np.testing.assert_allclose(result, np.array(expected, result.dtype), rtol=1e-13)


def points_way(node):
    from arviz_swiss.pymc.elementwise import NUMPY_WAYS

    return NUMPY_WAYS.get(type(node.op.scalar_op))


def test_operations_of_other_graphs_are_left_alone():
    x = pt.vector("x")
    operation = pt.softplus(x).owner.op
    before = operation.ufunc
    function_of(build("ordered_logistic"))(some_points(build("ordered_logistic")))
    with pm.Model() as model:
        pm.Normal("y", pt.softplus(pm.Normal("mu", shape=3)), observed=np.ones(3))
    function_of(model)(some_points(model))
    assert operation.ufunc is before


def test_integers_and_single_precision():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        y = pm.Data("y_data", some_data()["y"].astype("float32"))
        pm.Normal("y", mu, observed=y)
        pm.Poisson("n", pt.exp(mu), observed=pm.Data("n_data", some_data()["n"].astype("int8")))
    arrays = some_points(model)
    for result, expected in zip(function_of(model)(arrays), one_by_one(model, arrays), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-6)

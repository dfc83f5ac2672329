"""Sums over rows in blocks, against all rows at once; graphs in which rows meet are not cut."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from many_models import MODELS, Held, some_data
from pymc.logprob import transformed_conditional_logp

from arviz_swiss.pymc import points
from arviz_swiss.pymc.compiling import LOCK
from arviz_swiss.pymc.density import _safe
from arviz_swiss.pymc.row_sums import find_row_sum

ROWS = 40
# 40 rows are six blocks, the last one shorter than the others
AT_ONCE = 7


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(points, "_kept", [])


def built(make, as_data=True):
    with pm.Model() as model:
        make(Held(some_data(ROWS), as_data))
    return model


def likelihood(model):
    """Return the log likelihood as `ModelDensity` makes it; of a model without, its Potentials."""
    terms = model.potentials
    if model.observed_RVs:
        terms = transformed_conditional_logp(
            rvs=model.observed_RVs,
            rvs_to_values=model.rvs_to_values,
            rvs_to_transforms=model.rvs_to_transforms,
        )
    else:
        terms = model.replace_rvs_by_values(terms)
    return _safe(pt.add(*map(pt.sum, terms), pt.constant(0.0)))


def row_sum_of(graph, values):
    return find_row_sum(*points._lift(graph, values))


def some_points(model, count=3):
    rng = np.random.default_rng(1)
    with pytensor.config.change_flags(cxx=""):
        start = model.initial_point(0)
    return [
        np.stack([start[v.name] + 0.3 * rng.normal(size=start[v.name].shape) for _ in range(count)])
        for v in model.value_vars
    ]


def function_of(graph, values, monkeypatch, at_once):
    monkeypatch.setattr(points, "ROWS_AT_ONCE", at_once)
    with LOCK:
        return points.function_of_points(graph, values, True)


def check_equal(model, monkeypatch, cut=None):
    """Compare values and gradients with those of all rows; `cut` says if there must be blocks."""
    graph, values, at = likelihood(model), model.value_vars, some_points(model)
    whole = function_of(graph, values, monkeypatch, 10**6)
    blocks = function_of(graph, values, monkeypatch, AT_ONCE)
    assert not whole.in_blocks
    assert cut is None or blocks.in_blocks == cut
    assert len(blocks._folded) == (6 if blocks.in_blocks else 1)
    for a, b in zip(blocks(at), whole(at), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def two_outcomes(data):
    beta = pm.Normal("beta", shape=3)
    pm.Normal("y", pt.dot(data.x, beta), 1.0, observed=data.y)
    pm.Poisson("n", pt.exp(beta[0]), observed=data.n)


def scales_of_rows(data):
    beta = pm.Normal("beta", shape=3)
    pm.Normal("y", beta[0], pt.exp(pt.dot(data.x, beta)), observed=data.y)


def columns(data):
    beta, x = pm.Normal("beta", shape=3), pt.as_tensor(data.x)
    pm.Normal("y", x[:, 0] * beta[0] + (x[:, 1:] * beta[1:]).max(axis=1), 1.0, observed=data.y)


def effects_of_groups(data):
    u, v = pm.Normal("u", shape=5), pm.Normal("v", shape=(5, 3))
    group, x = data.group, data.x
    pm.Normal("y", u[group] + (x * v[group]).sum(axis=1), 1.0, observed=data.y)


def covariates_of_groups(data):
    slope, covariate = pm.Normal("slope"), np.linspace(-1.0, 1.0, 25)
    pm.Normal("y", (slope * covariate)[data.group], 1.0, observed=data.y)


def square(data):
    """A matrix of as many columns as rows is one of rows all the same."""
    beta = pm.Normal("beta", shape=ROWS)
    matrix = np.random.default_rng(2).normal(size=(ROWS, ROWS))
    pm.Normal("y", pt.dot(matrix, beta), 1.0, observed=data.y)


def uniform(data):
    """Rows may be outside."""
    pm.Uniform("y", -1.0, pm.Normal("top"), observed=data.y)


def weighted(data):
    mu, weights = pm.Normal("mu"), np.linspace(0.1, 2.0, ROWS)
    pm.Potential("y", weights * pm.logp(pm.Normal.dist(mu, 1.0), data.y))


def averaged(data):
    """A sum that is divided by the number of rows is one."""
    pm.Potential("y", -((pm.Normal("mu") - pt.as_tensor(data.y)) ** 2).sum() / ROWS)


CUT = [
    *(
        MODELS[name]
        for name in (
            "normal",
            "bernoulli",
            "poisson",
            "censored",
            "random_walk",
            "truncated",
        )
    ),
    two_outcomes,
    scales_of_rows,
    columns,
    effects_of_groups,
    uniform,
]


@pytest.mark.parametrize("make", CUT, ids=lambda make: make.__name__)
def test_blocks_add_up(make, monkeypatch):
    check_equal(built(make), monkeypatch, cut=True)


@pytest.mark.parametrize(
    "make", [MODELS["poisson"], covariates_of_groups, square, weighted, averaged]
)
def test_blocks_of_constants_add_up(make, monkeypatch):
    check_equal(built(make, as_data=False), monkeypatch, cut=True)


def centred(data):
    y = pt.as_tensor(data.y)
    pm.Normal("y", pm.Normal("b") * (y - y.mean()), 1.0, observed=y)


def scaled_by_largest(data):
    y = pt.as_tensor(data.y)
    pm.Normal("y", pm.Normal("b") * y / abs(y).max(), 1.0, observed=y)


def cumulated(data):
    y = pt.as_tensor(data.y)
    pm.Normal("y", pm.Normal("b") * pt.cumsum(y), 1.0, observed=y)


def lagged(data):
    y = pt.as_tensor(data.y)
    pm.Potential("y", -((y[1:] - pm.Normal("rho") * y[:-1]) ** 2).sum())


def reversed_rows(data):
    y = pt.as_tensor(data.y)
    pm.Normal("y", pm.Normal("rho") * y[::-1], 1.0, observed=y)


def first_row(data):
    y = pt.as_tensor(data.y)
    pm.Normal("y", pm.Normal("rho") * y[0], 1.0, observed=y)


def masked(data):
    y = pt.as_tensor(data.y)
    pm.Potential("y", -((y[y > 0] - pm.Normal("mu")) ** 2).sum())


def autoregressive(data):
    pm.AR("y", pm.Normal("rho", shape=2), init_dist=pm.Normal.dist(), observed=data.y)


def walking(data):
    pm.GaussianRandomWalk("y", 0.0, pm.HalfNormal("s"), init_dist=pm.Normal.dist(), observed=data.y)


def multivariate(data):
    cov = np.eye(ROWS) + 0.5
    pm.MvNormal("y", pm.Normal("mu") * np.ones(ROWS), cov=cov, observed=data.y)


def quadratic_form(data):
    y, matrix = pt.as_tensor(data.y), np.eye(ROWS) + 0.1
    pm.Potential("y", -pm.Exponential("s", 1.0) * pt.dot(y, pt.dot(matrix, y)))


def symmetric(data):
    matrix = pt.as_tensor(np.random.default_rng(2).normal(size=(ROWS, ROWS)))
    pm.Potential("y", -pt.exp(pm.Normal("s") * matrix * matrix.T).sum())


def crossed(data):
    """Columns of a square matrix stand beside rows of the outcome."""
    matrix = pt.as_tensor(np.random.default_rng(2).normal(size=(ROWS, ROWS)))
    pm.Normal("y", pt.exp(pm.Normal("b") * matrix).sum(axis=0), 1.0, observed=data.y)


def parameter_of_each_row(data):
    pm.Normal("y", pm.Normal("u", shape=ROWS), 1.0, observed=data.y)


def lengths_differ(data):
    mu = pm.Normal("mu")
    pm.Normal("y", mu, 1.0, observed=data.y)
    pm.Normal("z", mu, 1.0, observed=np.linspace(0.0, 1.0, 30))


def covariates_as_many_as_rows(data):
    """Each row takes that of some group, of which there are as many as rows."""
    covariate = np.linspace(-1.0, 1.0, ROWS)
    pm.Normal("y", (pm.Normal("b") * covariate)[data.group], 1.0, observed=data.y)


def normalised(data):
    """A partial likelihood: each row against the sum of all."""
    eta = pt.dot(data.x, pm.Normal("beta", shape=3))
    pm.Potential("y", (eta - pt.logsumexp(eta)).sum())


def log_of_sum(data):
    pm.Potential("y", pt.log((pm.Normal("mu") ** 2 + pt.as_tensor(data.y) ** 2).sum()))


def counted(data):
    """The number of rows is in every row's own term."""
    y = pt.as_tensor(data.y)
    pm.Potential("y", -(pm.Normal("mu") * y / y.shape[0]).sum())


def constant_beside(data):
    """What is no sum over rows would be added once a block."""
    mu = pm.Normal("mu")
    pm.Potential("y", -((pt.as_tensor(data.y) - mu) ** 2).sum() - mu**2)


def repeated(data):
    y = pt.as_tensor(data.y)
    pm.Potential("y", -((pm.Normal("mu") - pt.tile(y, 2)) ** 2).sum())


def scanned(data):
    mu, y = pm.Normal("mu"), pt.as_tensor(data.y)
    sums = pytensor.scan(
        lambda each, last: 0.5 * last + each - mu,
        sequences=[y],
        outputs_info=[pt.constant(0.0, dtype="float64")],
        return_updates=False,
    )
    pm.Potential("y", -(sums**2).sum())


MEET = [
    centred,
    scaled_by_largest,
    cumulated,
    lagged,
    reversed_rows,
    first_row,
    masked,
    autoregressive,
    walking,
    multivariate,
    quadratic_form,
    symmetric,
    crossed,
    parameter_of_each_row,
    lengths_differ,
    covariates_as_many_as_rows,
    normalised,
    log_of_sum,
    counted,
    constant_beside,
    repeated,
    scanned,
]
BEFOREHAND = [
    centred,
    scaled_by_largest,
    cumulated,
    reversed_rows,
    first_row,
    covariates_as_many_as_rows,
]


@pytest.mark.parametrize("make", MEET, ids=lambda make: make.__name__)
def test_rows_that_meet_are_not_cut(make):
    model = built(make)
    assert row_sum_of(likelihood(model), model.value_vars) is None


@pytest.mark.parametrize("make", MEET, ids=lambda make: make.__name__)
def test_rows_of_constants_that_meet_are_not_cut(make):
    """Or PyMC has computed beforehand what they meet in, which is then a constant of each row."""
    model = built(make, as_data=False)
    is_cut = row_sum_of(likelihood(model), model.value_vars) is not None
    assert not is_cut or make in BEFOREHAND


@pytest.mark.parametrize("make", [centred, cumulated, covariates_as_many_as_rows])
def test_what_was_computed_beforehand_is_right(make, monkeypatch):
    check_equal(built(make, as_data=False), monkeypatch)


@pytest.mark.parametrize("name", ["mixture", "correlated", "ordered_logistic", "softmax"])
def test_what_is_not_understood_is_not_cut(name):
    model = built(MODELS[name])
    assert row_sum_of(likelihood(model), model.value_vars) is None


def test_zero_inflated(monkeypatch):
    check_equal(built(MODELS["zero_inflated"]), monkeypatch)


def test_missing_outcomes(monkeypatch):
    y = some_data(ROWS)["y"]
    y[[3, 30]] = np.nan
    with pm.Model() as model, pytest.warns(pm.exceptions.ImputationWarning):
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=y)
    check_equal(model, monkeypatch)


def test_a_row_outside_leaves_no_density(monkeypatch):
    model = built(uniform)
    graph, values = likelihood(model), model.value_vars
    tops = [np.array([some_data(ROWS)["y"].max() - 0.1, 0.0, 50.0])]
    whole = function_of(graph, values, monkeypatch, 10**6)(tops)[0]
    blocks = function_of(graph, values, monkeypatch, AT_ONCE)(tops)[0]
    assert np.isneginf(whole).all()  # some outcomes are below -1
    np.testing.assert_array_equal(blocks, whole)


def guarded(inside):
    """A graph whose rows have no density if one of them is outside, and its value."""
    theta = pt.dscalar("theta")
    x = pt.as_tensor(np.linspace(-1.0, 1.0, ROWS))
    rows = pt.switch(pt.all(theta * x > -1.0), -((x - theta) ** 2), -np.inf)
    return pt.sum(inside(rows, x)), theta


@pytest.mark.parametrize(
    "inside",
    [
        lambda rows, x: rows,
        lambda rows, x: rows + x,
        lambda rows, x: rows - x,
        lambda rows, x: pt.switch(x > 0, rows, -np.inf),
    ],
    ids=["alone", "plus", "minus", "support"],
)
def test_a_condition_on_every_row(inside, monkeypatch):
    graph, theta = guarded(inside)
    whole = function_of(graph, [theta], monkeypatch, 10**6)
    blocks = function_of(graph, [theta], monkeypatch, AT_ONCE)
    assert blocks.in_blocks
    at = [np.array([0.5, 1.5, -3.0])]
    np.testing.assert_allclose(blocks(at)[0], whole(at)[0], rtol=1e-12)
    assert np.isneginf(blocks(at)[0][1:]).all()


@pytest.mark.parametrize(
    "inside",
    [
        lambda rows, x: pt.exp(rows),
        lambda rows, x: x * rows,
        lambda rows, x: x - rows,
        lambda rows, x: pt.switch(x > 0, rows, x),
        lambda rows, x: pt.logaddexp(rows, x),
        lambda rows, x: pt.maximum(rows, x),
    ],
    ids=["exp", "weights", "taken away", "choice", "mixture", "largest"],
)
def test_a_condition_on_every_row_that_others_escape_is_not_cut(inside):
    graph, theta = guarded(inside)
    assert row_sum_of(graph, [theta]) is None


def test_conditions_of_columns_beside_rows_are_not_cut():
    matrix = pt.as_tensor(np.random.default_rng(2).normal(size=(ROWS, ROWS)))
    y, theta = pt.as_tensor(np.linspace(0.0, 1.0, ROWS)), pt.dscalar("theta")
    graph = pt.sum(pt.switch(pt.all(theta * matrix > -9.0, axis=0), theta * y, -np.inf))
    assert row_sum_of(graph, [theta]) is None


def test_one_inside_another_of_the_same_shape(monkeypatch):
    theta, y = pt.dscalar("theta"), pt.as_tensor(np.linspace(0.0, 1.0, ROWS))
    graph = pt.sum(pt.alloc(theta + pt.alloc(theta * y, ROWS) ** 2, ROWS))
    whole = function_of(graph, [theta], monkeypatch, 10**6)
    blocks = function_of(graph, [theta], monkeypatch, AT_ONCE)
    assert blocks.in_blocks
    at = [np.array([0.5, 1.5])]
    for a, b in zip(blocks(at), whole(at), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_repeated_to_more_rows_is_not_cut():
    theta, y = pt.dscalar("theta"), pt.as_tensor(np.linspace(0.0, 1.0, ROWS))
    assert row_sum_of(pt.sum(pt.alloc(theta * y, 2, ROWS)), [theta]) is None


def test_one_row_is_not_cut():
    theta, y = pt.dscalar("theta"), pt.as_tensor(np.ones((1, 50)))
    for graph in (pt.sum(theta * y), pt.sum(theta * pt.squeeze(y)), pt.sum(theta * y[0])):
        assert row_sum_of(graph, [theta]) is None


def test_blocks_hold_every_row_once_and_none_is_empty(monkeypatch):
    for rows in (1, 6, 7, 8, 14, 15, 40):
        monkeypatch.setattr(points, "ROWS_AT_ONCE", AT_ONCE)
        array, other = np.arange(rows), np.arange(3)
        blocks = points._blocks([array, other], [True, False])
        assert all(0 < len(block[0]) <= AT_ONCE and block[1] is other for block in blocks)
        np.testing.assert_array_equal(np.concatenate([block[0] for block in blocks]), array)

"""Tests of arviz_swiss.pymc.space."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr

from arviz_swiss.data.layout import Layout, place
from arviz_swiss.pymc.space import ModelSpace, data_dependent

# PyTensor says so once, where it was installed by pip
pytestmark = [
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning"),
    pytest.mark.usefixtures("uncompiled"),
]

SAMPLES = (2, 50)


def half_normal():
    pm.HalfNormal("x", 2.0, shape=3, initval=np.array([0.5, 1.0, 2.0]))


def beta():
    pm.Beta("x", 2.0, 3.0, initval=0.2)


def dirichlet():
    weights = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    pm.Dirichlet("x", np.ones((2, 3)), initval=weights)


def lkj_cholesky_cov():
    packed = np.array([1.2, -0.5, 0.7, 0.1, 0.3, 0.9])
    pm.LKJCholeskyCov("x", eta=2.0, n=3, sd_dist=pm.Exponential.dist(1.0), initval=packed)


def ordered():
    start = np.array([-1.0, 0.5, 2.0])
    pm.Normal("x", 0.0, 2.0, shape=3, transform=pm.distributions.transforms.ordered, initval=start)


def uniform():
    pm.Uniform("x", -2.0, 5.0, initval=4.0)


def uniform_with_random_bounds():
    low = pm.Normal("low", initval=0.5)
    width = pm.HalfNormal("width", initval=2.0)
    pm.Uniform("x", low, low + width, initval=1.0)


def von_mises():
    pm.VonMises("x", 3.0, 4.0, initval=1.0)


def zero_sum():
    pm.ZeroSumNormal("x", shape=(4, 3), n_zerosum_axes=2, initval=np.zeros((4, 3)))


def non_centred():
    tau = pm.HalfCauchy("tau", 1.0, initval=0.5)
    z = pm.Normal("z", shape=4, initval=np.arange(4.0))
    pm.Deterministic("theta", 1.0 + tau * z)


def simplex_is_valid(x):
    return (x > 0).all(-1) & (np.abs(x.sum(-1) - 1) < 1e-12)


# support of the draws on their own scale, checked without PyMC
KINDS = {
    half_normal: lambda draws: draws["x"] > 0,
    beta: lambda draws: (draws["x"] > 0) & (draws["x"] < 1),
    dirichlet: lambda draws: simplex_is_valid(draws["x"]),
    lkj_cholesky_cov: lambda draws: draws["x"][..., [0, 2, 5]] > 0,
    ordered: lambda draws: np.diff(draws["x"], axis=-1) > 0,
    uniform: lambda draws: (draws["x"] > -2) & (draws["x"] < 5),
    uniform_with_random_bounds: lambda draws: (
        (draws["x"] > draws["low"]) & (draws["x"] < draws["low"] + draws["width"])
    ),
    von_mises: lambda draws: np.abs(draws["x"]) <= np.pi,
    zero_sum: lambda draws: np.abs([draws["x"].sum(-1).max(), draws["x"].sum(-2).max()]) < 1e-12,
    non_centred: lambda draws: draws["tau"] > 0,
}


@pytest.fixture(scope="module", params=KINDS, ids=lambda build: build.__name__)
def kind(request):
    with pytensor.config.change_flags(mode="FAST_COMPILE"), pm.Model() as model:
        request.param()
    return model, KINDS[request.param]


def prior_draws(model, shape=SAMPLES):
    drawn = pm.draw(model.free_RVs, draws=int(np.prod(shape)), random_seed=4)
    draws = {
        rv.name: array.reshape((*shape, *array.shape[array.ndim - rv.ndim :]))
        for rv, array in zip(model.free_RVs, drawn, strict=True)
    }
    for rv in model.free_RVs:
        if getattr(model.rvs_to_transforms[rv], "name", None) == "ordered":
            draws[rv.name] = np.sort(draws[rv.name], axis=-1)
    return draws


def moved(draws):
    """Move unconstrained draws as a merge does: another mean, another spread."""
    return {name: 1.7 * array - 0.4 for name, array in draws.items()}


def test_round_trip(kind):
    model, in_support = kind
    space = ModelSpace(model)
    draws = prior_draws(model)
    assert np.all(in_support(draws))
    unconstrained = space.forward(draws)
    assert list(unconstrained) == [rv.name for rv in model.free_RVs]
    back = space.backward(unconstrained)
    again = space.forward(back)
    for name in draws:
        np.testing.assert_allclose(back[name], draws[name], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(again[name], unconstrained[name], rtol=1e-10, atol=1e-10)


def test_no_moved_draw_leaves_the_support(kind):
    model, in_support = kind
    space = ModelSpace(model)
    draws = space.backward(moved(space.forward(prior_draws(model))))
    assert np.all(in_support(draws))


def test_forward_is_the_transform_that_pymc_samples_with(kind):
    model, _ = kind
    start = {rv.name: np.asarray(model.rvs_to_initial_values[rv]) for rv in model.free_RVs}
    point = model.initial_point()
    for rv in model.free_RVs:
        expected = point[model.rvs_to_values[rv].name]
        got = ModelSpace(model).forward(start)[rv.name]
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_deterministics_follow_from_their_parents():
    x = np.linspace(-1.0, 1.0, 7)
    with pm.Model() as model:
        non_centred()
        weights = pm.Dirichlet("weights", np.ones(2))
        slope = pm.Deterministic("slope", weights[0] - weights[1])
        pm.Deterministic("line", slope * pm.Data("x", x))
        pm.Deterministic("constant", pt.as_tensor(np.arange(3.0)))
        chol, _, _ = pm.LKJCholeskyCov("chol", eta=2.0, n=2, sd_dist=pm.Exponential.dist(1.0))
        pm.Deterministic("covariance", chol @ chol.T)
        pm.Normal("y", slope, observed=[1.0, 2.0])
    space = ModelSpace(model)
    draws = space.backward(moved(space.forward(prior_draws(model))))
    got = space.deterministics(draws)
    first, below, second = np.moveaxis(draws["chol"], -1, 0)
    slope = draws["weights"][..., 0] - draws["weights"][..., 1]
    factor = np.zeros((*SAMPLES, 2, 2))
    factor[..., 0, 0], factor[..., 1, 0], factor[..., 1, 1] = first, below, second
    covariance = factor @ np.swapaxes(factor, -1, -2)
    stds = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    expected = {
        "theta": 1.0 + draws["tau"][..., None] * draws["z"],
        "slope": slope,
        "line": slope[..., None] * x,
        "constant": np.broadcast_to(np.arange(3.0), (*SAMPLES, 3)),
        "covariance": covariance,
        "chol_stds": stds,
        "chol_corr": covariance / stds[..., None] / stds[..., None, :],
    }
    assert set(got) == set(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-10, atol=1e-10, err_msg=name)


def test_a_deterministic_with_a_loop():
    with pm.Model() as model:
        a = pm.Beta("a", 2.0, 2.0)
        start = pt.as_tensor(np.float64(1.0))
        path = pytensor.scan(
            lambda x, a: a * x + 1.0,
            outputs_info=[start],
            non_sequences=[a],
            n_steps=3,
            return_updates=False,
        )
        pm.Deterministic("path", path)
    draws = {"a": np.array([0.2, 0.5, 0.7])}
    a = draws["a"]
    steps = [a + 1.0, a * (a + 1.0) + 1.0, a * (a * (a + 1.0) + 1.0) + 1.0]
    got = ModelSpace(model).deterministics(draws)["path"]
    np.testing.assert_allclose(got, np.stack(steps, axis=-1), rtol=1e-10)


def test_circular_draws_are_not_torn_apart():
    with pm.Model() as model:
        pm.VonMises("angle", np.array([3.0, 0.0]), 8.0)
        pm.Normal("mu")
    rng = np.random.default_rng(0)
    batches = [
        {
            "angle": rng.vonmises([centre, 0.1], 8.0, size=(*SAMPLES, 2)),
            "mu": rng.normal(size=SAMPLES),
        }
        for centre in (2.9, 3.3)
    ]
    space = ModelSpace(model).recentred(iter(batches))
    torn = ModelSpace(model).forward(batches[0])["angle"]
    assert torn[..., 0].std() > 1.5
    for batch in batches:
        unconstrained = space.forward(batch)
        assert unconstrained["angle"].std(axis=(0, 1)).max() < 0.6
        np.testing.assert_array_equal(unconstrained["mu"], batch["mu"])
        back = space.backward(unconstrained)["angle"]
        np.testing.assert_allclose(np.exp(1j * back), np.exp(1j * batch["angle"]), atol=1e-12)
        assert np.all(np.abs(back) <= np.pi)
    # one cut for all batches, opposite the mean of all draws
    together = np.concatenate([batch["angle"] for batch in batches])
    centre = np.angle(np.exp(1j * together).mean(axis=(0, 1)))
    for batch in batches:
        assert np.all(np.abs(space.forward(batch)["angle"] - centre) <= np.pi)


def test_spaces_without_circles_do_not_read_the_batches():
    def unread():
        raise AssertionError("read")
        yield

    with pm.Model() as model:
        pm.Normal("mu")
    ModelSpace(model).recentred(unread())


def test_untransformed_variables_stay_as_they_are():
    with pm.Model() as model:
        uniform_with_random_bounds()
    draws = prior_draws(model)
    space = ModelSpace(model, untransformed=["width"])
    unconstrained = space.forward(draws)
    np.testing.assert_array_equal(unconstrained["width"], draws["width"])
    expected = np.log(draws["x"] - draws["low"]) - np.log(
        draws["low"] + draws["width"] - draws["x"]
    )
    np.testing.assert_allclose(unconstrained["x"], expected, rtol=1e-10, atol=1e-10)
    back = space.backward(unconstrained)
    for name, array in draws.items():
        np.testing.assert_allclose(back[name], array, rtol=1e-12)
    assert list(space.transforms) == ["x"]


@pytest.mark.parametrize("shape", [(), (6,), (2, 3), (1, 2, 3)])
def test_any_number_of_sample_dimensions(shape):
    with pm.Model() as model:
        dirichlet()
    space = ModelSpace(model)
    draws = prior_draws(model, shape)
    unconstrained = space.forward(draws)
    assert unconstrained["x"].shape == (*shape, 2, 2)
    np.testing.assert_allclose(space.backward(unconstrained)["x"], draws["x"], rtol=1e-12)


def test_local_variables_and_what_depends_on_them_are_left_out():
    with pm.Model(coords={"group": list("abcd")}) as model:
        mu = pm.Normal("mu")
        tau = pm.HalfNormal("tau")
        z = pm.Normal("z", dims="group")
        pm.Deterministic("theta", mu + tau * z, dims="group")
        pm.Deterministic("ratio", mu / tau)
    space = ModelSpace(model, var_names=["tau", "mu"])
    assert space.names == ("mu", "tau")
    assert space.deterministic_names == ("ratio",)
    draws = {"mu": np.ones(3), "tau": np.array([1.0, 2.0, 4.0])}
    np.testing.assert_allclose(space.backward(space.forward(draws))["tau"], draws["tau"])
    np.testing.assert_allclose(space.deterministics(draws)["ratio"], [1.0, 0.5, 0.25])
    chosen = ModelSpace(model, deterministics=["theta"])
    assert chosen.deterministic_names == ("theta",)
    assert ModelSpace(model, deterministics=[]).deterministics(prior_draws(model)) == {}


def test_deterministics_of_the_batch_data_are_named():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Deterministic("double", 2 * mu)
        pm.Deterministic("fitted", mu * pm.Data("x", np.arange(4.0)))
        y = pm.Normal("y", mu, observed=np.arange(3.0))
        pm.Deterministic("residual", y - mu)
    assert data_dependent(model) == ("fitted", "residual")
    residual = ModelSpace(model).deterministics({"mu": np.array([1.0])})["residual"]
    np.testing.assert_array_equal(residual, [[-1.0, 0.0, 1.0]])


def test_dims_and_coords():
    with pm.Model(coords={"color": ["red", "blue", "grey"], "row": np.arange(4)}) as model:
        pm.Dirichlet("share", np.ones((4, 3)), dims=("row", "color"))
        pm.ZeroSumNormal("effect", dims=("row", "color"), n_zerosum_axes=2)
        mu = pm.Normal("mu", shape=2)
        pm.Deterministic("twice", 2 * mu)
    space = ModelSpace(model)
    assert space.dims == {
        "share": ("row", "color"),
        "effect": ("row", "color"),
        "mu": ("mu_dim_0",),
        "twice": ("twice_dim_0",),
    }
    assert space.coords["color"].tolist() == ["red", "blue", "grey"]
    draws = prior_draws(model)
    coords = {dim: xr.DataArray(values, dims=dim) for dim, values in space.coords.items()}
    variables, start = [], 0
    for name in space.names:
        variables.append(place(name, space.dims[name], draws[name].shape[2:], start))
        start = variables[-1].columns.stop
    layout = space.layout(Layout(tuple(variables), coords), space.forward(draws))
    assert [variable.dims for variable in layout.variables] == [
        ("row", "color_simplex"),
        ("row_zerosum", "color_zerosum"),
        ("mu_dim_0",),
    ]
    assert layout.size == 4 * 2 + 3 * 2 + 2
    assert layout.labels()[:2] == ["share[0, 0]", "share[0, 1]"]
    assert set(layout.coords) == {"row", "color_simplex", "row_zerosum", "color_zerosum"}
    assert space.describe() == '{"share": "simplex", "effect": "zerosum"}'


def discrete():
    pm.Poisson("count", 3.0)
    pm.Normal("mu")


@pytest.mark.parametrize(
    ("build", "kwargs", "message"),
    [
        (discrete, {}, r"\['count'\] are discrete.*Marginalize"),
        (beta, {"var_names": ["y"]}, r"var_names: \['y'\] are not among \['x'\]"),
        (beta, {"untransformed": ["y"]}, r"untransformed: \['y'\] are not among \['x'\]"),
        (beta, {"deterministics": ["y"]}, r"deterministics: \['y'\] are not among \[\]"),
        (
            uniform_with_random_bounds,
            {"var_names": ["x", "low"]},
            r"transform of 'x' depends on \['width'\].*untransformed=\['x'\]",
        ),
        (
            non_centred,
            {"var_names": ["tau"], "deterministics": ["theta"]},
            r"'theta' depends on \['z'\]",
        ),
    ],
)
def test_bad_spaces_are_named(build, kwargs, message):
    with pm.Model() as model:
        build()
    with pytest.raises(ValueError, match=message):
        ModelSpace(model, **kwargs)


def test_discrete_variables_may_be_left_out():
    with pm.Model() as model:
        discrete()
    assert ModelSpace(model, var_names=["mu"]).names == ("mu",)


def test_the_edge_of_the_support_is_not_finite():
    with pm.Model() as model:
        beta()
    with np.errstate(divide="ignore"):
        assert not np.isfinite(ModelSpace(model).forward({"x": np.array([1.0])})["x"]).any()

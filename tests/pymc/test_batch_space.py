"""Local variables through a model that was built for another batch, of another size."""

import warnings

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from parts import in_parts

import arviz_swiss as az_swiss
from arviz_swiss import MergeWarning
from arviz_swiss.data import containers
from arviz_swiss.pymc.batch_space import BatchSpace

GROUPS = [["a", "b"], ["c", "d", "e"], ["f"]]
RANDOM = ("mu", "tau", "z", "s", "below_shared", "below_local", "parts", "angle")


def build(groups, labelled=True):
    rows = np.repeat(np.arange(len(groups)), 2)
    coords = {"part": ["x", "y", "w"]} | ({"group": groups} if labelled else {})
    size = {"dims": "group"} if labelled else {"shape": len(groups)}
    with pm.Model(coords=coords) as model:
        mu, tau = pm.Normal("mu", 0, 2), pm.HalfNormal("tau", 1)
        z = pm.Normal("z", 0, 1, **size)
        s = pm.LogNormal("s", mu, tau, **size)
        pm.Uniform("below_shared", 0, tau, **size)
        pm.Uniform("below_local", 0, s, **size)
        if labelled:
            pm.Dirichlet("parts", np.ones(3), dims=("group", "part"))
            pm.VonMises("angle", np.pi, 4, dims="group")
        dims = "group" if labelled else None
        u = pm.Deterministic("u", mu + tau * z, dims=dims)
        pm.Deterministic("spread", pm.math.exp(-s * tau), dims=dims)
        pm.Deterministic("fit", u[rows])
        pm.Deterministic("mean", u.mean())
        pm.Normal("y", u[rows], observed=np.zeros(len(rows)))
    return model


def draw(rng, groups, shift):
    """Draws with the supports of `build` stand for a sub-posterior, and cost no sampling."""
    shape, n = (2, 100), len(groups)
    mu = shift + 0.3 * rng.standard_normal(shape)
    tau = np.exp(shift + rng.standard_normal(shape))
    s = np.exp(mu[..., None] + tau[..., None] * rng.standard_normal((*shape, n)))
    z = rng.standard_normal((*shape, n))
    u = mu[..., None] + tau[..., None] * z
    return {
        "mu": mu,
        "tau": tau,
        "z": z,
        "s": s,
        "below_shared": tau[..., None] * rng.uniform(size=(*shape, n)),
        "below_local": s * rng.uniform(size=(*shape, n)),
        "parts": rng.dirichlet(np.ones(3), (*shape, n)),
        "angle": rng.vonmises(np.pi, 4, (*shape, n)),
        "u": u,
        "spread": np.exp(-s * tau[..., None]),
        "fit": np.repeat(u, 2, axis=-1),
        "mean": u.mean(axis=-1),
    }


def batch_of(values, groups, labelled):
    data = {}
    for name, value in values.items():
        own = [f"{name}_dim_{k}" for k in range(value.ndim - 2)]
        if labelled and value.ndim > 2 and name != "fit":
            own = ["group", "part"][: value.ndim - 2]
        elif not labelled and name in ("parts", "angle"):
            continue
        data[name] = (("chain", "draw", *own), value)
    coords = {"group": groups, "part": ["x", "y", "w"]} if labelled else {}
    names = [name for name in RANDOM if name in data]
    local = ",".join(name for name in names if name not in ("mu", "tau"))
    attrs = {"sampled_variables": names, "swiss_local": local, "swiss_kind": "fractionated"}
    return xr.Dataset(data, coords=coords, attrs=attrs)


@pytest.fixture(scope="module", params=[True, False], ids=["labelled", "unlabelled"])
def merged(request):
    rng = np.random.default_rng(0)
    batches = [
        batch_of(draw(rng, groups, shift), groups, request.param)
        for groups, shift in zip(GROUPS, (-0.5, 0.0, 0.5), strict=True)
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = az_swiss.merge(batches, model=build(GROUPS[1], request.param))
    said = [str(one.message) for one in caught if one.category is MergeWarning]
    return containers.read(found).groups, said, request.param, (found, batches)


def of_batches(merged):
    """Yield the shared and the local draws of each batch, in all chains, as arrays."""
    posterior = merged[0]["posterior"]
    shared = {name: posterior[name].values[:, :, None] for name in ("mu", "tau")}
    for b in range(len(GROUPS)):
        local = {}
        for name, values in posterior.drop_vars(["mu", "tau"]).data_vars.items():
            dim = values.dims[2]
            owners = merged[0]["swiss_local"][f"batch_{dim}"]
            local[name] = values.sel({dim: owners[owners == f"b{b}"][dim].values}).values
        yield shared, local


def test_no_local_draw_is_out_of_support(merged):
    for shared, local in of_batches(merged):
        assert (local["s"] > 0).all()
        assert ((local["below_shared"] > 0) & (local["below_shared"] < shared["tau"])).all()
        assert ((local["below_local"] > 0) & (local["below_local"] < local["s"])).all()
        if merged[2]:
            assert (local["parts"] > 0).all()
            np.testing.assert_allclose(local["parts"].sum(axis=-1), 1, atol=1e-12)
            assert (abs(local["angle"]) <= np.pi).all()
            assert (abs(np.exp(1j * local["angle"]).mean(axis=(0, 1))) > 0.6).all()


def test_local_deterministics_follow_from_their_parents(merged):
    for shared, local in of_batches(merged):
        expected = shared["mu"] + shared["tau"] * local["z"]
        np.testing.assert_allclose(local["u"], expected, rtol=1e-10, atol=1e-10)
        spread = np.exp(-local["s"] * shared["tau"])
        np.testing.assert_allclose(local["spread"], spread, rtol=1e-10, atol=1e-10)


def test_what_is_left_out_is_said_truly(merged):
    said, is_labelled = merged[1:3]
    (left,) = [text for text in said if text.startswith("left out")]
    assert "fit, mean (deterministic, and in the model no function of the merged variables" in left
    assert "pass model=" not in left
    assert any("repeat between batches" in text for text in said) == (not is_labelled)


def test_undo_through_a_model(merged):
    """Each batch gets its own draws back, deterministics aside."""
    found, batches = merged[3]
    model = build(GROUPS[1], merged[2])
    for back, batch in zip(
        az_swiss.subposteriors(found, model=model).values(), batches, strict=True
    ):
        posterior = containers.read(back).groups["posterior"]
        for name in RANDOM:
            if name in batch:
                values = batch[name].values
                if name == "angle":
                    difference = np.angle(np.exp(1j * (posterior[name].values - values)))
                    np.testing.assert_allclose(difference, 0, atol=1e-8)
                else:
                    np.testing.assert_allclose(posterior[name], values, rtol=1e-6, atol=1e-8)
    with pytest.raises(ValueError, match="pass that model as model="):
        az_swiss.subposteriors(found)


def test_a_transform_that_holds_the_batchs_data():
    with pm.Model(coords={"group": ["a", "b"]}) as model:
        pm.Uniform("s", 0, np.array([1.0, 2.0]), dims="group")
    with pytest.raises(ValueError, match=r"transform of 's' depends on the data of one batch"):
        BatchSpace(model, {"s": 0}, [])
    assert BatchSpace(model, {"s": 0}, [], untransformed=["s"]).transforms == {}


def test_names_as_bambi_gives_them():
    """A name such as 1|site_sigma is not taken for a dtype."""
    with pm.Model(coords={"site": ["a", "b"]}) as model:
        scale = pm.HalfNormal("1|site_sigma", dims="site")
        pm.Deterministic("1|site", 2 * scale, dims="site")
    space = BatchSpace(model, {"1|site_sigma": 0}, [], deterministics=["1|site"])
    draws = {"1|site_sigma": np.full((1, 2, 3), 2.0)}
    np.testing.assert_allclose(space.forward(draws)["1|site_sigma"], np.log(2.0))
    np.testing.assert_array_equal(space.deterministics(draws)["1|site"], np.full((1, 2, 3), 4.0))


def test_parts_have_the_local_variables_of_their_batch():
    rng, model = np.random.default_rng(4), build(GROUPS[1])
    names = ["mu", "tau", "z", "s", "u", "spread"]
    attrs = {"swiss_local": "z,s,below_shared,below_local,parts,angle"}
    named = {}
    for k, groups in enumerate(GROUPS):
        values = draw(rng, groups, 0.1 * k)
        data = {n: (("chain", "draw", *["group"] * (values[n].ndim - 2)), values[n]) for n in names}
        named[f"b{k}"] = xr.Dataset(data, coords={"group": groups}, attrs=attrs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MergeWarning)
        merged = az_swiss.merge(named, kind="fractionated", model=model)
        _, parts = in_parts(named, applied={"model": model}, model=model, kind="fractionated")
    whole = containers.read(merged).groups["posterior"]
    for (label, part), groups in zip(parts.items(), GROUPS, strict=True):
        own = whole.isel(chain=whole["batch"].values == label).sel(group=groups)
        posterior = containers.read(part).groups["posterior"]
        for name in names:
            np.testing.assert_allclose(
                posterior[name].values, own[name].values, rtol=1e-10, atol=1e-10, err_msg=name
            )

"""merge(model=): in the model's own unconstrained space, with deterministics computed anew."""

import numpy as np
import pymc as pm
import pytensor
import pytest
import xarray as xr
from arviz_density import assert_is_density
from parts import assert_parts_of, in_parts
from read_visuals import lines, text

import arviz_swiss as az_swiss
from arviz_swiss import MergeWarning
from arviz_swiss.correcting.refine import space_for_models
from arviz_swiss.data import containers
from arviz_swiss.merging.merged import open_merged
from arviz_swiss.pymc.density import ModelDensity

pytestmark = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")


def build_all():
    """Return a model with one variable of each kind of support, and deterministics of them."""
    coords = {"colour": ["red", "green", "blue"], "level": [1, 2], "group": ["u", "v", "w", "x"]}
    with pm.Model(coords=coords) as model:
        sigma = pm.HalfNormal("sigma", 2.0)
        rate = pm.Beta("rate", 2, 5)
        parts = pm.Dirichlet("parts", np.array([2.0, 3.0, 4.0]), dims="colour")
        cuts = pm.Normal(
            "cuts",
            [0, 1],
            1,
            transform=pm.distributions.transforms.ordered,
            default_transform=None,
            initval=[0, 1],
            dims="level",
        )
        low = pm.Uniform("low", 0, 1)
        high = pm.Uniform("high", low, low + 3)
        angle = pm.VonMises("angle", np.pi, 4)
        zero = pm.ZeroSumNormal("zero", 1, dims="group")
        chol, _, stds = pm.LKJCholeskyCov(
            "chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1.0), compute_corr=True
        )
        tau = pm.HalfNormal("tau", 1)
        raw = pm.Normal("raw", 0, 1, dims="group")
        pm.Deterministic("effect", tau * raw, dims="group")
        pm.Deterministic("variance", sigma**2)
        pm.Deterministic("width", high - low)
        pm.Deterministic("odds", rate / (1 - rate))
        pm.Deterministic("cosine", pm.math.cos(angle))
        pm.Deterministic("spread", chol @ chol.T)
        pm.Deterministic("mix", parts[0] * stds.sum() + cuts[1] + zero[0])
    return model


@pytest.fixture(scope="module")
def batches():
    """Draws that have all supports stand for sub-posteriors, and cost no sampling."""
    model = build_all()
    return [labelled(draw_all(np.random.default_rng(seed)), model) for seed in range(3)]


def draw_all(rng):
    shape = (2, 200)
    low = rng.uniform(size=shape)
    group = rng.standard_normal((*shape, 4))
    packed = rng.standard_normal((*shape, 3))
    return {
        "sigma": 2 * np.abs(rng.standard_normal(shape)),
        "rate": rng.beta(2, 5, shape),
        "parts": rng.dirichlet([2, 3, 4], shape),
        "cuts": np.sort(rng.standard_normal((*shape, 2)), axis=-1),
        "low": low,
        "high": low + 3 * rng.uniform(size=shape),
        "angle": rng.vonmises(np.pi, 4, shape),
        "zero": group - group.mean(axis=-1, keepdims=True),
        "chol": np.where([True, False, True], np.exp(packed), packed),
        "tau": np.abs(rng.standard_normal(shape)),
        "raw": rng.standard_normal((*shape, 4)),
    }


def labelled(values, model):
    data, coords = {}, {"chain": [0, 1], "draw": np.arange(200)}
    for name, value in values.items():
        own = model.named_vars_to_dims.get(name, [f"{name}_dim_{k}" for k in range(value.ndim - 2)])
        data[name] = (("chain", "draw", *own), value)
        coords |= {dim: list(model.coords[dim]) for dim in own if dim in model.coords}
    return xr.Dataset(data, coords=coords)


@pytest.fixture(scope="module")
def merged(batches):
    return containers.read(az_swiss.merge(batches, model=build_all(), kind="inflated")).groups


def test_no_merged_draw_is_out_of_support(merged):
    posterior = merged["posterior"]
    for name in ("sigma", "tau"):
        assert (posterior[name] > 0).all()
    assert ((posterior["rate"] > 0) & (posterior["rate"] < 1)).all()
    np.testing.assert_allclose(posterior["parts"].sum("colour"), 1.0, atol=1e-12)
    assert (posterior["parts"] > 0).all()
    assert (posterior["cuts"].diff("level") > 0).all()
    assert ((posterior["low"] > 0) & (posterior["low"] < 1)).all()
    assert (
        (posterior["high"] > posterior["low"]) & (posterior["high"] < posterior["low"] + 3)
    ).all()
    assert (abs(posterior["angle"]) <= np.pi).all()
    np.testing.assert_allclose(posterior["zero"].sum("group"), 0.0, atol=1e-10)
    packed = posterior["chol"].values
    assert (packed[..., [0, 2]] > 0).all()


def test_deterministics_follow_from_their_parents(merged):
    p = merged["posterior"]
    close = {"rtol": 1e-10, "atol": 1e-10}
    np.testing.assert_allclose(p["effect"], p["tau"] * p["raw"], **close)
    assert p["effect"].dims == ("chain", "draw", "group")
    np.testing.assert_allclose(p["variance"], p["sigma"] ** 2, **close)
    np.testing.assert_allclose(p["width"], p["high"] - p["low"], **close)
    np.testing.assert_allclose(p["odds"], p["rate"] / (1 - p["rate"]), **close)
    np.testing.assert_allclose(p["cosine"], np.cos(p["angle"]), **close)
    packed = p["chol"].values
    lower = np.zeros((*packed.shape[:2], 2, 2))
    lower[..., [0, 1, 1], [0, 0, 1]] = packed
    np.testing.assert_allclose(p["spread"], lower @ np.swapaxes(lower, -1, -2), **close)
    stds = np.sqrt((lower**2).sum(axis=-1))
    np.testing.assert_allclose(p["chol_stds"], stds, **close)
    first = p["parts"][..., 0] * stds.sum(axis=-1) + p["cuts"][..., 1] + p["zero"][..., 0]
    np.testing.assert_allclose(p["mix"], first, **close)


def test_merged_in_the_models_space(merged, batches):
    """The log of sigma, merged among the other unconstrained variables, has the pooled moments."""
    pooled = merged["swiss_transform"]
    mean = float(pooled["pooled_mean"].sel(parameter="sigma"))
    np.testing.assert_allclose(np.log(merged["posterior"]["sigma"]).mean(), mean, atol=1e-10)
    np.testing.assert_allclose(
        merged["unconstrained_posterior"]["sigma"], np.log(merged["posterior"]["sigma"]), atol=1e-10
    )


def test_angles_around_pi_are_not_torn_apart(merged, batches):
    """Prior draws around pi are split between -pi and pi; their circular spread must survive."""
    spread = lambda angle: float(np.abs(np.exp(1j * angle).mean()))  # noqa: E731
    before = spread(batches[0]["angle"].values)
    # A mean resultant length from 400 draws has a standard error below 1 / sqrt(400) = .05.
    assert abs(spread(merged["posterior"]["angle"].values) - before) < 0.15


def test_subposteriors_with_the_model(batches):
    model = build_all()
    merged = az_swiss.merge(batches, model=model, kind="inflated")
    back = az_swiss.subposteriors(merged, model=model)
    for batch, undone in zip(batches, back.values(), strict=True):
        undone = containers.read(undone).groups["posterior"]
        assert set(undone.data_vars) == set(batch.data_vars)
        for name in batch.data_vars:
            np.testing.assert_allclose(undone[name], batch[name], atol=1e-9)
    with pytest.raises(ValueError, match="merged in the space of a PyMC model: pass that model"):
        az_swiss.subposteriors(merged)


def test_untransformed_variable(batches):
    merged = az_swiss.merge(batches, model=build_all(), transforms={"tau": None}, kind="inflated")
    groups = containers.read(merged).groups
    assert "tau" not in groups["unconstrained_posterior"]
    pooled = groups["swiss_transform"]["pooled_mean"].sel(parameter="tau")
    np.testing.assert_allclose(groups["posterior"]["tau"].mean(), pooled, atol=1e-10)


def test_other_transforms_contradict_the_model(batches):
    with pytest.raises(ValueError, match=r"transforms of tau: with model=, the model's own"):
        az_swiss.merge(batches, model=build_all(), transforms={"tau": "log"})


def test_model_with_a_variable_that_the_batches_lack(batches):
    with pytest.raises(ValueError, match=r'batch 0 \("b0"\) has no variable tau, which the model'):
        az_swiss.merge([batch.drop_vars("tau") for batch in batches], model=build_all())


def test_no_model():
    with pytest.raises(TypeError, match="model must be a PyMC model, got int"):
        az_swiss.merge([{"x": np.random.default_rng(0).normal(size=(2, 50))}], model=3)


def fractionated(batch, **said):
    return batch.assign_attrs(
        swiss_kind="fractionated", swiss_power=1.0, swiss_prior_power=1 / 3, **said
    )


def test_prior_powered_on_its_own_scale_must_be_merged_there(batches):
    said = [fractionated(batch, swiss_untransformed='["tau"]') for batch in batches]
    with pytest.raises(ValueError, match=r'prior of tau was fractionated on its own.*"tau": None'):
        az_swiss.merge(said, model=build_all())
    az_swiss.merge(said, model=build_all(), transforms={"tau": None})


def test_prior_powered_in_the_models_space_warns_when_merged_elsewhere(batches):
    said = [fractionated(batch[["tau", "sigma"]], swiss_transformed='["tau"]') for batch in batches]
    with pytest.warns(MergeWarning, match=r"prior of tau was fractionated in the model's"):
        az_swiss.merge(said)


def test_prior_powered_in_the_models_space_is_not_merged_elsewhere_on_demand(batches):
    said = [fractionated(batch, swiss_transformed='["tau"]') for batch in batches]
    with pytest.raises(
        ValueError, match=r"prior of tau was fractionated in .*untransformed=\['tau"
    ):
        az_swiss.merge(said, model=build_all(), transforms={"tau": None})


def scaled_model(labels, factor=(1.0, 100.0)):
    """A model with bounds and deterministics that differ by label, in any order of labels."""
    factors = dict(zip("ab", factor, strict=True))
    low = {"a": 0.0, "b": 10.0}
    with pm.Model(coords={"k": labels, "part": ["x", "y", "z"]}) as model:
        u = pm.HalfNormal("u", 5, dims="k")
        bounds = [low[label] for label in labels]
        v = pm.Uniform("v", bounds, [one + 1 for one in bounds], dims="k")
        pm.Dirichlet("w", np.ones((2, 3)), dims=("k", "part"))
        pm.Deterministic("scaled", u * [factors[label] for label in labels], dims="k")
        pm.Deterministic("above", v - bounds, dims="k")
    return model


def scaled_batch(seed, factor=(1.0, 100.0)):
    rng = np.random.default_rng(seed)
    u = np.abs(rng.normal(3, 1, size=(2, 200, 2)))
    v = rng.random((2, 200, 2))
    dims = ("chain", "draw", "k")
    data = {
        "u": (dims, u),
        "v": (dims, v + np.array([0, 10])),
        "w": ((*dims, "part"), rng.dirichlet(np.ones(3), size=(2, 200, 2))),
        "scaled": (dims, u * factor),
        "above": (dims, v),
    }
    coords = {"chain": [0, 1], "draw": np.arange(200), "k": ["a", "b"], "part": ["x", "y", "z"]}
    return xr.Dataset(data, coords=coords)


@pytest.mark.parametrize("labels", [["a", "b"], ["b", "a"]])
def test_elements_are_matched_to_the_models_by_label(labels):
    merged = az_swiss.merge(
        [scaled_batch(0), scaled_batch(1)], model=scaled_model(labels), kind="inflated"
    )
    posterior = merged["posterior"]
    ratio = (posterior["scaled"] / posterior["u"]).transpose(..., "k")
    np.testing.assert_allclose(ratio.sel(k="a"), 1.0)
    np.testing.assert_allclose(ratio.sel(k="b"), 100.0)
    assert ((posterior["above"] > 0) & (posterior["above"] < 1)).all()
    np.testing.assert_allclose(
        (posterior["v"] - posterior["above"]).sel(k=["a", "b"]).mean(("chain", "draw")), [0, 10]
    )
    np.testing.assert_allclose(posterior["w"].sum("part"), 1.0)
    same = az_swiss.merge(
        [scaled_batch(0), scaled_batch(1)], model=scaled_model(["a", "b"]), kind="inflated"
    )
    for name in ("u", "v", "w", "scaled", "above"):
        other = same["posterior"][name].sel(k=posterior[name]["k"])
        np.testing.assert_allclose(posterior[name], other, rtol=1e-9)


@pytest.mark.parametrize("labels", [["a", "b"], ["b", "a"]])
def test_undoing_matches_elements_to_the_models_by_label(labels):
    batches = [scaled_batch(0), scaled_batch(1)]
    merged = az_swiss.merge(batches, model=scaled_model(["a", "b"]), kind="inflated")
    back = az_swiss.subposteriors(merged, model=scaled_model(labels))
    for name in ("u", "v", "w"):
        found = back["b1"]["posterior"][name]
        np.testing.assert_allclose(found.sel(k=["a", "b"]), batches[1][name], rtol=1e-8)


def test_dimensions_in_another_order_than_the_models_are_refused():
    batches = [scaled_batch(seed).transpose("chain", "draw", "part", "k") for seed in range(2)]
    with pytest.raises(
        ValueError, match=r"variable w: dimensions \('part', 'k'\), but .*Transpose"
    ):
        az_swiss.merge(batches, model=scaled_model(["a", "b"]))


def test_deterministics_that_hold_constants_of_another_batch_are_left_out():
    batches = [scaled_batch(0), scaled_batch(1, factor=(1.0, 50.0))]
    with pytest.warns(MergeWarning, match=r"left out of the merge: scaled \(deterministic"):
        merged = az_swiss.merge(batches, model=scaled_model(["a", "b"]), kind="inflated")
    assert "scaled" not in merged["posterior"]
    assert "above" in merged["posterior"]


def test_batches_are_drawn_with_the_model_and_without():
    with pm.Model() as model:
        pm.Normal("mu")
        pm.HalfNormal("sigma")
    rng = np.random.default_rng(0)
    batches = [
        {"mu": rng.normal(size=(2, 200)), "sigma": np.abs(rng.normal(size=(2, 200)))}
        for _ in range(2)
    ]
    merged = az_swiss.merge(batches, model=model, kind="inflated")
    here = {"parameter": "sigma", "stage": "sampled"}
    without = az_swiss.plot_batches(merged, backend="none")
    assert text(without, "title", **here) == "sigma (unconstrained)"
    assert_is_density(lines(without, "sampled", **here)[1], np.log(batches[1]["sigma"]))

    drawn = az_swiss.plot_batches(merged, model=model, reference=batches[0], backend="none")
    assert text(drawn, "title", **here) == "sigma"
    assert_is_density(lines(drawn, "sampled", **here)[1], batches[1]["sigma"])

    with pytest.raises(ValueError, match=r"sigma: merged in a model's .*Pass the model as model="):
        az_swiss.plot_batches(merged, reference=batches[0])
    alone = {"var_names": "mu", "reference": batches[0], "backend": "none"}
    assert az_swiss.plot_batches(merged, **alone).viz["plot"].sizes["parameter"] == 1


def test_elements_are_chosen_without_the_model_too():
    batches = [scaled_batch(0), scaled_batch(1)]
    merged = az_swiss.merge(batches, model=scaled_model(["a", "b"]), kind="inflated")
    pc = az_swiss.plot_batches(merged, var_names="u", coords={"k": "b"}, backend="none")
    here = {"parameter": "u[b]", "stage": "sampled"}
    assert text(pc, "title", **here) == "u[b] (unconstrained)"
    assert_is_density(lines(pc, "sampled", **here)[1], np.log(batches[1]["u"].sel(k="b").values))


def shaped(count, labels=True):
    """Return a model whose variable has so many elements, told by a dimension or by its size."""
    with pm.Model(coords={"k": list("abcdef")[:count]} if labels else None) as model:
        own = {"dims": "k"} if labels else {"shape": count}
        slopes = pm.HalfNormal("slopes", 1.0, **own)
        pm.Normal("y", slopes.sum(), 1.0, observed=np.zeros(5))
    return model


@pytest.mark.parametrize("labels", [True, False])
def test_a_model_variable_of_another_shape(labels):
    rng = np.random.default_rng(0)
    dim = "k" if labels else "slopes_dim_0"
    coords = {dim: list("abc") if labels else np.arange(3)}
    batches = {
        label: xr.Dataset(
            {"slopes": (("chain", "draw", dim), rng.gamma(3, size=(2, 80, 3)))}, coords
        )
        for label in ("north", "south")
    }
    shapes = r"variable slopes: shape \(3,\) in the draws, but \(4,\) in the model"
    with pytest.raises(ValueError, match=rf'batch 0 \("north"\), {shapes}'):
        az_swiss.merge(batches, kind="inflated", model=shaped(4, labels))
    right, wrong = shaped(3, labels), shaped(4, labels)
    merged = az_swiss.merge(batches, kind="inflated", model=right)
    with pytest.raises(ValueError, match=shapes):
        az_swiss.subposteriors(merged, model=wrong)
    back = containers.read(az_swiss.subposteriors(merged, model=right)["south"]).groups
    np.testing.assert_allclose(back["posterior"]["slopes"], batches["south"]["slopes"])
    message = r'batch "north", variable slopes: merged with shape \(3,\), but it has \(4,\) in'
    densities = {"north": wrong, "south": right}
    with pytest.raises(ValueError, match=message):
        az_swiss.refine(merged, densities, model=right, progressbar=False)
    with pytest.raises(ValueError, match=message):
        az_swiss.certify(merged, densities, progressbar=False)


def test_a_simplex_for_each_group_in_another_order_than_the_models():
    """Densities follow the labels of groups, also where a transform changes the other dimension."""
    rng = np.random.default_rng(0)
    coords = {"g": ["a", "b"], "k": ["x", "y", "z"]}
    with pm.Model(coords=coords) as model:
        shares = pm.Dirichlet("shares", np.array([[1.0, 2, 3], [4, 5, 6]]), dims=("g", "k"))
        pm.Normal("y", shares[0, 0], 1.0, observed=np.zeros(2))
    dims, order = ("chain", "draw", "g", "k"), {"g": ["b", "a"], "k": ["z", "x", "y"]}
    batches = [
        xr.Dataset({"shares": (dims, rng.dirichlet([5, 6, 7], size=(2, 80, 2)))}, coords).sel(order)
        for _ in range(2)
    ]
    found = []
    for turn in (lambda one: one, lambda one: one.sel(coords)):
        merged = az_swiss.merge([turn(b) for b in batches], kind="inflated", model=model)
        opened = open_merged(merged, "posterior")
        density = ModelDensity(model, space_for_models(opened))
        with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
            found.append(density.log_prior(opened.rows()))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


def test_moments_plan_and_apply_with_the_model(batches, tmp_path):
    model, options = build_all(), {"kind": "inflated", "transforms": {"angle": None}}
    named = {f"s{k}": batch for k, batch in enumerate(batches)}
    _, parts = in_parts(named, tmp_path, {"model": model}, model=model, **options)
    assert_parts_of(parts, az_swiss.merge(named, model=model, **options))


@pytest.mark.parametrize("labels", [["a", "b"], ["b", "a"]])
def test_parts_have_elements_and_deterministics_in_the_order_of_the_merge(labels):
    model = scaled_model(labels)
    named = {"north": scaled_batch(0), "south": scaled_batch(1).isel(k=[1, 0])}
    _, parts = in_parts(named, applied={"model": model}, model=model, kind="inflated")
    assert_parts_of(parts, az_swiss.merge(named, model=model, kind="inflated"))


def test_a_circle_needs_the_draws_of_all_batches(batches):
    with pytest.raises(ValueError, match=r"variable angle: on a circle.*\{\"angle\": None\}"):
        az_swiss.moments(batches[0], model=build_all())


def test_the_model_must_be_passed_to_apply(batches):
    model, none = build_all(), {"angle": None}
    plan = az_swiss.plan([az_swiss.moments(batches[0], model=model, transforms=none)])
    with pytest.raises(ValueError, match="pass that model as model="):
        plan.apply(batches[0])

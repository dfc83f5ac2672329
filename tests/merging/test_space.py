"""Where the merge happens."""

import numpy as np
import pytest
import xarray as xr
from merged_groups import group, groups_of, rows

import arviz_swiss as az_swiss
from arviz_swiss.data import schema
from arviz_swiss.merging.space import (
    MODEL,
    TransformSpace,
    restore_space,
    restore_without_model,
    split_choices,
)

pytestmark = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")


class Shifted:
    def forward(self, values):
        return values + 1.0

    def backward(self, values):
        return values - 1.0


def test_own_transform_object(random_batches):
    """A shift is linear, so the merge is the same through it."""
    batches = random_batches(np.random.default_rng(0))
    through = az_swiss.merge(batches, transforms={"theta": Shifted()}, kind="inflated")
    np.testing.assert_allclose(
        rows(through), rows(az_swiss.merge(batches, kind="inflated")), atol=1e-12
    )


def test_transforms_merge_in_unconstrained_space():
    rng = np.random.default_rng(0)
    logs = [rng.normal(mean, 0.3, size=(2, 200)) for mean in (0.0, 0.2, -0.1)]
    parts = [rng.dirichlet([2, 3, 4], size=(2, 200)) for _ in logs]
    batches = [{"s": np.exp(a), "p": p} for a, p in zip(logs, parts, strict=True)]
    merged = az_swiss.merge(batches, transforms={"s": "log", "p": "simplex"}, kind="inflated")
    ratios = [np.log(p[..., :-1]) - np.log(p[..., -1:]) for p in parts]
    by_hand = az_swiss.merge(
        [{"a": a, "r": r} for a, r in zip(logs, ratios, strict=True)], kind="inflated"
    )
    np.testing.assert_allclose(np.log(group(merged)["s"]), group(by_hand)["a"].values, atol=1e-12)
    np.testing.assert_allclose(group(merged)["p"].sum("p_dim_0"), 1.0)
    unconstrained = group(merged, "unconstrained_posterior")
    assert list(unconstrained.data_vars) == ["s", "p"]
    np.testing.assert_allclose(unconstrained["s"], np.log(group(merged)["s"]))
    assert unconstrained["p"].dims == ("chain", "draw", "p_dim_0_simplex")


def test_no_unconstrained_group_without_transforms(random_batches):
    merged = az_swiss.merge(
        random_batches(np.random.default_rng(0)), transforms={"theta": None}, kind="inflated"
    )
    assert "unconstrained_posterior" not in groups_of(merged)


def test_a_space_and_back():
    rng = np.random.default_rng(0)
    arrays = {"s": rng.gamma(2, size=(2, 9)), "p": rng.dirichlet([2, 3], size=(2, 9))}
    space = TransformSpace({"s": "log", "p": "simplex"}, ["s", "p"])
    for name, array in space.backward(space.forward(arrays)).items():
        np.testing.assert_allclose(array, arrays[name])


def test_the_space_is_restored_from_the_attributes():
    space = TransformSpace({"s": "log", "p": ("interval", 0, 2)}, ["s", "p", "x"])
    attrs = {schema.TRANSFORMS: space.describe(), schema.SPACE: space.name}
    draws = xr.Dataset({name: (("chain", "draw"), np.ones((1, 3))) for name in "spx"}, attrs=attrs)
    arrays = {name: draws[name].values for name in "spx"}
    again = restore_space(draws, ["s", "p", "x"], None, None)
    for name, image in again.forward(arrays).items():
        np.testing.assert_array_equal(image, space.forward(arrays)[name])
    with pytest.raises(ValueError, match="pass that model as model="):
        restore_space(draws.assign_attrs({schema.SPACE: MODEL}), ["s"], None, None)


def test_some_of_a_models_transforms_need_no_model():
    attrs = {schema.SPACE: MODEL, schema.TRANSFORMS: '{"s": "log", "p": "logodds", "o": "ordered"}'}
    space = restore_without_model(attrs, ["s", "p", "o"])
    assert list(space.transforms) == ["s", "p"]
    images = space.forward({"p": np.array([[0.2]]), "s": np.array([[2.0]])})
    np.testing.assert_allclose(images["p"], np.log(0.25))
    np.testing.assert_allclose(images["s"], np.log(2))


def test_choices_are_split_and_checked():
    assert split_choices({"a": "log", "b": None}, ["b"]) == ({"a": "log"}, {"b": None})
    assert split_choices(None, ["b"]) == ({}, {})
    with pytest.raises(TypeError, match="transforms must be a mapping of variable to transform"):
        split_choices(["a"], [])
    with pytest.raises(ValueError, match="transforms name b, but the merged variables are a"):
        TransformSpace({"b": "log"}, ["a"])

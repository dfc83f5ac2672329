"""Which variables belong to one batch alone, along which dimension, and in what space."""

import numpy as np
import pytest
import xarray as xr

from arviz_swiss.data import schema
from arviz_swiss.merging.batches import opened
from arviz_swiss.merging.local import (
    LocalTransforms,
    find_local,
    find_local_space,
    restore_local_space,
)
from arviz_swiss.merging.match import match

RNG = np.random.default_rng(0)


def matched(batches, **attrs):
    with opened([batch.assign_attrs(attrs) for batch in batches], "posterior") as (read, _):
        return match(read)


def batch(groups, labels=None, **others):
    coords = {} if labels is None else {"group": labels}
    draws = {
        "mu": (("chain", "draw"), RNG.standard_normal((2, 50))),
        "effect": (("chain", "draw", "group"), RNG.standard_normal((2, 50, groups))),
        **others,
    }
    return xr.Dataset(draws, coords)


def test_a_variable_is_local_along_the_labels_that_differ():
    assert find_local(matched([batch(2, ["a", "b"]), batch(2, ["c", "d"])])) == {"effect": "group"}
    assert find_local(matched([batch(2, ["a", "b"]), batch(2, ["a", "b"])])) == {}


def test_default_labels_are_local_where_the_sampling_recorded_it():
    parts = matched([batch(2), batch(2)], **{schema.LOCAL: "effect"})
    assert parts.local == ["effect"]
    assert find_local(parts) == {"effect": "group"}


def test_deterministics_go_along_by_dimension_or_length():
    def with_sums(labels):
        size = len(labels)
        sums = RNG.standard_normal((2, 50, size))
        return batch(
            size,
            labels,
            along=(("chain", "draw", "group"), sums),
            alike=(("chain", "draw", "other"), sums),
            alone=(("chain", "draw", "third"), RNG.standard_normal((2, 50, 7))),
        )

    parts = matched(
        [with_sums(["a", "b"]), with_sums(["c", "d", "e"])],
        **{schema.SAMPLED_VARIABLES: ["mu", "effect"]},
    )
    assert parts.deterministic == ["along", "alike", "alone"]
    assert find_local(parts) == {"effect": "group", "along": "group", "alike": "other"}


def test_transforms_of_local_variables_and_back():
    space = LocalTransforms({"s": "log"})
    arrays = {"s": np.exp(RNG.standard_normal((2, 5, 3))), "t": np.ones((2, 5))}
    images = space.forward(arrays)
    np.testing.assert_allclose(images["s"], np.log(arrays["s"]))
    assert list(images) == ["s"]
    np.testing.assert_allclose(space.backward(images, {})["s"], arrays["s"])


def test_the_space_is_restored_from_what_is_recorded():
    parts = matched([batch(2, ["a", "b"]), batch(2, ["c", "d"])])
    space = find_local_space(parts, find_local(parts), {"effect": ("interval", -9, 9)}, None)
    attrs = {schema.SPACE: space.name, schema.TRANSFORMS: space.describe(), schema.THROUGH: "{}"}
    again = restore_local_space(xr.Dataset(attrs=attrs), xr.Dataset(), None, None)
    arrays = {"effect": RNG.uniform(-8, 8, (2, 5, 2))}
    np.testing.assert_allclose(again.forward(arrays)["effect"], space.forward(arrays)["effect"])
    attrs[schema.SPACE] = "model"
    with pytest.raises(ValueError, match="pass that model as model="):
        restore_local_space(xr.Dataset(attrs=attrs), xr.Dataset(), None, None)

"""Vectors of a model's unconstrained variables: round trips, and the labels of a merge."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import arviz_swiss as az_swiss
from arviz_swiss.data import containers
from arviz_swiss.pymc.coordinates import Coordinates

pytestmark = pytest.mark.usefixtures("uncompiled")


def many():
    """Return a model with variables of all kinds of shapes and transforms."""
    coords = {"feature": ["a", "b", "c"], "group": [10, 20], "kind": list("xyz")}
    with pm.Model(coords=coords) as model:
        level = pm.Normal("level")
        scale = pm.HalfNormal("scale")
        pm.Uniform("bounded", -1, 3, dims="group")
        pm.Normal("slopes", 0, 1, dims=("group", "feature"))
        pm.Dirichlet("shares", np.ones(3), dims="kind")
        pm.Dirichlet("rows", np.ones((2, 3)), dims=("group", "kind"))
        pm.Normal(
            "cuts",
            shape=3,
            transform=pm.distributions.transforms.ordered,
            initval=np.array([-1.0, 0.0, 1.0]),
        )
        pm.ZeroSumNormal("sums", dims="feature")
        pm.LKJCholeskyCov(
            "chol", n=2, eta=1.0, sd_dist=pm.Exponential.dist(1.0), compute_corr=False
        )
        pm.Normal("y", level, scale, observed=[0.2, 0.7])
    return model


def test_there_and_back():
    model = many()
    coordinates = Coordinates(model)
    draws = 0.5 * np.random.default_rng(0).standard_normal((2, 7, coordinates.size))
    dataset = coordinates.to_dataset(draws)
    np.testing.assert_allclose(coordinates.from_dataset(dataset), draws, atol=1e-8)
    assert set(dataset.data_vars) == {rv.name for rv in model.free_RVs}
    assert dataset["slopes"].dims == ("chain", "draw", "group", "feature")
    assert dataset["feature"].values.tolist() == ["a", "b", "c"]
    assert dataset["group"].values.tolist() == [10, 20]
    assert (dataset.sizes["chain"], dataset.sizes["draw"]) == (2, 7)
    assert (dataset["scale"] > 0).all()
    assert ((dataset["bounded"] > -1) & (dataset["bounded"] < 3)).all()
    np.testing.assert_allclose(dataset["rows"].sum("kind"), 1.0)
    np.testing.assert_allclose(dataset["sums"].sum("feature"), 0.0, atol=1e-12)
    assert (np.diff(dataset["cuts"].values) > 0).all()
    transposed = dataset.transpose(..., "feature", "group", "draw", "chain")
    np.testing.assert_allclose(coordinates.from_dataset(transposed), draws, atol=1e-8)


def test_the_start_is_that_of_pymc():
    model = many()
    coordinates, point = Coordinates(model), model.initial_point(0)
    expected = [np.ravel(point[model.rvs_to_values[rv].name]) for rv in model.free_RVs]
    np.testing.assert_array_equal(coordinates.start, np.concatenate(expected))
    assert coordinates.start.shape == (coordinates.size,)
    assert len(set(coordinates.parameters)) == coordinates.size


def test_initial_values_from_the_prior_are_the_same_each_time():
    def start():
        with pm.Model() as model:
            pm.Normal("y", pm.Normal("mu", initval="prior"), observed=[1.0])
        return Coordinates(model).start

    np.testing.assert_array_equal(start(), start())


def test_labels_are_those_of_the_merge():
    model = many()
    coordinates = Coordinates(model)
    rng = np.random.default_rng(1)
    batches = [
        containers.build(
            {"posterior": coordinates.to_dataset(rng.standard_normal((2, 1000, coordinates.size)))}
        )
        for _ in range(2)
    ]
    merged = az_swiss.merge(batches, model=model, kind="inflated")
    labels = merged["swiss_transform"]["parameter"].values.tolist()
    assert list(coordinates.parameters) == labels


def test_draws_of_another_order_are_read_by_label():
    """Samplers keep the model's order; what was merged and selected may not."""
    coordinates = Coordinates(many())
    draws = np.random.default_rng(2).standard_normal((1, 4, coordinates.size))
    dataset: xr.Dataset = coordinates.to_dataset(draws)
    moved = dataset.sel(feature=["c", "a", "b"])
    np.testing.assert_allclose(coordinates.from_dataset(moved), draws, atol=1e-8)

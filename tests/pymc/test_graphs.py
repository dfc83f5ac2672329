"""Graphs of a model, evaluated at many draws."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from arviz_swiss.pymc import ModelSpace, graphs

pytestmark = pytest.mark.usefixtures("uncompiled")


def test_chunks_give_the_same_as_all_at_once(monkeypatch):
    with pm.Model() as model:
        tau = pm.HalfCauchy("tau", 1.0)
        z = pm.Normal("z", shape=4)
        pm.Deterministic("theta", 1.0 + tau * z)
        pm.Dirichlet("x", np.ones((2, 3)))
        pm.Deterministic("constant", pt.as_tensor(np.arange(3.0)))
    drawn = pm.draw(model.free_RVs, draws=100, random_seed=4)
    draws = {rv.name: array for rv, array in zip(model.free_RVs, drawn, strict=True)}
    space = ModelSpace(model)
    whole = space.forward(draws) | space.deterministics(draws)
    monkeypatch.setattr(graphs, "CHUNK_ELEMENTS", 170)
    parts = space.forward(draws) | space.deterministics(draws)
    for name, array in whole.items():
        np.testing.assert_array_equal(parts[name], array)


def test_a_transform_that_changes_the_rank():
    dims = graphs.image_dims(
        ("group", "a", "b"), (5, 3, 3), (5, 3), type("T", (), {"name": "cholesky_corr"})
    )
    assert dims == ("group", "b_cholesky_corr")


@pytest.mark.parametrize(
    ("draws", "message"),
    [
        ({"z": np.ones((2, 4))}, r"\['tau'\] are not among the draws, which have \['z'\]"),
        ({"tau": np.ones(3), "z": np.ones((2, 4))}, r"\{'tau': \(3,\), 'z': \(2,\)\}"),
        ({"tau": np.ones(0), "z": np.ones((0, 4))}, r"no draws.*\(0,\)"),
    ],
)
def test_bad_draws_are_named(draws, message):
    with pm.Model() as model:
        pm.HalfCauchy("tau", 1.0)
        pm.Normal("z", shape=4)
    with pytest.raises(ValueError, match=message):
        ModelSpace(model).forward(draws)

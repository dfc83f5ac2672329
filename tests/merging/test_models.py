"""The door to PyMC: what it answers without a model, and that it imports nothing then."""

import subprocess
import sys

import pytest

from arviz_swiss.merging import models


def test_without_a_model_nothing_is_known():
    assert models.free_variables(None) is None
    assert models.coords_of(None) == {}
    assert not models.depending(None, ["x"])


def test_what_is_no_model():
    assert not models.is_model({"x": 1})
    thing = object()
    assert models.plain_model(thing, "model") is thing
    with pytest.raises(TypeError, match="model must be a PyMC model, got dict"):
        models.free_variables({})


def test_pymc_is_not_imported_without_a_model():
    code = (
        "import sys; from arviz_swiss.merging import models; models.is_model(1); "
        "models.plain_model(1, 'model'); models.depending(None, []); "
        "sys.exit('pymc' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_models_variables_and_coords():
    pm = pytest.importorskip("pymc")
    with pm.Model(coords={"term": ["a", "b"]}) as model:
        scale = pm.HalfNormal("scale")
        beta = pm.Normal("beta", dims="term")
        pm.Deterministic("scaled", scale * beta, dims="term")
        pm.Normal("y", beta, observed=[1.0, 2.0])
    assert models.is_model(model)
    assert models.free_variables(model) == ["scale", "beta"]
    assert list(models.coords_of(model)["term"]) == ["a", "b"]
    assert list(models.observed_values(model)["y"]) == [1.0, 2.0]
    assert list(models.depending(model, ["beta"])) == ["scaled"]
    space = models.model_space(model, ["scale", "beta"], ())
    assert list(space.transforms) == ["scale"]
    assert list(space.deterministic_names) == ["scaled"]
    assert not models.model_space(model, ["scale", "beta"], ["scale"]).transforms

"""Models are told apart by what they compute, and the same models are the same everywhere."""

import json
import os
import subprocess
import sys

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from batch_models import DATA, build, hierarchy, mean_only, with_prior
from pytensor.graph import Apply, Op

from arviz_swiss.pymc.identity import identify

PARTS = ("density", "structure", "deterministics")


def differing(first, second):
    before, now = identify([first]), identify([second])
    assert None not in {*before.values(), *now.values()}
    return [part for part in PARTS if before[part] != now[part]]


def regression(prior=2.0, noise=pm.Normal, offset=0.0, names=("a", "b"), square=2, **options):
    with pm.Model(coords={"term": names}) as model:
        beta = pm.Normal("beta", 0, 1, dims="term")
        sigma = pm.HalfNormal("sigma", prior, **options)
        pm.Deterministic("variance", sigma**square)
        noise("y", beta[0] + beta[1] * DATA["x"].to_numpy() + offset, sigma, observed=DATA["y"])
    return model


def with_potential():
    model = regression()
    with model:
        pm.Potential("extra", -(model["sigma"] ** 2))
    return model


CHANGES = {
    "a prior": (lambda: regression(prior=3.0), ["density"]),
    "a likelihood": (lambda: regression(noise=pm.Laplace), ["density"]),
    "data in a closure": (lambda: regression(offset=DATA["x"].to_numpy()), ["density"]),
    "one entry of it": (lambda: regression(offset=np.eye(50)[7]), ["density"]),
    "a Potential": (with_potential, ["density"]),
    "coordinates": (lambda: regression(names=("a", "c")), ["structure"]),
    "a deterministic": (lambda: regression(square=3), ["deterministics"]),
    "a transform": (lambda: regression(default_transform=None), ["density", "structure"]),
}


@pytest.mark.parametrize(("changed", "parts"), CHANGES.values(), ids=CHANGES)
def test_what_changed_is_told(changed, parts):
    told = differing(regression(), changed())
    # on its own scale the deterministic is computed of another value
    assert [part for part in told if part != "deterministics" or part in parts] == parts


def test_the_same_models_made_otherwise_are_the_same():
    assert differing(regression(), regression()) == []
    assert differing(mean_only(DATA), with_prior(10.0)(DATA)) == []
    assert differing(hierarchy(DATA), hierarchy(DATA.copy())) == []


def contrasts(first="a", total=pt.sum):
    """Deviations from the mean, whose sum is zero but for rounding."""
    with pm.Model(coords={"site": [first, *range(39)]}) as model:
        level = pm.Normal("level", 0, 1, shape=40)
        pm.Deterministic("contrast", level - total(level) / 40, dims="site")
        pm.Normal("y", level[0], 1, observed=[1.0, 2.0])
    return model


def test_the_last_digit_of_terms_that_cancel_says_nothing():
    assert differing(contrasts(), contrasts(total=lambda x: pt.cumsum(x)[-1])) == []


def test_labels_of_a_deterministic_are_told():
    assert differing(contrasts(), contrasts(first="b")) == ["deterministics"]


def test_every_model_counts():
    models = [mean_only(DATA), with_prior(2.0)(DATA)]
    assert identify(models) != identify(models[:1]) != identify(models[::-1])


SCRIPT = """
import json, sys
sys.path[:0] = {path!r}
import warnings
warnings.simplefilter("ignore")
from batch_models import DATA, build, hierarchy
from arviz_swiss.pymc.identity import identify
print(json.dumps(identify([build(DATA), hierarchy(DATA)])))
"""


def test_another_process_tells_the_same():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(path=sys.path)],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == identify([build(DATA), hierarchy(DATA)])


def test_nothing_is_compiled(monkeypatch):
    def compiler(*arguments, **options):
        raise AssertionError("a compiler was called")

    for name in ("subprocess.Popen", "numba.core.compiler.compile_extra"):
        monkeypatch.setattr(name, compiler)
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(3))
        pm.LKJCholeskyCov("chol", eta=2.0, n=3, sd_dist=pm.Exponential.dist(1.0))
        pm.Mixture("y", weights, pm.Normal.dist([0, 1, 2], 1.0), observed=DATA["y"])
    assert None not in identify([model]).values()


def test_what_is_drawn_at_random_is_left_out():
    def noisy():
        with pm.Model() as model:
            mu = pm.Normal("mu")
            pm.Deterministic("noise", mu + pm.Normal.dist())
            pm.Normal("y", mu, observed=[1.0, 2.0])
        return model

    assert differing(noisy(), noisy()) == []


class Refusing(Op):
    """An operation that only some backend can run."""

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        raise NotImplementedError


def test_what_cannot_be_evaluated_is_not_told():
    with pm.Model() as model:
        pm.Normal("y", Refusing()(pm.Normal("mu")), 1, observed=0.0)
    told = identify([model])
    assert told["density"] is None
    assert told["structure"] is not None

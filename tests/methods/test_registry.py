import re
from pathlib import Path

import numpy as np
import pytest
from batch_kinds import theta

import arviz_swiss as az_swiss
from arviz_swiss import methods
from arviz_swiss.base.linalg import AffineMap

CONTRIBUTING = Path(__file__).parents[2] / "docs" / "contributing.md"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"method": "mean"}, ValueError, "unknown method 'mean'. Valid methods are \"swiss\""),
        (
            {"method": "semiparametric", "bandwith": 2},
            TypeError,
            "no option bandwith. Its options are: bandwidth, standardise, sweeps;",
        ),
        ({"bandwidth": 2}, TypeError, '"swiss" has no option bandwidth. Its options are: none'),
        ({"method": "semiparametric", "bandwidth": 0}, ValueError, "bandwidth must be a positive"),
        ({"method": "nonparametric", "bandwidth": -1}, ValueError, "bandwidth must be a positive"),
        ({"method": "median", "bandwidth": 0}, ValueError, "bandwidth must be a positive"),
        (
            {"method": "semiparametric", "sweeps": 0},
            ValueError,
            "sweeps must be an integer of at least 1",
        ),
        (
            {"method": "median", "landmarks": 1},
            ValueError,
            "landmarks must be an integer of at least 2",
        ),
    ],
)
def test_bad_options_are_named(arguments, error, message, random_batches):
    with pytest.raises(error, match=message):
        az_swiss.merge(random_batches(np.random.default_rng(21), 2), kind="inflated", **arguments)


def test_a_method_is_one_function_and_one_line(random_batches, monkeypatch):
    monkeypatch.setattr(methods.registry, "METHODS", dict(methods.METHODS))

    @methods.register("shifted", expects="inflated")
    def shifted(given, *, by=1.0):
        size = given.pooled.mean.size
        return [AffineMap(np.eye(size), m.mean, m.mean + by) for m in given.moments]

    batches = random_batches(np.random.default_rng(22), 2)
    merged = az_swiss.merge(batches, method="shifted", by=2.0, kind="inflated")
    np.testing.assert_allclose(theta(merged)[:2], batches[0]["theta"] + 2, atol=1e-12)


def test_the_example_for_contributors_is_a_method(random_batches, monkeypatch):
    monkeypatch.setattr(methods.registry, "METHODS", dict(methods.METHODS))
    text = CONTRIBUTING.read_text()
    (example,) = re.findall(
        r"^```python\n(.*?@register.*?)^```", text, flags=re.MULTILINE | re.DOTALL
    )
    exec(example, {})
    batches = random_batches(np.random.default_rng(23), 3)
    moved, swiss = (
        theta(az_swiss.merge(batches, method=method, kind="inflated"))
        for method in ("shift_only", "swiss")
    )
    centred = np.concatenate([b["theta"] - b["theta"].mean(axis=(0, 1)) for b in batches])
    np.testing.assert_allclose(moved, centred + swiss.mean(axis=(0, 1)), atol=1e-12)


def test_methods_are_listed_by_family_swiss_first():
    families = [method.combine.__module__.rpartition(".")[2] for method in methods.METHODS.values()]
    assert list(dict.fromkeys(families)) == ["moments", "averages", "kernel", "density_product"]
    assert next(iter(methods.METHODS)) == "swiss"

"""Where the merge happens."""

import numpy as np
import pytest
from merged_groups import group, groups_of, rows

import arviz_swiss as az_swiss

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

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arviz_swiss as az_swiss
from arviz_swiss.data import containers

pytestmark = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")


def posterior(container):
    return containers.read(container).groups["posterior"]


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 6))
def test_subposteriors_undo_merge(seed, batches, size):
    rng = np.random.default_rng(seed)
    scale = np.exp(rng.uniform(-9, 9, size))
    idatas = {
        f"n{k}": {
            "x": rng.standard_normal((2, 40, size)) @ rng.standard_normal((size, size)) * scale,
            "y": rng.standard_normal((2, 40)),
        }
        for k in range(batches)
    }
    back = az_swiss.subposteriors(az_swiss.merge(idatas, kind="inflated"))
    assert list(back) == list(idatas)
    for label, idata in idatas.items():
        np.testing.assert_allclose(
            posterior(back[label])["x"] / scale, idata["x"] / scale, atol=1e-9
        )
        np.testing.assert_allclose(posterior(back[label])["y"], idata["y"], atol=1e-9)


def test_undo_with_transforms_and_constants(to_container):
    rng = np.random.default_rng(0)
    idatas = [
        to_container(
            {
                "s": rng.gamma(5, size=(2, 100)),
                "p": rng.dirichlet([3, 4, 5], size=(2, 100)),
                "fixed": np.full((2, 100), 3.0),
                "half": np.stack([rng.standard_normal((2, 100)), np.ones((2, 100))], axis=-1),
            },
            sample_stats={"diverging": np.zeros((2, 100))},
        )
        for _ in range(4)
    ]
    merged = az_swiss.merge(idatas, transforms={"s": "log", "p": "simplex"}, kind="inflated")
    back = az_swiss.subposteriors(merged)
    for idata, undone in zip(idatas, back.values(), strict=True):
        assert type(undone) is type(idata)
        assert "sample_stats" in containers.read(undone).groups
        for name in ("s", "p", "fixed", "half"):
            np.testing.assert_allclose(posterior(undone)[name], posterior(idata)[name], atol=1e-9)


def test_undone_batches_merge_again(random_batches):
    """The attributes carry the powers, so that merge needs no argument."""
    batches = random_batches(np.random.default_rng(0))
    merged = az_swiss.merge(batches, powers=[2, 4, 8, 8])
    again = az_swiss.merge(az_swiss.subposteriors(merged))
    np.testing.assert_allclose(posterior(again)["theta"], posterior(merged)["theta"], atol=1e-9)


class Cube:
    def forward(self, values):
        return np.cbrt(values)

    def backward(self, values):
        return values**3


def test_own_transforms_must_be_given_again(random_batches):
    batches = random_batches(np.random.default_rng(0))
    merged = az_swiss.merge(batches, transforms={"theta": Cube()}, kind="inflated")
    with pytest.raises(ValueError, match="variable theta was merged with your own transform Cube"):
        az_swiss.subposteriors(merged)
    back = az_swiss.subposteriors(merged, transforms={"theta": Cube()})
    np.testing.assert_allclose(posterior(back["b2"])["theta"], batches[2]["theta"], atol=1e-9)


def test_not_a_merged_object(to_container):
    with pytest.raises(
        ValueError, match="not a merged object: no group swiss_transform, found posterior"
    ):
        az_swiss.subposteriors(to_container({"x": np.zeros((2, 10))}))

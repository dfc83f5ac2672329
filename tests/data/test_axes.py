"""Arrays without a chain axis, and names that no file can hold."""

import numpy as np
import pytest
import xarray as xr

import arviz_swiss as az_swiss
from arviz_swiss.data import containers


def columns(rng, shape=(1000, 3)):
    """Draws by parameters, as most samplers outside ArviZ return them."""
    return rng.standard_normal(shape) + np.arange(shape[-1])


@pytest.mark.parametrize("shape", [(1000, 3), (400, 2), (400, 20), (1000,), (1000, 2, 2), ()])
def test_draws_without_a_chain_axis_are_refused(shape):
    rng = np.random.default_rng(0)
    batches = {label: {"beta": rng.standard_normal(shape)} for label in ("north", "south")}
    with pytest.raises(ValueError, match=r'batch 0 \("north"\).*variable beta: shape .*x\[None\]'):
        az_swiss.merge(batches, kind="inflated")
    bare = [rng.standard_normal(shape) for _ in range(2)]
    with pytest.raises(ValueError, match=r"batch 0 .*shape .*x\[None\]"):
        az_swiss.merge(bare, kind="inflated")
    grouped = [{"posterior": {"beta": draws}} for draws in bare]
    with pytest.raises(ValueError, match=r"batch 0 .*variable beta: shape .*x\[None\]"):
        az_swiss.merge(grouped, kind="inflated")


def test_a_chain_axis_is_the_remedy():
    rng = np.random.default_rng(1)
    draws = [columns(rng) for _ in range(3)]
    merged = az_swiss.merge([{"beta": one[None]} for one in draws], kind="inflated")
    posterior = merged["posterior"]["beta"]
    assert posterior.shape == (3, 1000, 3)
    precisions = [np.linalg.inv(np.cov(one.T)) for one in draws]
    covariance = np.linalg.inv(np.mean(precisions, axis=0))
    mean = covariance @ np.mean(
        [p @ one.mean(axis=0) for p, one in zip(precisions, draws, strict=True)], axis=0
    )
    np.testing.assert_allclose(posterior.mean(("chain", "draw")), mean, rtol=1e-10)
    for chain in posterior.values:
        np.testing.assert_allclose(np.cov(chain.T), covariance, rtol=1e-9, atol=1e-12)


def test_references_need_a_chain_axis_too():
    rng = np.random.default_rng(2)
    data = {"beta": rng.standard_normal((2, 500, 3))}
    with pytest.raises(ValueError, match=r"reference .*variable beta: shape \(1000, 3\)"):
        az_swiss.discrepancy(data, {"beta": columns(rng)})
    with pytest.raises(ValueError, match=r"data .*variable beta: shape \(1000, 3\)"):
        az_swiss.data.flatten({"beta": columns(rng)})


def test_more_chains_than_draws_can_be_said_by_names():
    rng = np.random.default_rng(3)
    batches = [
        xr.Dataset({"beta": (("chain", "draw", "term"), rng.standard_normal((100, 20, 2)))})
        for _ in range(3)
    ]
    assert az_swiss.merge(batches, kind="inflated")["posterior"].sizes["chain"] == 300


def test_containers_with_parameters_for_draws_are_refused(to_container):
    """ArviZ makes such containers, with a warning of its own."""
    rng = np.random.default_rng(4)
    batches = [
        to_container(xr.Dataset({"beta": (("chain", "draw"), columns(rng))})) for _ in range(2)
    ]
    with pytest.raises(ValueError, match=r"batch 0 has 1000 chains of 3 draws.*x\[None\]"):
        az_swiss.merge(batches, kind="inflated")


def test_names_that_no_file_can_hold_are_refused():
    rng = np.random.default_rng(5)
    arrays = [{"a/b": rng.standard_normal((2, 100)), "c": rng.standard_normal((2, 100))}] * 2
    message = r'batch 0.*variable a/b: .*cannot hold a name with "/".*"a_b"'
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(arrays, kind="inflated")
    datasets = [
        xr.Dataset({n: (("chain", "draw"), rng.standard_normal((2, 100))) for n in ("a/b", "c")})
        for _ in range(2)
    ]
    if containers.native_kind() == "DataTree":
        with pytest.raises(ValueError, match=message):
            az_swiss.merge(datasets, kind="inflated")
    else:
        merged = az_swiss.merge(datasets, kind="inflated")
        assert set(merged["posterior"].data_vars) == {"a/b", "c"}
    renamed = az_swiss.merge([one.rename({"a/b": "a_b"}) for one in datasets], kind="inflated")
    left_out = az_swiss.merge(datasets, kind="inflated", var_names="~a/b")
    assert set(renamed["posterior"].data_vars) == {"a_b", "c"}
    assert set(left_out["posterior"].data_vars) == {"c"}

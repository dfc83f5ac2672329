"""Too few draws, dependent parameters: the errors' own advice leads to the right posterior."""

import re

import numpy as np
import pytest

import arviz_swiss as az_swiss

COUNT, ROWS = 4, 600


@pytest.fixture
def batches(exact_draws, random_covariance):
    """Four Gaussian batches of 400 draws of mu and beta, with exact moments."""
    rng = np.random.default_rng(0)
    moments = [(0.3 * rng.standard_normal(3), random_covariance(rng, 3)) for _ in range(COUNT)]
    drawn = [exact_draws(rng, mean, covariance) for mean, covariance in moments]
    return moments, [{"mu": one[..., 0], "beta": one[..., 1:]} for one in drawn]


def check_pooled(merged, moments):
    precisions = [np.linalg.inv(covariance) for _, covariance in moments]
    covariance = np.linalg.inv(np.mean(precisions, axis=0))
    naturals = [p @ mean for p, (mean, _) in zip(precisions, moments, strict=True)]
    posterior = merged["posterior"]
    assert set(posterior.data_vars) == {"mu", "beta"}
    draws = np.concatenate([posterior["mu"].values[..., None], posterior["beta"].values], axis=-1)
    for batch in np.split(draws, COUNT):
        rows = batch.reshape(-1, 3)
        np.testing.assert_allclose(rows.mean(axis=0), covariance @ np.mean(naturals, axis=0))
        np.testing.assert_allclose(np.cov(rows.T), covariance, rtol=1e-9, atol=1e-12)


def advised(error):
    """Return the var_names that an error advises."""
    return re.search(r'var_names="(~\w+)"', str(error))[1]


def with_chances(batch):
    """Add what Bambi adds: the chance of success in every row."""
    design = np.random.default_rng(1).standard_normal((ROWS, 2))
    logits = batch["mu"][..., None] + batch["beta"] @ design.T
    return {**batch, "p": 1 / (1 + np.exp(-logits))}


def test_more_parameters_than_draws(batches):
    moments, drawn = batches
    larger = [with_chances(batch) for batch in drawn]
    message = r'batch 0 \("b0"\): 400 draws for 603 parameters, 600 of p: .*If p is deterministic'
    with pytest.raises(ValueError, match=message) as error:
        az_swiss.merge(larger, kind="inflated")
    assert "shrunk" not in str(error.value)
    merged = az_swiss.merge(larger, kind="inflated", var_names=advised(error.value))
    check_pooled(merged, moments)


def test_several_large_variables_are_named_largest_first(batches):
    rng = np.random.default_rng(2)
    more = {"q": 300, "r": 400, "s": 5}
    larger = [
        {**batch, **{name: rng.standard_normal((2, 200, size)) for name, size in more.items()}}
        for batch in batches[1]
    ]
    message = r"708 parameters, 400 of r and 300 of q: .*If one of r, q is deterministic"
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(larger, kind="inflated")


def test_dependent_parameters(batches):
    moments, drawn = batches
    larger = [{**batch, "total": batch["beta"].sum(axis=-1)} for batch in drawn]
    message = r"beta\[0\], beta\[1\], total are linearly dependent.*If one of beta, total is determ"
    with pytest.raises(ValueError, match=message) as error:
        az_swiss.merge(larger, kind="inflated")
    assert "shrunk" not in str(error.value)
    merged = az_swiss.merge(larger, kind="inflated", var_names=advised(error.value))
    check_pooled(merged, moments)


def test_parts_that_sum_to_one():
    rng = np.random.default_rng(3)
    parts = [{"w": rng.dirichlet([30, 50, 20], size=(2, 500))} for _ in range(3)]
    with pytest.raises(ValueError, match=r'sum to one, merge them with transforms=.*"simplex"'):
        az_swiss.merge(parts, kind="inflated")
    merged = az_swiss.merge(parts, kind="inflated", transforms={"w": "simplex"})
    np.testing.assert_allclose(merged["posterior"]["w"].sum("w_dim_0"), 1.0)


def correlated(rng, draws, size):
    factor = np.linalg.cholesky(0.1 * np.eye(size) + 0.9)
    return {"x": rng.standard_normal((2, draws // 2, size)) @ factor.T}


def test_shrinking_is_no_way_around_few_draws():
    """Its warning is right: the sds, which are one, come out far too small."""
    rng = np.random.default_rng(4)
    few = [correlated(rng, 100, 60) for _ in range(10)]
    with pytest.warns(
        az_swiss.MergeWarning, match=r'too small: covariance="shrunk".*var_names, or'
    ):
        merged = az_swiss.merge(few, kind="inflated", covariance="shrunk")
    variances = np.diag(merged["swiss_transform"]["pooled_covariance"])
    assert np.sqrt(variances).max() < 0.9


def test_draws_that_are_enough_need_no_warning():
    rng = np.random.default_rng(5)
    size = 10
    # twice what the warning asks for: its effective size is an estimate
    many = [correlated(rng, 2 * 25 * (size + 2), size) for _ in range(10)]
    merged = az_swiss.merge(many, kind="inflated", covariance="shrunk")
    sds = np.sqrt(np.diag(merged["swiss_transform"]["pooled_covariance"]))
    # the bias that is warned of, and four Monte Carlo sds of an sd from 10 x 600 draws
    np.testing.assert_allclose(sds, 1.0, atol=0.02 + 4 / np.sqrt(2 * 6000))


@pytest.mark.parametrize("damage", ["noise", "ones"])
def test_a_file_damaged_in_the_middle_is_named(damage, to_container, tmp_path):
    rng = np.random.default_rng(6)
    paths = [tmp_path / f"b{position}.nc" for position in range(3)]
    for path in paths:
        to_container({"x": rng.standard_normal((2, 500, 4))}).to_netcdf(path)
    content = bytearray(paths[1].read_bytes())
    middle = slice(len(content) // 2 - 400, len(content) // 2 + 400)
    content[middle] = rng.bytes(800) if damage == "noise" else b"\xff" * 800
    paths[1].write_bytes(bytes(content))
    message = r'batch 1 \("b1"\), file .*b1\.nc.*(could not be read|variable x.*it is damaged)'
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(paths, kind="inflated")

"""Moments by every estimator; errors whose own advice leads to the right posterior."""

import re

import numpy as np
import pytest
from merged_groups import group, rows

import arviz_swiss as az_swiss
from arviz_swiss.merging.estimate import glance

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


def test_a_glance_sees_the_free_parameters_of_all_arrays():
    rng = np.random.default_rng(5)
    arrays = [rng.exponential(size=(2, 1000)), rng.standard_normal((2, 1000, 2))]
    seen = glance(arrays, np.array([0, 2]))
    assert seen.skewness[0] > 1 > abs(seen.skewness[1])
    assert (seen.rhat < 1.2).all()
    short = glance([rng.standard_normal((3, 20))], np.array([0]))
    assert np.isnan(short.rhat).all()


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_shrunk_is_for_the_prior_too():
    rng = np.random.default_rng(0)
    prior = {"x": rng.normal(size=(1, 20, 30))}
    batches = [{"x": rng.normal(0, 0.1, size=(4, 500, 30))} for _ in range(2)]
    merged = az_swiss.merge(batches, kind="full_prior", prior=prior, covariance="shrunk")
    assert np.isfinite(group(merged)["x"]).all()


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_constants_pass_through_unchanged(random_batches):
    batches = random_batches(np.random.default_rng(0))
    padded = [
        {"theta": np.insert(batch["theta"], 1, 0.1, axis=-1), "one": np.ones((2, 200))}
        for batch in batches
    ]
    merged = az_swiss.merge(padded, kind="inflated")
    values = group(merged)["theta"].values
    assert (values[..., 1] == 0.1).all()
    assert (group(merged)["one"] == 1.0).all()
    np.testing.assert_allclose(
        values[..., [0, 2, 3]].reshape(-1, 3),
        rows(az_swiss.merge(batches, kind="inflated")),
        atol=1e-12,
    )
    labels = group(merged, "swiss_transform")["parameter"].values.tolist()
    assert labels == ["theta[0]", "theta[2]", "theta[3]"]


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_corrected_covariance_removes_the_bias():
    """30 parameters and 200 independent draws: the plain merge loses a tenth of the sds.

    Standard errors: the mean over 30 sds from 40 batches has a relative error below
    1 / sqrt(2 * 40 * 200) = 0.8%, four of them are 3.2%.
    """
    rng = np.random.default_rng(0)
    batches = [{"theta": rng.standard_normal((2, 100, 30))} for _ in range(40)]
    plain = group(az_swiss.merge(batches, kind="inflated"), "swiss_transform")[
        "pooled_covariance"
    ].values
    corrected = az_swiss.merge(batches, covariance="corrected", kind="inflated")
    better = group(corrected, "swiss_transform")["pooled_covariance"].values
    assert np.sqrt(np.diag(plain)).mean() < 0.95
    assert abs(np.sqrt(np.diag(better)).mean() - 1) < 0.032
    values = rows(corrected)[:200]
    np.testing.assert_allclose(np.cov(values.T), better, atol=1e-10)


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_shrunk_covariance_with_fewer_draws_than_parameters():
    rng = np.random.default_rng(0)
    batches = [{"theta": rng.standard_normal((1, 30, 50))} for _ in range(4)]
    merged = az_swiss.merge(batches, covariance="shrunk", kind="inflated")
    sds = np.sqrt(np.diag(group(merged, "swiss_transform")["pooled_covariance"]))
    # A sample sd of 30 draws is off by 1 / sqrt(60) = 13%; pooling four of them halves that.
    np.testing.assert_allclose(sds, 1.0, atol=4 * 0.065)


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_diagonal_covariance_maps_each_parameter_alone(random_batches):
    batches = random_batches(np.random.default_rng(0))
    merged = az_swiss.merge(batches, covariance="diagonal", kind="inflated")
    alone = az_swiss.merge([{"x": batch["theta"][..., 1]} for batch in batches], kind="inflated")
    np.testing.assert_allclose(group(merged)["theta"][..., 1], group(alone)["x"], atol=1e-12)


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_callable_covariance(random_batches):
    batches = random_batches(np.random.default_rng(0))
    merged = az_swiss.merge(batches, covariance=lambda draws: np.cov(draws.T), kind="inflated")
    np.testing.assert_allclose(
        rows(merged), rows(az_swiss.merge(batches, kind="inflated")), atol=1e-10
    )


@pytest.mark.parametrize("stuck", [0, 2])
def test_a_stuck_batch_is_named_and_can_be_dropped(stuck):
    """Whether it is the first, which the others are compared with, or another."""
    rng = np.random.default_rng(1)
    batches = [{"x": rng.normal(size=(2, 300)), "y": rng.normal(size=(2, 300))} for _ in range(3)]
    batches[stuck]["y"] = np.ones((2, 300))
    named = re.escape(f'batch {stuck} ("b{stuck}")')
    message = rf"^{named}, variable y: all draws are the same.*sample {named} again, or .*drop="
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(batches, kind="inflated")
    rest = [batch for position, batch in enumerate(batches) if position != stuck]
    merged = az_swiss.merge(batches, kind="inflated", drop=stuck)
    alone = az_swiss.merge(rest, kind="inflated")
    for name in ("pooled_mean", "pooled_covariance"):
        np.testing.assert_allclose(
            group(merged, "swiss_transform")[name], group(alone, "swiss_transform")[name]
        )

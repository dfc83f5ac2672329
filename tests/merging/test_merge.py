"""What must hold of merge: exactness, equivariance, labels, kinds, covariances, output groups."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from merged_groups import group, groups_of, labelled, rows

import arviz_swiss as az_swiss

pytestmark = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")


def theta(draws):
    return [{"theta": values} for values in draws]


def precision_mean(terms):
    """Return mean and covariance of a product of Gaussians to powers: (power, mean, covariance)."""
    precision = sum(w * np.linalg.inv(c) for w, _, c in terms)
    covariance = np.linalg.inv(precision)
    return covariance @ sum(w * np.linalg.inv(c) @ m for w, m, c in terms), covariance


class Problem:
    """A Gaussian model: the prior, and the likelihood of each batch as a Gaussian in theta."""

    def __init__(self, rng, random_covariance, batches=4, size=3):
        self.prior = (rng.standard_normal(size), 2.0 * random_covariance(rng, size))
        self.likelihoods = [
            (rng.standard_normal(size), batches * random_covariance(rng, size))
            for _ in range(batches)
        ]
        self.posterior = precision_mean(
            [(1.0, *self.prior), *((1.0, *like) for like in self.likelihoods)]
        )

    def batches(self, rng, exact_draws, prior_powers, powers, **sizes):
        return [
            exact_draws(rng, *precision_mean([(a, *self.prior), (p, *likelihood)]), **sizes)
            for a, p, likelihood in zip(prior_powers, powers, self.likelihoods, strict=True)
        ]


KINDS = {
    "inflated": ([1, 1, 1, 1], [4, 4, 4, 4]),
    "inflated, unequal powers": ([1, 1, 1, 1], [2, 4, 8, 8]),
    "fractionated": ([0.25] * 4, [1, 1, 1, 1]),
    "full_prior": ([1, 1, 1, 1], [1, 1, 1, 1]),
}


@pytest.fixture(params=KINDS)
def merged_and_truth(request, exact_draws, random_covariance):
    rng = np.random.default_rng(1)
    prior_powers, powers = KINDS[request.param]
    problem = Problem(rng, random_covariance)
    draws = problem.batches(rng, exact_draws, prior_powers, powers)
    prior = {"prior": {"theta": exact_draws(rng, *problem.prior)}}
    kind = request.param.split(",")[0]
    merged = az_swiss.merge(
        theta(draws), kind=kind, powers=powers, prior=prior if kind == "full_prior" else None
    )
    return merged, problem.posterior


def test_exact_moments_give_the_true_posterior(merged_and_truth):
    merged, (mean, covariance) = merged_and_truth
    transform = merged["swiss_transform"]
    np.testing.assert_allclose(transform["pooled_mean"], mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(transform["pooled_covariance"], covariance, rtol=1e-12, atol=1e-12)


def test_draws_have_the_pooled_moments(merged_and_truth):
    """In every batch, and so in all draws together (with the one-degree-of-freedom factor)."""
    merged, (mean, covariance) = merged_and_truth
    for _, batch in group(merged).groupby("batch"):
        values = batch["theta"].values.reshape(-1, 3)
        np.testing.assert_allclose(values.mean(axis=0), mean, atol=1e-10)
        np.testing.assert_allclose(np.cov(values.T), covariance, atol=1e-10)


def test_full_prior_reads_each_batchs_own_prior_group(exact_draws, random_covariance):
    rng = np.random.default_rng(2)
    problem = Problem(rng, random_covariance)
    draws = problem.batches(rng, exact_draws, [1] * 4, [1] * 4)
    batches = [
        {"posterior": {"theta": values}, "prior": {"theta": exact_draws(rng, *problem.prior)}}
        for values in draws
    ]
    merged = az_swiss.merge(batches, kind="full_prior")
    pooled = merged["swiss_transform"]
    # Four exact sets together have 4 * 400 - 1 degrees of freedom, not 4 * 399.
    np.testing.assert_allclose(pooled["pooled_covariance"], problem.posterior[1], rtol=1e-2)


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 30),
    st.lists(st.sampled_from([(), (2,), (2, 3)]), min_size=1, max_size=5),
    st.sampled_from([np.float32, np.float64]),
)
def test_draws_have_the_pooled_moments_for_all_shapes(seed, batches, shapes, dtype):
    rng = np.random.default_rng(seed)
    size = sum(int(np.prod(shape, dtype=int)) for shape in shapes)
    draws = size + 20
    idatas = [
        {
            f"v{k}": rng.standard_normal((2, draws, *shape)).astype(dtype) + rng.standard_normal()
            for k, shape in enumerate(shapes)
        }
        for _ in range(batches)
    ]
    idatas = [{name: np.asarray(v, dtype) for name, v in idata.items()} for idata in idatas]
    merged = az_swiss.merge(idatas, kind="inflated")
    posterior = merged["posterior"]
    assert all(posterior[f"v{k}"].dtype == dtype for k in range(len(shapes)))
    flat = az_swiss.data.flatten(merged).values
    tolerance = 1e-10 if dtype == np.float64 else 3e-5
    pooled = merged["swiss_transform"]
    for batch in range(batches):
        values = flat[2 * batch : 2 * batch + 2].reshape(-1, size)
        np.testing.assert_allclose(values.mean(axis=0), pooled["pooled_mean"], atol=tolerance)
        np.testing.assert_allclose(
            np.cov(values.T).reshape(size, size), pooled["pooled_covariance"], atol=tolerance
        )


@settings(max_examples=10, deadline=None)
@given(
    batches=st.integers(1, 30),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 2**16),
)
def test_fifty_variables_have_the_pooled_moments(batches, dtype, seed):
    rng = np.random.default_rng(seed)
    names = [f"v{k}" for k in range(50)]
    idatas = [
        {name: (rng.normal(k, 1 + k, size=(2, 60))).astype(dtype) for k, name in enumerate(names)}
        for _ in range(batches)
    ]
    merged = az_swiss.merge(idatas, kind="inflated")
    assert list(merged["posterior"].data_vars) == names
    assert {array.dtype for array in merged["posterior"].data_vars.values()} == {np.dtype(dtype)}
    draws = az_swiss.data.flatten(merged).values
    pooled = merged["swiss_transform"]
    sds = np.sqrt(np.diag(pooled["pooled_covariance"]))
    # single precision keeps six digits of a mean that may be some 50 sds from zero
    tolerance = 1e-8 if dtype == np.float64 else 1e-3
    for batch in draws.reshape(batches, 120, 50):
        assert np.abs((batch.mean(axis=0) - pooled["pooled_mean"].values) / sds).max() < tolerance
        error = np.cov(batch.T) - pooled["pooled_covariance"].values
        assert np.abs(error / np.outer(sds, sds)).max() < tolerance


def test_one_batch_is_left_as_it_is(random_batches):
    (batch,) = random_batches(np.random.default_rng(0), batches=1)
    merged = az_swiss.merge([batch])
    np.testing.assert_allclose(merged["posterior"]["theta"], batch["theta"], atol=1e-12)


def test_agreeing_batches_are_left_as_they_are(random_batches):
    (batch,) = random_batches(np.random.default_rng(0), batches=1)
    mirrored = {"theta": 2 * batch["theta"].mean(axis=(0, 1)) - batch["theta"]}
    merged = az_swiss.merge([batch, mirrored], kind="inflated")
    scale = merged["swiss_transform"]["scale"]
    np.testing.assert_allclose(scale, np.broadcast_to(np.eye(3), (2, 3, 3)), atol=1e-12)


def test_maps_are_the_papers_algorithm(random_batches):
    """Algorithm 1, literally: symmetric positive definite roots throughout."""

    def root(matrix):
        values, vectors = np.linalg.eigh(matrix)
        return (vectors * np.sqrt(values)) @ vectors.T

    batches = random_batches(np.random.default_rng(5), batches=5, size=4)
    merged = az_swiss.merge(batches, kind="inflated")
    flat = [batch["theta"].reshape(-1, 4) for batch in batches]
    covariances = [np.cov(draws.T) for draws in flat]
    pooled = np.linalg.inv(np.mean([np.linalg.inv(c) for c in covariances], axis=0))
    centre = pooled @ np.mean(
        [np.linalg.inv(c) @ d.mean(axis=0) for c, d in zip(covariances, flat, strict=True)], axis=0
    )
    m = root(pooled)
    for b, (draws, covariance) in enumerate(zip(flat, covariances, strict=True)):
        tilde = root(np.linalg.inv(m) @ covariance @ np.linalg.inv(m))
        a_b = m @ np.linalg.inv(tilde) @ np.linalg.inv(m)
        np.testing.assert_allclose(merged["swiss_transform"]["scale"][b], a_b, atol=1e-10)
        expected = (draws - draws.mean(axis=0)) @ a_b.T + centre
        np.testing.assert_allclose(rows(merged)[400 * b : 400 * (b + 1)], expected, atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_equivariant_under_any_linear_map(random_batches, seed):
    rng = np.random.default_rng(seed)
    batches = random_batches(rng, size=4)
    matrix, shift = rng.standard_normal((4, 4)), rng.standard_normal(4)
    moved = [{"theta": batch["theta"] @ matrix.T + shift} for batch in batches]
    expected = rows(az_swiss.merge(batches, kind="inflated")) @ matrix.T + shift
    np.testing.assert_allclose(rows(az_swiss.merge(moved, kind="inflated")), expected, atol=1e-8)


def test_scales_from_e_minus_9_to_e_9_lose_nothing(random_batches):
    scale = np.exp(np.linspace(-9, 9, 6))
    batches = random_batches(np.random.default_rng(0), size=6)
    scaled = [{"theta": batch["theta"] * scale} for batch in batches]
    np.testing.assert_allclose(
        rows(az_swiss.merge(scaled, kind="inflated")) / scale,
        rows(az_swiss.merge(batches, kind="inflated")),
        atol=1e-9,
    )


def test_inputs_are_not_changed(to_container, random_batches):
    batches = [
        to_container(labelled(batch["theta"], ["a", "b", "c"]), observed_data={"y": np.arange(4.0)})
        for batch in random_batches(np.random.default_rng(0))
    ]
    before = [{k: v.copy(deep=True) for k, v in groups_of(batch).items()} for batch in batches]
    az_swiss.merge(batches, transforms={"mu": Shifted()}, kind="inflated")
    for batch, groups in zip(batches, before, strict=True):
        assert list(groups_of(batch)) == list(groups)
        for name, dataset in groups_of(batch).items():
            xr.testing.assert_identical(dataset, groups[name])


class Shifted:
    def forward(self, values):
        return values + 1.0

    def backward(self, values):
        return values - 1.0


def test_priors_drawn_with_one_seed_merge_to_the_prior(to_container):
    """A prior has no rows that could count twice."""
    prior = {"x": np.random.default_rng(0).standard_normal((2, 200))}
    batches = [
        to_container(prior, prior=prior, observed_data={"y": np.ones(size)}) for size in (10, 20)
    ]
    merged = groups_of(az_swiss.merge(batches, group="prior", kind="inflated"))["prior"]["x"]
    np.testing.assert_allclose(merged.values, np.concatenate([prior["x"]] * 2), atol=1e-12)

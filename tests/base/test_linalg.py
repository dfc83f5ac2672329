import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm

from arviz_swiss.base import linalg

SIZES = st.integers(1, 12)
SEEDS = st.integers(0, 2**32 - 1)


def covariance(seed, size):
    rng = np.random.default_rng(seed)
    factor = np.eye(size) + 0.3 * rng.standard_normal((size, size))
    return factor @ factor.T + 0.1 * np.eye(size)


def symmetric_root(matrix):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(values)) @ vectors.T


def swiss_map(pooled, batch):
    factor = linalg.cholesky(linalg.inverse(pooled))
    return linalg.principal_map(factor, linalg.spectrum(factor, batch))


@settings(deadline=None)
@given(SEEDS, SIZES)
def test_inverse(seed, size):
    matrix = covariance(seed, size)
    np.testing.assert_allclose(linalg.inverse(matrix) @ matrix, np.eye(size), atol=1e-9)


def test_inverse_refuses_indefinite():
    with pytest.raises(np.linalg.LinAlgError):
        linalg.inverse(np.diag([1.0, -1.0]))


@settings(deadline=None)
@given(SEEDS, SIZES)
def test_map_takes_batch_covariance_to_pooled(seed, size):
    pooled, batch = covariance(seed, size), covariance(seed + 1, size)
    scale = swiss_map(pooled, batch)
    np.testing.assert_allclose(scale @ batch @ scale.T, pooled, rtol=1e-9, atol=1e-9)


@settings(deadline=None)
@given(SEEDS, SIZES)
def test_map_is_the_papers_algorithm(seed, size):
    """Algorithm 1, literally, with symmetric roots throughout."""
    pooled, batch = covariance(seed, size), covariance(seed + 1, size)
    root = symmetric_root(pooled)
    inverse_root = np.linalg.inv(root)
    tilde = symmetric_root(inverse_root @ batch @ inverse_root)
    literal = root @ np.linalg.inv(tilde) @ inverse_root
    np.testing.assert_allclose(swiss_map(pooled, batch), literal, atol=1e-10)


@settings(deadline=None, max_examples=30)
@given(SEEDS, SIZES)
def test_map_is_the_principal_root(seed, size):
    pooled, batch = covariance(seed, size), covariance(seed + 1, size)
    principal = np.real(sqrtm(pooled @ np.linalg.inv(batch)))
    np.testing.assert_allclose(swiss_map(pooled, batch), principal, atol=1e-7)


def test_map_of_equal_covariances_is_identity():
    matrix = covariance(0, 6)
    np.testing.assert_allclose(swiss_map(matrix, matrix), np.eye(6), atol=1e-12)


def test_map_loses_no_digits_to_scale():
    """From e^-9 to e^9 the map in scaled units is the same."""
    scale = np.exp(np.linspace(-9, 9, 8))
    pooled, batch = covariance(0, 8), covariance(1, 8)
    plain = swiss_map(pooled, batch)
    scaled = swiss_map(pooled * np.outer(scale, scale), batch * np.outer(scale, scale))
    np.testing.assert_allclose(scaled / np.outer(scale, 1 / scale), plain, atol=1e-11)


@pytest.mark.parametrize("columns", [3, linalg.NARROW, linalg.NARROW + 1])
def test_add_outer_accumulates(columns):
    rows = np.random.default_rng(0).standard_normal((50, columns))
    empty = np.zeros((columns, columns), order="F")
    total = linalg.add_outer(rows, linalg.add_outer(rows, empty))
    assert np.shares_memory(total, empty)
    full = linalg.mirror(total)
    np.testing.assert_allclose(full, 2 * rows.T @ rows, atol=1e-12)
    np.testing.assert_array_equal(full, full.T)


def test_dependent_names_the_combination():
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((500, 4))
    draws[:, 3] = draws[:, 0] + 2 * draws[:, 2]
    draws[:, 0] *= 1e6
    np.testing.assert_array_equal(linalg.dependent(np.cov(draws.T)), [0, 2, 3])


def test_shrunk_covariance_with_fewer_draws_than_parameters():
    draws = np.random.default_rng(0).standard_normal((30, 50)) * np.exp(np.linspace(-3, 3, 50))
    shrunk = linalg.shrunk_covariance(draws)
    assert np.linalg.eigvalsh(shrunk / np.sqrt(np.outer(np.diag(shrunk), np.diag(shrunk))))[0] > 0.1
    np.testing.assert_allclose(np.diag(shrunk), draws.var(axis=0, ddof=1))


def test_shrunk_covariance_is_scale_equivariant():
    draws = np.random.default_rng(0).standard_normal((40, 5))
    scale = np.array([1e-3, 1, 10, 1e4, 2])
    expected = linalg.shrunk_covariance(draws) * np.outer(scale, scale)
    np.testing.assert_allclose(linalg.shrunk_covariance(draws * scale), expected, rtol=1e-10)


def test_shrunk_covariance_tends_to_the_sample_covariance():
    """The shrinkage weight is of order 1 / draws."""
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((100_000, 3)) @ np.linalg.cholesky(covariance(0, 3)).T
    np.testing.assert_allclose(linalg.shrunk_covariance(draws), np.cov(draws.T), atol=1e-3)


def test_parameters_are_embedded_where_they_lie():
    rng = np.random.default_rng(0)
    affine = linalg.AffineMap(rng.normal(size=(3, 3)), rng.normal(size=3), rng.normal(size=3))
    draw = rng.normal(size=3)
    expected = affine.scale @ (draw - affine.source) + affine.target
    for free in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        whole = linalg.embed(affine, np.array(free), np.zeros(3))
        x = np.empty(3)
        x[free] = draw
        moved = whole.scale @ (x - whole.source) + whole.target
        np.testing.assert_allclose(moved[free], expected, rtol=1e-13)


def test_barycenter_is_the_mean_of_roots_for_commuting_covariances():
    rng = np.random.default_rng(7)
    rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    spreads, weights = rng.uniform(0.5, 2, size=(3, 4)), np.array([0.5, 0.3, 0.2])
    covariances = [(rotation * spread**2) @ rotation.T for spread in spreads]
    expected = (rotation * (weights @ spreads) ** 2) @ rotation.T
    np.testing.assert_allclose(
        linalg.wasserstein_barycenter(covariances, weights), expected, atol=1e-9
    )


def test_transport_map_is_symmetric_and_carries_source_to_target(random_covariance):
    rng = np.random.default_rng(8)
    source, target = random_covariance(rng, 5), random_covariance(rng, 5)
    mapped = linalg.transport_map(source, target)
    np.testing.assert_allclose(mapped, mapped.T, atol=1e-12)
    np.testing.assert_allclose(mapped @ source @ mapped, target, atol=1e-12)


def test_composed_maps_do_one_after_the_other():
    rng = np.random.default_rng(0)
    first, second = (
        linalg.AffineMap(rng.normal(size=(3, 3)), rng.normal(size=3), rng.normal(size=3))
        for _ in range(2)
    )
    points = rng.normal(size=(10, 3))

    def moved(points, affine):
        return (points - affine.source) @ affine.scale.T + affine.target

    expected = moved(moved(points, first), second)
    np.testing.assert_allclose(moved(points, linalg.compose(first, second)), expected, atol=1e-12)

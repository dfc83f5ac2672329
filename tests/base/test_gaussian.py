import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import digamma, polygamma

from arviz_swiss.base import gaussian


def random_gaussian(rng, random_covariance, size):
    return gaussian.gaussian(rng.standard_normal(size), random_covariance(rng, size))


def scores_of(points, target):
    return -(points - target.mean) @ (target.factor @ target.factor.T)


@given(seed=st.integers(0, 2**32), size=st.integers(1, 8))
def test_round_is_exact_for_a_gaussian_target(seed, size):
    rng = np.random.default_rng(seed)
    start = gaussian.gaussian(rng.standard_normal(size), np.diag(rng.uniform(0.5, 2, size)))
    mixing = np.linalg.qr(rng.standard_normal((size, size)))[0]
    target = gaussian.gaussian(
        rng.standard_normal(size), (mixing * rng.uniform(0.7, 1.4, size)) @ mixing.T
    )
    # points of no particular distribution
    points = start.mean + rng.uniform(-2, 3, (3 * size + 5, size))
    new = gaussian.gradient_round(points, scores_of(points, target), start)
    np.testing.assert_allclose(new.moments.mean, target.mean, atol=1e-8)
    np.testing.assert_allclose(new.moments.covariance, target.covariance, atol=1e-8)
    between = target.mean - start.mean
    distance = np.sqrt(between @ np.linalg.solve(target.covariance, between))
    assert new.step == pytest.approx(distance, rel=1e-6)
    assert max(new.step_error, new.change_error) < 1e-6


def test_round_leaves_right_moments_alone(random_covariance):
    rng = np.random.default_rng(1)
    target = random_gaussian(rng, random_covariance, 5)
    points = rng.standard_normal((40, 5))
    new = gaussian.gradient_round(points, scores_of(points, target), target)
    np.testing.assert_allclose(new.moments.mean, target.mean, atol=1e-12)
    np.testing.assert_allclose(new.moments.covariance, target.covariance, atol=1e-12)
    assert max(new.step, new.change) < 1e-12
    np.testing.assert_allclose(new.eigenvalues, 1.0, atol=1e-12)


def test_round_is_equivariant(random_covariance):
    rng = np.random.default_rng(2)
    start, target = (random_gaussian(rng, random_covariance, 4) for _ in range(2))
    points = rng.standard_normal((50, 4))
    scores = scores_of(points, target) + 0.3 * np.sin(points)
    change, shift = np.eye(4) + 0.3 * rng.standard_normal((4, 4)), rng.standard_normal(4)
    there = gaussian.gaussian(change @ start.mean + shift, change @ start.covariance @ change.T)
    one = gaussian.gradient_round(points, scores, start)
    other = gaussian.gradient_round(
        points @ change.T + shift, np.linalg.solve(change.T, scores.T).T, there
    )
    np.testing.assert_allclose(other.moments.mean, change @ one.moments.mean + shift, atol=1e-10)
    np.testing.assert_allclose(
        other.moments.covariance, change @ one.moments.covariance @ change.T, atol=1e-10
    )
    for name in ("step", "step_error", "change"):
        assert getattr(other, name) == pytest.approx(getattr(one, name))


@pytest.mark.parametrize("factor, clipped", [(100.0, 5.0), (0.01, 0.2)])
def test_a_round_changes_the_precision_within_bounds(factor, clipped):
    start = gaussian.gaussian(np.zeros(2), np.eye(2))
    points = np.random.default_rng(3).standard_normal((20, 2))
    new = gaussian.gradient_round(points, -factor * points, start)
    np.testing.assert_allclose(new.eigenvalues, clipped)
    np.testing.assert_allclose(new.moments.covariance, np.eye(2) / clipped, atol=1e-12)


def test_errors_are_those_of_the_steps():
    # log of Gamma(6) in four directions: at its own moments, steps are noise alone
    rng, shape = np.random.default_rng(4), 6.0
    exact = gaussian.gaussian(np.full(4, digamma(shape)), np.eye(4) * polygamma(1, shape))
    rounds = []
    for _ in range(400):
        points = np.log(rng.gamma(shape, size=(200, 4)))
        rounds.append(gaussian.gradient_round(points, shape - np.exp(points), exact))
    # mean squares of 400 rounds: within a fifth, at the least
    for found, expected in (("step", "step_error"), ("change", "change_error")):
        squares = np.mean([getattr(one, found) ** 2 for one in rounds])
        errors = np.mean([getattr(one, expected) ** 2 for one in rounds])
        assert squares == pytest.approx(errors, rel=0.2)


def test_map_between_moments(random_covariance):
    rng = np.random.default_rng(5)
    old, new = (random_gaussian(rng, random_covariance, 3) for _ in range(2))
    scale = gaussian.map_between(old, new)
    np.testing.assert_allclose(scale @ old.covariance @ scale.T, new.covariance, atol=1e-12)
    # the principal root: its square is V_new P_old
    np.testing.assert_allclose(scale @ scale @ old.covariance, new.covariance, atol=1e-12)


def test_moments_of_a_mixture():
    rng = np.random.default_rng(6)
    parts = [rng.normal(rng.normal(), 1, (n, 3)) for n in (300, 100)]
    found = gaussian.moments_of(
        np.array([part.mean(axis=0) for part in parts]),
        np.array([np.cov(part.T, ddof=0) for part in parts]),
        np.array([0.75, 0.25]),
    )
    whole = np.concatenate(parts)
    np.testing.assert_allclose(found.mean, whole.mean(axis=0))
    np.testing.assert_allclose(found.covariance, np.cov(whole.T, ddof=0))


def moments_with(mean, covariance, effective=1e9):
    precision = np.linalg.inv(covariance)
    return gaussian.Moments(np.asarray(mean, float), covariance, precision, 1000, effective)


@given(seed=st.integers(0, 2**32), size=st.integers(1, 6), count=st.integers(1, 6))
def test_pooling_gives_back_what_was_divided(seed, size, count):
    """Prior and likelihoods of a Gaussian model, in sub-posteriors of all three kinds."""
    rng = np.random.default_rng(seed)

    def normal():
        factor = np.eye(size) + 0.4 * rng.standard_normal((size, size)) / np.sqrt(size)
        return factor @ factor.T, rng.standard_normal(size)

    def posterior(prior_power, power, terms):
        precision = prior_power * prior[0] + power * sum(term[0] for term in terms)
        natural = prior_power * prior[1] + power * sum(term[1] for term in terms)
        covariance = np.linalg.inv(precision)
        return moments_with(covariance @ natural, covariance)

    prior, likelihoods = normal(), [normal() for _ in range(count)]
    whole = posterior(1.0, 1.0, likelihoods)
    prior_alone = posterior(1.0, 0.0, likelihoods)
    for prior_power, power in ((1.0, count), (1.0 / count, 1.0), (1.0, 1.0)):
        batches = [posterior(prior_power, power, [term]) for term in likelihoods]
        missing = 1.0 - count * prior_power / power
        missing = 0.0 if abs(missing) < 1e-12 else missing
        pooled = gaussian.pool(batches, np.full(count, 1.0 / power), missing, prior_alone)
        np.testing.assert_allclose(pooled.mean, whole.mean, atol=1e-8)
        np.testing.assert_allclose(pooled.covariance, whole.covariance, atol=1e-8)
        np.testing.assert_allclose(pooled.precision @ pooled.covariance, np.eye(size), atol=1e-8)
        np.testing.assert_allclose(pooled.factor @ pooled.factor.T, pooled.precision, atol=1e-10)


def test_a_pooled_mean_far_from_zero_loses_no_digits():
    near = [moments_with([offset], np.eye(1) * 1e-12) for offset in (0.0, 2e-6)]
    far = [moments._replace(mean=moments.mean + 2.0**20) for moments in near]
    here, there = (gaussian.pool(batches, np.ones(2)) for batches in (near, far))
    assert there.mean[0] - 2.0**20 == pytest.approx(here.mean[0], abs=2e-10)


@pytest.mark.parametrize(("effective", "size"), [(100.0, 5), (30.0, 10), (1000.0, 500)])
def test_what_few_draws_do_to_precisions_is_taken_back(effective, size):
    # E[S^-1] = (n - 1) / (n - d - 2) V^-1
    ratio = (effective - size - 2) / (effective - 1)
    assert gaussian.precision_bias(effective, size) == pytest.approx(1 - np.sqrt(ratio))
    enough = effective > 2 * (size + 2)
    assert gaussian.correction(effective, size) == (pytest.approx(ratio) if enough else None)


def test_fewer_draws_than_parameters_say_nothing():
    assert gaussian.precision_bias(7.0, 5) == 1.0
    assert gaussian.correction(7.0, 5) is None

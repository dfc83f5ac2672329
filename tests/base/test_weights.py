import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arviz_swiss.base import weights


def test_mixture_of_known_densities():
    # constants are lost on purpose: they must be found from the draws
    rng, lost = np.random.default_rng(7), np.array([0.0, 300.0, -40.0])
    means, counts = np.array([-1.0, 0.0, 1.5]), [2000, 1000, 4000]
    owners = np.repeat(np.arange(3), counts)
    draws = rng.normal(means[owners], 1)
    logs = -0.5 * (draws - means[:, None]) ** 2
    found = weights.mixture_of(logs + lost[:, None], owners).log_density
    exact = np.log(np.array(counts) @ np.exp(logs))
    difference = found - exact
    # errors of the constants: a few over the square root of the draws
    assert np.ptp(difference) < 0.15
    one = weights.mixture_of(logs[:1], np.zeros(7000, dtype=int)).log_density
    np.testing.assert_allclose(np.diff(one), np.diff(logs[0]), atol=1e-12)


def at_places(counts):
    """Return owners and log densities of draws that come as often as counted: nothing is noise."""
    owners = np.repeat(np.arange(len(counts)), counts.sum(axis=1))
    drawn = np.concatenate([np.repeat(np.arange(counts.shape[1]), one) for one in counts])
    with np.errstate(divide="ignore"):
        return owners, np.log(counts)[:, drawn]


def overlapping(rng, sources=12, places=40):
    counts = rng.integers(0, 6, size=(sources, places))
    counts[:, :3] += 1
    return counts


def chained(rng, sources=30):
    """Return counts of sources that have one draw each in common with the next."""
    counts = np.zeros((sources, 3 * sources + 1), dtype=int)
    for k in range(sources):
        counts[k, [3 * k, 3 * k + 3]] = 1
        counts[k, [3 * k + 1, 3 * k + 2]] = rng.integers(5, 200, 2)
    return counts


@pytest.mark.parametrize("make", [overlapping, chained])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([0.0, 1.0, 300.0]))
def test_constants_that_are_known_exactly(make, seed, scale):
    rng = np.random.default_rng(seed)
    counts = make(rng)
    owners, logs = at_places(counts)
    lost = scale * rng.standard_normal(len(counts))
    found = weights.mixture_of(logs + lost[:, None], owners)
    exact = np.log(counts.sum(axis=1)) + lost
    np.testing.assert_allclose(found.constants, exact - exact[0], atol=1e-8)
    plain = weights.mixture_of(logs, owners)
    # what was lost cannot be seen in the mixture, but for the unit that the first source sets
    np.testing.assert_allclose(found.log_density - lost[0], plain.log_density, atol=1e-8)
    np.testing.assert_allclose(found.shares.sum(axis=1), 1.0)


@pytest.mark.parametrize("distance", [0.5, 2.0, 4.0, 6.0])
def test_constants_of_distant_gaussians_that_are_equal_by_symmetry(distance):
    """Source k has its mean in direction k, and the draws of the first one turned there."""
    rng, size = np.random.default_rng(1), 5
    first = rng.standard_normal((400, size))
    first[:, 0] += distance
    draws = np.concatenate([np.roll(first, k, axis=1) for k in range(size)])
    owners = np.repeat(np.arange(size), 400)
    logs = -0.5 * np.sum((draws - distance * np.eye(size)[:, None]) ** 2, axis=2)
    lost = np.array([0.0, 500.0, -70.0, 3.0, 1e4])
    found = weights.mixture_of(logs + lost[:, None], owners)
    np.testing.assert_allclose(found.constants, lost, rtol=1e-12, atol=1e-8)


@pytest.mark.parametrize("count, sources", [(500, 2), (100, 20), (20, 300)])
@pytest.mark.parametrize("distance", [1.0, 4.0, 10.0, 60.0])
def test_constants_solve_their_equations_however_far_apart_sources_are(count, sources, distance):
    rng = np.random.default_rng(2)
    means = distance * np.arange(sources)
    owners = np.repeat(np.arange(sources), count)
    draws = rng.normal(means[owners], 1)
    logs = -0.5 * (draws - means[:, None]) ** 2 + 300 * rng.random((sources, 1))
    found = weights.mixture_of(logs, owners)
    np.testing.assert_allclose(found.shares.sum(axis=0), count, rtol=1e-10)
    error = weights.mixture_error(found, np.full(owners.size, 1 / owners.size))
    if distance >= 10:
        assert error > 100
    if distance == 1 and sources == 2:
        assert error < 0.02


def test_the_error_of_the_constants_is_the_one_told():
    rng, told, squares = np.random.default_rng(3), [], []
    owners = np.repeat([0, 1], 300)
    for _ in range(200):
        draws = rng.normal(3.0 * owners, 1)
        found = weights.mixture_of(-0.5 * (draws - np.array([[0.0], [3.0]])) ** 2, owners)
        told.append(np.sum(np.diff(found.uncertainty, axis=0) ** 2))
        squares.append(found.constants[1] ** 2)
    # a variance from 200 is known within 10%
    assert np.mean(squares) == pytest.approx(np.mean(told), rel=0.3)


def test_sources_apart_count_by_the_weight_of_their_draws():
    draws = np.concatenate([np.random.default_rng(4).normal(size=200), np.full(100, 80.0)])
    owners = np.repeat([0, 1, 2], 100)
    logs = -0.5 * (draws - np.array([[0.0], [0.0], [80.0]])) ** 2
    found = weights.mixture_of(logs, owners)
    equal = np.full(300, 1 / 300)
    assert weights.mixture_error(found, equal) > 100
    assert weights.mixture_error(found, np.where(owners < 2, 1 / 200, 0.0)) < 1e-6
    alone = weights.mixture_of(logs[:1, :200], np.zeros(200, dtype=int))
    assert weights.mixture_error(alone, equal[:200]) == 0


@pytest.mark.parametrize("size", [1, 6, 60])
def test_weights_that_know_nothing_of_the_draws_change_nothing_but_by_chance(size):
    rng, changes = np.random.default_rng(5), []
    for _ in range(30):
        draws = rng.standard_normal((500, size))
        shares = rng.gamma(5.0, size=500)
        changes.append(weights.change_by(draws, shares / shares.sum(), rng))
    squares, told = np.mean(np.square(changes), axis=0)[:2]
    # mean squares of 30 lengths of chi-squared with `size` degrees
    assert squares == pytest.approx(told, rel=4 * np.sqrt(2 / size / 30))
    beyond = [one.stretch > one.stretch_error for one in changes]
    # one of twenty; beyond eight of thirty in one of 1e5 cases
    assert sum(beyond) <= 8
    assert max(weights.beyond_noise(one)[0] for one in changes) < 4 * np.sqrt(told)


def test_weights_of_another_gaussian_change_the_moments_to_its_own():
    rng = np.random.default_rng(6)
    draws = rng.standard_normal((200_000, 4))
    logs = 0.3 * draws[:, 0] - 0.5 * draws[:, 1] ** 2 * (1 / 0.8**2 - 1)
    shares = np.exp(logs - logs.max())
    found = weights.change_by(draws, shares / shares.sum(), rng)
    assert found.shift == pytest.approx(0.3, abs=3 * found.shift_error + 1e-3)
    assert found.stretch == pytest.approx(0.2, abs=0.02)
    np.testing.assert_allclose(weights.beyond_noise(found), found[::2], rtol=0.01)


def test_what_the_weights_change_does_not_depend_on_a_rotation():
    rng = np.random.default_rng(7)
    draws, shares = rng.standard_normal((300, 3)), rng.dirichlet(np.ones(300))
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    one, other = (
        weights.change_by(x, shares, np.random.default_rng(8)) for x in (draws, draws @ turn)
    )
    np.testing.assert_allclose(one, other, rtol=1e-9)


def test_effective_size_of_weights():
    assert weights.effective_size(np.full(50, -3.0)) == pytest.approx(50)
    assert weights.effective_size(np.array([0.0, -900.0])) == pytest.approx(1)
    assert weights.effective_size(np.log([3.0, 1.0])) == pytest.approx(16 / 10)


def test_weighted_moments_are_those_of_repeated_values():
    values = np.array([[1.0, 2.0], [5.0, -1.0], [2.0, 2.0]])
    mean, sd = weights.weighted_moments(values, np.array([0.25, 0.25, 0.5]))
    repeated = values[[0, 1, 2, 2]]
    np.testing.assert_allclose(mean, repeated.mean(axis=0))
    np.testing.assert_allclose(sd, repeated.std(axis=0))


@given(seed=st.integers(0, 1000), count=st.integers(1, 300))
def test_resampling_takes_each_as_often_as_its_weight_says(seed, count):
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(20, 0.3))
    counts = np.bincount(weights.resampled(shares, count, rng), minlength=20)
    assert counts.sum() == count
    assert np.all(np.abs(counts - count * shares) < 1 + 1e-9)


def test_resampling_is_in_random_order():
    rng = np.random.default_rng(8)
    chosen = weights.resampled(np.full(1000, 1e-3), 1000, rng)
    assert abs(np.corrcoef(chosen, np.arange(1000))[0, 1]) < 0.15


@given(length=st.integers(1, 500), count=st.integers(1, 600), seed=st.integers(0, 1000))
def test_positions_are_spread_evenly(length, count, seed):
    found = weights.spread_evenly(length, count, np.random.default_rng(seed))
    assert found.size == min(length, count)
    assert found[0] >= 0 and found[-1] < length
    gaps = np.diff(found)
    assert found.size < 2 or (gaps.min() >= 1 and gaps.max() - gaps.min() <= 1)

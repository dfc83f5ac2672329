"""Local variables given the shared ones: modes, slopes and curvatures by other ways too."""

import numpy as np
import pytest
from hierarchies import LogisticGroups, NormalGroups
from scipy.optimize import minimize

from arviz_swiss.base.conditional import (
    NoConditional,
    control_variates,
    find_conditional,
    narrow,
    widen,
)

SHARED = np.array([0.3, -0.4])
FACTOR = np.array([[0.2, 0.0], [0.05, 0.3]])


def joint(density, prior_power=0.5):
    return lambda shared, local: density.score(shared, local, prior_power)


def conditional_of(density, shared=SHARED, factor=FACTOR, start=None):
    start = density.start if start is None else start
    return find_conditional(joint(density), shared, factor, start, density.families)


def best_mode(density, shared=SHARED, scale=1.0):
    """Return the mode by SciPy, of local variables in units of `scale`."""

    def minus(units):
        values, _, by_local = density.score(shared[None], scale * units[None], 0.5)
        return -values[0], -by_local[0] * scale

    start = np.zeros(density.start.size)
    tight = {"gtol": 1e-10, "maxiter": 10_000}
    return scale * minimize(minus, start, jac=True, method="BFGS", options=tight).x


def covariances(factors):
    return factors @ factors.transpose(0, 2, 1)


def gradient_in_sds(density, found, shared=SHARED):
    by_local = density.score(shared[None], found.centre[None], 0.5)[2]
    return np.abs(narrow(found, density.families, by_local)).max()


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("kinds", [1, 2])
def test_the_mode_is_that_of_an_optimiser(centred, kinds):
    density = LogisticGroups(np.random.default_rng(1), scales=(1.0,) * kinds, centred=centred)
    found = conditional_of(density)
    # a Newton step from within a tenth of an sd
    np.testing.assert_allclose(found.centre, best_mode(density), atol=2e-3)
    assert gradient_in_sds(density, found) < 0.01


@pytest.mark.parametrize("centred", [True, False])
def test_blocks_are_those_of_the_hessian(centred):
    density = LogisticGroups(np.random.default_rng(2), scales=(1.0, 0.5), centred=centred)
    found = conditional_of(density)
    step = 1e-5 * np.eye(found.centre.size)
    ends = found.centre + np.concatenate([step, -step])
    _, _, gradients = density.score(np.broadcast_to(SHARED, (len(ends), 2)), ends, 0.5)
    hessian = np.subtract(*np.split(gradients, 2)) / 2e-5
    for group, covariance in zip(density.families[0], covariances(found.factors[0]), strict=True):
        # differences over a tenth of an sd see a little of the fourth derivative
        expected = np.linalg.inv(-hessian[np.ix_(group, group)])
        np.testing.assert_allclose(covariance, expected, rtol=0.01, atol=0.01 * expected.max())


@pytest.mark.parametrize("centred", [True, False])
def test_the_slope_is_the_derivative_of_the_mode(centred):
    density = LogisticGroups(np.random.default_rng(3), scales=(1.0, 0.5), centred=centred)
    found = conditional_of(density)
    for column, along in zip(found.slope.T, FACTOR.T, strict=True):
        ends = [best_mode(density, SHARED + sign * 1e-2 * along) for sign in (1, -1)]
        derivative = (ends[0] - ends[1]) / 2e-2
        np.testing.assert_allclose(column, derivative, atol=0.02 * np.abs(derivative).max())


def test_everything_is_exact_for_normal_groups():
    rng = np.random.default_rng(4)
    density = NormalGroups(rng)
    shared, factor = rng.standard_normal(3), np.tril(rng.standard_normal((3, 3)))
    found = conditional_of(density, shared, factor, start=1e3 * density.start)
    mean, covariance = density.conditional(shared)
    np.testing.assert_allclose(found.centre, mean, atol=1e-8)
    for group, block in zip(density.families[0], covariances(found.factors[0]), strict=True):
        np.testing.assert_allclose(block, covariance[np.ix_(group, group)], atol=1e-8)
    for column, along in zip(found.slope.T, factor.T, strict=True):
        moved, _ = density.conditional(shared + along)
        np.testing.assert_allclose(column, moved - mean, atol=1e-8)


def test_linear_maps_of_the_shared_parameters_change_nothing():
    rng = np.random.default_rng(5)
    density = LogisticGroups(rng)
    change, offset = rng.standard_normal((2, 2)), rng.standard_normal(2)
    inverse = np.linalg.inv(change)

    def mapped(shared, local):
        values, by_shared, by_local = density.score((shared - offset) @ inverse.T, local, 0.5)
        return values, by_shared @ inverse, by_local

    plain = conditional_of(density)
    other = find_conditional(
        mapped, change @ SHARED + offset, change @ FACTOR, density.start, density.families
    )
    np.testing.assert_allclose(other.centre, plain.centre, atol=1e-10)
    np.testing.assert_allclose(other.slope, plain.slope, atol=1e-10)


@pytest.mark.parametrize("scales", [(1e-4, 1e4), (1e4, 1e-4)])
def test_scales_may_be_very_different_within_groups_and_among_them(scales):
    density = LogisticGroups(np.random.default_rng(6), scales=(1.0, 1.0))
    plain = conditional_of(density)
    units = np.outer([1.0, *scales, *scales[::-1]], scales)
    other = LogisticGroups(np.random.default_rng(6), scales=units)
    found = conditional_of(other)
    np.testing.assert_allclose(found.centre / units.ravel(), plain.centre, atol=2e-3)
    np.testing.assert_allclose(
        found.factors[0] @ found.factors[0].transpose(0, 2, 1) / units[:, :, None] / units[:, None],
        covariances(plain.factors[0]),
        rtol=0.01,
        atol=1e-3,
    )


def test_an_ill_conditioned_group():
    # intercept and slope of a covariate far from zero: 1 - 5e-7 correlated
    density = LogisticGroups(np.random.default_rng(7), rows=30, scales=(30.0, 0.03))
    density.design[density.groups == 2] = np.column_stack(
        [np.ones(30), 1000 + np.random.default_rng(8).standard_normal(30)]
    )
    found = conditional_of(density)
    assert gradient_in_sds(density, found) < 0.01
    step = 1e-6 * np.eye(2)
    place = density.families[0][2]
    ends = np.repeat(found.centre[None], 4, axis=0)
    ends[:, place] += np.concatenate([step, -step])
    _, _, gradients = density.score(np.broadcast_to(SHARED, (4, 2)), ends, 0.5)
    curvature = -np.subtract(*np.split(gradients[:, place], 2)) / 2e-6
    white = found.factors[0][2].T @ curvature @ found.factors[0][2]
    np.testing.assert_allclose(white, np.eye(2), atol=0.05)


def test_groups_without_rows_have_their_prior():
    for centred, sd in ((True, np.exp(SHARED[1])), (False, 1.0)):
        density = LogisticGroups(np.random.default_rng(9), scales=(1.0, 1.0), centred=centred)
        empty = LogisticGroups(
            np.random.default_rng(9), scales=(1.0, 1.0), centred=centred, empty=2
        )
        found = conditional_of(empty)
        np.testing.assert_allclose(found.centre[6:], 0, atol=1e-12)
        np.testing.assert_allclose(found.slope[6:], 0, atol=1e-8)
        expected = np.broadcast_to(sd**2 * np.eye(2), (2, 2, 2))
        np.testing.assert_allclose(covariances(found.factors[0])[3:], expected, rtol=1e-6)
        assert not np.allclose(conditional_of(density).centre[6:], 0)


def test_no_local_variables_at_all():
    def score(shared, local):
        return -np.sum(shared**2, axis=1) / 2, -shared, np.empty((len(shared), 0))

    found = find_conditional(score, SHARED, FACTOR, np.empty(0), [])
    assert found.centre.shape == (0,) and found.slope.shape == (0, 2)
    white = np.ones((7, 0))
    assert widen(found, [], white).shape == narrow(found, [], white).shape == (7, 0)
    assert control_variates(white, white, []).shape == (7, 0)


def poisson(counts, sd):
    """Return a density of log rates, one a group, from which Newton steps lead far too far."""

    def score(shared, local):
        with np.errstate(over="ignore", invalid="ignore"):
            rates = np.exp(local + shared[:, :1])
            values = np.sum(counts * (local + shared[:, :1]) - rates - (local / sd) ** 2 / 2, 1)
            gradients = counts - rates
        return values, gradients.sum(axis=1, keepdims=True), gradients - local / sd**2

    return score


@pytest.mark.parametrize("start", [-3.0, 0.0, 10.0])
def test_each_group_goes_as_far_as_it_can(start):
    counts, sd = np.round(np.geomspace(1, 1e8, 50)), 100.0
    families = [np.arange(50)[:, None]]
    score = poisson(counts, sd)
    found = find_conditional(score, np.zeros(1), 0.1 * np.eye(1), np.full(50, start), families)
    by_local = score(np.zeros((1, 1)), found.centre[None])[2]
    assert np.abs(narrow(found, families, by_local)).max() < 0.01


def test_two_families_each_have_their_blocks():
    rng = np.random.default_rng(10)
    first, second = LogisticGroups(rng, groups=4), LogisticGroups(rng, groups=4, scales=(1.0, 2.0))

    def score(shared, local):
        parts = [first.score(shared, local[:, :4], 0.5), second.score(shared, local[:, 4:], 0.5)]
        values, by_shared = (parts[0][k] + parts[1][k] for k in range(2))
        return values, by_shared, np.concatenate([parts[0][2], parts[1][2]], axis=1)

    families = [*first.families, 4 + second.families[0]]
    found = find_conditional(score, SHARED, FACTOR, np.zeros(12), families)
    for density, columns, factors in (
        (first, slice(4), found.factors[0]),
        (second, slice(4, None), found.factors[1]),
    ):
        alone = conditional_of(density)
        np.testing.assert_allclose(found.centre[columns], alone.centre, atol=2e-3)
        np.testing.assert_allclose(found.slope[columns], alone.slope, atol=2e-3)
        np.testing.assert_allclose(covariances(factors), covariances(alone.factors[0]), rtol=0.01)


def of_one(value, gradient):
    """Return the score of one local variable, which no shared one touches."""

    def score(shared, local):
        with np.errstate(all="ignore"):
            return value(local[:, 0]), np.zeros_like(shared), gradient(local)

    return score


def find_one(value, gradient, start):
    families = [np.zeros((1, 1), int)]
    return find_conditional(of_one(value, gradient), SHARED, FACTOR, np.array([start]), families)


def two_peaks(a):
    return -((a**2 - 1) ** 2)


def test_a_start_where_the_density_bends_upwards():
    found = find_one(two_peaks, lambda a: -4 * a * (a**2 - 1), 0.3)
    np.testing.assert_allclose(found.centre, 1, atol=0.01)
    np.testing.assert_allclose(found.factors[0] ** 2, 1 / 8, rtol=0.05)


@pytest.mark.parametrize(
    "value, gradient, start, message",
    [
        (two_peaks, lambda a: -4 * a * (a**2 - 1), 0.0, "no peak where the search ended"),
        (lambda a: 0 * a, lambda a: 0 * a, 1.0, "flat in a local variable"),
        (np.log, lambda a: 1 / a, -1.0, "not finite where the search for a mode began"),
        (lambda a: a, np.ones_like, 1.0, "flat in a local variable"),
        (np.log, lambda a: 1 / a, 1.0, "30 Newton steps did not reach"),
        (lambda a: -a * a, lambda a: np.where(a == 0, 0, np.nan), 0.0, "not finite around"),
        (lambda a: -1e5 * abs(a), lambda a: np.where(a > 0, -1e5, 1e5), 0.0, "no step leads to"),
    ],
)
def test_without_a_mode_there_is_no_conditional(value, gradient, start, message):
    with pytest.raises(NoConditional, match=message):
        find_one(value, gradient, start)


def test_scales_so_small_that_densities_overflow():
    density = LogisticGroups(np.random.default_rng(11))
    with np.errstate(all="ignore"):
        # still a number: effects of sd 1e-60
        small = np.array([0.3, np.log(1e-60)])
        found = conditional_of(density, small)
        np.testing.assert_allclose(found.factors[0], 1e-60, rtol=1e-6)
        with pytest.raises(NoConditional, match="not finite around"):
            conditional_of(density, np.array([0.3, np.log(1e-200)]))
        with pytest.raises(NoConditional, match="not finite where the search"):
            conditional_of(density, np.array([0.3, -800.0]))


def test_a_density_that_ends_close_by_is_found_by_shorter_differences():
    # a scale of 1e-6 inside bounds that first differences overstep
    def value(a):
        return np.where(np.abs(a) < 1e-5, -((a / 1e-6) ** 2) / 2, -np.inf)

    found = find_one(value, lambda a: -a / 1e-12, 2e-6)
    np.testing.assert_allclose(found.centre, 0, atol=1e-8)
    np.testing.assert_allclose(found.factors[0], 1e-6, rtol=1e-6)


def test_white_local_variables_and_their_gradients():
    rng = np.random.default_rng(12)
    density = LogisticGroups(rng, scales=(1.0, 0.5))
    found = conditional_of(density)
    u, g = rng.standard_normal((2, 3, 4, 10))
    wide, white = widen(found, density.families, u), narrow(found, density.families, g)
    assert wide.shape == white.shape == u.shape
    # S is one map, and S' its transpose
    np.testing.assert_allclose(np.sum(wide * g, axis=-1), np.sum(u * white, axis=-1))
    np.testing.assert_allclose(wide[1, 2, :2], found.factors[0][0] @ u[1, 2, :2])


def test_control_variates_have_mean_zero_whatever_the_distribution():
    rng, count = np.random.default_rng(13), 200_000
    families = [np.array([[0, 1], [2, 3]]), np.array([[4]])]
    # logarithms of Gamma variables, mixed within groups: neither normal nor independent
    mix, shape = np.array([[1.0, 0.7], [0.0, 1.0]]), 3.0
    logs = np.log(rng.gamma(shape, size=(count, 5)))
    gradients = shape - np.exp(logs)
    inverse = np.linalg.inv(mix)
    white, by_white = logs.copy(), gradients.copy()
    for group in families[0]:
        white[:, group], by_white[:, group] = logs[:, group] @ mix.T, gradients[:, group] @ inverse
    controls = control_variates(white, by_white, families)
    assert controls.shape == (count, 4)
    errors = controls.std(axis=0) / np.sqrt(count)
    assert (np.abs(controls.mean(axis=0)) < 4 * errors).all()

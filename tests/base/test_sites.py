"""Sites in white coordinates: exact arithmetic of Gaussians, and noise that is what it says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arviz_swiss.base.sites import (
    LEAST,
    LEAST_CAVITY,
    MOST,
    Change,
    Site,
    change_site,
    pool_changes,
    site_change,
    white_factor,
)

SEEDS, SIZES = st.integers(0, 2**32 - 1), st.integers(1, 6)


def symmetric(rng, size, scale=1.0):
    matrix = scale * rng.standard_normal((size, size))
    return (matrix + matrix.T) / 2


def some_sites(rng, size, batches=4):
    """Return sites whose precisions sum to the identity and shifts to zero."""
    shares = rng.dirichlet(np.full(batches, 20.0))
    bends = [symmetric(rng, size, 0.02) for _ in shares]
    shifts = rng.standard_normal((batches, size))
    return [
        Site(share * np.eye(size) + bend - np.mean(bends, axis=0), shift - shifts.mean(axis=0))
        for share, bend, shift in zip(shares, bends, shifts, strict=True)
    ]


def some_change(rng, size, scale=0.05):
    noise = symmetric(rng, size)
    return Change(
        symmetric(rng, size, scale),
        rng.standard_normal(size),
        noise @ noise,
        rng.random(),
        np.zeros(size),
        np.zeros(size),
    )


def take_step(sites, changes):
    step = pool_changes(sites, changes)
    return step, [change_site(*each, step) for each in zip(sites, changes, strict=True)]


def cavities(sites):
    return [np.linalg.eigvalsh(np.eye(len(site.shift)) - site.precision)[0] for site in sites]


@settings(deadline=None)
@given(SEEDS, SIZES)
def test_changes_are_exact_for_gaussians_whatever_the_draws(seed, size):
    rng = np.random.default_rng(seed)
    # draws of no distribution in particular, and controls that have nothing to add
    white = rng.uniform(-3, 5, (60, size)) ** 3 / 10
    controls = rng.gamma(1.0, size=(60, 2))
    precision, shift = symmetric(rng, size, 3.0), rng.standard_normal(size)
    change = site_change(white, shift - white @ precision, controls, worth=0.3)
    np.testing.assert_allclose(change.precision, precision - np.eye(size), atol=1e-9)
    np.testing.assert_allclose(change.shift, shift, atol=1e-9)
    for noise in change[2:]:
        np.testing.assert_allclose(noise, 0, atol=1e-9)


def test_controls_take_their_noise_off():
    rng = np.random.default_rng(1)
    white, controls = rng.standard_normal((50, 3)), rng.standard_normal((50, 4))
    scores = -white + controls @ rng.standard_normal((4, 3))
    change = site_change(white, scores, controls)
    np.testing.assert_allclose(change.shift, 0, atol=1e-12)
    np.testing.assert_allclose(change.shift_noise, 0, atol=1e-12)
    # without them, the noise is there
    assert np.trace(site_change(white, scores, np.empty((50, 0))).shift_noise) > 0.01


@pytest.mark.parametrize("rounding", [0, 1e-15, 1e-13])
def test_controls_may_be_the_same_up_to_rounding(rounding):
    rng = np.random.default_rng(12)
    white, control = rng.standard_normal((50, 3)), rng.standard_normal((50, 1))
    controls = np.column_stack([control, control + rounding * rng.standard_normal((50, 1))])
    noise = rng.standard_normal((50, 3))
    plain, twice = (site_change(white, noise - white, each) for each in (control, controls))
    np.testing.assert_allclose(twice.shift, plain.shift, atol=1e-8)
    np.testing.assert_allclose(twice.precision, plain.precision, atol=1e-8)


@settings(deadline=None)
@given(SEEDS, SIZES)
def test_changes_turn_with_the_coordinates(seed, size):
    rng = np.random.default_rng(seed)
    white, scores = rng.standard_normal((2, 80, size))
    controls = rng.standard_normal((80, 2))
    turn = np.linalg.qr(rng.standard_normal((size, size)))[0]
    change = site_change(white, scores, controls)
    turned = site_change(white @ turn.T, scores @ turn.T, controls)
    np.testing.assert_allclose(turned.precision, turn @ change.precision @ turn.T, atol=1e-9)
    np.testing.assert_allclose(turned.shift, turn @ change.shift, atol=1e-9)
    np.testing.assert_allclose(turned.shift_noise, turn @ change.shift_noise @ turn.T, atol=1e-9)
    assert turned.precision_noise == pytest.approx(change.precision_noise)


def test_skewness_is_that_of_a_cubic_term():
    # exp(-z^2 / 2 + b z^3 / 3) has the third cumulant 2 b, to first order
    white = np.random.default_rng(2).standard_normal((100, 2))
    change = site_change(white, -white + [0.05, -0.2] * white**2, np.empty((100, 0)))
    np.testing.assert_allclose(change.skewness, [0.1, -0.4])


def test_noise_is_what_changes_scatter_by():
    rng, runs = np.random.default_rng(3), 2000
    changes = []
    for _ in range(runs):
        white = rng.standard_normal((40, 2))
        noise = rng.standard_normal((40, 2)) * [1.0, 3.0] * (1 + white[:, :1] ** 2)
        changes.append(site_change(white, noise - white, rng.standard_normal((40, 1))))
    shifts = np.array([change.shift for change in changes])
    expected = np.mean([change.shift_noise for change in changes], axis=0)
    # residuals at the points that pull most are too small: to a quarter, beside the noise
    bound = 0.25 + 5 * np.sqrt(2 / runs)
    np.testing.assert_allclose(shifts.var(axis=0), np.diag(expected), rtol=bound)
    squares = np.mean([np.sum(change.precision**2) for change in changes])
    assert squares == pytest.approx(np.mean([c.precision_noise for c in changes]), rel=2 * bound)


def test_draws_that_are_worth_less_have_more_noise():
    rng = np.random.default_rng(4)
    white, scores = rng.standard_normal((2, 60, 3))
    whole, half = (site_change(white, scores, np.empty((60, 0)), worth) for worth in (1.0, 0.5))
    np.testing.assert_allclose(half.shift_noise, 2 * whole.shift_noise)
    np.testing.assert_allclose(half.precision_noise, 2 * whole.precision_noise)
    np.testing.assert_allclose(half.skewness_noise, 2 * whole.skewness_noise)
    np.testing.assert_array_equal(half.shift, whole.shift)


def test_too_few_draws_are_refused():
    rng = np.random.default_rng(5)
    white, scores = rng.standard_normal((2, 8, 5))
    site_change(white, scores, rng.standard_normal((8, 1)))
    with pytest.raises(ValueError, match=r"8 draws are too few .* 8 columns, of 5 .*draw more"):
        site_change(white, scores, rng.standard_normal((8, 2)))


@settings(deadline=None)
@given(SEEDS, SIZES)
def test_sites_sum_to_a_standard_normal_after_every_step(seed, size):
    rng = np.random.default_rng(seed)
    sites = some_sites(rng, size)
    for scale in (0.05, 0.5, 5.0):
        _, sites = take_step(sites, [some_change(rng, size, scale) for _ in sites])
        total = np.sum([site.precision for site in sites], axis=0)
        np.testing.assert_allclose(total, np.eye(size), atol=1e-10)
        shifts = np.array([site.shift for site in sites])
        np.testing.assert_allclose(shifts.sum(axis=0), 0, atol=1e-10 * (1 + np.abs(shifts).max()))


@settings(deadline=None)
@given(SEEDS, SIZES)
def test_a_step_adds_changes_to_natural_parameters(seed, size):
    rng = np.random.default_rng(seed)
    sites = some_sites(rng, size)
    changes = [some_change(rng, size) for _ in sites]
    mean, factor = rng.standard_normal(size), np.tril(rng.standard_normal((size, size)))
    factor[np.diag_indices(size)] = rng.uniform(0.5, 2, size)

    def natural(site, mean, factor):
        """Return precision and shift of a site as those of theta = mean + factor z."""
        inverse = np.linalg.inv(factor)
        precision = inverse.T @ site.precision @ inverse
        return precision, inverse.T @ site.shift + precision @ mean

    step, changed = take_step(sites, changes)
    after = mean + factor @ step.mean, factor @ white_factor(step)
    for site, change, new in zip(sites, changes, changed, strict=True):
        grown = Site(
            site.precision + step.damping * change.precision,
            site.shift + step.damping * change.shift,
        )
        for got, expected in zip(natural(new, *after), natural(grown, mean, factor), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(
        white_factor(step).T @ step.precision @ white_factor(step), np.eye(size), atol=1e-12
    )


def test_lengths_of_a_step_and_their_errors():
    change = some_change(np.random.default_rng(6), 2)._replace(
        precision=np.diag([0.5, -0.5]),
        shift=np.array([3.0, 1.0]),
        shift_noise=np.diag([0.06, 0.02]),
        precision_noise=0.09,
    )
    step = pool_changes(
        [Site(np.eye(2) / 2, np.zeros(2))] * 2,
        [
            change._replace(
                precision=change.precision / 2,
                shift=change.shift / 2,
                shift_noise=change.shift_noise / 2,
                precision_noise=change.precision_noise / 2,
            )
        ]
        * 2,
    )
    assert step.damping == 1
    np.testing.assert_allclose(step.mean, [2.0, 2.0])
    # (2, 2) in the norm of diag(1.5, .5), and the trace of noise in that of its inverse
    assert step.length == pytest.approx(np.sqrt(8))
    assert step.length_error == pytest.approx(np.sqrt(0.06 / 1.5 + 0.02 / 0.5))
    assert (step.change, step.change_error) == pytest.approx((np.sqrt(0.5), 0.3))


def test_the_order_of_batches_does_not_matter():
    rng = np.random.default_rng(7)
    sites = some_sites(rng, 3)
    changes = [some_change(rng, 3, 1.0) for _ in sites]
    step, changed = take_step(sites, changes)
    turned, backwards = take_step(sites[::-1], changes[::-1])
    for one, other in zip(step, turned, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    for one, other in zip(changed, backwards[::-1], strict=True):
        np.testing.assert_allclose(one.precision, other.precision, atol=1e-10)
        np.testing.assert_allclose(one.shift, other.shift, atol=1e-10)


@settings(deadline=None)
@given(SEEDS, SIZES, st.floats(-2, 6))
def test_damping_keeps_precision_and_cavities(seed, size, exponent):
    rng = np.random.default_rng(seed)
    sites = some_sites(rng, size)
    for _ in range(3):
        before = cavities(sites)
        step, sites = take_step(sites, [some_change(rng, size, 10.0**exponent) for _ in sites])
        values = np.linalg.eigvalsh(step.precision)
        assert LEAST < values[0] and values[-1] < MOST
        # measured in the coordinates of the next round
        for least, now in zip(before, cavities(sites), strict=True):
            assert now > min(LEAST_CAVITY, least / 2) - 1e-12
        assert 0 < step.damping <= 1


def test_small_changes_are_not_damped():
    rng = np.random.default_rng(8)
    sites = some_sites(rng, 3)
    step, _ = take_step(sites, [some_change(rng, 3, 0.02) for _ in sites])
    assert step.damping == 1


def test_one_batch_that_alone_can_tell_is_reached_without_standing_still():
    # the others know a thousandth of the second direction, and all is known of the first
    truth = [np.diag([0.5, 0.999]), np.diag([0.5, 0.001])]
    sites = [Site(np.eye(2) / 2, np.zeros(2)) for _ in truth]
    empty = some_change(np.random.default_rng(9), 2)._replace(shift=np.zeros(2))
    for _ in range(15):
        changes = [
            empty._replace(precision=own - site.precision)
            for own, site in zip(truth, sites, strict=True)
        ]
        step, sites = take_step(sites, changes)
        assert min(cavities(sites)) > 0
    assert step.damping == 1
    np.testing.assert_allclose(sites[0].precision, truth[0], atol=1e-9)


def test_a_single_batch_leaves_nothing_to_others():
    site = Site(np.eye(2), np.zeros(2))
    change = some_change(np.random.default_rng(10), 2, 0.1)
    assert pool_changes([site], [change]).damping == 1


def test_changes_that_are_not_finite_are_refused():
    sites = [Site(np.eye(2) / 2, np.zeros(2))] * 2
    change = some_change(np.random.default_rng(11), 2)
    for spoilt in (
        change._replace(precision=np.full((2, 2), np.nan)),
        change._replace(shift=np.array([np.inf, 0])),
    ):
        with pytest.raises(ValueError, match="not finite"):
            pool_changes(sites, [change, spoilt])

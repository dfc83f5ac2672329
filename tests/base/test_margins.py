"""Gaussians with margins of another shape: densities, draws, and what stays Gaussian."""

import numpy as np
import pytest
from scipy.stats import gumbel_l, kstest, norm

from arviz_swiss.base.gaussian import gaussian
from arviz_swiss.base.margins import FOLLOWED, draw_shaped, margin_of, points_along

STEPS = np.arange(-8, 8.1, 0.5)
COVARIANCE = np.array([[4.0, 1.0, -0.3], [1.0, 1.0, 0.2], [-0.3, 0.2, 0.5]])
POOLED = gaussian(np.array([1.0, 2.0, -3.0]), COVARIANCE)
FINE_STEPS = np.arange(-8, 8.01, 0.05)
STANDARD = margin_of(FINE_STEPS, norm.logpdf(FINE_STEPS))


def test_a_line_leads_others_along_as_far_as_draws_tell():
    points = points_along(POOLED, 0, STEPS)
    followed = np.clip(STEPS, -FOLLOWED, FOLLOWED)
    np.testing.assert_allclose(points[:, 0], 1 + 2 * STEPS)
    np.testing.assert_allclose(points[:, 1], 2 + 0.5 * followed)
    np.testing.assert_allclose(points[:, 2], -3 - 0.15 * followed)


def test_a_margin_has_the_mass_of_its_density():
    density = gumbel_l.logpdf
    margin = margin_of(STEPS, density(STEPS) + 40.0)
    np.testing.assert_allclose(margin.below[[0, -1]], [0, 1], atol=1e-12)
    # between the steps it is interpolated
    np.testing.assert_allclose(
        np.interp(STEPS, margin.grid, margin.below), gumbel_l.cdf(STEPS), atol=0.01
    )
    inside = STEPS[np.abs(STEPS) <= 4]
    found = np.interp(inside, margin.grid, margin.log_density)
    np.testing.assert_allclose(found, density(inside), atol=0.02)


def test_tails_go_on_as_they_fall_at_the_last_steps():
    """An exponential tail, as that of a log scale that may be zero, is cut off by no step."""
    margin = margin_of(STEPS, 0.3 * STEPS - np.exp(STEPS))
    tail = np.interp(-20.0, margin.grid, margin.log_density)
    end = np.interp(-8.0, margin.grid, margin.log_density)
    np.testing.assert_allclose(end - tail, 0.3 * 12, rtol=0.01)


def test_normal_margins_change_nothing_within_what_others_follow():
    shaped = draw_shaped(POOLED, {0: STANDARD, 2: STANDARD}, 500, np.random.default_rng(0))
    plain = draw_shaped(POOLED, {}, 500, np.random.default_rng(0))
    near = np.abs((plain.points - POOLED.mean) / np.sqrt(np.diag(COVARIANCE))).max(axis=1) < 2.4
    np.testing.assert_allclose(shaped.points[near], plain.points[near], atol=2e-3)
    np.testing.assert_allclose(shaped.log_density[near], plain.log_density[near], atol=0.02)


@pytest.mark.parametrize("margins", [{0: gumbel_l}, {0: gumbel_l, 2: norm(0.5, 1.3)}])
def test_draws_have_the_margins(margins):
    """Their distribution functions are known: of 4,000 draws they differ by 2 / sqrt(4,000)."""
    shapes = {at: margin_of(STEPS, shape.logpdf(STEPS)) for at, shape in margins.items()}
    points = draw_shaped(POOLED, shapes, 4000, np.random.default_rng(1)).points
    for at, shape in margins.items():
        own = (points[:, at] - POOLED.mean[at]) / np.sqrt(COVARIANCE[at, at])
        assert kstest(own, shape.cdf).statistic < 2 / np.sqrt(4000) + 0.01  # interpolation


def test_densities_are_those_of_the_draws():
    """One parameter is skewed and the other, normal given it, follows: the density is known."""
    pooled = gaussian(np.zeros(2), np.array([[1.0, 0.6], [0.6, 1.0]]))
    margin = margin_of(STEPS, gumbel_l.logpdf(STEPS))
    shaped = draw_shaped(pooled, {0: margin}, 50, np.random.default_rng(2))
    first, second = shaped.points.T
    exact = np.interp(first, margin.grid, margin.log_density) + norm.logpdf(
        second, 0.6 * np.clip(first, -FOLLOWED, FOLLOWED), 0.8
    )
    np.testing.assert_allclose(np.ptp(exact - shaped.log_density), 0, atol=1e-9)

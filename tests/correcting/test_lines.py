"""What the density along a line says of a parameter's mean and sd."""

import numpy as np
import pytest

from arviz_swiss.base.gaussian import gaussian
from arviz_swiss.base.margins import points_along
from arviz_swiss.correcting.lines import (
    STEPS,
    doubtful_positions,
    margins_along,
    points_of_lines,
    reach_along,
)

NONE = np.zeros(STEPS.size)


def test_lines_stand_one_behind_another():
    pooled = gaussian(np.array([1.0, 2.0]), np.array([[4.0, 1.0], [1.0, 1.0]]))
    points = points_of_lines(pooled, [1, 0])
    np.testing.assert_array_equal(
        np.split(points, 2), [points_along(pooled, at, STEPS) for at in (1, 0)]
    )
    assert points_of_lines(pooled, []).shape == (0, 2)


def test_a_gaussian_reaches_as_far_as_its_draws():
    (reach,) = reach_along(["tau"], -(STEPS**2) / 2 + 7, NONE)
    assert reach.parameter == "tau"
    np.testing.assert_allclose(reach[1:], 0, atol=1e-12)


@pytest.mark.parametrize(("mean", "sd"), [(0.5, 1.0), (-0.3, 1.2), (0.0, 0.8)])
def test_other_gaussians_are_found(mean, sd):
    (reach,) = reach_along(["tau"], -(((STEPS - mean) / sd) ** 2) / 2, NONE)
    np.testing.assert_allclose(reach[1:], (mean, sd - 1), atol=0.01)


def test_a_long_tail_is_found_that_has_no_draws():
    """As of a log scale that may be zero: one per cent of a Gaussian's draws are below -2.3."""
    log_density = np.where(STEPS < -2.3, -(2.3**2) / 2 + 0.4 * (STEPS + 2.3), -(STEPS**2) / 2)
    (reach,) = reach_along(["tau"], log_density, NONE)
    assert reach.shift < -0.2 and reach.stretch > 0.4


def test_what_is_not_known_counts_as_its_neighbour():
    """Tails that cannot be integrated do not pass for thin ones; beyond thin ones nothing is."""
    log_density = -(STEPS**2) / 2
    noise = NONE.copy()
    noise[0], log_density[0] = 5.0, 50.0
    log_density[-1] = np.nan
    (reach,) = reach_along(["tau"], log_density, noise)
    np.testing.assert_allclose(reach[1:], 0, atol=1e-6)
    noise[STEPS < -2] = 5.0
    (reach,) = reach_along(["tau"], log_density, noise)
    assert reach.shift < -0.5 and reach.stretch > 0.5
    (reach,) = reach_along(["tau"], log_density, NONE + 5.0)
    assert np.isnan(reach.shift) and np.isnan(reach.stretch)


def test_an_edge_is_known_to_be_one():
    log_density = np.where(STEPS < -1, -np.inf, -(STEPS**2) / 2)
    (reach,) = reach_along(["tau"], log_density, NONE)
    assert reach.shift > 0.15 and reach.stretch < -0.1


def test_lines_are_looked_along_where_skewness_cannot_be_ruled_out():
    skewness, error = np.array([[0.0, 0.1, -0.2, -0.5], [0.1, 0.05, 0.1, 0.01]])
    assert doubtful_positions(skewness, error).tolist() == [2, 3]


def test_margins_are_of_what_is_known_around_the_middle():
    log_density = -(STEPS**2) / 2
    noise = np.where((STEPS < -3) | (STEPS == 7), 5.0, 0.0)
    margins = margins_along([4], log_density, noise)
    assert list(margins) == [4]
    # beyond -3 and 6 tails go on as they fell: by 2.75 and 5.5 a sd
    values = [np.interp(at, margins[4].grid, margins[4].log_density) for at in (-3, -4, 6, 7)]
    np.testing.assert_allclose(
        [values[0] - values[1], values[2] - values[3]], [2.75, 5.5], rtol=0.1
    )
    assert margins_along([4], log_density, NONE + 5.0) == {}

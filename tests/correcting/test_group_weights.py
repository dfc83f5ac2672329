"""Weights of shared parameters, with local variables integrated out, against known posteriors."""

import numpy as np
import pytest
from scipy.stats import norm

from arviz_swiss.base.conditional import Conditional
from arviz_swiss.base.integrals import Place
from arviz_swiss.base.sites import Site
from arviz_swiss.correcting.group_weights import (
    GroupDensity,
    TiltedDraws,
    group_khats,
    group_weights,
)

BATCHES, GROUPS, DRAWS = 3, 8, 600
GRID = np.linspace(-8, 4, 4001)


def density_of(terms, mean=0.0, factor=1.0, apart=None):
    conditional = Conditional(np.zeros(GROUPS), np.zeros((GROUPS, 1)), (np.ones((GROUPS, 1, 1)),))
    place = Place(np.array([mean]), np.array([[factor]]), conditional, [np.arange(GROUPS)[:, None]])
    return GroupDensity(terms, apart or (lambda shared: np.zeros(len(shared))), place)


def levels(y):
    """Return log terms of effects around a shared level, one row each: normal with variance 2."""

    def terms(shared, local):
        return norm.logpdf(local, shared) + norm.logpdf(y, local)

    return terms


def log_prior(shared):
    return norm.logpdf(shared[:, 0], 0, 3)


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).normal(1, 1.4, (BATCHES, GROUPS))


def gaussian_case(rows, seed=1, apart=None):
    """Return batches whose tilted distributions are Gaussian, and their draws at the pooled one."""
    rng = np.random.default_rng(seed)
    # natural parameters of what rows say of the level, whose prior is split among batches
    sites = [(GROUPS / 2 + 1 / 9 / BATCHES, y.sum() / 2) for y in rows]
    precision, shift = np.sum(sites, axis=0)
    mean, factor = shift / precision, precision**-0.5
    densities, draws = [], []
    for y, (own, pull) in zip(rows, sites, strict=True):
        # an outdated site: the tilted distribution is another one, and its draws are moved
        site = Site(np.array([[0.8 * own * factor**2]]), np.array([factor * (pull - own * mean)]))
        tilted = 1 - site.precision[0, 0] + own * factor**2
        original = mean + factor * rng.normal(0, tilted**-0.5, (DRAWS, 1))
        merged = mean + (original - mean) * tilted**0.5
        densities.append(density_of(levels(y), mean, factor, apart))
        draws.append(TiltedDraws(original, merged, site, 1 / BATCHES))
    return densities, draws


def test_draws_of_the_posterior_have_equal_weights(rows):
    weights = group_weights(log_prior, *gaussian_case(rows))
    np.testing.assert_allclose(weights.log_weights, -np.log(BATCHES * DRAWS), atol=1e-7)
    assert weights.khat == 0 and weights.noise < 1e-7
    assert weights.effective_size == pytest.approx(BATCHES * DRAWS)
    np.testing.assert_allclose(weights.shift, 0, atol=1e-7)
    np.testing.assert_allclose(weights.sd_ratio, 1, atol=1e-7)


def test_weights_undo_what_is_wrong_with_a_merge(rows):
    densities, draws = gaussian_case(rows)
    sd = densities[0].place.factor[0, 0]
    wrong = [batch._replace(merged=batch.merged + 0.3 * sd) for batch in draws]
    weights = group_weights(log_prior, densities, wrong)
    merged = np.concatenate([batch.merged for batch in wrong])
    exact = (densities[0].place.mean - merged.mean(axis=0)) / merged.std(axis=0)
    # the mean of weighted draws has the error of those that it is worth
    assert abs(weights.shift - exact) < 4 / np.sqrt(weights.effective_size)
    assert 0 < weights.shift_error < 0.1 and abs(weights.shift) > 4 * weights.shift_error


def test_terms_of_no_group_count(rows):
    def apart(shared):
        return norm.logpdf(2.0, shared[:, 0])

    plain = group_weights(log_prior, *gaussian_case(rows))
    with_apart = group_weights(log_prior, *gaussian_case(rows, apart=apart))
    # the full posterior has all batches', a tilted distribution its own alone
    assert with_apart.effective_size < plain.effective_size - 10


def log_scales(y):
    """Return log terms of effects with a shared scale, and the log of their product's integral."""

    def terms(shared, local):
        return norm.logpdf(local, 0, np.exp(shared)) + norm.logpdf(y, local)

    def exact(points):
        return norm.logpdf(y, 0, np.sqrt(1 + np.exp(2 * points[:, None]))).sum(axis=1)

    return terms, exact


def grid_moments(log_density):
    p = np.exp(log_density - log_density.max())
    p /= p.sum()
    mean = p @ GRID
    return p, mean, np.sqrt(p @ (GRID - mean) ** 2)


def test_a_skewed_scale_is_found_from_any_cavity():
    rng = np.random.default_rng(5)
    rows = rng.normal(0, 2.2, (BATCHES, GROUPS))
    mean, factor = 0.6, 0.25
    densities, draws, log_full = [], [], norm.logpdf(GRID, 0, 3)
    for y in rows:
        terms, exact = log_scales(y)
        log_full = log_full + exact(GRID)
        site = Site(np.array([[0.3]]), np.array([0.1]))
        z = (GRID - mean) / factor
        log_tilted = exact(GRID) + norm.logpdf(GRID, 0, 3) / BATCHES - 0.7 * z**2 / 2 - 0.1 * z
        p, own_mean, own_sd = grid_moments(log_tilted)
        original = np.interp(rng.random(DRAWS), np.cumsum(p), GRID)[:, None]
        densities.append(density_of(terms, mean, factor))
        merged = mean + factor * (original - own_mean) / own_sd
        draws.append(TiltedDraws(original, merged, site, 1 / BATCHES))
    weights = group_weights(log_prior, densities, draws)
    _, true_mean, true_sd = grid_moments(log_full)
    w, merged = np.exp(weights.log_weights), np.concatenate([d.merged for d in draws])[:, 0]
    found = w @ merged
    error = 1 / np.sqrt(weights.effective_size)
    assert weights.khat < 0.5 and weights.effective_size > 500
    assert abs(found - true_mean) < 4 * error * true_sd
    # kurtosis of a skewed distribution widens the error of an sd
    assert abs(np.sqrt(w @ (merged - found) ** 2) / true_sd - 1) < 6 * error / np.sqrt(2)
    np.testing.assert_allclose(weights.shift * merged.std(), found - merged.mean(), atol=1e-9)


def test_khats_tell_of_a_group_whose_tail_no_draw_reaches(rows):
    def heavy(shared, local):
        terms = levels(rows[0])(shared, local)
        # no more than Cauchy's tails, on a Gaussian's curvature
        terms[:, 2] = -np.log1p(local[:, 2] ** 2 / 2) * 0.6
        return terms

    khats = group_khats(density_of(heavy), draws=2000)
    assert khats.shape == (GROUPS,)
    assert khats[2] > 0.7 and np.delete(khats, 2).max() < 0.5

"""Integrals over local variables, against closed forms and quadrature."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import multivariate_normal, norm, t

from arviz_swiss.base import integrals
from arviz_swiss.base.conditional import Conditional
from arviz_swiss.base.integrals import (
    DEGREES,
    Place,
    draw_local,
    log_integrals,
    log_integrals_by_group,
    log_ratios,
    white_draws,
)

GROUPS = 6
ONE_EACH = [np.arange(GROUPS)[:, None]]


def crude_place(families, size):
    """Say of the local variables that they are standard normal, whatever the shared ones are."""
    local = sum(family.size for family in families)
    factors = tuple(np.tile(np.eye(f.shape[1]), (len(f), 1, 1)) for f in families)
    conditional = Conditional(np.zeros(local), np.zeros((local, size)), factors)
    return Place(np.zeros(size), np.eye(size), conditional, families)


def normal_rows(rows=5, seed=0):
    """Return terms of normal rows and effects, shared level and log scale, and their integrals."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(GROUPS, rows))

    def terms(shared, local):
        level, scale = shared[:, :1], np.exp(shared[:, 1:])
        at = (level + local)[..., None]
        return norm.logpdf(local, 0, scale) + norm.logpdf(y, at, 0.7).sum(axis=-1)

    def exact(shared):
        values = [
            [
                multivariate_normal.logpdf(
                    own, np.full(rows, level), 0.49 * np.eye(rows) + np.exp(2 * log_scale)
                )
                for own in y
            ]
            for level, log_scale in shared
        ]
        return np.array(values)

    return terms, exact


def logistic_rows(rows=10, seed=1):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, (GROUPS, rows)) * 2 - 1
    y[0] = 1  # a group whose likelihood has no mode

    def terms(shared, local):
        scale = np.exp(shared[:, 1:])
        at = (shared[:, :1] + local)[..., None]
        return norm.logpdf(local, 0, scale) - np.logaddexp(0, -y * at).sum(axis=-1)

    def exact(shared):
        def integral(level, scale, own):
            def density(u):
                return norm.pdf(u) * np.prod(expit(own * (level + scale * u)))

            return np.log(quad(density, -12, 12, epsabs=0, epsrel=1e-10, limit=200)[0])

        return np.array([[integral(a, np.exp(s), own) for own in y] for a, s in shared])

    return terms, exact


def some_points(count=7, seed=3):
    points = np.random.default_rng(seed).normal(size=(count, 2)) * (1.0, 0.5)
    return np.concatenate([points, [(0.0, -3.0), (0.0, 1.0)]])


def test_normal_rows_are_integrated_exactly():
    terms, exact = normal_rows()
    points = some_points()
    found = log_integrals_by_group(terms, crude_place(ONE_EACH, 2), points)
    np.testing.assert_allclose(found, exact(points), atol=1e-8)


def test_the_sum_of_exact_integrals_has_no_noise():
    terms, exact = normal_rows()
    points = some_points()
    found = log_integrals(terms, crude_place(ONE_EACH, 2), points)
    np.testing.assert_allclose(found.values, exact(points).sum(axis=1), atol=1e-8)
    assert found.noise.max() < 1e-8


def test_groups_of_several_variables_and_families_of_other_sizes():
    rng = np.random.default_rng(2)
    order = rng.permutation(10)
    families = [order[:8].reshape(4, 2)[:, ::-1], order[8:].reshape(2, 1)]
    roots = [rng.normal(size=(len(f), f.shape[1], f.shape[1] + 1)) for f in families]
    pulls = [rng.normal(size=(len(f), f.shape[1])) for f in families]

    def precisions(scale):
        return [np.exp(-scale) * root @ root.transpose(0, 2, 1) for root in roots]

    def terms(shared, local):
        rows = []
        for level, point in zip(shared, local, strict=True):
            row = []
            for precision, pull, family in zip(precisions(level[1]), pulls, families, strict=True):
                away = point[family] - level[0] * pull
                row.append(-np.einsum("gi,gij,gj->g", away, precision, away) / 2)
            rows.append(np.concatenate(row))
        return np.array(rows)

    points = some_points()
    expected = np.array(
        [
            np.concatenate(
                [
                    q.shape[1] * np.log(2 * np.pi) / 2 - np.linalg.slogdet(q)[1] / 2
                    for q in precisions(point[1])
                ]
            )
            for point in points
        ]
    )
    found = log_integrals_by_group(terms, crude_place(families, 2), points)
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_logistic_rows_against_quadrature():
    terms, exact = logistic_rows()
    points = some_points()
    found = log_integrals_by_group(terms, crude_place(ONE_EACH, 2), points, draws=4096)
    # 2 parts of 1024 even draws and their mirrors
    np.testing.assert_allclose(found, exact(points), atol=1 / 2048)


def test_noise_is_what_errors_are():
    terms, exact = logistic_rows()
    points = some_points()
    expected = exact(points).sum(axis=1)
    place = crude_place(ONE_EACH, 2)
    runs = [log_integrals(terms, place, points, seed=seed) for seed in range(40)]
    errors = np.array([run.values - expected for run in runs])
    errors = errors - errors.mean(axis=1, keepdims=True)
    noise = np.sqrt(np.mean([run.noise**2 for run in runs]))
    assert 0 < noise < 0.1  # log weights as noisy lose one draw in a hundred
    # one part's draws are fewer, and spread less evenly, than those of all
    assert 0.3 * noise < np.sqrt(np.mean(errors**2)) < 1.5 * noise


def test_points_side_by_side_have_the_same_noise():
    """A coupling of either sign turns the axes of a width that is nearly round."""
    families = [np.arange(2 * GROUPS).reshape(GROUPS, 2)]

    def terms(shared, local):
        pairs = local[:, families[0]]
        return -2 * np.log(np.cosh(pairs)).sum(axis=2) + shared * pairs.prod(axis=2)

    found = log_integrals(terms, crude_place(families, 1), np.array([[-1e-6], [0.0], [1e-6]]))
    np.testing.assert_allclose(found.values, found.values[1], atol=1e-4)
    assert abs(found.values[1] - GROUPS * 2 * np.log(2)) > 1e-3  # which is not none


def test_chunks_change_nothing(monkeypatch):
    terms, _ = logistic_rows()
    points, place = some_points(), crude_place(ONE_EACH, 2)
    whole = log_integrals(terms, place, points)
    monkeypatch.setattr(integrals, "CHUNK_ELEMENTS", 1)
    for found, expected in zip(log_integrals(terms, place, points), whole, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_density_that_ends_somewhere():
    def terms(shared, local):
        return np.where(local > shared[:, :1], norm.logpdf(local), -np.inf)

    points = np.array([[-0.3], [0.0], [0.5]])
    found = log_integrals_by_group(terms, crude_place(ONE_EACH, 1), points, draws=2**12)
    # the edge lies between two of the even draws of a part and its mirror
    bound = 4 / 2**10 / norm.sf(0.5) * norm.pdf(0) / t.pdf(0, DEGREES)
    np.testing.assert_allclose(found, np.tile(norm.logsf(points), GROUPS), atol=bound)


def test_points_without_density_have_no_integral_and_leave_the_others_alone():
    terms, exact = normal_rows()

    def cut(shared, local):
        return np.where(shared[:, :1] > 5, np.nan, terms(shared, local))

    points = np.array([[0.0, 0.0], [6.0, 0.0], [1.0, 0.0]])
    found = log_integrals(cut, crude_place(ONE_EACH, 2), points)
    assert found.values[1] == -np.inf and found.noise[1] == np.inf
    np.testing.assert_allclose(found.values[[0, 2]], exact(points[[0, 2]]).sum(axis=1), atol=1e-8)
    assert found.noise[[0, 2]].max() < 1e-8


def test_ratios_of_a_gaussian_are_those_of_its_draws():
    terms, exact = normal_rows()
    ratios = log_ratios(terms, crude_place(ONE_EACH, 2), 2000)
    highest = (norm.logpdf(0) - t.logpdf(0, DEGREES)).clip(
        max((norm.logpdf(1) - t.logpdf(1, DEGREES)), 0)
    )
    np.testing.assert_allclose(ratios.max(axis=0) - exact(np.zeros((1, 2)))[0], highest, atol=1e-4)


@pytest.mark.parametrize("count", [8, 32])
def test_draws_of_a_group_are_even_and_mirrored(count):
    rng = np.random.default_rng(4)
    draws = white_draws(count, ONE_EACH, rng)
    half = count // 2
    np.testing.assert_allclose(draws[:half], -draws[half:])
    levels = np.sort(t.cdf(draws[:half], DEGREES), axis=0)
    np.testing.assert_allclose(np.diff(levels, axis=0), 1 / half, atol=1e-9)
    assert np.ptp(levels[0]) > 0  # groups have their own


def test_drawn_local_variables_are_those_of_normal_rows():
    """Means and sds of 6 groups by 4,000 draws, at a scale of 1 and at one of 1e-4."""
    terms, _ = normal_rows()
    rng = np.random.default_rng(0)
    y = rng.normal(size=(GROUPS, 5))  # as normal_rows has them
    for log_scale in (0.0, np.log(1e-4)):
        shared = np.tile([0.3, log_scale], (4000, 1))
        drawn = draw_local(terms, crude_place(ONE_EACH, 2), shared, 16, seed=3)
        precision = np.exp(-2 * log_scale) + 5 / 0.49
        mean, sd = (y - 0.3).sum(axis=1) / 0.49 / precision, precision**-0.5
        # five times the error of a mean, and of an sd, of so many draws
        np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=5 * sd / np.sqrt(4000))
        np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=5 / np.sqrt(2 * 4000) + 0.01)
        # every draw is its own
        assert np.unique(drawn[:, 0]).size == 4000


def test_local_variables_are_drawn_at_their_own_points():
    terms, _ = normal_rows()
    shared = np.column_stack([np.zeros(600), np.repeat([-6.0, 0.0], 300)])
    drawn = draw_local(terms, crude_place(ONE_EACH, 2), shared, 16, seed=3)
    assert np.abs(drawn[:300]).max() < 8 * np.exp(-6.0) < drawn[300:].std()


def test_one_point_far_out_leaves_the_noise_of_others_as_it_is():
    terms, _ = logistic_rows()
    points = np.column_stack([np.zeros(8), np.linspace(-1, 0.5, 8)])
    alone = log_integrals(terms, crude_place(ONE_EACH, 2), points).noise

    def broken(shared, local):
        return terms(shared, local) * np.where(shared[:, :1] > 5, 1e9, 1.0)

    points = np.concatenate([points, [[9.0, 0.0]]])
    found = log_integrals(broken, crude_place(ONE_EACH, 2), points).noise
    # relative to the median of one point more, and not to a mean of 1e9
    assert found[:-1].max() < 3 * alone.max()

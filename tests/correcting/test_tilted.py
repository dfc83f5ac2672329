"""Tilted distributions: exact where all is normal, and unbiased scores where it is not."""

from types import SimpleNamespace

import numpy as np
import pytest
from hierarchies import LogisticGroups, NormalGroups, normal_posterior

from arviz_swiss.base.conditional import NoConditional
from arviz_swiss.base.hmc import NoStart
from arviz_swiss.base.sites import Site, change_site, pool_changes, white_factor
from arviz_swiss.correcting.evaluation import EvaluationFailed
from arviz_swiss.correcting.tilted import Tilt, sample_tilted


def one_round(densities, mean, factor, sites, seed=0, draws=20):
    """Return mean, factor and sites after a round, its step, and the tilted distributions."""
    tilted = [
        sample_tilted(
            density,
            Tilt(mean, factor, site, 1 / len(sites), density.start, 4, 10, draws, seed + batch),
        )
        for batch, (density, site) in enumerate(zip(densities, sites, strict=True))
    ]
    changes = [each.change for each in tilted]
    step = pool_changes(sites, changes)
    sites = [change_site(site, change, step) for site, change in zip(sites, changes, strict=True)]
    return mean + factor @ step.mean, factor @ white_factor(step), sites, step, tilted


def equal_sites(batches, size):
    return [Site(np.eye(size) / batches, np.zeros(size)) for _ in range(batches)]


def some_normal_batches(seed=1, batches=3):
    rng = np.random.default_rng(seed)
    return [NormalGroups(rng, groups=groups) for groups in range(2, 2 + batches)]


@pytest.mark.parametrize("seed", range(3))
def test_one_round_is_exact_for_normal_rows(seed):
    densities = some_normal_batches(seed)
    mean, covariance = normal_posterior(densities)
    rng = np.random.default_rng(seed)
    # from ten sds off, with a covariance that is of no use, but within what is not damped
    factor = np.linalg.cholesky(covariance) @ np.linalg.qr(rng.standard_normal((3, 3)))[0]
    start = mean + 10 * factor @ rng.standard_normal(3)
    after, factor, sites, step, tilted = one_round(
        densities, start, factor * rng.uniform(0.7, 1.5), equal_sites(3, 3), seed
    )
    assert step.damping == 1
    np.testing.assert_allclose(after, mean, atol=1e-8)
    np.testing.assert_allclose(factor @ factor.T, covariance, atol=1e-8)
    # and the round says so
    assert step.length_error < 1e-8 and step.change_error < 1e-8
    for each in tilted:
        np.testing.assert_allclose(each.change.skewness, 0, atol=1e-8)
    after, _, _, step, _ = one_round(densities, after, factor, sites, seed)
    assert step.length < 1e-7 and step.change < 1e-7
    np.testing.assert_allclose(after, mean, atol=1e-8)


def test_rounds_end_at_the_posterior_from_very_far():
    densities = some_normal_batches()
    mean, factor, sites = np.full(3, 100.0), 30 * np.eye(3), equal_sites(3, 3)
    for round_ in range(40):
        mean, factor, sites, step, _ = one_round(densities, mean, factor, sites, round_)
        if step.damping == 1:
            break
    assert 2 < round_ < 39
    expected, covariance = normal_posterior(densities)
    np.testing.assert_allclose(mean, expected, atol=1e-6)
    np.testing.assert_allclose(factor @ factor.T, covariance, atol=1e-8)


def test_sites_are_those_of_the_batches_rows():
    densities = some_normal_batches()
    mean, covariance = normal_posterior(densities)
    factor = np.linalg.cholesky(covariance)
    mean, factor, sites, _, _ = one_round(densities, mean + 1, factor, equal_sites(3, 3))
    for density, site in zip(densities, sites, strict=True):
        precision, shift = density.marginal()
        precision = precision + density.prior_precision / 3
        shift = shift + density.prior_shift / 3
        np.testing.assert_allclose(site.precision, factor.T @ precision @ factor, atol=1e-8)
        np.testing.assert_allclose(site.shift, factor.T @ (shift - precision @ mean), atol=1e-8)


def test_local_variables_have_their_exact_conditional_moments():
    densities = some_normal_batches()
    mean, covariance = normal_posterior(densities)
    factor = np.linalg.cholesky(covariance)
    _, _, _, _, tilted = one_round(densities, mean, factor, equal_sites(3, 3))
    for density, each in zip(densities, tilted, strict=True):
        size = len(mean)
        z, u = each.white[..., :size], each.white[..., size:]
        np.testing.assert_allclose(each.shared, mean + z @ factor.T, atol=1e-12)
        for chain, draw in [(0, 0), (3, 7)]:
            expected, spread = density.conditional(each.shared[chain, draw])
            rest = each.local[chain, draw] - expected
            # what is left is white once it is divided by the exact conditional sds
            for block, group in enumerate(density.families[0]):
                own = each.conditional.factors[0][block]
                np.testing.assert_allclose(own @ own.T, spread[np.ix_(group, group)], atol=1e-8)
                np.testing.assert_allclose(rest[group], own @ u[chain, draw, group], atol=1e-8)


def test_tilted_draws_of_a_right_site_are_standard_normal():
    densities = some_normal_batches()
    mean, covariance = normal_posterior(densities)
    mean, factor, sites, _, _ = one_round(
        densities, mean, np.linalg.cholesky(covariance), equal_sites(3, 3)
    )
    each = one_round(densities, mean, factor, sites, seed=5, draws=1000)[4][0]
    white = each.white.reshape(-1, each.white.shape[-1])
    # 4,000 draws that are worth a fourth of it at least
    assert np.abs(white.mean(axis=0)).max() < 4 / np.sqrt(1000)
    np.testing.assert_allclose(white.var(axis=0), 1, atol=4 * np.sqrt(2 / 1000))
    assert not each.diverging.any() and each.acceptance.mean() > 0.8


def test_linear_maps_of_the_shared_parameters_lead_to_the_same_draws():
    rng = np.random.default_rng(6)
    change, offset = rng.standard_normal((2, 2)), rng.standard_normal(2)
    inverse = np.linalg.inv(change)

    class Mapped(LogisticGroups):
        def score(self, shared, local, prior_power):
            at = (shared - offset) @ inverse.T
            values, by_shared, by_local = super().score(at, local, prior_power)
            return values, by_shared @ inverse, by_local

    plain, mapped = (kind(np.random.default_rng(7)) for kind in (LogisticGroups, Mapped))
    mean, factor = np.array([0.2, -0.3]), np.array([[0.3, 0.0], [0.1, 0.4]])
    site = Site(np.eye(2) / 3, np.array([0.1, -0.2]))
    tilt = Tilt(mean, factor, site, 0.5, plain.start, 4, 5, 20, 3)
    one = sample_tilted(plain, tilt)
    other = sample_tilted(
        mapped, tilt._replace(mean=change @ mean + offset, factor=change @ factor)
    )
    np.testing.assert_allclose(other.white, one.white, atol=1e-6)
    np.testing.assert_allclose(other.shared, one.shared @ change.T + offset, atol=1e-6)
    np.testing.assert_allclose(other.change.precision, one.change.precision, atol=1e-5)
    np.testing.assert_allclose(other.change.shift, one.change.shift, atol=1e-5)


@pytest.mark.parametrize("centred", [True, False])
def test_the_change_is_that_of_the_marginal_by_quadrature(centred):
    # one shared parameter matters: the intercept, with tau pinned down by the cavity
    density = LogisticGroups(np.random.default_rng(8), rows=30, groups=3, centred=centred)
    mean, factor = np.array([0.1, -0.2]), np.diag([0.3, 1e-4])
    site = Site(np.diag([0.5, 0.0]), np.array([0.2, 0.0]))
    tilted = sample_tilted(density, Tilt(mean, factor, site, 0.5, density.start, 8, 50, 500, 1))
    z = np.linspace(-6, 6, 401)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    tau = np.exp(mean[1])
    log = -0.5 * 0.5 * (mean[0] + factor[0, 0] * z) ** 2 - 0.25 * z**2 - 0.2 * z
    for group in range(3):
        rows = density.groups == group
        logits = mean[0] + factor[0, 0] * z[:, None] + tau * nodes
        hits, trials = density.outcomes[rows].sum(), rows.sum()
        log += np.log(np.exp(hits * logits - trials * np.logaddexp(0, logits)) @ weights)
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    slope, level = np.polyfit(z, np.gradient(log, z) + z, 1, w=np.sqrt(mass))
    noise = np.sqrt([tilted.change.shift_noise[0, 0], tilted.change.precision_noise])
    assert abs(tilted.change.shift[0] - level) < 4 * noise[0] + 1e-3
    assert abs(tilted.change.precision[0, 0] + slope) < 4 * noise[1] + 1e-3
    assert noise.max() < 0.03


def test_seeds_tell_the_draws_and_nothing_given_is_changed():
    density = LogisticGroups(np.random.default_rng(9))
    arrays = [np.zeros(2), np.eye(2) / 3, np.eye(2) / 2, np.zeros(2), density.start.copy()]
    before = [array.copy() for array in arrays]
    tilt = Tilt(arrays[0], arrays[1], Site(*arrays[2:4]), 0.5, arrays[4], 4, 5, 10, 3)
    one, same = sample_tilted(density, tilt), sample_tilted(density, tilt)
    other = sample_tilted(density, tilt._replace(seed=4))
    np.testing.assert_array_equal(one.local, same.local)
    assert not np.allclose(one.local, other.local)
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert one.shared.shape == (4, 10, 2) and one.local.shape == (4, 10, 5)


def test_a_batch_without_local_variables():
    class Rows:
        families, start = (), np.empty(0)

        def score(self, shared, local, prior_power):
            assert local.shape == (len(shared), 0)
            return -np.sum((shared - 1) ** 2, axis=1), -2 * (shared - 1), local

    sites = equal_sites(2, 2)
    mean, factor, _, _, tilted = one_round([Rows(), Rows()], np.zeros(2), np.eye(2), sites)
    np.testing.assert_allclose(mean, 1, atol=1e-8)
    np.testing.assert_allclose(factor @ factor.T, np.eye(2) / 4, atol=1e-8)
    assert tilted[0].local.shape == (4, 20, 0)


def test_batches_without_a_mode_or_a_start_say_so():
    density = LogisticGroups(np.random.default_rng(10))
    site = Site(np.eye(2) / 2, np.zeros(2))
    tilt = Tilt(np.array([0.0, -800.0]), np.eye(2), site, 0.5, density.start, 4, 5, 10, 3)
    with np.errstate(all="ignore"), pytest.raises(NoConditional, match="not finite"):
        sample_tilted(density, tilt)
    wide = np.diag([1.0, 3000.0])
    with np.errstate(all="ignore"), pytest.raises((NoStart, NoConditional), match="not finite"):
        sample_tilted(density, tilt._replace(mean=np.zeros(2), factor=wide))


class Walled:
    """A standard normal parameter, with no way back from below a wall."""

    families, start = (), np.empty(0)

    def __init__(self, wall):
        self.wall = wall

    def score(self, shared, local, prior_power):
        inside = shared[:, 0] > self.wall
        values = np.where(inside, -np.sum(shared**2, axis=1) / 2, -1e6)
        return values, np.where(inside[:, None], -shared, np.nan), local


def test_a_chain_that_cannot_move_is_begun_anew_where_others_are():
    # one chain begins below the wall, and all share their step size
    tilt = Tilt(np.zeros(2), np.eye(2), Site(np.eye(2), np.zeros(2)), 1.0, None, 8, 20, 30, 0)
    starts = np.random.default_rng(tilt.seed).standard_normal((8, 2))[:, 0]
    wall = np.sort(starts)[:2].mean()
    tilted = sample_tilted(Walled(wall), tilt)
    assert (tilted.shared[..., 0] > wall).all()
    assert tilted.step_size > 0.1


def test_chains_of_which_none_moves_are_refused():
    tilt = Tilt(np.zeros(2), np.eye(2), Site(np.eye(2), np.zeros(2)), 1.0, None, 4, 5, 10, 0)
    with pytest.raises(NoStart, match="no chain moves"):
        sample_tilted(Walled(100.0), tilt)
    with pytest.raises(EvaluationFailed, match=r'batch "b7".*no chain moves\. Use fewer'):
        tilt.answer(SimpleNamespace(density=Walled(100.0)), "b7")

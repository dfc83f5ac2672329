"""Rounds of expectation propagation over densities whose posterior is known."""

import numpy as np
import pytest
from hierarchies import LogisticGroups, NormalGroups, normal_posterior

from arviz_swiss.base.gaussian import gaussian
from arviz_swiss.base.sites import Change
from arviz_swiss.correcting import ep_rounds
from arviz_swiss.correcting.ep_rounds import Effort, propagate
from arviz_swiss.correcting.tilted import Tilted, sample_tilted
from arviz_swiss.data.progress import Bar

EFFORT = Effort(chains=4, tune=10, draws=40, rounds=8)


def normal_batches(batches=3, seed=1):
    rng = np.random.default_rng(seed)
    return {f"b{at}": NormalGroups(rng, groups=2 + at) for at in range(batches)}


def run(densities, start, effort=EFFORT, shares=None, seed=0):
    """Return what the rounds end with, and the tilts that each was asked for."""
    asked = []

    def sample(tilts):
        asked.append(tilts)
        return {label: sample_tilted(densities[label], tilt) for label, tilt in tilts.items()}

    shares = shares or dict.fromkeys(densities, 1 / len(densities))
    rng = np.random.default_rng(seed)
    return propagate(sample, start, shares, effort, rng, Bar("")), asked


def near(densities, distance=1.0):
    """Return a Gaussian a few posterior sds off, and wider than the posterior."""
    mean, covariance = normal_posterior(list(densities.values()))
    return gaussian(mean + distance * np.sqrt(np.diag(covariance)), 1.5 * covariance)


def assert_exact(propagated, densities, tolerance=1e-7):
    mean, covariance = normal_posterior(list(densities.values()))
    last = propagated.history[-1].moments
    np.testing.assert_allclose(last.mean, mean, atol=tolerance)
    np.testing.assert_allclose(last.covariance, covariance, atol=tolerance)
    np.testing.assert_allclose(propagated.factor @ propagated.factor.T, covariance, atol=tolerance)


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_normal_batches_end_at_the_exact_posterior(batches):
    densities = normal_batches(batches)
    propagated, asked = run(densities, near(densities))
    assert_exact(propagated, densities)
    # one round leads there, rough as it is; two more see that nothing changes at full length
    assert len(asked) == len(propagated.history) <= 3
    sites = propagated.sites.values()
    np.testing.assert_allclose(sum(site.precision for site in sites), np.eye(3), atol=1e-8)
    np.testing.assert_allclose(sum(site.shift for site in sites), 0, atol=1e-8)
    np.testing.assert_allclose(propagated.skewness, 0, atol=1e-8)


def test_one_batch_has_no_others():
    densities = normal_batches(1)
    propagated, asked = run(densities, near(densities))
    for tilts in asked:
        np.testing.assert_allclose(tilts["b0"].site.precision, np.eye(3), atol=1e-8)
    np.testing.assert_allclose(propagated.sites["b0"].precision, np.eye(3), atol=1e-8)


def test_shares_of_the_prior_are_each_batchs_own():
    densities = normal_batches()
    shares = {"b0": 0.6, "b1": 0.3, "b2": 0.1}
    propagated, asked = run(densities, near(densities), shares=shares)
    assert_exact(propagated, densities)
    assert {label: tilt.prior_power for label, tilt in asked[0].items()} == shares
    np.testing.assert_allclose(asked[0]["b1"].site.precision, 0.3 * np.eye(3))


def test_the_order_of_batches_does_not_matter():
    densities = normal_batches()
    turned = {label: densities[label] for label in ("b2", "b0", "b1")}
    for each in (densities, turned):
        assert_exact(run(each, near(densities))[0], densities)
    one, other = (run(each, near(densities))[0] for each in (densities, turned))
    for label in densities:
        factors = one.factor, other.factor
        # sites in the parameters' own coordinates: white ones are told up to a rotation
        own = [
            np.linalg.inv(f).T @ each.sites[label].precision @ np.linalg.inv(f)
            for f, each in zip(factors, (one, other), strict=True)
        ]
        np.testing.assert_allclose(*own, atol=1e-7)


def test_rounds_are_rough_until_the_posterior_is_near():
    densities = normal_batches()
    effort = EFFORT._replace(draws=100)
    _, asked = run(densities, near(densities, distance=30), effort)
    lengths = [tilts["b0"].draws for tilts in asked]
    assert lengths[0] == ep_rounds.ROUGH // effort.chains
    assert lengths == sorted(lengths) and lengths[-1] == 100
    # no longer than asked for, however rough
    _, asked = run(densities, near(densities), effort._replace(draws=20))
    assert [tilts["b0"].draws for tilts in asked] == [20] * len(asked)


def test_each_round_begins_where_the_last_ended():
    densities = {f"b{at}": LogisticGroups(np.random.default_rng(at), rows=30) for at in range(3)}
    propagated, asked = run(densities, gaussian(np.zeros(2), 0.2 * np.eye(2)))
    for before, tilts in zip(propagated.history[:-1], asked[1:], strict=True):
        for tilt in tilts.values():
            np.testing.assert_allclose(tilt.mean, before.moments.mean)
            np.testing.assert_allclose(tilt.factor @ tilt.factor.T, before.moments.covariance)
            assert tilt.start is not None
    assert asked[-1] is propagated.tilts
    seeds = {tilt.seed for tilts in asked for tilt in tilts.values()}
    assert len(seeds) == 3 * len(asked)


def told(precision=0.0, shift=0.0, noise=0.0, precision_noise=0.0):
    """Return what a batch of one shared parameter answers, whatever it is asked."""
    one = np.ones((1, 1))
    noises = noise**2 * one, precision_noise**2
    change = Change(precision * one, shift * one[0], *noises, one[0], one[0])
    conditional = type("Conditional", (), {"centre": np.zeros(0)})()
    return Tilted(*[None] * 3, conditional, change, *[None] * 4)


def answering(answers, effort):
    """Run rounds whose answers are known, with one answer a round for both batches."""
    asked = []

    def sample(tilts):
        asked.append(tilts["b0"].draws)
        answer = answers[min(len(asked), len(answers)) - 1]
        return dict.fromkeys(tilts, answer)

    start = gaussian(np.zeros(1), np.eye(1))
    shares = {"b0": 0.5, "b1": 0.5}
    return propagate(sample, start, shares, effort, np.random.default_rng(0), Bar("")), asked


LONG = Effort(chains=8, tune=20, draws=100, rounds=6)


def test_rounds_stop_once_changes_are_noise():
    small = told(shift=0.01, noise=0.01)
    propagated, asked = answering([told(shift=2.0, noise=0.01), small], LONG)
    # a rough one, one that is short enough, and one of full length
    assert asked == [15, 15, 100]
    assert propagated.history[0].step == pytest.approx(4)


def test_rounds_do_not_stop_on_a_damped_step():
    # each batch asks for a tenfold precision: what is taken of it is no more than its noise
    damped = told(precision=10.0, precision_noise=30.0)
    propagated, asked = answering([damped], LONG._replace(draws=10))
    assert len(asked) == LONG.rounds
    assert all(each.unlimited[-1] > each.eigenvalues[-1] for each in propagated.history)


def test_more_draws_where_the_error_asks_for_them():
    noisy = told(noise=0.2)
    _, asked = answering([noisy], LONG)
    error = 0.2 * np.sqrt(2)
    more = min((error / ep_rounds.STEP_ERROR) ** 2, ep_rounds.MORE)
    assert asked[:2] == [15, 100]
    assert asked[2] == np.ceil(100 * more)
    # and no more than asked for, where it does not
    quiet = told(shift=0.1, noise=0.01)
    _, asked = answering([quiet], LONG)
    assert asked == [15] + [100] * (LONG.rounds - 1)


def test_skewness_is_the_sum_over_batches():
    propagated, _ = answering([told()], LONG)
    np.testing.assert_allclose(propagated.skewness, 2)
    np.testing.assert_allclose(propagated.skewness_error, np.sqrt(2))

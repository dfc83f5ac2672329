"""Chains that move together: exact properties of trajectories, and moments within their noise."""

import numpy as np
import pytest

from arviz_swiss.base.effective import effective_sizes
from arviz_swiss.base.hmc import _follow, _State, first_step_size, sample_chains


def normal(x):
    return -np.sum(x**2, axis=1) / 2, -x


# Digamma of 5, and the root of its trigamma.
MEAN, SD = 1.5061177, 0.4704478


def log_gamma(z):
    """Return the density of the logarithm of a Gamma variable of shape 5, standardised."""
    x = MEAN + SD * z
    return np.sum(5 * x - np.exp(x), axis=1), SD * (5 - np.exp(x))


def quartic(x):
    return -np.sum(x**4 + x**2, axis=1), -(4 * x**3 + 2 * x)


def begin(log_density, rng, chains=6, size=3):
    points = rng.standard_normal((chains, size))
    return _State(points, *log_density(points)), rng.standard_normal((chains, size))


@pytest.mark.parametrize("log_density", [normal, log_gamma, quartic])
def test_trajectories_lead_back(log_density):
    state, momenta = begin(log_density, np.random.default_rng(0))
    end, final = _follow(log_density, state, momenta, 0.1, 15)
    back, initial = _follow(log_density, end, -final, 0.1, 15)
    np.testing.assert_allclose(back.points, state.points, atol=1e-10)
    np.testing.assert_allclose(-initial, momenta, atol=1e-10)
    assert not np.allclose(end.points, state.points)


@pytest.mark.parametrize("log_density", [normal, log_gamma, quartic])
def test_energy_errors_fall_as_the_square_of_the_step(log_density):
    state, momenta = begin(log_density, np.random.default_rng(1))
    before = np.sum(momenta**2, axis=1) / 2 - state.values
    errors = []
    for step in (0.02, 0.01):
        end, final = _follow(log_density, state, momenta, step, round(1 / step))
        errors.append(np.abs(np.sum(final**2, axis=1) / 2 - end.values - before).max())
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize("size", [1, 4, 28, 100, 400])
def test_the_first_step_is_accepted_four_times_in_five(size):
    rng = np.random.default_rng(size)
    chains = sample_chains(
        normal, rng.standard_normal((20, size)), tune=0, draws=50, rng=rng, target_accept=0.8
    )
    assert chains.step_size == first_step_size(size)
    assert chains.acceptance.mean() == pytest.approx(0.8, abs=0.12)


@pytest.mark.parametrize("tune", [0, 40])
@pytest.mark.parametrize("log_density", [normal, log_gamma])
def test_moments_are_right(log_density, tune):
    rng = np.random.default_rng(3)
    start = rng.standard_normal((8, 4))
    chains = sample_chains(log_density, start, tune=tune, draws=400, rng=rng)
    for series, expected in ((chains.draws, 0.0), (chains.draws**2, 1.0)):
        errors = series.std(axis=(0, 1)) / np.sqrt(effective_sizes(series))
        # 32 comparisons in all; effective sizes are uncertain by some percent themselves
        np.testing.assert_array_less(np.abs(series.mean(axis=(0, 1)) - expected), 4.5 * errors)
    assert effective_sizes(chains.draws).min() > 800


def test_the_step_adapts_to_narrow_targets():
    def narrow(x):
        values, gradients = normal(x / 0.01)
        return values, gradients / 0.01

    rng = np.random.default_rng(4)
    chains = sample_chains(
        narrow, 0.01 * rng.standard_normal((4, 5)), tune=60, draws=60, rng=rng, target_accept=0.8
    )
    assert 0.6 < chains.acceptance.mean() < 0.97
    assert chains.step_size < 0.03


@pytest.mark.parametrize("outside", [-np.inf, np.nan, np.inf])
def test_points_without_a_density_are_never_accepted(outside):
    def half(x):
        values, gradients = normal(x)
        is_out = x[:, 0] < 0
        return np.where(is_out, outside, values), np.where(is_out[:, None], np.nan, gradients)

    rng = np.random.default_rng(5)
    chains = sample_chains(half, np.abs(rng.standard_normal((4, 2))), tune=20, draws=100, rng=rng)
    assert (chains.draws[..., 0] > 0).all()
    assert np.isfinite(chains.draws).all()
    assert np.isfinite(chains.log_density).all()
    assert np.isfinite(chains.energy).all()
    # what was rejected for that is what a divergence is
    assert chains.diverging.any()
    assert (chains.acceptance[chains.diverging] == 0).all()


def test_draws_carry_their_own_density():
    rng = np.random.default_rng(6)
    chains = sample_chains(log_gamma, np.ones((3, 2)), tune=10, draws=30, rng=rng)
    assert chains.draws.shape == (3, 30, 2)
    values, _ = log_gamma(chains.draws.reshape(-1, 2))
    np.testing.assert_allclose(chains.log_density.ravel(), values)
    for array in (chains.acceptance, chains.energy, chains.diverging):
        assert array.shape == (3, 30)
    assert chains.steps.shape == (30,)
    # the energy is that of the draw: its momentum is not less than nothing
    assert (chains.energy >= -chains.log_density - 1e-12).all()


def test_the_same_generator_gives_the_same_draws():
    def run(seed):
        rng = np.random.default_rng(seed)
        return sample_chains(normal, np.zeros((2, 3)), tune=10, draws=20, rng=rng).draws

    np.testing.assert_array_equal(run(1), run(1))
    assert not np.array_equal(run(1), run(2))


def test_chains_must_begin_inside():
    def nowhere(x):
        return np.full(len(x), -np.inf), np.zeros_like(x)

    with pytest.raises(ValueError, match="not finite where the chains begin"):
        sample_chains(nowhere, np.zeros((2, 1)), tune=1, draws=1, rng=np.random.default_rng(0))

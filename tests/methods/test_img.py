import numpy as np
import pytest

from arviz_swiss.methods import img


def test_walks_reach_a_product_far_from_the_average():
    # the plain average of draws has mean .375, the product 6 / 7; one run's mean has a standard
    # error of about .06, and walks that are not resampled end at .77
    rng, means = np.random.default_rng(23), []
    for _ in range(16):
        draws = rng.normal(size=(4, 2000, 1))
        draws[0] = 1.5 + 0.5 * draws[0]
        no_start = np.zeros((4, 2000)), np.zeros(1)
        means.append(img.sample(draws, *no_start, 0.3, 2000, 60, rng).draws.mean())
    assert abs(np.mean(means) - 6 / 7) < 4 * 0.06 / np.sqrt(16)


@pytest.mark.parametrize("gaussian_start", [True, False])
def test_compiled_and_plain_loops_agree(gaussian_start):
    draws = np.random.default_rng(16).normal(size=(3, 300, 2))
    logs = -0.5 * np.sum(draws**2, axis=-1) * gaussian_start
    precision = np.array([3.0, 2.0]) * gaussian_start
    plain, compiled = (
        img.sample(draws, logs, precision, 1.0, 300, 40, np.random.default_rng(1), compiled=choice)
        for choice in (False, True)
    )
    np.testing.assert_allclose(plain.draws, compiled.draws, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(plain.used, compiled.used)


def test_walks_say_on_how_many_draws_they_rest():
    rng = np.random.default_rng(24)
    walks = img.sample(
        rng.normal(size=(3, 500, 1)), np.zeros((3, 500)), np.zeros(1), 1.0, 400, 40, rng
    )
    assert walks.used.shape == (3,)
    assert np.all((walks.used > 50) & (walks.used <= 400))

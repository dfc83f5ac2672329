import numpy as np
import pytest

from arviz_swiss.base.seeds import generator, integer_seed


@pytest.mark.parametrize("seed", [3, np.int64(3), np.random.SeedSequence(3), np.random.PCG64(3)])
def test_what_numpy_takes_is_a_seed(seed):
    assert generator(seed).random() == np.random.default_rng(3).random()


def test_a_generator_is_used_and_not_copied():
    rng = np.random.default_rng(0)
    assert generator(rng) is rng
    assert generator(None).random() != generator(None).random()


@pytest.mark.parametrize("seed", [True, np.False_, -1, 1.5, "seed"])
def test_anything_else_is_refused(seed):
    with pytest.raises(ValueError, match="random_seed must be an integer of at least 0"):
        generator(seed)
    with pytest.raises(ValueError, match="random_seed must be an integer of at least 0"):
        integer_seed(seed)


def test_integer_seeds():
    assert integer_seed(np.int64(3)) == 3
    assert integer_seed(10**30) == 10**30
    assert integer_seed(None) is None
    first, second = (integer_seed(np.random.default_rng(seed)) for seed in (1, 1))
    assert first == second != integer_seed(np.random.default_rng(2))

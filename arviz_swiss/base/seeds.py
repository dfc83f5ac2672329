"""Random generators from what a user gives as `random_seed`."""

import numbers
from typing import Any

import numpy as np


def generator(random_seed: Any) -> np.random.Generator:
    """Return NumPy's generator of an integer, a Generator or None; ValueError for anything else."""
    try:
        if isinstance(random_seed, bool | np.bool_):
            raise TypeError("a bool is no seed")
        is_integer = isinstance(random_seed, numbers.Integral)
        return np.random.default_rng(int(random_seed) if is_integer else random_seed)
    except (TypeError, ValueError) as error:
        wanted = "an integer of at least 0, a Generator or None"
        raise ValueError(f"random_seed must be {wanted}, got {random_seed!r}.") from error


def integer_seed(random_seed: Any) -> int | None:
    """Return a seed as an integer, drawn from a Generator; None stays, for whoever draws one."""
    rng = generator(random_seed)
    if random_seed is None:
        return None
    is_integer = isinstance(random_seed, numbers.Integral)
    return int(random_seed) if is_integer else int(rng.integers(2**63))

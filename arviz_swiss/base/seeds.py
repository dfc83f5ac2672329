"""Random generators from what a user gives as `random_seed`."""

import numbers
from typing import Any

import numpy as np


def generator(random_seed: Any) -> np.random.Generator:
    """Return NumPy's generator of an integer, a Generator or None; ValueError for anything else."""
    refused = "random_seed must be an integer of at least 0, a Generator or None, got "
    if isinstance(random_seed, bool | np.bool_):
        raise ValueError(f"{refused}{random_seed!r}.")
    if isinstance(random_seed, numbers.Integral):
        random_seed = int(random_seed)
    try:
        return np.random.default_rng(random_seed)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{refused}{random_seed!r}.") from error

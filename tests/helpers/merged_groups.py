"""What tests read of a merged object, and batches with labels."""

import numpy as np
import xarray as xr

from arviz_swiss.data import containers


def groups_of(container):
    return containers.read(container).groups


def group(merged, name="posterior"):
    return groups_of(merged)[name]


def rows(merged, name="theta"):
    values = group(merged)[name].values
    return values.reshape(-1, int(np.prod(values.shape[2:], dtype=int)))


def labelled(values, terms, chains=2):
    """Return draws of `beta` along `term`, and of a `mu` that is no linear function of it."""
    coords = {"chain": np.arange(chains), "draw": np.arange(values.shape[1]), "term": list(terms)}
    return xr.Dataset(
        {
            "beta": (("chain", "draw", "term"), values),
            "mu": (("chain", "draw"), values[..., 0] ** 3),
        },
        coords=coords,
    )

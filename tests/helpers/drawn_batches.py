"""Batches to draw: a labelled vector and a positive variable; one batch may be odd."""

import warnings

import numpy as np
import xarray as xr

import arviz_swiss as az_swiss


def make_batches(count, odd=None, draws=100):
    rng = np.random.default_rng(count)
    batches = {}
    for b in range(count):
        values = rng.standard_normal((2, draws, 2)) @ [[1.0, 0.5], [0.0, 1.0]]
        values += np.sqrt(count) * rng.standard_normal(2) + (200 if b == odd else 0)
        batches[f"b{b}"] = xr.Dataset(
            {
                "beta": (("chain", "draw", "side"), values),
                "sigma": (("chain", "draw"), np.exp(0.1 * rng.standard_normal((2, draws)))),
            },
            coords={"side": ["left", "right"]},
        )
    return batches


def make_merged(count, odd=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        return az_swiss.merge(
            make_batches(count, odd), transforms={"sigma": "log"}, kind="inflated", **options
        )

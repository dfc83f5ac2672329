"""Gaussian batches as both kinds of sub-posteriors, and the draws of a merge as arrays."""

import numpy as np
import xarray as xr


def theta(merged):
    return merged["posterior"]["theta"].values


def rows(merged):
    values = theta(merged)
    return values.reshape(-1, values.shape[-1])


def tempered(draws, **attrs):
    """Return one batch that says how it was sampled."""
    return xr.Dataset({"theta": (("chain", "draw", "k"), draws)}, attrs=attrs)


def both_kinds(batches, powers):
    """Return Gaussian batches as inflated sub-posteriors, and the fractionated ones they imply."""
    inflated, fractionated = [], []
    for batch, power in zip(batches, powers, strict=True):
        draws = batch["theta"]
        mean = draws.mean(axis=(0, 1))
        inflated.append(tempered(draws, swiss_kind="inflated", swiss_power=power))
        fractionated.append(
            tempered(
                mean + np.sqrt(power) * (draws - mean),
                swiss_kind="fractionated",
                swiss_power=1.0,
                swiss_prior_power=1.0 / power,
            )
        )
    return inflated, fractionated

"""Draws of the product of the batches' densities, made from their draws and log densities."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.data import schema
from arviz_swiss.data.containers import SAMPLE_DIMS
from arviz_swiss.data.messages import brief
from arviz_swiss.data.progress import Bar
from arviz_swiss.merging.batches import Batch
from arviz_swiss.merging.combine import (
    Draws,
    combining,
    common_rows,
    common_sizes,
    with_constants,
)
from arviz_swiss.merging.labels import by_batch
from arviz_swiss.merging.powers import Powers
from arviz_swiss.merging.shared_steps import Flat
from arviz_swiss.methods.density_product import Product
from arviz_swiss.methods.registry import Method

# How samplers call the log density that they sample.
STATISTICS = ("lp", "logp", "model_logp")
REMEDY = (
    'Pass log_densities=, as from arviz_swiss.log_densities(merged, models), or use method="swiss".'
)


def check_wanted(recipe: Method, log_densities: Any) -> None:
    """Refuse log densities that the method does not use."""
    if log_densities is not None and recipe.makes != "product":
        raise TypeError(
            f'method "{recipe.name}" does not use log_densities: it merges draws alone. Leave them '
            'out, or use method="gaussian_process".'
        )


def find_log_densities(flat: Flat, given: Any) -> np.ndarray:
    """Return (batch, chain, draw) log densities of the draws that are merged."""
    batches = flat.matched.batches
    if local := flat.matched.local:
        raise ValueError(
            f'method "gaussian_process" merges batches that share all variables; {brief(local)} '
            "are of one batch alone: what its draws have is the density of all together, not that "
            'of the shared ones. Use method="swiss" and refine.'
        )
    labels = [batch.label for batch in batches]
    own = [None] * len(batches)
    if given is not None:
        own = by_batch(given, labels, "log_densities", "array", "the batches")
    chains, length = common_sizes(batches, quiet=True)
    values = np.empty((len(batches), chains, length))
    for row, batch, array in zip(values, batches, own, strict=True):
        row[...] = _of_batch(batch, array, (chains, length))
    return values


def _of_batch(batch: Batch, given: Any, sizes: tuple[int, int]) -> np.ndarray:
    """Return the log densities of one batch, of as many chains and draws as are merged."""
    if given is None:
        stats: Mapping[Any, Any] = batch.groups.get(schema.SAMPLE_STATS, {})
        name = next((name for name in STATISTICS if name in stats), None)
        if name is None:
            raise ValueError(
                f"{batch}: its draws come without their log densities, which method "
                f'"gaussian_process" interpolates: sample_stats has no {" or ".join(STATISTICS)}. '
                f"{REMEDY}"
            )
        given = stats[name]
    if isinstance(given, xr.DataArray):
        given = given.transpose(*SAMPLE_DIMS)
    values = np.asarray(given, float)
    # a merge keeps the first draws of each chain, of which alone they may be known
    if (
        values.ndim != 2
        or not (sizes[1] <= values.shape[1] <= batch.sizes[1])
        or (values.shape[0] != batch.sizes[0])
    ):
        raise ValueError(
            f"{batch}: log densities have the shape {values.shape}, its draws (chain, draw) "
            f"{batch.sizes}. Pass one for each draw."
        )
    values = values[: sizes[0], : sizes[1]]
    if not np.isfinite(values).all():
        raise ValueError(
            f"{batch}: {np.sum(~np.isfinite(values))} of its log densities are not finite, though "
            "they are of its own draws. Pass those that the batch was sampled from."
        )
    return values


def make_product(
    flat: Flat,
    powers: Powers,
    log_densities: np.ndarray,
    make: Callable[..., Product],
    bar: Bar,
) -> tuple[Draws, xr.Dataset]:
    """Return draws of the product, and the group that tells its density at each of them.

    Log densities over the batches' powers add up to that of the full posterior.
    """
    batches: Sequence[Batch] = flat.matched.batches
    labels = [batch.label for batch in batches]
    rows = common_rows(batches, flat.frame, bar)
    with combining(bar):
        product = make(
            draws=rows, log_densities=log_densities, shares=powers.weights, labels=labels
        )
    meanings = schema.VARIABLES[schema.PRODUCT]
    data = {
        "log_density": (SAMPLE_DIMS, product.log_density),
        "fit_error": ("batch_label", product.error),
    }
    chains, length = product.log_density.shape
    return with_constants(product.draws, batches, flat.frame), xr.Dataset(
        {name: (*each, {"description": meanings[name]}) for name, each in data.items()},
        coords={
            "chain": np.arange(chains),
            "draw": np.arange(length),
            "batch_label": np.array(labels),
        },
    )

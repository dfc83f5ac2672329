"""What the batches' own draws tell about a merge: convergence, and shape."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.base import linalg
from arviz_swiss.base.bias import skewness_error
from arviz_swiss.base.distances import (
    areas,
    densities,
    excess_kurtosis,
    integrated_absolute_floor,
    skewness,
    valleys,
)
from arviz_swiss.base.effective import rhat_limits
from arviz_swiss.base.linalg import AffineMap
from arviz_swiss.data import schema
from arviz_swiss.data.statistics import convergence, nested_rhat
from arviz_swiss.merging.merged import Merged
from arviz_swiss.merging.powers import TILTED

# Less does no harm to a merge, however certain.
RHAT = 1.05
# Chance that any of all parameters and batches exceeds its limit though all chains converged.
FALSE_ALARM = 0.01
# Effective draws that a batch's moments need: so many, and so many a parameter. What `sample` draws
# of a batch that will be refined is the sum of both.
FEW_EFFECTIVE, FEW_A_PARAMETER = 100, 5
STUCK = 1e-3
VALLEY = 0.3
# In so many parts all parameters' draws are held, and the batches gone through.
PASSES = 4

DESCRIPTIONS = {
    "rhat": "rank-normalised split R-hat of the batch's own chains",
    "rhat_limit": "largest R-hat that chance allows, with so few effective draws; 1.05 at least",
    "ess_bulk": "bulk effective sample size of the batch's own draws",
    "ess_tail": "tail effective sample size of the batch's own draws",
    "ess_within": "effective size of the batch's own draws by autocorrelation within chains alone",
    "divergences": "divergent transitions",
    "width": "batch sd over the median batch's, as if all had the same power of the prior",
    "skewness": "skewness of the batch's own draws",
    "least": "smallest of the batch's own draws",
    "greatest": "largest of the batch's own draws",
    "kurtosis": "excess kurtosis of the batch's own draws",
    "valley": "depth of the deepest valley between two modes, as a share of the lower mode",
    "shape": "integrated absolute distance of the marginal, mapped by SwISS, from the others'",
    "shape_noise": "what shape is on average by chance",
    "rhat_nested": "nested R-hat of the batches' own draws, each batch a superchain",
    "skewness_error": "order of the merged mean's error in posterior sds, by third moments",
}


def draw_statistics(merged: Merged) -> xr.Dataset:
    """Return the merge's diagnostics and, unless draws were newly made, what the draws tell."""
    if not merged.is_moved:
        return merged.diagnostics.copy()
    positions = range(len(merged.labels))
    by_batch = [_of_batch(merged.before(position), len(positions)) for position in positions]
    values: dict[str, Any] = {
        name: np.array([batch[name] for batch in by_batch]) for name in by_batch[0]
    }
    values["width"] = widths(merged.maps)
    rows = (merged.before(position).reshape(-1, merged.free.size) for position in positions)
    powers = merged.maps["power"].values
    values["skewness_error"] = skewness_error(rows, merged.batch_moments, merged.pooled, powers)
    values["shape"], values["shape_noise"] = _shape(merged, values)
    stats = merged.groups.get(schema.SAMPLE_STATS, {})
    if "diverging" in stats:
        counts = stats["diverging"].sum("draw").values
        values["divergences"] = np.array([counts[merged.chains_of(b)].sum() for b in positions])
    dims = ((), ("batch",), ("batch", "parameter"))
    shaped = {name: (dims[np.ndim(array)], array) for name, array in values.items()}
    if (nested := _nested_rhat(merged)) is not None:
        shaped["rhat_nested"] = (("parameter",), nested)
    return merged.diagnostics.assign(
        {k: (*shape, {"description": DESCRIPTIONS[k]}) for k, shape in shaped.items()}
    )


def _nested_rhat(merged: Merged) -> np.ndarray | None:
    """Return the nested R-hat of batches that were all sampled from about the full posterior.

    Only tilted ones were. Others differ by what their rows say, by far and rightly, which Q is
    about; and merged draws agree in mean and covariance by construction.
    """
    if merged.kind != TILTED:
        return None
    own = [merged.before(position) for position in range(len(merged.labels))]
    superchains = np.repeat(np.arange(len(own)), [len(draws) for draws in own])
    return nested_rhat(np.concatenate(own), superchains)


def _of_batch(draws: np.ndarray, batches: int) -> dict[str, np.ndarray]:
    """Return the statistics of one of so many batches, by its (chain, draw, parameter) draws."""
    chains, length, parameters = draws.shape
    rows = draws.reshape(-1, parameters)
    rhat, bulk, tail, within, ordered = convergence(draws)
    chance = FALSE_ALARM / (batches * parameters)
    limits = rhat_limits(chains, length, within, chance, needed_effective(parameters))
    return {
        "rhat": rhat,
        "ess_bulk": bulk,
        "ess_tail": tail,
        "rhat_limit": np.fmax(RHAT, limits),
        "ess_within": within,
        "skewness": skewness(rows),
        # copies, lest all draws be kept for them
        "least": ordered[:, 0].copy(),
        "greatest": ordered[:, -1].copy(),
        "kurtosis": excess_kurtosis(rows),
        "valley": valleys(ordered),
    }


def needed_effective(parameters: int) -> int:
    """Return how many effective draws the moments of so many parameters need."""
    return max(FEW_EFFECTIVE, FEW_A_PARAMETER * parameters)


def widths(maps: xr.Dataset) -> np.ndarray:
    """Return every batch's sds over the median batch's."""
    variance = np.einsum("bii->bi", maps["covariance"].values)
    # To the same power of the prior, fractionated batches of different sizes are equally wide.
    spread = np.sqrt(variance * maps["prior_power"].values[:, None])
    return spread / np.median(spread, axis=0)


def _shape(merged: Merged, values: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return every batch's distance from the pooled others, and its noise.

    With one grid and bandwidth for all, ``own - others = (own - all) n / (n - n_b)``: the density
    of the others need not be estimated for each batch.
    """
    sizes = np.array([merged.chains_of(b).size for b in range(len(merged.labels))])
    sizes *= merged.sizes[1]
    effective = np.fmin(values["ess_bulk"], sizes[:, None])
    odd = values["rhat"] > values["rhat_limit"]
    odd |= (values["width"] < STUCK) | (values["valley"] > VALLEY)
    among = np.asarray(~odd.any(axis=1))
    if 2 * among.sum() < len(sizes) or among.sum() < 2:
        among[:] = True
    shape, noise = np.full((2, *effective.shape), np.nan)
    if among.sum() < 2:
        return shape, noise
    counted = np.where(among, sizes, 0)
    others = effective[among].sum(axis=0) - np.where(among[:, None], effective, 0.0)
    variance = 1.0 / effective + 1.0 / others
    rows_among = np.repeat(among, sizes)
    for at, column in _columns(merged, sizes):
        (pooled,) = densities((column if among.all() else column[rows_among])[:, None])
        distance = areas(column, pooled, sizes) * counted.sum() / (counted.sum() - counted)
        shape[:, at] = np.minimum(1.0, distance)
        noise[:, at] = np.minimum(1.0, integrated_absolute_floor(variance[:, at], [pooled]))
    return shape, noise


def _columns(merged: Merged, sizes: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Give all batches' draws of one parameter after another, end to end, in one place and size.

    Their own draws are brought to the pooled mean and covariance by SwISS. Only a part of all
    parameters is held at once, and overwritten by the next.
    """
    maps = [_to_pooled(merged, position) for position in range(len(sizes))]
    stops = np.cumsum(sizes)
    blocks = np.array_split(np.arange(merged.free.size), PASSES)
    held = np.empty((blocks[0].size, sizes.sum()))
    for block in blocks:
        columns = held[: block.size]
        for position, (scale, source, target) in enumerate(maps):
            rows = merged.after(position).reshape(-1, merged.free.size)
            own = slice(stops[position] - sizes[position], stops[position])
            columns[:, own] = scale[block] @ (rows - source).T + target[block, None]
        yield from zip(block.tolist(), columns, strict=True)


def _to_pooled(merged: Merged, position: int) -> AffineMap:
    """Return the map of a batch's present draws, by way of where they were, to pooled moments."""
    pooled, moments = merged.pooled, merged.batch_moments[position]
    spectrum = linalg.spectrum(pooled.factor, moments.covariance)
    scale = linalg.principal_map(pooled.factor, spectrum)
    swiss = AffineMap(scale, moments.mean, pooled.mean)
    return linalg.compose(merged.inverse_of(position), swiss)

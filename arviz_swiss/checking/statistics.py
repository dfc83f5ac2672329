"""What the batches' own draws tell about a merge: convergence, and shape."""

from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.base import linalg
from arviz_swiss.base.bias import skewness_error
from arviz_swiss.base.distances import (
    densities,
    excess_kurtosis,
    integrated_absolute,
    integrated_absolute_floor,
    skewness,
    valleys,
)
from arviz_swiss.base.effective import rhat_limits, sizes_within
from arviz_swiss.data import schema
from arviz_swiss.data.statistics import convergence, kde
from arviz_swiss.merging.merged import Merged

# Less does no harm to a merge, however certain.
RHAT = 1.05
# Chance that any of all parameters and batches exceeds its limit though all chains converged.
FALSE_ALARM = 0.01
# Effective draws that a batch's moments need: so many, and so many a parameter. What `sample` draws
# of a batch that will be refined is the sum of both.
FEW_EFFECTIVE, FEW_A_PARAMETER = 100, 5
STUCK = 1e-3
VALLEY = 0.3

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
    "skewness_error": "order of the merged mean's error in posterior sds, by third moments",
}


def draw_statistics(merged: Merged) -> xr.Dataset:
    """Return the merge's diagnostics and, unless draws were newly made, what the draws tell."""
    if not merged.is_moved:
        return merged.diagnostics.copy()
    before = [merged.before(position) for position in range(len(merged.labels))]
    rows = [draws.reshape(-1, draws.shape[-1]) for draws in before]
    powers = merged.maps["power"].values
    values: dict[str, Any] = _convergence(before) | {
        "width": widths(merged.maps),
        "skewness": np.array([skewness(matrix) for matrix in rows]),
        "least": np.array([matrix.min(axis=0) for matrix in rows]),
        "greatest": np.array([matrix.max(axis=0) for matrix in rows]),
        "kurtosis": np.array([excess_kurtosis(matrix) for matrix in rows]),
        "valley": np.array([valleys(matrix, kde) for matrix in rows]),
        "skewness_error": skewness_error(rows, merged.batch_moments, merged.pooled, powers),
    }
    values["shape"], values["shape_noise"] = _shape(_with_pooled_moments(rows, merged), values)
    stats = merged.groups.get(schema.SAMPLE_STATS, {})
    if "diverging" in stats:
        counts = stats["diverging"].sum("draw").values
        values["divergences"] = np.array([counts[merged.owners == b].sum() for b in merged.labels])
    dims = ((), ("batch",), ("batch", "parameter"))
    return merged.diagnostics.assign(
        {
            name: (dims[np.ndim(array)], array, {"description": DESCRIPTIONS[name]})
            for name, array in values.items()
        }
    )


def _convergence(batches: list[np.ndarray]) -> dict[str, np.ndarray]:
    columns = (np.ascontiguousarray(np.moveaxis(draws, -1, 0)) for draws in batches)
    values = np.array([[convergence(column) for column in batch] for batch in columns])
    chance = FALSE_ALARM / values[..., 0].size
    needed = needed_effective(values.shape[1])
    within = np.array([sizes_within(draws) for draws in batches])
    limits = [
        rhat_limits(draws.shape[0], draws.shape[1], sizes, chance, needed)
        for draws, sizes in zip(batches, within, strict=True)
    ]
    names = ("rhat", "ess_bulk", "ess_tail")
    return {
        **dict(zip(names, np.moveaxis(values, -1, 0), strict=True)),
        "rhat_limit": np.fmax(RHAT, limits),
        "ess_within": within,
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


def _with_pooled_moments(rows: list[np.ndarray], merged: Merged) -> list[np.ndarray]:
    """Return the batches' own draws, brought to the pooled mean and covariance by SwISS."""
    pooled, moved = merged.pooled, []
    for matrix, moments in zip(rows, merged.batch_moments, strict=True):
        spectrum = linalg.spectrum(pooled.factor, moments.covariance)
        scale = linalg.principal_map(pooled.factor, spectrum)
        moved.append((matrix - moments.mean) @ scale.T + pooled.mean)
    return moved


def _shape(rows: list[np.ndarray], values: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return every batch's distance from the pooled others, and its noise.

    With one grid and bandwidth for all, ``own - others = (own - all) n / (n - n_b)``: the density
    of the others need not be estimated for each batch.
    """
    sizes = np.array([len(matrix) for matrix in rows])
    effective = np.fmin(values["ess_bulk"], sizes[:, None])
    odd = values["rhat"] > values["rhat_limit"]
    odd |= (values["width"] < STUCK) | (values["valley"] > VALLEY)
    among = np.asarray(~odd.any(axis=1))
    if 2 * among.sum() < len(rows) or among.sum() < 2:
        among[:] = True
    if among.sum() < 2:
        nothing = np.full(effective.shape, np.nan)
        return nothing, nothing
    pooled = densities(np.concatenate([rows[b] for b in np.flatnonzero(among)]), kde)
    total = sizes[among].sum()
    shape, noise = np.empty_like(effective), np.empty_like(effective)
    for position, matrix in enumerate(rows):
        inside = sizes[position] if among[position] else 0
        others = effective[among].sum(axis=0) - (effective[position] if inside else 0.0)
        distance = integrated_absolute(matrix, pooled, kde)
        shape[position] = np.minimum(1.0, distance * total / (total - inside))
        variance = 1.0 / effective[position] + 1.0 / others
        noise[position] = np.minimum(1.0, integrated_absolute_floor(variance, pooled))
    return shape, noise

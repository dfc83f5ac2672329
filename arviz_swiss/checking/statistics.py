"""diagnose(): what the batches' own draws tell about a merge."""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from arviz_swiss.base import linalg, shapes
from arviz_swiss.base.bias import skewness_error
from arviz_swiss.base.distances import (
    densities,
    integrated_absolute,
    integrated_absolute_floor,
    skewness,
)
from arviz_swiss.base.linalg import AffineMap, invert
from arviz_swiss.base.moments import Pooled
from arviz_swiss.data import containers
from arviz_swiss.data.containers import Groups
from arviz_swiss.merging.merged import (
    MERGED,
    batch_moments,
    free_rows,
    open_groups,
    read_merged,
    read_whole,
)

# R-hat of well-mixed chains stays below 1.01 with thousands of effective draws; with hundreds, the
# largest over many batches and parameters reaches 1.04 by chance.
RHAT = 1.05
STUCK = 1e-3
VALLEY = 0.3

DESCRIPTIONS = {
    "rhat": "rank-normalised split R-hat of the batch's own chains",
    "ess_bulk": "bulk effective sample size of the batch's own draws",
    "ess_tail": "tail effective sample size of the batch's own draws",
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


class Sample(NamedTuple):
    """Draws of a merged object in the space of the merge, (chain, draw, parameter), by batch.

    `before` are the draws as they were sampled, `after` those that the maps moved.
    """

    before: list[np.ndarray]
    after: list[np.ndarray]


def diagnose(merged: Any, *, group: str = "posterior") -> Any:
    """Add to `swiss_diagnostics` what needs the draws: convergence and shape of every batch.

    Parameters
    ----------
    merged : InferenceData or DataTree
        As `merge` returned it with a method that moves draws, or read back from a file.
    group : str, default "posterior"

    Returns
    -------
    InferenceData or DataTree
        A new one; `merged` is not changed. Its group `swiss_diagnostics` also has, by batch and
        parameter of the space of the merge:

        - `rhat`, `ess_bulk`, `ess_tail`: rank-normalised split R-hat and effective sizes of the
          batch's own draws, before the merge (between merged batches R-hat is 1 by construction);
        - `width`: its sd over the median batch's;
        - `skewness`, `kurtosis` (excess), `least` and `greatest` (of the draws), and `valley`, the
          depth of the deepest valley between two modes that rise above it with at least 5% of the
          draws each: 0 with one mode, 1 with two far apart;
        - `shape`: integrated absolute distance, from 0 to 1, between the batch's marginal and the
          other batches' pooled, all brought to the merged mean and covariance by the map of SwISS,
          whatever the method of the merge, so that only shape is left to differ; and `shape_noise`,
          what it is on average by chance;

        by batch `divergences`, where the sampler recorded them; and `skewness_error`, by how many
        posterior sds (Mahalanobis) the skewness of inflated batches says the merged mean is off.

    Raises
    ------
    ValueError
        When `merged` is not a merged object, its draws were newly made ("consensus", ...), or no
        chain of some batch is left.

    See Also
    --------
    summary : the diagnostics as a table
    report : the verdict in words

    Notes
    -----
    Batches that are stuck, have not converged or are bimodal are not among "the others" that
    `shape` compares with, as long as they are fewer than half.

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> rng = np.random.default_rng(0)
    >>> batches = [{"mu": rng.normal(size=(4, 500))} for _ in range(3)]
    >>> diagnosed = az_swiss.diagnose(az_swiss.merge(batches, kind="inflated"))
    >>> bool((diagnosed["swiss_diagnostics"]["rhat"] < 1.02).all())
    True
    """
    contents = read_whole(merged, group)
    diagnostics = _diagnosed(merged_groups(merged, group), group)
    groups = {**contents.groups, "swiss_diagnostics": diagnostics}
    attrs = containers.root_attrs(merged)
    return containers.build(groups, contents.kind or containers.native_kind(), attrs)


def is_diagnosed(groups: Groups) -> bool:
    """Tell whether `diagnose` has been here."""
    return "rhat" in groups["swiss_diagnostics"]


def can_diagnose(groups: Groups) -> bool:
    """Tell whether the draws before the merge can be had back."""
    return "scale" in groups["swiss_transform"]


def diagnosed_groups(merged: Any, group: str = "posterior") -> Groups:
    """Return the groups of a merged object, diagnosed if they can be."""
    groups = merged_groups(merged, group)
    if not is_diagnosed(groups) and can_diagnose(groups):
        groups["swiss_diagnostics"] = _diagnosed(groups, group)
    return groups


def merged_groups(merged: Any, group: str) -> Groups:
    """Return the groups of a merged object in the order of the merge; refuse any other object."""
    groups, _ = read_merged(merged, group)
    if "swiss_diagnostics" not in groups:
        raise ValueError(
            f"not a merged object: no group swiss_diagnostics, found {', '.join(groups)}. Pass "
            f"{MERGED}."
        )
    return groups


def sample_of(groups: Groups, group: str) -> Sample:
    """Return the draws before and after the maps, batch by batch."""
    maps = groups["swiss_transform"]
    opened = open_groups(groups, containers.native_kind(), group)
    draws = free_rows(opened, slice(None), slice(None)).reshape(*opened.sizes, -1)
    units = np.sqrt(np.diag(maps["pooled_covariance"].values))
    before, after = [], []
    for position, label in enumerate(opened.labels):
        if label not in opened.owners:
            raise ValueError(
                f'batch {position} ("{label}"): none of its chains is left, so its own draws '
                "cannot be looked at. Call diagnose on the merged object before selecting chains; "
                "to leave the batch out of the merge, merge again with drop=."
            )
        one = maps.isel(batch=position)
        affine = AffineMap(one["scale"].values, one["mean"].values, one["target"].values)
        back = invert(affine, units)
        after.append(draws[opened.owners == label])
        before.append((after[-1] - back.source) @ back.scale.T + back.target)
    return Sample(before, after)


def _diagnosed(groups: Groups, group: str) -> xr.Dataset:
    if not can_diagnose(groups):
        method = groups[group].attrs.get("swiss_method", "unknown")
        raise ValueError(
            f'merged with method "{method}", whose draws were newly made: the batches\' own are '
            'not in it. Diagnose merge(idatas, method="swiss") of the same batches instead.'
        )
    sample = sample_of(groups, group)
    found = _convergence(sample.before)
    found["width"] = widths(groups["swiss_transform"])
    rows = [draws.reshape(-1, draws.shape[-1]) for draws in sample.before]
    found["skewness"] = np.array([skewness(matrix) for matrix in rows])
    found["least"] = np.array([matrix.min(axis=0) for matrix in rows])
    found["greatest"] = np.array([matrix.max(axis=0) for matrix in rows])
    found["kurtosis"] = np.array([shapes.excess_kurtosis(matrix) for matrix in rows])
    found["valley"] = np.array([shapes.valleys(matrix, containers.kde) for matrix in rows])
    found["skewness_error"] = _skewness_error(rows, groups)
    alike = _with_pooled_moments(rows, groups["swiss_transform"])
    found["shape"], found["shape_noise"] = _shape(alike, found)
    if (divergences := _divergences(groups, group)) is not None:
        found["divergences"] = divergences
    dims = ((), ("batch",), ("batch", "parameter"))
    return groups["swiss_diagnostics"].assign(
        {
            name: (dims[np.ndim(values)], values, {"description": DESCRIPTIONS[name]})
            for name, values in found.items()
        }
    )


def _skewness_error(rows: list[np.ndarray], groups: Groups) -> float:
    maps = groups["swiss_transform"]
    covariance = maps["pooled_covariance"].values
    precision = linalg.inverse(covariance)
    pooled = Pooled(maps["pooled_mean"].values, covariance, precision, linalg.cholesky(precision))
    return skewness_error(rows, batch_moments(groups), pooled, maps["power"].values)


def _convergence(batches: list[np.ndarray]) -> dict[str, np.ndarray]:
    shape = (len(batches), batches[0].shape[-1], 3)
    values = np.full(shape, np.nan)
    for position, draws in enumerate(batches):
        columns = np.ascontiguousarray(np.moveaxis(draws, -1, 0))
        values[position] = [containers.convergence(column) for column in columns]
    return dict(zip(("rhat", "ess_bulk", "ess_tail"), np.moveaxis(values, -1, 0), strict=True))


def widths(maps: xr.Dataset) -> np.ndarray:
    """Return every batch's sds over the median batch's."""
    variance = np.einsum("bii->bi", maps["covariance"].values)
    # To the same power of the prior, fractionated batches of different sizes are equally wide.
    spread = np.sqrt(variance * maps["prior_power"].values[:, None])
    return spread / np.median(spread, axis=0)


def _with_pooled_moments(rows: list[np.ndarray], maps: xr.Dataset) -> list[np.ndarray]:
    """Return the batches' own draws, brought to the pooled mean and covariance by SwISS."""
    factor = linalg.cholesky(linalg.inverse(maps["pooled_covariance"].values))
    centre, moved = maps["pooled_mean"].values, []
    for matrix, mean, covariance in zip(
        rows, maps["mean"].values, maps["covariance"].values, strict=True
    ):
        scale = linalg.principal_map(factor, linalg.spectrum(factor, covariance))
        moved.append((matrix - mean) @ scale.T + centre)
    return moved


def _shape(rows: list[np.ndarray], found: dict) -> tuple[np.ndarray, np.ndarray]:
    """Return every batch's distance from the pooled others, and its noise.

    With one grid and bandwidth for all, ``own - others = (own - all) n / (n - n_b)``: the density
    of the others need not be estimated for each batch.
    """
    sizes = np.array([len(matrix) for matrix in rows])
    effective = np.fmin(found["ess_bulk"], sizes[:, None])
    odd = (found["rhat"] > RHAT) | (found["width"] < STUCK) | (found["valley"] > VALLEY)
    among = ~odd.any(axis=1)
    if 2 * among.sum() < len(rows) or among.sum() < 2:
        among[:] = True
    if among.sum() < 2:
        nothing = np.full(effective.shape, np.nan)
        return nothing, nothing
    pooled = densities(np.concatenate([rows[b] for b in np.flatnonzero(among)]), containers.kde)
    total = sizes[among].sum()
    shape, noise = np.empty_like(effective), np.empty_like(effective)
    for position, matrix in enumerate(rows):
        inside = sizes[position] if among[position] else 0
        others = effective[among].sum(axis=0) - (effective[position] if inside else 0.0)
        distance = integrated_absolute(matrix, pooled, containers.kde)
        shape[position] = np.minimum(1.0, distance * total / (total - inside))
        variance = 1.0 / effective[position] + 1.0 / others
        noise[position] = np.minimum(1.0, integrated_absolute_floor(variance, pooled))
    return shape, noise


def _divergences(groups: Groups, group: str) -> np.ndarray | None:
    stats = groups.get("sample_stats")
    if stats is None or "diverging" not in stats:
        return None
    counts = stats["diverging"].sum("draw").values
    owners = groups[group]["batch"].values.astype(str)
    labels = groups["swiss_transform"]["batch"].values.astype(str)
    return np.array([counts[owners == label].sum() for label in labels])

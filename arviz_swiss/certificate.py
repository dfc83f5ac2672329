"""The certificate of a merge: weights of its draws against the full posterior, and a verdict."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.special import logsumexp

from arviz_swiss import containers, kernels
from arviz_swiss.densities import Densities
from arviz_swiss.flatten import flatten
from arviz_swiss.merged import Merged, read_whole
from arviz_swiss.provenance import Own, Provenance, edges, examine

GOOD, USABLE = 0.5, 0.7
# ArviZ fits a Pareto distribution to a fifth of the weights, and to no fewer than five.
FEWEST = 25
# In sds: more than this and the draws are not to be used without their weights.
NOTABLE = 0.2
# With this share of effective draws the weights hardly differ.
NEARLY_ALL = 0.9
DESCRIPTIONS = {
    "log_weight": "Pareto-smoothed log importance weights; their exponentials sum to 1",
    "log_ratio": "log ratio of full posterior and merged density; the ratios have mean 1",
    "khat": "Pareto k-hat of all draws' weights",
    "batch_khat": "Pareto k-hat of each batch's draws against the full posterior, on their own",
    "batch_offset": "about how many sds a batch's draws are off the density given for it",
    "batch_width": "about how many times as wide a batch's draws are as the density given for it",
    "effective_size": "equally weighted draws that the weighted draws are worth",
    "mean": "weighted posterior mean",
    "sd": "weighted posterior standard deviation",
    "mean_shift": "weighted minus unweighted mean, in unweighted sds",
    "sd_shift": "weighted minus unweighted sd, in unweighted sds",
}


class Thinned(NamedTuple):
    """Some draws of every chain, as (rows, parameters).

    `draws` are their positions, `owners` the position of each row's batch, `original` all rows
    moved back by the inverse of each batch's map.
    """

    draws: np.ndarray
    owners: np.ndarray
    merged: np.ndarray
    original: dict[str, np.ndarray]


class Weighed(NamedTuple):
    """Log ratios of the full posterior and the merged density, and what was made of them."""

    ratios: np.ndarray
    log_weights: np.ndarray
    khat: float
    batch_khat: np.ndarray


class Shifts(NamedTuple):
    """Moments by the weights, and how far they are from those of the draws as they are, in sds."""

    mean: np.ndarray
    sd: np.ndarray
    mean_shift: np.ndarray
    sd_shift: np.ndarray


def build_certificate(opened: Merged, thinned: Thinned, found: Densities) -> xr.Dataset:
    """Return the group `swiss_certificate`.

    Parameters
    ----------
    opened : Merged
    thinned : Thinned
        The draws that are weighed.
    found : Densities
        There.
    """
    weighed = _weigh(thinned, found)
    edge = _edges(opened, thinned, found)
    provenance = _provenance(opened, thinned, found, edge)
    flat = flatten(opened.draws[opened.layout.names].isel(draw=thinned.draws))
    shifts = _shifts(flat.values.reshape(-1, flat.sizes["parameter"]), weighed.log_weights)
    effective = kernels.weights_effective_size(weighed.log_weights)
    shape = (opened.sizes[0], thinned.draws.size)
    data = {
        "log_weight": (containers.SAMPLE_DIMS, weighed.log_weights.reshape(shape)),
        "log_ratio": (containers.SAMPLE_DIMS, weighed.ratios.reshape(shape)),
        "khat": ((), weighed.khat),
        "batch_khat": ("batch_label", weighed.batch_khat),
        "batch_offset": ("batch_label", provenance.offsets),
        "batch_width": ("batch_label", provenance.widths),
        "effective_size": ((), effective),
        **{name: ("parameter", values) for name, values in shifts._asdict().items()},
    }
    picked = opened.draws.isel(draw=thinned.draws)
    coords = {name: picked[name].variable for name in ("chain", "draw", "batch")}
    coords |= {"batch_label": np.array(opened.labels), "parameter": flat["parameter"].values}
    dataset = xr.Dataset(
        {k: (dims, v, {"description": DESCRIPTIONS[k]}) for k, (dims, v) in data.items()},
        coords=coords,
    )
    bounded = opened.maps["parameter"].values.astype(str)[edge]
    refined = "round" in opened.maps.dims
    verdict = write_verdict(weighed, effective, shifts, provenance.doubt, bounded, refined)
    return dataset.assign_attrs(verdict=verdict)


def certificate_verdict(merged: Any) -> str:
    """Say in words what the certificate of a merged object means; how to get one, if it has none.

    Parameters
    ----------
    merged : InferenceData or DataTree

    Returns
    -------
    str
    """
    groups = read_whole(merged, "posterior").groups
    if "swiss_certificate" not in groups:
        return "not certified: certify(merged, densities) weighs it against the full posterior."
    return groups["swiss_certificate"].attrs["verdict"]


def _weigh(thinned: Thinned, found: Densities) -> Weighed:
    ratios = found.full - kernels.log_mixture(found.batches, thinned.owners)
    if np.isfinite(ratios).any():
        ratios -= logsumexp(ratios) - np.log(ratios.size)
    by_batch = []
    for position, own in enumerate(found.batches):
        mine = thinned.owners == position
        enough = mine.sum() >= FEWEST
        # elsewhere both may be minus infinity
        alone = found.full[mine] - own[mine]
        by_batch.append(containers.pareto_smoothed(alone)[1] if enough else np.nan)
    return Weighed(ratios, *containers.pareto_smoothed(ratios), np.array(by_batch))


def _edges(opened: Merged, thinned: Thinned, found: Densities) -> np.ndarray:
    """Return which parameters have an edge that draws were moved over."""
    by_batch = [
        edges(thinned.original[label], own)
        for label, own in zip(opened.labels, found.batches, strict=True)
    ]
    return np.any([edges(thinned.merged, found.full), *by_batch], axis=0)


def _provenance(opened: Merged, thinned: Thinned, found: Densities, edge: np.ndarray) -> Provenance:
    batches = []
    for position, label in enumerate(opened.labels):
        original = thinned.original[label]
        mine = thinned.owners == position
        shape = (-1, thinned.draws.size, original.shape[1])
        batches.append(
            Own(
                label,
                original[mine].reshape(shape),
                found.scores[position].reshape(shape),
                opened.maps["covariance"].isel(batch=position).values,
            )
        )
    return examine(batches, ~edge)


def _shifts(values: np.ndarray, log_weights: np.ndarray) -> Shifts:
    equal = np.full(len(values), 1 / len(values))
    mean, sd = kernels.weighted_moments(values, np.exp(log_weights))
    plain_mean, plain_sd = kernels.weighted_moments(values, equal)
    unit = np.where(plain_sd > 0, plain_sd, 1.0)
    return Shifts(mean, sd, (mean - plain_mean) / unit, (sd - plain_sd) / unit)


def write_verdict(
    weighed: Weighed,
    effective: float,
    shifts: Shifts,
    doubt: str,
    bounded: Sequence[str],
    refined: bool,
) -> str:
    """Return what the certificate says, and as the last sentence what to do, if anything."""
    next_step = "Call resample." if refined else "Call resample, or refine first."
    khat, count = weighed.khat, weighed.ratios.size
    found = f"k-hat {khat:.2f}, {effective:.0f} effective of {count} weighed draws"
    means, sds = (float(np.abs(one).max()) for one in (shifts.mean_shift, shifts.sd_shift))
    moved = f"the weights move means by up to {means:.2g} sds, and sds by up to {100 * sds:.2g}%"
    if doubt:
        return f"not certified ({found}): {doubt}"
    if khat < GOOD and max(means, sds) < NOTABLE:
        return f"certified ({found}): {moved}."
    nearly_equal = effective > NEARLY_ALL * count and max(means, sds) < NOTABLE
    if khat <= USABLE:
        return f"usable with the weights ({found}): {moved}. {next_step}"
    if nearly_equal and not len(bounded):
        return (
            f"usable with the weights ({found}): {moved}. The weights are so nearly equal that "
            "k-hat says little about them, but the tails may be thin: do not trust quantiles "
            f"beyond 1%. {next_step}"
        )
    if len(bounded):
        return (
            f"not certified ({found}): the merge moved draws out of the bounds of "
            f"{', '.join(bounded)}. Merge on an unbounded scale, with transforms= or model=."
        )
    more = "Merge" if refined else "Call refine, or merge"
    return (
        f"not certified ({found}): the merged posterior is not the full one, or its tails are too "
        f"thin. {more} fewer and larger batches."
    )

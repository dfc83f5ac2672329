"""The certificate of a merge: weights of its draws against the full posterior, and a verdict."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.special import logsumexp

from arviz_swiss.base import weights
from arviz_swiss.base.effective import effective_sizes
from arviz_swiss.correcting.evaluation import Moved
from arviz_swiss.correcting.full_posterior import LogDensities
from arviz_swiss.correcting.pilot import PilotDraws, weigh_pilot
from arviz_swiss.correcting.provenance import DOUBT_REMEDY, Own, Provenance, edges, examine
from arviz_swiss.data import containers, schema, statistics
from arviz_swiss.data.layout import flatten
from arviz_swiss.merging.merged import Merged
from arviz_swiss.merging.records import (
    CERTIFIED,
    GOOD_KHAT,
    NOT_CERTIFIED,
    SKEWED_REMEDY,
    USABLE,
    USABLE_KHAT,
    Verdict,
    describe_skewed,
)

# ArviZ fits a Pareto distribution to a fifth of the weights, and to no fewer than five.
FEWEST = 25
# In sds, of any direction: more than this and the draws are not to be used without their weights.
NOTABLE = 0.2
# With this share of effective draws the weights hardly differ, and k-hat is mostly noise; with
# that, the weights are equal whatever k-hat.
NEARLY_ALL, ALL = 0.9, 0.999


class Thinned(NamedTuple):
    """Some draws of chains, as (rows, parameters).

    `chains` and `draws` are their positions, `owners` the position of each row's batch; `original`
    are, by the label of each batch that has any, all rows to be moved back by the inverse of its
    map. `own` are the draws at the same positions of every chain of a batch, moved back.
    """

    chains: np.ndarray
    draws: np.ndarray
    owners: np.ndarray
    merged: np.ndarray
    original: dict[str, Moved]
    own: dict[str, np.ndarray]


class Weighed(NamedTuple):
    """Log ratios of the full posterior and the merged density, and what was made of them."""

    ratios: np.ndarray
    log_weights: np.ndarray
    khat: float
    batch_khat: np.ndarray
    overlap_error: float


class Evidence(NamedTuple):
    """All that the verdict is about.

    `weighed` of `draws` merged draws have weights, worth `effective` equal ones; `sampling_error`
    is that part of the errors of `change` which more weights would not lower; `doubt` is what
    speaks against the densities; `bounded` are parameters with edges that draws were moved over,
    `skewed` those whose skewness Gaussians of the batches could not pass on.
    The merge was `refined`; `undone` if that led away.
    """

    khat: float
    effective: float
    weighed: int
    draws: int
    change: weights.Change
    sampling_error: float
    overlap_error: float
    doubt: str
    bounded: Sequence[str]
    refined: bool
    undone: bool
    method: str
    skewed: Sequence[str] = ()


def build_certificate(
    opened: Merged,
    thinned: Thinned,
    logs: LogDensities,
    pilot: PilotDraws,
    rng: np.random.Generator,
) -> xr.Dataset:
    """Return the group `swiss_certificate`; `rng` is for the noise of what the weights change."""
    edge = _edges(opened, thinned, logs)
    provenance = _provenance(opened, thinned, logs, edge)
    weighed = _weigh(thinned, logs)
    beside = weigh_pilot(pilot, logs.beside)
    return write_certificate(opened, thinned, weighed, provenance, beside, rng, edge)


def write_certificate(
    opened: Merged,
    thinned: Thinned,
    weighed: Weighed,
    provenance: Provenance,
    beside: Mapping[str, tuple[Any, Any]],
    rng: np.random.Generator,
    edge: np.ndarray | None = None,
    skewed: Sequence[str] = (),
) -> xr.Dataset:
    """Return the group `swiss_certificate` of weights; `beside` are further variables of it."""
    refinement = opened.refinement
    errors = _sampling_errors(opened) if refinement.is_refined else (0.0, 0.0)
    change = weights.change_by(
        thinned.merged @ opened.present_moments.factor, np.exp(weighed.log_weights), rng
    )
    change = change._replace(
        shift_error=float(np.hypot(change.shift_error, errors[0])),
        stretch_error=float(np.hypot(change.stretch_error, errors[1])),
    )
    evidence = Evidence(
        khat=weighed.khat,
        effective=weights.effective_size(weighed.log_weights),
        weighed=weighed.ratios.size,
        draws=int(np.prod(opened.sizes)),
        change=change,
        sampling_error=max(errors),
        overlap_error=weighed.overlap_error,
        doubt=provenance.doubt,
        bounded=[] if edge is None else opened.parameters[edge].tolist(),
        skewed=skewed,
        refined=refinement.is_refined,
        undone=bool(refinement.undone),
        method=opened.method,
    )
    columns = {**_columns(opened, thinned, weighed, provenance, evidence), **beside}
    dataset = _dataset(opened, thinned, columns)
    return dataset.assign_attrs(judge(evidence)._asdict())


def _columns(
    opened: Merged, thinned: Thinned, weighed: Weighed, provenance: Provenance, evidence: Evidence
) -> dict[str, tuple[Any, Any]]:
    """Return the dimensions and values of the certificate's variables."""
    flat = _flat(opened, thinned)
    shifts = _shifts(flat.values.reshape(-1, flat.sizes["parameter"]), weighed.log_weights)
    shape, change = (thinned.chains.size, thinned.draws.size), evidence.change
    return {
        "log_weight": (containers.SAMPLE_DIMS, weighed.log_weights.reshape(shape)),
        "log_ratio": (containers.SAMPLE_DIMS, weighed.ratios.reshape(shape)),
        "khat": ((), weighed.khat),
        "batch_khat": ("batch_label", weighed.batch_khat),
        "batch_offset": ("batch_label", provenance.offsets),
        "batch_width": ("batch_label", provenance.widths),
        "effective_size": ((), evidence.effective),
        "weighed": ((), evidence.weighed),
        **{name: ("parameter", values) for name, values in shifts.items()},
        "mahalanobis_shift": ((), change.shift),
        "mahalanobis_error": ((), change.shift_error),
        "covariance_change": ((), change.stretch),
        "covariance_error": ((), change.stretch_error),
        "overlap_error": ((), weighed.overlap_error),
    }


def _flat(opened: Merged, thinned: Thinned) -> xr.DataArray:
    """Return the draws that were weighed on their own scale, flattened along `parameter`."""
    return flatten(_picked(opened, thinned)[opened.layout.names])


def _picked(opened: Merged, thinned: Thinned) -> xr.Dataset:
    return opened.draws.isel(chain=thinned.chains, draw=thinned.draws)


def _dataset(opened: Merged, thinned: Thinned, columns: dict[str, tuple[Any, Any]]) -> xr.Dataset:
    """Return the variables of the certificate, each with its meaning."""
    picked = _picked(opened, thinned)
    meanings = schema.VARIABLES[schema.CERTIFICATE]
    names = [name for name in (*containers.SAMPLE_DIMS, "batch") if name in picked.coords]
    coords: dict[str, Any] = {name: picked[name].variable for name in names}
    coords["batch_label"] = np.array(opened.labels)
    coords["parameter"] = _flat(opened, thinned)["parameter"].values
    return xr.Dataset(
        {k: (dims, v, {"description": meanings[k]}) for k, (dims, v) in columns.items()}, coords
    )


def _sampling_errors(opened: Merged) -> tuple[float, float]:
    """Return what few draws of the batches leave of the weighted mean and sds of a refined merge.

    Its draws have the moments that the gradients told. The batches' densities, which the weights
    are made of, were moved by the moments of draws: by the errors of these the weights shift the
    draws, though they are right. Without `refine`, the errors are those of the merge itself.
    """
    if opened.is_redrawn:
        made = opened.redrawn
        share = float(made["effective_size"] / made["proposed"])
        error = np.sqrt(opened.free.size / (share * np.prod(opened.sizes)))
        return error, error
    size = sum(
        float(np.median(effective_sizes(opened.after(position))))
        for position in range(len(opened.labels))
    )
    squares = size
    if schema.DIAGNOSTICS in opened.groups:
        squares = float(opened.diagnostics["effective_size"].sum())
    return np.sqrt(opened.free.size / size), np.sqrt(opened.free.size / squares)


def _weigh(thinned: Thinned, logs: LogDensities) -> Weighed:
    present, sources = np.unique(thinned.owners, return_inverse=True)
    mixture = weights.mixture_of(logs.sources, sources)
    ratios = logs.full - mixture.log_density
    if np.isfinite(ratios).any():
        ratios -= logsumexp(ratios) - np.log(ratios.size)
    # of each batch's own draws: elsewhere both may be minus infinity
    by_batch = np.full(len(thinned.own), np.nan)
    for at, own in enumerate(logs.sources):
        mine = sources == at
        by_batch[present[at]] = batch_khat(logs.full[mine] - own[mine])
    log_weights, khat = statistics.pareto_smoothed(ratios)
    error = weights.mixture_error(mixture, np.exp(log_weights))
    return Weighed(ratios, log_weights, khat, by_batch, error)


def batch_khat(log_ratios: np.ndarray) -> float:
    """Return k-hat of one batch's draws, NaN where they are too few."""
    enough = log_ratios.size >= FEWEST
    return statistics.pareto_smoothed(log_ratios)[1] if enough else np.nan


def _edges(opened: Merged, thinned: Thinned, logs: LogDensities) -> np.ndarray:
    """Return which parameters have an edge that draws were moved over."""
    by_batch = [
        edges(moved.array(), own)
        for moved, own in zip(thinned.original.values(), logs.sources, strict=True)
        if not np.isfinite(own).all()
    ]
    return np.any([edges(thinned.merged, logs.full), *by_batch], axis=0)


def _provenance(
    opened: Merged, thinned: Thinned, logs: LogDensities, edge: np.ndarray
) -> Provenance:
    batches, covariances = [], opened.maps["covariance"].values
    for position, label in enumerate(opened.labels):
        own = thinned.own[label]
        shape = (-1, thinned.draws.size, own.shape[1])
        scores = logs.scores[position].reshape(shape)
        batches.append(Own(label, own.reshape(shape), scores, covariances[position]))
    return examine(batches, ~edge)


def _shifts(values: np.ndarray, log_weights: np.ndarray) -> dict[str, np.ndarray]:
    """Return moments by the weights, and how far they are from those of the draws, in sds."""
    equal = np.full(len(values), 1 / len(values))
    mean, sd = weights.weighted_moments(values, np.exp(log_weights))
    plain_mean, plain_sd = weights.weighted_moments(values, equal)
    unit = np.where(plain_sd > 0, plain_sd, 1.0)
    shifts = {"mean_shift": (mean - plain_mean) / unit, "sd_shift": (sd - plain_sd) / unit}
    return {"mean": mean, "sd": sd, **shifts}


def judge(evidence: Evidence) -> Verdict:
    """Return what the evidence says of the merge."""
    if evidence.doubt:
        return Verdict(NOT_CERTIFIED, evidence.doubt, DOUBT_REMEDY)
    if evidence.overlap_error > NOTABLE:
        return _not_overlapping(evidence)
    if evidence.khat > USABLE_KHAT and len(evidence.bounded):
        return Verdict(
            NOT_CERTIFIED,
            f"the merge moved draws out of the bounds of {', '.join(evidence.bounded)}",
            "merge on an unbounded scale, with transforms= or model=",
        )
    moved = max(weights.beyond_noise(evidence.change)) >= NOTABLE
    nearly_equal = evidence.effective > NEARLY_ALL * evidence.weighed
    change = _written(evidence.change)
    if evidence.khat > USABLE_KHAT and (moved or not nearly_equal):
        more = "call refine, or merge" if _can_refine(evidence) else "merge"
        return Verdict(
            NOT_CERTIFIED,
            "the merged posterior is not the full one, or its tails are too thin",
            f"{more} fewer and larger batches",
        )
    if evidence.skewed and not moved:
        return Verdict(USABLE, f"{change}, but {describe_skewed(evidence.skewed)}", SKEWED_REMEDY)
    if not moved and max(evidence.change.shift_error, evidence.change.stretch_error) > NOTABLE:
        return _too_few(evidence)
    if evidence.undone and not moved:
        # the weights see only where draws are, and the gradients pointed elsewhere
        return Verdict(
            USABLE,
            f"{change}, but refining led away from the posterior and was undone, as where tails "
            "are heavy",
            "trust no quantiles beyond 10% and 90%, or merge fewer and larger batches",
        )
    if not moved and evidence.effective > ALL * evidence.weighed:
        return Verdict(CERTIFIED, change, "")
    if evidence.khat > USABLE_KHAT:
        return Verdict(
            USABLE,
            f"{change}: so little that the draws are right but for their tails, which may be thin",
            "trust no quantiles beyond 10% and 90%",
        )
    if not moved and (nearly_equal or evidence.khat < GOOD_KHAT):
        return Verdict(CERTIFIED, change, "")
    if evidence.undone:
        remedy = "resample to use the weights, or merge fewer and larger batches"
    else:
        again = " again" if evidence.refined else ""
        remedy = f"call refine{again}, or resample to use the weights"
    return Verdict(USABLE, f"to be used with the weights only: {change}", remedy)


def _can_refine(evidence: Evidence) -> bool:
    return not (evidence.refined or evidence.undone)


def _written(change: weights.Change) -> str:
    return (
        f"the weights move the mean by {change.shift:.2g} sds ({change.shift_error:.2g} by chance) "
        f"and the sd of no direction by more than {_percent(change.stretch)} "
        f"({_percent(change.stretch_error)} by chance)"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g}%" if share < 0.995 else f"{100 * share:.0f}%"


def _not_overlapping(evidence: Evidence) -> Verdict:
    if evidence.overlap_error > np.log(1000):
        known = "is not known"
    else:
        known = f"is known up to a factor of {np.exp(evidence.overlap_error):.2g} only"
    return Verdict(
        NOT_CERTIFIED,
        f"the batches barely overlap after the merge, so that how much each counts {known}",
        "merge fewer and larger batches"
        if evidence.method == "swiss"
        else 'merge with method="swiss", which moves all batches to one place',
    )


def _too_few(evidence: Evidence) -> Verdict:
    """Ask for as many draws as make the larger error half of what is notable, if there are so many.

    Weights of many parameters vary by what few draws of a batch leave of its moments. What is the
    batches' own error no more weighed draws would lower.
    """
    error = max(evidence.change.shift_error, evidence.change.stretch_error)
    lowest = min(evidence.sampling_error, error, NOTABLE)
    enough = evidence.draws + 1
    if lowest < NOTABLE:
        share = 4 * (error**2 - lowest**2) / (NOTABLE**2 - lowest**2)
        enough = int(np.ceil(evidence.weighed * share / 100)) * 100
    if enough <= evidence.draws:
        few = "too few draws were weighed to tell"
        more = f"weigh more draws: certify(merged, densities, draws={enough})"
    else:
        few = "too few draws to tell"
        more = f"sample longer: {evidence.draws} merged draws are too few for so many parameters"
    return Verdict(
        NOT_CERTIFIED,
        f"{_written(evidence.change)}: {few}",
        f"call refine, or {more}" if _can_refine(evidence) else more,
    )

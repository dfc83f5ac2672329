"""Where batches come from: which run, which data, and whether one of them was given twice."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import xarray as xr

from arviz_swiss.base.gaussian import Moments
from arviz_swiss.data import schema
from arviz_swiss.data.layout import Layout, layout_of
from arviz_swiss.merging.batches import Batch, load_arrays

# Begins the names of settings that say what the user's function is.
BUILD = "build "
STATISTICS = ("count", "mean", "sd")
# Means that differ by more of their sds are those of different draws. They are sorted by so many
# decimals: equal ones stand side by side, whatever the rounding of their last digits.
SAME_MEAN, ROUNDED = 1e-6, 6


def check_one_run(batches: Sequence[Batch]) -> None:
    """Refuse batches that say they are of two partitions, of different data or of two models."""
    first: dict[str, Batch] = {}
    for batch in batches:
        if schema.PARTITION in batch.attrs:
            other = first.setdefault(schema.PARTITION, batch)
            if batch.attrs[schema.PARTITION] != other.attrs[schema.PARTITION]:
                seed, before = (each.attrs.get(schema.RANDOM_SEED) for each in (batch, other))
                difference = (
                    f"of two partitions of the data ({schema.RANDOM_SEED} {before} and {seed}): "
                    "rows would be counted twice or not at all"
                )
                raise _two_runs(other, batch, schema.PARTITION, difference)
        if settings := _settings(batch):
            other = first.setdefault(schema.SETTINGS, batch)
            known = _settings(other)
            if known.get("data") != settings.get("data"):
                raise _two_runs(other, batch, schema.SETTINGS, "of different data")
            if names := differing(_build(known), _build(settings)):
                difference = f"of two models: their {' and '.join(names)} differ"
                raise _two_runs(other, batch, schema.SETTINGS, difference)


def differing(before: Mapping[str, str | None], now: Mapping[str, str | None]) -> list[str]:
    """Name what differs between two functions, but not what is None, unknown, of one of them."""
    values = {name: (before.get(name, ""), now.get(name, "")) for name in {**before, **now}}
    return [name for name, (old, new) in values.items() if None not in (old, new) and old != new]


def _settings(batch: Batch) -> dict[str, Any]:
    try:
        settings = json.loads(batch.attrs.get(schema.SETTINGS, "{}"))
    except (TypeError, ValueError):
        return {}
    return settings if isinstance(settings, dict) else {}


def _build(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {k.removeprefix(BUILD): v for k, v in settings.items() if k.startswith(BUILD)}


def _two_runs(first: Batch, other: Batch, attr: str, difference: str) -> ValueError:
    return ValueError(
        f"{first} and {other} are {difference}. Merge the batches of one call of sample_batches. "
        'If they are of different data, each sampled with the whole prior (kind="full_prior"), or '
        f"differ in nothing that matters, delete the attribute {attr} of their posterior."
    )


def check_distinct(
    batches: Sequence[Batch], moments: Sequence[Moments], fingerprint: Callable[[Batch], Any]
) -> None:
    """Refuse a batch that occurs twice, by records, or by all draws where means are the same.

    `fingerprint` tells the draws of one batch from any others; it is asked for where means agree.
    """
    recorded: dict[tuple[Any, ...], Batch] = {}
    for batch in batches:
        label, seed, rows = (
            batch.attrs.get(name) for name in (schema.BATCH, schema.RANDOM_SEED, schema.PARTITION)
        )
        if label is None or rows is None:
            continue
        first = recorded.setdefault((label, seed, rows), batch)
        if first is not batch:
            _refuse_twice(first, batch, f'are both batch "{label}" of the partition by seed {seed}')
    for positions in _with_same_mean(moments):
        by_draws: dict[Any, Batch] = {}
        for position in positions:
            first = by_draws.setdefault(fingerprint(batches[position]), batches[position])
            if first is not batches[position]:
                _refuse_twice(first, batches[position], "have the same draws")


def _with_same_mean(moments: Sequence[Moments]) -> list[list[int]]:
    """Return sets of batches with the same mean, the positions of each in order."""
    means = np.array([batch.mean for batch in moments])
    sds = np.sqrt(np.diag(moments[0].covariance))
    order = np.lexsort(np.round((means - means[0]).T / sds[:, None], ROUNDED)).tolist()
    sets = [[order[0]]]
    for here, other in pairwise(order):
        if (np.abs(means[here] - means[other]) > SAME_MEAN * sds).any():
            sets.append([])
        sets[-1].append(other)
    return [sorted(positions) for positions in sets if len(positions) > 1]


def fingerprint_draws(batch: Batch, layout: Layout) -> str:
    """Return a fingerprint of the draws, whatever their precision and the order of chains."""
    loaded = load_arrays(batch, layout)
    with np.errstate(over="ignore"):
        arrays = [np.asarray(loaded[name], np.float32) for name in sorted(loaded)]
    chains = []
    for chain in zip(*arrays, strict=True):
        digest = hashlib.blake2b(digest_size=16)
        for values in chain:
            digest.update(f"{values.shape}".encode())
            digest.update(np.ascontiguousarray(values).data)
        chains.append(digest.digest())
    return hashlib.blake2b(b"".join(sorted(chains)), digest_size=16).hexdigest()


def fingerprint_local(batch: Batch, names: Iterable[str]) -> dict[str, str]:
    """Return a fingerprint of each variable that is the batch's own."""
    return {name: fingerprint_draws(batch, layout_of(batch.draws, [name])) for name in names}


def _refuse_twice(first: Batch, second: Batch, why: str) -> NoReturn:
    raise ValueError(
        f"{first} and {second} {why}: its rows would count twice. Give each batch once; if "
        "other rows were meant, sample those."
    )


def summarise_observed(dataset: xr.Dataset | None) -> dict[str, list[float]] | None:
    """Return count, mean and sd of the observed variables of one batch, by name."""
    if dataset is None:
        return None
    numbers = {name: v for name, v in dataset.data_vars.items() if v.dtype.kind in "biuf"}
    return {str(name): summary(array.values) for name, array in numbers.items()}


def observed_by(batch: Batch) -> dict[str, list[float]] | None:
    """Return what a batch observes by variable, as recorded where it does not hold its rows."""
    if schema.OBSERVED_DATA in batch.groups or schema.OBSERVED not in batch.attrs:
        return summarise_observed(batch.groups.get(schema.OBSERVED_DATA))
    return json.loads(batch.attrs[schema.OBSERVED])


def join_observed(summaries: Sequence[Mapping[str, list[float]] | None]) -> xr.DataArray | None:
    """Return the summaries of the observed variables that all batches have, if any."""
    present = [each for each in summaries if each is not None]
    if not present or len(present) < len(summaries):
        return None
    names = [name for name in present[0] if all(name in each for each in present)]
    if not names:
        return None
    return xr.DataArray(
        [[each[name] for name in names] for each in present],
        dims=("batch", "observed_variable", "statistic"),
        coords={"observed_variable": np.array(names), "statistic": np.array(STATISTICS)},
    )


def summary(values: np.ndarray) -> list[float]:
    """Return count, mean and sd of the values that are not missing."""
    values = np.ma.masked_invalid(np.ma.asarray(values, dtype=float)).compressed()
    if not values.size:
        return [0.0, 0.0, 0.0]
    return [float(values.size), float(values.mean()), float(values.std())]

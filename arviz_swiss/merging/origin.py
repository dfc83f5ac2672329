"""Where batches come from: which run, which data, and whether one of them was given twice."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import xarray as xr

from arviz_swiss.base.gaussian import Moments
from arviz_swiss.data import schema
from arviz_swiss.data.layout import Layout
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


def check_distinct(batches: Sequence[Batch], moments: Sequence[Moments], layout: Layout) -> None:
    """Refuse a batch that occurs twice, by records, or by all draws where means are the same."""
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
        by_draws: dict[bytes, Batch] = {}
        for position in positions:
            first = by_draws.setdefault(_digest(batches[position], layout), batches[position])
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


def _digest(batch: Batch, layout: Layout) -> bytes:
    """Return a fingerprint of the draws, whatever their precision and the order of chains."""
    arrays = [np.asarray(array, np.float32) for array in load_arrays(batch, layout).values()]
    chains = []
    for chain in zip(*arrays, strict=True):
        digest = hashlib.blake2b()
        for values in chain:
            digest.update(f"{values.shape}".encode())
            digest.update(np.ascontiguousarray(values).data)
        chains.append(digest.digest())
    return b"".join(sorted(chains))


def _refuse_twice(first: Batch, second: Batch, why: str) -> NoReturn:
    raise ValueError(
        f"{first} and {second} {why}: its rows would count twice. Give each batch once; if "
        "other rows were meant, sample those."
    )


def summarise_observed(datasets: Sequence[xr.Dataset | None]) -> xr.DataArray | None:
    """Return count, mean and sd of the observed variables that all batches have, if any."""
    present = [dataset for dataset in datasets if dataset is not None]
    if not present or len(present) < len(datasets):
        return None
    names = [
        name
        for name in present[0].data_vars
        if all(name in data and data[name].dtype.kind in "biuf" for data in present)
    ]
    if not names:
        return None
    return xr.DataArray(
        [[summary(dataset[name].values) for name in names] for dataset in present],
        dims=("batch", "observed_variable", "statistic"),
        coords={"observed_variable": np.array(names), "statistic": np.array(STATISTICS)},
    )


def summary(values: np.ndarray) -> list[float]:
    """Return count, mean and sd of the values that are not missing."""
    values = np.ma.masked_invalid(np.ma.asarray(values, dtype=float)).compressed()
    if not values.size:
        return [0.0, 0.0, 0.0]
    return [float(values.size), float(values.mean()), float(values.std())]

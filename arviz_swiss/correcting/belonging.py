"""Whether densities are of the rows that were merged: each of its batch's own, all of them once."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.data import schema
from arviz_swiss.data.messages import brief
from arviz_swiss.merging.labels import named
from arviz_swiss.merging.merged import Merged
from arviz_swiss.merging.models import is_model, observed_values
from arviz_swiss.merging.origin import summary

Observed = Mapping[str, np.ndarray]


def check_all_there(opened: Merged) -> None:
    """Refuse merges without some batches: there is no full posterior to compare them with."""
    if dropped := opened.attrs.get(schema.DROPPED):
        raise ValueError(
            f"batches were dropped from this merge ({dropped}), so there is no full posterior to "
            "compare it with. Merge all batches, or sample the dropped ones again."
        )


def check_draws(opened: Merged) -> None:
    """Refuse draws that were spoilt since they were made: what is no number, or a constant."""
    for name in opened.names:
        if wrong := int((~np.isfinite(opened.draws[name].values)).sum()):
            raise ValueError(
                f"{opened.group} has {wrong} values of {name} that are NaN or infinite, which no "
                "merge returns. Pass the merged object as it was."
            )
    constant = np.ptp(opened.rows(), axis=0) == 0
    if constant.any():
        raise ValueError(
            f"{brief(opened.parameters[constant].tolist())} does not vary in {opened.group} any "
            "more, so that there is nothing to weigh. Pass the merged object as it was, with all "
            "its draws."
        )


def advice(opened: Merged, is_built: bool = False) -> str:
    """Say how to give the densities of the batches' own rows; otherwise than by building them."""
    if is_built:
        return "Pass the function and the data of sample_batches: one of them differs."
    each = "one density for each batch, of the rows that it was sampled with"
    if schema.RANDOM_SEED not in opened.attrs:
        return f"Pass {each}; to refine, one density of all rows will do."
    return (
        "Pass build=build, data=data, the function and the data of sample_batches (and its groups= "
        f"or stratify=, if these were no names of columns), or {each}; to refine, one density of "
        "all rows will do."
    )


def check_rows(densities: Mapping[str, Any], opened: Merged, remedy: str) -> None:
    """Refuse one density for several batches, and PyMC models of other rows than their batches'."""
    _check_distinct(densities, remedy)
    observed = _observed(densities)
    if not observed:
        return
    if "observed_summary" in opened.maps:
        _check_observed(observed, opened.maps["observed_summary"], opened.labels, remedy)
    elif "size" in opened.maps:
        _check_sizes(observed, opened.maps["size"].values, remedy)


def check_union(densities: Mapping[str, Any], opened: Merged) -> bool:
    """Refuse densities that together have other rows than the batches; tell if that can be seen."""
    _check_distinct(densities, advice(opened))
    observed = _observed(densities)
    if names := _recorded_names(observed, opened.maps.get("observed_summary")):
        for name in names:
            expected = _pooled(_by_batch(opened.maps["observed_summary"], name))
            given = _pooled(np.array([summary(values[name]) for values in observed]))
            if not _same(given, expected):
                raise _other_rows(_words(given), _words(expected), name, opened)
        return True
    names = _common_names(observed)
    if not names or "size" not in opened.maps:
        return False
    rows = {name: sum(len(np.atleast_1d(o[name])) for o in observed) for name in names}
    total = int(opened.maps["size"].sum())
    if total not in rows.values():
        raise _other_rows(f"{rows[names[0]]} rows", f"{total} rows", names[0], opened)
    return True


def _other_rows(given: str, expected: str, name: str, opened: Merged) -> ValueError:
    return ValueError(
        f"the densities together observe {given} for {name}, the batches were sampled with "
        f"{expected}: every row must count once. Pass densities that hold all rows, such as one "
        f"model of all the data. Or: {advice(opened)}"
    )


def _observed(densities: Mapping[str, Any]) -> list[Observed]:
    """Return the observed values of each density; nothing unless all are PyMC models."""
    if not all(is_model(density) for density in densities.values()):
        return []
    return [observed_values(model) for model in densities.values()]


def _common_names(observed: Sequence[Observed]) -> list[str]:
    return [name for name in observed[0] if all(name in o for o in observed)] if observed else []


def _recorded_names(observed: Sequence[Observed], recorded: xr.DataArray | None) -> list[str]:
    """Return the variables that all densities observe, and whose values the batches recorded."""
    if recorded is None:
        return []
    known = recorded["observed_variable"].values.astype(str).tolist()
    return [name for name in _common_names(observed) if name in known]


def _by_batch(recorded: xr.DataArray, name: str) -> np.ndarray:
    return recorded.sel(observed_variable=name).transpose("batch", "statistic").values


def _check_distinct(densities: Mapping[str, Any], remedy: str) -> None:
    owners: dict[int, list[str]] = {}
    for label, density in densities.items():
        owners.setdefault(id(density), []).append(f'"{label}"')
    for labels in owners.values():
        if len(labels) > 1:
            raise ValueError(
                f"the same density is given for batches {', '.join(labels)}. The full posterior is "
                f"the product of all likelihoods, so the same rows would count several times. "
                f"{remedy}"
            )


def _check_observed(
    observed: Sequence[Observed], recorded: xr.DataArray, labels: Sequence[str], remedy: str
) -> None:
    """Refuse models whose observed values are not those recorded of their batches."""
    for name in _recorded_names(observed, recorded):
        expected = _by_batch(recorded, name)
        given = np.array([summary(values[name]) for values in observed])
        same = [_same(own, other) for own, other in zip(given, expected, strict=True)]
        if all(same):
            continue
        _check_not_all(given[:, 0], expected[:, 0], name, remedy)
        position = same.index(False)
        own, batch = given[position], expected[position]
        order, recoded = "", ""
        if others := [i for i, other in enumerate(expected) if _same(own, other)]:
            order = (
                f' They are those of batch "{labels[others[0]]}": densities come in the order of '
                "the batches, or as a mapping by batch label."
            )
        if own[0] == batch[0]:
            recoded = (
                " If the model codes the same rows in another way, name its observed variable "
                "otherwise: it is then not compared, and certify tells."
            )
        raise ValueError(
            f"{named(labels, position)}: the model observes {_words(own)} for {name}, the batch "
            f"was sampled with {_words(batch)}.{order} {remedy}{recoded}"
        )


def _check_sizes(observed: Sequence[Observed], sizes: np.ndarray, remedy: str) -> None:
    """Refuse models that all have as many rows as all batches together.

    Other numbers say nothing: a model may observe more or less than one value a row of the data.
    """
    for name in _common_names(observed):
        rows = np.array([len(np.atleast_1d(values[name])) for values in observed])
        _check_not_all(rows, sizes, name, remedy)


def _check_not_all(rows: np.ndarray, sizes: np.ndarray, name: str, remedy: str) -> None:
    """Refuse models that all hold the data of all batches."""
    if len(rows) == 1 or not np.all(rows == sizes.sum()):
        return
    span = f"{sizes.min():.0f}"
    if sizes.min() < sizes.max():
        span += f" to {sizes.max():.0f}"
    raise ValueError(
        f"the model of every batch holds the data of all batches: {rows[0]:.0f} values of {name}, "
        f"where the batches were sampled with {span}. All data would count {len(sizes)} times. "
        f"{remedy}"
    )


def _pooled(summaries: np.ndarray) -> np.ndarray:
    """Return count, mean and sd of all values from those of their parts."""
    counts, means, sds = summaries.T
    shares = counts / max(counts.sum(), 1.0)
    mean = shares @ means
    return np.array([counts.sum(), mean, np.sqrt(shares @ (sds**2 + (means - mean) ** 2))])


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    # data of single precision have been rounded
    tolerance = 1e-4 * max(one[2], other[2]) + 1e-6 * max(abs(one[1]), abs(other[1]))
    return one[0] == other[0] and bool(np.all(np.abs(one[1:] - other[1:]) <= tolerance))


def _words(values: np.ndarray) -> str:
    count, mean, sd = values
    return f"{count:.0f} values of mean {mean:.4g} and sd {sd:.4g}"

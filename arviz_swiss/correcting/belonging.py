"""Whether the densities given are those of the batches: each of its own rows, all rows once."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.data import schema
from arviz_swiss.merging.merged import Merged
from arviz_swiss.merging.models import is_model, observed_values
from arviz_swiss.merging.origin import summary


def check_shared(opened: Merged) -> None:
    """Refuse batches with latent variables of their own, and merges without some batches."""
    if dropped := opened.attrs.get(schema.DROPPED):
        raise ValueError(
            f"batches were dropped from this merge ({dropped}), so there is no full posterior to "
            "compare it with. Merge all batches, or sample the dropped ones again."
        )
    if local := opened.attrs.get(schema.LOCAL):
        raise ValueError(
            f"the batches have latent variables of their own ({local}). The full posterior's "
            "density of the shared parameters is an integral over all of them, which the batches' "
            "densities do not give: such a merge cannot be refined or certified."
        )


def check_rows(densities: Mapping[str, Any], opened: Merged) -> None:
    """Refuse one density for several batches, and PyMC models of other rows than the batches'.

    Parameters
    ----------
    densities : mapping of label to density
        In the order of the batches.
    opened : Merged
    """
    _check_distinct(densities, opened)
    if not all(is_model(density) for density in densities.values()):
        return
    observed = {label: observed_values(model) for label, model in densities.items()}
    if "observed_summary" in opened.maps:
        _check_observed(observed, opened.maps["observed_summary"], opened)
    elif "size" in opened.maps:
        _check_sizes(observed, opened.maps["size"].values, opened)


def advice(opened: Merged) -> str:
    """Say how to make the densities of the batches' own rows."""
    count, seed = len(opened.labels), opened.draws.attrs.get(schema.RANDOM_SEED, "...")
    return (
        "Pass one density for each batch, of the rows that it was sampled with, such as models = "
        f"[build(data[rows]) for rows in partition(data, {count}, random_seed={seed})], with the "
        "groups= or stratify= of sample_batches, if any (a DataFrame: data.iloc[rows]; a dict: "
        "{k: v[rows] for k, v in data.items()})."
    )


def _check_distinct(densities: Mapping[str, Any], opened: Merged) -> None:
    owners: dict[int, list[str]] = {}
    for label, density in densities.items():
        owners.setdefault(id(density), []).append(label)
    for labels in owners.values():
        if len(labels) > 1:
            named = ", ".join(f'"{label}"' for label in labels)
            raise ValueError(
                f"the same density is given for batches {named}. The full posterior is the product "
                "of all likelihoods, so the same rows would count several times. "
                f"{advice(opened)}"
            )


def _check_observed(
    observed: Mapping[str, Mapping[str, np.ndarray]], recorded: xr.DataArray, opened: Merged
) -> None:
    """Refuse models whose observed values are not those recorded of their batches."""
    for name in recorded["observed_variable"].values.astype(str).tolist():
        if not all(name in values for values in observed.values()):
            continue
        expected = recorded.sel(observed_variable=name).transpose("batch", "statistic").values
        found = np.array([summary(values[name]) for values in observed.values()])
        wrong = [not _same(one, other) for one, other in zip(found, expected, strict=True)]
        if not any(wrong):
            continue
        if _hold_all(found[:, 0], expected[:, 0]):
            _refuse_all_data(found[0, 0], name, expected[:, 0], opened)
        position = wrong.index(True)
        others = [i for i, other in enumerate(expected) if _same(found[position], other)]
        order = ""
        if others:
            order = (
                f' They are those of batch "{opened.labels[others[0]]}": densities come in the '
                "order of the batches, or as a mapping by batch label."
            )
        recoded = ""
        if found[position, 0] == expected[position, 0]:
            recoded = (
                " If the model codes the same rows in another way, name its observed variable "
                "otherwise: it is then not compared, and certify tells."
            )
        raise ValueError(
            f'batch {position} ("{opened.labels[position]}"): the model observes '
            f"{_words(found[position])} for {name}, the batch was sampled with "
            f"{_words(expected[position])}.{order} {advice(opened)}{recoded}"
        )


def _check_sizes(
    observed: Mapping[str, Mapping[str, np.ndarray]], sizes: np.ndarray, opened: Merged
) -> None:
    """Refuse models that all have as many rows as all batches together.

    Other numbers say nothing: a model may observe more or less than one value a row of the data.
    """
    for name in next(iter(observed.values())):
        if all(name in values for values in observed.values()):
            rows = np.array([len(np.atleast_1d(values[name])) for values in observed.values()])
            if _hold_all(rows, sizes):
                _refuse_all_data(rows[0], name, sizes, opened)


def _hold_all(found: np.ndarray, expected: np.ndarray) -> bool:
    return len(found) > 1 and bool(np.all(found == expected.sum()))


def _refuse_all_data(found: float, name: str, expected: np.ndarray, opened: Merged) -> None:
    sizes = f"{expected.min():.0f}"
    if expected.min() < expected.max():
        sizes += f" to {expected.max():.0f}"
    raise ValueError(
        f"the model of every batch holds the data of all batches: {found:.0f} values of {name}, "
        f"where the batches were sampled with {sizes}. All data would count {len(expected)} times. "
        f"{advice(opened)}"
    )


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    # data of single precision have been rounded
    tolerance = 1e-4 * max(one[2], other[2]) + 1e-6 * max(abs(one[1]), abs(other[1]))
    return one[0] == other[0] and bool(np.all(np.abs(one[1:] - other[1:]) <= tolerance))


def _words(values: np.ndarray) -> str:
    count, mean, sd = values
    return f"{count:.0f} values of mean {mean:.4g} and sd {sd:.4g}"

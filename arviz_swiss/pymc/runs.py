"""A run of `sample_batches`: the rows of each batch, and what the folder and the batches record."""

import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

import arviz_swiss
from arviz_swiss.data import schema
from arviz_swiss.data.messages import MergeWarning
from arviz_swiss.merging.origin import BUILD, differing
from arviz_swiss.parallel import store
from arviz_swiss.parallel.division import division_attrs, fingerprint_rows
from arviz_swiss.parallel.functions import identify
from arviz_swiss.parallel.partition import partition

__all__ = ["Run", "finished_batches", "plan_run"]

# Begins the names of settings that say what software the folder was begun with.
VERSION = "version "


class Run(NamedTuple):
    """Which rows each batch has, and what is recorded."""

    seed: int
    indices: dict[str, np.ndarray]
    attrs: dict[str, str]
    settings: dict[str, Any] | None
    recorded: dict[str, Any] | None


def plan_run(
    build: Callable[[Any], pm.Model],
    data: Any,
    division: Mapping[str, Any],
    sampling: Mapping[str, Any],
    random_seed: int | None,
    folder: Path | None,
) -> Run:
    """Divide the rows, by the seed of the folder if it has one and none is given.

    Parameters
    ----------
    build : callable
    data : object
        All rows.
    division : mapping
        Arguments of `partition`: batches, groups and stratify.
    sampling : mapping
        The other settings of a folder, flat, of text, numbers and None.
    random_seed : int, optional
    folder : Path, optional

    Returns
    -------
    Run
        The rows by label; the attributes of every batch; and, of a folder, the settings of now and
        those recorded there, if any.
    """
    recorded = None if folder is None else store.read_settings(folder)
    if random_seed is None:
        random_seed = recorded["random_seed"] if recorded else _fresh_seed()
    indices = partition(data, **division, random_seed=random_seed)
    attrs = division_attrs(data, indices, random_seed, division["groups"], division["stratify"])
    settings = None
    if folder is not None:
        settings = {
            "batches": len(indices),
            **sampling,
            "random_seed": random_seed,
            "data": attrs[schema.DATA],
            **{name: _fingerprint(division[name]) for name in ("groups", "stratify")},
            "partition": fingerprint_rows(indices),
            **{f"{BUILD}{name}": value for name, value in identify(build).items()},
        }
        # those of the folder, as long as it has them: what cannot be told of build may come and go
        attrs[schema.SETTINGS] = json.dumps(_without(recorded or settings, VERSION))
        settings[f"{VERSION}arviz_swiss"] = arviz_swiss.__version__
        settings[f"{VERSION}pymc"] = pm.__version__
    labelled = {f"b{position}": index for position, index in enumerate(indices)}
    return Run(random_seed, labelled, attrs, settings, recorded)


def finished_batches(folder: Path, run: Run) -> dict[str, Any]:
    """Return the batches that a folder holds already, by label.

    Parameters
    ----------
    folder : Path
    run : Run

    Returns
    -------
    dict of str to InferenceData or DataTree

    Raises
    ------
    ValueError
        If the folder, or a file in it, was made with other settings or another function.

    Warns
    -----
    MergeWarning
        If batches are still to be sampled, and the folder was begun with other versions.
    """
    if run.recorded is None:
        return {}
    recorded, settings = run.recorded, run.settings
    store.require_same(
        _without(_without(recorded, BUILD), VERSION),
        _without(_without(settings, BUILD), VERSION),
        folder,
    )
    if names := differing(_only(recorded, BUILD), _only(settings, BUILD)):
        raise ValueError(
            f"build is not the function that folder {folder} was begun with: {', '.join(names)} "
            "differ. Batches of two models cannot be merged. Pass another folder to begin anew, or "
            "the function as it was to resume."
        )
    idatas = {label: store.read_batch(folder, label, run.attrs) for label in run.indices}
    idatas = {label: idata for label, idata in idatas.items() if idata is not None}
    if len(idatas) < len(run.indices):
        _warn_versions(_only(recorded, VERSION), _only(settings, VERSION), folder)
    return idatas


def _warn_versions(before: Mapping[str, str], now: Mapping[str, str], folder: Path) -> None:
    changes = [f"{k} {before[k]} → {now.get(k)}" for k in before if before[k] != now.get(k)]
    if changes:
        warnings.warn(
            f"folder {folder} was begun with other versions: {', '.join(changes)}. The batches "
            "that are missing are sampled and can be merged with those there, but their draws are "
            "not the ones that the seed gave then. For those, install the versions of then.",
            MergeWarning,
            stacklevel=4,
        )


def _fresh_seed() -> int:
    return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])


def _fingerprint(labels: Any) -> str | None:
    return None if labels is None else store.fingerprint(labels)


def _only(settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {k.removeprefix(prefix): v for k, v in settings.items() if k.startswith(prefix)}


def _without(settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {k: v for k, v in settings.items() if not k.startswith(prefix)}

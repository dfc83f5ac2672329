"""A run of `sample_batches`: its settings, the rows of each batch, and what the folder records."""

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

import arviz_swiss
from arviz_swiss.data import schema
from arviz_swiss.data.messages import MergeWarning
from arviz_swiss.merging.origin import BUILD, differing
from arviz_swiss.parallel import store
from arviz_swiss.parallel.batch_rows import Split
from arviz_swiss.parallel.division import divide, division_attrs, fingerprint_division
from arviz_swiss.parallel.splitting import recorded_seed
from arviz_swiss.parallel.tables import Table
from arviz_swiss.pymc.identity import identify
from arviz_swiss.pymc.sampler_arguments import default_sampler, fastest_sampler

# Begins the names of settings that say what software the folder was begun with.
VERSION = "version "


class Settings(NamedTuple):
    """How every batch is sampled: the arguments of `sample_batches` that a worker needs."""

    kind: str
    untransformed: tuple[str, ...]
    draws: int
    tune: int | None
    chains: int
    nuts_sampler: str | None
    sample_kwargs: dict[str, Any]
    reproducible: bool = False
    whitened: bool = False
    shared: tuple[str, ...] = ()

    @property
    def sampler(self) -> str:
        """The sampler of PyMC that is used, if one is: by default that of ``pymc.sample``.

        Whitened batches need one only where their own chains do not do, and take the fastest.
        """
        return self.nuts_sampler or (fastest_sampler() if self.whitened else default_sampler())

    def recorded(self) -> dict[str, Any]:
        """Return flat settings of text, numbers and None, as a folder records them.

        How models are compiled is none of them: draws of both ways are from the same distribution.
        """
        further = sorted(self.sample_kwargs.items())
        settings = self._asdict()
        del settings["reproducible"]
        return settings | {
            "untransformed": ", ".join(self.untransformed) or None,
            "shared": ", ".join(self.shared) or None,
            **{name: int(getattr(self, name)) for name in ("draws", "chains")},
            "tune": None if self.tune is None else int(self.tune),
            "nuts_sampler": self.nuts_sampler if self.whitened else self.sampler,
            "sample_kwargs": ", ".join(f"{name}={value!r}" for name, value in further),
        }


class Run(NamedTuple):
    """The rows of each batch, attributes of all; of a folder the settings of now and of then.

    `indices` say what to `take` of the `data`, which may be files; `place` is an attribute that
    tells where these are.
    """

    seed: int
    data: Any
    indices: dict[str, Any]
    attrs: dict[str, str]
    folder: Path | None
    settings: dict[str, Any]
    recorded: dict[str, Any] | None
    place: Mapping[str, str]

    @property
    def all_attrs(self) -> dict[str, str]:
        """What draws record of the run: what it is known by, and where its rows are."""
        return {**self.attrs, **self.place}


def plan_run(
    data: Any,
    division: Mapping[str, Any],
    settings: Settings,
    random_seed: int | None,
    folder: Path | None,
) -> Run:
    """Divide the rows, by the seed of the folder if it has one and none is given.

    `division` holds the arguments of `partition`: batches, groups and stratify. A folder that was
    made with other settings is refused.
    """
    recorded = None if folder is None else store.read_settings(folder)
    if random_seed is None and recorded:
        random_seed = recorded["random_seed"]
    if random_seed is None:
        random_seed, data, indices = _divide_first(data, division)
    else:
        data, indices = divide(data, **division, random_seed=random_seed)
    labels = {name: division[name] for name in ("groups", "stratify")}
    attrs = division_attrs(data, indices, random_seed, **labels, shared=settings.shared)
    now: dict[str, Any] = {}
    if folder is not None:
        now = {
            "batches": len(indices),
            **settings.recorded(),
            "random_seed": random_seed,
            "data": attrs[schema.DATA],
            **{k: None if v is None else store.fingerprint(v) for k, v in labels.items()},
            "partition": fingerprint_division(data, indices),
        }
        if recorded:
            store.require_same(_without(_without(recorded, BUILD), VERSION), now, folder)
    labelled = {f"b{position}": index for position, index in enumerate(indices)}
    place = {}
    if isinstance(data, Split) and folder is not None:
        place = {schema.ROWS: str(folder.absolute())}
    return Run(random_seed, data, labelled, attrs, folder, now, recorded, place)


def _divide_first(data: Any, division: Mapping[str, Any]) -> tuple[int, Any, list[Any]]:
    """Divide the rows by a new seed; of files in a folder without settings yet, by theirs."""
    fresh = int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    before = _seed_of_split(data)
    seed = fresh if before is None else before
    try:
        return seed, *divide(data, **division, random_seed=seed)
    except ValueError:
        # another process may have divided them meanwhile: then its seed holds
        theirs = _seed_of_split(data)
        if theirs in (None, seed):
            raise
    return theirs, *divide(data, **division, random_seed=theirs)


def _seed_of_split(data: Any) -> int | None:
    return recorded_seed(data) if isinstance(data, Table) else None


def add_models(run: Run, models: Sequence[pm.Model]) -> Run:
    """Add to a folder's settings what models the function makes; refuse others than it has."""
    if run.folder is None:
        return run
    built = identify(models)
    if run.recorded and (names := differing(_only(run.recorded, BUILD), built)):
        raise ValueError(
            f"build does not make the models that folder {run.folder} was begun with: their "
            f"{' and '.join(names)} differ. Batches of two models cannot be merged. Pass another "
            "folder to begin anew, or a function that makes the models as they were to resume."
        )
    settings = run.settings | {f"{BUILD}{name}": value for name, value in built.items()}
    # those of the folder, as long as it has them: what cannot be told of build may come and go
    text = json.dumps(_without(run.recorded or settings, VERSION))
    settings |= {f"{VERSION}arviz_swiss": arviz_swiss.__version__, f"{VERSION}pymc": pm.__version__}
    return run._replace(settings=settings, attrs={**run.attrs, schema.SETTINGS: text})


def finished_batches(run: Run) -> dict[str, Any]:
    """Return the batches that the folder holds already, by label; refuse those of another run.

    Warns if some are still to be sampled, and the folder was begun with other versions.
    """
    if run.folder is None or run.recorded is None:
        return {}
    idatas = {label: store.read_batch(run.folder, label, run.attrs) for label in run.indices}
    idatas = {label: idata for label, idata in idatas.items() if idata is not None}
    if len(idatas) < len(run.indices):
        _warn_versions(_only(run.recorded, VERSION), _only(run.settings, VERSION), run.folder)
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


def _only(settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {k.removeprefix(prefix): v for k, v in settings.items() if k.startswith(prefix)}


def _without(settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {k: v for k, v in settings.items() if not k.startswith(prefix)}

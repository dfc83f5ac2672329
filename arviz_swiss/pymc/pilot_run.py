"""Find the pilot of a run: by gradients of all batches, by a run of one, or in the folder."""

from typing import Any

import numpy as np
import xarray as xr
from threadpoolctl import threadpool_limits

from arviz_swiss.base.mode import NoMode, SeveralModes
from arviz_swiss.correcting.batch_model import opened
from arviz_swiss.correcting.evaluation import evaluating
from arviz_swiss.data import containers, schema
from arviz_swiss.data.progress import progress, ticking
from arviz_swiss.parallel import store
from arviz_swiss.pymc.checking import Checked
from arviz_swiss.pymc.coordinates import Coordinates
from arviz_swiss.pymc.joint_pilot import ROUNDS, pilot_by_rounds
from arviz_swiss.pymc.pilot import Pilot, gaussian_of, laplace
from arviz_swiss.pymc.runs import Run, Settings
from arviz_swiss.pymc.task import PLAIN_TUNE, Task
from arviz_swiss.pymc.whitened import have_met
from arviz_swiss.pymc.worker import sample_task

# The file of a folder that holds it.
FILE = "pilot"
# Of the run of one batch that stands in for the mode.
SHORT_DRAWS, SHORT_CHAINS = 250, 4
# Dimensions of a covariance, as merged objects have them.
DIMS = ("parameter", "parameter_bis")


def find_pilot(
    run: Run, settings: Settings, checked: Checked, executor: Any, progressbar: bool
) -> tuple[Pilot | None, str]:
    """Return the pilot, or None and why there is none."""
    if len(checked.models) < len(run.indices):
        return None, "the models of all batches could not be had side by side"
    if not checked.axes and settings.kind == "fractionated" and checked.model.potentials:
        return None, "the model has Potentials, which are not raised to the power of the prior"
    if run.folder is not None:
        kept = store.read_result(run.folder, FILE, run.attrs)
        if kept is not None:
            return _from_dataset(kept[schema.PILOT]), ""
    if checked.axes:
        rows = list(map(len, run.indices.values()))
        try:
            pilot = _by_rounds(checked, sum(rows) / rows[0], run.seed, progressbar)
        except NoMode as no_mode:
            return None, str(no_mode)
        return _saved(pilot, run), ""
    coordinates = Coordinates(checked.model)
    try:
        pilot = _by_gradients(run, checked.models, coordinates, executor, progressbar)
    except SeveralModes as several:
        farthest = coordinates.parameters[several.distances.argmax()]
        return None, f"the first batch has several modes, which differ most in {farthest}"
    except NoMode as no_mode:
        try:
            with (
                progress(1, "Pilot", progressbar, unit="run") as bar,
                ticking(bar, "a run of batch b0"),
            ):
                pilot = _by_run(run, settings, checked, coordinates)
                bar()
        except Exception as error:  # whatever sampling may raise
            return None, f"{no_mode}, and a run of batch b0 gave no Gaussian: {error}"
    return _saved(pilot, run), ""


def _saved(pilot: Pilot, run: Run) -> Pilot:
    if run.folder is not None:
        store.write_result(run.folder, FILE, {schema.PILOT: to_dataset(pilot)}, run.attrs)
    return pilot


def _by_rounds(checked: Checked, power: float, seed: int, progressbar: bool) -> Pilot:
    with progress(ROUNDS, "Pilot", progressbar, unit="round") as bar, threadpool_limits(1):
        model = opened(checked.models["b0"])
        pilot = pilot_by_rounds(model, checked.axes, power, seed, bar)
        bar.stage()
        bar.finish()
    return pilot


def to_dataset(pilot: Pilot) -> xr.Dataset:
    """Return the pilot as a group of a merged object."""
    return xr.Dataset(
        {"mean": (DIMS[:1], pilot.mean), "covariance": (DIMS, pilot.covariance)},
        coords={dim: list(pilot.parameters) for dim in DIMS},
        attrs={schema.HOW: pilot.how},
    )


def _from_dataset(dataset: xr.Dataset) -> Pilot:
    parameters = tuple(dataset[DIMS[0]].values.astype(str).tolist())
    mean, covariance = dataset["mean"].values, dataset["covariance"].values
    return Pilot(parameters, mean, covariance, dataset.attrs[schema.HOW])


def _by_gradients(
    run: Run,
    models: dict[str, Any],
    coordinates: Coordinates,
    executor: Any,
    progressbar: bool,
) -> Pilot:
    rows = {label: len(index) for label, index in run.indices.items()}
    labels = list(run.indices)
    with (
        progress(None, "Pilot", progressbar, unit=" evaluations") as bar,
        evaluating(models, coordinates.merge_space, executor, bar) as evaluate,
    ):
        pilot = laplace(evaluate, labels, sum(rows.values()) / rows[labels[0]], coordinates)
        bar.finish()
    return pilot


def _by_run(run: Run, settings: Settings, checked: Checked, coordinates: Coordinates) -> Pilot:
    """Sample the first batch in the model's own coordinates, with a full warm-up."""
    model = opened(checked.models["b0"])
    task = Task(
        label="b0",
        build=lambda data: model,
        data=None,
        rows=len(run.indices["b0"]),
        total=sum(map(len, run.indices.values())),
        settings=settings._replace(
            draws=SHORT_DRAWS, chains=SHORT_CHAINS, tune=PLAIN_TUNE, whitened=False
        ),
        first=checked.first,
        levels=checked.levels,
        local=checked.local,
        seeds=tuple(np.random.SeedSequence(run.seed).generate_state(2).tolist()),
        attrs=run.attrs,
        model=model,
    )
    groups = containers.read(sample_task(task)).groups
    draws = coordinates.from_dataset(groups["posterior"])
    if not have_met(draws, groups["sample_stats"]):
        raise NoMode("its chains did not meet")
    return gaussian_of(draws, coordinates, "a run of batch b0")

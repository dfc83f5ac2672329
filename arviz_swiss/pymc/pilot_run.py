"""Find the pilot of a run: by gradients of all batches, by a run of one, or read from the folder."""

import json
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.correcting.evaluation import evaluating
from arviz_swiss.data import containers, schema
from arviz_swiss.parallel import store
from arviz_swiss.parallel.progress import progress
from arviz_swiss.pymc.checking import Checked
from arviz_swiss.pymc.coordinates import Coordinates
from arviz_swiss.pymc.pilot import NoMode, Pilot, gaussian_of, laplace
from arviz_swiss.pymc.runs import Run, Settings
from arviz_swiss.pymc.worker import PLAIN_TUNE, Task, sample_task

# Of the run of one batch that stands in for the mode.
SHORT_DRAWS, SHORT_CHAINS = 500, 2


def find_pilot(
    run: Run, settings: Settings, checked: Checked, executor: Any, progressbar: bool
) -> tuple[Pilot | None, str]:
    """Return the pilot, or None and why there is none."""
    if len(checked.models) < len(run.indices):
        return None, "the models of all batches cannot be had at the same time"
    if settings.kind == "fractionated" and any(m.potentials for m in checked.models.values()):
        return None, "Potentials are not raised to the power of the prior"
    kept = store.read_result(run.folder, PILOT, run.attrs) if run.folder is not None else None
    if kept is not None:
        return _from_dataset(kept[schema.PILOT]), ""
    coordinates = Coordinates(checked.models["b0"])
    try:
        pilot = _by_gradients(run, checked, coordinates, executor, progressbar)
    except NoMode as no_mode:
        try:
            pilot = _by_run(run, settings, checked, coordinates)
        except Exception as error:  # whatever sampling a batch may raise
            return None, f"{no_mode}, and a run of batch b0 gave none: {error}"
    if run.folder is not None:
        store.write_result(run.folder, PILOT, {schema.PILOT: to_dataset(pilot)}, run.attrs)
    return pilot, ""

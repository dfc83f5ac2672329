"""What `sample` does with sampled batches: merge, refine, certify, or go on from a folder."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr

from arviz_swiss.base.gaussian import gaussian
from arviz_swiss.correcting.certify import certify
from arviz_swiss.correcting.densities import JointSpace
from arviz_swiss.correcting.evaluation import EvaluationFailed
from arviz_swiss.correcting.propagation import plan_effort, propagate_models
from arviz_swiss.correcting.refine import refine
from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import Container
from arviz_swiss.merging.merge import merge
from arviz_swiss.parallel import store
from arviz_swiss.parallel.clock import Clock
from arviz_swiss.pymc.pilot_run import to_dataset
from arviz_swiss.pymc.running import Sampled


class Wanted(NamedTuple):
    """How to merge, whether to refine and certify, how many draws in all, where, and if to show.

    `model` is that of all rows where the order of groups must be told, which batches do not know;
    `coords` are that order, also where there is no such model.
    """

    method: str
    refine: bool
    certify: bool
    draws: int
    effort: Mapping[str, Any]
    model: pm.Model | None
    coords: Mapping[str, Any]
    executor: Any
    progressbar: bool


def run_stages(sampled: Sampled, wanted: Wanted, clock: Clock) -> tuple[Container, str]:
    """Merge, refine and certify, or go on from what the folder has of that.

    Returns the result, and why a stage could not be done, if so.
    """
    stages = [stage for stage in ("refine", "certify") if getattr(wanted, stage)]
    run = sampled.run
    attrs = {**run.attrs, "method": wanted.method, "draws": _fingerprint(sampled)}
    result, done = _read_stage(run.folder, stages, attrs)
    if result is None and not sampled.is_propagated:
        with clock("merge"):
            result = _merge(sampled, wanted)
    for stage in stages[done:]:
        try:
            with clock(stage):
                result = _function(stage, sampled, wanted)(
                    result,
                    sampled.models,
                    random_seed=_seed(run.seed, stage),
                    executor=wanted.executor,
                    progressbar=wanted.progressbar,
                )
        except EvaluationFailed as error:
            if result is None:
                raise
            return result, str(error)  # what was sampled shall not be lost
        if run.folder is not None:
            through = {**attrs, "stages": _through(stages, stage)}
            store.write_result(run.folder, stage, containers.read(result).groups, through)
    assert result is not None
    return result, ""


def _function(stage: str, sampled: Sampled, wanted: Wanted) -> Callable[..., Container]:
    if stage == "certify":
        return certify
    if sampled.is_propagated:
        return partial(_propagate, sampled, wanted)
    return partial(refine, model=sampled.model)


def _propagate(
    sampled: Sampled,
    wanted: Wanted,
    _: None,
    models: Mapping[str, Any],
    *,
    random_seed: int,
    executor: Any,
    progressbar: bool,
) -> Container:
    """Sample batches with variables of their own in rounds, from the pilot on."""
    pilot, indices = sampled.pilot, sampled.run.indices
    assert pilot is not None
    rows = {label: len(index) for label, index in indices.items()}
    merged = propagate_models(
        {label: models[label] for label in indices},
        JointSpace(pilot.parameters, dict(sampled.axes)),
        gaussian(pilot.mean, pilot.covariance),
        rows,
        plan_effort(len(pilot.parameters), len(rows), wanted.draws, **wanted.effort),
        attrs=sampled.run.all_attrs,
        coords=wanted.coords,
        executor=executor,
        rng=np.random.default_rng(random_seed),
        progressbar=progressbar,
    )
    return _with_pilot(merged, sampled)


def _merge(sampled: Sampled, wanted: Wanted) -> Container:
    merged = merge(
        list(sampled.idatas.values()),
        model=wanted.model or sampled.model,
        method=wanted.method,
        covariance="corrected",  # for few draws
        random_seed=_seed(sampled.run.seed, "merge"),
    )
    if sampled.pilot is None:
        return merged
    return _with_pilot(_with_left_out(merged, sampled.model), sampled)


def _with_pilot(merged: Container, sampled: Sampled) -> Container:
    """Add the pilot, in the order of the merge."""
    maps = containers.read(merged).groups[schema.TRANSFORM]
    parameters = maps["parameter"].values.astype(str).tolist()
    if sampled.pilot is None or set(parameters) != set(sampled.pilot.parameters):
        return merged
    return with_group(merged, schema.PILOT, to_dataset(sampled.pilot.ordered(parameters)))


def _with_left_out(merged: Container, model: pm.Model) -> Container:
    """Say which deterministics are not there: those of the rows of a batch."""
    posterior = containers.read(merged).groups["posterior"]
    names = [var.name for var in model.deterministics if var.name not in posterior]
    told = [name for name in posterior.attrs.get(schema.LEFT_OUT, "").split(", ") if name]
    if not set(names) - set(told):
        return merged
    attrs = {schema.LEFT_OUT: ", ".join(dict.fromkeys([*told, *names]))}
    return with_group(merged, "posterior", posterior.assign_attrs(attrs))


def with_group(merged: Container, name: str, group: xr.Dataset) -> Container:
    """Return a merged object with one more group, or another one."""
    contents = containers.read(merged)
    return containers.build(
        {**contents.groups, name: group}, contents.container, containers.root_attrs(merged)
    )


def _through(stages: Sequence[str], last: str) -> str:
    return ", ".join(stages[: stages.index(last) + 1])


def _fingerprint(sampled: Sampled) -> str:
    """Tell the draws of all batches, or the pilot: what was made of others is made anew."""
    if sampled.run.folder is None:
        return ""
    if sampled.is_propagated and sampled.pilot is not None:
        return store.fingerprint({"mean": sampled.pilot.mean, "cov": sampled.pilot.covariance})
    posteriors = {k: containers.read(v).groups["posterior"] for k, v in sampled.idatas.items()}
    return store.fingerprint({k: dict(v.drop_attrs().data_vars) for k, v in posteriors.items()})


def _read_stage(
    folder: Path | None, stages: Sequence[str], attrs: Mapping[str, Any]
) -> tuple[Container | None, int]:
    """Return the last result that a folder has, and how many of the stages it is through."""
    for position in range(len(stages) - 1, -1, -1):
        through = {**attrs, "stages": _through(stages, stages[position])}
        kept = None if folder is None else store.read_result(folder, stages[position], through)
        if kept is not None:
            return containers.build(kept), position + 1
    return None, 0


def _seed(seed: int, stage: str) -> int:
    """Return a seed of its own for a stage of the run."""
    return int(np.random.SeedSequence([seed, *stage.encode()]).generate_state(1)[0])

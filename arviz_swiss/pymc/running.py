"""A run of batches: plan, check, find a pilot, sample in parallel, save what is finished."""

import contextlib
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from threadpoolctl import threadpool_limits

from arviz_swiss.base.counts import check_count
from arviz_swiss.merging.powers import KINDS
from arviz_swiss.parallel import executors, store
from arviz_swiss.parallel.batch_error import BatchError
from arviz_swiss.parallel.clock import Clock
from arviz_swiss.parallel.partition import row_count, take
from arviz_swiss.parallel.progress import progress, waiting_for
from arviz_swiss.pymc.checking import (
    Checked,
    build_probes,
    check_models,
    check_potentials,
    suits_threads,
)
from arviz_swiss.pymc.pilot import Pilot
from arviz_swiss.pymc.pilot_run import find_pilot
from arviz_swiss.pymc.runs import Run, Settings, add_models, finished_batches, plan_run
from arviz_swiss.pymc.sampler_arguments import check_own_kwargs, check_sample_kwargs
from arviz_swiss.pymc.worker import Task, compile_ahead, sample_task

# Beside the bar: until the first batch samples, which other machines tell only when it is done.
COMPILING = "compiling before the first batch"


class Sampled(NamedTuple):
    """The batches of a run by label, and their models as far as they were kept; b0's in any case.

    `axes` are those of local variables along which a batch's groups lie; `plain` says why there is
    no pilot although one was wanted.
    """

    run: Run
    idatas: dict[str, Any]
    models: dict[str, pm.Model]
    axes: Mapping[str, int]
    pilot: Pilot | None = None
    plain: str = ""

    @property
    def is_propagated(self) -> bool:
        """Whether batches are left to rounds of expectation propagation, with a pilot to begin."""
        return bool(self.axes) and self.pilot is not None


def run_batches(
    build: Callable[[Any], pm.Model],
    data: Any,
    division: Mapping[str, Any],
    settings: Settings,
    *,
    executor: Any,
    folder: str | Path | None,
    random_seed: int | None,
    progressbar: bool,
    clock: Clock | None = None,
    keep: bool = False,
) -> Sampled:
    """Sample the batches that the folder does not have; `division` are arguments of `partition`.

    Models are kept for who asks to `keep` them, as far as memory allows.
    Who calls it has called `check_arguments` before.
    """
    folder = None if folder is None else Path(folder)
    clock = clock or Clock()
    begun = False
    with clock("plan"):
        while not begun:
            run = plan_run(data, division, settings, random_seed, folder)
            probes = build_probes(build, data, run.indices)
            if settings.whitened:
                check_potentials([probe.model for probe in probes[:2]])
            run = add_models(run, [probe.model for probe in probes[:2]])
            idatas = finished_batches(run)
            if len(idatas) == len(run.indices) and not (settings.whitened or keep):
                return Sampled(run, idatas, {"b0": probes[0].model}, {})
            threads = executor is None and (_is_own(settings) or suits_threads(probes, settings))
            checked = check_models(
                build,
                data,
                run.indices,
                probes,
                settings,
                grouped=division["groups"] is not None,
                keep=threads or settings.whitened or keep,
            )
            # another process may begin the folder while models are checked: then its settings hold
            begun = (
                folder is None or bool(run.recorded) or store.create_settings(folder, run.settings)
            )
    sampled = Sampled(run, idatas, {"b0": probes[0].model, **checked.models}, checked.axes)
    if settings.whitened:
        with clock("pilot"):
            pilot, plain = find_pilot(run, settings, checked, executor, progressbar)
        sampled = sampled._replace(pilot=pilot, plain=plain)
    if sampled.is_propagated:
        return sampled
    with clock("batches"):
        threads = threads and bool(checked.models)
        return _sample_missing(
            build, data, settings, checked, sampled, executor, threads, progressbar
        )


def _is_own(settings: Settings) -> bool:
    return settings.whitened and settings.nuts_sampler is None


def _sample_missing(
    build: Callable[[Any], pm.Model],
    data: Any,
    settings: Settings,
    checked: Checked,
    sampled: Sampled,
    executor: Any,
    threads: bool,
    progressbar: bool,
) -> Sampled:
    """Sample the batches that are not there yet."""
    run, idatas = sampled.run, dict(sampled.idatas)
    seeds = np.random.SeedSequence(run.seed).spawn(len(run.indices))
    tasks = {
        label: Task(
            label=label,
            build=build,
            data=None if threads and label in checked.models else take(data, index),
            rows=len(index),
            total=row_count(data),
            settings=settings,
            first=checked.first,
            local=checked.local,
            seeds=tuple(int(value) >> 1 for value in seed.generate_state(2)),
            attrs=run.attrs,
            model=checked.models.get(label) if threads else None,
            pilot=sampled.pilot,
        )
        for (label, index), seed in zip(run.indices.items(), seeds, strict=True)
        if label not in idatas
    }
    failed: dict[str, BaseException] = {}
    if tasks:
        pool = executors.own_threads(len(tasks)) if threads else contextlib.nullcontext(executor)
        with pool as workers:
            failed = _sample(tasks, workers, run, idatas, progressbar, threads)
    idatas = {label: idatas[label] for label in run.indices if label in idatas}
    if failed:
        raise BatchError({k: failed[k] for k in run.indices if k in failed}, idatas, run.folder)
    return sampled._replace(idatas=idatas)


def _sample(
    tasks: Mapping[str, Task],
    executor: Any,
    run: Run,
    idatas: dict[str, Any],
    progressbar: bool,
    ahead: bool,
) -> dict[str, BaseException]:
    """Run the tasks, add what they return to `idatas`, save it, and return what went wrong.

    `ahead` tells to compile the first in this thread.
    """
    failed: dict[str, BaseException] = {}
    is_quick = all(task.is_own for task in tasks.values())
    with (
        # the same draws everywhere: sums depend on the number of BLAS threads
        threadpool_limits(1),
        # what threads filter at the same time may not outlive them
        warnings.catch_warnings(),
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as signs,
        progress(len(run.indices), "Sampling", progressbar, done=len(idatas)) as bar,
        waiting_for(lambda: bool(os.listdir(signs)), bar, "" if is_quick else COMPILING),
    ):
        portable = {
            label: executors.Portable(
                task._replace(sign=os.path.join(signs, label)), by_value=task.build
            )
            for label, task in tasks.items()
        }
        if ahead and not is_quick:
            compile_ahead(next(iter(tasks.values())))
        for label, outcome in executors.run(sample_task, portable, executor):
            if outcome.error is not None:
                failed[label] = outcome.error
            else:
                idatas[label] = outcome.result
                if run.folder is not None:
                    try:
                        store.write_batch(run.folder, label, outcome.result)
                    # whatever it is, the other batches shall not be lost
                    except Exception as error:
                        failed[label] = error
            bar.stage()
            bar()
    return failed


def check_arguments(function: str, build: Any, settings: Settings, executor: Any) -> None:
    """Refuse what the function that was called cannot use, before any model is built."""
    if not callable(build):
        hint = " Pass the function that makes it." if isinstance(build, pm.Model) else ""
        raise TypeError(
            f"build must be a function of one batch of the data that returns a pymc.Model, got "
            f"{type(build).__name__!r}.{hint}"
        )
    if settings.kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {settings.kind!r}.")
    if settings.untransformed and settings.kind != "fractionated":
        raise ValueError(
            "untransformed= says where the prior is raised to a power, but "
            f'kind="{settings.kind}" leaves it alone. Leave it out; '
            "merge(..., transforms={name: None}) is enough."
        )
    for name, least in {"draws": 1, "tune": 0, "chains": 1}.items():
        value = getattr(settings, name)
        if name != "tune" or value is not None:
            check_count(name, value, least)
    executors.check_executor(executor)
    check_sample_kwargs(settings.sample_kwargs, settings.nuts_sampler, function)
    if _is_own(settings):
        check_own_kwargs(settings.sample_kwargs)

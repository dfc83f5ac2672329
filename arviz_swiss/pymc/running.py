"""A run of batches: plan, check, find a pilot, sample in parallel, save what is finished."""

import contextlib
import numbers
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from threadpoolctl import threadpool_limits

from arviz_swiss.base.counts import check_count
from arviz_swiss.data import containers, temporaries
from arviz_swiss.data.progress import progress, waiting_for
from arviz_swiss.merging.powers import KINDS
from arviz_swiss.parallel import executors, store
from arviz_swiss.parallel.batch_error import BatchError
from arviz_swiss.parallel.batch_rows import Split
from arviz_swiss.parallel.clock import Clock
from arviz_swiss.parallel.missing import describe_missing
from arviz_swiss.parallel.partition import packed, row_count, take
from arviz_swiss.parallel.splitting import check_current
from arviz_swiss.pymc.checking import (
    Checked,
    build_probes,
    check_models,
    check_potentials,
    suits_threads,
)
from arviz_swiss.pymc.garbage import free_models, model_bytes
from arviz_swiss.pymc.pilot import Pilot
from arviz_swiss.pymc.pilot_run import find_pilot
from arviz_swiss.pymc.runs import Run, Settings, add_models, finished_batches, plan_run
from arviz_swiss.pymc.sampler_arguments import check_own_kwargs, check_sample_kwargs
from arviz_swiss.pymc.structure import Refused, Structure, check_apart, of_draws
from arviz_swiss.pymc.task import Task
from arviz_swiss.pymc.worker import compile_ahead, sample_task

# Beside the bar: until the first batch samples, which other machines tell only when it is done.
COMPILING = "compiling before the first batch"


class Limits(NamedTuple):
    """Seconds that a batch may take, and whether it returns its rows beside its draws."""

    timeout: float | None = None
    keep_data: bool = True


class Sampled(NamedTuple):
    """The batches of a run by label, the model of b0, and those of all as far as they were kept.

    `axes` are those of local variables along which a batch's groups lie; `plain` says why there is
    no pilot although one was wanted.
    """

    run: Run
    idatas: dict[str, Any]
    model: pm.Model
    models: dict[str, Any]
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
    limits: Limits | None = None,
    clock: Clock | None = None,
    keep: bool = False,
) -> Sampled:
    """Sample the batches that the folder does not have; `division` are arguments of `partition`.

    Models are kept for who asks to `keep` them, as far as memory allows.
    Who calls it has called `check_arguments` before.
    """
    folder = None if folder is None else Path(folder)
    clock, limits = clock or Clock(), limits or Limits()
    if folder is not None:
        temporaries.clean(folder)
    with clock("plan"):
        planned, bytes_left = _plan(build, data, division, settings, random_seed, folder, keep)
        # a thread that hangs cannot be ended, a process can
        threads = executor is None and limits.timeout is None and planned.suits_threads
        if not (threads or settings.whitened or keep):
            planned = planned.without_models()
        free_models(bytes_left)
    sampled, checked = planned.sampled, planned.checked
    if checked is None:
        return sampled
    if settings.whitened:
        with clock("pilot"):
            pilot, plain = find_pilot(sampled.run, settings, checked, executor, progressbar)
        sampled = sampled._replace(pilot=pilot, plain=plain)
    if sampled.is_propagated:
        return sampled
    with clock("batches"):
        return _sample_missing(
            build, settings, checked, sampled, limits, executor, threads, progressbar
        )


class _Planned(NamedTuple):
    """A run that may begin, and whether threads suit it; nothing is checked if all is done."""

    sampled: Sampled
    checked: Checked | None = None
    suits_threads: bool = False

    def without_models(self) -> "_Planned":
        """Return it with the model of the first batch alone: other processes build their own."""
        checked = None if self.checked is None else self.checked._replace(models={})
        return self._replace(sampled=self.sampled._replace(models={}), checked=checked)


def _plan(
    build: Callable[[Any], pm.Model],
    data: Any,
    division: Mapping[str, Any],
    settings: Settings,
    random_seed: int | None,
    folder: Path | None,
    keep: bool,
) -> tuple[_Planned, int]:
    """Divide the rows, build the first models, and begin the folder; tell their bytes."""
    while True:
        run = plan_run(data, division, settings, random_seed, folder)
        grouped = division["groups"] is not None
        probes = build_probes(build, run.data, run.indices, grouped)
        if settings.whitened:
            check_potentials([probe.model for probe in probes[:2]])
        run = add_models(run, [probe.model for probe in probes[:2]])
        idatas = finished_batches(run)
        if len(idatas) == len(run.indices) and not (settings.whitened or keep):
            return _Planned(Sampled(run, idatas, probes[0].model, {}, {})), 0
        checked = check_models(
            build,
            run.data,
            run.indices,
            probes,
            settings,
            grouped=grouped,
            keep=settings.whitened or keep,
        )
        # another process may begin the folder while models are checked: then its settings hold
        if folder is None or run.recorded or store.create_settings(folder, run.settings):
            if isinstance(run.data, Split):
                check_current(run.data)
            break
    threads = bool(checked.models) and (_is_own(settings) or suits_threads(probes, settings))
    sampled = Sampled(run, idatas, checked.model, checked.models, checked.axes)
    return _Planned(sampled, checked, threads), model_bytes(probe.model for probe in probes)


def _is_own(settings: Settings) -> bool:
    return settings.whitened and settings.nuts_sampler is None


def _sample_missing(
    build: Callable[[Any], pm.Model],
    settings: Settings,
    checked: Checked,
    sampled: Sampled,
    limits: Limits,
    executor: Any,
    threads: bool,
    progressbar: bool,
) -> Sampled:
    """Sample the batches that are not there yet."""
    run, idatas = sampled.run, dict(sampled.idatas)
    total = row_count(run.data)
    held = checked.models if threads and not isinstance(run.data, Split) else {}
    states = np.random.SeedSequence(run.seed).spawn(len(run.indices))
    seeds = dict(zip(run.indices, states, strict=True))

    def task_of(label: str) -> Task:
        # models cannot all be pickled: other processes build theirs again
        model, data = held.get(label), None
        if model is None:
            data = packed(run.data, run.indices[label], stays_here=threads)
        return Task(
            label=label,
            build=build,
            data=data,
            rows=len(run.indices[label]),
            total=total,
            settings=settings,
            first=checked.first,
            levels=checked.levels,
            local=checked.local,
            seeds=tuple(int(value) >> 1 for value in seeds[label].generate_state(2)),
            attrs=run.all_attrs,
            keep_data=limits.keep_data,
            model=model,
            pilot=sampled.pilot,
        )

    missing = [label for label in run.indices if label not in idatas]
    failed: dict[str, BaseException] = {}
    if missing:
        tasks = executors.Lazy(missing, task_of)
        pool = executors.own_threads(len(tasks)) if threads else contextlib.nullcontext(executor)
        with pool as workers, _telling_how_to_resume(run, idatas):
            failed = _sample(tasks, workers, sampled, idatas, limits, progressbar, threads)
    idatas = {label: idatas[label] for label in run.indices if label in idatas}
    if failed:
        failed = {label: failed[label] for label in run.indices if label in failed}
        raise BatchError(failed, idatas, run.folder, _hints(run, failed))
    return sampled._replace(idatas=idatas)


def _hints(run: Run, failed: Iterable[str]) -> dict[str, str]:
    """Return what is wrong with the rows of batches that failed, as far as rows can be read."""
    hints = {}
    for label in failed:
        with contextlib.suppress(Exception):  # what failed may be reading them
            hints[label] = describe_missing(take(run.data, run.indices[label]))
    return hints


@contextlib.contextmanager
def _telling_how_to_resume(run: Run, idatas: Mapping[str, Any]) -> Iterator[None]:
    """Say with an interrupt what is kept, and how to go on."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        finished = f"{len(idatas)} of {len(run.indices)} batches were finished"
        interrupt.add_note(
            f"{finished}, but not saved: with folder= they would be, and the same call would go on."
            if run.folder is None
            else f"{finished} and are saved in {run.folder}: the same call goes on from there."
        )
        raise


def _sample(
    tasks: Mapping[str, Task],
    executor: Any,
    sampled: Sampled,
    idatas: dict[str, Any],
    limits: Limits,
    progressbar: bool,
    ahead: bool,
) -> dict[str, BaseException]:
    """Run the tasks, add what they return to `idatas`, save it, and return what went wrong.

    `ahead` tells to compile the first in this thread.
    """
    run = sampled.run
    failed: dict[str, BaseException] = {}
    known = {label: _local_labels(idata, sampled.axes) for label, idata in idatas.items()}
    first = tasks[next(iter(tasks))]
    is_quick, build = first.is_own, first.build
    with (
        # the same draws everywhere: sums depend on the number of BLAS threads
        threadpool_limits(1),
        # what threads filter at the same time may not outlive them
        warnings.catch_warnings(),
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as signs,
        progress(len(run.indices), "Sampling", progressbar, done=len(idatas)) as bar,
        waiting_for(lambda: bool(os.listdir(signs)), bar, "" if is_quick else COMPILING),
    ):

        def portable(label: str) -> executors.Portable:
            task = tasks[label]._replace(sign=os.path.join(signs, label))
            return executors.Portable(task, by_value=build)

        if ahead and not is_quick:
            compile_ahead(first)
        del first
        lazily = executors.Lazy(tasks, portable)
        outcomes = executors.run(
            sample_task, lazily, executor, timeout=limits.timeout, say=bar.stage
        )
        with contextlib.closing(outcomes):
            for label, outcome in outcomes:
                if isinstance(outcome.error, Refused):  # no model will do that makes this batch
                    raise outcome.error
                if outcome.error is not None:
                    failed[label] = outcome.error
                else:
                    known[label] = _local_labels(outcome.result, sampled.axes)
                    _check_apart(known, sampled.axes, label)
                    idatas[label] = outcome.result
                    _save(run, label, outcome.result, failed)
                bar.stage()
                bar()
    return failed


def _save(run: Run, label: str, idata: Any, failed: dict[str, BaseException]) -> None:
    if run.folder is not None:
        try:
            store.write_batch(run.folder, label, idata)
        # whatever it is, the other batches shall not be lost
        except Exception as error:
            failed[label] = error


def _local_labels(idata: Any, axes: Mapping[str, int]) -> Structure:
    return of_draws(containers.read(idata).groups["posterior"], axes)


def _check_apart(known: Mapping[str, Structure], axes: Mapping[str, int], label: str) -> None:
    """Refuse a batch that has a group of another one."""
    others = {f"batch {k}": labels for k, labels in known.items() if k != label}
    check_apart(others, known[label], axes, f"batch {label}")


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


def checked_timeout(timeout: Any) -> float | None:
    """Return the seconds that a batch may take; refuse what is no positive number."""
    is_number = isinstance(timeout, numbers.Real) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and timeout > 0):
        raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}.")
    return None if timeout is None else float(timeout)

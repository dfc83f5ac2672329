"""Sample one batch: what runs in a worker of `sample_batches`."""

import contextlib
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from threadpoolctl import threadpool_limits

import arviz_swiss
from arviz_swiss.data import containers, schema
from arviz_swiss.data.messages import MergeWarning
from arviz_swiss.merging.origin import summary
from arviz_swiss.parallel.executors import raise_if_abandoned
from arviz_swiss.parallel.partition import unpacked
from arviz_swiss.pymc import structure
from arviz_swiss.pymc.compiling import (
    LOCK,
    compile_once,
    compiling_afresh,
    without_advice_on_blas,
)
from arviz_swiss.pymc.coordinates import Coordinates
from arviz_swiss.pymc.crossed import check_levels, levels_in
from arviz_swiss.pymc.formulas import from_bambi
from arviz_swiss.pymc.fractionate import fractionate
from arviz_swiss.pymc.garbage import free_models, model_bytes
from arviz_swiss.pymc.graphs import UNCOMPILED
from arviz_swiss.pymc.inflate import inflate
from arviz_swiss.pymc.observed import data_groups, observed_rows, observed_values
from arviz_swiss.pymc.runs import Settings
from arviz_swiss.pymc.sampler_arguments import nutpie_options
from arviz_swiss.pymc.task import PLAIN_TUNE, Task
from arviz_swiss.pymc.tempering import tempering_attrs
from arviz_swiss.pymc.white_model import WHITE, unwhiten, whiten
from arviz_swiss.pymc.whitened import have_met, sample_whitened

# Arguments that the compiled path of nutpie understands; any other is left to pymc.sample.
_NUTPIE_ARGUMENTS = {"target_accept", "nuts", "nuts_sampler_kwargs"}
_NUTPIE_COMPILES = {"backend", "gradient_backend"}
# Seconds between two looks at whether anybody waits for the draws.
_INTERVAL = 0.2


def build_model(build: Callable[[Any], pm.Model], data: Any, where: str) -> pm.Model:
    """Call the user's function on one batch and check what it returns."""
    with LOCK:
        try:
            made = build(data)
        except Exception as error:
            error.add_note(f"build raised this for {where}.")
            raise
        model = from_bambi(made, where)
    structure.check_model(model, where)
    return model


def check_later(
    first: structure.Structure,
    levels: Mapping[str, Sequence[Any]],
    local: Sequence[str],
    later: structure.Structure,
    data: Any,
    settings: Settings,
    where: str,
) -> None:
    """Refuse a batch whose parameters are not those of the first.

    `levels` are those of shared factors in the first batch, `data` are the rows of the later one.
    """
    try:
        structure.check_predictors(later, settings.kind, where)
        check_levels([first, later], [levels, levels_in(data, settings.shared)], data)
        structure.check_same(first, later, local, where)
    except ValueError as error:
        raise structure.Refused(str(error)) from None


def temper(
    model: pm.Model,
    kind: str,
    rows: int,
    total: int,
    local: tuple[str, ...] = (),
    untransformed: tuple[str, ...] = (),
) -> pm.Model:
    """Return the model that one batch samples, by the kind of sub-posterior.

    The powers follow ``pm.Data`` where the observed variables have one entry per row.
    """
    if kind == "full_prior":
        return model
    follows = _one_entry_per_row(model, rows)
    if kind == "inflated":
        return inflate(model, total_size=total) if follows else inflate(model, total / rows)
    return fractionate(
        model,
        None if follows else rows / total,
        total_size=total if follows else None,
        local=[rv.name for rv in model.free_RVs if rv.name in local],
        untransformed=untransformed,
    )


class _Prepared(NamedTuple):
    """The user's model, as it is and as it is sampled, and what else the batch is told by.

    `observed` stands as an attribute for rows that are not kept; `coordinates` lead from the
    variable of a whitened model back to those of the user's.
    """

    structure: structure.Structure
    model: pm.Model
    tempered: pm.Model
    groups: containers.Groups
    observed: dict[str, str]
    compiled: Any = None
    white: pm.Model | None = None
    coordinates: Coordinates | None = None


def sample_task(task: Task) -> Any:
    """Build, temper and sample one batch, and leave nothing of it in memory."""
    idata, bytes_left = _sample_task(task)
    del task
    free_models(bytes_left)
    return idata


def _sample_task(task: Task) -> tuple[Any, int]:
    """Return the batch, and how many bytes its model holds."""
    # in threads of the caller, the caller has limited them: they belong to the whole process
    with threadpool_limits(1) if task.model is None else contextlib.nullcontext():
        prepared = _prepare(task)
        groups = _sample(task, prepared)
        if groups is None:
            longer = task.settings._replace(tune=max(task.settings.tune or 0, PLAIN_TUNE))
            return _sample_task(task._replace(pilot=None, settings=longer, is_fallback=True))
    groups |= prepared.groups
    groups["posterior"] = _tidy_posterior(groups["posterior"], task, prepared)
    groups["posterior"].attrs |= prepared.observed
    groups["sample_stats"] = _without_objects(groups["sample_stats"])
    return containers.build(groups), model_bytes([prepared.model])


def _sample(task: Task, prepared: _Prepared) -> containers.Groups | None:
    """Sample by the task's sampler; None if whitened chains cannot be used."""
    if task.is_own:
        assert task.pilot is not None
        task.show_sampling()
        return sample_whitened(
            prepared.model,
            task.pilot,
            task.powers,
            label=task.label,
            draws=task.settings.draws,
            tune=task.tune,
            chains=task.settings.chains,
            seed=task.seeds[0],
            **task.settings.sample_kwargs,
        )
    if prepared.compiled is not None:
        groups = _sample_nutpie(task, prepared.compiled)
    else:
        reproducible = task.settings.reproducible
        with LOCK, without_advice_on_blas(), compiling_afresh(reproducible):
            groups = _sample_pymc(task, prepared.white or prepared.tempered)
    if task.pilot is not None and prepared.coordinates is not None:
        if not have_met(groups["posterior"][WHITE].values, groups["sample_stats"]):
            return None
        groups["posterior"] = unwhiten(groups["posterior"], task.pilot, prepared.coordinates)
    return groups


def compile_ahead(task: Task) -> None:
    """Compile in the main thread what all batches share: only there can it be interrupted."""
    with contextlib.suppress(Exception):  # the task itself will raise it, and name the batch
        _prepare(task)


def samples_compiled(settings: Settings) -> bool:
    """Tell whether nutpie samples, from a model that is compiled here."""
    if settings.sampler != "nutpie" or not set(settings.sample_kwargs) <= _NUTPIE_ARGUMENTS:
        return False
    return not _NUTPIE_COMPILES & set(nutpie_options(settings.sample_kwargs))


def _prepare(task: Task) -> _Prepared:
    """Read and compile the model in one go: `build` may put the next batch into the same data."""
    where, settings = f"batch {task.label}", task.settings
    with LOCK, warnings.catch_warnings():
        raise_if_abandoned()
        # the caller has had these warnings from the first batch
        warnings.simplefilter("ignore", MergeWarning)
        model = task.model
        if model is None:
            rows = unpacked(task.data)
            model = build_model(task.build, rows, where)
        described = structure.describe(model, task.rows)
        if task.model is None:
            check_later(task.first, task.levels, task.local, described, rows, settings, where)
            del rows
        groups, observed = _data_groups(task, model)
        if not task.is_own or settings.kind == "fractionated":
            tempered = temper(
                model, settings.kind, task.rows, task.total, task.local, settings.untransformed
            )
        else:
            tempered = model
        prepared = _Prepared(described, model, tempered, groups, observed)
        if task.is_own:
            return prepared
        shapes = described.shapes
        if task.pilot is not None:
            white, coordinates = whiten(model, task.pilot, task.powers)
            prepared = prepared._replace(white=white, coordinates=coordinates)
            shapes = {WHITE: (coordinates.size,)}
        if not samples_compiled(settings):
            return prepared
        with without_advice_on_blas():
            compiled = compile_once(
                prepared.white or prepared.tempered, shapes, settings.reproducible
            )
        return prepared._replace(compiled=compiled)


def _one_entry_per_row(model: pm.Model, rows: int) -> bool:
    try:
        return observed_rows(model) == rows
    except ValueError:
        return False


def _sample_nutpie(task: Task, compiled: Any) -> containers.Groups:
    import nutpie

    task.show_sampling()
    started = time.perf_counter()
    sampler = nutpie.sample(
        compiled,
        draws=task.settings.draws,
        tune=max(task.tune, 1),  # nutpie panics at 0
        chains=task.settings.chains,
        cores=1,
        seed=task.seeds[0],
        save_warmup=False,
        progress_bar=False,
        blocking=False,
        **nutpie_options(task.settings.sample_kwargs),
    )
    idata = _wait_for(sampler)
    groups = _kept(containers.read(idata).groups)
    groups["posterior"].attrs |= {
        "inference_library": "nutpie",
        "inference_library_version": version("nutpie"),
        "sampling_time": time.perf_counter() - started,
        "tuning_steps": task.tune,
    }
    return groups


def _wait_for(sampler: Any) -> Any:
    """Return what nutpie draws, unless nobody waits for it any more."""
    try:
        while True:
            raise_if_abandoned()
            with contextlib.suppress(TimeoutError):
                return sampler.wait(timeout=_INTERVAL)
    except BaseException:
        sampler.cancel()
        raise


def _sample_pymc(task: Task, model: pm.Model) -> containers.Groups:
    options = {"compute_convergence_checks": False, **task.settings.sample_kwargs}
    if task.settings.nuts_sampler is not None or task.settings.whitened:
        options["nuts_sampler"] = task.settings.sampler
    if task.settings.sampler == "pymc":
        # the other samplers do not tell when they have compiled
        options.setdefault("callback", _at_first_draw(task.show_sampling))
    idata = pm.sample(
        task.settings.draws,
        tune=task.tune,
        chains=task.settings.chains,
        cores=1,
        random_seed=task.seeds[0],
        progressbar=False,
        quiet=True,
        model=model,
        **options,
    )
    return _kept(containers.read(idata).groups)


def _at_first_draw(function: Callable[[], None]) -> Callable[..., None]:
    calls = iter([function])
    return lambda trace, draw: next(calls, lambda: None)()


def _kept(groups: containers.Groups) -> containers.Groups:
    return {name: groups[name].load() for name in ("posterior", "sample_stats")}


def _data_groups(task: Task, model: pm.Model) -> tuple[containers.Groups, dict[str, str]]:
    """Return the data of the plain model and, where the merge needs them, draws from its prior.

    In place of rows that are not kept an attribute tells what they were: they are not copied.
    """
    prior = {}
    if task.settings.kind == "full_prior":
        shared = [rv for rv in model.free_RVs if rv.name not in task.local]
        values = pm.draw(
            shared,
            draws=task.settings.draws * task.settings.chains,
            random_seed=task.seeds[1],
            mode=UNCOMPILED,
        )
        prior = {rv.name: value for rv, value in zip(shared, values, strict=True)}
    if task.keep_data:
        return data_groups(model, prior), {}
    groups = {k: v for k, v in data_groups(model, prior).items() if k == "prior"} if prior else {}
    summaries = {
        name: summary(np.asarray(values))
        for name, values in observed_values(model).items()
        if np.asarray(values).dtype.kind in "biuf"
    }
    return groups, {schema.OBSERVED: json.dumps(summaries)}


def _tidy_posterior(posterior: xr.Dataset, task: Task, prepared: _Prepared) -> xr.Dataset:
    """Drop what nutpie stores beside the model's variables, and say how the batch was made."""
    model = prepared.model
    names = [var.name for var in model.unobserved_RVs if var.name in posterior]
    free = [rv.name for rv in model.free_RVs if rv.name in names]
    attrs = {
        schema.BATCH: task.label,
        schema.SIZE: task.rows,
        schema.KIND: task.settings.kind,
        schema.POWER: task.powers.likelihood,
        schema.PRIOR_POWER: task.powers.prior,
        schema.VERSION: arviz_swiss.__version__,
        schema.PYMC_VERSION: pm.__version__,
        **task.attrs,
        schema.SAMPLED_VARIABLES: free if len(free) > 1 else free[0],
    }
    if task.settings.kind == "fractionated":
        tempering = tempering_attrs(prepared.tempered)
        attrs |= {name: tempering[name] for name in (schema.TRANSFORMED, schema.UNTRANSFORMED)}
    if task.is_fallback:
        attrs[schema.FULL_WARMUP] = 1
    if local := [name for name in free if name in {*task.local, *prepared.structure.imputed}]:
        attrs[schema.LOCAL] = ",".join(local)
    return posterior[names].assign_attrs(containers.safe_attrs({**posterior.attrs, **attrs}))


def _without_objects(stats: xr.Dataset) -> xr.Dataset:
    """Turn messages into text: files cannot hold the None that stands for no message."""
    texts = {
        name: stats[name].copy(data=np.where(stats[name].isnull(), "", stats[name]).astype(str))
        for name in stats.data_vars
        if stats[name].dtype == object
    }
    return stats.assign(texts)

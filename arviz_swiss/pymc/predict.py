"""predict(): predictions and pointwise log likelihoods of the data, one batch at a time."""

import logging
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from arviz_swiss.base import weights
from arviz_swiss.base.counts import check_count
from arviz_swiss.base.seeds import generator
from arviz_swiss.correcting.batch_model import BatchModel, is_modelled
from arviz_swiss.correcting.batch_model import opened as here
from arviz_swiss.correcting.densities import Source, batch_densities
from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import SAMPLE_DIMS, Container
from arviz_swiss.data.messages import brief
from arviz_swiss.data.progress import progress
from arviz_swiss.merging.merged import Merged, open_merged
from arviz_swiss.parallel.executors import Lazy, Portable, run
from arviz_swiss.pymc.compiling import without_advice_on_blas
from arviz_swiss.pymc.graphs import shapes_of
from arviz_swiss.pymc.observed import data_groups, imputed_names
from arviz_swiss.pymc.tempering import check_plain

PREDICTED, LIKELIHOOD = "posterior_predictive", "log_likelihood"
WHAT = (PREDICTED, LIKELIHOOD)
DRAWS = 1000
# ArviZ's effective sizes, which its LOO asks for, are worth little of shorter chains.
SHORTEST = 25


def predict(
    merged: Container | str | PathLike,
    models: Any = None,
    *,
    build: Callable[[Any], Any] | None = None,
    data: Any = None,
    groups: Any = None,
    stratify: Any = None,
    folder: str | PathLike | None = None,
    function: Callable[[Container], Any] | None = None,
    what: str | Sequence[str] = WHAT,
    draws: int = DRAWS,
    executor: Any = None,
    random_seed: int | np.random.Generator | None = None,
    group: str = "posterior",
    progressbar: bool = True,
) -> Iterator[tuple[str, Any]]:
    """Predict the rows of one batch after another, for data that are too many for one model.

    The model of all rows is the shorter way where they fit:
    ``pm.sample_posterior_predictive(merged, model=build(data))``. This gives the same by the models
    of the batches, of which there is one at a time, or one on each worker.

    Parameters
    ----------
    merged : InferenceData or DataTree, or the path of its file
        As `sample`, `merge` or `refine` returned it.
    models : sequence, or mapping of batch label to pymc.Model
        The plain PyMC model of each batch, as `certify` takes them.
    build, data, groups, stratify, folder : optional
        Instead of `models`, as in `refine`.
    function : callable, optional
        Called with the container of each batch where it was made; what it returns is given in its
        place. On workers only that travels, such as ``az.loo`` or a mean.
    what : {"posterior_predictive", "log_likelihood"} or sequence of them, optional
        What to compute; by default both.
    draws : int, default 1000
        About how many merged draws to take, spread evenly over all chains, or over so many that
        each has 25 of them.
    executor : concurrent.futures.Executor or dask.distributed.Client, optional
        As in `refine`; when absent, one batch after another in this process.
    random_seed : int or Generator, optional
        Seed of the choice of draws and of the predictions: the same with any executor.
    group : str, default "posterior"
    progressbar : bool, default True
        Show progress in a terminal or a notebook, if tqdm is installed.

    Returns
    -------
    iterator of (str, InferenceData or DataTree)
        The label of each batch and what ArviZ needs of its rows: `posterior` (the draws that were
        taken, of the free variables of its model), `posterior_predictive`, `log_likelihood`,
        `observed_data` and `constant_data`; or what `function` returned. Of variables that each
        batch has its own of, such as effects of groups, these are the batch's own. Batches come as
        they are done. ``dict(predict(...))`` holds all.

    Raises
    ------
    ValueError
        When a model has other variables, groups or rows than were merged, is tempered, or observes
        nothing; when `what` is unknown.
    TypeError
        When batches have no PyMC models, or neither `models` nor `build` and `data` are given.

    Notes
    -----
    The leave-one-out density of a row needs that row's log likelihoods alone, so that `az.loo` of
    all rows is the sum of those of the batches. All draws of the merge count the same: where it is
    certified as "usable" only, `resample` it, and predict with the model of all rows.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> import pymc as pm
    >>> import arviz_swiss as az_swiss
    >>> def build(rows):
    ...     with pm.Model() as model:
    ...         mu = pm.Normal("mu", 0, 10)
    ...         pm.Normal("y", mu, 1, observed=rows)
    ...     return model
    >>> rng = np.random.default_rng(0)
    >>> rows = [rng.normal(2, 1, size=50) for _ in range(3)]
    >>> batches = [{"mu": rng.normal(part.mean(), 150**-0.5, size=(4, 250))} for part in rows]
    >>> merged = az_swiss.merge(batches, kind="inflated")
    >>> models = [build(part) for part in rows]
    >>> mean = lambda part: float(part["posterior_predictive"]["y"].mean())
    >>> means = az_swiss.predict(merged, models, function=mean, random_seed=1, progressbar=False)
    >>> [(label, abs(mean - 2) < 0.3) for label, mean in means]
    [('b0', True), ('b1', True), ('b2', True)]
    """
    wanted = (what,) if isinstance(what, str) else tuple(what)
    if not wanted or (unknown := [name for name in wanted if name not in WHAT]):
        raise ValueError(f"what={what!r}: {unknown or 'nothing'} is not one of {', '.join(WHAT)}.")
    check_count("draws", draws)
    if function is not None and not callable(function):
        raise TypeError(f"function must be callable, got {type(function).__name__}.")
    opened = open_merged(merged, group)
    source = Source(models, build, data, groups, stratify, folder)
    source.check()
    taken = _take(opened, draws, generator(random_seed))
    # checks above are made at the call, and not when the first batch is asked for
    return _walk(opened, source, taken, wanted, function, executor, progressbar)


class Taken(NamedTuple):
    """Positions of the draws to predict from, and a seed by batch."""

    chains: np.ndarray
    draws: np.ndarray
    seeds: dict[str, int]


class Task(NamedTuple):
    """What travels to a worker: a batch's model, and the draws for it."""

    label: str
    model: Any
    posterior: xr.Dataset
    what: tuple[str, ...]
    function: Callable[[Container], Any] | None
    container: str
    seed: int


def _take(opened: Merged, draws: int, rng: np.random.Generator) -> Taken:
    """Choose the same draws of every chain, or of fewer chains where they would be too short."""
    count, length = opened.sizes
    chains = weights.spread_evenly(count, max(draws // min(SHORTEST, length), 1), rng)
    positions = weights.spread_evenly(length, -(-draws // chains.size), rng)
    return Taken(chains, positions, {label: int(rng.integers(2**31)) for label in opened.labels})


def _walk(
    opened: Merged,
    source: Source,
    taken: Taken,
    what: tuple[str, ...],
    function: Callable[[Container], Any] | None,
    executor: Any,
    progressbar: bool,
) -> Iterator[tuple[str, Any]]:
    with (
        source.reading(opened, progressbar) as read,
        progress(len(opened.labels), "Predicting", progressbar) as bar,
    ):
        models = _only_models(batch_densities(opened, read))
        thinned = opened.draws.isel(chain=taken.chains, draw=taken.draws)

        def task(label: str) -> Task:
            posterior = _of_batch(opened, thinned, label)
            seed = taken.seeds[label]
            return Task(label, models[label], posterior, what, function, opened.container, seed)

        if executor is None:
            results = ((label, _predict(task(label))) for label in models)
        else:
            results = _on_workers(task, models, function, executor, bar.stage)
        with closing(results):
            for label, result in results:
                bar()
                yield label, result
        bar.finish()


def _only_models(densities: Mapping[str, Any]) -> dict[str, Any]:
    for label, density in densities.items():
        if not is_modelled(density):
            raise TypeError(
                f'batch "{label}": got {type(density).__name__}, which predicts nothing. Pass the '
                "PyMC model of each batch, or build= and data=."
            )
    return dict(densities)


def _of_batch(opened: Merged, draws: xr.Dataset, label: str) -> xr.Dataset:
    """Return the draws without elements of other batches' groups, by the batch's own labels."""
    maps = opened.groups.get(schema.LOCAL_MAPS)
    if maps is None:
        return draws
    for dim in dict.fromkeys(array.attrs["dim"] for array in maps.data_vars.values()):
        labels = maps[dim].values[maps[schema.owner_coord(dim)].values.astype(str) == label]
        places = draws.get_index(dim).get_indexer(pd.Index(labels))
        if (places < 0).any():
            raise ValueError(
                f'batch "{label}": its {labels[places < 0][0]!s} along {dim} is not among the '
                "merged draws any more. Predict before selecting elements."
            )
        draws = draws.isel({dim: places})
        if (own := schema.own_coord(dim)) in maps.coords:
            draws = draws.assign_coords({dim: maps[own].sel({dim: labels}).values})
    return draws


def _on_workers(
    task: Callable[[str], Task],
    models: Mapping[str, Any],
    function: Callable | None,
    executor: Any,
    say: Callable[[str], Any],
) -> Generator[tuple[str, Any], None, None]:
    def portable(label: str) -> Portable:
        model = models[label]
        # a function that workers cannot import travels with its module
        return Portable(task(label), model.build if isinstance(model, BatchModel) else function)

    with closing(run(_predict, Lazy(models, portable), executor, say=say)) as outcomes:
        for label, outcome in outcomes:
            if outcome.error is not None:
                outcome.error.add_note(f'While predicting the rows of batch "{label}".')
                raise outcome.error
            yield label, outcome.result


def _predict(task: Task) -> Any:
    """Return what was asked for of one batch."""
    model = here(task.model)
    check_plain(model, task.label)
    if not model.observed_RVs:
        raise ValueError(f'batch "{task.label}": the model has no observed variables to predict.')
    _check_there(model, task)
    posterior = _as_modelled(task.posterior, model, task.label)
    groups = {schema.POSTERIOR: posterior}
    trace = containers.build(groups, task.container)
    quiet = {"model": model, "progressbar": False}
    with _silent(), without_advice_on_blas():
        if PREDICTED in task.what:
            made = pm.sample_posterior_predictive(trace, random_seed=task.seed, **quiet)
            groups |= containers.read(made).groups
        if LIKELIHOOD in task.what:
            logs = pm.compute_log_likelihood(trace, extend_inferencedata=False, **quiet)
            groups |= {LIKELIHOOD: containers.read(logs, LIKELIHOOD).groups[LIKELIHOOD]}
            groups = data_groups(model) | groups
    part = containers.build(groups, task.container)
    return part if task.function is None else task.function(part)


def _check_there(model: pm.Model, task: Task) -> None:
    """Refuse a model with variables that were not merged, which PyMC would draw from the prior."""
    missing = [rv.name for rv in model.free_RVs if rv.name not in task.posterior]
    outcomes = imputed_names(model)
    if unknown := [name for name in missing if name not in outcomes]:
        raise ValueError(
            f'batch "{task.label}": {brief(unknown)} of the model were not merged, so that the '
            "rows cannot be predicted from the merged draws."
        )
    if missing and LIKELIHOOD in task.what:
        raise ValueError(
            f'batch "{task.label}": the outcomes {brief(missing)} are missing, and have no '
            f'likelihood. Ask for predictions alone: what="{PREDICTED}".'
        )


def _as_modelled(draws: xr.Dataset, model: pm.Model, label: str) -> xr.Dataset:
    """Return the model's free variables, its dimensions and elements in its own order."""
    arrays = {}
    for name, shape in shapes_of({rv.name: rv for rv in model.free_RVs}).items():
        if name not in draws:
            continue
        array = draws[name]
        dims = [dim for dim in model.named_vars_to_dims.get(name) or () if dim in array.dims]
        for dim in dims:
            if model.coords.get(dim) is None:
                continue
            labels = pd.Index(model.coords[dim])
            places = array.get_index(dim).get_indexer(labels)
            if (places < 0).any():
                raise ValueError(
                    f'batch "{label}", variable {name}: {brief(labels[places < 0].astype(str))} '
                    f"along {dim} of the model were not merged. Pass the models of the batches."
                )
            array = array.isel({dim: places})
        others = [dim for dim in array.dims if dim not in (*SAMPLE_DIMS, *dims)]
        array = array.transpose(*SAMPLE_DIMS, *(dims if not others else []), ...)
        if array.shape[2:] != shape:
            raise ValueError(
                f'batch "{label}", variable {name}: merged with shape {array.shape[2:]}, but it '
                f"has {shape} in the model. Pass the model of the batch, as it was sampled."
            )
        arrays[name] = array.variable
    coords = {dim: draws[dim].variable for dim in SAMPLE_DIMS if dim in draws.coords}
    coords |= {
        dim: np.asarray(model.coords[dim])
        for array in arrays.values()
        for dim in array.dims
        if model.coords.get(dim) is not None
    }
    return xr.Dataset(arrays, coords)


@contextmanager
def _silent() -> Iterator[None]:
    """Keep PyMC from naming what it samples, and ArviZ from wondering at many short chains."""
    log = logging.getLogger("pymc")
    level = log.level
    log.setLevel(max(level, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="More chains|Found chain dimension")
            yield
    finally:
        log.setLevel(level)

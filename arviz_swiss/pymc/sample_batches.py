"""Sample every batch of the data with the user's own PyMC model, in parallel, and resume."""

import contextlib
import numbers
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
from threadpoolctl import threadpool_limits

from arviz_swiss.base.seeds import generator
from arviz_swiss.merging.powers import KINDS
from arviz_swiss.parallel import executors, store
from arviz_swiss.parallel.partition import row_count, take
from arviz_swiss.parallel.progress import progress, waiting_for
from arviz_swiss.pymc.checking import build_probes, check_models, suits_threads
from arviz_swiss.pymc.runs import Settings, add_models, finished_batches, plan_run
from arviz_swiss.pymc.sampler_arguments import check_sample_kwargs
from arviz_swiss.pymc.worker import Task, compile_ahead, sample_task

# Beside the bar: until the first batch samples, which other machines tell only when it is done.
COMPILING = "compiling before the first batch"


class BatchError(RuntimeError):
    """Some batches could not be sampled or saved; the others are kept.

    Parameters
    ----------
    failed : dict of str to Exception
        The cause, by the label of the batch.
    idatas : dict of str to InferenceData or DataTree
        The batches that were sampled, by label.
    folder : Path, optional
        Where the sampled batches were saved.

    Examples
    --------
    >>> from arviz_swiss.pymc import BatchError
    >>> error = BatchError({"b3": ValueError("no start")}, {"b0": ..., "b1": ..., "b2": ...})
    >>> print(error)
    1 of 4 batches failed: b3 (ValueError: no start). The 3 that were sampled are in ...
    """

    def __init__(
        self, failed: dict[str, BaseException], idatas: dict[str, Any], folder: Path | None = None
    ):
        self.failed = failed
        self.idatas = idatas
        self.folder = folder
        causes = "; ".join(f"{label} ({_one_line(error)})" for label, error in failed.items())
        advice = (
            "Mend the cause and pass folder= to keep finished batches, so that a rerun samples "
            "only what is missing."
            if folder is None
            else f"Mend the cause and run the same call again: it takes finished batches from "
            f"{folder} and samples only what is missing. If the models of other batches change, "
            "pass another folder."
        )
        super().__init__(
            f"{len(failed)} of {len({*failed, *idatas})} batches failed: {causes}. The "
            f"{len(idatas)} that were sampled are in the `idatas` of this exception. {advice}"
        )

    def __reduce__(self):
        """Pickle with all that it carries."""
        return BatchError, (self.failed, self.idatas, self.folder)


def sample_batches(
    build: Callable[[Any], pm.Model],
    data: Any,
    *,
    batches: int,
    groups: Any = None,
    stratify: Any = None,
    kind: str = "inflated",
    untransformed: str | Sequence[str] = (),
    executor: Any = None,
    folder: str | Path | None = None,
    draws: int = 1000,
    tune: int = 1000,
    chains: int = 2,
    nuts_sampler: str | None = None,
    random_seed: int | np.random.Generator | None = None,
    reproducible: bool = False,
    progressbar: bool = True,
    **sample_kwargs: Any,
) -> list[Any]:
    r"""Split the data into batches and sample the sub-posterior of each.

    Parameters
    ----------
    build : callable
        The ordinary model function: ``build(batch_data) -> pymc.Model``, where ``batch_data`` is of
        the same type as `data` and holds the rows of one batch. Closures and functions defined in a
        notebook are fine. A ``bambi.Model`` will do, if it does not centre its predictors.
    data : array, DataFrame, dict of arrays, or xarray Dataset
        All rows.
    batches : int
        Number of batches.
    groups, stratify : array-like or hashable, optional
        One label per row, or the name of a column of `data`: rows that stay together, and values
        that are spread evenly. See `arviz_swiss.parallel.partition.partition`.
    kind : {"inflated", "fractionated", "full_prior"}, default "inflated"
        What each batch samples: the prior times the likelihood to the power :math:`N / n_b`; the
        prior to the power :math:`n_b / N` times the likelihood; or the model as it is, together
        with draws from the prior. Models with random effects need "fractionated" and `groups`.
    untransformed : str or sequence of str, optional
        With "fractionated": variables that will be merged on their own scale, by
        ``merge(..., transforms={name: None})``. See `arviz_swiss.pymc.fractionate`.
    executor : concurrent.futures.Executor or dask.distributed.Client, optional
        Where to run; by default one thread per core of this process where nutpie samples and one
        compilation serves all batches, otherwise one process per core. Threads run side by side
        only with nutpie. The workers of a Dask cluster need this package.
    folder : path, optional
        Where each finished batch is saved at once. Run the same call again to sample only what is
        missing. A folder holds one run: processes that begin it at once sample the same batches,
        by the seed of the first, and what another run has left there is refused.
    draws, tune, chains : int
        Of each batch, as in ``pymc.sample``. Chains of a batch run one after the other.
    nuts_sampler : str, optional
        As in ``pymc.sample``, whose default it is.
    random_seed : int or numpy.random.Generator, optional
        The same seed gives the same batches and, up to rounding, the same draws: see
        `reproducible`. The batches are those that `partition` makes of the same data, `batches`,
        `groups`, `stratify` and integer seed. Where none is given, or a Generator, one is drawn:
        the attribute ``swiss_random_seed`` of the batches tells it, as text, for
        ``partition(..., random_seed=int(text))``.
    reproducible : bool, default False
        Whether the same seed shall give the same draws to the last digit, on every executor and
        after a resume. Then models are compiled afresh in every process, about a minute on
        PyMC 6. By default what Numba has kept on the disk is used: it may round otherwise, and
        chains amplify that, so that draws of the same seed differ between processes, though not
        their distribution. Hence a folder does not record it, and may be resumed either way;
        only batches that were all sampled with True are those of one whole run with True.
    progressbar : bool, default True
        Show one progress bar over the batches. It says that models are being compiled,
        until the first batch samples.
    **sample_kwargs
        Further arguments of ``pymc.sample``, such as ``target_accept``.

    Returns
    -------
    list of InferenceData or DataTree
        One per batch, in order, each with the groups ``posterior``, ``sample_stats``,
        ``observed_data`` and ``constant_data`` (and ``prior`` for "full_prior"). Attributes of
        ``posterior`` tell `arviz_swiss.merge` all that it needs: ``swiss_batch``, ``swiss_size``,
        ``swiss_kind``, ``swiss_power``, ``swiss_prior_power``, ``sampled_variables``, and
        ``swiss_local`` where variables belong to one batch alone. Others tell where it comes from:
        ``swiss_random_seed``, ``swiss_partition`` (a fingerprint of the rows of all batches),
        ``swiss_data`` (of the data), ``swiss_groups`` and ``swiss_stratify`` (where they are names
        of columns), by which `refine` and `certify` find the rows of each batch again;
        ``swiss_settings`` (of its folder, as JSON), ``swiss_version`` and ``swiss_pymc_version``.

    Raises
    ------
    BatchError
        If some batches failed. The others are saved, and returned on the exception.
    ValueError, TypeError
        Before sampling, if the arguments or the model cannot be used, if no sampler reads an
        argument, or if `folder`, or a file in it, was made with other settings or of another model:
        other densities, structure or deterministics of the first two batches.
    OSError
        If `folder` cannot be written to.

    Warns
    -----
    MergeWarning
        If a saved batch is damaged and must be sampled again, or missing batches of a folder will
        be sampled with other versions of this package or PyMC than it was begun with.

    See Also
    --------
    arviz_swiss.parallel.partition.partition : How rows are assigned to batches.
    arviz_swiss.pymc.inflate, arviz_swiss.pymc.fractionate : The models that are sampled.

    Notes
    -----
    With nutpie, and data in ``pm.Data``, one compilation serves all batches of a process, and of
    its later calls: the data are swapped. Without ``pm.Data`` every batch is compiled.

    An interrupt (Ctrl-C) is answered at once. Batches that are finished are in `folder`; those that
    are being sampled are abandoned, whether in threads or in processes.

    A free variable is taken as local to its batch if its size or coordinates differ
    between the first two batches, or change when the rows of both are put into one model; the
    latter also finds the effects of equally many groups per batch that have no coordinates.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from arviz_swiss.pymc import sample_batches
    >>> def build(batch):
    ...     with pm.Model() as model:
    ...         mu = pm.Normal("mu", 0, 10)
    ...         pm.Normal("y", mu, 1, observed=pm.Data("y_data", batch))
    ...     return model
    >>> y = np.random.default_rng(1).normal(3, 1, size=400)
    >>> idatas = sample_batches(
    ...     build, y, batches=4, nuts_sampler="nutpie",
    ...     draws=100, tune=200, random_seed=1, progressbar=False,
    ... )
    >>> [idata.posterior.attrs["swiss_batch"] for idata in idatas]
    ['b0', 'b1', 'b2', 'b3']
    >>> idatas[0].posterior.attrs["swiss_size"], idatas[0].posterior.attrs["swiss_power"]
    (100, 4.0)
    """
    untransformed = (untransformed,) if isinstance(untransformed, str) else tuple(untransformed)
    settings = Settings(
        kind, untransformed, draws, tune, chains, nuts_sampler, sample_kwargs, reproducible
    )
    _check_arguments(build, settings)
    executors.check_executor(executor)
    check_sample_kwargs(sample_kwargs, nuts_sampler)
    folder = None if folder is None else Path(folder)
    random_seed = None if random_seed is None else _integer_seed(random_seed)
    division = {"batches": batches, "groups": groups, "stratify": stratify}
    begun = False
    while not begun:
        run = plan_run(data, division, settings, random_seed, folder)
        probes = build_probes(build, data, run.indices)
        run = add_models(run, [probe.model for probe in probes[:2]])
        idatas = finished_batches(run)
        if len(idatas) == len(run.indices):
            return list(idatas.values())
        threads = executor is None and suits_threads(probes, settings)
        checked = check_models(
            build, data, run.indices, probes, settings, grouped=groups is not None, keep=threads
        )
        # another process may begin the folder while models are checked: then its settings hold
        begun = folder is None or bool(run.recorded) or store.create_settings(folder, run.settings)
    seeds = np.random.SeedSequence(run.seed).spawn(len(run.indices))
    tasks = {
        label: Task(
            label=label,
            build=build,
            data=None if label in checked.models else take(data, index),
            rows=len(index),
            total=row_count(data),
            settings=settings,
            first=checked.first,
            local=checked.local,
            seeds=tuple(int(value) >> 1 for value in seed.generate_state(2)),
            attrs=run.attrs,
            model=checked.models.get(label),
        )
        for (label, index), seed in zip(run.indices.items(), seeds, strict=True)
        if label not in idatas
    }
    with executors.own_threads(len(tasks)) if threads else contextlib.nullcontext(executor) as pool:
        failed = _sample(tasks, pool, folder, idatas, len(run.indices), progressbar, threads)
    idatas = {label: idatas[label] for label in run.indices if label in idatas}
    if failed:
        raise BatchError({k: failed[k] for k in run.indices if k in failed}, idatas, folder)
    return list(idatas.values())


def _sample(
    tasks: Mapping[str, Task],
    executor: Any,
    folder: Path | None,
    idatas: dict[str, Any],
    total: int,
    progressbar: bool,
    ahead: bool,
) -> dict[str, BaseException]:
    """Run the tasks, add what they return to `idatas`, save it, and return what went wrong.

    `ahead` tells to compile the first in this thread.
    """
    failed: dict[str, BaseException] = {}
    with (
        # the same draws everywhere: sums depend on the number of BLAS threads
        threadpool_limits(1),
        # what threads filter at the same time may not outlive them
        warnings.catch_warnings(),
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as signs,
        progress(total, "Sampling", progressbar, done=len(idatas)) as bar,
        waiting_for(lambda: bool(os.listdir(signs)), bar, COMPILING),
    ):
        portable = {
            label: executors.Portable(
                task._replace(sign=os.path.join(signs, label)), by_value=task.build
            )
            for label, task in tasks.items()
        }
        if ahead:
            compile_ahead(next(iter(tasks.values())))
        for label, outcome in executors.run(sample_task, portable, executor):
            if outcome.error is not None:
                failed[label] = outcome.error
            else:
                idatas[label] = outcome.result
                if folder is not None:
                    try:
                        store.write_batch(folder, label, outcome.result)
                    # whatever it is, the other batches shall not be lost
                    except Exception as error:
                        failed[label] = error
            bar.stage()
            bar()
    return failed


def _check_arguments(build: Any, settings: Settings) -> None:
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
        if not isinstance(value, numbers.Integral) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")


def _integer_seed(random_seed: Any) -> int:
    rng = generator(random_seed)
    if isinstance(random_seed, numbers.Integral):
        return int(random_seed)
    return int(rng.integers(2**63))


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__

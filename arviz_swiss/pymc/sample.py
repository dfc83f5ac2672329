"""sample(): from a model and a table to one posterior, by way of batches."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from arviz_swiss.base.counts import check_count
from arviz_swiss.base.seeds import integer_seed
from arviz_swiss.checking.report import report
from arviz_swiss.correcting.certify import certify as certify_merged
from arviz_swiss.correcting.evaluation import EvaluationFailed
from arviz_swiss.correcting.refine import refine as refine_merged
from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import Container
from arviz_swiss.merging.merge import merge
from arviz_swiss.methods.registry import find
from arviz_swiss.parallel import executors, store
from arviz_swiss.parallel.clock import Clock
from arviz_swiss.parallel.partition import row_count
from arviz_swiss.pymc.pilot_run import to_dataset
from arviz_swiss.pymc.running import Sampled, check_arguments, run_batches
from arviz_swiss.pymc.runs import Settings
from arviz_swiss.pymc.sampler_arguments import fastest_sampler
from arviz_swiss.pymc.sizing import Examined, choose_sizes, examine

# Chains of a batch: our own move together, where twice as many with half the warm-up cost less,
# and samplers of PyMC.
OWN_CHAINS, NUTS_CHAINS = 8, 4
OWN_VARIABLES = (
    "batches have variables of their own ({}), over which the density of the shared ones is an "
    "integral"
)


def sample(
    build: Callable[[Any], pm.Model],
    data: Any,
    *,
    batches: int | None = None,
    draws: int = 4000,
    groups: Any = None,
    stratify: Any = None,
    kind: str | None = None,
    method: str = "swiss",
    refine: bool = True,
    certify: bool = True,
    executor: Any = None,
    folder: str | Path | None = None,
    tune: int | None = None,
    chains: int | None = None,
    nuts_sampler: str | None = None,
    random_seed: int | np.random.Generator | None = None,
    reproducible: bool = False,
    progressbar: bool = True,
    **sample_kwargs: Any,
) -> Container:
    r"""Sample a model of a tall table: divide the rows, sample the batches, merge, refine, certify.

    Parameters
    ----------
    build : callable
        The ordinary model function: ``build(batch_data) -> pymc.Model``, as in `sample_batches`.
    data : array, DataFrame, dict of arrays, or xarray Dataset
        All rows.
    batches : int, optional
        Number of batches; chosen by rule when absent, see Notes.
    draws : int, default 4000
        About how many draws there shall be in all; more if the batches' moments need them.
    groups, stratify : array-like or hashable, optional
        One label per row, or the name of a column of `data`: rows that stay together, and values
        that are spread evenly. See `partition`.
    kind : {"inflated", "fractionated", "full_prior"}, optional
        What each batch samples, as in `sample_batches`. When absent "inflated", or "fractionated"
        where batches have variables of their own.
    method : str, default "swiss"
        How to merge, as in `merge`.
    refine, certify : bool, default True
        Whether to remove the error of the merge, and to weigh its draws against the full posterior.
    executor : concurrent.futures.Executor or dask.distributed.Client, optional
        Where to run; by default threads of this process, one a core.
    folder : path, optional
        Where each finished stage is saved at once. Run the same call again to go on from there.
    tune, chains : int, optional
        Of each batch. By default 8 chains with a warm-up of 20 draws in whitened coordinates; 4
        chains by another sampler, with 100, and 1000 in the coordinates of the model.
    nuts_sampler : {"nutpie", "pymc", "numpyro", "blackjax"}, optional
        Sample the whitened batches with this sampler of ``pymc.sample``; by default with
        Hamiltonian Monte Carlo of all chains of a batch at once, which needs no compiler.
    random_seed : int or numpy.random.Generator, optional
        The same seed gives the same batches and, by default, the same draws on every executor. One
        is drawn when absent; the attribute ``swiss_random_seed`` of the draws tells it.
    reproducible : bool, default False
        For samplers of PyMC, as in `sample_batches`; our own chains are reproducible as they are.
    progressbar : bool, default True
        Show the progress of each stage, and a report at the end.
    **sample_kwargs
        ``target_accept``, or with `nuts_sampler` further arguments of ``pymc.sample``.

    Returns
    -------
    InferenceData or DataTree
        The merged, refined and certified posterior, as `certify` returns it. Its group `swiss_run`
        tells the `seconds` of each `stage`, how many batches and draws were chosen and why, and
        what did not go as planned; `swiss_pilot` holds the pilot.

    Raises
    ------
    BatchError
        If some batches failed. With `folder`, the others are kept for the next call.
    ValueError, TypeError
        If the arguments or the model cannot be used, or `folder` was made with others.

    Warns
    -----
    MergeWarning
        What `merge`, `refine` and `certify` warn of.

    See Also
    --------
    sample_batches, merge, refine, certify : the stages, one by one
    report : what to think of the result

    Notes
    -----
    The *pilot* is the Gaussian at the mode of the full posterior, by gradients that the batches sum
    up. In coordinates :math:`z` with :math:`\theta = \mu + L z` by its mean and factor every
    inflated batch is close to a standard normal distribution, which short chains with little
    warm-up sample. Where there is no such mode, a run of the first batch gives mean and covariance;
    a batch whose chains do not meet is sampled with a full warm-up in the model's own coordinates.
    The report says so.

    Without `batches`, the rows are divided so that the batches share the `draws`, each with no
    fewer than its moments need (5 a parameter and 100 more, or 100 a parameter and 400 at least
    without `refine`), and no fewer than 50 rows a parameter, or 200; as many for every worker.

    Batches with variables of their own, such as random effects, need `groups`. They are sampled
    with a full warm-up and merged, but neither refined nor certified.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import arviz_swiss as az_swiss
    >>> def build(y):
    ...     with pm.Model() as model:
    ...         mu = pm.Normal("mu", 0, 10)
    ...         sigma = pm.HalfNormal("sigma", 5)
    ...         pm.Normal("y", mu, sigma, observed=y)
    ...     return model
    >>> y = np.random.default_rng(1).normal(3, 2, size=10_000)
    >>> merged = az_swiss.sample(build, y, random_seed=1, progressbar=False)
    >>> merged["swiss_certificate"].attrs["status"]
    'certified'
    >>> print(round(float(merged["posterior"]["mu"].mean()), 1))
    3.0
    """
    clock = Clock()
    _check_arguments(method, certify, {"draws": draws, "chains": chains, "batches": batches})
    settings = Settings(
        kind or "inflated",
        (),
        draws,
        tune,
        chains or OWN_CHAINS,
        nuts_sampler,
        sample_kwargs,
        reproducible,
        whitened=True,
    )
    check_arguments("sample", build, settings, executor)
    random_seed = integer_seed(random_seed)
    with clock("plan"):
        examined = examine(build, data, groups, stratify)
        chains = chains or (NUTS_CHAINS if nuts_sampler or examined.local else OWN_CHAINS)
        sizes = choose_sizes(
            row_count(data),
            examined.parameters,
            batches=batches,
            draws=draws,
            chains=chains,
            refined=refine,
            workers=executors.count_workers(executor),
        )
    settings = settings._replace(
        kind=kind or examined.kind,
        draws=sizes.draws,
        chains=chains,
        nuts_sampler=nuts_sampler or (fastest_sampler() if examined.local else None),
        whitened=not examined.local,
    )
    sampled = run_batches(
        build,
        data,
        {"batches": sizes.batches, "groups": groups, "stratify": stratify},
        settings,
        executor=executor,
        folder=folder,
        random_seed=random_seed,
        progressbar=progressbar,
        clock=clock,
    )
    skipped = _why_not_corrected(sampled, examined)
    stages = {"refine": refine and not skipped, "certify": certify and not skipped}
    result, failed = _correct(sampled, method, stages, executor, clock, progressbar)
    attrs = {schema.RULE: sizes.rule, schema.SKIPPED: skipped or failed, **_asides(sampled)}
    result = _with_group(result, schema.RUN, _run_group(clock, attrs))
    if progressbar:
        print(report(result))
    return result


def _check_arguments(method: str, certify: bool, numbers_of: Mapping[str, Any]) -> None:
    if find(method).makes == "draws" and certify:
        raise ValueError(
            f'method "{method}" makes new draws, whose density is not known, so they cannot be '
            'certified. Pass certify=False, or method="swiss".'
        )
    for name, value in numbers_of.items():
        if name == "draws" or value is not None:
            check_count(name, value)


def _why_not_corrected(sampled: Sampled, examined: Examined) -> str:
    """Return why the merge can be neither refined nor certified, if so."""
    if examined.local:
        return OWN_VARIABLES.format(", ".join(examined.local))
    if len(sampled.models) < len(sampled.idatas):
        return "the models of all batches could not be had side by side"
    return ""


def _correct(
    sampled: Sampled,
    method: str,
    stages: Mapping[str, bool],
    executor: Any,
    clock: Clock,
    progressbar: bool,
) -> tuple[Container, str]:
    """Merge, refine and certify, or go on from what the folder has of that.

    Returns the result, and why a stage could not be done, if so.
    """
    wanted = [stage for stage, is_wanted in stages.items() if is_wanted]
    run, options = sampled.run, {"executor": executor, "progressbar": progressbar}
    attrs = {**run.attrs, "method": method, "draws": _fingerprint(sampled)}
    result, done = _read_stage(run.folder, wanted, attrs)
    if result is None:
        with clock("merge"):
            result = _merge(sampled, method)
    functions: dict[str, Callable[..., Container]]
    functions = {"refine": refine_merged, "certify": certify_merged}
    for stage in wanted[done:]:
        seed = _seed(run.seed, stage)
        try:
            with clock(stage):
                result = functions[stage](result, sampled.models, random_seed=seed, **options)
        except EvaluationFailed as error:  # what was sampled shall not be lost
            return result, str(error)
        if run.folder is not None:
            through = {**attrs, "stages": _through(wanted, stage)}
            store.write_result(run.folder, stage, containers.read(result).groups, through)
    return result, ""


def _through(stages: Sequence[str], last: str) -> str:
    return ", ".join(stages[: stages.index(last) + 1])


def _fingerprint(sampled: Sampled) -> str:
    """Tell the draws of all batches: what was made of others is made anew."""
    if sampled.run.folder is None:
        return ""
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


def _merge(sampled: Sampled, method: str) -> Container:
    seed = _seed(sampled.run.seed, "merge")
    idatas = list(sampled.idatas.values())
    merged = merge(
        idatas,
        model=sampled.models["b0"],
        method=method,
        covariance="corrected",  # for few draws
        random_seed=seed,
    )
    if sampled.pilot is None:
        return merged
    merged = _with_left_out(merged, sampled.models["b0"])
    maps = containers.read(merged).groups[schema.TRANSFORM]
    parameters = maps["parameter"].values.astype(str).tolist()
    if set(parameters) != set(sampled.pilot.parameters):
        return merged
    return _with_group(merged, schema.PILOT, to_dataset(sampled.pilot.ordered(parameters)))


def _with_left_out(merged: Container, model: pm.Model) -> Container:
    """Say which deterministics are not there: those of the rows of a batch."""
    posterior = containers.read(merged).groups["posterior"]
    names = [var.name for var in model.deterministics if var.name not in posterior]
    told = [name for name in posterior.attrs.get(schema.LEFT_OUT, "").split(", ") if name]
    if not set(names) - set(told):
        return merged
    attrs = {schema.LEFT_OUT: ", ".join(dict.fromkeys([*told, *names]))}
    return _with_group(merged, "posterior", posterior.assign_attrs(attrs))


def _seed(seed: int, stage: str) -> int:
    """Return a seed of its own for a stage of the run."""
    return int(np.random.SeedSequence([seed, *stage.encode()]).generate_state(1)[0])


def _with_group(merged: Container, name: str, group: xr.Dataset) -> Container:
    contents = containers.read(merged)
    return containers.build(
        {**contents.groups, name: group}, contents.container, containers.root_attrs(merged)
    )


def _run_group(clock: Clock, attrs: Mapping[str, str]) -> xr.Dataset:
    return xr.Dataset(
        {
            "seconds": ("stage", list(clock.wall.values())),
            "cpu_seconds": ("stage", list(clock.cpu.values())),
        },
        coords={"stage": list(clock.wall)},
        attrs=dict(attrs),
    )


def _asides(sampled: Sampled) -> dict[str, str]:
    """Return what did not go as planned."""
    posteriors = {k: containers.read(v).groups["posterior"] for k, v in sampled.idatas.items()}
    others = [label for label, draws in posteriors.items() if schema.FULL_WARMUP in draws.attrs]
    return {schema.PLAIN: sampled.plain, schema.RESAMPLED_BATCHES: ",".join(others)}

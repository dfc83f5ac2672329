"""sample(): from a model and a table to one posterior, by way of batches."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from arviz_swiss.base.counts import check_count
from arviz_swiss.base.hmc import CHAINS
from arviz_swiss.base.seeds import integer_seed
from arviz_swiss.checking.report import report
from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import Container
from arviz_swiss.merging.models import coords_of
from arviz_swiss.merging.space import checked_choices
from arviz_swiss.methods.registry import find
from arviz_swiss.parallel import executors
from arviz_swiss.parallel.clock import Clock
from arviz_swiss.parallel.levels import share_levels, shared_names
from arviz_swiss.parallel.partition import row_count
from arviz_swiss.parallel.tables import Table, opened_table
from arviz_swiss.pymc.running import (
    Limits,
    Sampled,
    check_arguments,
    checked_timeout,
    run_batches,
)
from arviz_swiss.pymc.runs import Settings
from arviz_swiss.pymc.sampler_arguments import fastest_sampler
from arviz_swiss.pymc.sizing import Examined, choose_sizes, examine, group_coords
from arviz_swiss.pymc.stages import Wanted, run_stages, with_group
from arviz_swiss.pymc.value_transforms import building
from arviz_swiss.pymc.worker import build_model

# Chains of a batch by samplers of PyMC.
NUTS_CHAINS = 4


def sample(
    build: Callable[[Any], pm.Model],
    data: Any,
    *,
    batches: int | None = None,
    draws: int = 4000,
    groups: Any = None,
    stratify: Any = None,
    shared: str | Sequence[str] | None = None,
    kind: str | None = None,
    method: str = "swiss",
    transforms: Mapping[str, str] | None = None,
    refine: bool = True,
    certify: bool = True,
    executor: Any = None,
    folder: str | Path | None = None,
    timeout: float | None = None,
    keep_data: bool = False,
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
    data : array, DataFrame, dict of arrays, xarray Dataset, or path
        All rows; paths of Parquet files, Dask DataFrames and lazy frames for rows that do not fit
        in memory, as in `sample_batches`. No process then has more than a few batches at a time.
    batches : int, optional
        Number of batches; chosen by rule when absent, see Notes.
    draws : int, default 4000
        About how many draws there shall be in all; more if the batches' moments need them.
    groups, stratify : array-like or hashable, optional
        One label per row, or the name of a column of `data`: rows that stay together, which random
        effects need, and values that are spread evenly. See `partition`.
    shared : str or sequence of str, optional
        Columns with factors whose effects all batches share, though a batch may lack some of their
        levels, such as months beside `groups` of sites: as in `sample_batches`.
    kind : {"inflated", "fractionated", "full_prior"}, optional
        What each batch samples, as in `sample_batches`. When absent "inflated"; where batches have
        variables of their own they are sampled in rounds, see Notes.
    method : str, default "swiss"
        How to merge, as in `merge`.
    transforms : mapping of variable to {"log", "softplus"}, optional
        Where to sample and merge positive variables, by default where PyMC samples them. The log of
        a group's scale that the rows cannot tell from zero is skewed, and no Gaussian stands for
        it: ``{"tau": "softplus"}`` is better there.
    refine, certify : bool, default True
        Whether to remove the error of the merge, and to weigh its draws against the full posterior.
    executor : concurrent.futures.Executor or dask.distributed.Client, optional
        Where to run; by default threads of this process, one a core.
    folder : path, optional
        Where each finished stage is saved at once. Run the same call again to go on from there.
    timeout : float, optional
        Seconds that the sampling of a batch may take, its compilation included. A batch that takes
        longer is abandoned and reported; the others are sampled and saved. Batches then run in
        processes, which can be ended, unless an `executor` is given: on Dask the worker is begun
        anew, other pools have one worker less from then on. It does not hold for the pilot, for
        `refine` and for `certify`, and is refused where batches with groups of their own are
        sampled in rounds.
    keep_data : bool, default False
        Whether batches, and the result where their rows have labels, hold ``observed_data`` and
        ``constant_data``. With True all rows of files must fit in memory.
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
        Show the progress of each stage in a terminal or a notebook, and print a report at the end,
        also where there is neither.
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
        If the arguments or the model cannot be used, or `folder` was made with others; if batches
        have variables of their own and `groups` is missing, or a group is in several batches.

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

    Batches with variables of their own, such as random effects, need `groups`. The rule then counts
    these too: a batch has ten groups or more, unless there would be fewer than two batches, and
    with `refine` 320 draws or more, which makes ``draws // 320`` batches at most, or one for every
    worker if that is more. The pilot is found by rounds over the first batch alone. Rounds of
    expectation propagation over all batches follow, as `refine` does them: each batch is sampled
    with what the others say of the shared parameters as its prior. The draws of the last round are
    merged, and certified by integrals over the variables of each group. All groups are in the
    result, side by side, in the order of the model of all rows; what is effective of their draws
    are those of their own batch, about `draws` over the number of batches. With `kind` or
    `nuts_sampler`, without `refine`, and where the pilot fails, batches are sampled with a full
    warm-up, by default as "fractionated", and merged first. Where the density is no product over
    groups the result is not certified, and the report says why.

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

    With effects of 40 sites, of 25 rows each, that stay together:

    >>> def build_sites(rows):
    ...     sites, index = np.unique(rows["site"], return_inverse=True)
    ...     with pm.Model(coords={"site": sites}) as model:
    ...         mu, tau = pm.Normal("mu", 0, 10), pm.HalfNormal("tau", 2)
    ...         effect = pm.Normal("effect", mu, tau, dims="site")
    ...         pm.Normal("y", effect[index], 2, observed=rows["y"])
    ...     return model
    >>> sites = np.repeat(np.arange(40), 25)
    >>> rows = {"site": sites, "y": y[:1000] + np.random.default_rng(2).normal(size=40)[sites]}
    >>> options = {"batches": 2, "draws": 800, "random_seed": 1, "progressbar": False}
    >>> merged = az_swiss.sample(build_sites, rows, groups="site", **options)
    >>> merged["posterior"]["effect"].sizes["site"], merged["swiss_certificate"].attrs["status"]
    (40, 'certified')
    """
    clock = Clock()
    _check_arguments(method, certify, {"draws": draws, "chains": chains, "batches": batches})
    settings = Settings(
        kind or "inflated",
        (),
        draws,
        tune,
        chains or CHAINS,
        nuts_sampler,
        sample_kwargs,
        reproducible,
        whitened=True,
        shared=shared_names(shared),
    )
    check_arguments("sample", build, settings, executor)
    limits = Limits(checked_timeout(timeout), keep_data)
    build = building(build, checked_choices(transforms))
    random_seed = integer_seed(random_seed)
    with opened_table(data, folder, progressbar) as data:
        with clock("plan"):
            data = share_levels(data, settings.shared)
            examined = examine(build, data, groups, stratify)
            own_chains = chains
            whitened = not examined.local or (
                examined.has_own and refine and method == "swiss" and not (kind or nuts_sampler)
            )
            _check_timeout(timeout, rounds=examined.has_own and whitened)
            chains = chains or (NUTS_CHAINS if nuts_sampler or not whitened else CHAINS)
            sizes = choose_sizes(
                row_count(data),
                examined.parameters,
                batches=batches,
                draws=draws,
                chains=chains,
                refined=refine,
                workers=executors.count_workers(executor),
                groups=examined.groups,
            )
            whole = None
            if examined.has_own and not isinstance(data, Table):
                whole = build_model(build, data, "all rows")
        settings = settings._replace(
            kind=kind or examined.kind,
            draws=sizes.draws,
            chains=chains,
            nuts_sampler=nuts_sampler or (None if whitened else fastest_sampler()),
            whitened=whitened,
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
            limits=limits,
            clock=clock,
            keep=examined.has_own and (refine or certify),
        )
        skipped = _why_not_corrected(sampled, examined)
        wanted = Wanted(
            method,
            refine and not skipped,
            certify and not skipped,
            draws,
            {"chains": own_chains, "tune": tune, **sample_kwargs},
            whole,
            group_coords(data, groups, sampled.model) if whole is None else coords_of(whole),
            executor,
            progressbar,
        )
        result, failed = run_stages(sampled, wanted, clock)
        attrs = {schema.RULE: sizes.rule, schema.SKIPPED: skipped or failed, **_asides(sampled)}
        result = with_group(result, schema.RUN, _run_group(clock, attrs))
    if progressbar:
        print(report(result))
    return result


def _check_arguments(method: str, certify: bool, numbers_of: Mapping[str, Any]) -> None:
    if find(method).makes == "product":
        raise ValueError(
            f'method "{method}" merges draws with their log densities, which sample does not '
            "record. Sample the batches by sample_batches, and pass log_densities= to merge."
        )
    if find(method).makes != "maps" and certify:
        raise ValueError(
            f'method "{method}" makes new draws, whose density is not known, so they cannot be '
            'certified. Pass certify=False, or method="swiss".'
        )
    for name, value in numbers_of.items():
        if name == "draws" or value is not None:
            check_count(name, value)


def _check_timeout(timeout: float | None, rounds: bool) -> None:
    if timeout is not None and rounds:
        raise ValueError(
            "timeout= is the time to sample a single batch, but batches with groups of their own "
            "are sampled in rounds, which need all of them. Leave timeout= out, or pass "
            'nuts_sampler="nutpie" or "pymc", which samples each batch once.'
        )


def _why_not_corrected(sampled: Sampled, examined: Examined) -> str:
    """Return why the merge can be neither refined nor certified, if so."""
    if examined.local and not examined.has_own:
        return (
            f"missing outcomes ({', '.join(examined.local)}) are variables of their batch: leave "
            "out rows without an outcome, which tell nothing of the parameters"
        )
    if len(sampled.models) < len(sampled.run.indices):
        return "the models of all batches could not be had side by side"
    return ""


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

"""Sample every batch of the data with the user's own PyMC model, in parallel, and resume."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm

from arviz_swiss.base.seeds import integer_seed
from arviz_swiss.parallel.levels import share_levels, shared_names
from arviz_swiss.parallel.tables import Table, opened_table
from arviz_swiss.pymc.running import Limits, check_arguments, checked_timeout, run_batches
from arviz_swiss.pymc.runs import Settings


def sample_batches(
    build: Callable[[Any], pm.Model],
    data: Any,
    *,
    batches: int,
    groups: Any = None,
    stratify: Any = None,
    shared: str | Sequence[str] | None = None,
    kind: str = "inflated",
    untransformed: str | Sequence[str] = (),
    executor: Any = None,
    folder: str | Path | None = None,
    timeout: float | None = None,
    keep_data: bool | None = None,
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
    data : array, DataFrame, dict of arrays, xarray Dataset, or path
        All rows. DataFrames are those of pandas and polars, and pyarrow's Tables. Rows that do not
        fit in memory: the path of a Parquet file or of a folder of them, a pattern such as
        ``"rows/*.parquet"``, or a list of paths; a Dask DataFrame; a LazyFrame of polars; a Dataset
        of pyarrow. One pass over these writes the rows of each batch into a file in `folder`,
        without one into a temporary folder that is there as long as the call, and workers read
        their own batch's. `build` gets pandas DataFrames of paths and of Dask, otherwise frames of
        the library that you gave.
    batches : int
        Number of batches.
    groups, stratify : array-like or hashable, optional
        One label per row, or the name of a column of `data`: rows that stay together, and values
        that are spread evenly. See `arviz_swiss.parallel.partition.partition`.
    shared : str or sequence of str, optional
        Columns with factors whose effects all batches share, though a batch may lack some of their
        levels, such as months beside `groups` of sites. Every batch is told the levels of all rows:
        columns of a DataFrame and arrays of a dict come to `build` as categorical Series, with
        ``data["month"].cat.categories`` for the coords and ``data["month"].cat.codes`` for the
        rows; variables of a Dataset with the attribute ``levels``.
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
    timeout : float, optional
        Seconds that a batch may take, its compilation included. A batch that takes longer is
        abandoned and reported; the others are sampled and saved. Batches then run in processes,
        which can be ended, unless an `executor` is given: on Dask the worker is begun anew, other
        pools have one worker less from then on.
    keep_data : bool, optional
        Whether each batch holds its rows, in ``observed_data`` and ``constant_data``; by default
        where `data` are in memory. Neither `merge` nor `refine` and `certify` need them; with False
        they are in memory once only. With True all rows of files must fit in memory.
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
        Show one progress bar over the batches, in a terminal or a notebook. It says that models are
        being compiled, until the first batch samples.
    **sample_kwargs
        Further arguments of ``pymc.sample``, such as ``target_accept``.

    Returns
    -------
    list of InferenceData or DataTree
        One per batch, in order, each with the groups ``posterior`` and ``sample_stats``, by
        `keep_data` ``observed_data`` and ``constant_data``, and for "full_prior" ``prior``.
        Attributes of ``posterior`` tell `arviz_swiss.merge` all that it needs: ``swiss_batch``,
        ``swiss_size``, ``swiss_kind``, ``swiss_power``, ``swiss_prior_power``,
        ``sampled_variables``, and ``swiss_local`` where variables belong to one batch alone. Others
        tell where it comes from: ``swiss_random_seed``, ``swiss_partition`` (a fingerprint of the
        rows of all batches), ``swiss_data`` (of the data), ``swiss_groups`` and ``swiss_stratify``
        (where they are names of columns) and ``swiss_shared``, by which `refine` and `certify` find
        the rows of each batch again; ``swiss_settings`` (of its folder, as JSON), ``swiss_version``
        and ``swiss_pymc_version``.

    Raises
    ------
    BatchError
        If some batches failed. The others are saved, and returned on the exception.
    ValueError, TypeError
        Before sampling, if the arguments or the model cannot be used, if no sampler reads an
        argument, or if `folder`, or a file in it, was made with other settings or of another model:
        other densities, structure or deterministics of the first two batches. While sampling, if
        the model of a later batch has other parameters than the first.
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

    The models of the first two batches, and of both together, are built before sampling. Each other
    batch is built, and compared with the first, where it is sampled. In processes of our own, one
    that ends its process is begun a second time after the others; workers of a Dask cluster may
    come and go, and if it has none for ten minutes (or Dask's setting
    ``distributed.scheduler.no-workers-timeout``) the call ends with what is finished.

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
    settings = settings._replace(shared=shared_names(shared))
    check_arguments("sample_batches", build, settings, executor)
    with opened_table(data, folder, progressbar) as rows:
        if keep_data is None:
            keep_data = not isinstance(rows, Table)
        sampled = run_batches(
            build,
            share_levels(rows, settings.shared),
            {"batches": batches, "groups": groups, "stratify": stratify},
            settings,
            executor=executor,
            folder=folder,
            random_seed=integer_seed(random_seed),
            progressbar=progressbar,
            limits=Limits(checked_timeout(timeout), keep_data),
        )
    return list(sampled.idatas.values())

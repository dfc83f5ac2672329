"""log_densities(): what each batch was sampled from, at its draws."""

from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.correcting.belonging import check_all_there
from arviz_swiss.correcting.densities import Source, batch_densities, space_for_models
from arviz_swiss.correcting.evaluation import Request, evaluating
from arviz_swiss.data import schema
from arviz_swiss.data.containers import SAMPLE_DIMS, Container
from arviz_swiss.data.progress import progress
from arviz_swiss.merging.merged import Merged, open_merged


def log_densities(
    merged: Container | str | PathLike,
    densities: Any = None,
    *,
    build: Callable[[Any], Any] | None = None,
    data: Any = None,
    groups: Any = None,
    stratify: Any = None,
    folder: str | PathLike | None = None,
    executor: Any = None,
    group: str = "posterior",
    progressbar: bool = True,
) -> dict[str, xr.DataArray]:
    """Return the log density that each batch was sampled from, at its own draws.

    For ``merge(method="gaussian_process", log_densities=...)``, where samplers did not record it,
    or in another space than that of the merge.

    Parameters
    ----------
    merged : InferenceData or DataTree, or the path of its file
        The same batches, as `merge` returned them by a method that moves draws, in the space where
        they are to be merged.
    densities : sequence, or mapping of batch label to density
        One a batch, as `certify` takes them.
    build, data, groups, stratify, folder : optional
        Instead of `densities`, as in `refine`.
    executor : concurrent.futures.Executor or dask.distributed.Client, optional
        As in `refine`.
    group : str, default "posterior"
    progressbar : bool, default True
        Show progress in a terminal or a notebook, if tqdm is installed.

    Returns
    -------
    dict of str to DataArray
        By label of the batch, (chain, draw): the prior and the likelihood to the powers that the
        batch was sampled with, Jacobians of the space of the merge included, up to a constant.

    Raises
    ------
    ValueError
        When draws were newly made, batches have variables of their own or were dropped, or a
        density is not finite or of other rows than its batch's.
    TypeError
        When a density lacks methods.

    See Also
    --------
    merge, certify

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> class Counts:
    ...     def __init__(self, total, size):
    ...         self.total, self.size = total, size
    ...     def log_prior(self, x):
    ...         return x[:, 0] - np.exp(x[:, 0])
    ...     def log_likelihood(self, x):
    ...         return self.total * x[:, 0] - self.size * np.exp(x[:, 0])
    ...     def grad_log_prior(self, x):
    ...         return 1 - np.exp(x)
    ...     def grad_log_likelihood(self, x):
    ...         return self.total - self.size * np.exp(x)
    >>> rng = np.random.default_rng(1)
    >>> densities = [Counts(total, 10) for total in (3, 8, 4, 7)]
    >>> batches = [
    ...     {"rate": rng.gamma(1 / 4 + d.total, 1 / (1 / 4 + d.size), size=(4, 250))}
    ...     for d in densities
    ... ]
    >>> options = {"kind": "fractionated", "transforms": {"rate": "log"}}
    >>> merged = az_swiss.merge(batches, **options)
    >>> known = az_swiss.log_densities(merged, densities, progressbar=False)
    >>> product = az_swiss.merge(
    ...     batches, method="gaussian_process", log_densities=known, random_seed=1, **options
    ... )
    >>> exact = (1 + 22) / (1 + 40)
    >>> bool(abs(product["posterior"]["rate"].mean() / exact - 1) < 0.02)
    True
    """
    opened = open_merged(merged, group)
    check_all_there(opened)
    opened.require_moved(
        'their own draws are not at hand. Merge the same batches with method="swiss" and pass that.'
    )
    if local := opened.attrs.get(schema.LOCAL):
        raise ValueError(
            f"the batches have variables of their own ({local}): what each says of the shared ones "
            "alone is no density that could be evaluated. Refine the merge instead."
        )
    with Source(densities, build, data, groups, stratify, folder).reading(
        opened, progressbar
    ) as source:
        matched = batch_densities(opened, source)
        own = {label: opened.before(position) for position, label in enumerate(opened.labels)}
        with (
            progress(len(matched), "Evaluating", progressbar) as bar,
            evaluating(matched, space_for_models(opened), executor, bar) as evaluate,
        ):
            answers = evaluate(
                {
                    label: [
                        Request(name, draws.reshape(-1, draws.shape[-1]))
                        for name in ("log_likelihood", "log_prior")
                    ]
                    for label, draws in own.items()
                }
            )
    return {
        label: _powered(opened, position, answers[label], own[label].shape[:2])
        for position, label in enumerate(opened.labels)
    }


def _powered(
    opened: Merged, position: int, terms: list[np.ndarray], shape: tuple[int, ...]
) -> xr.DataArray:
    powers = (float(opened.maps[name][position]) for name in ("power", "prior_power"))
    values = sum(power * term for power, term in zip(powers, terms, strict=True))
    if not np.isfinite(values).all():
        raise ValueError(
            f'batch "{opened.labels[position]}": some of its own draws have no density. The one '
            "given is not that which the batch was sampled from."
        )
    return xr.DataArray(np.reshape(values, shape), dims=SAMPLE_DIMS)

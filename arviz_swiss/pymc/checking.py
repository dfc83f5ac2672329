"""Before sampling: refuse what would fail, or go wrong, only after hours of it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm

from arviz_swiss.parallel.partition import row_count, take
from arviz_swiss.pymc import structure
from arviz_swiss.pymc.graphs import UNCOMPILED
from arviz_swiss.pymc.space import ModelSpace
from arviz_swiss.pymc.usage import check_uses_batch
from arviz_swiss.pymc.worker import build_model, temper

__all__ = ["check_models"]

PRIOR_TRIALS = 50


def check_models(
    build: Callable[[Any], pm.Model],
    data: Any,
    indices: Sequence[np.ndarray],
    kind: str,
    untransformed: tuple[str, ...],
    grouped: bool,
) -> tuple[structure.Structure, tuple[str, ...]]:
    """Build the batches' models, and refuse what would only fail later.

    Parameters
    ----------
    build : callable
    data : object
        All rows.
    indices : sequence of arrays
        The rows of each batch.
    kind : str
        "inflated", "fractionated" or "full_prior".
    untransformed : tuple of str
        Variables whose prior is raised to a power on their own scale.
    grouped : bool
        Whether rows that belong together were kept in one batch.

    Returns
    -------
    tuple of Structure and tuple of str
        The parameters of the first batch, and those that each batch has its own of.
    """
    probes = [indices[0]]
    if len(indices) > 1:
        probes += [indices[1], np.sort(np.concatenate(indices[:2]))]
    tables = [take(data, index) for index in probes]
    names = ("batch b0", "batch b1", "batches b0 and b1 together")
    models = [build_model(build, *one) for one in zip(tables, names, strict=False)]
    described = [
        structure.describe(model, len(index)) for model, index in zip(models, probes, strict=True)
    ]
    for one, name in zip(described, names, strict=False):
        structure.check_predictors(one, kind, name)
    first, first_model = described[0], models[0]
    local = first.imputed
    if len(described) > 1:
        check_uses_batch(models, tables, row_count(data))
        _, second, together = described
        local = structure.find_local(first, second, together)
        structure.check_local(local, first, second, kind=kind, grouped=grouped)
        structure.check_same(first, second, local, "batch b1")
        _check_later(
            build, data, indices, kind, dict(zip(names, described[:2], strict=False)), local
        )
    temper(first_model, kind, len(indices[0]), row_count(data), local, untransformed)
    if kind == "full_prior":
        _check_prior(first_model, local)
    return first, local


def _check_later(build, data, indices, kind, known: dict[str, structure.Structure], local) -> None:
    """Refuse later batches whose parameters are others, before any time is spent on sampling."""
    latent = [name for name in local if not any(name in one.imputed for one in known.values())]
    for position, index in enumerate(indices[2:], start=2):
        where = f"batch b{position}"
        try:
            model = build_model(build, take(data, index), where)
        except Exception:  # a batch that cannot be built must not lose the others
            continue
        described = structure.describe(model, len(index))
        structure.check_predictors(described, kind, where)
        structure.check_same(known["batch b0"], described, local, where)
        structure.check_apart(known, described, latent, where)
        known[where] = described


def _check_prior(model: pm.Model, local) -> None:
    if model.potentials:
        names = ", ".join(potential.name for potential in model.potentials)
        raise ValueError(
            f'Potentials {names} are not in draws from the prior, which kind="full_prior" '
            'subtracts. Pass kind="inflated" or "fractionated", or write them as variables.'
        )
    for rv in model.free_RVs:
        if rv.name in local:
            continue
        try:
            pm.draw(rv, mode=UNCOMPILED)
        except NotImplementedError as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"The prior of {rv.name} cannot be drawn from ({reason}), which "
                'kind="full_prior" needs. Pass kind="inflated", or give it a proper prior.'
            ) from error
    shared = [rv for rv in model.free_RVs if rv.name not in local]
    drawn = pm.draw(shared, draws=PRIOR_TRIALS, mode=UNCOMPILED, random_seed=0)
    names = [rv.name for rv in shared]
    images = ModelSpace(model, var_names=names).forward(dict(zip(names, drawn, strict=True)))
    if outside := [name for name in names if not np.isfinite(images[name]).all()]:
        raise ValueError(
            f"Draws from the prior of {', '.join(outside)} are outside the support that the "
            'transform gives it, so they are not from the prior of the model; kind="full_prior" '
            'cannot subtract it. Pass kind="inflated" or "fractionated".'
        )

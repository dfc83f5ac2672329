"""Rounds of `refine` for batches with variables of their own: they are sampled anew."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from arviz_swiss.base.gaussian import Gaussian, gaussian
from arviz_swiss.correcting.densities import JointSpace, Source, batch_densities
from arviz_swiss.correcting.evaluation import evaluating
from arviz_swiss.correcting.propagation import (
    batch_attrs,
    merge_propagated,
    plan_effort,
    propagate_batches,
)
from arviz_swiss.correcting.rounds import Rounds, doubt_steps
from arviz_swiss.data import schema
from arviz_swiss.data.containers import SAMPLE_DIMS, Container
from arviz_swiss.merging.merged import Merged
from arviz_swiss.merging.models import is_model, local_names, unconstrained_rows
from arviz_swiss.merging.records import Doubt
from arviz_swiss.parallel.progress import progress


class Refined(NamedTuple):
    """A merged object after rounds, and what speaks against these, if anything."""

    merged: Container
    doubt: Doubt | None


def has_local(opened: Merged, densities: Mapping[str, Any]) -> bool:
    """Tell whether models have free variables that each batch has its own of."""
    first = next(iter(densities.values()))
    return is_model(first) and bool(local_names(first, opened.names))


def refine_local(
    opened: Merged,
    models: Mapping[str, Any],
    *,
    draws: int,
    rounds: int | None,
    executor: Any,
    rng: np.random.Generator,
    progressbar: bool,
) -> Refined:
    """Sample every batch anew, in rounds of expectation propagation from the merged moments on."""
    first = next(iter(models.values()))
    parameters, start = _start(opened, first)
    space = JointSpace(parameters, _axes(opened, first))
    shares = _shares(opened)
    sizes = opened.maps["size"].values.tolist() if "size" in opened.maps else None
    effort = plan_effort(len(parameters), len(models), draws, rounds)
    with (
        progress(effort.rounds * len(models), "Refining", progressbar, unit="batch") as bar,
        evaluating(models, space, executor, bar) as evaluate,
    ):
        propagated = propagate_batches(evaluate, start, shares, effort, rng, bar)
        doubt = doubt_steps(Rounds(propagated.history, list(models)))
        attrs = {
            label: {
                **_inherited(opened),
                **batch_attrs(label, share, None if sizes is None else sizes[at], space.axes),
            }
            for at, (label, share) in enumerate(shares.items())
        }
        merged = merge_propagated(evaluate, space, start, propagated, attrs, first, doubt)
        bar.finish()
    return Refined(merged, doubt)


def _start(opened: Merged, model: Any) -> tuple[tuple[str, ...], Gaussian]:
    """Return the shared parameters in the model's space, and the moments of the merged draws."""
    parameters, rows = unconstrained_rows(model, opened.draws, opened.names)
    return parameters, gaussian(rows.mean(axis=0), np.atleast_2d(np.cov(rows.T)))


def _axes(opened: Merged, model: Any) -> dict[str, int]:
    """Return along which axis of each local variable a batch's groups lie."""
    moved = opened.groups.get(schema.LOCAL_MAPS, {})
    axes = dict.fromkeys(local_names(model, opened.names), 0)
    for name in axes:
        if name in moved:
            dims, dim = moved[name].attrs["dims"], moved[name].attrs["dim"]
            axes[name] = list(dims).index(dim) - len(SAMPLE_DIMS)
    return axes


def _shares(opened: Merged) -> dict[str, float]:
    """Return each batch's share of the rows; an equal one where they are not known."""
    count = len(opened.labels)
    sizes = opened.maps["size"].values if "size" in opened.maps else np.ones(count)
    return dict(zip(opened.labels, (sizes / sizes.sum()).tolist(), strict=True))


def _inherited(opened: Merged) -> dict[str, Any]:
    """Return what the merged draws say of all batches."""
    own = (*schema.BATCH_ATTRS, *schema.MERGE_ATTRS)
    return {name: value for name, value in opened.attrs.items() if name not in own}


def one_model_a_batch(opened: Merged, source: Source) -> dict[str, Any]:
    """Return one PyMC model a batch; refuse other densities, which know no local variables."""
    densities = batch_densities(opened, source)
    for label, density in densities.items():
        if not is_model(density):
            raise TypeError(
                f'batch "{label}": its variables {opened.attrs.get(schema.LOCAL, "")} are its own, '
                "and must be sampled anew. Pass the PyMC model of each batch, or build= and data=."
            )
    return densities

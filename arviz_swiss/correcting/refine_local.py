"""Rounds of `refine` for batches with variables of their own: they are sampled anew."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from arviz_swiss.base.gaussian import Gaussian, gaussian
from arviz_swiss.correcting.batch_model import changed, is_modelled
from arviz_swiss.correcting.batch_model import opened as here
from arviz_swiss.correcting.densities import JointSpace, Source, batch_densities
from arviz_swiss.correcting.propagation import plan_effort, propagate_models
from arviz_swiss.data import schema
from arviz_swiss.data.containers import SAMPLE_DIMS, Container
from arviz_swiss.data.transforms import is_own, resolve
from arviz_swiss.merging.merged import Merged
from arviz_swiss.merging.models import local_names, unconstrained_rows
from arviz_swiss.merging.space import checked_choices


def has_local(opened: Merged, model: Any) -> bool:
    """Tell whether a batch's model has free variables that each batch has its own of."""
    return bool(local_names(model, opened.names))


def refine_local(
    opened: Merged,
    models: Mapping[str, Any],
    *,
    transforms: Mapping[str, Any] | None,
    draws: int,
    rounds: int | None,
    executor: Any,
    rng: np.random.Generator,
    progressbar: bool,
) -> Container:
    """Sample every batch anew, in rounds of expectation propagation from the merged moments on."""
    choices = _named(transforms)
    models = {label: changed(model, choices, f'batch "{label}"') for label, model in models.items()}
    first = here(next(iter(models.values())))
    parameters, start = _start(opened, first)
    own = (*schema.BATCH_ATTRS, *schema.MERGE_ATTRS)
    return propagate_models(
        models,
        JointSpace(parameters, local_axes(opened, first)),
        start,
        _rows(opened),
        plan_effort(len(parameters), len(models), draws, rounds),
        attrs={name: value for name, value in opened.attrs.items() if name not in own},
        coords=_group_labels(opened),
        executor=executor,
        rng=rng,
        progressbar=progressbar,
    )


def _named(transforms: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return transforms by name; objects are of no use to rounds, which begin from own scales."""
    choices = checked_choices(transforms)
    return {name: choice for name, choice in choices.items() if not is_own(resolve(choice, name))}


def _start(opened: Merged, model: Any) -> tuple[tuple[str, ...], Gaussian]:
    """Return the shared parameters in the model's space, and the moments of the merged draws."""
    parameters, rows = unconstrained_rows(model, opened.draws, opened.names)
    # a merge on another scale may have moved draws out of the support
    rows = rows[np.isfinite(rows).all(axis=1)]
    return parameters, gaussian(rows.mean(axis=0), np.atleast_2d(np.cov(rows.T)))


def local_axes(opened: Merged, model: Any) -> dict[str, int]:
    """Return along which axis of each local variable a batch's groups lie."""
    moved = opened.groups.get(schema.LOCAL_MAPS, {})
    axes = dict.fromkeys(local_names(model, opened.names), 0)
    for name in axes:
        if name in moved:
            dims, dim = moved[name].attrs["dims"], moved[name].attrs["dim"]
            axes[name] = list(dims).index(dim) - len(SAMPLE_DIMS)
    return axes


def _group_labels(opened: Merged) -> dict[str, Any]:
    """Return the labels along the merged draws' dimensions, whose order shall stay."""
    draws = opened.draws
    return {str(dim): draws[dim].values for dim in draws.dims if dim in draws.coords}


def _rows(opened: Merged) -> dict[str, int] | None:
    """Return the number of each batch's rows, where known."""
    if "size" not in opened.maps:
        return None
    return dict(zip(opened.labels, opened.maps["size"].values.tolist(), strict=True))


def one_model_a_batch(opened: Merged, source: Source) -> dict[str, Any]:
    """Return the PyMC model of each batch."""
    return only_models(opened, batch_densities(opened, source))


def only_models(opened: Merged, densities: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse densities other than PyMC models, which know no local variables."""
    for label, density in densities.items():
        if not is_modelled(density):
            raise TypeError(
                f'batch "{label}": its variables {opened.attrs.get(schema.LOCAL, "")} are its own, '
                "and a density of the shared ones does not tell them. Pass the PyMC model of each "
                "batch, or build= and data=."
            )
    return dict(densities)

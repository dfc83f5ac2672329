"""Before sampling: refuse what would fail, or go wrong, only after hours of it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors

from arviz_swiss.correcting.batch_model import BatchModel
from arviz_swiss.parallel.batch_rows import Split
from arviz_swiss.parallel.partition import row_count, take, take_together
from arviz_swiss.pymc import structure
from arviz_swiss.pymc.compiling import compiles_once
from arviz_swiss.pymc.crossed import check_levels, check_together, levels_in
from arviz_swiss.pymc.graphs import UNCOMPILED, graphs_of
from arviz_swiss.pymc.runs import Settings
from arviz_swiss.pymc.space import ModelSpace
from arviz_swiss.pymc.usage import check_uses_batch
from arviz_swiss.pymc.worker import build_model, check_later, samples_compiled, temper

PRIOR_TRIALS = 50
# Rows of a batch in a file by which its model is examined.
PROBED_ROWS = 10_000


class Probe(NamedTuple):
    """The model of some rows."""

    where: str
    data: Any
    model: pm.Model
    structure: structure.Structure


class Checked(NamedTuple):
    """The model and parameters of the first batch, names of those that each batch has its own of.

    `levels` are those of shared factors in the first batch; `models` are those of the first two
    batches, or of all that could be built; `axes` are those of local variables along which a
    batch's groups lie, but for missing outcomes. Models of rows in files are built where they are
    needed, and not kept; then `model` may be of some rows of the first batch only.
    """

    model: pm.Model
    first: structure.Structure
    levels: dict[str, list[Any]]
    local: tuple[str, ...]
    models: dict[str, Any]
    axes: dict[str, int]


def build_probes(
    build: Callable[[Any], pm.Model], data: Any, indices: Mapping[str, Any], grouped: bool = False
) -> list[Probe]:
    """Build the models of the first two batches, and of the rows of both.

    Of batches in files some rows are enough, unless they are `grouped`.
    """
    most = None if grouped else PROBED_ROWS
    rows = {f"batch {label}": [index] for label, index in list(indices.items())[:2]}
    if len(rows) == 2:
        rows["batches b0 and b1 together"] = [index for (index,) in rows.values()]
    return [_probe(build, take_together(data, some, most), where) for where, some in rows.items()]


def _probe(build: Callable[[Any], pm.Model], data: Any, where: str) -> Probe:
    model = build_model(build, data, where)
    return Probe(where, data, model, structure.describe(model, row_count(data)))


def suits_threads(probes: Sequence[Probe], settings: Settings) -> bool:
    """Tell whether threads of one process can sample side by side.

    Only nutpie leaves Python's lock to others while it samples, and nothing does while it compiles:
    models that must be compiled one by one are better off in processes.
    """
    batches = probes[:2]
    return samples_compiled(settings) and compiles_once(
        [probe.model for probe in batches], [probe.structure.shapes for probe in batches]
    )


def check_models(
    build: Callable[[Any], pm.Model],
    data: Any,
    indices: Mapping[str, Any],
    probes: Sequence[Probe],
    settings: Settings,
    *,
    grouped: bool,
    keep: bool = False,
) -> Checked:
    """Return the parameters of the first batch, which are shared, and the models.

    Later batches are built here only if they are to be kept, for who needs all side by side.
    Otherwise each is built, and checked, where it is sampled.
    """
    for probe in probes:
        structure.check_predictors(probe.structure, settings.kind, probe.where)
    first, local = probes[0].structure, probes[0].structure.imputed
    axes: dict[str, int] = {}
    # the third probe is of no batch
    batches = zip(indices, probes[:2], strict=False)
    models: dict[str, Any] = {label: probe.model for label, probe in batches}
    if isinstance(data, Split):
        models = {label: BatchModel(build, rows, label) for label, rows in indices.items()}
    if len(probes) > 1:
        check_uses_batch(
            [probe.model for probe in probes], [probe.data for probe in probes], row_count(data)
        )
        _, second, together = (probe.structure for probe in probes)
        local = structure.find_local(first, second, together)
        levels = [levels_in(probe.data, settings.shared) for probe in probes]
        check_levels([probe.structure for probe in probes], levels, probes[0].data)
        structure.check_local(local, first, second, kind=settings.kind, grouped=grouped)
        check_together(local, first, second, together)
        axes = structure.local_axes(local, first, second)
        structure.check_same(first, second, local, probes[1].where)
    levels_of_first = levels_in(probes[0].data, settings.shared)
    checked = Checked(probes[0].model, first, levels_of_first, local, models, axes)
    if keep and not isinstance(data, Split):
        models |= _later_models(build, data, indices, settings, probes[:2], checked)
    # in whitened coordinates batches with groups of their own have no tempered model
    if not (axes and settings.whitened):
        rows = first.rows, row_count(data)
        temper(probes[0].model, settings.kind, *rows, local, settings.untransformed)
    if settings.kind == "full_prior":
        _check_prior(probes[0].model, local)
    # those of files are yet to be built: as the first two are, so will all be
    built = [probe.model for probe in probes[:2]] if isinstance(data, Split) else models.values()
    if _are_apart(built):
        return checked
    return checked._replace(models={})


def _later_models(
    build: Callable[[Any], pm.Model],
    data: Any,
    indices: Mapping[str, Any],
    settings: Settings,
    probes: Sequence[Probe],
    checked: Checked,
) -> dict[str, pm.Model]:
    """Build later batches and refuse those whose parameters are others."""
    known = {probe.where: probe.structure for probe in probes}
    models = {}
    for label, index in list(indices.items())[2:]:
        where = f"batch {label}"
        try:
            later = _probe(build, take(data, index), where)
        except Exception:  # a batch that cannot be built must not lose the others
            continue
        expected = checked.first, checked.levels, checked.local
        check_later(*expected, later.structure, later.data, settings, where)
        structure.check_apart(known, later.structure, list(checked.axes), where)
        known[where] = later.structure
        models[label] = later.model
    return models


def _are_apart(models: Iterable[pm.Model]) -> bool:
    """Tell whether no two models hold the same data.

    A function may put the rows of each batch into the same shared variable, array or model: then
    all models hold those of the last.
    """
    seen: set[int] = set()
    for model in models:
        held = _identities(model)
        if not seen.isdisjoint(held):
            return False
        seen |= held
    return True


def _identities(model: pm.Model) -> set[int]:
    held = {id(model)}
    for var in ancestors(graphs_of(model)):
        if isinstance(var, SharedVariable):
            held.add(id(var))
        # numbers are the same wherever they occur
        elif isinstance(var, Constant) and isinstance(var.data, np.ndarray) and var.data.size > 1:
            held.add(var.data.ctypes.data)
    return held


def check_potentials(models: Sequence[pm.Model]) -> None:
    """Refuse Potentials that depend on the rows: they count with the prior, one for all."""
    names = [potential.name for potential in models[0].potentials]
    if not names or len(models) < 2:
        return
    point = models[0].initial_point()
    values = []
    for model in models:
        graphs = model.logp(vars=model.potentials, sum=False)
        inputs = list(model.value_vars)
        function = pytensor.function(inputs, graphs, mode=UNCOMPILED, on_unused_input="ignore")
        try:
            values.append(function(*(point[variable.name] for variable in inputs)))
        except (IndexError, ValueError):  # of groups: other variables than those of the first batch
            return
    for name, own, other in zip(names, *values, strict=True):
        if own.shape != other.shape or not np.allclose(own, other, equal_nan=True):
            raise ValueError(
                f"Potential {name} differs between batches b0 and b1, as one of the rows does, but "
                "Potentials count with the prior, which all batches share. Write it as an observed "
                "variable, for instance with pm.CustomDist."
            )


def _check_prior(model: pm.Model, local: Sequence[str]) -> None:
    """Refuse a prior that cannot be drawn from, or whose draws are not of the model's prior."""
    if model.potentials:
        names = ", ".join(potential.name for potential in model.potentials)
        raise ValueError(
            f'Potentials {names} are not in draws from the prior, which kind="full_prior" '
            'subtracts. Pass kind="inflated" or "fractionated", or write them as variables.'
        )
    shared = {rv.name: rv for rv in model.free_RVs if rv.name not in local}
    for name, rv in shared.items():
        try:
            pm.draw(rv, mode=UNCOMPILED)
        except NotImplementedError as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"The prior of {name} cannot be drawn from ({reason}), which "
                'kind="full_prior" needs. Pass kind="inflated", or give it a proper prior.'
            ) from error
    draws = pm.draw(list(shared.values()), draws=PRIOR_TRIALS, mode=UNCOMPILED, random_seed=0)
    space = ModelSpace(model, var_names=list(shared))
    images = space.forward(dict(zip(shared, draws, strict=True)))
    if outside := [name for name in shared if not np.isfinite(images[name]).all()]:
        raise ValueError(
            f"Draws from the prior of {', '.join(outside)} are outside the support that the "
            'transform gives it, so they are not from the prior of the model; kind="full_prior" '
            'cannot subtract it. Pass kind="inflated" or "fractionated".'
        )

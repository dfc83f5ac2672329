"""Before sampling: refuse what would fail, or go wrong, only after hours of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors

from arviz_swiss.parallel.partition import row_count, take
from arviz_swiss.pymc import structure
from arviz_swiss.pymc.compiling import compiles_once
from arviz_swiss.pymc.crossed import check_levels, check_together
from arviz_swiss.pymc.graphs import UNCOMPILED, arrays_of
from arviz_swiss.pymc.runs import Settings
from arviz_swiss.pymc.space import ModelSpace
from arviz_swiss.pymc.usage import check_uses_batch
from arviz_swiss.pymc.worker import build_model, samples_compiled, temper

PRIOR_TRIALS = 50
# Bytes of data in models that are kept for threads of this process; others they build again. The
# pilot of whitened batches needs all.
BYTES_KEPT = 2**30


class Probe(NamedTuple):
    """The model of some rows."""

    where: str
    data: Any
    model: pm.Model
    structure: structure.Structure


class Checked(NamedTuple):
    """The parameters of the first batch, the names of those that each batch has its own of.

    `models` are those of the batches, as far as they were built and kept; `axes` are those of local
    variables along which a batch's groups lie, but for missing outcomes.
    """

    first: structure.Structure
    local: tuple[str, ...]
    models: dict[str, pm.Model]
    axes: dict[str, int]


def build_probes(
    build: Callable[[Any], pm.Model], data: Any, indices: Mapping[str, np.ndarray]
) -> list[Probe]:
    """Build the models of the first two batches, and of the rows of both."""
    rows = {f"batch {label}": index for label, index in list(indices.items())[:2]}
    if len(rows) == 2:
        rows["batches b0 and b1 together"] = np.sort(np.concatenate(list(rows.values())))
    return [_probe(build, take(data, index), where) for where, index in rows.items()]


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
    indices: Mapping[str, np.ndarray],
    probes: Sequence[Probe],
    settings: Settings,
    *,
    grouped: bool,
    keep: bool = False,
) -> Checked:
    """Return the parameters of the first batch, which are shared, and the models if they are kept.

    Each later batch is built once here, because a group in two batches, or a parameter that one
    lacks, shows in no other way before sampling. Workers elsewhere build it again, because
    functions can be sent to them and not all models can.
    """
    for probe in probes:
        structure.check_predictors(probe.structure, settings.kind, probe.where)
    first, local = probes[0].structure, probes[0].structure.imputed
    axes: dict[str, int] = {}
    # the third probe is of no batch
    batches = zip(indices, probes[:2], strict=False)
    models = {label: probe.model for label, probe in batches} if keep else {}
    if len(probes) > 1:
        check_uses_batch(
            [probe.model for probe in probes], [probe.data for probe in probes], row_count(data)
        )
        _, second, together = (probe.structure for probe in probes)
        local = structure.find_local(first, second, together)
        check_levels(probes, settings.shared)
        structure.check_local(local, first, second, kind=settings.kind, grouped=grouped)
        check_together(local, first, second, together)
        axes = structure.local_axes(local, first, second)
        structure.check_same(first, second, local, probes[1].where)
        known = {probe.where: probe.structure for probe in probes[:2]}
        held = sum(map(_bytes, models.values()))
        for label, model in _later_models(build, data, indices, settings, probes[0], known, local):
            held += _bytes(model)
            if keep and (settings.whitened or held <= BYTES_KEPT):
                models[label] = model
    # in whitened coordinates batches with groups of their own have no tempered model
    if not (axes and settings.whitened):
        rows = first.rows, row_count(data)
        temper(probes[0].model, settings.kind, *rows, local, settings.untransformed)
    if settings.kind == "full_prior":
        _check_prior(probes[0].model, local)
    return Checked(first, local, models if _are_apart(models) else {}, axes)


def _later_models(
    build: Callable[[Any], pm.Model],
    data: Any,
    indices: Mapping[str, np.ndarray],
    settings: Settings,
    first: Probe,
    known: dict[str, structure.Structure],
    local: Sequence[str],
) -> Iterator[tuple[str, pm.Model]]:
    """Refuse later batches whose parameters are others, before any time is spent on sampling."""
    latent = [name for name in local if not any(name in each.imputed for each in known.values())]
    for label, index in list(indices.items())[2:]:
        where = f"batch {label}"
        try:
            later = _probe(build, take(data, index), where)
        except Exception:  # a batch that cannot be built must not lose the others
            continue
        structure.check_predictors(later.structure, settings.kind, where)
        check_levels([first, later], settings.shared)
        structure.check_same(first.structure, later.structure, local, where)
        structure.check_apart(known, later.structure, latent, where)
        known[where] = later.structure
        yield label, later.model


def _are_apart(models: Mapping[str, pm.Model]) -> bool:
    """Tell whether no two models hold the same data.

    A function may put the rows of each batch into the same shared variable, array or model: then
    all models hold those of the last.
    """
    seen: set[int] = set()
    for model in models.values():
        held = _identities(model)
        if not seen.isdisjoint(held):
            return False
        seen |= held
    return True


def _graphs(model: pm.Model) -> list[Any]:
    return [*model.named_vars.values(), *model.rvs_to_values.values()]


def _bytes(model: pm.Model) -> int:
    return sum(array.nbytes for array in arrays_of(_graphs(model)))


def _identities(model: pm.Model) -> set[int]:
    held = {id(model)}
    for var in ancestors(_graphs(model)):
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

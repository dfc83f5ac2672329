"""What a model is, in three short texts: two calls of `build` are compared by what they make."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pymc.pytensorf import rvs_in_graph

from arviz_swiss.parallel.store import fingerprint
from arviz_swiss.pymc.compiling import LOCK
from arviz_swiss.pymc.graphs import UNCOMPILED, shapes_of

# Of values that are compared. Threads and machines may change the last of about sixteen.
DIGITS = 8
POINTS = 2


def identify(models: Sequence[pm.Model]) -> dict[str, str | None]:
    """Return fingerprints of the models of some batches, which another model would not have.

    "density" is that of the log densities of all variables at fixed points, data included;
    "structure" that of the free variables' names, shapes, coordinates and transforms;
    "deterministics" that of their names, coordinates and values at the same points. None stands
    for what cannot be told, because an operation cannot be evaluated without a compiler.
    """
    # without a compiler also for graphs within graphs, which would take half a minute
    with LOCK, pytensor.config.change_flags(cxx=""):
        return {
            "density": _fingerprint(_density, models),
            "structure": _fingerprint(_structure, models),
            "deterministics": _fingerprint(_deterministics, models),
        }


def _fingerprint(describe: Callable[[pm.Model], Any], models: Sequence[pm.Model]) -> str | None:
    try:
        return fingerprint([describe(model) for model in models])
    except Exception:  # the user's own operations may raise whatever they like
        return None


def _structure(model: pm.Model) -> dict[str, Any]:
    shapes = shapes_of({rv.name: rv for rv in model.free_RVs})
    return {
        rv.name: [
            shapes[rv.name],
            type(model.rvs_to_transforms[rv]).__name__,
            _coords(model, rv.name),
        ]
        for rv in model.free_RVs
    }


def _density(model: pm.Model) -> dict[str, Any]:
    variables = [*model.basic_RVs, *model.potentials]
    terms = model.logp(vars=variables, sum=False)
    return _values(model, [var.name for var in variables], terms)


def _deterministics(model: pm.Model) -> dict[str, Any]:
    graphs = model.replace_rvs_by_values(model.deterministics)
    values = _values(model, [var.name for var in model.deterministics], graphs)
    return {name: [_coords(model, name), *sums] for name, sums in values.items()}


def _coords(model: pm.Model, name: str) -> list[Any]:
    return [model.coords.get(dim) for dim in model.named_vars_to_dims.get(name) or ()]


def _values(model: pm.Model, names: Sequence[str], graphs: Sequence[Any]) -> dict[str, Any]:
    """Return sums of each graph's values at each point; none where they are drawn at random."""
    fixed = {n: g for n, g in zip(names, graphs, strict=True) if not rvs_in_graph([g])}
    values: dict[str, list] = {name: [] for name in names}
    inputs, shapes = model.value_vars, _shapes_of_values(model)
    function = pytensor.function(
        inputs, list(fixed.values()), mode=UNCOMPILED, on_unused_input="ignore"
    )
    for point in range(POINTS):
        waves = [_wave(shapes[v.name], point + k / 7) for k, v in enumerate(inputs)]
        arrays = function(*(w.astype(v.type.dtype) for w, v in zip(waves, inputs, strict=True)))
        for name, array in zip(fixed, arrays, strict=True):
            values[name] += [array.shape, *_sums(array)]
    return values


def _sums(array: np.ndarray) -> list[str]:
    """Return sums as text, of as many digits as the sums of sizes have: terms may cancel."""
    finite = np.isfinite(array)  # not outside the support
    terms = np.stack([np.where(finite, array, 0.0), finite]).reshape(2, -1)
    terms = np.concatenate([terms, terms * _wave(terms.shape[1:], 1.0)])
    sizes = np.abs(terms).sum(axis=1)
    shares = np.divide(terms.sum(axis=1), sizes, out=np.zeros(4), where=sizes > 0).round(DIGITS)
    return [*(f"{size:.{DIGITS}g}" for size in sizes), *map(str, (shares + 0.0).tolist())]


def _shapes_of_values(model: pm.Model) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the free variables' images on the real line."""
    images = {}
    for rv in model.free_RVs:
        transform, value = model.rvs_to_transforms[rv], model.rvs_to_values[rv]
        if transform is None:
            images[value.name] = rv
        else:
            images[value.name] = transform.forward(rv, *rv.owner.inputs)
    return shapes_of(images)


def _wave(shape: tuple[int, ...], start: float) -> np.ndarray:
    """Return numbers between -1 and 1 that do not repeat."""
    return np.cos(start + np.arange(int(np.prod(shape)))).reshape(shape)

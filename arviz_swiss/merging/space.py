"""Where the merge happens: the variables' unconstrained space."""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import xarray as xr

from arviz_swiss.data import schema, transforms
from arviz_swiss.data.containers import SAMPLE_DIMS
from arviz_swiss.data.layout import Layout, Variable, layout_of, place
from arviz_swiss.data.messages import warn
from arviz_swiss.merging.batches import Batch, load_arrays
from arviz_swiss.merging.match import Matched
from arviz_swiss.merging.models import model_space, with_transforms

Arrays = dict[str, np.ndarray]

# Draws by which to see whether the model computes a deterministic as the sampler did.
TRIED = 5
# Where every transform is undone, to tell one from another of its name.
PROBED = (-0.5, 0.75)
# PyMC's transforms that need no model to be undone, by their names, and ours that do the same.
WITHOUT_MODEL = {
    "log": "log",
    "logodds": "logit",
    "softplus": "softplus",
    "log_exp_m1": "softplus",
}
MODEL = "model"


class Space(Protocol):
    """What the merge asks of a space; all arrays are (chain, draw, ...), by variable name.

    `transforms` holds the variables that differ between the two scales, `circular` those of them
    that all batches' draws are needed for, `deterministic_names` what `deterministics` computes,
    `dims` and `coords` of those.
    """

    name: str
    transforms: dict[str, Any]
    circular: Sequence[str]
    deterministic_names: Sequence[str]
    dims: Mapping[str, tuple[str, ...]]
    coords: Mapping[str, Any]

    def forward(self, arrays: Arrays) -> Arrays:
        """Return the draws in unconstrained space, not finite where outside the support."""

    def backward(self, arrays: Arrays) -> Arrays:
        """Return the draws on their own scale."""

    def deterministics(self, arrays: Arrays) -> Arrays:
        """Return what follows from the draws on their own scale."""

    def layout(self, constrained: Layout, example: Arrays) -> Layout:
        """Return the layout of unconstrained variables, of which `example` holds some draws."""

    def describe(self) -> str:
        """Return the transforms as text."""


class TransformSpace:
    """Each variable through its own transform; those without one as they are."""

    name = "transforms"
    circular: Sequence[str] = ()
    deterministic_names: Sequence[str] = ()
    dims: Mapping[str, tuple[str, ...]] = {}
    coords: Mapping[str, Any] = {}

    def __init__(self, choices: Mapping[str, Any] | None, names: Sequence[str]):
        choices = checked_choices(choices)
        if unknown := [name for name in choices if name not in names]:
            raise ValueError(
                f"transforms name {', '.join(unknown)}, but the merged variables are "
                f"{', '.join(names)}."
            )
        resolved = {name: transforms.resolve(choice, name) for name, choice in choices.items()}
        self.transforms = {n: t for n, t in resolved.items() if t is not transforms.IDENTITY}

    def forward(self, arrays: Arrays) -> Arrays:
        """Return the draws in unconstrained space, not finite where outside the support."""
        images = {}
        with np.errstate(divide="ignore", invalid="ignore"):
            for name, array in arrays.items():
                try:
                    images[name] = np.asarray(self._of(name).forward(array))
                except ValueError as error:
                    raise ValueError(f"variable {name}: {error}") from error
                if images[name].shape[:2] != array.shape[:2]:
                    raise ValueError(
                        f"variable {name}: forward of the transform gave shape "
                        f"{images[name].shape} for draws of shape {array.shape}, but must keep the "
                        "first two dimensions, chain and draw."
                    )
        return images

    def backward(self, arrays: Arrays) -> Arrays:
        """Return the draws on their own scale."""
        return {name: np.asarray(self._of(name).backward(array)) for name, array in arrays.items()}

    def deterministics(self, arrays: Arrays) -> Arrays:
        """Return nothing: without a model, nothing is known to follow from the draws."""
        return {}

    def layout(self, constrained: Layout, example: Arrays) -> Layout:
        """Return the layout of unconstrained variables, of which `example` holds some draws."""
        variables: list[Variable] = []
        coords: dict[str, xr.DataArray] = {}
        known, along = constrained.coords, defaultdict(list)
        for key, coord in known.items():
            along[coord.dims[0]].append(key)
        for variable in constrained.variables:
            name, dims, shape = variable.name, variable.dims, example[variable.name].shape[2:]
            self._check_undone(variable, example[name])
            dims = transforms.unconstrained_dims(dims, variable.shape, shape, self._of(name))
            start = variables[-1].columns.stop if variables else 0
            variables.append(place(name, dims, shape, start))
            kept = {dim for dim in dims if dim in known}
            beside = [key for dim in kept for key in along[dim] if kept.issuperset(known[key].dims)]
            coords |= {key: known[key] for key in beside}
            for dim, length in zip(dims, shape, strict=True):
                if dim not in variable.dims:
                    coords[dim] = xr.DataArray(np.arange(length), dims=dim)
        return Layout(tuple(variables), coords)

    def _check_undone(self, variable: Variable, image: np.ndarray) -> None:
        """Refuse a transform of the user's own whose backward does not undo its forward."""
        transform = self._of(variable.name)
        if not transforms.is_own(transform):
            return
        few = image[:1, :TRIED]
        with np.errstate(all="ignore"):
            back = np.asarray(transform.backward(few))
            if back.shape[2:] != variable.shape:
                raise ValueError(
                    f"variable {variable.name}: backward of the transform gave shape "
                    f"{back.shape[2:]} (draws aside), but the variable has {variable.shape}."
                )
            again = np.asarray(transform.forward(back))
        size = np.abs(few[np.isfinite(few)]).max(initial=0.0)
        if not np.allclose(again, few, rtol=1e-3, atol=1e-6 * size, equal_nan=True):
            raise ValueError(
                f"variable {variable.name}: backward of the transform does not undo its forward: "
                f"{few.ravel()[0]:.6g} goes to {back.ravel()[0]:.6g} and back to "
                f"{again.ravel()[0]:.6g}. Draws could not be mapped back to their own scale."
            )

    def describe(self) -> str:
        """Return the transforms as text."""
        return transforms.describe(self.transforms)

    def _of(self, name: str) -> Any:
        return self.transforms.get(name) or transforms.IDENTITY


def split_choices(
    choices: Mapping[str, Any] | None, local: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the transforms that the user chose for shared variables, and for local ones."""
    choices = checked_choices(choices)
    own = {name: choices.pop(name) for name in list(choices) if name in local}
    return choices, own


def find_space(matched: Matched, choices: Mapping[str, Any], model: Any) -> Space:
    """Return the space of the merge: the model's, or that of the transforms by variable."""
    names = matched.layout.names
    if model is None:
        return TransformSpace(choices, names)
    draws = (load_arrays(batch, matched.layout) for batch in matched.batches)
    check_only_none(choices)
    space = model_space(model, names, choices)
    try:
        space = space.fitted_to(matched.layout).recentred(draws)
    except ValueError as error:
        raise ValueError(f"{matched.batches[0]}, {error}") from error
    return space.without_deterministics(_contradicted(space, matched))


def probe_space(space: Space, layout: Layout) -> dict[str, list[list[float]]]:
    """Return where each transform leads back to from fixed points: smallest, mean and largest.

    By these, bounds and a user's own functions are compared without being recorded.
    """
    points = {
        variable.name: np.broadcast_to(
            np.reshape(PROBED, (1, -1, *[1] * len(variable.shape))),
            (1, len(PROBED), *variable.shape),
        ).copy()
        for variable in layout.variables
    }
    if not space.transforms:
        return {}
    with np.errstate(all="ignore"):
        back = space.backward(points)
        return {
            name: [[float(f(row)) for f in (np.min, np.mean, np.max)] for row in back[name][0]]
            for name in space.transforms
        }


def restore_space(
    draws: xr.Dataset, names: Sequence[str], choices: Mapping[str, Any] | None, model: Any
) -> Space:
    """Return the space of merged draws, by own transforms and a model, which no file can hold."""
    described = draws.attrs.get(schema.TRANSFORMS, "{}")
    if draws.attrs.get(schema.SPACE) != MODEL:
        return TransformSpace(transforms.restore(described, choices), names)
    model = with_transforms(required(model), described, "model")
    whole = model_space(model, names, ())
    stay = [name for name in whole.transforms if name not in json.loads(described)]
    return model_space(model, names, stay).fitted_to(layout_of(draws, names))


def restore_without_model(attrs: Mapping[str, Any], names: Sequence[str]) -> TransformSpace:
    """Return the space as far as the merged object holds it; not own transforms, or a model's."""
    described = json.loads(attrs.get(schema.TRANSFORMS, "{}"))
    if attrs.get(schema.SPACE) == MODEL:
        known = {n: WITHOUT_MODEL[how] for n, how in described.items() if how in WITHOUT_MODEL}
    else:
        known = {name: how for name, how in described.items() if not isinstance(how, dict)}
    return TransformSpace(known, names)


def required(model: Any) -> Any:
    """Return the model; refuse to do without one."""
    if model is None:
        raise ValueError("merged in the space of a PyMC model: pass that model as model=.")
    return model


def _contradicted(space: Any, matched: Matched) -> list[str]:
    """Name deterministics in which the model holds what belongs to its own batch as a constant."""
    wrong = []
    for batch in matched.batches:
        names = [n for n in space.deterministic_names if n in batch.draws and n not in wrong]
        if not names:
            continue
        few = {n: a[:1, :TRIED] for n, a in load_arrays(batch, matched.layout).items()}
        computed = space.deterministics(few)
        for name in names:
            dims = (*SAMPLE_DIMS, *space.dims[name])
            there = batch.draws[name].isel(chain=slice(1), draw=slice(TRIED))
            if set(there.dims) != set(dims):
                continue
            known = {d: v for d, v in space.coords.items() if d in there.indexes and d in dims}
            known = {d: v for d, v in known.items() if set(there.indexes[d]) == set(v.tolist())}
            values = there.sel(known).transpose(*dims).values
            if values.shape != computed[name].shape or not np.allclose(
                computed[name], values, rtol=1e-3, atol=1e-6, equal_nan=True
            ):
                wrong.append(name)
    return wrong


def check_only_none(choices: Mapping[str, Any]) -> None:
    """Refuse transforms by which the user would contradict the model."""
    if own := [name for name, choice in choices.items() if choice is not None]:
        raise ValueError(
            f"transforms of {', '.join(own)}: with model=, the model's own transforms are used and "
            "transforms may only say None, for a variable that stays on its own scale."
        )


def checked_choices(choices: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the user's transforms by variable; refuse what is no mapping."""
    if choices is not None and not isinstance(choices, Mapping):
        raise TypeError(
            f"transforms must be a mapping of variable to transform, got {choices!r}. Write "
            'transforms={"sigma": "log"}.'
        )
    return dict(choices or {})


def check_powered_space(
    batches: Sequence[Batch], space: Space, kind: str, choices: Mapping[str, Any]
) -> None:
    """Refuse to merge a variable elsewhere than where its prior was raised to a power."""
    if kind != "fractionated":
        return
    own_scale = _recorded_names(batches, schema.UNTRANSFORMED)
    if wrong := [name for name in own_scale if name in space.transforms]:
        raise ValueError(
            f"the prior of {', '.join(wrong)} was fractionated on its own scale (untransformed=), "
            f"but would be merged transformed. Pass transforms={{{_nones(wrong)}}}."
        )
    elsewhere = _recorded_names(batches, schema.TRANSFORMED)
    if wrong := [n for n in elsewhere if n in choices and choices[n] is None]:
        raise ValueError(
            f"the prior of {', '.join(wrong)} was fractionated in the model's unconstrained space, "
            f"but transforms={{{_nones(wrong)}}} merges on its own scale. Leave that out, or "
            f"sample again with untransformed={wrong!r}."
        )
    if missed := [name for name in elsewhere if name not in space.transforms]:
        warn(
            f"the prior of {', '.join(missed)} was fractionated in the model's unconstrained "
            "space, but the merge is on its own scale: the merged posterior can be biased. Pass "
            "model=, or transforms that lead to the same space."
        )


def _recorded_names(batches: Sequence[Batch], attr: str) -> list[str]:
    return sorted({name for batch in batches for name in json.loads(batch.attrs.get(attr, "[]"))})


def _nones(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}": None' for name in names)

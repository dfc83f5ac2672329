"""Positive variables of a model on another real line than PyMC's: log, or the inverse of softplus.

Near zero both are alike; far from it softplus leaves a variable as it is, where the log of a scale
that batches cannot bound away from zero is skewed.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import LogExpM1, LogTransform, log

from arviz_swiss.pymc.formulas import from_bambi
from arviz_swiss.pymc.graphs import name_of


class Softplus(LogExpM1):
    """PyMC's transform, with digits left where the variable is tiny."""

    name = "softplus"

    def forward(self, value: Any, *inputs: Any) -> Any:
        """Return log(exp(value) - 1)."""
        return value + pt.log(-pt.expm1(-value))


NAMED = {"log": log, "softplus": Softplus()}


def check_named(choices: Mapping[str, Any]) -> None:
    """Refuse other transforms than those of positive variables."""
    for name, choice in choices.items():
        if not _is_named(choice):
            raise ValueError(
                f"variable {name}: unknown transform {choice!r}. Positive variables of a model can "
                f"be sampled by {' or '.join(map(repr, NAMED))}."
            )


def _is_named(choice: Any) -> bool:
    return isinstance(choice, str) and choice in NAMED


def change_transforms(model: pm.Model, choices: Mapping[str, Any], where: str) -> pm.Model:
    """Return a model with the same variables, some of them on another real line.

    The data are the same, not copies.
    """
    check_named(choices)
    free = {rv.name: rv for rv in model.free_RVs}
    changed = {}
    for name, choice in choices.items():
        if name not in free:
            raise ValueError(
                f"{where}: transforms name {name}, but the free variables are {', '.join(free)}."
            )
        present = model.rvs_to_transforms[free[name]]
        if not isinstance(present, LogTransform | LogExpM1):
            has = "is on the real line" if present is None else f"has {name_of(present)}"
            raise ValueError(
                f'{where}: the transform "{choice}" is for positive variables, but {name} {has}.'
            )
        if name_of(present) != choice:
            changed[free[name]] = NAMED[choice]
    return _with_transforms(model, changed) if changed else model


def follow_transforms(model: pm.Model, recorded: Mapping[str, Any], where: str) -> pm.Model:
    """Return the model on the real lines that a merge records of its positive variables."""
    known = {
        rv.name: recorded[rv.name]
        for rv in model.free_RVs
        if isinstance(model.rvs_to_transforms[rv], LogTransform | LogExpM1)
        and _is_named(recorded.get(rv.name))
    }
    return change_transforms(model, known, where)


def building(build: Callable[[Any], Any], choices: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return the user's function, whose models have these transforms."""
    if not choices:
        return build
    check_named(choices)

    # workers find the user's module by the function's
    @functools.wraps(getattr(build, "func", build))
    def build_changed(data: Any) -> Any:
        model = from_bambi(build(data), "build")
        return change_transforms(model, choices, "build") if isinstance(model, pm.Model) else model

    return build_changed


def _with_transforms(model: pm.Model, transforms: Mapping[Any, Any]) -> pm.Model:
    """Return a model of the same graphs, with other value variables: initial values are kept."""
    changed = object.__new__(type(model))
    changed.__dict__ = {
        **model.__dict__,
        "rvs_to_transforms": {**model.rvs_to_transforms, **transforms},
        "rvs_to_values": dict(model.rvs_to_values),
    }
    for rv, transform in transforms.items():
        value = model.rvs_to_values[rv].type()
        value.name = f"{rv.name}_{transform.name}__"
        changed.rvs_to_values[rv] = value
    changed.values_to_rvs = {value: rv for rv, value in changed.rvs_to_values.items()}
    return changed

"""The one door to the room `pymc`: what the other rooms ask of a PyMC model.

Nothing here imports PyMC before a model is there; a user who has one has imported it.
"""

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np


def is_model(density: Any) -> bool:
    """Tell a PyMC model, without importing PyMC."""
    # another thread may be importing it
    model = getattr(sys.modules.get("pymc"), "Model", None)
    return model is not None and isinstance(density, model)


def plain_model(model: Any, where: str) -> Any:
    """Return the PyMC model of a Bambi model, anything else as it is; import neither."""
    if "bambi" not in sys.modules:
        return model
    from arviz_swiss.pymc.formulas import from_bambi

    return from_bambi(model, where)


def free_variables(model: Any) -> list[str] | None:
    """Return the names of a PyMC model's free variables; None without a model."""
    if model is None:
        return None
    if not hasattr(model, "free_RVs"):
        raise TypeError(f"model must be a PyMC model, got {type(model).__name__}")
    return [variable.name for variable in model.free_RVs]


def coords_of(model: Any) -> dict[str, Any]:
    """Return the labels of a PyMC model's dimensions, by dimension; none without a model."""
    return {} if model is None else dict(model.coords)


def model_space(model: Any, names: Sequence[str], untransformed: Collection[str]) -> Any:
    """Return the unconstrained space of a PyMC model's variables, some on their own scale."""
    from arviz_swiss.pymc.space import ModelSpace, data_dependent

    stay = list(untransformed)
    space = ModelSpace(model, var_names=names, untransformed=stay)
    rows = data_dependent(model)
    kept = [name for name in space.deterministic_names if name not in rows]
    return ModelSpace(model, var_names=names, untransformed=stay, deterministics=kept)


def batch_space(model: Any, axes: Mapping[str, int], shared: Sequence[str], **options: Any) -> Any:
    """Return the unconstrained space of variables that each batch has its own of."""
    from arviz_swiss.pymc.batch_space import BatchSpace

    return BatchSpace(model, axes, shared, **options)


def with_transforms(model: Any, described: str, where: str) -> Any:
    """Return a PyMC model on the real lines that a merge records, as JSON, of its variables."""
    from arviz_swiss.pymc.value_transforms import follow_transforms

    return follow_transforms(model, json.loads(described), where)


def change_transforms(model: Any, choices: Mapping[str, Any], where: str) -> Any:
    """Return a PyMC model with some positive variables on other real lines, by name."""
    from arviz_swiss.pymc.value_transforms import change_transforms as changed

    return changed(model, choices, where)


def depending(model: Any, names: Sequence[str]) -> Collection[str]:
    """Return the deterministics that depend on the named free variables; none without a model."""
    if model is None:
        return ()
    from arviz_swiss.pymc.batch_space import depending as depending_on

    return depending_on(model, names)


def observed_values(model: Any) -> dict[str, np.ndarray]:
    """Return the data of a PyMC model's observed variables, by name."""
    from arviz_swiss.pymc.observed import observed_values as values_of

    return values_of(model)


def model_bytes(model: Any) -> int:
    """Return how many bytes of data a PyMC model holds."""
    from arviz_swiss.pymc.graphs import bytes_of

    return bytes_of(model)


def free_models(bytes_left: int) -> None:
    """Free PyMC models that nobody needs any more, with so many bytes of data."""
    if not bytes_left:
        return
    from arviz_swiss.pymc.garbage import free_models as free

    free(bytes_left)


def model_density(model: Any, space: Any, label: str) -> Any:
    """Return the density of a PyMC model in the space of a merge, or of all its variables.

    The latter if the space has `axes`, along which groups of local variables lie.
    """
    if hasattr(space, "axes"):
        from arviz_swiss.pymc.joint_density import ModelJointDensity

        local = [*space.axes, *imputed_names(model)]
        return ModelJointDensity(model, space.parameters, local, space.axes, label)
    from arviz_swiss.pymc.density import ModelDensity

    return ModelDensity(model, space, label=label)


def imputed_names(model: Any) -> list[str]:
    """Return the names of a PyMC model's missing outcomes."""
    from arviz_swiss.pymc.observed import imputed_names as names_of

    return list(names_of(model))


def local_names(model: Any, shared: Collection[str]) -> list[str]:
    """Return a PyMC model's free variables beside the shared ones, but for missing outcomes."""
    missing = imputed_names(model)
    names = [variable.name for variable in model.free_RVs]
    return [name for name in names if name not in shared and name not in missing]


def unconstrained_rows(
    model: Any, draws: Any, names: Sequence[str]
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return labels and draws, (draws, parameters), of some variables in the model's space."""
    from arviz_swiss.pymc.coordinates import unconstrained_rows as rows_of

    return rows_of(model, draws, names)


def group_terms(density: Any, label: str) -> Any:
    """Return the log density of a batch's model apart by its groups."""
    from arviz_swiss.pymc.group_terms import GroupTerms

    return GroupTerms(density, label)

"""The densities of a call: one a batch, some that together hold all rows, or built from the data.

A density is a plain PyMC model (not a tempered one), or any object with the methods of
`BatchDensity`. The full posterior is the prior of one times the likelihoods of all.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np

from arviz_swiss.correcting.batch_model import BatchModel, following
from arviz_swiss.correcting.belonging import advice, check_rows, check_union
from arviz_swiss.data import schema
from arviz_swiss.data.containers import SAMPLE_DIMS
from arviz_swiss.data.layout import Layout, layout_of
from arviz_swiss.data.messages import brief
from arviz_swiss.merging.labels import by_batch, named
from arviz_swiss.merging.merged import Merged
from arviz_swiss.merging.models import is_model, plain_model
from arviz_swiss.parallel.division import divide_again
from arviz_swiss.parallel.levels import share_recorded
from arviz_swiss.parallel.partition import take
from arviz_swiss.parallel.splitting import is_split
from arviz_swiss.parallel.tables import Table, opened_table

METHODS = ("log_prior", "log_likelihood", "grad_log_prior", "grad_log_likelihood")
# The label of a density that is given alone.
ALL_ROWS = "all rows"
# Draws by which PyMC models see how the variables of the merge are laid out.
EXAMPLES = slice(0, 3)


class BatchDensity(Protocol):
    """What is asked of a density.

    Every method takes points as a (points, parameters) array, in the space of the merge and in the
    order of the coordinate `parameter` of the merged object's group `swiss_transform`. Densities
    are those in that space, Jacobians of the prior included; constants may be left out.
    """

    def log_prior(self, x: np.ndarray) -> np.ndarray:
        """Return the log density of the prior, not raised to any power: (points,)."""
        ...

    def log_likelihood(self, x: np.ndarray) -> np.ndarray:
        """Return the log likelihood of the rows, not raised to any power: (points,)."""
        ...

    def grad_log_prior(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient of `log_prior`: (points, parameters)."""
        ...

    def grad_log_likelihood(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient of `log_likelihood`: (points, parameters)."""
        ...


class MergeSpace(NamedTuple):
    """What a PyMC model must know of the space of the merge to give its density there.

    `constrained` and `unconstrained` are a few draws by variable, without sample dimensions other
    than the first; `constants` a whole vector of parameters, of which only `free` ones vary. `own`
    is the layout of the variables on their own scale.
    """

    layout: Layout
    own: Layout
    transformed: tuple[str, ...]
    free: np.ndarray
    constants: np.ndarray
    constrained: dict[str, np.ndarray]
    unconstrained: dict[str, np.ndarray]

    @property
    def size(self) -> int:
        """Number of parameters, constant ones included."""
        return self.layout.size


class JointSpace(NamedTuple):
    """What a PyMC model must know to give its density of shared and local variables.

    `parameters` are the labels of the shared ones, in the order of the points; `axes` are those of
    the local variables along which the groups of a batch lie.
    """

    parameters: tuple[str, ...]
    axes: dict[str, int]

    @property
    def size(self) -> int:
        """Number of shared parameters."""
        return len(self.parameters)


def space_for_models(opened: Merged) -> MergeSpace:
    """Return what PyMC models must know of the space of the merge."""
    names = opened.layout.names
    few = {name: opened.draws[name].transpose(*SAMPLE_DIMS, ...)[0, EXAMPLES] for name in names}
    return MergeSpace(
        opened.layout,
        layout_of(opened.draws, names),
        tuple(opened.transformed),
        opened.free,
        np.concatenate([array[0, 0].ravel() for array in opened.arrays]).astype(float),
        {name: array.values for name, array in few.items()},
        {name: a[0, EXAMPLES] for name, a in zip(names, opened.arrays, strict=True)},
    )


class Source(NamedTuple):
    """Densities as a user gives them, or what they are built from: the arguments of one call."""

    densities: Any = None
    build: Callable[[Any], Any] | None = None
    data: Any = None
    groups: Any = None
    stratify: Any = None
    folder: Any = None

    @contextmanager
    def reading(self, opened: Merged, show: bool = False) -> Iterator["Source"]:
        """Give the source with rows that are read from files where they were divided before.

        Where that folder is no more, and none is given, they are divided again, into a temporary
        one.
        """
        if self.data is None:
            yield self
            return
        recorded = opened.attrs.get(schema.ROWS)
        folder = self.folder or (recorded if recorded and is_split(recorded) else None)
        with opened_table(self.data, folder, show) as data:
            yield self._replace(data=data)

    @property
    def is_built(self) -> bool:
        """Whether densities are to be built."""
        return self.build is not None

    def check(self) -> None:
        """Refuse arguments of which some are missing, or too many."""
        values = self._asdict()
        names = [f"{name}=" for name in ("build", "data") if values[name] is not None]
        labels = [f"{name}=" for name in ("groups", "stratify") if values[name] is not None]
        if inspect.isroutine(self.densities):
            raise TypeError(
                f"densities is a function, {self.densities.__name__}: if it makes the model of a "
                "batch, pass it as build=, with data=, both those of sample_batches."
            )
        if self.densities is not None and names + labels:
            raise TypeError(
                f"got densities and {', '.join(names + labels)}: pass densities, or build= and "
                "data= to have them built."
            )
        if self.densities is None and len(names) < 2:
            given = f"got only {', '.join(names + labels)}" if names + labels else "got neither"
            raise TypeError(f"pass densities, or both build= and data=: {given}.")
        if self.is_built and not callable(self.build):
            raise TypeError(
                "build must be the function of sample_batches, which makes a model of one batch of "
                f"the data, got {type(self.build).__name__}."
            )


def batch_densities(opened: Merged, source: Source) -> dict[str, Any]:
    """Return one density a batch, by label, each of its batch's own rows."""
    source.check()
    labels = opened.labels
    if parts := parts_of(source.densities, labels):
        given = "one density" if len(parts) == 1 else f"{len(parts)} densities"
        raise ValueError(
            f"got {given} for {len(labels)} batches. Merged draws are weighed by the density that "
            "each batch was sampled from, which the sum of all does not tell. "
            f"{advice(opened)}"
        )
    if source.is_built:
        densities = _built(opened, source)
    else:
        densities = by_batch(source.densities, labels, "densities", "density", "the merged object")
    places = [named(labels, position) for position in range(len(labels))]
    matched = {
        label: _usable(density, place, opened.kind)
        for label, density, place in zip(labels, densities, places, strict=True)
    }
    check_rows(matched, opened, advice(opened, source.is_built))
    return _as_merged(matched, opened)


def summed_densities(opened: Merged, source: Source) -> dict[str, Any]:
    """Return densities by label that together hold every row once: one a batch, or any others."""
    source.check()
    parts = parts_of(source.densities, opened.labels)
    if not parts:
        return batch_densities(opened, source)
    parts = {
        label: _usable(part, f'density "{label}"', opened.kind) for label, part in parts.items()
    }
    is_compared = check_union(parts, opened)
    if not is_compared and isinstance(source.densities, Sequence):
        raise ValueError(
            f"densities has {len(parts)} elements for {len(opened.labels)} batches, and whether "
            "they hold every row once cannot be seen. If they do, say so by labels of their own: "
            '{f"part {i}": density for i, density in enumerate(densities)}. Otherwise pass one a '
            "batch, in their order, or a mapping by batch label."
        )
    return _as_merged(parts, opened)


def _as_merged(densities: Mapping[str, Any], opened: Merged) -> dict[str, Any]:
    """Return the densities, PyMC models on the real lines that the merge records."""
    described = opened.attrs.get(schema.TRANSFORMS, "{}")
    return {
        label: following(density, described, f'density "{label}"')
        for label, density in densities.items()
    }


def parts_of(densities: Any, labels: Sequence[str]) -> dict[str, Any]:
    """Return densities that are not one a batch, by labels of their own; none if they may be."""
    if isinstance(densities, Mapping):
        by_label = {str(label): density for label, density in densities.items()}
        has_positions = any(isinstance(label, int | np.integer) for label in densities)
        return {} if has_positions or set(by_label) & set(labels) else by_label
    if isinstance(densities, Sequence):
        is_other = len(densities) != len(labels) and not isinstance(densities, str)
        return {str(at): density for at, density in enumerate(densities)} if is_other else {}
    model = plain_model(densities, "densities")
    is_density = is_model(model) or any(hasattr(model, name) for name in METHODS)
    return {ALL_ROWS: model} if is_density else {}


def _built(opened: Merged, source: Source) -> list[Any]:
    """Return the models of the batches, of the rows that `sample_batches` gave them."""
    labels = opened.labels
    sampled = [f"b{position}" for position in range(len(labels))]
    if set(labels) != set(sampled):
        raise ValueError(
            f"the batches are {brief(labels)}, and those that sample_batches made of the data "
            f"{brief(sampled)}: which rows each has is not known. Leave out build= and data=, and "
            "pass a mapping of batch label to density."
        )
    assert source.build is not None
    data = share_recorded(source.data, opened.attrs)
    indices = divide_again(
        data, opened.attrs, len(labels), groups=source.groups, stratify=source.stratify
    )
    rows = dict(zip(sampled, indices, strict=True))
    if isinstance(data, Table):
        return [BatchModel(source.build, rows[label], label) for label in labels]
    return [_build_batch(source.build, take(data, rows[label]), label) for label in labels]


def _build_batch(build: Callable[[Any], Any], data: Any, label: str) -> Any:
    try:
        return build(data)
    except Exception as error:
        error.add_note(f'build raised this for batch "{label}".')
        raise


def _usable(density: Any, place: str, kind: str) -> Any:
    """Return a PyMC model, or an object with all methods; refuse anything else."""
    if isinstance(density, BatchModel):
        return density
    density = plain_model(density, place)
    if is_model(density):
        return density
    if isinstance(density, type):
        raise TypeError(f"{place}: got the class {density.__name__}, not an object of it.")
    if missing := [name for name in METHODS if not callable(getattr(density, name, None))]:
        why = ""
        if "log_prior" in missing:
            why = (
                f' The prior\'s density is needed: the batches are of kind "{kind}", and the full '
                "posterior counts the prior exactly once."
            )
        raise TypeError(
            f"{place}: {type(density).__name__} has no method {', '.join(missing)}. A density is a "
            f"PyMC model of the batch or an object with {', '.join(METHODS)}.{why}"
        )
    return density

"""The batches as they were given: read, labelled, and their draws loaded when asked for."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import SAMPLE_DIMS, check_sizes
from arviz_swiss.data.file_groups import FileGroups
from arviz_swiss.data.layout import Layout, sample_arrays
from arviz_swiss.merging.labels import choose_labels

# The position of draws that are not a batch's: those of the prior.
NO_BATCH = -1
# Ends PyMC's name of the missing entries of observed data.
MISSING = "_unobserved"


class Batch(NamedTuple):
    """One sub-posterior: its label, what was read, and how its coordinates must be reordered."""

    label: str
    position: int
    groups: Mapping[str, xr.Dataset]
    group: str
    indexers: dict[str, np.ndarray]
    file: str = ""

    @property
    def draws(self) -> xr.Dataset:
        """The group that holds the draws."""
        return self.groups[self.group]

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the group that holds the draws."""
        return self.draws.attrs

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of chains, and of draws a chain."""
        return self.draws.sizes["chain"], self.draws.sizes["draw"]

    def __str__(self) -> str:
        if self.position == NO_BATCH:
            return self.label
        label = f' ("{self.label}")' if self.label else ""
        return f"batch {self.position}{label}" + (f", file {self.file}" if self.file else "")


@contextlib.contextmanager
def opened(idatas: Any, group: str) -> Iterator[tuple[list[Batch], str]]:
    """Read every batch; give them and the container to give back; close files after."""
    labels, objects = _label(idatas)
    batches: list[Batch] = []
    containing: dict[str, Batch] = {}
    groups: Mapping[str, xr.Dataset]
    with contextlib.ExitStack() as files:
        for position, obj in enumerate(objects):
            file = os.fspath(obj) if isinstance(obj, str | os.PathLike) else ""
            batch = Batch(labels[position] if labels else "", position, {}, group, {}, file)
            if file:
                groups = FileGroups(file, group, str(batch))
                files.callback(groups.close)
            else:
                with containers.reading(str(batch)):
                    groups, container = containers.read(obj, group)
                if container:
                    containing.setdefault(container, batch)
            containers.check_group(groups, group, str(batch))
            batches.append(batch._replace(groups=groups))
            check_sizes(str(batch), *batches[-1].sizes)
        if len(containing) > 1:
            mixed = ", ".join(f"{batch} is {container}" for container, batch in containing.items())
            raise TypeError(f"batches mix containers: {mixed}. Convert them all to one first.")
        recorded = [batch.attrs.get(schema.BATCH) for batch in batches]
        labels = labels or choose_labels(recorded, [batch.file for batch in batches])
        named = [batch._replace(label=label) for batch, label in zip(batches, labels, strict=True)]
        yield named, next(iter(containing), None) or containers.native_container()


def _label(idatas: Any) -> tuple[list[str] | None, list[Any]]:
    takes = "merge takes a list, or a mapping of label to batch"
    if containers.is_container(idatas) or isinstance(idatas, str | bytes):
        raise TypeError(
            f"{takes}; got one {type(idatas).__name__}. Put the batches in a list: "
            "merge([idata_0, idata_1, ...])."
        )
    if isinstance(idatas, Mapping):
        labels, objects = [str(key) for key in idatas], list(idatas.values())
        if len(set(labels)) < len(labels):
            raise ValueError(f"batch labels must differ as text, got {labels}")
    elif isinstance(idatas, Iterable):
        labels, objects = None, list(idatas)
    else:
        raise TypeError(f"{takes}, got {type(idatas).__name__}")
    if not objects:
        raise ValueError("merge needs at least one batch, got none")
    if labels and all(hasattr(x, "__array__") and not containers.is_container(x) for x in objects):
        raise TypeError(
            "merge got one dict of arrays, which is one batch. Put the batches in a list."
        )
    return labels, objects


def prior_batches(batches: Sequence[Batch], prior: Any) -> list[Batch]:
    """Return the draws of the prior: the user's, else those in the batches' own `prior` groups."""
    if prior is None:
        own = [batch for batch in batches if schema.PRIOR in batch.groups]
        return [batch._replace(group=schema.PRIOR) for batch in own]
    with containers.reading("prior"):
        groups = containers.read(prior, schema.PRIOR).groups
    containers.check_group(groups, schema.PRIOR, "prior")
    return [Batch("prior", NO_BATCH, groups, schema.PRIOR, {})]


def load_arrays(batch: Batch, layout: Layout) -> dict[str, np.ndarray]:
    """Read the batch's draws of the layout's variables, coordinates in the layout's order."""
    with containers.reading(str(batch)):
        arrays = sample_arrays(batch.draws, layout, batch.indexers)
    return dict(zip(layout.names, arrays, strict=True))


def range_of(batch: Batch, name: str) -> tuple[float, float]:
    """Return the least and the greatest draw of a variable, which is not kept in memory."""
    values = batch.draws.variables[name].copy(deep=False).values
    return float(values.min()), float(values.max())


def own_dims(batch: Batch, name: str) -> list[str]:
    """Return the dimensions of a variable beside chain and draw."""
    return [str(dim) for dim in batch.draws.variables[name].dims if dim not in SAMPLE_DIMS]


def is_missing_values(batches: Sequence[Batch], name: str) -> bool:
    """Tell the variable that PyMC makes of missing entries of observed data."""
    return name.endswith(MISSING) and any(
        name in batch.draws and own_dims(batch, name) == [f"{name}_dim_0"] for batch in batches
    )

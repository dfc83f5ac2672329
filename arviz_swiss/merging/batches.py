"""The batches as the merge sees them: labelled, matched by variable name and coordinate label."""

import contextlib
import os
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import SAMPLE_DIMS, Groups, check_names, check_sizes
from arviz_swiss.data.layout import Layout, layout_of, sample_arrays, with_times_as_stored
from arviz_swiss.data.messages import MergeWarning
from arviz_swiss.data.selection import checked_names, select_names
from arviz_swiss.merging.checks import check_labels
from arviz_swiss.merging.labels import choose_labels

# The position of draws that are not a batch's: those of the prior.
NO_BATCH = -1
# Ends PyMC's name of the missing entries of observed data.
MISSING = "_unobserved"


class Batch(NamedTuple):
    """One sub-posterior: its label, what was read, and how its coordinates must be reordered."""

    label: str
    position: int
    groups: Groups
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
        if self.position < 0:
            return self.label
        label = f' ("{self.label}")' if self.label else ""
        return f"batch {self.position}{label}" + (f", file {self.file}" if self.file else "")


class Matched(NamedTuple):
    """Batches whose shared variables agree, and the layout of those variables."""

    batches: list[Batch]
    layout: Layout
    local: list[str]
    deterministic: list[str]


@contextlib.contextmanager
def opened(idatas: Any, group: str) -> Iterator[tuple[list[Batch], str]]:
    """Read every batch; give them and the kind of container to give back; close files after."""
    labels, objects = _label(idatas)
    with contextlib.ExitStack() as files:
        yield _read_all(labels, objects, group, files)


def _read_all(labels, objects, group, files) -> tuple[list[Batch], str]:
    batches, kinds = [], {}
    for position, obj in enumerate(objects):
        file = os.fspath(obj) if isinstance(obj, str | os.PathLike) else ""
        batch = Batch(labels[position] if labels else "", position, {}, group, {}, file)
        with containers.reading(str(batch)):
            contents = containers.read(obj, group)
        if file:
            files.callback(containers.close, contents.groups)
        if contents.kind:
            kinds.setdefault(contents.kind, batch)
        containers.check_group(contents.groups, group, str(batch))
        batches.append(batch._replace(groups=contents.groups))
        check_sizes(str(batch), *batches[-1].sizes)
    if len(kinds) > 1:
        found = ", ".join(f"{batch} is {kind}" for kind, batch in kinds.items())
        raise TypeError(f"batches mix containers: {found}. Convert them all to one kind first.")
    recorded = [batch.attrs.get(schema.BATCH) for batch in batches]
    labels = labels or choose_labels(recorded, [batch.file for batch in batches])
    batches = [batch._replace(label=label) for batch, label in zip(batches, labels, strict=True)]
    return batches, next(iter(kinds), None) or containers.native_kind()


def check_holdable(matched: Matched, container: str) -> None:
    """Refuse variables and dimensions that the merged object cannot hold by their names."""
    if container != "DataTree":
        return
    dims = (dim for variable in matched.layout.variables for dim in variable.dims)
    try:
        check_names([*matched.layout.names, *matched.local, *dims])
    except ValueError as error:
        raise ValueError(f"{matched.batches[0]}, {error} (var_names)") from error


def prior_batches(batches: Sequence[Batch], prior: Any) -> list[Batch]:
    """Return the draws of the prior: the user's, else those in the batches' own `prior` groups."""
    if prior is None:
        return [batch._replace(group="prior") for batch in batches if "prior" in batch.groups]
    with containers.reading("prior"):
        groups = containers.read(prior, "prior").groups
    containers.check_group(groups, "prior", "prior")
    return [Batch("prior", NO_BATCH, groups, "prior", {})]


def match_to(first: Batch, other: Batch, layout: Layout) -> Batch:
    """Return `other` with its coordinates matched to those of `first`."""
    for name in layout.names:
        if name not in other.draws.data_vars:
            raise ValueError(
                f'{other}: group "{other.group}" has no variable {name}, which is merged.'
            )
        _check_variable(first, other, name)
        if not _same_labels(first, other, name):
            raise ValueError(
                f'{other}, variable {name}: coordinates of group "{other.group}" differ from those '
                f"of {first}."
            )
    return other._replace(indexers=_indexers(first, other, layout.names))


def match(
    batches: Sequence[Batch],
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    free: Sequence[str] | None = None,
) -> Matched:
    """Match variables by name and coordinates by label; the first batch gives the order.

    Parameters
    ----------
    free : sequence of str, optional
        The variables that are no deterministics; told by the attributes when absent.
    """
    var_names = checked_names(var_names, filter_vars)
    first, said = batches[0], _said_local(batches)
    sampled = free if free is not None else first.attrs.get("sampled_variables")
    found = [
        _parameters(
            batch,
            var_names,
            filter_vars,
            batch.attrs.get("sampled_variables", sampled) if free is None else free,
            has_model=free is not None,
            local=said,
        )
        for batch in batches
    ]
    by_batch = [names for names, _ in found]
    deterministic = list(dict.fromkeys(name for _, names in found for name in names))
    names = [name for name in by_batch[0] if name not in said]
    _check_names(batches, by_batch, said)
    for batch in batches:
        for name in names:
            _check_variable(first, batch, name)
    shared = [
        name for name in names if all(_same_labels(first, batch, name) for batch in batches[1:])
    ]
    for name in names:
        if name not in shared:
            _check_apart(batches, name)
    everywhere = dict.fromkeys(name for chosen in by_batch for name in chosen)
    local = [name for name in everywhere if name not in shared]
    if not shared:
        raise ValueError(
            f"no variable is shared by all batches: the coordinates of {', '.join(local)} differ "
            "between batches. Give shared parameters the same dims and coords in every batch."
        )
    _check_unique(first, shared)
    matched = [batch._replace(indexers=_indexers(first, batch, shared)) for batch in batches]
    layout = with_times_as_stored(layout_of(first.draws, shared))
    check_labels(first, layout)
    return Matched(matched, layout, local, deterministic)


def load_arrays(batch: Batch, layout: Layout) -> dict[str, np.ndarray]:
    """Read the batch's draws of the layout's variables, coordinates in the layout's order."""
    with containers.reading(str(batch)):
        arrays = sample_arrays(batch.draws, layout, batch.indexers)
    return dict(zip(layout.names, arrays, strict=True))


def warn_left_out(matched: Matched, kept: Collection[str], has_model: bool = False) -> None:
    """Name, in one warning, the variables that are neither merged nor kept in another way."""
    reasons = []
    missing = [name for name in matched.local if is_missing_values(matched.batches, name)]
    missing += [
        name for name in matched.deterministic if f"{name}{MISSING}" in missing and name not in kept
    ]
    if missing:
        reasons.append(
            f"{', '.join(missing)} (missing values: PyMC draws those of outcomes anew, given the "
            "merged parameters; those of predictors, without regard to the outcome)"
        )
    if lost := [name for name in matched.local if name not in {*kept, *missing}]:
        reasons.append(
            f"{', '.join(lost)} (batch-local, by coordinates that differ between batches: a model "
            "that has them draws them from the prior when it predicts from the merged posterior)"
        )
    if lost := [name for name in matched.deterministic if name not in {*kept, *missing}]:
        remedy = (
            ", and in the model no function of the merged variables alone: recompute from the draws"
            if has_model
            else ": pass model=, or recompute from the merged draws"
        )
        reasons.append(f"{', '.join(lost)} (deterministic{remedy})")
    if reasons:
        warnings.warn(
            f"left out of the merge: {'; '.join(reasons)}. Parameters that the batches share need "
            "the same coordinates in all of them; var_names chooses what to merge.",
            MergeWarning,
            stacklevel=3,
        )


def is_missing_values(batches: Sequence[Batch], name: str) -> bool:
    """Tell the variable that PyMC makes of missing entries of observed data."""
    return name.endswith(MISSING) and any(
        name in batch.draws and own_dims(batch, name) == [f"{name}_dim_0"] for batch in batches
    )


def _label(idatas: Any) -> tuple[list[str] | None, list[Any]]:
    if containers.is_container(idatas) or isinstance(idatas, str | bytes):
        raise TypeError(
            f"merge takes a list, or a mapping of label to batch; got one {type(idatas).__name__}. "
            "Put the batches in a list: merge([idata_0, idata_1, ...])."
        )
    if isinstance(idatas, Mapping):
        labels, objects = [str(key) for key in idatas], list(idatas.values())
        if len(set(labels)) < len(labels):
            raise ValueError(f"batch labels must differ as text, got {labels}")
    elif isinstance(idatas, Iterable):
        labels, objects = None, list(idatas)
    else:
        raise TypeError(
            f"merge takes a list, or a mapping of label to batch, got {type(idatas).__name__}"
        )
    if not objects:
        raise ValueError("merge needs at least one batch, got none")
    if labels and all(_is_array(obj) for obj in objects):
        raise TypeError(
            "merge got one dict of arrays, which is one batch. Put the batches in a list."
        )
    return labels, objects


def _is_array(obj: Any) -> bool:
    """Tell an array, of whatever library, which cannot be a batch."""
    return hasattr(obj, "__array__") and not containers.is_container(obj)


def _said_local(batches: Sequence[Batch]) -> set[str]:
    """Return the variables that the sampling found to belong to one batch alone."""
    return {name for batch in batches for name in batch.attrs.get(schema.LOCAL, "").split(",")}


def _parameters(
    batch: Batch,
    var_names,
    filter_vars,
    sampled: Sequence[str] | None,
    has_model: bool,
    local: Collection[str],
) -> tuple[list[str], list[str]]:
    """Return the variables to merge and, where something tells, the deterministic ones."""
    names = select_names(batch.draws, var_names, filter_vars, where=f"{batch}: ")
    if sampled is None or (
        var_names is not None and not has_model and not _only_excludes(var_names)
    ):
        return names, []
    sampled = {sampled} if isinstance(sampled, str) else set(np.atleast_1d(sampled).tolist())
    if has_model and (missing := sampled - set(batch.draws.data_vars) - set(local)):
        raise ValueError(
            f"{batch} has no variable {', '.join(sorted(missing))}, which the model has. Pass the "
            "plain model that the batches were sampled with."
        )
    parameters = [name for name in names if name in sampled or name in local]
    if not parameters:
        return names, []
    return parameters, [name for name in names if name not in parameters]


def _only_excludes(var_names) -> bool:
    names = [var_names] if isinstance(var_names, str) else list(var_names)
    return all(name.startswith("~") for name in names)


def _check_unique(batch: Batch, names: Sequence[str]) -> None:
    for name in names:
        for dim in own_dims(batch, name):
            index = _index(batch, dim)
            if not index.is_unique:
                twice = index[index.duplicated()][0]
                raise ValueError(
                    f"{batch}, variable {name}: the label {twice!r} of dimension {dim} occurs more "
                    "than once, so elements cannot be matched by label. Give unique labels."
                )


def _check_names(
    batches: Sequence[Batch], by_batch: Sequence[Sequence[str]], local: Collection[str]
) -> None:
    """Refuse batches without the same parameters, those of one batch alone aside."""
    first, expected = batches[0], [name for name in by_batch[0] if name not in local]
    for batch, names in zip(batches, by_batch, strict=True):
        missing = [name for name in expected if name not in names]
        extra = [name for name in names if name not in expected and name not in local]
        for one, other, lacking in ((batch, first, missing), (first, batch, extra)):
            if lacking:
                raise ValueError(
                    f"{one} has no variable {', '.join(lacking)}, which {other} has. Every batch "
                    "needs the same variables; choose shared ones with var_names."
                )
    for batch, names in zip(batches, by_batch, strict=True):
        variables = batch.draws.variables
        labelled = (
            set(variables["batch"].dims) - set(SAMPLE_DIMS) if "batch" in variables else set()
        )
        for name in names:
            if name == "batch" or {"batch", *labelled} & set(variables[name].dims):
                raise ValueError(
                    f'{batch}, variable {name}: merge calls the batches "batch", so no variable, '
                    "dimension or coordinate can have that name. Rename it."
                )


def _check_variable(first: Batch, batch: Batch, name: str) -> None:
    array, expected = batch.draws.variables[name], first.draws.variables[name]
    if not set(SAMPLE_DIMS) <= set(array.dims):
        raise ValueError(
            f"{batch}, variable {name}: dimensions {array.dims}, expected (chain, draw, ...). "
            f'Leave it out with var_names="~{name}".'
        )
    if array.dtype.kind != "f":
        raise ValueError(
            f"{batch}, variable {name}: dtype {array.dtype}. Only real-valued parameters can be "
            f'merged; leave discrete ones out with var_names="~{name}", or convert it to float.'
        )
    if set(array.dims) != set(expected.dims):
        raise ValueError(
            f"{batch}, variable {name}: dimensions {array.dims}, but {expected.dims} in {first}. "
            "Rename them to agree."
        )


def _index(batch: Batch, dim: str) -> pd.Index:
    variables = batch.draws.variables
    return variables[dim].to_index() if dim in variables else pd.RangeIndex(batch.draws.sizes[dim])


def own_dims(batch: Batch, name: str) -> list[str]:
    """Return the dimensions of a variable beside chain and draw."""
    return [dim for dim in batch.draws.variables[name].dims if dim not in SAMPLE_DIMS]


def _same_labels(first: Batch, batch: Batch, name: str) -> bool:
    return all(
        _order(_index(first, dim), _index(batch, dim)) is not None for dim in own_dims(first, name)
    )


def _check_apart(batches: Sequence[Batch], name: str) -> None:
    """Refuse a variable of which two batches share some elements, but not all.

    Default labels 0, 1, ... say nothing: they may be of other groups.
    """
    for dim in own_dims(batches[0], name):
        indices = [_index(batch, dim) for batch in batches]
        if all(index.equals(indices[0]) for index in indices):
            continue
        if all(index.equals(pd.RangeIndex(len(index))) for index in indices):
            continue
        owners: dict[str, int] = {}
        for position, index in enumerate(indices):
            for label in map(str, index):
                other = owners.setdefault(label, position)
                if other != position and _order(indices[other], index) is None:
                    _refuse_overlap(name, dim, label, batches[other], batches[position])


def _refuse_overlap(name: str, dim: str, label: str, one: Batch, other: Batch) -> None:
    known, found = ({str(label) for label in _index(batch, dim)} for batch in (one, other))
    if known == found:
        types = " and ".join(str(_index(batch, dim).dtype) for batch in (one, other))
        raise ValueError(
            f"variable {name}: the labels of dimension {dim} are the same as text in {one} and "
            f"{other}, but not equal (types {types}). Give all batches labels of one type."
        )
    odd = sorted(known ^ found)[0]
    has, lacks = (one, other) if odd in known else (other, one)
    raise ValueError(
        f"variable {name}: both {one} and {other} have the label {label!r} of dimension {dim}, but "
        f"{odd!r} is in {has} and not in {lacks}. If {name} is shared, give it the same labels in "
        "every batch, absent levels too; if it belongs to groups, put whole groups into one batch "
        "(groups=)."
    )


def _order(expected: pd.Index, found: pd.Index) -> np.ndarray | None:
    """Return the positions that bring `found` into the expected order, or None if they differ."""
    if expected.equals(found):
        return np.arange(len(found))
    if len(expected) != len(found) or not (expected.is_unique and found.is_unique):
        return None
    order = found.get_indexer(expected)
    return None if (order < 0).any() else order


def _indexers(first: Batch, batch: Batch, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the orders of the dimensions that this batch has in another order than the first."""
    indexers = {}
    for dim in dict.fromkeys(dim for name in names for dim in own_dims(batch, name)):
        expected, found = _index(first, dim), _index(batch, dim)
        if not expected.equals(found):
            indexers[dim] = _order(expected, found)
    return indexers

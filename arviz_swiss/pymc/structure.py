"""What the batches' models have in common: which free variables are shared, which are local."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from pymc.distributions.transforms import ZeroSumTransform

from arviz_swiss.pymc.graphs import names_among, shapes_of
from arviz_swiss.pymc.observed import imputed_names


class Structure(NamedTuple):
    """The free variables of one model, which was built from so many rows.

    `labels` has coordinates for every axis, None for an axis without, and `dims` their names;
    `imputed` are missing entries of observed data, `predictors` those that other observed variables
    depend on; `zero_sum` tells along which axes variables sum to zero.
    """

    rows: int
    shapes: dict[str, tuple[int, ...]]
    labels: dict[str, tuple[tuple | None, ...]]
    imputed: tuple[str, ...]
    predictors: tuple[str, ...] = ()
    zero_sum: tuple[tuple[str, tuple[int, ...]], ...] = ()
    dims: tuple[tuple[str, tuple[str | None, ...]], ...] = ()


class Refused(ValueError):
    """The model of one batch cannot be merged with those of the others."""


def check_model(model: Any, where: str) -> None:
    """Refuse what cannot be divided: no model, no likelihood, no or discrete parameters."""
    if not isinstance(model, pm.Model):
        raise TypeError(
            f"{where}: build returned {type(model).__name__!r}, expected a pymc.Model. End it with "
            '"return model".'
        )
    if not model.observed_RVs:
        raise ValueError(
            f"{where}: the model has no observed variables, so every batch would only sample the "
            "prior. Pass the data of the batch to a variable with observed=."
        )
    if not model.free_RVs:
        raise ValueError(f"{where}: the model has no free variables, there is nothing to sample.")
    discrete = [rv.name for rv in model.free_RVs if not rv.type.dtype.startswith("float")]
    if discrete:
        raise ValueError(
            f"{where}: free variables {', '.join(discrete)} are discrete, and merging moves draws "
            "on the real line. Marginalize them out of the model, for instance with a pm.Mixture."
        )


def describe(model: pm.Model, rows: int) -> Structure:
    """Read the shapes and coordinate labels of the free variables of a model of so many rows."""
    names = [rv.name for rv in model.free_RVs]
    shapes = shapes_of({rv.name: rv for rv in model.free_RVs})
    labels, dims = {}, {}
    for name in names:
        dims[name] = tuple(model.named_vars_to_dims.get(name) or (None,) * len(shapes[name]))
        coords = (None if dim is None else model.coords.get(dim) for dim in dims[name])
        labels[name] = tuple(None if values is None else tuple(values) for values in coords)
    imputed = tuple(imputed_names(model))
    zero_sum = tuple(
        (rv.name, tuple(int(axis) % rv.type.ndim for axis in transform.zerosum_axes))
        for rv, transform in model.rvs_to_transforms.items()
        if isinstance(transform, ZeroSumTransform)
    )
    predictors = _predictors(model, imputed)
    return Structure(rows, shapes, labels, imputed, predictors, zero_sum, tuple(dims.items()))


def of_draws(posterior: xr.Dataset, names: Iterable[str]) -> Structure:
    """Read what draws tell of variables: their sizes and coordinate labels."""
    dims = {name: tuple(map(str, posterior[name].dims[2:])) for name in names}
    labels: dict[str, tuple[tuple | None, ...]] = {
        name: tuple(tuple(posterior[dim].values.tolist()) for dim in dims[name]) for name in dims
    }
    shapes = {name: posterior[name].shape[2:] for name in dims}
    return Structure(0, shapes, labels, (), dims=tuple(dims.items()))


def _predictors(model: pm.Model, imputed: Sequence[str]) -> tuple[str, ...]:
    missing = [rv for rv in model.free_RVs if rv.name in imputed]
    needed = {name for rv in model.observed_RVs for name in names_among(rv, missing)}
    return tuple(name for name in imputed if name in needed)


def find_local(first: Structure, second: Structure, together: Structure) -> tuple[str, ...]:
    """Name the free variables that each batch has its own copy of, missing entries included.

    The model of the rows of both batches unmasks variables without coordinate labels, such as the
    effects of ten groups in each: together they are twenty.
    """
    differing = [
        name
        for name in first.shapes
        if name in second.shapes
        and not (_same(first, second, name) and _same(first, together, name))
    ]
    return tuple(dict.fromkeys([*differing, *first.imputed, *second.imputed]))


def local_axes(local: Sequence[str], first: Structure, second: Structure) -> dict[str, int]:
    """Return along which axis of each local variable a batch's groups lie, the first if none tells.

    Missing entries of observed data have no groups.
    """
    latent = [name for name in local if name not in {*first.imputed, *second.imputed}]
    return {name: (differing_axes(first, second, name) or [0])[0] for name in latent}


def check_local(
    local: Sequence[str], first: Structure, second: Structure, *, kind: str, grouped: bool
) -> None:
    """Refuse local variables where the kind of sub-posterior or the partition is wrong for them.

    They must not be inflated, nor spread over several batches (`grouped` tells whether rows that
    belong together were kept in one), nor sum to zero.
    """
    latent = [name for name in local if name not in {*first.imputed, *second.imputed}]
    if not latent:
        return
    name = latent[0]
    sizes = f"{first.shapes[name]} in batch b0 and {second.shapes[name]} in batch b1"
    if kind == "inflated":
        raise ValueError(
            f"Free variables {', '.join(latent)} differ between batches in size or coordinates "
            f"({name}: {sizes}), as random effects do. Raising the likelihood to a power is wrong "
            "for variables that one batch alone informs: their posterior would be too narrow, and "
            "that of the parameters above them too wide and in the wrong place. Pass "
            'kind="fractionated" and groups=, which keeps all rows of a group in one batch. If '
            f"they are meant to be shared, {as_shared(first, name)}."
        )
    per_row = [n for n in latent if all(each.rows in each.shapes[n] for each in (first, second))]
    if spread := [name for name in latent if not (grouped or name in per_row)]:
        raise ValueError(
            f"Free variables {', '.join(spread)} differ between batches ({name}: {sizes}), but "
            "their rows may be in several batches. Pass groups=, the label of each row's group, "
            "to keep all rows of a group in one batch. If they are meant to be shared, "
            f"{as_shared(first, spread[0])}."
        )
    check_apart({"batch b0": first}, second, latent, "batch b1")
    for name, axes in first.zero_sum:
        if name in latent and set(axes) & set(differing_axes(first, second, name)):
            raise ValueError(
                f"Free variable {name} has groups of one batch alone, but its prior makes those of "
                "all batches sum to zero together, which batches cannot know of each other. Use "
                "pm.Normal, which is proper without the constraint."
            )


def check_apart(
    earlier: Mapping[str, Structure], other: Structure, names: Iterable[str], where: str
) -> None:
    """Refuse a label in two batches, unless all of them only number their own groups."""
    for name in names:
        for axis, (*before, labels) in enumerate(
            zip(*(each.labels[name] for each in (*earlier.values(), other)), strict=True)
        ):
            known = [*before, labels]
            if None in known or all(map(counts, known)):
                continue
            if all(set(others) == set(labels) for others in before):
                continue
            for batch, others in zip(earlier, before, strict=True):
                if shared := [label for label in others if label in set(labels)]:
                    raise ValueError(
                        f"Free variable {name} has coordinate {_plain(shared[0])!r} in {batch} and "
                        f"in {where}, but differs between batches in others. Pass groups= by which "
                        "each coordinate is in one batch only; if it recurs in all groups, as "
                        f"months or countries do, {as_shared(other, name, axis)}."
                    )


def check_predictors(structure: Structure, kind: str, where: str) -> None:
    """Refuse to inflate a batch whose observed variables depend on missing values."""
    if kind == "inflated" and structure.predictors:
        raise ValueError(
            f"{where}: missing values {', '.join(structure.predictors)} are latent variables that "
            "other observed variables depend on. Raising the likelihood to a power is wrong for "
            "variables that one batch alone informs: it counts what depends on them, but not them, "
            'several times. Pass kind="fractionated", or leave out rows with missing predictors.'
        )


def check_same(first: Structure, other: Structure, local: Iterable[str], where: str) -> None:
    """Refuse a batch whose shared parameters are not those of the first batch."""
    names, expected = (
        [name for name in structure.shapes if name not in structure.imputed]
        for structure in (other, first)
    )
    if set(names) != set(expected):
        raise ValueError(
            f"{where}: the free variables are {', '.join(names)}, but {', '.join(expected)} in "
            "batch b0. build must give every batch the same parameters, whatever its data."
        )
    for name in expected:
        if name not in local and not _same(first, other, name):
            raise ValueError(
                f"{where}: free variable {name} has shape {other.shapes[name]}, but "
                f"{first.shapes[name]} in batch b0, or other coordinates. If it is shared, "
                f"{as_shared(first, name)}, or spread rare values over the batches with stratify=; "
                'if it belongs to groups of rows, pass kind="fractionated" and groups=.'
            )


def as_shared(structure: Structure, name: str, axis: int = 0) -> str:
    """Say what makes a variable the same in every batch, though some lack levels of its factor."""
    dim = (*dict(structure.dims).get(name, ()), *[None] * (axis + 1))[axis]
    name_of_column = "" if dim is None else f'"{dim}"'
    return (
        "give it the coordinates of the whole data in every batch: pass "
        f"shared={name_of_column}, the name of the column with its levels, and let build take them "
        "from there"
    )


def _same(first: Structure, other: Structure, name: str) -> bool:
    if name not in other.shapes or first.shapes[name] != other.shapes[name]:
        return False
    pairs = zip(first.labels[name], other.labels[name], strict=True)
    return all(a == b or (a and b and set(a) == set(b)) for a, b in pairs)


def differing_axes(first: Structure, second: Structure, name: str) -> list[int]:
    """Return the axes along which batches have groups of their own; all, if none tells."""
    axes = range(len(first.shapes[name]))
    differing = [
        axis
        for axis in axes
        if first.shapes[name][axis] != second.shapes[name][axis]
        or first.labels[name][axis] != second.labels[name][axis]
    ]
    return differing or list(axes)


def _plain(label: Any) -> Any:
    """Return a label of NumPy's as Python writes it."""
    return label.item() if isinstance(label, np.generic) else label


def counts(labels: tuple) -> bool:
    """Tell labels that only number the elements."""
    return labels == tuple(range(len(labels)))

"""Draws of local variables: those of all batches side by side, for every merged draw.

They are not merged but follow the shared parameters. A merged draw theta' takes batch b's local
part z from draw j of that batch, in unconstrained space, and moves it by the linear regression of
local on shared draws, ``z_j + G_b (theta' - theta_j)``. For Gaussian sub-posteriors that is exact:
z given theta depends on the batch's own data only, so its conditional distribution is the same in
the full posterior. Where theta' is draw j of batch b itself, moved, the pair stays together.

Effects such as ``e = mu + tau z`` are moved as e or as z, whichever is more nearly Gaussian with
the mean linear in theta: e where the data tell it, z where they do not.
"""

import itertools
import json
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from arviz_swiss.base.gaussian import Moments
from arviz_swiss.data import containers, schema
from arviz_swiss.data.layout import as_rows, gather_all
from arviz_swiss.merging.batches import Batch, load_arrays, own_dims
from arviz_swiss.merging.combine import Draws
from arviz_swiss.merging.estimate import Frame, refuse_not_finite, unconstrained
from arviz_swiss.merging.join import order_of
from arviz_swiss.merging.local import LocalSpace
from arviz_swiss.merging.match import Matched
from arviz_swiss.merging.space import TRIED, Arrays

# Where a deterministic fits no better than this, nothing is gained by moving it instead.
LEAST_GAIN = 1e-6
# Variables that are moved as others, and by such pairs what is gained by it.
Lines = dict[str, str]
Gains = dict[tuple[str, str], float]


class Side(NamedTuple):
    """A dimension with all batches side by side: labels, batch and place of each element."""

    own_labels: np.ndarray
    labels: np.ndarray
    owners: np.ndarray
    places: np.ndarray
    is_relabelled: bool
    is_ordered: bool


class LocalMoves(NamedTuple):
    """How local variables are moved: where elements go, what is computed, and moved as what.

    `regressions` are by batch label and variable, kept from the first move of a batch on. So are,
    for who moves the merged draws part by part, the `residuals` about them: as many values as one
    part has, where otherwise every part would read all batches.
    """

    dims: dict[str, str]
    sides: dict[str, Side]
    computed: set[str]
    through: dict[str, str]
    space: LocalSpace
    regressions: dict[str, Arrays]
    residuals: dict[str, Arrays] | None = None

    @property
    def unordered(self) -> list[str]:
        """Dimensions of unknown order."""
        return [dim for dim, side in self.sides.items() if not side.is_ordered]

    @property
    def relabelled(self) -> list[str]:
        """Dimensions whose labels repeat between batches."""
        return [dim for dim, side in self.sides.items() if side.is_relabelled]


def find_moves(
    matched: Matched,
    local: Mapping[str, str],
    space: LocalSpace,
    frame: Frame,
    moments: Sequence[Moments],
    coords: Mapping[str, Sequence[Any] | None],
) -> LocalMoves:
    """Return how the batches' local variables are moved, by what all of them tell."""
    batches = matched.batches
    sides = _sides(matched, local, coords)
    computed = _computed(batches, list(local), space, frame)
    gains = [
        line_gains(batch, batches[0], own, local, computed, space, frame)
        for batch, own in zip(batches, moments, strict=True)
    ]
    through = choose_lines(gains)
    return LocalMoves(dict(local), sides, computed, through, space.through(through), {})


def find_own_moves(
    matched: Matched, local: Mapping[str, str], space: LocalSpace, frame: Frame, lines: Lines
) -> LocalMoves:
    """Return how one batch's local variables are moved alone, by lines that all have chosen."""
    computed = _computed(matched.batches, list(local), space, frame)
    through = {name: image for name, image in lines.items() if image in computed}
    sides = _sides(matched, local, {})
    return LocalMoves(dict(local), sides, computed, through, space.through(through), {})


def find_gains(
    matched: Matched, local: Mapping[str, str], space: LocalSpace, frame: Frame, moments: Moments
) -> Gains:
    """Return the gains of one batch's lines."""
    (batch,) = matched.batches
    computed = _computed([batch], list(local), space, frame)
    return line_gains(batch, batch, moments, local, computed, space, frame)


def move_local(
    moves: LocalMoves,
    batches: Sequence[Batch],
    frame: Frame,
    moments: Sequence[Moments],
    draws: Draws,
) -> xr.Dataset:
    """Return all batches' local variables, side by side, for every draw of some merged ones.

    A merged chain takes, of every batch, the chain of the same number within the batch, counted
    round. Labels that repeat between batches are prefixed by the batch's label.
    """
    target = _free_rows({**draws.constrained, **draws.unconstrained}, frame)
    within = _within_batches(draws, target.shape[0])
    out: Arrays = {}
    for batch, own in zip(batches, moments, strict=True):
        residuals = _residuals(moves, batch, batches[0], own, frame, draws.length)
        chains, step = within % batch.sizes[0], target - own.mean
        moved = {
            name: residual[chains]
            + change(step, moves.regressions[batch.label][name], residual.shape)
            for name, residual in residuals.items()
        }
        moved |= moves.space.backward(moved, draws.constrained)
        every = moves.space.deterministics(draws.constrained | moved)
        moved |= {name: values for name, values in every.items() if name in moves.computed}
        _put_beside(out, moved, batch, batches, moves.dims, moves.sides)
    return _pack_posterior(batches, moves.sides, out)


def _residuals(
    moves: LocalMoves, batch: Batch, first: Batch, moments: Moments, frame: Frame, length: int
) -> Arrays:
    """Return a batch's local draws less what they are by their regressions, which are noted."""
    if moves.residuals is not None and batch.label in moves.residuals:
        return moves.residuals[batch.label]
    arrays = _load(batch, first, moves.dims)
    images = _images(batch, arrays, moves.computed, moves.space, frame)
    source = _free_rows(unconstrained(batch, frame), frame)
    if batch.label not in moves.regressions:
        moves.regressions[batch.label] = {
            name: _regression(image, source, moments) for name, image in images.items()
        }
    step = source[:, :length] - moments.mean
    residuals = {
        name: image[:, :length] - change(step, moves.regressions[batch.label][name], image.shape)
        for name, image in images.items()
    }
    if moves.residuals is not None:
        moves.residuals[batch.label] = residuals
    return residuals


def pack_moves(moves: LocalMoves, batches: Sequence[Batch], frame: Frame) -> xr.Dataset:
    """Return what undoes the moves, once every batch was moved."""
    regressions = {
        name: [moves.regressions[batch.label][name] for batch in batches]
        for name in moves.dims
        if name not in moves.computed
    }
    maps = _pack_maps(batches, moves.dims, moves.sides, regressions, frame)
    return maps.assign_attrs(
        {
            schema.SPACE: moves.space.name,
            schema.TRANSFORMS: moves.space.describe(),
            schema.THROUGH: json.dumps(moves.through),
        }
    )


def _within_batches(draws: Draws, chains: int) -> np.ndarray:
    """Return the number of each merged chain within its batch."""
    if draws.owners is None:
        return np.arange(chains)
    runs = [len(list(run)) for _, run in itertools.groupby(draws.owners)]
    return np.concatenate([np.arange(length) for length in runs])


def _put_beside(
    out: Arrays,
    moved: Arrays,
    batch: Batch,
    batches: Sequence[Batch],
    local: Mapping[str, str],
    sides: Mapping[str, Side],
) -> None:
    """Write one batch's moved variables to their places in `out`."""
    for name, dim in local.items():
        axis = 2 + own_dims(batches[0], name).index(dim)
        if name not in out:
            shape = list(moved[name].shape)
            shape[axis] = sides[dim].places.size
            dtype = np.result_type(*(batch.draws.variables[name].dtype for batch in batches))
            out[name] = np.empty(shape, dtype)
        places = sides[dim].places[sides[dim].owners == batch.label]
        out[name][(slice(None),) * axis + (places,)] = moved[name]


def _sides(
    matched: Matched, local: Mapping[str, str], coords: Mapping[str, Sequence[Any] | None]
) -> dict[str, Side]:
    """Return each dimension's elements; those of deterministics alone in the order of others."""
    free_dims = dict.fromkeys(local[name] for name in matched.local if name in local)
    sides: dict[str, Side] = {}
    for dim in (*free_dims, *(dim for dim in local.values() if dim not in free_dims)):
        side = _side(matched.batches, dim, coords.get(dim))
        if dim not in free_dims and side.is_relabelled:
            for other in (sides[free] for free in free_dims):
                if np.array_equal(other.owners, side.owners):
                    side = side._replace(places=other.places, is_ordered=other.is_ordered)
        sides[dim] = side
    return sides


def _side(batches: Sequence[Batch], dim: str, wanted: Sequence[Any] | None) -> Side:
    indices = [batch.draws.get_index(dim) for batch in batches]
    labels = [batch.label for batch in batches]
    owners = np.repeat(labels, [len(index) for index in indices])
    own = indices[0].append(indices[1:]).to_numpy()
    if own.dtype.kind == "O":  # files hold text as text, not as objects
        own = own.astype(str)
    if len(batches) == 1 or pd.Index(own).is_unique:
        order = order_of(indices, wanted)
        places = np.argsort(order.positions)
        return Side(own, own, owners, places, False, order.is_known)
    _check_numbering(batches, dim, indices)
    unique = np.array([f"{owner}:{label}" for owner, label in zip(owners, own, strict=True)])
    return Side(own, unique, owners, np.arange(own.size), True, False)


def _check_numbering(batches: Sequence[Batch], dim: str, indices: Sequence[pd.Index]) -> None:
    """Refuse a group that is in several batches; labels that number a batch's own may repeat."""
    numbered = [index.equals(pd.RangeIndex(len(index))) for index in indices]
    if all(numbered) or all(set(index) == set(indices[0]) for index in indices):
        return
    owners: dict[Any, Batch] = {}
    for batch, index in zip(batches, indices, strict=True):
        for label in index:
            if owners.setdefault(label, batch) is not batch:
                raise ValueError(
                    f"{dim} {str(label)!r} is in {owners[label]} and in {batch}, but a group must "
                    "lie in one batch. Sample again with groups= that keeps its rows together, or "
                    f"give every batch the labels of all data along {dim}, which makes its "
                    "parameters shared."
                )


def _load(batch: Batch, first: Batch, names: Collection[str]) -> Arrays:
    """Read local variables as (chain, draw, ...) arrays, dimensions in the first batch's order."""
    arrays = {}
    with containers.reading(str(batch)):
        for name in names:
            # A copy, else the user's object would keep a file's values.
            stored = batch.draws.variables[name].copy(deep=False)
            dims = (*containers.SAMPLE_DIMS, *own_dims(first, name))
            arrays[name] = stored.transpose(*dims).values
    return arrays


def _computed(
    batches: Sequence[Batch], names: Collection[str], space: LocalSpace, frame: Frame
) -> set[str]:
    """Name the deterministics that the model computes right for every batch, not only its own."""
    computed = set(names)
    for batch in batches:
        arrays = load_arrays(batch, frame.constrained) | _load(batch, batches[0], names)
        few = {name: array[:1, :TRIED] for name, array in arrays.items()}
        computed &= {
            name
            for name, array in space.deterministics(few).items()
            if array.shape == few[name].shape
            and np.allclose(array, few[name], rtol=1e-4, atol=1e-8, equal_nan=True)
        }
    return computed


def line_gains(
    batch: Batch,
    first: Batch,
    moments: Moments,
    names: Collection[str],
    computed: Collection[str],
    space: LocalSpace,
    frame: Frame,
) -> Gains:
    """Return, by local variable and deterministic to move instead, how much better that fits.

    The fit is the log density of the variable's draws, an element and draw, where the deterministic
    is Gaussian about its regression on the shared parameters: minus the log sd about it, plus the
    log slope, which brings the density to the variable's own scale.
    """
    arrays = load_arrays(batch, frame.constrained) | _load(batch, first, names)
    source = _free_rows(unconstrained(batch, frame), frame)
    gains: Gains = {}
    for (name, image), slope in space.slopes(arrays).items():
        if image in computed:
            spreads = []
            for values in (arrays[name], arrays[image]):
                line = change(source, _regression(values, source, moments), values.shape)
                spreads.append((values - line).std(axis=(0, 1)))
            with np.errstate(divide="ignore", invalid="ignore"):
                gain = np.log(abs(slope)).mean() + np.log(spreads[0] / spreads[1]).mean()
            gains[name, image] = float(gain)
    return gains


def choose_lines(gains: Sequence[Gains]) -> Lines:
    """Return, of local variables, the deterministic to move instead, if that fits all better."""
    total = {pair: sum(gain.get(pair, -np.inf) for gain in gains) for pair in gains[0]}
    best = sorted((pair for pair in total if total[pair] > LEAST_GAIN), key=total.__getitem__)
    return dict(best)


def _images(
    batch: Batch, arrays: Arrays, computed: Collection[str], space: LocalSpace, frame: Frame
) -> Arrays:
    """Return one batch's local variables, as they are moved, in unconstrained space."""
    images = {name: array for name, array in arrays.items() if name not in computed}
    images |= space.forward(load_arrays(batch, frame.constrained) | arrays)
    if not all(np.isfinite(image).all() for image in images.values()):
        refuse_not_finite(batch, images, space.transforms)
    return images


def _free_rows(arrays: Arrays, frame: Frame) -> np.ndarray:
    """Return the parameters that vary as a (chain, draw, parameter) array."""
    ordered = [arrays[name] for name in frame.layout.names]
    rows = gather_all(as_rows(ordered, frame.layout), frame.layout)[:, frame.free]
    return rows.reshape(*ordered[0].shape[:2], -1)


def _regression(image: np.ndarray, shared: np.ndarray, moments: Moments) -> np.ndarray:
    """Return the coefficients, (parameter, element), of local draws on the shared ones."""
    local = image.reshape(image.shape[0] * image.shape[1], -1)
    units = np.sqrt(np.diag(moments.covariance))
    centred = (shared.reshape(len(local), -1) - moments.mean) / units
    # Solved for, not by the precision: that may be shrunk, diagonal or corrected. In units of the
    # sds, as the solver takes columns for zero that are much smaller than others.
    return np.linalg.lstsq(centred, local - local.mean(axis=0), rcond=None)[0] / units[:, None]


def change(step: np.ndarray, regression: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return how far local draws go with a step of the shared ones."""
    return (step @ regression).reshape(*step.shape[:2], *shape[2:])


def _pack_posterior(batches: Sequence[Batch], sides: Mapping[str, Side], out: Arrays) -> xr.Dataset:
    first = batches[0].draws
    data = {
        name: (
            (*containers.SAMPLE_DIMS, *own_dims(batches[0], name)),
            values,
            containers.safe_attrs(first[name].attrs),
        )
        for name, values in out.items()
    }
    used = {dim for dims, *_ in data.values() for dim in dims}
    coords: dict[Hashable, Any] = {}
    for name, coord in first.coords.items():
        if coord.dims and set(coord.dims) <= used - {*sides, *containers.SAMPLE_DIMS}:
            coords[name] = coord
        elif coord.dims and coord.dims[0] in sides and coord.dims != (name,):
            coords |= _joined_coord(batches, name, sides[coord.dims[0]])
    coords |= {dim: side.labels[np.argsort(side.places)] for dim, side in sides.items()}
    return xr.Dataset(data, coords=coords)


def _joined_coord(batches: Sequence[Batch], name: Hashable, side: Side) -> dict[Hashable, Any]:
    """Return a further coordinate of the elements, if all batches have it."""
    coords = [batch.draws.coords[name] for batch in batches if name in batch.draws.coords]
    dims = coords[0].dims
    if len(coords) < len(batches) or len(dims) > 1 or any(coord.dims != dims for coord in coords):
        return {}
    values = np.concatenate([coord.values for coord in coords])
    return {name: (dims, values[np.argsort(side.places)])}


def _pack_maps(
    batches: Sequence[Batch],
    local: Mapping[str, str],
    sides: Mapping[str, Side],
    regressions: Mapping[str, Sequence[np.ndarray]],
    frame: Frame,
) -> xr.Dataset:
    """Return the regressions, and owners, which among the draws would break ArviZ's summary."""
    data: dict[str, Any] = {}
    coords: dict[str, Any] = {"parameter": frame.labels}
    for dim, side in sides.items():
        coords |= {dim: side.labels, schema.owner_coord(dim): (dim, side.owners)}
        if side.is_relabelled:
            coords[schema.own_coord(dim)] = (dim, side.own_labels)
    for name, parts in regressions.items():
        element = f"{name}_element"
        owners = np.repeat([batch.label for batch in batches], [part.shape[1] for part in parts])
        values = np.concatenate(parts, axis=1)
        dims = [*containers.SAMPLE_DIMS, *own_dims(batches[0], name)]
        data[name] = (("parameter", element), values, {"dim": local[name], "dims": dims})
        coords[schema.owner_coord(element)] = (element, owners)
    return xr.Dataset(data, coords=coords)

"""The reader of a merged object: whatever asks what is in one asks `Merged`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.base import gaussian, linalg
from arviz_swiss.base.gaussian import Gaussian, Moments
from arviz_swiss.base.linalg import AffineMap
from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import SAMPLE_DIMS, Contents, Groups
from arviz_swiss.data.layout import Layout, as_rows, gather_all, layout_of, move, sample_arrays
from arviz_swiss.data.messages import brief
from arviz_swiss.data.selection import check_coords, checked_names, selected
from arviz_swiss.merging.elements import MOST_NAMED, WHOLE, in_order, other_draws
from arviz_swiss.merging.estimate import sample_moments
from arviz_swiss.merging.local import LocalSpace, restore_local_space
from arviz_swiss.merging.powers import TILTED
from arviz_swiss.merging.records import (
    REDRAWN,
    Certificate,
    Refinement,
    read_certificate,
    read_refinement,
)
from arviz_swiss.merging.space import MODEL, Space, restore_space, restore_without_model

MERGED = "what merge returned, one InferenceData or DataTree, or the path of its complete file"
# A constant that some batches stored in single precision varies by so much.
ROUNDING = 1e-6
# Chains, and draws of each, by which to see whether two groups hold the same draws.
TRIED = 8
# Draws that differ by more of their sds are not the same.
SAME_SDS = 1e-3


@dataclass(frozen=True)
class Merged:
    """A merged object: labels, maps, moments, draws before and after, certificate, refinement.

    Groups are in the order of the merge, whatever their user has done to them since. `parameter`
    counts the parameters that vary, in the order of that coordinate of `swiss_transform`.
    """

    groups: Groups
    container: str
    group: str

    @property
    def maps(self) -> xr.Dataset:
        """What the merge did to each batch."""
        return self.groups[schema.TRANSFORM]

    @property
    def diagnostics(self) -> xr.Dataset:
        """What the batches' moments tell about the merge."""
        if schema.DIAGNOSTICS not in self.groups:
            lost = f"no group {schema.DIAGNOSTICS}, found {', '.join(self.groups)}"
            raise ValueError(f"not a merged object: {lost}. Pass {MERGED}.")
        return self.groups[schema.DIAGNOSTICS]

    @property
    def draws(self) -> xr.Dataset:
        """The merged draws on their own scale."""
        return self.groups[self.group]

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the merged draws."""
        return self.draws.attrs

    @cached_property
    def labels(self) -> list[str]:
        """Labels of the batches."""
        return self.maps["batch"].values.astype(str).tolist()

    @property
    def parameters(self) -> np.ndarray:
        """Labels of the parameters."""
        return self.maps["parameter"].values.astype(str)

    @property
    def variables(self) -> np.ndarray:
        """The variable that each parameter belongs to."""
        return self.maps["variable"].values.astype(str)

    @property
    def names(self) -> list[str]:
        """The variables that were merged, in the order of the merge."""
        return list(dict.fromkeys(self.variables.tolist()))

    @property
    def owners(self) -> np.ndarray | None:
        """The label of each chain's batch; None where draws were newly made."""
        return self.draws["batch"].values.astype(str) if "batch" in self.draws.coords else None

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of chains, and of draws a chain."""
        return self.draws.sizes["chain"], self.draws.sizes["draw"]

    @property
    def method(self) -> str:
        """The method of the merge."""
        return self.attrs.get(schema.METHOD, "swiss")

    @property
    def kind(self) -> str:
        """What the batches were sampled from."""
        return self.attrs.get(schema.KIND, "inflated")

    @property
    def scatter(self) -> np.ndarray:
        """How the batches' means scatter by chance, in their covariances.

        That is the likelihood powers that they were sampled with, whichever were dropped; of tilted
        batches, one over their effective draws.
        """
        if self.kind == TILTED:
            return 1.0 / self.diagnostics["effective_size"].values
        return self.maps["power"].values * float(self.maps["stands_for"])

    @property
    def transformed(self) -> list[str]:
        """Variables that were merged on another scale than their own."""
        return [str(name) for name in self.groups.get(schema.unconstrained(self.group), ())]

    @property
    def is_moved(self) -> bool:
        """Whether the draws are the batches' own, moved by maps, and not newly made."""
        return "scale" in self.maps

    @property
    def is_redrawn(self) -> bool:
        """Whether `refine` made the draws anew, by the exact density of the shared parameters."""
        return self.method == REDRAWN

    @property
    def redrawn(self) -> xr.Dataset:
        """How well draws were made anew, and the density of each."""
        if schema.REDRAWN not in self.groups:
            raise ValueError(
                f'the merged object has no group "{schema.REDRAWN}" any more, which says how its '
                f"draws were made. {WHOLE}."
            )
        return self.groups[schema.REDRAWN]

    def require_moved(self, why: str) -> None:
        """Refuse newly made draws; `why` says what they lack and what to do."""
        if self.is_redrawn:
            names = self.redrawn["reshaped"].values.astype(str).tolist()
            raise ValueError(
                f"the draws were made anew by refine, as the posterior of {brief(names)} is far "
                "from Gaussian: they are no batch's own, and no map moved them. report and "
                "plot_certificate tell of them."
            )
        if not self.is_moved:
            raise ValueError(
                f'merged with method "{self.method}", whose draws were newly made from those of '
                f"all batches: {why}"
            )

    @cached_property
    def certificate(self) -> Certificate | None:
        """The certificate, if there is one."""
        return read_certificate(self.groups)

    @cached_property
    def refinement(self) -> Refinement:
        """What rounds of `refine` did."""
        return read_refinement(self.maps)

    @cached_property
    def images(self) -> xr.Dataset:
        """The merged variables' draws in the space of the merge."""
        moved = self.groups.get(schema.unconstrained(self.group), xr.Dataset())
        transformed = [name for name in self.names if name in moved]
        if not transformed:
            return self.draws[self.names]
        plain = self.draws[[name for name in self.names if name not in transformed]]
        kept = plain.drop_vars([name for name in plain.coords if name in moved.coords])
        return kept.merge(moved[transformed], join="exact", compat="override")[self.names]

    @cached_property
    def layout(self) -> Layout:
        """Of the merged variables in the space of the merge."""
        return layout_of(self.images, self.names)

    @cached_property
    def arrays(self) -> list[np.ndarray]:
        """Draws of each variable in the space of the merge, (chain, draw, ...)."""
        return sample_arrays(self.images, self.layout)

    @cached_property
    def free(self) -> np.ndarray:
        """Where the parameters lie in the layout, by label."""
        places = {label: place for place, label in enumerate(self.layout.labels())}
        if missing := [label for label in self.parameters if label not in places]:
            raise ValueError(
                f"the merged object has no draws of {brief(missing, MOST_NAMED)} any more. {WHOLE}."
            )
        free = np.array([places[label] for label in self.parameters])
        if free.size < self.layout.size:
            rows = gather_all(self.matrices(), self.layout)
            varies = np.ptp(rows, axis=0) > ROUNDING * np.abs(rows).max(axis=0)
            varies[free] = False
            if lost := [label for label, place in places.items() if varies[place]]:
                raise ValueError(
                    f'group "{schema.TRANSFORM}" has no parameter {brief(lost, MOST_NAMED)} any '
                    f"more, which varies. {WHOLE}."
                )
        return free

    def matrices(self) -> list[np.ndarray]:
        """Return all draws as one (rows, parameters) matrix a variable."""
        return as_rows(self.arrays, self.layout)

    def rows(self, chains: Any = slice(None), draws: Any = slice(None)) -> np.ndarray:
        """Return some draws as (rows, parameters); index arrays of one length pick single draws."""
        picked = [
            array[chains, draws].reshape(-1, variable.size)
            for array, variable in zip(self.arrays, self.layout.variables, strict=True)
        ]
        rows = gather_all(picked, self.layout)
        return rows if self._are_all_free else rows[:, self.free]

    @cached_property
    def _are_all_free(self) -> bool:
        return np.array_equal(self.free, np.arange(self.layout.size))

    def map_of(self, position: int) -> AffineMap:
        """Return the map of one batch."""
        # Dataset.variables: selecting a batch of all variables costs more than to invert its map
        scale, mean, target = (self.maps.variables[name] for name in ("scale", "mean", "target"))
        return AffineMap(*(stored[position].values for stored in (scale, mean, target)))

    def inverse_of(self, position: int) -> AffineMap:
        """Return the map that brings one batch's draws back."""
        units = np.sqrt(np.diag(self.maps["pooled_covariance"].values))
        return linalg.invert(self.map_of(position), units)

    @cached_property
    def _chains_by_label(self) -> dict[str, np.ndarray]:
        chains: dict[str, list[int]] = {}
        for chain, owner in enumerate(self.owners.tolist() if self.owners is not None else ()):
            chains.setdefault(owner, []).append(chain)
        return {owner: np.array(own) for owner, own in chains.items()}

    def chains_of(self, position: int) -> np.ndarray:
        """Return which chains are one batch's; refuse a batch that has none any more."""
        label = self.labels[position]
        chains = self._chains_by_label.get(label, np.empty(0, dtype=int))
        if not chains.size:
            held = list(self._chains_by_label)
            part = (
                f'This is the part of batch "{", ".join(held)}" alone: if Plan.apply made it, put '
                "those of all batches end to end (xarray.concat of each group that has chains). "
            )
            raise ValueError(
                f'batch {position} ("{label}"): none of its chains is left, so its own draws '
                f"cannot be looked at. {part if len(held) == 1 else ''}Pass the merged object "
                "before chains were selected; to leave the batch out of the merge, merge again "
                "with drop=."
            )
        return chains

    def after(self, position: int) -> np.ndarray:
        """Return one batch's draws as they are now, (chain, draw, parameter)."""
        chains = self.chains_of(position)
        return self.rows(chains).reshape(chains.size, self.sizes[1], -1)

    def before(self, position: int) -> np.ndarray:
        """Return one batch's draws as they were sampled, (chain, draw, parameter)."""
        back = self.inverse_of(position)
        return (self.after(position) - back.source) @ back.scale.T + back.target

    def images_before(self, position: int) -> xr.Dataset:
        """Return one batch's draws as they were sampled, by variable, in the space of the merge."""
        moved = self.images.isel(chain=self.chains_of(position)).drop_vars("batch")
        arrays = [array.astype(float) for array in sample_arrays(moved, self.layout)]
        rows = as_rows(arrays, self.layout)
        constants = np.concatenate([matrix[0] for matrix in rows])
        out = [np.empty_like(matrix) for matrix in rows]
        back = linalg.embed(self.inverse_of(position), self.free, constants)
        move(rows, self.layout, back, out)
        return xr.Dataset(
            {
                variable.name: ((*SAMPLE_DIMS, *variable.dims), matrix.reshape(array.shape))
                for variable, matrix, array in zip(self.layout.variables, out, arrays, strict=True)
            },
            coords=self.layout.coords,
        )

    @cached_property
    def batch_moments(self) -> list[Moments]:
        """The batches' moments as the merge took them; of tilted ones, those of their draws."""
        if self.kind == TILTED and self.is_moved:
            return [self._sampled_moments(position) for position in range(len(self.labels))]
        columns = (self.maps[name].values for name in ("mean", "covariance", "draws"))
        effective = self.diagnostics["effective_size"].values
        return [
            Moments(mean, covariance, linalg.inverse(covariance), int(draws), float(size))
            for mean, covariance, draws, size in zip(*columns, effective, strict=True)
        ]

    def _sampled_moments(self, position: int) -> Moments:
        draws = self.before(position).reshape(-1, self.free.size)
        covariance = np.atleast_2d(np.cov(draws.T))
        size = float(self.diagnostics["effective_size"][position])
        return Moments(draws.mean(axis=0), covariance, linalg.inverse(covariance), len(draws), size)

    @cached_property
    def pooled(self) -> Gaussian:
        """The moments that the merge, or `refine`, found for the posterior."""
        pooled = (self.maps[name].values for name in ("pooled_mean", "pooled_covariance"))
        return gaussian.gaussian(*pooled)

    @cached_property
    def present_moments(self) -> Gaussian:
        """The moments that the merged draws have; those of the pooling, if merged by SwISS."""
        arrays = [array.reshape(*self.sizes, -1) for array in self.matrices()]
        groups = list(self._chains_by_label.values()) or [np.arange(self.sizes[0])]
        means, covariances, shares = [], [], []
        for own in groups:
            matrices = [array[own].reshape(-1, array.shape[-1]) for array in arrays]
            mean, covariance, _ = sample_moments(matrices, self.layout)
            means.append(mean[self.free])
            covariances.append(covariance[np.ix_(self.free, self.free)])
            shares.append(own.size / self.sizes[0])
        return gaussian.moments_of(np.array(means), np.array(covariances), np.array(shares))

    def select(self, var_names=None, filter_vars=None, coords=None) -> xr.Dataset:
        """Return what ArviZ's arguments select of the draws in the space of the merge."""
        check_coords(coords)
        self.check_names(var_names, filter_vars)
        # A transform that changes the number of elements gives them a dimension of its own, along
        # which the variable's labels choose nothing.
        own, moved = self.draws.dims, self.images.dims
        lost = {d: v for d, v in (coords or {}).items() if d in own and d not in moved}
        selected(self.draws, coords=lost)
        left = {dim: value for dim, value in (coords or {}).items() if dim not in lost}
        return selected(self.images, var_names, filter_vars, left)

    def check_names(self, var_names: Any, filter_vars: str | None) -> None:
        """Refuse what is in the merged object, but was not merged by its moments."""
        chosen = checked_names(var_names, filter_vars)
        if chosen is None or filter_vars is not None:
            return
        names = [chosen] if isinstance(chosen, str) else chosen
        beside = [name for name in names if name in self.draws and name not in self.names]
        if beside:
            raise ValueError(
                f"var_names={var_names!r}: {brief(beside)} was not merged by its moments, as it "
                "belongs to single batches or is computed from others: ArviZ's own functions take "
                f"it. The variables here are {', '.join(self.names)}."
            )

    def positions(self, var_names=None, filter_vars=None, coords=None) -> np.ndarray:
        """Return the positions of the parameters that ArviZ's arguments select."""
        dataset = self.select(var_names, filter_vars, coords)
        wanted = set(layout_of(dataset, [str(name) for name in dataset.data_vars]).labels())
        positions = [at for at, label in enumerate(self.parameters) if label in wanted]
        if not positions:
            raise ValueError(f"var_names={var_names!r}: only constants are selected.")
        return np.array(positions)

    def space(self, transforms: Mapping[str, Any] | None = None, model: Any = None) -> Space:
        """Return the space of the merge, by own transforms and a model, which no file can hold."""
        space = restore_space(self.draws, self.names, transforms, model)
        self.check_paired(space)
        return space

    def local_space(
        self, transforms: Mapping[str, Any] | None = None, model: Any = None
    ) -> LocalSpace | None:
        """Return the space that local variables were moved in; None where there are none."""
        maps = self.groups.get(schema.LOCAL_MAPS)
        return None if maps is None else restore_local_space(maps, self.draws, transforms, model)

    def check_paired(self, space: Space) -> None:
        """Refuse draws in the space of the merge that are not those on their own scale."""
        moved = schema.unconstrained(self.group)
        if not space.transforms or moved not in self.groups:
            return
        few = {
            dim: np.unique(np.linspace(0, self.draws.sizes[dim] - 1, TRIED).astype(int))
            for dim in SAMPLE_DIMS
        }
        images = self.images.isel(few)
        known = images if space.name == MODEL else images[list(space.transforms)]
        back = space.backward({str(name): array.values for name, array in known.data_vars.items()})
        for name in space.transforms:
            own = self.draws[name].isel(few).values
            units = self.draws[name].std(SAMPLE_DIMS).values
            if (np.abs(back[name] - own) > SAME_SDS * units + ROUNDING * np.abs(own)).any():
                raise other_draws(moved)


def open_merged(merged: Any, group: str) -> Merged:
    """Read a merged object; refuse any other."""
    contents = read_whole(merged, group)
    groups = contents.groups
    if sent := [what for key, what in schema.SENT.items() if key in groups]:
        raise ValueError(f"not a merged object: {sent[0]}, which holds no draws. Pass {MERGED}.")
    if group not in groups and schema.TRANSFORM in groups:
        raise ValueError(
            f'the merged object has no group "{group}": group= must be the one that was merged. '
            f"Its groups are: {', '.join(groups)}."
        )
    if schema.REWEIGHED in groups:
        raise ValueError(
            "not a merged object: these draws were made by reweigh, and are ordinary ones. ArviZ's "
            "and PyMC's own functions take them; what stands behind them is in the group "
            f"{schema.REWEIGHED}."
        )
    if missing := [name for name in (group, schema.TRANSFORM) if name not in groups]:
        raise ValueError(
            f"not a merged object: no group {', '.join(missing)}, found "
            f"{', '.join(groups) or 'none'}. Pass {MERGED}."
        )
    container = contents.container or containers.native_container()
    opened = Merged(in_order(groups, group), container, group)
    opened.check_paired(restore_without_model(opened.attrs, opened.names))
    return opened


def read_whole(merged: Any, group: str) -> Contents:
    """Return what a container holds, or its file, which is read at once; refuse anything else."""
    is_file = isinstance(merged, str | os.PathLike)
    if not is_file and (isinstance(merged, xr.Dataset) or not containers.is_container(merged)):
        raise TypeError(f"not a merged object: got {containers.brief_type(merged)}. Pass {MERGED}.")
    with containers.reading(f"file {os.fspath(merged)}" if is_file else "merged", MERGED):
        contents = containers.read(merged, group)
        if not is_file:
            return contents
        loaded = {name: dataset.load() for name, dataset in contents.groups.items()}
        containers.close(contents.groups)
        return Contents(loaded, contents.container)

"""What `plan` returns: how each batch is moved to its part of the merged posterior."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.base.gaussian import Moments
from arviz_swiss.base.linalg import AffineMap
from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import Container, Groups
from arviz_swiss.data.layout import as_rows, gather_all, layout_of, with_times_as_stored
from arviz_swiss.data.messages import brief
from arviz_swiss.data.transforms import restore
from arviz_swiss.merging import combine, exchange, pack
from arviz_swiss.merging.batches import Batch, opened
from arviz_swiss.merging.batches_without_draws import stand_in
from arviz_swiss.merging.estimate import Frame, unconstrained
from arviz_swiss.merging.join import join_stats, stats_dtypes, stats_of
from arviz_swiss.merging.labels import named
from arviz_swiss.merging.local import find_local, find_local_space
from arviz_swiss.merging.local_draws import (
    find_own_moves,
    move_local,
    pack_moves,
)
from arviz_swiss.merging.match import Matched, match_to, recorded_local
from arviz_swiss.merging.models import plain_model
from arviz_swiss.merging.origin import fingerprint_draws, fingerprint_local
from arviz_swiss.merging.space import MODEL, Space, restore_space

WANTED = "what plan returned, or the path of its complete file"
# What a file must hold: numbers by group, and the rest.
VARIABLES = {
    schema.PLAN: ["start", "value"],
    schema.TRANSFORM: "batch parameter variable mean covariance draws scale target".split(),
    schema.DIAGNOSTICS: [],
}
KEYS = (
    "group names attrs length stats computed space transforms fingerprints local "
    "local_fingerprints local_transforms lines"
).split()
MOST_NAMED = 20
# By how many of its sds, or how much of itself, a mean may differ from the one that was told.
SAME_PLACE, SINGLE = 1e-5, 1e-6


@dataclass(frozen=True, repr=False)
class Plan:
    """How to merge batches whose draws do not meet: what `plan` returns.

    `groups` holds `swiss_transform` (moments and maps) and `swiss_diagnostics` as `merge` gives
    them, and names, dimensions and labels of the merged variables; `record` is the rest, by name.
    """

    groups: Groups
    record: Mapping[str, Any]

    @property
    def labels(self) -> list[str]:
        """Labels of the batches, in order."""
        return self.groups[schema.TRANSFORM]["batch"].values.astype(str).tolist()

    def apply(
        self,
        idata: Any,
        *,
        label: str | None = None,
        transforms: Mapping[str, Any] | None = None,
        model: Any = None,
    ) -> Container:
        """Move one batch's draws to where they belong in the merged posterior.

        Parameters
        ----------
        idata : InferenceData, DataTree, Dataset, dict of arrays, or path
            The batch whose moments went into the plan. Which one it is, its draws tell.
        label : str, optional
            The batch's label in the plan, to be sure.
        transforms : mapping of variable to transform, optional
            Your own transform objects, if moments were taken with any: a plan cannot hold them.
        model : pymc.Model, optional
            The model, if moments were taken with one, likewise.

        Returns
        -------
        InferenceData or DataTree
            This batch's part of what `merge` would give: its chains, numbered as there, with the
            coordinate `batch`; groups `posterior`, `unconstrained_posterior`, `sample_stats`,
            `swiss_transform` and `swiss_diagnostics`. Data are left out: no row leaves its place
            with the part.

        Raises
        ------
        ValueError
            When these are not the draws of a batch of the plan, with their labels and statistics;
            when `transforms` or `model` are needed, or others than moments were taken with.
        """
        group, model = self.record["group"], plain_model(model, "model")
        with opened([idata] if label is None else {label: idata}, group) as (batches, container):
            first = self._first()
            layout = with_times_as_stored(layout_of(first.draws, self.record["names"]))
            batch = match_to(first, batches[0], layout)
            position = self._position_of(batches[0], label)
            self._check_local(batches[0], position)
            space = self._space(first, transforms, model)
            batch = batch._replace(label=self.labels[position], position=position)
            frame = self._frame(first, space)
            draws = self._move(batch, frame, position)
            groups = pack.pack_draws(draws, frame, first, self.record["attrs"])
            groups = pack.add_stats(groups, self._stats(batch, draws.length), draws)
            if self.record["local"]:
                groups = self._add_local(groups, batch, frame, draws, transforms, model)
            made = {name: self.groups[name] for name in (schema.TRANSFORM, schema.DIAGNOSTICS)}
            return containers.build({**groups, **made}, container)

    def save(self, path: str | os.PathLike) -> Path:
        """Write a netCDF file, whole or not at all, and return its path.

        Parameters
        ----------
        path : str or path
            The file to write; one of that name is replaced.

        Returns
        -------
        Path
        """
        return exchange.write(path, self.groups, schema.PLAN, self.record)

    def __repr__(self) -> str:
        sizes = self.groups[schema.TRANSFORM].sizes
        return (
            f"<plan to merge {sizes['batch']} {self.record['attrs'][schema.KIND]} batches of "
            f"{sizes['parameter']} parameters by {self.record['attrs'][schema.METHOD]}: "
            f"{brief(self.labels)}>"
        )

    def _first(self) -> Batch:
        variables = self.groups[schema.VARIABLES_OF_DRAWS][self.record["names"]]
        facts = {"chains": 1, "length": 1, "divergent": None, "observed_size": None}
        return stand_in(self.labels[0], 0, variables, self.record["group"], facts)

    def _position_of(self, batch: Batch, label: str | None) -> int:
        """Return which batch of the plan this is, by its draws."""
        known = self.record["fingerprints"]
        if label is not None and label not in self.labels:
            raise ValueError(
                f'the plan has no batch "{label}": its batches are '
                f"{brief(self.labels, MOST_NAMED)}."
            )
        own = fingerprint_draws(batch, layout_of(batch.draws, self.record["names"]))
        if own not in known or (label is not None and known[self.labels.index(label)] != own):
            whose = f'batch "{label}"' if label else "any batch of the plan"
            found = f" They are {named(self.labels, known.index(own))}." if own in known else ""
            raise ValueError(
                f"{batch}: these are not the draws whose moments were taken of {whose}.{found} "
                f"Pass those draws, all of them and in their order; the plan has "
                f"{brief(self.labels, MOST_NAMED)}. For other draws take moments and plan again."
            )
        return known.index(own)

    def _check_local(self, batch: Batch, position: int) -> None:
        """Refuse a batch whose own variables are not those of which moments were taken."""
        told = self.record["local_fingerprints"][position]
        for name in self.record["local"]:
            is_there = name in batch.draws
            if is_there and fingerprint_local(batch, [name])[name] == told[name]:
                continue
            fault = "other draws than" if is_there else "missing, but it was there"
            raise ValueError(
                f"{batch}, variable {name}: {fault} when its moments were taken. Pass the whole "
                "batch as it was then, or take moments and plan again."
            )

    def _space(self, first: Batch, transforms: Mapping[str, Any] | None, model: Any) -> Any:
        """Return the space of the merge, which computes the planned deterministics alone."""
        names, computed = self.record["names"], self.record["computed"]
        attrs = {schema.TRANSFORMS: self.record["transforms"], schema.SPACE: self.record["space"]}
        draws = first.draws.assign_attrs(attrs)
        space: Any = restore_space(draws, names, transforms, model)
        if self.record["space"] != MODEL:
            return space
        extra = [name for name in space.deterministic_names if name not in computed]
        return space.without_deterministics(extra)

    def _stats(self, batch: Batch, length: int) -> xr.Dataset | None:
        """Return the samplers' statistics that all batches have told of."""
        names = self.record["stats"]
        if missing := [name for name in names if name not in stats_of(batch, length)]:
            raise ValueError(
                f"{batch}: its draws come without {brief(missing)} of {schema.SAMPLE_STATS}, which "
                "was there when its moments were taken. Pass the batch with its group "
                f"{schema.SAMPLE_STATS}, and chain and draw labelled alike in both; or take "
                "moments of this and plan again."
            )
        return join_stats([batch], stats_dtypes([batch], names), length)

    def _frame(self, first: Batch, space: Space) -> Frame:
        names, maps = self.record["names"], self.groups[schema.TRANSFORM]
        constrained = with_times_as_stored(layout_of(first.draws, names))
        layout = layout_of(self.groups[schema.VARIABLES_OF_MERGE], names)
        places = {label: place for place, label in enumerate(layout.labels())}
        labels, owners = (maps[name].values.astype(str) for name in ("parameter", "variable"))
        free = np.array([places[label] for label in labels.tolist()])
        constants = self.groups[schema.PLAN]["value"].values
        return Frame(first, constrained, space, layout, free, constants, labels, owners)

    def _add_local(
        self, groups: Groups, batch: Batch, frame: Frame, draws: combine.Draws, own: Any, model: Any
    ) -> Groups:
        """Return the groups with the variables of this batch alone, which follow the shared ones.

        `own` are the user's own transforms.
        """
        roles = [n for n in recorded_local([batch]) if n in self.record["local"]]
        rest = [name for name in self.record["local"] if name not in roles]
        matched = Matched([batch], frame.constrained, roles, rest)
        local = find_local(matched, model)
        described = self.record["local_transforms"]
        choices = described if model is not None else restore(json.dumps(described), own)
        space = find_local_space(matched, local, choices, model)
        moves = find_own_moves(matched, local, space, frame, self.record["lines"])
        maps = self.groups[schema.TRANSFORM].isel(batch=batch.position)
        mean, covariance = maps["mean"].values, maps["covariance"].values
        moments = Moments(mean, covariance, covariance, int(maps["draws"]), np.nan)
        beside = move_local(moves, [batch], frame, [moments], draws)
        groups = pack.add_local(groups, batch.group, beside)
        return {**groups, schema.LOCAL_MAPS: pack_moves(moves, [batch], frame)}

    def _move(self, batch: Batch, frame: Frame, position: int) -> combine.Draws:
        own = self.groups[schema.TRANSFORM].isel(batch=position)
        self._check_place(batch, frame, own)
        affine = AffineMap(*(own[name].values for name in ("scale", "mean", "target")))
        dtypes = {name: frame.first.draws.variables[name].dtype for name in frame.layout.names}
        start = int(self.groups[schema.PLAN]["start"][position])
        length = self.record["length"]
        return combine.move_batches([batch], frame, [affine], length, dtypes, start)

    def _check_place(self, batch: Batch, frame: Frame, own: xr.Dataset) -> None:
        """Refuse draws whose mean in the space of the merge is not the one that was told."""
        rows = as_rows(list(unconstrained(batch, frame).values()), frame.layout)
        mean = gather_all(rows, frame.layout)[:, frame.free].mean(axis=0, dtype=float)
        told, sds = own["mean"].values, np.sqrt(np.diagonal(own["covariance"].values))
        # the second term is for draws that were stored with single precision meanwhile
        is_there = np.abs(mean - told) <= SAME_PLACE * sds + SINGLE * np.abs(told)
        if not is_there.all():
            raise ValueError(
                f"{batch}: its draws are not where their moments were taken, by "
                f"{brief(frame.labels[~is_there].tolist())}: labels, transforms= or model= differ. "
                "Pass those with which the moments were taken, or take moments and plan again."
            )


def open_plan(path: str | os.PathLike) -> Plan:
    """Return a plan from its file; refuse any other file."""
    return Plan(*exchange.read(path, schema.PLAN, WANTED, VARIABLES, KEYS))

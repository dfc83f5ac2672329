"""moments(): what one batch tells of its draws, without the draws."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.base.effective import quick_squares_times
from arviz_swiss.base.gaussian import Moments
from arviz_swiss.data import files, schema
from arviz_swiss.data.containers import Groups
from arviz_swiss.data.layout import as_rows, gather_all
from arviz_swiss.merging import exchange
from arviz_swiss.merging.batches import Batch, opened, prior_batches
from arviz_swiss.merging.batches_without_draws import facts_of, variables_in, variables_of
from arviz_swiss.merging.estimate import (
    Frame,
    check_covariance,
    find_frame,
    glance,
    summarise,
    unconstrained,
)
from arviz_swiss.merging.join import stats_of
from arviz_swiss.merging.local import LocalTransforms, find_local, find_local_space
from arviz_swiss.merging.local_draws import find_gains
from arviz_swiss.merging.match import match, match_to
from arviz_swiss.merging.models import free_variables, plain_model
from arviz_swiss.merging.origin import fingerprint_draws, fingerprint_local, observed_by
from arviz_swiss.merging.powers import resolve_powers
from arviz_swiss.merging.space import Space, find_space, probe_space, split_choices

WANTED = "what moments returned, or the path of its complete file"
# What a file must hold: numbers by parameter, and the rest.
VARIABLES = (
    "mean covariance squares_time skewness rhat draws effective_size value parameter element"
).split()
KEYS = (
    "label file kind power prior_given group covariance has_model space transforms untransformed "
    "names deterministic local along local_transforms gains probed computed stats groups observed "
    "facts fingerprint local_fingerprints"
).split()


@dataclass(frozen=True, repr=False)
class BatchMoments:
    """What one batch tells of its draws: moments, sizes, powers and labels, but no draw or row.

    `groups` holds all of it as Datasets: `swiss_moments` the numbers by parameter,
    `swiss_variables` names, dimensions and labels on the variables' own scale,
    `swiss_merge_variables` those in the space of the merge, and `swiss_prior` draws of the prior,
    where these are needed. `record` is the rest, by name.
    """

    groups: Groups
    record: Mapping[str, Any]
    file: str = ""

    @property
    def statistics(self) -> xr.Dataset:
        """Mean, covariance, skewness, ... by parameter."""
        return self.groups[schema.MOMENTS]

    @property
    def label(self) -> str:
        """The batch's label, as given or as recorded by the sampling; empty if unknown."""
        recorded = self.groups[schema.VARIABLES_OF_DRAWS].attrs.get(schema.BATCH)
        return self.record["label"] or (recorded if isinstance(recorded, str) else "")

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
        return exchange.write(path, self.groups, schema.MOMENTS, self.record)

    def __repr__(self) -> str:
        sizes, facts = self.statistics.sizes, self.record["facts"]
        label = f'"{self.label}"' if self.label else "without label"
        return (
            f"<moments of batch {label}: {sizes['parameter']} parameters, {facts['chains']} chains "
            f"of {facts['length']} draws>"
        )


def moments(
    idata: Any,
    *,
    label: str | None = None,
    kind: str | None = None,
    power: float | None = None,
    prior: Any = None,
    transforms: Mapping[str, Any] | None = None,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    group: str = "posterior",
    covariance: str | Callable = "sample",
    model: Any = None,
) -> BatchMoments:
    """Return what a merge needs to know of one batch, without its draws and rows.

    Where batches may not meet, or are too large to travel, each place sends its moments, `plan`
    makes a plan of them, and ``plan.apply`` moves the draws where they are. The three together give
    exactly what `merge` gives.

    Parameters
    ----------
    idata : InferenceData, DataTree, Dataset, dict of arrays, or path
        One batch, as `merge` takes it; or the path of a file that `BatchMoments.save` wrote, which
        is opened.
    label : str, optional
        What to call the batch. When absent, what it recorded (`swiss_batch`), else the name of its
        file.
    kind : {"inflated", "fractionated", "full_prior"}, optional
        What the batch was sampled from, as in `merge`.
    power : float, optional
        The power that its likelihood was raised to, as `powers` in `merge`.
    prior : InferenceData, DataTree, Dataset, ..., optional
        Draws of the prior, which go along, as they hold no data. Only for ``kind="full_prior"``
        and others that would not count the prior once; the batch's own group `prior` goes along
        if its kind is "full_prior". Give the same to all batches, or to one.
    transforms : mapping of variable to transform, optional
        Where to merge a constrained variable, as in `merge`.
    var_names : str or sequence of str, optional
        Variables to merge, as in ArviZ (``"~name"`` leaves one out).
    filter_vars : {None, "like", "regex"}, optional
        How to read `var_names`, as in ArviZ.
    group : str, default "posterior"
        The group to merge.
    covariance : {"sample", "corrected", "shrunk", "diagonal"} or callable, default "sample"
        How to estimate the covariance, as in `merge`.
    model : pymc.Model or bambi.Model, optional
        The plain model in whose unconstrained space to merge, as in `merge`.

    Returns
    -------
    BatchMoments
        With a method ``save(path)``. It holds, by parameter, mean, covariance, skewness, R-hat and
        autocorrelation of the squared draws; the numbers of draws and rows; count, mean and sd of
        the observed values; the share of divergent draws; names, dimensions, labels and attributes
        of the variables, whether they are positive, and a fingerprint by which `apply` knows the
        draws again.

    Raises
    ------
    ValueError
        When the draws cannot give a covariance, as in `merge`; for variables on a circle, whose
        space needs the draws of all batches; or when a file is damaged, or of another version.

    See Also
    --------
    plan : from the moments of all batches to the maps of their draws

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> rng = np.random.default_rng(0)
    >>> draws = {"mu": rng.normal(size=(4, 500))}
    >>> north = az_swiss.moments(draws, label="north", kind="inflated", power=2)
    >>> north
    <moments of batch "north": 1 parameters, 4 chains of 500 draws>
    """
    _check_batch_arguments(label, power)
    if files.holds(idata, schema.MOMENTS):
        given = {"kind": kind, "power": power, "prior": prior, "transforms": transforms}
        given |= {"var_names": var_names, "filter_vars": filter_vars, "model": model}
        given |= {"group": group, "covariance": covariance}
        exchange.refuse_arguments(idata, schema.MOMENTS, moments, given)
        return _labelled(open_moments(idata), label)
    check_covariance(covariance)
    model = plain_model(model, "model")
    with opened([idata] if label is None else {label: idata}, group) as (batches, _):
        powers = resolve_powers(batches, kind, power)
        matched = match(batches, var_names, filter_vars, free_variables(model))
        # of a batch that does not say its kind, the plan may
        is_inflated = powers.kind == "inflated" and powers.kind_from != "powers"
        local = {} if is_inflated else find_local(matched, model)
        choices, local_choices = split_choices(transforms, {*matched.local, *local})
        space = find_space(matched, choices, model)
        _check_not_circular(batches[0], space)
        frame = find_frame(matched, space)
        own = summarise(matched.batches[0], frame, covariance)
        groups = _measure(matched.batches[0], own, frame)
        local_space = find_local_space(matched, local, local_choices, model)
        gains = find_gains(matched, local, local_space, frame, own) if local else {}
        needs_prior = prior is not None or powers.kind == "full_prior"
        if needs_prior and (priors := prior_batches(batches, prior)):
            groups[schema.PRIOR_DRAWS] = _prior_rows(priors[0], frame)
        record = {
            "label": label or "",
            "file": Path(batches[0].file).stem,
            "kind": kind,
            "power": None if power is None else float(power),
            "prior_given": prior is not None,
            "group": group,
            "covariance": "own" if callable(covariance) else covariance,
            "has_model": model is not None,
            "space": space.name,
            "transforms": json.loads(space.describe()),
            "untransformed": [name for name, choice in choices.items() if choice is None],
            "names": matched.layout.names,
            "deterministic": matched.deterministic,
            "local": matched.local,
            "along": list(local),
            "local_transforms": _describe_local(local_choices, model),
            "gains": [[*pair, gain] for pair, gain in gains.items()],
            "probed": probe_space(space, frame.layout),
            "computed": list(space.deterministic_names),
            "stats": stats_of(batches[0], batches[0].sizes[1]),
            "groups": [name for name in batches[0].groups if name != group],
            "observed": observed_by(batches[0]),
            "facts": facts_of(batches[0]),
            "fingerprint": fingerprint_draws(batches[0], matched.layout),
            "local_fingerprints": fingerprint_local(batches[0], local),
        }
        return BatchMoments(groups, record)


def open_moments(source: Any) -> BatchMoments:
    """Return the moments of a batch, from themselves or their file; refuse anything else."""
    if isinstance(source, BatchMoments):
        return source
    if not isinstance(source, str | os.PathLike):
        raise TypeError(f"plan takes {WANTED}, for each batch; got {type(source).__name__}.")
    groups, record = exchange.read(
        source, schema.MOMENTS, WANTED, {schema.MOMENTS: VARIABLES}, KEYS
    )
    return BatchMoments(groups, record, os.fspath(source))


def _check_batch_arguments(label: Any, power: Any) -> None:
    if label is not None and (not isinstance(label, str) or not label):
        raise TypeError(
            f"label must be text that names the batch, got {label!r}. Leave it out for the batch's "
            "own, or that of its file."
        )
    if power is not None and not isinstance(power, Real):
        raise TypeError(f"power must be one number, that of this batch, got {power!r}.")


def _labelled(saved: BatchMoments, label: str | None) -> BatchMoments:
    """Return saved moments, under another label if one is given."""
    label = saved.record["label"] if label is None else label
    return BatchMoments(saved.groups, {**saved.record, "label": label}, saved.file)


def _check_not_circular(batch: Batch, space: Space) -> None:
    if names := list(space.circular):
        nones = ", ".join(f'"{name}": None' for name in names)
        raise ValueError(
            f"{batch}, variable {', '.join(names)}: on a circle, which is cut where the draws of "
            f"all batches say. Merge the draws themselves, or pass transforms={{{nones}}} if they "
            "lie far from the ends of their range, or leave it out with var_names."
        )


def _describe_local(choices: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Return what local variables are moved by: with a model, only which are not transformed."""
    if model is not None:
        return dict.fromkeys(choices)
    return json.loads(LocalTransforms(choices).describe())


def _measure(batch: Batch, own: Moments, frame: Frame) -> Groups:
    """Return the moments of the parameters that vary, and the variables without their draws.

    Variables of the batch alone are not among these: labels of their groups do not travel.
    """
    arrays = list(unconstrained(batch, frame).values())
    along = "parameter"
    shape = own.glance or glance(arrays, frame.free)
    # what the frame holds of parameters that vary is a draw
    values = frame.constants.copy()
    values[frame.free] = own.mean
    data: dict[str, Any] = {
        "mean": (along, own.mean),
        "covariance": ((along, f"{along}_bis"), own.covariance),
        "squares_time": (along, quick_squares_times(arrays, frame.free)),
        "skewness": (along, shape.skewness),
        "rhat": (along, shape.rhat),
        "draws": ((), own.draws),
        "effective_size": ((), own.effective),
        "value": ("element", values),
    }
    coords = {along: frame.labels, "element": np.array(frame.layout.labels())}
    return {
        schema.MOMENTS: xr.Dataset(data, coords=coords),
        schema.VARIABLES_OF_DRAWS: variables_of(batch, frame.constrained.names),
        schema.VARIABLES_OF_MERGE: variables_in(frame.layout),
    }


def _prior_rows(prior: Batch, frame: Frame) -> xr.Dataset:
    """Return the draws of the prior in the space of the merge."""
    arrays = unconstrained(match_to(frame.first, prior, frame.constrained), frame)
    rows = gather_all(as_rows(list(arrays.values()), frame.layout), frame.layout)
    labels = np.array(frame.layout.labels())
    return xr.Dataset({"draws": (("draw", "element"), rows)}, coords={"element": labels})

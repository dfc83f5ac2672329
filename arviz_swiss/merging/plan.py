"""plan(): from the moments of all batches to the maps of their draws."""

import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss import methods
from arviz_swiss.data import schema
from arviz_swiss.data.containers import Groups
from arviz_swiss.data.messages import brief
from arviz_swiss.merging import combine, exchange
from arviz_swiss.merging.estimate import Frame
from arviz_swiss.merging.gather import (
    Gathered,
    find_gathered_frame,
    find_prior,
    gather,
    has_prior,
    match_gathered,
    moments_in,
    shared_items,
)
from arviz_swiss.merging.join import DATA_GROUPS
from arviz_swiss.merging.local import LocalTransforms
from arviz_swiss.merging.local_draws import (
    Gains,
    choose_lines,
)
from arviz_swiss.merging.match import check_holdable
from arviz_swiss.merging.moments import BatchMoments, open_moments
from arviz_swiss.merging.moments import moments as take_moments
from arviz_swiss.merging.origin import join_observed
from arviz_swiss.merging.planned import Plan, open_plan
from arviz_swiss.merging.powers import (
    Powers,
    attributed_power,
    check_prior_used,
    check_told_powers,
    refuse_prior_count,
)
from arviz_swiss.merging.shared_steps import (
    Flat,
    Summary,
    choose_batches,
    describe_merge,
    describe_origin,
    give,
    pack_settled,
    pool_summary,
    warn_of,
)
from arviz_swiss.merging.space import check_powered_space
from arviz_swiss.methods.registry import METHODS, Method


def plan(
    moments: Sequence[Any] | Mapping[str, Any] | str | os.PathLike,
    *,
    method: str = "swiss",
    kind: str | None = None,
    powers: float | Sequence[float] | Mapping[str, float] | None = None,
    drop: str | int | Sequence[str | int] | None = None,
    **options: Any,
) -> Plan:
    """Plan a merge of batches whose draws do not meet, from their moments.

    Parameters
    ----------
    moments : sequence, or mapping of label to moments
        What `moments` returned for each batch, or the paths of files of it. The path of one file
        that `Plan.save` wrote opens it.
    method : {"swiss", "recentre", "location_scatter", "pool"}, default "swiss"
        How to merge: a method that moves each batch's draws by an affine map. Others of `merge`
        make new draws from those of all batches at once, and cannot be planned.
    kind : {"inflated", "fractionated", "full_prior"}, optional
        What the batches were sampled from, if their moments do not say. Another kind than theirs
        is refused.
    powers : float, sequence, or mapping of label to float, optional
        The power that each batch's likelihood was raised to, if their moments do not say. Others
        than theirs are refused.
    drop : label, position, or sequence of them, optional
        Batches to leave out, as in `merge`.
    **options
        Options of the method; see `arviz_swiss.methods`.

    Returns
    -------
    Plan
        With methods ``apply(idata)``, which moves the draws of one batch, and ``save(path)``.

    Raises
    ------
    ValueError
        When the batches do not fit together, as in `merge`: other parameters, labels, transforms,
        models, kinds, or two batches of one label; when a method cannot be planned; when a file is
        damaged, or of another version.
    TypeError
        When `moments` is no list or mapping of moments, or the method has no such option.

    Warns
    -----
    MergeWarning
        Of all that `merge` warns of: batches that disagree, are skewed or not converged, ...

    See Also
    --------
    moments : what each batch sends
    merge : the same in one call, where all draws are at hand

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> rng = np.random.default_rng(0)
    >>> draws = {name: {"mu": rng.normal(size=(4, 500))} for name in ("north", "south")}

    Each place tells the moments of its draws,

    >>> told = {name: az_swiss.moments(own, kind="inflated") for name, own in draws.items()}

    somebody makes the plan, and each place moves its draws.

    >>> plan = az_swiss.plan(told)
    >>> part = plan.apply(draws["south"])
    >>> merged = az_swiss.merge(draws, kind="inflated")
    >>> bool(np.allclose(part["posterior"]["mu"], merged["posterior"]["mu"][4:]))
    True
    """
    if isinstance(moments, str | os.PathLike):
        arguments = {"method": method, "kind": kind, "powers": powers, "drop": drop, **options}
        exchange.refuse_arguments(moments, schema.PLAN, plan, arguments)
        return open_plan(moments)
    recipe = _plannable(method)
    _check_not_of_moments(options)
    methods.check_options(recipe, options, list(inspect.signature(plan).parameters), "plan")
    labels, measured = _listed(moments)
    gathered = gather(measured, labels)
    kind, powers = _recorded_kind(gathered, kind), _recorded_powers(gathered, powers)
    chosen = choose_batches(gathered.batches, kind, powers, drop)
    factors = combine.variance_factors(recipe, chosen.powers)
    kept = gathered.of(chosen.batches)
    flat = _flatten(kept, chosen.powers)
    summary = _summarise(flat, kept, chosen.powers)
    record = kept.measured[0].record
    covariance, has_model = record["covariance"], record["has_model"]
    warn_of(flat, chosen.powers, summary, covariance, recipe, has_model, chosen.total)
    given = give(summary, chosen.powers, factors)
    maps = combine.rescaled_maps(recipe.combine(given, **options), factors)
    observed = join_observed([each.record["observed"] for each in kept.measured])
    origin = describe_origin(chosen.powers, covariance)
    groups = pack_settled(flat, chosen.powers, summary, maps, observed, origin)
    return _pack_plan(flat, kept, groups, describe_merge(chosen, recipe, factors))


def _flatten(gathered: Gathered, powers: Powers) -> Flat:
    """Match the batches, and find the frame that the first of them sets."""
    matched = match_gathered(gathered)
    check_holdable(matched, "DataTree")
    frame = find_gathered_frame(gathered, matched)
    choices = dict.fromkeys(gathered.measured[0].record["untransformed"])
    check_powered_space(matched.batches, frame.space, powers.kind, choices)
    # Local variables go along in `apply`, which finds their dimensions: no label of theirs is here.
    along = shared_items(gathered, "along") if powers.kind != "inflated" else []
    return Flat(matched, frame, dict.fromkeys(along, ""), LocalTransforms({}), {})


def _summarise(flat: Flat, gathered: Gathered, powers: Powers) -> Summary:
    """Pool the moments that the batches told."""
    batches, measured, frame = flat.matched.batches, gathered.measured, flat.frame
    moments = [moments_in(frame, *pair) for pair in zip(batches, measured, strict=True)]
    covariance = measured[0].record["covariance"]
    prior = _prior_of(gathered, frame, powers, covariance)
    prints = {
        batch.position: each.record["fingerprint"]
        for batch, each in zip(batches, measured, strict=True)
    }
    return pool_summary(flat, powers, moments, prior, lambda batch: prints[batch.position])


def _check_not_of_moments(options: Mapping[str, Any]) -> None:
    """Refuse what is said when moments are taken, with where to say it."""
    if names := [name for name in options if name in inspect.signature(take_moments).parameters]:
        raise TypeError(
            f"plan has no argument {', '.join(names)}: what concerns one batch is said to moments. "
            f"Take the moments again with {', '.join(f'{name}=' for name in names)}."
        )


def _plannable(method: str) -> Method:
    recipe = methods.find(method)
    if recipe.makes != "maps":
        known = ", ".join(f'"{name}"' for name, each in METHODS.items() if each.makes == "maps")
        raise ValueError(
            f'method "{method}" makes new draws from those of all batches at once, so that it '
            f"cannot be planned from moments. Methods that can are {known}; or merge the draws "
            "themselves."
        )
    return recipe


def _listed(moments: Any) -> tuple[list[str] | None, list[BatchMoments]]:
    takes = "plan takes a list of moments, or a mapping of label to moments"
    if isinstance(moments, BatchMoments) or not isinstance(moments, Iterable):
        raise TypeError(f"{takes}; got one {type(moments).__name__}. Put them in a list.")
    labels = [str(key) for key in moments] if isinstance(moments, Mapping) else None
    sources = list(moments.values() if isinstance(moments, Mapping) else moments)
    if not sources:
        raise ValueError("plan needs the moments of at least one batch, got none")
    if labels and len(set(labels)) < len(labels):
        raise ValueError(f"batch labels must differ as text, got {labels}")
    return labels, [open_moments(source) for source in sources]


def _recorded_kind(gathered: Gathered, kind: str | None) -> str | None:
    """Return the kind that the user gave here, or with the moments."""
    kinds = [each.record["kind"] for each in gathered.measured]
    told = [each for each in zip(gathered.batches, kinds, strict=True) if each[1] is not None]
    silent = [batch for batch, own in zip(gathered.batches, kinds, strict=True) if own is None]
    # By their kind it was decided what goes along with the moments.
    for batch, own in told:
        if kind is not None and own != kind:
            raise ValueError(
                f"kind={kind!r}, but the moments of {batch} were taken with kind={own!r}. Leave "
                f"kind out, or take the moments again with kind={kind!r} if that is right."
            )
        if own != told[0][1]:
            raise ValueError(
                f"the moments of {told[0][0]} were taken with kind={told[0][1]!r}, those of {batch}"
                f" with kind={own!r}. Take the moments of all batches with the one kind that they "
                "were sampled as."
            )
    if kind is None and told and silent:
        raise ValueError(
            f"the moments of {told[0][0]} were taken with kind={told[0][1]!r}, those of "
            f"{silent[0]} without kind=. Pass kind={told[0][1]!r} to plan if it holds for all."
        )
    return told[0][1] if told else kind


def _recorded_powers(gathered: Gathered, powers: Any) -> Any:
    """Return the powers that the user gave here, or with the moments, by label."""
    given = [each.record["power"] for each in gathered.measured]
    told = [
        attributed_power(batch) if power is None else power
        for batch, power in zip(gathered.batches, given, strict=True)
    ]
    if powers is not None:
        check_told_powers(gathered.batches, powers, told)
        return powers
    if all(power is None for power in given):
        return None
    by_label = {batch.label: power for batch, power in zip(gathered.batches, told, strict=True)}
    if missing := [label for label, power in by_label.items() if power is None]:
        raise ValueError(
            f"the moments of batch {brief(missing)} were taken without power=, those of others "
            "with. Pass the powers of all to plan, or take them alike."
        )
    return by_label


def _prior_of(gathered: Gathered, frame: Frame, powers: Powers, covariance: str) -> Any:
    """Return the prior's moments and draws where it counts other than once."""
    is_given = any(each.record["prior_given"] for each in gathered.measured)
    check_prior_used(powers, True if is_given else None)
    if not powers.missing_prior:
        return None, np.zeros(0)
    if not has_prior(gathered):
        refuse_prior_count(powers, gathered.batches, by_moments=True)
    return find_prior(frame, gathered, covariance)


def _pack_plan(flat: Flat, gathered: Gathered, groups: Groups, attrs: dict[str, Any]) -> Plan:
    """Return what `apply` needs at the place of each batch."""
    batches, frame, first = gathered.batches, flat.frame, gathered.measured[0]
    records = [each.record for each in gathered.measured]
    names = frame.layout.names
    dtypes = combine.dtypes_of(batches, names)
    variables = first.groups[schema.VARIABLES_OF_DRAWS][names]
    typed = {name: variables[name].astype(dtypes[name], keep_attrs=True) for name in names}
    stats = shared_items(gathered, "stats")
    if left_out := _left_out(records, stats, batches[0].group):
        attrs[schema.LEFT_OUT] = ", ".join(left_out)
    starts = np.cumsum([0, *(batch.sizes[0] for batch in batches)])[:-1]
    record = {
        "group": batches[0].group,
        "names": names,
        "attrs": attrs,
        "length": combine.kept_length(batches),
        "stats": stats,
        "computed": list(frame.space.deterministic_names),
        "space": frame.space.name,
        "transforms": frame.space.describe(),
        "fingerprints": [each["fingerprint"] for each in records],
        "local": list(flat.local),
        "local_fingerprints": [each["local_fingerprints"] for each in records],
        "local_transforms": {k: v for each in records for k, v in each["local_transforms"].items()},
        "lines": choose_lines([_gains(each) for each in records]),
    }
    data = {"start": ("batch", starts), "value": ("element", frame.constants)}
    return Plan(
        {
            schema.PLAN: xr.Dataset(data, coords={"batch": groups[schema.TRANSFORM]["batch"]}),
            schema.VARIABLES_OF_DRAWS: variables.assign(typed),
            schema.VARIABLES_OF_MERGE: first.groups[schema.VARIABLES_OF_MERGE],
            **groups,
        },
        record,
    )


def _gains(record: Mapping[str, Any]) -> Gains:
    return {(name, image): gain for name, image, gain in record["gains"]}


def _left_out(records: Sequence[Mapping[str, Any]], stats: Sequence[str], group: str) -> list[str]:
    """Return what of the batches is not in their parts; data never are."""
    every = {name for record in records for name in record["groups"]}
    used = {schema.unconstrained(group), schema.SAMPLE_STATS, *DATA_GROUPS}
    left = [name for name in DATA_GROUPS if name in every]
    left += sorted(n for n in every - used if not n.startswith(schema.PREFIX))
    return left + [schema.SAMPLE_STATS] * (schema.SAMPLE_STATS in every and not stats)

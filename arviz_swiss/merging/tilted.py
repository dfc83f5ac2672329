"""Merge batches whose pooled moments are known: draws of tilted distributions after EP rounds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.base.gaussian import (
    Gaussian,
    Moments,
    gaussian,
    map_between,
    moments_of,
    permuted,
)
from arviz_swiss.base.linalg import AffineMap, inverse
from arviz_swiss.base.sites import Site
from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import Container
from arviz_swiss.merging import warn
from arviz_swiss.merging.batches import opened
from arviz_swiss.merging.combine import take_draws
from arviz_swiss.merging.estimate import summarise
from arviz_swiss.merging.match import match
from arviz_swiss.merging.merge import (
    flatten,
    move_all,
    observed_of,
    pack_groups,
    summarise_batches,
)
from arviz_swiss.merging.models import free_variables
from arviz_swiss.merging.powers import TILTED, resolve_powers
from arviz_swiss.merging.records import REDRAWN
from arviz_swiss.merging.shared_steps import describe_origin, pack_settled

METHOD = "swiss"
# How the batches' covariances were estimated.
SCORES = "scores"


def merge_tilted(
    idatas: Mapping[str, Any],
    parameters: Sequence[str],
    pooled: Gaussian,
    sources: Mapping[str, Gaussian],
    sites: Mapping[str, Site],
    model: Any,
    coords: Mapping[str, Any],
) -> Container:
    """Move the batches' draws to the pooled moments, and put local variables side by side.

    `parameters` are the labels of the pooled moments, and of `sources`, those that the batches'
    tilted distributions have by their scores; `sites` are in coordinates that are white by the
    pooled ones; `coords` give the order of groups, as the `model` of one batch does not.
    """
    with opened(idatas, schema.POSTERIOR) as (batches, container):
        powers = resolve_powers(batches, None, None)
        matched = match(batches, None, None, free_variables(model))
        flat = flatten(matched, powers, None, model)._replace(coords=dict(coords))
        places = [list(parameters).index(name) for name in flat.frame.labels]
        pooled = permuted(pooled, places)
        summary = summarise_batches(flat, powers, (), "sample", pooled)
        influence = np.array([_influence(sites[batch.label]) for batch in batches])
        summary = summary._replace(
            diagnostics=summary.diagnostics._replace(influence=influence, expected_error=np.nan)
        )
        warn.warn_left_out(matched, {*flat.frame.space.deterministic_names, *flat.local}, True)
        own = [permuted(sources[batch.label], places) for batch in batches]
        maps = _maps(own, summary.moments, pooled)
        attrs = {schema.METHOD: METHOD, schema.KIND: TILTED}
        groups = pack_groups(flat, summary.moments, move_all(flat, maps), attrs)
        origin = describe_origin(powers, SCORES)
        groups |= pack_settled(flat, powers, summary, maps, observed_of(batches), origin)
        groups[schema.TRANSFORM] = _with_sources(groups[schema.TRANSFORM], own)
        return containers.build(groups, container)


def put_new_draws(
    merged: Container,
    idatas: Mapping[str, Any],
    model: Any,
    coords: Mapping[str, Any],
) -> Container:
    """Return a merged object with draws of its full posterior instead of the batches' moved ones.

    All `idatas` have the same draws of the shared parameters, and of each batch its own variables
    given these. What the batches said of the shared parameters stays.
    """
    contents = containers.read(merged)
    with opened(idatas, schema.POSTERIOR) as (batches, _):
        powers = resolve_powers(batches, None, None)
        matched = match(batches, None, None, free_variables(model))
        flat = flatten(matched, powers, None, model)._replace(coords=dict(coords))
        moments = [summarise(batch, flat.frame, "sample") for batch in batches]
        pooled = gaussian(moments[0].mean, moments[0].covariance)
        attrs = {schema.METHOD: REDRAWN, schema.KIND: TILTED}
        made = pack_groups(flat, moments, take_draws(batches[0], flat.frame), attrs)
        labels = flat.frame.labels.tolist()
    kept = {
        name: group
        for name, group in contents.groups.items()
        if name.startswith(schema.PREFIX) and name != schema.LOCAL_MAPS
    }
    maps = kept[schema.TRANSFORM].drop_vars(["scale", "target"])
    places = [labels.index(name) for name in maps["parameter"].values.astype(str)]
    new = permuted(pooled, places)
    kept[schema.TRANSFORM] = maps.assign(
        pooled_mean=maps["pooled_mean"].copy(data=new.mean),
        pooled_covariance=maps["pooled_covariance"].copy(data=new.covariance),
    )
    return containers.build(made | kept, contents.container)


def _maps(
    sources: Sequence[Gaussian], samples: Sequence[Moments], pooled: Gaussian
) -> list[AffineMap]:
    """Return maps of the batches to the pooled moments, after which all draws have just these.

    From what their scores tell the batches' maps are next to nothing. What noise the draws of all
    have left in mean and covariance, one map of all takes off: maps by each batch's own sample
    would move its draws by the noise of few, which weights would have to undo.
    """
    scales = [map_between(source, pooled) for source in sources]
    means, covariances = [], []
    for scale, source, sample in zip(scales, sources, samples, strict=True):
        means.append(scale @ (sample.mean - source.mean) + pooled.mean)
        covariances.append(scale @ sample.covariance @ scale.T)
    counts = np.array([sample.draws for sample in samples])
    everyone = moments_of(np.array(means), np.array(covariances), counts / counts.sum())
    last = map_between(everyone, pooled)
    target = last @ (pooled.mean - everyone.mean) + pooled.mean
    return [
        AffineMap(last @ scale, source.mean, target)
        for scale, source in zip(scales, sources, strict=True)
    ]


def _with_sources(maps: xr.Dataset, sources: Sequence[Gaussian]) -> xr.Dataset:
    """Say where the maps start: not at the moments of the samples."""
    moments = {
        "mean": [source.mean for source in sources],
        "covariance": [source.covariance for source in sources],
    }
    return maps.assign({k: maps[k].copy(data=np.array(v)) for k, v in moments.items()})


def _influence(site: Site) -> float:
    """Return how far the pooled mean goes if the site is left out, in posterior sds."""
    rest = np.eye(len(site.shift)) - site.precision
    try:
        return float(np.linalg.norm(inverse(rest) @ site.shift))
    except np.linalg.LinAlgError:
        return np.inf

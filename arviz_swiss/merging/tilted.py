"""Merge batches whose pooled moments are known: draws of tilted distributions after EP rounds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arviz_swiss.base.gaussian import Gaussian, permuted
from arviz_swiss.base.linalg import inverse
from arviz_swiss.base.sites import Site
from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import Container
from arviz_swiss.merging import combine, warn
from arviz_swiss.merging.batches import opened
from arviz_swiss.merging.match import match
from arviz_swiss.merging.merge import flatten, pack_groups, summarise_batches
from arviz_swiss.merging.models import free_variables
from arviz_swiss.merging.powers import TILTED, resolve_powers
from arviz_swiss.methods.registry import find

METHOD = "swiss"


def merge_tilted(
    idatas: Mapping[str, Any],
    parameters: Sequence[str],
    pooled: Gaussian,
    sites: Mapping[str, Site],
    model: Any,
    coords: Mapping[str, Any],
) -> Container:
    """Move the batches' draws to the pooled moments, and put local variables side by side.

    `parameters` are the labels of the pooled moments; `sites` are in coordinates that are white by
    these; `coords` give the order of groups, as the `model` of one batch does not.
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
        given = combine.rescale(summary.moments, pooled, summary.spectra, powers.weights, None)
        draws = combine.move_batches(batches, flat.frame, find(METHOD).combine(given))
        attrs = {schema.METHOD: METHOD, schema.KIND: TILTED}
        groups = pack_groups(flat, powers, summary, draws, attrs)
        groups[schema.TRANSFORM].attrs = {
            schema.COVARIANCE_ESTIMATOR: "sample",
            schema.KIND_FROM: powers.kind_from,
        }
        return containers.build(groups, container)


def _influence(site: Site) -> float:
    """Return how far the pooled mean goes if the site is left out, in posterior sds."""
    rest = np.eye(len(site.shift)) - site.precision
    try:
        return float(np.linalg.norm(inverse(rest) @ site.shift))
    except np.linalg.LinAlgError:
        return np.inf

"""What a merge comes to, from the batches' moments alone: pooled moments, diagnostics, maps."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from arviz_swiss.base import linalg
from arviz_swiss.base.bias import prior_error
from arviz_swiss.base.gaussian import Gaussian, Moments
from arviz_swiss.base.linalg import AffineMap, Spectrum
from arviz_swiss.data import schema
from arviz_swiss.data.containers import Groups
from arviz_swiss.merging import combine, pack, warn
from arviz_swiss.merging.batches import Batch
from arviz_swiss.merging.diagnostics import LOOKS_INFLATED, MomentDiagnostics, diagnose_moments
from arviz_swiss.merging.elements import element_coords
from arviz_swiss.merging.estimate import Estimator, Frame
from arviz_swiss.merging.labels import positions_kept
from arviz_swiss.merging.local import LocalSpace
from arviz_swiss.merging.match import Matched
from arviz_swiss.merging.origin import check_distinct, check_one_run
from arviz_swiss.merging.powers import TILTED, Powers, describe_rest, keep, resolve_powers
from arviz_swiss.methods.registry import Given, Method


class Chosen(NamedTuple):
    """The batches that are merged, their powers, and the labels of those that are dropped."""

    batches: list[Batch]
    powers: Powers
    dropped: list[str]

    @property
    def total(self) -> int:
        """Number of batches, with those that are dropped."""
        return len(self.batches) + len(self.dropped)


class Flat(NamedTuple):
    """Matched batches, the frame of their draws, what goes along by dimension, a model's labels."""

    matched: Matched
    frame: Frame
    local: dict[str, str]
    local_space: LocalSpace
    coords: dict[str, Any]


class Summary(NamedTuple):
    """Moments of the batches, of the prior where it is needed, and of the merged posterior."""

    moments: list[Moments]
    prior: Moments | None
    pooled: Gaussian
    spectra: list[Spectrum]
    diagnostics: MomentDiagnostics


def choose_batches(batches: Sequence[Batch], kind: str | None, powers: Any, drop: Any) -> Chosen:
    """Return the batches that are not dropped, with their powers; refuse those of two runs."""
    every = resolve_powers(batches, kind, powers)
    positions = positions_kept(drop, [batch.label for batch in batches])
    kept = [batches[position] for position in positions]
    check_one_run(kept)
    remaining = set(positions)
    dropped = [batch.label for batch in batches if batch.position not in remaining]
    return Chosen(kept, keep(every, positions), dropped)


def pool_summary(
    flat: Flat,
    powers: Powers,
    moments: list[Moments],
    prior: tuple[Moments | None, np.ndarray],
    fingerprint: Callable[[Batch], Any],
    pooled: Gaussian | None = None,
) -> Summary:
    """Pool the batches' moments, and tell what they say about the merge.

    `prior` is its moments and draws, `fingerprint` tells the draws of one batch from others. Where
    the moments of the merged posterior are known already, these are taken for `pooled`.
    """
    if flat.matched.batches[0].group != schema.PRIOR:
        check_distinct(flat.matched.batches, moments, fingerprint)
    prior_moments, prior_draws = prior
    pooled = pooled or combine.pool_batches(moments, powers, prior_moments)
    spectra = [linalg.spectrum(pooled.factor, batch.covariance) for batch in moments]
    diagnostics = diagnose_moments(
        moments,
        pooled,
        spectra,
        powers.scatter(np.array([batch.effective for batch in moments])),
        powers.stands_for,
        alone=prior_moments is None and powers.kind != TILTED,
    )
    if prior_moments is not None:
        error = prior_error(prior_draws, prior_moments, pooled, powers.missing_prior)
        diagnostics = diagnostics._replace(prior_error=error)
    return Summary(moments, prior_moments, pooled, spectra, diagnostics)


def warn_of(
    flat: Flat,
    powers: Powers,
    summary: Summary,
    covariance: Estimator,
    recipe: Method,
    has_model: bool,
    count: int,
) -> None:
    """Warn of what makes the merged posterior less than it seems; `count` is with dropped ones."""
    batches, diagnostics = flat.matched.batches, summary.diagnostics
    along = {*flat.frame.space.deterministic_names, *flat.local}
    warn.warn_left_out(flat.matched, along, has_model)
    warn.warn_few_draws(diagnostics, powers.weights, covariance)
    if summary.prior is not None:
        warn.warn_prior_shape(diagnostics.prior_error, powers.missing_prior)
        if covariance == "sample":
            warn.warn_few_prior_draws(summary.prior, summary.pooled, powers.missing_prior)
    doubt = warn.warn_kind(diagnostics, powers.sampled, powers.kind_from, count)
    if doubt != LOOKS_INFLATED:
        warn.warn_heterogeneity(diagnostics, batches, summary.moments, powers.sampled, flat.frame)
    glances = [batch.glance for batch in summary.moments if batch.glance is not None]
    warn.warn_poor_batches(batches, glances, flat.frame, powers.kind, recipe.any_shape)


def give(summary: Summary, powers: Powers, factors: np.ndarray | None) -> Given:
    """Return what the method gets of the moments."""
    return combine.rescale(
        summary.moments, summary.pooled, summary.spectra, powers.weights, factors
    )


def describe_merge(chosen: Chosen, recipe: Method, factors: np.ndarray | None) -> dict[str, Any]:
    """Return the attributes that say how the batches are merged."""
    powers = chosen.powers
    attrs: dict[str, Any] = {schema.METHOD: recipe.name, schema.KIND: powers.kind}
    if factors is not None:
        attrs[schema.RESCALED] = f"from {powers.kind} to {recipe.expects}"
    if chosen.dropped:
        attrs |= {schema.DROPPED: chosen.dropped, schema.STANDS_FOR: describe_rest(powers)}
    return attrs


def pack_settled(
    flat: Flat,
    powers: Powers,
    summary: Summary,
    maps: Sequence[AffineMap] | None,
    observed: xr.DataArray | None,
    attrs: Mapping[str, Any],
) -> Groups:
    """Return the groups of a merged object that tell what was done to each batch, and how well."""
    batches, frame = flat.matched.batches, flat.frame
    coords = {
        "batch": np.array([batch.label for batch in batches]),
        "parameter": frame.labels,
        "variable": ("parameter", frame.owners),
    }
    elements = element_coords(frame.constrained, frame.layout, frame.space.transforms)
    transform = pack.pack_transform(
        batches, summary.moments, maps, summary.pooled, powers, observed, coords | elements
    )
    return {
        schema.TRANSFORM: transform.assign_attrs(attrs),
        schema.DIAGNOSTICS: pack.pack_diagnostics(summary.diagnostics, coords),
    }


def describe_origin(powers: Powers, covariance: Estimator) -> dict[str, str]:
    """Return the attributes that say where moments and powers come from."""
    return {
        schema.COVARIANCE_ESTIMATOR: "own" if callable(covariance) else covariance,
        schema.KIND_FROM: powers.kind_from,
    }

"""Weights of draws of a product of interpolated densities, which is recorded with them."""

import numpy as np
import xarray as xr
from scipy.special import logsumexp

from arviz_swiss.base import weights
from arviz_swiss.correcting.certificate import Thinned, Weighed, write_certificate
from arviz_swiss.correcting.evaluation import Evaluate
from arviz_swiss.correcting.full_posterior import all_terms
from arviz_swiss.correcting.provenance import Provenance
from arviz_swiss.data import schema
from arviz_swiss.data.containers import SAMPLE_DIMS
from arviz_swiss.data.statistics import pareto_smoothed
from arviz_swiss.merging.merged import Merged


def has_product(opened: Merged) -> bool:
    """Tell draws of a product of interpolated densities, which they have not been moved from."""
    return schema.PRODUCT in opened.groups


def certify_product(
    opened: Merged, evaluate: Evaluate, labels: list[str], draws: int, rng: np.random.Generator
) -> xr.Dataset:
    """Return the certificate of draws by the full posterior over the density that they are of."""
    chains, length = opened.sizes
    positions = weights.spread_evenly(length, -(-draws // chains), rng)
    points = opened.rows(np.arange(chains)[:, None], positions)
    recorded = opened.groups[schema.PRODUCT]["log_density"].transpose(*SAMPLE_DIMS).values
    ratios = all_terms(evaluate, labels, points).full - recorded[:, positions].ravel()
    if np.isfinite(ratios).any():
        ratios = ratios - logsumexp(ratios) + np.log(ratios.size)
    log_weights, khat = pareto_smoothed(ratios)
    nothing = np.full(len(opened.labels), np.nan)
    return write_certificate(
        opened,
        Thinned(np.arange(chains), positions, np.zeros(0, int), points, {}, {}),
        Weighed(ratios, log_weights, khat, nothing, 0.0),
        Provenance(nothing, nothing, ""),
        {},
        rng,
    )

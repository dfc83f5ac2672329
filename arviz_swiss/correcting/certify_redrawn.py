"""Weights of draws that `refine` made anew, by the exact density of the shared parameters."""

import numpy as np
import xarray as xr
from scipy.special import logsumexp

from arviz_swiss.base import weights
from arviz_swiss.correcting.certificate import Thinned, Weighed, write_certificate
from arviz_swiss.correcting.certify_local import limit_integrals, other_prior
from arviz_swiss.correcting.evaluation import Evaluate
from arviz_swiss.correcting.marginal import Marginalise, log_full
from arviz_swiss.correcting.provenance import Provenance
from arviz_swiss.data.containers import SAMPLE_DIMS
from arviz_swiss.data.statistics import pareto_smoothed
from arviz_swiss.merging.merged import Merged

# Sd of log ratios of the density now and then: integrals leave less, and another model far more.
MOST_UNLIKE = 1.0


def certify_redrawn(
    opened: Merged, evaluate: Evaluate, draws: int, rng: np.random.Generator
) -> xr.Dataset:
    """Return the certificate of newly made draws.

    They were drawn by a density that is recorded with them. Its ratio to the one given now, by
    integrals of other draws, is their weight: equal but for what noise the integrals leave, unless
    the models are other ones. k-hat is that of the weights by which they were made, if larger.
    """
    chains, length = opened.sizes
    positions = weights.spread_evenly(length, -(-draws // chains), rng)
    points = opened.rows(np.arange(chains)[:, None], positions)
    factor = np.linalg.cholesky(opened.pooled.covariance)
    none = np.empty((0, points.shape[1]))
    answers = evaluate(
        {
            label: [Marginalise(points, none, opened.pooled.mean, factor, int(rng.integers(2**31)))]
            for label in opened.labels
        }
    )
    by_label = {label: answer for label, (answer,) in answers.items()}
    full = log_full(by_label)
    made = opened.redrawn
    recorded = made["log_density"].transpose(*SAMPLE_DIMS).values[:, positions]
    ratios = full.values - recorded.ravel()
    ratios = np.where(np.isnan(ratios), -np.inf, ratios)
    known = np.isfinite(ratios)
    is_other = not known.all() or ratios.std() > MOST_UNLIKE
    if known.any():
        ratios = ratios - logsumexp(ratios) + np.log(ratios.size)
    log_weights, khat = pareto_smoothed(ratios)
    count = len(opened.labels)
    nothing = np.full(count, np.nan)
    doubt = other_prior(by_label)
    if is_other and not doubt:
        doubt = "the draws are not from the densities given for them"
    certificate = write_certificate(
        opened,
        Thinned(np.arange(chains), positions, np.zeros(0, int), points, {}, {}),
        Weighed(ratios, log_weights, max(khat, float(made["khat"])), nothing, 0.0),
        Provenance(nothing, nothing, doubt),
        {
            "group_khat": ("batch_label", [by_label[k].group_khat for k in opened.labels]),
            "integral_noise": ((), float(np.sqrt(np.mean(full.noise**2)))),
        },
        rng,
    )
    return limit_integrals(certificate)

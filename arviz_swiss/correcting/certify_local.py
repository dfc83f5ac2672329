"""Weights of a merge whose batches have variables of their own, these integrated out by group."""

from collections.abc import Mapping

import numpy as np
import xarray as xr
from scipy.special import logsumexp

from arviz_swiss.base.linalg import cholesky
from arviz_swiss.correcting.certificate import Thinned, Weighed, batch_khat, write_certificate
from arviz_swiss.correcting.evaluation import Evaluate
from arviz_swiss.correcting.marginal import Marginalise, Marginals
from arviz_swiss.correcting.provenance import Provenance
from arviz_swiss.data import schema
from arviz_swiss.data.statistics import pareto_smoothed
from arviz_swiss.merging.merged import Merged

# Of a parameter, beyond twice its error: more than this no Gaussian can stand for.
SKEWED = 0.3


def certify_tilted(
    opened: Merged, evaluate: Evaluate, thinned: Thinned, rng: np.random.Generator
) -> xr.Dataset:
    """Return the certificate of draws that were sampled from the batches' tilted distributions.

    A draw's weight is the full posterior's density of the shared parameters over that of the tilted
    distribution it was drawn from, both with each group's variables integrated out. The latter are
    known up to a constant, so weights are relative to the mean of their batch's.
    """
    factor = cholesky(opened.pooled.covariance)
    seed = int(rng.integers(2**31))
    requests = {
        label: [
            Marginalise(
                thinned.merged,
                thinned.original[label][thinned.owners == at],
                opened.pooled.mean,
                factor,
                seed + at,
            )
        ]
        for at, label in enumerate(opened.labels)
    }
    answers = {label: answer for label, (answer,) in evaluate(requests).items()}
    weighed, noise = _weigh(opened, thinned, answers)
    nothing = np.full(len(opened.labels), np.nan)
    beside = {
        "group_khat": ("batch_label", [answers[label].group_khat for label in opened.labels]),
        "integral_noise": ((), noise),
    }
    return write_certificate(
        opened,
        thinned,
        weighed,
        Provenance(nothing, nothing, _doubt(opened, answers)),
        beside,
        rng,
        skewed=_skewed(opened),
    )


def _weigh(
    opened: Merged, thinned: Thinned, answers: Mapping[str, Marginals]
) -> tuple[Weighed, float]:
    """Return the weights, and the noise that the integrals leave in their logs."""
    first = answers[opened.labels[0]]
    full = first.merged_prior + sum(answer.merged.values for answer in answers.values())
    variance = np.sum([answer.merged.noise**2 for answer in answers.values()], axis=0)
    ratios, khats = np.empty(len(full)), []
    for at, label in enumerate(opened.labels):
        mine, answer = thinned.owners == at, answers[label]
        share = 1 / float(opened.maps["power"][at])
        tilted = answer.own.values + share * answer.own_prior
        tilted = tilted + _log_cavity(opened, at, thinned.original[label][mine])
        own = full[mine] - tilted
        own = np.where(np.isfinite(own), own, -np.inf)
        khats.append(batch_khat(own))
        total = logsumexp(own)
        ratios[mine] = own - total + np.log(own.size) if np.isfinite(total) else own
        variance[mine] += answer.own.noise**2
    log_weights, khat = pareto_smoothed(ratios)
    known = variance[np.isfinite(variance)]
    noise = float(np.sqrt(known.mean())) if known.size else np.inf
    return Weighed(ratios, log_weights, khat, np.array(khats), 0.0), noise


def _log_cavity(opened: Merged, position: int, points: np.ndarray) -> np.ndarray:
    """Return the log density of what the others said of the parameters to a batch."""
    sites = opened.groups[schema.SITES].isel(batch=position)
    away = points - sites["cavity_mean"].values
    precision, shift = sites["cavity_precision"].values, sites["cavity_shift"].values
    return away @ shift - np.sum(away * (away @ precision), axis=1) / 2


def _skewed(opened: Merged) -> list[str]:
    """Return the parameters that are skewed, by the batches' scores."""
    sites = opened.groups[schema.SITES]
    beyond = np.abs(sites["skewness"].values) - 2 * sites["skewness_error"].values
    return opened.parameters[beyond > SKEWED].tolist()


def _doubt(opened: Merged, answers: Mapping[str, Marginals]) -> str:
    """Say what speaks against the densities: models of other data than were sampled."""
    first = opened.labels[0]
    expected = answers[first].merged_prior
    for label, answer in answers.items():
        if not np.allclose(answer.merged_prior, expected, rtol=1e-6, atol=1e-6):
            return f'the prior of batch "{label}" differs from that of batch "{first}"'
    return ""

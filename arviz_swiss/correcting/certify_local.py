"""Weights of a merge whose batches have variables of their own, these integrated out by group."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr
from scipy.special import logsumexp

from arviz_swiss.base.linalg import cholesky
from arviz_swiss.correcting.certificate import (
    NOTABLE,
    Thinned,
    Weighed,
    batch_khat,
    write_certificate,
)
from arviz_swiss.correcting.evaluation import Evaluate
from arviz_swiss.correcting.lines import Reach, doubtful_positions, points_of_lines, reach_along
from arviz_swiss.correcting.marginal import Marginalise, Marginals, log_full
from arviz_swiss.correcting.provenance import Provenance
from arviz_swiss.data import schema
from arviz_swiss.data.statistics import pareto_smoothed
from arviz_swiss.merging.merged import Merged
from arviz_swiss.merging.records import NOT_CERTIFIED, Verdict, skewed_parameters

# Variance of the log of a tilted density over its Gaussian: that of skewed ones is far less.
MOST_UNLIKE = 1.0
# Noise of log weights, and k-hat of any of hundreds of groups, beyond which weights tell nothing.
MOST_NOISE, WORST_GROUP = 0.5, 1.0


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
    sites = opened.groups[schema.SITES]
    doubtful = doubtful_positions(sites["skewness"].values, sites["skewness_error"].values)
    beyond = points_of_lines(opened.pooled, doubtful)
    requests = {
        label: [
            Marginalise(
                np.concatenate([thinned.merged, beyond]),
                thinned.own[label],
                opened.pooled.mean,
                factor,
                seed + at,
            )
        ]
        for at, label in enumerate(opened.labels)
    }
    all_answers = {label: answer for label, (answer,) in evaluate(requests).items()}
    count = len(thinned.merged)
    answers = {label: answer.at(slice(count)) for label, answer in all_answers.items()}
    lines = log_full({k: answer.at(slice(count, None)) for k, answer in all_answers.items()})
    reaches = reach_along(opened.parameters[doubtful].tolist(), *lines)
    tilted = {
        label: _log_tilted(opened, thinned, at, answers[label])
        for at, label in enumerate(opened.labels)
    }
    weighed, noise = _weigh(opened, thinned, answers, tilted)
    nothing = np.full(len(opened.labels), np.nan)
    beside = {
        "group_khat": ("batch_label", [answers[label].group_khat for label in opened.labels]),
        "integral_noise": ((), noise),
    }
    certificate = write_certificate(
        opened,
        thinned,
        weighed,
        Provenance(nothing, nothing, _doubt(opened, thinned, answers, tilted)),
        beside,
        rng,
        skewed=skewed_parameters(sites),
    )
    return limit_integrals(_doubting_reach(certificate, reaches))


def _log_tilted(opened: Merged, thinned: Thinned, position: int, answer: Marginals) -> np.ndarray:
    """Return the log density of a batch's tilted distribution at its own draws."""
    label = opened.labels[position]
    own = thinned.own[label]
    share = 1 / float(opened.maps["power"][position])
    values = answer.own.values + share * answer.own_prior + _log_cavity(opened, position, own)
    if not np.isfinite(values).all():
        raise ValueError(
            f'batch "{label}": some of its own draws have no density. The model given is not the '
            "one that the batch was sampled from."
        )
    return values


def _weigh(
    opened: Merged,
    thinned: Thinned,
    answers: Mapping[str, Marginals],
    tilted: Mapping[str, np.ndarray],
) -> tuple[Weighed, float]:
    """Return the weights, and the noise that the integrals leave in their logs."""
    full, full_noise = log_full(answers)
    variance = full_noise**2
    ratios, khats = np.empty(len(full)), []
    for at, label in enumerate(opened.labels):
        mine, answer = thinned.owners == at, answers[label]
        own = full[mine] - tilted[label]
        own = np.where(np.isnan(own), -np.inf, own)
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


def _doubt(
    opened: Merged,
    thinned: Thinned,
    answers: Mapping[str, Marginals],
    tilted: Mapping[str, np.ndarray],
) -> str:
    """Say what speaks against the densities: other priors, or draws that are not theirs.

    The scores told the moments of each batch's tilted distribution when it was sampled. A density
    that is far from the Gaussian of these, where the batch's own draws are, is another one.
    """
    if differs := other_prior(answers):
        return differs
    for at, label in enumerate(answers):
        batch = opened.maps.isel(batch=at)
        away = thinned.own[label] - batch["mean"].values
        white = np.linalg.solve(cholesky(batch["covariance"].values), away.T)
        ratios = tilted[label] + np.sum(white**2, axis=0) / 2
        if ratios.var() > MOST_UNLIKE:
            return f'the draws of batch "{label}" are not from the density given for it'
    return ""


def other_prior(answers: Mapping[str, Marginals]) -> str:
    """Say which batch's model has another prior of the shared parameters; nothing if none has."""
    first, *others = answers
    expected = answers[first].merged_prior
    for label in others:
        if not np.allclose(answers[label].merged_prior, expected, rtol=1e-6, atol=1e-6):
            return f'the prior of batch "{label}" differs from that of batch "{first}"'
    return ""


def _doubting_reach(certificate: xr.Dataset, reaches: Sequence[Reach]) -> xr.Dataset:
    """Certify nothing that reaches further than its draws, where weights cannot see it."""
    # not "beyond", so that what is not known does not pass
    far = [r for r in reaches if not max(abs(r.shift), abs(r.stretch)) <= NOTABLE]
    if not far or certificate.attrs["status"] == NOT_CERTIFIED:
        return certificate
    unknown = [reach.parameter for reach in far if np.isnan(reach.shift)]
    if unknown:
        return certificate.assign_attrs(
            Verdict(
                NOT_CERTIFIED,
                f"the posterior of {', '.join(unknown)} may be skewed, and integrals over the "
                "variables of groups are not known well enough to tell",
                "write these variables so that they are nearer to normal given the shared ones",
            )._asdict()
        )
    worst = max(far, key=lambda reach: max(abs(reach.shift), abs(reach.stretch)))
    names = ", ".join(reach.parameter for reach in far)
    verdict = Verdict(
        NOT_CERTIFIED,
        f"the posterior of {names} is far from Gaussian where it is merged: along "
        f"{worst.parameter} its mean is {abs(worst.shift):.2g} sds off and its sd "
        f"{abs(worst.stretch):.0%}, as where a scale may be zero",
        "trust the other parameters, and of these no more than their rough place; use fewer and "
        "larger batches, or sample all rows at once",
    )
    return certificate.assign_attrs(verdict._asdict())


def limit_integrals(certificate: xr.Dataset) -> xr.Dataset:
    """Certify nothing by integrals that are not known well enough."""
    noise, khats = float(certificate["integral_noise"]), certificate["group_khat"]
    worst = int(np.argmax(khats.values))  # NaN, which nothing is known of, before all numbers
    khat = float(khats[worst])
    if noise <= MOST_NOISE and khat <= WORST_GROUP:
        return certificate
    where = (
        f'as in batch "{khats["batch_label"].values[worst]}", ' if not khat <= WORST_GROUP else ""
    )
    verdict = Verdict(
        NOT_CERTIFIED,
        f"integrals over the variables of some groups, {where}are not known well enough to weigh "
        f"draws by (k-hat {khat:.2f}, noise {noise:.2g})",
        "write these variables so that they are nearer to normal given the shared ones",
    )
    return certificate.assign_attrs(verdict._asdict())

"""The full posterior by its densities: one prior times all likelihoods."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from arviz_swiss.correcting.evaluation import (
    OUTSIDE,
    Evaluate,
    Moved,
    NotFinite,
    OutOfBounds,
    Request,
)
from arviz_swiss.correcting.provenance import edges

# Points at which priors are compared.
PROBES = 3


class Scores(NamedTuple):
    """Gradients of the prior's log density and of each likelihood's: (points, parameters)."""

    prior: np.ndarray
    likelihoods: dict[str, np.ndarray]


def full_score(scores: Scores) -> np.ndarray:
    """Return the gradient of one prior and all likelihoods."""
    full = scores.prior + sum(scores.likelihoods.values())
    if not np.isfinite(full).all():
        raise NotFinite(f"the full posterior's gradient is not finite at some points. {OUTSIDE}")
    return full


def all_scores(
    evaluate: Evaluate,
    labels: Sequence[str],
    points: np.ndarray,
    parameters: Iterable[str],
    compare: bool = True,
) -> Scores:
    """Return the gradients that make up the full posterior's; errors name the parameters.

    Priors are compared if so wanted: that once is enough.
    """
    requests = {label: [Request("grad_log_likelihood", points)] for label in labels}
    requests[labels[0]] += [Request("grad_log_prior", points), Request("log_prior", points)]
    for label in labels[1:] if compare else ():
        requests[label].append(Request("grad_log_prior", points[:PROBES]))
    answers = evaluate(requests)
    _check_inside(points, answers[labels[0]][2], parameters)
    prior = answers[labels[0]][1]
    for label in labels[1:] if compare else ():
        check_same_prior(labels[0], label, prior[:PROBES], answers[label][1])
    return Scores(prior, {label: answers[label][0] for label in labels})


def _check_inside(points: np.ndarray, log_priors: np.ndarray, parameters: Iterable[str]) -> None:
    """Refuse points outside the support: a density that is cut off has a mean score of its own."""
    outside = ~np.isfinite(log_priors)
    if outside.any():
        names = ", ".join(np.array(list(parameters))[edges(points, log_priors)])
        raise OutOfBounds(
            f"{outside.sum()} of {outside.size} merged draws are outside the bounds of {names}. A "
            "density that ends before it is zero has another mean score than zero, by which refine "
            "would go wrong. Merge in unconstrained space, with transforms= or model=, or leave "
            "the merge as it is and certify it."
        )


class Terms(NamedTuple):
    """Log densities of the prior, (points,), and of each likelihood, (batch, points)."""

    prior: np.ndarray
    likelihoods: np.ndarray

    @property
    def full(self) -> np.ndarray:
        """The full posterior's."""
        return self.prior + self.likelihoods.sum(axis=0)


def all_terms(evaluate: Evaluate, labels: Sequence[str], points: np.ndarray) -> Terms:
    """Return the log densities that make up the full posterior's, minus infinity where none is."""
    requests = {label: [Request("log_likelihood", points, anywhere=True)] for label in labels}
    for position, label in enumerate(labels):
        where = points if position == 0 else points[:PROBES]
        requests[label].append(Request("log_prior", where, anywhere=True))
    answers = evaluate(requests)
    prior = answers[labels[0]][1]
    for label in labels[1:]:
        probes = prior[:PROBES], answers[label][1]
        check_same_prior(labels[0], label, *map(_relative, probes))
    return Terms(prior, np.array([answers[label][0] for label in labels]))


class LogDensities(NamedTuple):
    """Log densities of the full posterior, (draws,), and of the draws' sources, (source, draws).

    Sources are the batches that any of the draws comes from, in their order. `scores` are the
    gradients of every batch's log density at its own draws; `beside` is the full posterior's log
    density at other points.
    """

    full: np.ndarray
    sources: np.ndarray
    scores: list[np.ndarray]
    beside: np.ndarray


def log_densities(
    evaluate: Evaluate,
    labels: Sequence[str],
    merged: np.ndarray,
    original: Mapping[str, np.ndarray | Moved],
    own: Mapping[str, np.ndarray],
    powers: Mapping[str, tuple[float, float]],
    beside: np.ndarray,
) -> LogDensities:
    """Return the log densities that importance weights need.

    `merged` are draws of batches, `original` all of them moved back by the inverse of the map of
    each batch that any comes from; `own` are every batch's own draws, moved back; `powers` those of
    each batch's likelihood and prior; `beside` other points where the full posterior is wanted.
    """
    wanted = {}
    for position, label in enumerate(labels):
        is_first, moved_back = position == 0, original.get(label, merged[:0])
        wanted[label] = {
            "full": Request("log_likelihood", merged),
            "full_prior": Request("log_prior", merged if is_first else merged[:PROBES]),
            "likelihood": Request("log_likelihood", moved_back),
            "prior": Request("log_prior", moved_back),
            "likelihood_score": Request("grad_log_likelihood", own[label]),
            "prior_score": Request("grad_log_prior", own[label]),
            "beside": Request("log_likelihood", beside, anywhere=True),
            "beside_prior": Request("log_prior", beside if is_first else beside[:0], anywhere=True),
        }
    given = evaluate({label: list(requests.values()) for label, requests in wanted.items()})
    answers = {label: dict(zip(wanted[label], given[label], strict=True)) for label in labels}
    first = answers[labels[0]]
    for label in labels[1:]:
        probes = first["full_prior"][:PROBES], answers[label]["full_prior"]
        check_same_prior(labels[0], label, *map(_relative, probes))
    sources, scores = [], []
    for label in labels:
        (power, prior_power), answer = powers[label], answers[label]
        if label in original:
            log_prior = prior_power * answer["prior"]
            sources.append(power * answer["likelihood"] + log_prior)
        prior_score = prior_power * answer["prior_score"]
        scores.append(power * answer["likelihood_score"] + prior_score)
    return LogDensities(
        first["full_prior"] + sum(answer["full"] for answer in answers.values()),
        np.array(sources),
        scores,
        first["beside_prior"] + sum(answer["beside"] for answer in answers.values()),
    )


def _relative(values: np.ndarray) -> np.ndarray:
    """Return log densities without their constant; zero where there is none."""
    finite = np.isfinite(values)
    return np.where(finite, values, 0.0) - (values[finite][0] if finite.any() else 0.0) * finite


def check_same_prior(first: str, other: str, expected: np.ndarray, found: np.ndarray) -> None:
    """Refuse a prior that differs from that of the first batch."""
    if not np.allclose(found, expected, rtol=1e-6, atol=1e-6 * (1 + np.abs(expected).max())):
        raise ValueError(
            f'the prior of batch "{other}" differs from that of batch "{first}": '
            f"{np.round(np.ravel(found)[:3], 6).tolist()} instead of "
            f"{np.round(np.ravel(expected)[:3], 6).tolist()}. The full posterior counts one prior "
            "that all batches share, so all densities must have the same, not raised to a power."
        )

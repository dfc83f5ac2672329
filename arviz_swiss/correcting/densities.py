"""The batches' log densities: matched to the batches, and evaluated here or by an executor.

A batch's density is a plain PyMC model of the batch (not a tempered one), or any object with the
methods of `BatchDensity`. The full posterior is one batch's prior times all batches' likelihoods.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np

from arviz_swiss.correcting.provenance import edges
from arviz_swiss.data.layout import Layout
from arviz_swiss.merging.labels import are_shuffled, describe
from arviz_swiss.merging.models import is_model, model_density, plain_model
from arviz_swiss.parallel.progress import Bar

METHODS = ("log_prior", "log_likelihood", "grad_log_prior", "grad_log_likelihood")
# A density of n rows holds several (points, n) arrays.
POINTS_AT_ONCE = 100
PROBES = 3


class BatchDensity(Protocol):
    """What is asked of a batch's density.

    Every method takes points as a (points, parameters) array, in the space of the merge and in the
    order of the coordinate `parameter` of the merged object's group `swiss_transform`. Densities
    are those in that space, Jacobians of the prior included; constants may be left out.
    """

    def log_prior(self, x: np.ndarray) -> np.ndarray:
        """Return the log density of the prior, not raised to any power: (points,)."""

    def log_likelihood(self, x: np.ndarray) -> np.ndarray:
        """Return the log likelihood of the batch's data, not raised to any power: (points,)."""

    def grad_log_prior(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient of `log_prior`: (points, parameters)."""

    def grad_log_likelihood(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient of `log_likelihood`: (points, parameters)."""


class MergeSpace(NamedTuple):
    """What a PyMC model must know of the space of the merge to give its density there.

    `constrained` and `unconstrained` are a few draws by variable, without sample dimensions other
    than the first; `constants` a whole vector of parameters, of which only `free` ones vary. `own`
    is the layout of the variables on their own scale.
    """

    layout: Layout
    own: Layout
    transformed: tuple[str, ...]
    free: np.ndarray
    constants: np.ndarray
    constrained: dict[str, np.ndarray]
    unconstrained: dict[str, np.ndarray]


class Request(NamedTuple):
    """One method of a batch's density, and the points where it is wanted."""

    method: str
    points: np.ndarray


class NotFinite(ValueError):
    """A density or gradient is NaN or infinite where it must not be."""


class OutOfBounds(ValueError):
    """Points lie outside the support of a density."""


class EvaluationFailed(RuntimeError):
    """A method of a density raised an error."""


class Task(NamedTuple):
    """What travels to a worker: the requests, and the density unless the worker has it already."""

    session: str
    label: str
    density: Any
    space: MergeSpace | None
    requests: Sequence[Request]


Evaluate = Callable[[Mapping[str, Sequence[Request]]], dict[str, list[np.ndarray]]]

# The densities of the present session that this process has, by label.
_kept: dict[str, dict[str, Any]] = {}


def match_densities(densities: Any, labels: Sequence[str], kind: str) -> dict[str, Any]:
    """Return one density a batch, by label, each a PyMC model or an object with all methods.

    Parameters
    ----------
    densities : sequence, or mapping of label to density
    labels : sequence of str
        The batches' labels, in order.
    kind : str
        What the batches were sampled from; named in errors.
    """
    if isinstance(densities, Mapping):
        by_label = {str(label): density for label, density in densities.items()}
        if set(by_label) != set(labels):
            raise ValueError(
                f"densities has batches {', '.join(by_label)}; the merged object has "
                f"{', '.join(labels)}."
            )
        matched = {label: by_label[label] for label in labels}
    elif isinstance(densities, Sequence) and not isinstance(densities, str):
        if len(densities) != len(labels):
            raise ValueError(
                f"densities has {len(densities)} elements for {len(labels)} batches. Pass one a "
                "batch, in their order, or a mapping by batch label."
            )
        if are_shuffled(labels):
            raise ValueError(
                f"densities is a list, but the batches were merged in the order "
                f"{describe(labels)}: is it in this order, or in that of the numbers? Pass a "
                "mapping of batch label to density."
            )
        matched = dict(zip(labels, densities, strict=True))
    else:
        raise TypeError(
            "densities must be a sequence of one density a batch, or a mapping of batch label to "
            f"density, got {type(densities).__name__}."
        )
    for position, (label, density) in enumerate(matched.items()):
        batch = f'batch {position} ("{label}")'
        matched[label] = plain_model(density, batch)
        if not is_model(matched[label]):
            _check_methods(batch, density, kind)
    return matched


def _check_methods(batch: str, density: Any, kind: str) -> None:
    if isinstance(density, type):
        raise TypeError(f"{batch}: got the class {density.__name__}, not an object of it.")
    missing = [name for name in METHODS if not callable(getattr(density, name, None))]
    if not missing:
        return
    why = ""
    if "log_prior" in missing:
        why = (
            f" The prior's density is needed: the batches are of kind "
            f'"{kind}", and the full posterior counts the prior exactly once.'
        )
    raise TypeError(
        f"{batch}: {type(density).__name__} has no method {', '.join(missing)}. A density is a "
        f"PyMC model of the batch or an object with {', '.join(METHODS)}.{why}"
    )


@contextmanager
def evaluating(
    densities: Mapping[str, Any],
    space: MergeSpace | None,
    executor: Any = None,
    bar: Bar | None = None,
) -> Iterator[Evaluate]:
    """Give a function that evaluates requests by batch label; all that is kept goes at the end.

    Parameters
    ----------
    densities : mapping of label to density
    space : MergeSpace, optional
        Needed by PyMC models only.
    executor : concurrent.futures.Executor or dask.distributed.Client, optional
        This process when absent. Each worker keeps the densities that it has been sent.
    bar : Bar, optional
        Moved whenever a batch is done; says so while models are compiled.
    """
    session, bar = uuid.uuid4().hex, bar or Bar("")
    sent: set[str] = set()

    def evaluate(requests: Mapping[str, Sequence[Request]]) -> dict[str, list[np.ndarray]]:
        tasks = {
            label: Task(session, label, None if label in sent else densities[label], space, asked)
            for label, asked in requests.items()
        }
        results = {}
        compiles = any(is_model(task.density) for task in tasks.values())
        before = bar.stage("compiling") if compiles else ""
        while tasks:
            missed = {}
            for label, result in _run(tasks, executor):
                if result is None:
                    missed[label] = tasks[label]._replace(density=densities[label])
                else:
                    if compiles and not results:
                        bar.stage(before)
                    results[label] = result
                    bar()
            sent.update(tasks)
            tasks = missed
        return {label: results[label] for label in requests}

    try:
        yield evaluate
    finally:
        _kept.pop(session, None)


def _run(tasks: Mapping[str, Task], executor: Any) -> Iterator[tuple[str, Any]]:
    if executor is None:
        for label, task in tasks.items():
            yield label, answer(task)
        return
    from arviz_swiss.parallel.executors import Portable, run

    portable = {
        # a class that workers cannot import travels with its module
        label: Portable(task, by_value=None if task.density is None else type(task.density))
        for label, task in tasks.items()
    }
    for label, outcome in run(answer, portable, executor):
        if outcome.error is not None:
            outcome.error.add_note(f'While evaluating the density of batch "{label}".')
            raise outcome.error
        yield label, outcome.result


def answer(task: Task) -> list[np.ndarray] | None:
    """Evaluate one batch's density; None if this process does not have it and was not sent it."""
    if task.session not in _kept:
        # workers outlive the sessions of their callers: only the newest keeps its data
        for session in list(_kept):
            _kept.pop(session, None)
        _kept[task.session] = {}
    mine = _kept[task.session]
    if task.label not in mine:
        if task.density is None:
            return None
        mine[task.label] = _opened(task)
    return [_evaluate(mine[task.label], task.label, request) for request in task.requests]


def _opened(task: Task) -> Any:
    if not is_model(task.density):
        return task.density
    return model_density(task.density, task.space, task.label)


def _evaluate(density: Any, label: str, request: Request) -> np.ndarray:
    """Return one method's values, block by block, after checking their shape."""
    points = request.points
    blocks = [
        _called(density, label, request.method, points[start : start + POINTS_AT_ONCE])
        for start in range(0, len(points), POINTS_AT_ONCE)
    ]
    values = np.concatenate([np.atleast_1d(block) for block in blocks])
    expected = points.shape if request.method.startswith("grad_") else points.shape[:1]
    if values.shape != expected:
        raise ValueError(
            f'batch "{label}": {request.method} gave shape {values.shape} for {len(points)} points '
            f"of {points.shape[1]} parameters, expected {expected}."
        )
    if np.isnan(values).any() or (values == np.inf).any():
        wrong = points[~np.isfinite(values).reshape(len(points), -1).all(axis=1)][0]
        raise NotFinite(
            f'batch "{label}": {request.method} gave NaN or +inf at {np.round(wrong, 4).tolist()}. '
            "A parameter outside its support is the usual cause: merge it in unconstrained space, "
            "with transforms= or model=."
        )
    return values


def _called(density: Any, label: str, method: str, points: np.ndarray) -> np.ndarray:
    try:
        return np.asarray(getattr(density, method)(points), float)
    except MemoryError:
        raise
    except Exception as error:
        raise EvaluationFailed(
            f'batch "{label}": {method} raised {type(error).__name__}: {error}, for points of '
            f"shape {points.shape}."
        ) from error


class Scores(NamedTuple):
    """Gradients of the prior's log density and of each batch's likelihood: (points, parameters)."""

    prior: np.ndarray
    likelihoods: dict[str, np.ndarray]


def full_scores(
    evaluate: Evaluate,
    labels: Sequence[str],
    points: np.ndarray,
    parameters: Sequence[str] | None = None,
) -> np.ndarray:
    """Return the gradient of the full posterior's log density: (points, parameters).

    Parameters
    ----------
    parameters : sequence of str, optional
        Their labels, which errors name; their positions when absent.
    """
    return full_score(batch_scores(evaluate, labels, points, parameters))


def full_score(scores: Scores) -> np.ndarray:
    """Return the gradient of one prior and all likelihoods."""
    full = scores.prior + sum(scores.likelihoods.values())
    if not np.isfinite(full).all():
        raise NotFinite(
            "the full posterior's gradient is not finite at some points: a parameter outside its "
            "support is the usual cause. Merge it in unconstrained space, with transforms= or "
            "model=."
        )
    return full


def batch_scores(
    evaluate: Evaluate,
    labels: Sequence[str],
    points: np.ndarray,
    parameters: Sequence[str] | None = None,
) -> Scores:
    """Return the gradients that make up the full posterior's, as `full_scores` takes them."""
    requests = {
        label: [
            Request("grad_log_likelihood", points),
            Request("grad_log_prior", points if label == labels[0] else points[:PROBES]),
        ]
        for label in labels
    }
    requests[labels[0]].append(Request("log_prior", points))
    answers = evaluate(requests)
    if parameters is None:
        parameters = [str(position) for position in range(points.shape[1])]
    _check_inside(points, answers[labels[0]][2], parameters)
    prior = answers[labels[0]][1]
    for label in labels[1:]:
        _check_same_prior(labels[0], label, prior[:PROBES], answers[label][1])
    return Scores(prior, {label: answers[label][0] for label in labels})


def _check_inside(points: np.ndarray, log_priors: np.ndarray, parameters: Sequence[str]) -> None:
    """Refuse points outside the support: a density that is cut off has a mean score of its own."""
    outside = ~np.isfinite(log_priors)
    if outside.any():
        names = ", ".join(np.asarray(parameters)[edges(points, log_priors)])
        raise OutOfBounds(
            f"{outside.sum()} of {outside.size} merged draws are outside the bounds of {names}. A "
            "density that ends before it is zero has another mean score than zero, by which refine "
            "would go wrong. Merge in unconstrained space, with transforms= or model=, or leave "
            "the merge as it is and certify it."
        )


class Densities(NamedTuple):
    """Log densities of the full posterior, (draws,), and of the batches, (batch, draws).

    `scores` are the gradients of each batch's log density at its own draws.
    """

    full: np.ndarray
    batches: np.ndarray
    scores: list[np.ndarray]


def log_densities(
    evaluate: Evaluate,
    labels: Sequence[str],
    merged: np.ndarray,
    original: Mapping[str, np.ndarray],
    owners: np.ndarray,
    powers: Mapping[str, tuple[float, float]],
) -> Densities:
    """Return the log densities that importance weights need.

    Parameters
    ----------
    merged : (draws, parameters) array
        Merged draws of all batches.
    original : mapping of label to (draws, parameters) array
        The same draws, by the inverse of the batch's map.
    owners : (draws,) array of int
        Position of the batch that each draw comes from.
    powers : mapping of label to (float, float)
        Powers of the batch's likelihood and prior.
    """
    requests = {
        label: [
            Request("log_likelihood", merged),
            Request("log_prior", merged if label == labels[0] else merged[:PROBES]),
            Request("log_likelihood", original[label]),
            Request("log_prior", original[label]),
            Request("grad_log_likelihood", original[label][owners == position]),
            Request("grad_log_prior", original[label][owners == position]),
        ]
        for position, label in enumerate(labels)
    }
    answers = evaluate(requests)
    prior = answers[labels[0]][1]
    for label in labels[1:]:
        first, other = prior[:PROBES], answers[label][1]
        _check_same_prior(labels[0], label, _relative(first), _relative(other))
    full = prior + sum(answers[label][0] for label in labels)
    batches, scores = [], []
    for label in labels:
        power, prior_power = powers[label]
        _, _, likelihood, own_prior, likelihood_score, prior_score = answers[label]
        batches.append(power * likelihood + prior_power * own_prior)
        scores.append(power * likelihood_score + prior_power * prior_score)
    return Densities(full, np.array(batches), scores)


def _relative(values: np.ndarray) -> np.ndarray:
    """Return log densities without their constant; zero where there is none."""
    finite = np.isfinite(values)
    return np.where(finite, values, 0.0) - (values[finite][0] if finite.any() else 0.0) * finite


def _check_same_prior(first: str, other: str, expected: np.ndarray, found: np.ndarray) -> None:
    if not np.allclose(found, expected, rtol=1e-6, atol=1e-6 * (1 + np.abs(expected).max())):
        raise ValueError(
            f'the prior of batch "{other}" differs from that of batch "{first}": '
            f"{np.round(np.ravel(found)[:3], 6).tolist()} instead of "
            f"{np.round(np.ravel(expected)[:3], 6).tolist()}. The full posterior counts one prior "
            "that all batches share, so all densities must have the same, not raised to a power."
        )

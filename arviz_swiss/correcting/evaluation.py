"""Densities evaluated at points, here or by an executor whose workers keep what they were sent."""

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from arviz_swiss.correcting.densities import BatchDensity, MergeSpace
from arviz_swiss.merging.models import is_model, model_density, observed_values
from arviz_swiss.parallel.progress import Bar

# A density of n values holds several (points, n) arrays.
POINTS_AT_ONCE, VALUES_AT_ONCE = 100, 2 * 10**7
OUTSIDE = (
    "A parameter outside its support is the usual cause: merge it in unconstrained space, with "
    "transforms= or model=."
)


class Request(NamedTuple):
    """One method of a density, and the points where it is wanted."""

    method: str
    points: np.ndarray


class NotFinite(ValueError):
    """A density or gradient is NaN or infinite where it must not be."""


class OutOfBounds(ValueError):
    """Points lie outside the support of a density."""


class EvaluationFailed(RuntimeError):
    """A method of a density raised an error."""


class Kept(NamedTuple):
    """A density that this process has, and at how many points it is evaluated at once."""

    density: BatchDensity
    at_once: int


class Task(NamedTuple):
    """What travels to a worker: the requests, and the density unless the worker has it already."""

    session: str
    label: str
    density: Any
    space: MergeSpace | None
    requests: Sequence[Request]


Evaluate = Callable[[Mapping[str, Sequence[Request]]], dict[str, list[np.ndarray]]]

# The densities of the present session that this process has, by label.
_kept: dict[str, dict[str, Kept]] = {}
_lock = threading.Lock()


@contextmanager
def evaluating(
    densities: Mapping[str, Any],
    space: MergeSpace | None,
    executor: Any = None,
    bar: Bar | None = None,
) -> Iterator[Evaluate]:
    """Give a function that evaluates requests by label; all that is kept goes at the end.

    Only PyMC models need `space`. Each worker of an executor keeps the densities that it was sent.
    The bar moves whenever a density is done, and says so while models are compiled.
    """
    session, bar = uuid.uuid4().hex, bar or Bar("")
    sent: set[str] = set()

    def evaluate(requests: Mapping[str, Sequence[Request]]) -> dict[str, list[np.ndarray]]:
        tasks = {
            label: Task(session, label, None if label in sent else densities[label], space, wanted)
            for label, wanted in requests.items()
        }
        results: dict[str, list[np.ndarray]] = {}
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
    """Evaluate one density; None if this process does not have it and was not sent it."""
    with _lock:
        if task.session not in _kept:
            # workers outlive the sessions of their callers: only the newest keeps its data
            _kept.clear()
        by_label = _kept.setdefault(task.session, {})
    if task.label not in by_label:
        if task.density is None:
            return None
        by_label[task.label] = _keep(task)
    return [_evaluate(by_label[task.label], task.label, request) for request in task.requests]


def _keep(task: Task) -> Kept:
    if not is_model(task.density):
        return Kept(task.density, POINTS_AT_ONCE)
    values = sum(array.size for array in observed_values(task.density).values())
    at_once = min(max(VALUES_AT_ONCE // max(values, 1), 1), POINTS_AT_ONCE)
    return Kept(model_density(task.density, task.space, task.label), at_once)


def _evaluate(kept: Kept, label: str, request: Request) -> np.ndarray:
    """Return one method's values, block by block, after checking their shape."""
    points = request.points
    blocks = [
        _called(kept.density, label, request.method, points[start : start + kept.at_once])
        for start in range(0, len(points), kept.at_once)
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
            f"{OUTSIDE}"
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

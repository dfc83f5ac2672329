"""Densities evaluated at points, in threads or by an executor whose workers keep what they got."""

import contextvars
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from arviz_swiss.base.linalg import AffineMap
from arviz_swiss.correcting.batch_model import BatchModel, is_modelled, opened
from arviz_swiss.correcting.densities import JointSpace, MergeSpace
from arviz_swiss.data.progress import Bar
from arviz_swiss.merging.models import free_models, model_bytes, model_density, observed_values

# A model of n values makes several (points, n) arrays: few enough for the cache, but so many that
# NumPy asks for large pages of memory (from 4 MB on), without which page faults take half the time.
VALUES_AT_ONCE = 10**6
# Models of more values take fewer points at a time themselves, or fewer rows.
VALUES_OF_POINT = 10**4
# Of a density whose size is not known.
POINTS_AT_ONCE = 100
# Of the data of models that were built from files: others are built again when they are asked for.
# If fewer than FEW of them fit, one is kept.
BYTES_KEPT, FEW = 2**26, 4
# Beside the bar: until functions are made of the models' graphs.
READING = "reading the models"
OUTSIDE = (
    "A parameter outside its support is the usual cause: merge it in unconstrained space, with "
    "transforms= or model=."
)


class Moved(NamedTuple):
    """Points that are moved by a map only when they are wanted, so that few are held at once."""

    points: np.ndarray
    by: AffineMap

    def array(self) -> np.ndarray:
        """Return the points where they were moved to."""
        return (self.points - self.by.source) @ self.by.scale.T + self.by.target


class Request(NamedTuple):
    """One method of a density, and the points where it is wanted.

    If `anywhere`, points may be outside the support: what is not a number is minus infinity.
    """

    method: str
    points: np.ndarray | Moved
    anywhere: bool = False

    def answer(self, kept: "Kept", label: str) -> np.ndarray:
        """Evaluate the density that a worker keeps."""
        return _evaluate(kept, label, self)


class Asked(Protocol):
    """What can be asked of a density that a worker keeps."""

    def answer(self, kept: "Kept", label: str) -> Any:
        """Return what was asked for."""
        ...


class NotFinite(ValueError):
    """A density or gradient is NaN or infinite where it must not be."""


class OutOfBounds(ValueError):
    """Points lie outside the support of a density."""


class EvaluationFailed(RuntimeError):
    """A method of a density raised an error."""


class Kept(NamedTuple):
    """A density that this process has, and at how many points it is evaluated at once.

    `bytes` are those of the data that were read for it here.
    """

    density: Any
    at_once: int
    bytes: int = 0


class Task(NamedTuple):
    """What travels to a worker: the requests, and the density unless the worker has it already."""

    session: str
    label: str
    density: Any
    space: MergeSpace | JointSpace | None
    requests: Sequence[Asked]


Evaluate = Callable[[Mapping[str, Sequence[Asked]]], dict[str, list[Any]]]

# The densities of the present session that this process has, by label.
_kept: dict[str, dict[str, Kept]] = {}
_lock = threading.Lock()
# PyMC and PyTensor are not made for several threads, until there is a function to be called.
_making = threading.Lock()


@contextmanager
def evaluating(
    densities: Mapping[str, Any],
    space: MergeSpace | JointSpace | None,
    executor: Any = None,
    bar: Bar | None = None,
) -> Iterator[Evaluate]:
    """Give a function that evaluates requests by label; all that is kept goes at the end.

    Without an executor densities are evaluated in threads of this process, one a core, each object
    by one of them at a time. Each worker of an executor keeps the densities that it was sent. Only
    PyMC models need `space`. The bar moves whenever a density is done, and says so while models are
    read.
    """
    session, bar = uuid.uuid4().hex, bar or Bar("")
    sent: set[str] = set()
    # workers of a cluster that have a density, so that it goes to one of them only
    homes: dict[str, str | None] = {}
    # what this process keeps for itself is not among what it may keep as a worker of others
    kept: dict[str, Kept] = {}

    def run(tasks: Mapping[str, Task]) -> Iterator[tuple[str, Any]]:
        if executor is not None:
            return _run_executor(tasks, executor, homes, bar)
        lines: dict[int, list[Task]] = {}
        for label, task in tasks.items():
            lines.setdefault(id(densities[label]), []).append(task)
        return _run_threads(list(lines.values()), kept)

    def evaluate(requests: Mapping[str, Sequence[Asked]]) -> dict[str, list[Any]]:
        tasks = {
            label: Task(session, label, None if label in sent else densities[label], space, wanted)
            for label, wanted in requests.items()
        }
        results: dict[str, list[Any]] = {}
        are_models_new = any(is_modelled(task.density) for task in tasks.values())
        before = bar.stage(READING) if are_models_new else ""
        while tasks:
            missed = {}
            for label, result in run(tasks):
                if result is None:
                    missed[label] = tasks[label]._replace(density=densities[label])
                else:
                    if are_models_new and not results:
                        bar.stage(before)
                    results[label] = result
                    bar()
            # a model that is yet to be built is small, and not always kept
            sent.update(k for k in tasks if not isinstance(densities[k], BatchModel))
            tasks = missed
        return {label: results[label] for label in requests}

    try:
        yield evaluate
    finally:
        _kept.pop(session, None)


def _run_threads(lines: Sequence[Sequence[Task]], kept: dict[str, Kept]) -> Iterator[Any]:
    """Yield labels and results as they come; the tasks of one line, of one object, one by one.

    Of several errors the one of the first line is raised, whichever came first.
    """
    from joblib import cpu_count

    threads = min(cpu_count(), len(lines))
    if threads <= 1:
        for task in (task for line in lines for task in line):
            yield task.label, _answer_here(task, kept)
        return

    def answer_all(line: Sequence[Task]) -> list[tuple[str, Any]]:
        return [(task.label, _answer_here(task, kept)) for task in line]

    from arviz_swiss.parallel.executors import finish_imports

    finish_imports()
    # one thread a density, so that those of BLAS would be too many
    with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
        # with the caller's np.errstate
        futures: list[Future] = [
            pool.submit(contextvars.copy_context().run, answer_all, line) for line in lines
        ]
        try:
            for future in as_completed(futures):
                if future.exception() is not None:
                    break
                yield from future.result()
        finally:
            # all are done, or nobody will read what is not
            pool.shutdown(cancel_futures=True)
    for future in futures:
        if not future.cancelled() and (error := future.exception()):
            raise error


def _answer_here(task: Task, kept: dict[str, Kept]) -> list[Any]:
    try:
        return _answered(kept, task)
    except Exception as error:
        error.add_note(_where(task.label))
        raise


def _run_executor(
    tasks: Mapping[str, Task], executor: Any, homes: dict[str, str | None], bar: Bar
) -> Iterator[tuple[str, Any]]:
    """Yield labels and results as they come, and keep in `homes` which worker has a density."""
    from arviz_swiss.parallel.executors import Portable, run

    portable = {
        # a class that workers cannot import travels with its module
        label: Portable(task, by_value=_travels_with(task.density))
        for label, task in tasks.items()
    }
    with closing(run(answer, portable, executor, homes=homes, say=bar.stage)) as outcomes:
        for label, outcome in outcomes:
            homes[label] = outcome.worker
            if outcome.error is not None:
                outcome.error.add_note(_where(label))
                raise outcome.error
            yield label, outcome.result


def _where(label: str) -> str:
    return f'While evaluating the density of batch "{label}".'


def answer(task: Task) -> list[Any] | None:
    """Evaluate one density; None if this process does not have it and was not sent it."""
    with _lock:
        if task.session not in _kept:
            # workers outlive the sessions of their callers: only the newest keeps its data
            _kept.clear()
        by_label = _kept.setdefault(task.session, {})
    if task.label not in by_label and task.density is None:
        return None
    return _answered(by_label, task)


def _evaluate_all(kept: Kept, task: Task) -> list[Any]:
    return [request.answer(kept, task.label) for request in task.requests]


def _travels_with(density: Any) -> Any:
    """Return whose module a density needs where it cannot be imported."""
    if isinstance(density, BatchModel):
        return density.build
    return None if density is None else type(density)


def _answered(kept: dict[str, Kept], task: Task) -> list[Any]:
    """Answer by a density that is kept, or made now."""
    if task.label in kept:
        return _evaluate_all(kept[task.label], task)
    made = _made(task)
    bytes_left = _keep(kept, task.label, made)
    free_models(bytes_left)
    answers = _evaluate_all(made, task)
    # another thread may have let it go for its own meanwhile
    bytes_left = made.bytes if kept.get(task.label) is not made else 0
    del made
    free_models(bytes_left)
    return answers


def _keep(kept: dict[str, Kept], label: str, made: Kept) -> int:
    """Keep a density where there is room, and tell the bytes of those that were let go for it.

    Of what was read from files the first batches stay, as long as there is room. Where hardly any
    fit, the newest takes their place: a pilot asks for one again and again, a pass for each once.
    """
    with _lock:
        others = {label: other.bytes for label, other in kept.items() if other.bytes}
        if made.bytes <= BYTES_KEPT // FEW:
            if not made.bytes or made.bytes + sum(others.values()) <= BYTES_KEPT:
                kept[label] = made
            return 0
        for other in others:
            del kept[other]
        kept[label] = made
        return sum(others.values())


def _made(task: Task) -> Kept:
    if not is_modelled(task.density):
        return Kept(task.density, POINTS_AT_ONCE)
    assert task.space is not None, "a PyMC model needs the space of the merge"
    # rows, a frame of them and a model take most memory: of one batch at a time
    with _making:
        model = opened(task.density)
        values = sum(array.size for array in observed_values(model).values())
        density = model_density(model, task.space, task.label)
        held = 0 if model is task.density else model_bytes(model)
    at_once = max(VALUES_AT_ONCE // max(min(values, VALUES_OF_POINT), task.space.size), 1)
    return Kept(density, at_once, held)


def _evaluate(kept: Kept, label: str, request: Request) -> np.ndarray:
    """Return one method's values, block by block, after checking their shape."""
    points = request.points.array() if isinstance(request.points, Moved) else request.points
    expected = points.shape if request.method.startswith("grad_") else points.shape[:1]
    if not len(points):
        return np.empty(expected)
    blocks = [
        _called(kept.density, label, request.method, points[start : start + kept.at_once])
        for start in range(0, len(points), kept.at_once)
    ]
    values = np.concatenate([np.atleast_1d(block) for block in blocks])
    if values.shape != expected:
        raise ValueError(
            f'batch "{label}": {request.method} gave shape {values.shape} for {len(points)} points '
            f"of {points.shape[1]} parameters, expected {expected}."
        )
    if request.anywhere:
        return np.where(values < np.inf, values, -np.inf)
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

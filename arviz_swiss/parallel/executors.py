"""Run one function over the batches, on processes, threads or Dask, as they finish."""

import contextlib
import logging
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError as FutureCancelled
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from arviz_swiss.parallel.given_executors import (
    Cluster,
    NoWorkers,
    Pool,
    count_threads,
    is_dask_client,
)
from arviz_swiss.parallel.outcomes import Outcome
from arviz_swiss.parallel.own_processes import OwnProcesses
from arviz_swiss.parallel.portable import Portable

__all__ = [
    "Lazy",
    "Outcome",
    "Portable",
    "check_executor",
    "count_workers",
    "own_threads",
    "raise_if_abandoned",
    "run",
]

# Seconds between two looks at whether all goes well.
INTERVAL = 0.5

_log = logging.getLogger("arviz_swiss")
# Of threads of `own_threads`: the event that tells them to stop.
_thread = threading.local()


class Lazy(Mapping[str, Any]):
    """Tasks by label, each made by a function of its label when it is asked for, and not kept."""

    def __init__(self, labels: Iterable[str], make: Callable[[str], Any]):
        self._labels, self._make = dict.fromkeys(labels), make

    def __getitem__(self, label: str) -> Any:
        """Make the task of a label."""
        if label not in self._labels:
            raise KeyError(label)
        return self._make(label)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the labels."""
        return iter(self._labels)

    def __len__(self) -> int:
        """Count the tasks."""
        return len(self._labels)


def run(
    function: Callable[[Any], Any],
    tasks: Mapping[str, Portable],
    executor: Any = None,
    *,
    timeout: float | None = None,
    homes: Mapping[str, str | None] | None = None,
    say: Callable[[str], Any] | None = None,
) -> Generator[tuple[str, Outcome], None, None]:
    """Yield the label and the outcome of every task, in the order of completion.

    A task is asked for when there is a worker for it: of a `Lazy` mapping few are there at once.
    An executor that is given is left running; the default is a process per core, ended afterwards.
    A task that raises, is not taken, ends its process or takes longer than `timeout` seconds has
    its exception in the outcome; an executor that takes not even the first is an error. If the
    caller stops early, the others are cancelled. `homes` are addresses of Dask workers that have
    what tasks need; `say` is told what hinders all tasks, and "" when it no longer does.
    """
    check_executor(executor)
    workers = _workers(executor, len(tasks), timeout, homes or {})
    waiting = deque(tasks)
    futures: dict[Future, str] = {}
    # as_completed would wait for ever for what a pool cancels while it shuts down
    done: queue.SimpleQueue[Future] = queue.SimpleQueue()

    def fill(is_first: bool = False) -> None:
        while waiting and len(futures) < workers.room():
            label = waiting.popleft()
            future = _submitted(workers, function, label, tasks, is_first and not futures)
            futures[future] = label
            future.add_done_callback(done.put)

    try:
        fill(is_first=True)
        while futures:
            try:
                future = _next(done, workers, say)
            except NoWorkers as error:
                for label in [*futures.values(), *waiting]:
                    yield label, Outcome(error=error)
                return
            label = futures.pop(future)
            outcome = workers.outcome(future, label)
            if outcome is None:
                waiting.append(label)
            del future  # a result lives only as long as the caller uses it
            fill()
            if outcome is not None:
                yield label, outcome
                del outcome
    finally:
        workers.cancel(futures)
        workers.close()


def finish_imports() -> None:
    """Import what waits for its first use, before threads use it at once and find half of it.

    ArviZ leaves JAX to its first use; SciPy uses it to ask whether an array is one of JAX's.
    """
    with contextlib.suppress(Exception):  # whoever needs it will say why it cannot be imported
        getattr(sys.modules.get("jax"), "Array", None)


def count_workers(executor: Any) -> int:
    """Return how many tasks an executor, or by default this machine, runs at the same time."""
    from joblib import cpu_count

    if executor is None:
        return cpu_count()
    if is_dask_client(executor):
        return count_threads(executor)
    return getattr(executor, "_max_workers", None) or cpu_count()


@contextlib.contextmanager
def own_threads(n_tasks: int) -> Iterator[Executor]:
    """Start one thread a core in this process, for functions that leave Python's lock to others.

    Whoever leaves early does not wait for them: tasks that have not begun are cancelled, and those
    that run are abandoned where they call `raise_if_abandoned`.
    """
    from joblib import cpu_count

    finish_imports()
    abandoned = threading.Event()
    pool = ThreadPoolExecutor(
        min(n_tasks, cpu_count()),
        thread_name_prefix="arviz_swiss",
        initializer=lambda: setattr(_thread, "abandoned", abandoned),
    )
    try:
        yield pool
    finally:
        abandoned.set()
        pool.shutdown(wait=False, cancel_futures=True)


def raise_if_abandoned() -> None:
    """End a task of `own_threads` whose result nobody will read; elsewhere do nothing."""
    abandoned = getattr(_thread, "abandoned", None)
    if abandoned is not None and abandoned.is_set():
        raise FutureCancelled("abandoned: the caller was interrupted")


def check_executor(executor: Any) -> None:
    """Refuse what cannot run anything, before anything is shown or computed."""
    if executor is None or isinstance(executor, Executor):
        return
    if not is_dask_client(executor):
        raise TypeError(
            "executor must be a concurrent.futures.Executor or a dask.distributed.Client, got "
            f"{type(executor).__name__!r}."
        )
    if executor.asynchronous:
        raise TypeError(
            "executor is an asynchronous Dask client. Pass one made with "
            "Client(..., asynchronous=False)."
        )


def _workers(
    executor: Any, n_tasks: int, timeout: float | None, homes: Mapping[str, str | None]
) -> OwnProcesses | Pool:
    if executor is None:
        return OwnProcesses(min(n_tasks, count_workers(None)), timeout)
    if is_dask_client(executor):
        return Cluster(executor, timeout, homes)
    return Pool(executor, count_workers(executor), timeout)


def _submitted(
    workers: OwnProcesses | Pool,
    function: Callable,
    label: str,
    tasks: Mapping[str, Portable],
    is_first: bool,
) -> Future:
    """Make a task and hand it over; what goes wrong is that of the task, unless it is the first."""
    future: Future = Future()
    try:
        task = tasks[label]
    except Exception as error:  # of rows that cannot be read
        error.add_note(f"While making the task of batch {label}.")
        future.set_exception(error)
        return future
    try:
        return workers.submit(function, label, task)
    except Exception as error:
        refused = RuntimeError(
            f"batch {label} could not be submitted, the executor takes no tasks: {error}. Pass an "
            "executor that is running, or leave executor=None for a new pool."
        )
        if is_first:
            raise refused from error
        future.set_exception(refused)
        return future


def _next(
    done: queue.SimpleQueue, workers: OwnProcesses | Pool, say: Callable[[str], Any] | None
) -> Future:
    """Wait for a task to end, and say once what hinders all of them."""
    before = ""
    while True:
        with contextlib.suppress(queue.Empty):
            future = done.get(timeout=INTERVAL)
            if before and say is not None:
                say("")
            return future
        message = workers.watch()
        if message != before:
            if message:
                _log.warning(message)
            if say is not None:
                say(message)
        before = message

"""Processes of our own, one a core: each is replaced when a task ends it, or does not end."""

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any, NamedTuple

from arviz_swiss.parallel.outcomes import MEMORY, Outcome, ProcessEnded, TooLong, call, outcome_of
from arviz_swiss.parallel.portable import Portable

# Numbers of threads that libraries read when they are loaded: one each, as one process a core runs.
ONE_THREAD = {
    f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "BLIS", "VECLIB", "NUMEXPR")
}
# Seconds between two looks at whether the caller still lives.
PARENT_INTERVAL = 1.0
# Bytes that a process may grow by before it is replaced after a task. The 300 MB that loky allows
# are less than a compilation takes, and each new process would compile again.
MOST_GROWTH = 2**30
# So often is a task begun whose process ends: others beside it may have taken the memory.
TRIES = 2


class _Begun(NamedTuple):
    """The process of a task, what is done when it has started, and since when the task runs."""

    pool: Executor
    started: Future | None
    since: float


class OwnProcesses:
    """Processes with one task each, so that it is known which task ended its process."""

    def __init__(self, processes: int, timeout: float | None):
        self._processes, self._timeout = processes, timeout
        self._idle: list[Executor] = []
        self._busy: dict[Future, _Begun] = {}
        self._late: set[Future] = set()
        self._ended: dict[str, int] = {}

    def room(self) -> int:
        """Return how many tasks may be under way."""
        return self._processes

    def submit(self, function: Callable, label: str, task: Portable) -> Future:
        """Begin a task in a process that has nothing to do, or a new one."""
        if self._idle:
            pool, started = self._idle.pop(), None
        else:
            pool = _new_process()
            started = pool.submit(_load, Portable(function))
        future = pool.submit(call, Portable(function), task)
        self._busy[future] = _Begun(pool, started, time.monotonic())
        return future

    def watch(self) -> str:
        """End processes whose tasks take too long."""
        now = time.monotonic()
        for future, begun in list(self._busy.items()):
            if begun.started is not None and not begun.started.done():
                self._busy[future] = begun._replace(since=now)
            elif self._timeout is not None and now - begun.since > self._timeout:
                self._late.add(future)
                _end(begun.pool)
        return ""

    def outcome(self, future: Future, label: str) -> Outcome | None:
        """Return what became of a task; None if its process ended and it shall be tried again."""
        if future not in self._busy:  # it never got a process
            return outcome_of(future)
        pool = self._busy.pop(future).pool
        if future in self._late:
            self._late.remove(future)
            assert self._timeout is not None
            return Outcome(error=TooLong(self._timeout))
        error = None if future.cancelled() else future.exception()
        if not isinstance(error, BrokenExecutor):
            self._idle.append(pool)
            return outcome_of(future)
        _end(pool)
        self._ended[label] = self._ended.get(label, 0) + 1
        if self._ended[label] < TRIES:
            return None
        return Outcome(error=_named(error))

    def close(self) -> None:
        """End all: everything is done, or nobody will read what is not."""
        for pool in [*self._idle, *(begun.pool for begun in self._busy.values())]:
            _end(pool)

    def cancel(self, futures: Iterable[Future]) -> None:
        """Leave it to the end of the processes, which may not find a task cancelled meanwhile."""


def _named(error: BaseException) -> ProcessEnded:
    ended = ProcessEnded(
        f"its process ended {TRIES} times before it did, each time with no other batch in it. "
        f"{MEMORY} (executor=). If memory is not short, compiled code or build itself ended it"
    )
    ended.__cause__ = error
    ended.add_note(str(error))
    return ended


def _new_process() -> Executor:
    """Start a process by joblib's loky, which does not run the caller's script a second time."""
    from joblib.externals.loky import ProcessPoolExecutor

    # a process that holds too much ends after its task, and the next one begins another
    warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
    return ProcessPoolExecutor(
        1, env=ONE_THREAD, initializer=_end_with_parent, initargs=(os.getpid(),)
    )


def _load(function: Portable) -> None:
    """Import what a function needs, by opening it; let the process grow from then on."""
    from joblib.externals.loky import process_executor

    process_executor._MAX_MEMORY_LEAK_SIZE = MOST_GROWTH
    function.value  # noqa: B018


def _end(pool: Any) -> None:
    pool.shutdown(kill_workers=True)


def _end_with_parent(parent: int) -> None:
    """End this worker when the process that started it is killed, instead of waiting for ever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_INTERVAL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

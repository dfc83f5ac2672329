"""What becomes of a task: called in its worker, and what is said if that did not go well."""

import pickle
import sys
import threading
import traceback
from concurrent.futures import BrokenExecutor, Future
from concurrent.futures import CancelledError as FutureCancelled
from typing import Any, NamedTuple

from arviz_swiss.parallel.portable import Packed, Portable

MEMORY = (
    "Memory is the likely cause: pass more batches=, so that each has fewer rows, or run fewer at "
    "once"
)


class Outcome(NamedTuple):
    """What became of one task: its result, or the exception that it raised.

    `worker` is the address of the Dask worker that ran it.
    """

    result: Any = None
    error: BaseException | None = None
    worker: str | None = None


class ProcessEnded(RuntimeError):
    """The process of a task ended before the task did."""


class TooLong(TimeoutError):
    """A task that took longer than it may."""

    def __init__(self, seconds: float):
        super().__init__(
            f"not done after timeout={seconds:g} seconds, and abandoned. If it does not hang, pass "
            "a longer timeout= and run it again"
        )
        self.seconds = seconds

    def __reduce__(self):
        """Pickle with the number of seconds."""
        return TooLong, (self.seconds,)


def call(
    function: Portable | Packed, task: Portable | Packed, timeout: float | None = None
) -> Outcome:
    """Call in the worker; exceptions come back as values, because some break a pool's pipe.

    A task that takes longer than `timeout` is left behind, in a thread of its own.
    """
    if timeout is None:
        return _call(function, task)
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(_call(function, task)), daemon=True)
    thread.start()
    thread.join(timeout)
    return outcomes[0] if outcomes else Outcome(error=TooLong(timeout), worker=_address())


def _call(function: Portable | Packed, task: Portable | Packed) -> Outcome:
    try:
        return Outcome(result=function.value(task.value), worker=_address())
    # also SystemExit and KeyboardInterrupt of the user's function: they end a task, not the caller
    except BaseException as error:
        error.add_note("In the worker:\n" + "".join(traceback.format_exception(error)))
        return Outcome(error=_portable_error(error), worker=_address())


def _portable_error(error: BaseException) -> Exception:
    """Return an error that can be pickled, and that ends no process."""
    if isinstance(error, Exception):
        try:
            pickle.loads(pickle.dumps(error))
            return error.with_traceback(None)
        except Exception:
            plain = RuntimeError(f"{type(error).__name__}: {error}")
    else:
        raised = f"{type(error).__name__}({error})"
        plain = RuntimeError(f"{raised} was raised in its worker, as by sys.exit()")
    plain.__notes__ = list(getattr(error, "__notes__", []))
    return plain


def _address() -> str | None:
    distributed = sys.modules.get("distributed")
    try:
        return None if distributed is None else distributed.get_worker().address
    except (AttributeError, ValueError):  # another thread is importing it, or not on a worker
        return None


def outcome_of(future: Future) -> Outcome:
    """Return what became of a task that is done; whatever was raised is a value."""
    try:
        error = future.exception()
    except FutureCancelled:
        return Outcome(
            error=RuntimeError(
                "cancelled before it ended: the executor was shut down, or lost its workers. If "
                f"you did not end it, see what its workers say. {MEMORY}"
            )
        )
    if error is None:
        return future.result()
    return Outcome(error=_explained(error))


def _explained(error: BaseException) -> BaseException:
    """Say the likely cause of what pools and clusters raise when they lose a process."""
    if isinstance(error, BrokenExecutor):
        ended = ProcessEnded(
            "a process of the executor ended, its own or another's, and the executor takes no more "
            f"tasks. {MEMORY}. With executor=None only the batch that ends its process is lost"
        )
    elif type(error).__name__ == "KilledWorker":
        ended = ProcessEnded(
            "the Dask workers that ran it ended, one after the other, and Dask gave up (its "
            f"setting distributed.scheduler.allowed-failures). {MEMORY}, with fewer threads a "
            "worker or more memory for each (memory_limit=)"
        )
    elif isinstance(error, Exception):
        return error
    else:
        return _portable_error(error)
    ended.__cause__ = error
    return ended

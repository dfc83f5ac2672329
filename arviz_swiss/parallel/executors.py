"""Run one function over the batches, on processes, threads or Dask, as they finish."""

import contextlib
import functools
import os
import pickle
import queue
import sys
import sysconfig
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError as FutureCancelled
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from types import ModuleType
from typing import Any, NamedTuple

# Numbers of threads that libraries read when they are loaded: one each, as one process a core runs.
ONE_THREAD = {
    f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "BLIS", "VECLIB", "NUMEXPR")
}
# Seconds between two looks at whether the caller still lives.
PARENT_INTERVAL = 1.0


# Of threads of `own_threads`: the event that tells them to stop.
_thread = threading.local()


class Outcome(NamedTuple):
    """What became of one task: its result, or the exception that it raised."""

    result: Any = None
    error: BaseException | None = None


class Portable:
    """Carry any object to a worker, closures and functions of a notebook or script included.

    Nothing is copied until the object is pickled, so threads share it with the caller. The module
    of the function `by_value` is sent along, for workers that cannot import it.
    """

    def __init__(self, value: Any, by_value: Callable | None = None):
        self.value = value
        self.by_value = by_value

    def __reduce__(self):
        """Pickle the value with cloudpickle."""
        return _unpack, (_pickle_by_value(self.value, self.by_value),)


def run(
    function: Callable[[Any], Any], tasks: Mapping[str, Portable], executor: Any = None
) -> Iterator[tuple[str, Outcome]]:
    """Yield the label and the outcome of every task, in the order of completion.

    An executor that is given is left running; the default is a pool of one process per core, ended
    afterwards. A task that raises, or is not taken, has its exception in the outcome; an executor
    that takes not even the first is an error. If the caller stops early, the others are cancelled.
    """
    check_executor(executor)
    with _running(executor, len(tasks)) as pool:
        futures: dict[Future, str] = {}
        # as_completed would wait for ever for what a pool cancels while it shuts down
        done: queue.SimpleQueue[Future] = queue.SimpleQueue()
        try:
            for label, task in tasks.items():
                future = _submit(pool, function, label, task, first=not futures)
                futures[future] = label
                future.add_done_callback(done.put)
            for _ in tasks:
                future = done.get()
                yield futures.pop(future), _outcome(future)
                del future  # a result lives only as long as the caller uses it
        finally:
            # our own pool ends its tasks itself, and may not find one cancelled meanwhile
            for future in futures if executor is not None else ():
                future.cancel()


def count_workers(executor: Any) -> int:
    """Return how many tasks an executor, or by default this machine, runs at the same time."""
    from joblib import cpu_count

    if executor is None:
        return cpu_count()
    if _is_dask_client(executor):
        return max(sum(executor.nthreads().values()), 1)
    return getattr(executor, "_max_workers", None) or cpu_count()


@contextlib.contextmanager
def own_threads(n_tasks: int) -> Iterator[Executor]:
    """Start one thread a core in this process, for functions that leave Python's lock to others.

    Whoever leaves early does not wait for them: tasks that have not begun are cancelled, and those
    that run are abandoned where they call `raise_if_abandoned`.
    """
    from joblib import cpu_count

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
    if not _is_dask_client(executor):
        raise TypeError(
            "executor must be a concurrent.futures.Executor or a dask.distributed.Client, got "
            f"{type(executor).__name__!r}."
        )
    if executor.asynchronous:
        raise TypeError(
            "executor is an asynchronous Dask client. Pass one made with "
            "Client(..., asynchronous=False)."
        )


@contextlib.contextmanager
def _running(executor: Any, n_tasks: int) -> Iterator[Executor]:
    if executor is None:
        with _own_processes(n_tasks) as pool:
            yield pool
    elif _is_dask_client(executor):
        yield executor.get_executor(pure=False)
    else:
        yield executor


@contextlib.contextmanager
def _own_processes(n_tasks: int) -> Iterator[Executor]:
    """Start processes by joblib's loky, which does not run the caller's script a second time."""
    from joblib import cpu_count
    from joblib.externals.loky import ProcessPoolExecutor

    pool = ProcessPoolExecutor(
        min(n_tasks, cpu_count()),
        env=ONE_THREAD,
        initializer=_end_with_parent,
        initargs=(os.getpid(),),
    )
    try:
        yield pool
    finally:
        # all is done, or nobody will read what is not
        pool.shutdown(kill_workers=True)


def _end_with_parent(parent: int) -> None:
    """End this worker when the process that started it is killed, instead of waiting for ever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_INTERVAL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _is_dask_client(executor: Any) -> bool:
    distributed = sys.modules.get("distributed")
    return distributed is not None and isinstance(executor, distributed.Client)


def _submit(pool: Executor, function: Callable, label: str, task: Portable, first: bool) -> Future:
    try:
        with warnings.catch_warnings():
            # Dask's advice to scatter would lose the batch together with the worker that holds it
            warnings.filterwarnings("ignore", message="Sending large graph")
            return pool.submit(_call, function, task)
    except Exception as error:
        refused = RuntimeError(
            f"batch {label} could not be submitted, the executor takes no tasks: {error}. Pass an "
            "executor that is running, or leave executor=None for a new pool."
        )
        if first:
            raise refused from error
        future: Future = Future()
        future.set_exception(refused)
        return future


def _outcome(future: Future) -> Outcome:
    try:
        return future.result()
    except FutureCancelled:
        return Outcome(error=RuntimeError("cancelled before it ended: the executor was shut down"))
    except Exception as error:
        return Outcome(error=error)


def _call(function: Callable, task: Portable) -> Outcome:
    """Call in the worker; exceptions come back as values, because some break a pool's pipe."""
    try:
        return Outcome(result=function(task.value))
    except Exception as error:
        error.add_note("In the worker:\n" + "".join(traceback.format_exception(error)))
        return Outcome(error=_picklable(error))


def _picklable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
        return error.with_traceback(None)
    except Exception:
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        plain.__notes__ = list(getattr(error, "__notes__", []))
        return plain


def _unpack(content: bytes) -> Portable:
    return Portable(pickle.loads(content))


def _pickle_by_value(value: Any, function: Callable | None) -> bytes:
    """Pickle with the function's module by value, else by reference if that cannot be pickled."""
    import cloudpickle

    module = _own_module(function)
    if module is None:
        return cloudpickle.dumps(value)
    cloudpickle.register_pickle_by_value(module)
    try:
        with contextlib.suppress(Exception):
            return cloudpickle.dumps(value)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    return cloudpickle.dumps(value)


def _own_module(function: Callable | None) -> ModuleType | None:
    """Return the module of a user's function, unless it is installed and so known to workers."""
    while isinstance(function, functools.partial):
        function = function.func
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    installed = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    return None if file is None or file.startswith(installed) else module

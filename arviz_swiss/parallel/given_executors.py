"""Executors that the caller gives: pools of concurrent.futures, and clusters of Dask."""

import contextlib
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from typing import Any

from arviz_swiss.parallel.outcomes import Outcome, ProcessEnded, TooLong, call, outcome_of
from arviz_swiss.parallel.portable import Portable

# Tasks under way for each worker: one that it runs, and one that is there when it is done.
AHEAD = 2
# So often is a task handed over that the cluster loses, by a cut connection or in gathering it.
TRIES = 3
# Seconds between two looks at whether a cluster has workers, and for the answer.
LOOK, ANSWER = 2.0, 10.0
# Seconds without workers until that is said, as a worker that ends may be back by then, and until
# no more are expected; Dask's own setting for the latter is used if there is one.
SAID_AFTER, WITHOUT_WORKERS = 6.0, 600.0
# Seconds until a worker where a task hangs is begun anew: by then Dask has forgotten the task, and
# does not give it to another worker. And for the worker to be back.
FORGOTTEN, RESTARTED = 1.0, 120.0
NO_WORKERS = "no Dask workers, waiting for some"


class Pool:
    """An executor of concurrent.futures, which is left running."""

    def __init__(self, executor: Executor, workers: int, timeout: float | None):
        self._executor, self._workers, self._timeout = executor, workers, timeout

    def room(self) -> int:
        """Return how many tasks may be under way."""
        return AHEAD * self._workers

    def submit(self, function: Callable, label: str, task: Portable) -> Future:
        """Hand over a task."""
        return self._executor.submit(call, Portable(function), task, self._timeout)

    def watch(self) -> str:
        """Nothing can be seen of a pool before its tasks are done."""
        return ""

    def outcome(self, future: Future, label: str) -> Outcome | None:
        """Return what became of a task."""
        return outcome_of(future)

    def cancel(self, futures: Iterable[Future]) -> None:
        """Take back what has not begun."""
        for future in futures:
            future.cancel()

    def close(self) -> None:
        """Leave the executor as it is."""


class Cluster(Pool):
    """The workers of a Dask client. Dask itself begins tasks anew whose workers are gone.

    `homes` are addresses of workers that have what tasks of these labels need.
    """

    def __init__(self, client: Any, timeout: float | None, homes: Mapping[str, str | None]):
        super().__init__(client.get_executor(pure=False), 1, timeout)
        self._client, self._homes = client, homes
        self._looked = time.monotonic()
        self._gone_since: float | None = None
        self._message = ""
        self._lost: dict[str, int] = {}

    def room(self) -> int:
        """Return how many tasks may be under way: workers come and go."""
        with contextlib.suppress(Exception):  # keep the last number while the scheduler is away
            self._workers = count_threads(self._client)
        return AHEAD * self._workers

    def submit(self, function: Callable, label: str, task: Portable) -> Future:
        """Hand over a task, for the worker that has what it needs."""
        home = self._homes.get(label)
        where: dict[str, Any] = {}
        if home is not None:
            where = {"workers": [home], "allow_other_workers": True}
        with warnings.catch_warnings():
            # Dask's advice to scatter would lose the batch together with the worker that holds it
            warnings.filterwarnings("ignore", message="Sending large graph")
            return self._executor.submit(call, Portable(function), task, self._timeout, **where)

    def watch(self) -> str:
        """Return what is wrong with the cluster, if it has no workers; raise if that lasts."""
        now = time.monotonic()
        if now - self._looked < LOOK:
            return self._message
        self._looked = now
        try:
            has_workers = bool(_threads(self._client))
        except Exception:  # a scheduler that does not answer
            has_workers = False
        if has_workers:
            self._gone_since, self._message = None, ""
            return ""
        if self._gone_since is None:
            self._gone_since = now
        self._message = NO_WORKERS if now - self._gone_since > SAID_AFTER else ""
        patience = _patience()
        if now - self._gone_since > patience:
            raise NoWorkers(
                f"the Dask cluster has had no workers for {patience:g} seconds (Dask's setting "
                "distributed.scheduler.no-workers-timeout). If they ended, memory is the likely "
                "cause. Start others, and run the same call again"
            )
        return self._message

    def outcome(self, future: Future, label: str) -> Outcome | None:
        """Return what became of a task; None if Dask lost it and it shall be tried again.

        What the task itself raised is in its result: other errors are the cluster's. A worker where
        a task hangs is begun anew.
        """
        self._gone_since = None  # somebody has done it
        outcome = outcome_of(future)
        is_lost = not future.cancelled() and future.exception() is not None
        if is_lost and not isinstance(outcome.error, ProcessEnded):
            self._lost[label] = self._lost.get(label, 0) + 1
            if self._lost[label] < TRIES:
                return None
        if isinstance(outcome.error, TooLong) and outcome.worker is not None:
            timer = threading.Timer(FORGOTTEN, self._restart, [outcome.worker])
            timer.daemon = True
            timer.start()
        return outcome

    def _restart(self, address: str) -> None:
        with contextlib.suppress(Exception):  # a worker without a nanny keeps the thread
            self._client.restart_workers([address], timeout=RESTARTED)


class NoWorkers(RuntimeError):
    """A cluster has had no workers for so long that none are expected any more."""


def is_dask_client(executor: Any) -> bool:
    """Tell a Dask client, without importing Dask."""
    distributed = sys.modules.get("distributed")
    return distributed is not None and isinstance(executor, distributed.Client)


def count_threads(client: Any) -> int:
    """Return how many tasks a Dask cluster runs at once; one if it has no workers yet."""
    return max(sum(_threads(client).values()), 1)


def _threads(client: Any) -> dict[str, int]:
    return client.sync(client.scheduler.ncores, callback_timeout=ANSWER)


def _patience() -> float:
    import dask
    from dask.utils import parse_timedelta

    seconds = parse_timedelta(dask.config.get("distributed.scheduler.no-workers-timeout", None))
    return WITHOUT_WORKERS if seconds is None else float(seconds)

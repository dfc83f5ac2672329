"""The progress bar of long work."""

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

INTERVAL = 0.5


class Bar:
    """A progress bar that may be absent: nothing is shown without a bar of tqdm."""

    def __init__(self, description: str, shown: Any = None):
        self._description, self._stage, self._shown = description, "", shown

    @property
    def is_shown(self) -> bool:
        """Whether there is anything to see."""
        return self._shown is not None

    def __call__(self, steps: int = 1) -> None:
        """Move the bar, by one step unless told."""
        if self._shown is not None:
            self._shown.update(steps)

    def stage(self, text: str = "") -> str:
        """Say beside the description what is being done now, and return what was said before."""
        before, self._stage = self._stage, text
        if self._shown is not None and text != before:
            self._shown.set_description(
                f"{self._description}, {text}" if text else self._description
            )
        return before

    def refresh(self) -> None:
        """Let the clock go on while the bar stands still."""
        if self._shown is not None:
            self._shown.refresh()

    def finish(self) -> None:
        """End at 100%: what has been done was all that was needed."""
        shown = self._shown
        if shown is None or shown.disable or shown.n == shown.total:
            return
        done, since = shown.n, shown.start_t
        if hasattr(shown, "container"):
            # a notebook's bar learns its length by a reset only, which forgets all else
            shown.reset(total=done)
            shown.n, shown.start_t = done, since
        shown.total = done
        shown.refresh()


@contextlib.contextmanager
def progress(
    total: int, description: str, show: bool = True, done: int = 0, unit: str = "batch"
) -> Iterator[Bar]:
    """Show a bar of at most `total` steps, those `done` before included, while the context lasts.

    The bar moves by one when called; it does nothing if it is not wanted or tqdm is not installed.
    """
    tqdm = _tqdm() if show else None
    if tqdm is None:
        yield Bar(description)
    else:
        with tqdm(total=total, initial=done, desc=description, unit=unit) as shown:
            yield Bar(description, shown)


@contextlib.contextmanager
def waiting_for(begun: Callable[[], bool], bar: Bar, stage: str) -> Iterator[None]:
    """Show a stage, and let the clock go on, until something has begun.

    `begun` is asked every half second, in another thread.
    """
    ended = threading.Event()
    bar.stage(stage)

    def watch() -> None:
        while not ended.wait(INTERVAL):
            if begun():
                bar.stage()
                return
            bar.refresh()

    watching = threading.Thread(target=watch, daemon=True)
    if bar.is_shown:
        watching.start()
    try:
        yield
    finally:
        ended.set()
        if watching.is_alive():
            watching.join()


def _tqdm():
    with warnings.catch_warnings():
        # a notebook without ipywidgets gets a bar of text; that need not be said
        warnings.filterwarnings("ignore", message="IProgress not found")
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return None
    return tqdm

"""The progress bar of long work, where somebody sees it: in a terminal or a notebook."""

import contextlib
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

INTERVAL = 0.5
# Seconds: what is mostly done before shows no bar.
SOON = 1.0
# The unit that is counted in thousands and millions.
BYTES = "B"


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
            words = f"{self._description}, {text}" if text else self._description
            self._shown.set_description_str(words, refresh=False)
            self.refresh()
        return before

    def refresh(self) -> None:
        """Let the clock go on while the bar stands still."""
        shown = self._shown
        if shown is None or shown.disable:
            return
        appears = shown.start_t + shown.delay
        if time.time() >= appears:
            # by this tqdm knows at the end that there is a line to end
            shown.last_print_t = max(shown.last_print_t, appears)
            shown.refresh()

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
        self.refresh()

    def vanish(self) -> None:
        """Leave no half bar: the work has ended before its time."""
        shown = self._shown
        if shown is not None and not shown.disable:
            # a notebook leaves what is not full
            shown.total, shown.leave = shown.n, False


# For who shows nothing.
HIDDEN = Bar("")


@contextlib.contextmanager
def progress(
    total: int | None,
    description: str,
    show: bool = True,
    done: int = 0,
    unit: str = "batch",
    delay: float = 0.0,
) -> Iterator[Bar]:
    """Show a bar of at most `total` steps, those `done` before included, while the context lasts.

    The bar moves by one when called, and appears after `delay` seconds. Without a `total`, which
    `finish` then tells, it counts. It does nothing if it is not wanted, nobody sees it, or tqdm is
    not installed. At an error or interrupt it vanishes.
    """
    tqdm = _tqdm() if show and _is_watched() else None
    if tqdm is None:
        yield Bar(description)
        return
    look = {"desc": description, "unit": unit, "unit_scale": unit == BYTES}
    with tqdm(total=total, initial=done, delay=delay, **look) as shown:
        bar = Bar(description, shown)
        try:
            yield bar
        except BaseException:
            bar.vanish()
            raise


@contextlib.contextmanager
def ticking(bar: Bar, stage: str) -> Iterator[None]:
    """Show a stage that has no steps, and let the clock go on."""
    with waiting_for(lambda: False, bar, stage):
        yield
    bar.stage()


def _is_watched() -> bool:
    """Tell whether somebody sees a bar; a notebook's streams are no terminal."""
    is_terminal = getattr(sys.stderr, "isatty", bool)()  # there may be no stream at all
    return is_terminal or _is_notebook()


def _is_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


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

"""The progress bar of long work."""

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Bar", "describing_when", "progress"]

INTERVAL = 0.5


class Bar:
    """A progress bar that may not be shown.

    Parameters
    ----------
    bar : tqdm.tqdm, optional
        Without it nothing is shown.
    """

    def __init__(self, bar: Any = None):
        self.bar = bar

    def __call__(self) -> None:
        """Move the bar by one."""
        if self.bar is not None:
            self.bar.update()

    def describe(self, description: str) -> None:
        """Change what stands before the bar."""
        if self.bar is not None and self.bar.desc != f"{description}: ":
            self.bar.set_description(description)

    def refresh(self) -> None:
        """Let the clock go on while the bar stands still."""
        if self.bar is not None:
            self.bar.refresh()


@contextlib.contextmanager
def progress(total: int, description: str, show: bool = True, done: int = 0) -> Iterator[Bar]:
    """Show a bar over batches while the context lasts.

    Parameters
    ----------
    total : int
        How often the bar will be moved, what is `done` before included.
    description : str
    show : bool, default True
    done : int, default 0

    Yields
    ------
    Bar
        A call moves the bar by one, and does nothing if it is not wanted or tqdm is not installed.

    Examples
    --------
    >>> from arviz_swiss.progress import progress
    >>> with progress(2, "Sampling", show=False) as advance:
    ...     advance()
    """
    tqdm = _tqdm() if show else None
    if tqdm is None:
        yield Bar()
    else:
        with tqdm(total=total, initial=done, desc=description, unit="batch") as bar:
            yield Bar(bar)


@contextlib.contextmanager
def describing_when(begun: Callable[[], bool], bar: Bar, description: str) -> Iterator[None]:
    """Change the description of a bar as soon as something has begun; let the clock go on before.

    Parameters
    ----------
    begun : callable
        Asked every half second, in another thread.
    bar : Bar
    description : str
    """
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(INTERVAL):
            if begun():
                return bar.describe(description)
            bar.refresh()

    watching = threading.Thread(target=watch, daemon=True)
    if bar.bar is not None:
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

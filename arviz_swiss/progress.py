"""The progress bar of long work."""

import contextlib
import warnings
from collections.abc import Callable, Iterator

__all__ = ["progress"]


@contextlib.contextmanager
def progress(
    total: int, description: str, show: bool = True, done: int = 0
) -> Iterator[Callable[[], object]]:
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
    callable
        Moves the bar by one; does nothing if it is not wanted or tqdm is not installed.

    Examples
    --------
    >>> from arviz_swiss.progress import progress
    >>> with progress(2, "Sampling", show=False) as advance:
    ...     advance()
    """
    tqdm = _tqdm() if show else None
    if tqdm is None:
        yield lambda: None
    else:
        with tqdm(total=total, initial=done, desc=description, unit="batch") as bar:
            yield bar.update


def _tqdm():
    with warnings.catch_warnings():
        # a notebook without ipywidgets gets a bar of text; that need not be said
        warnings.filterwarnings("ignore", message="IProgress not found")
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return None
    return tqdm

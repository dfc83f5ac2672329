"""The one class of warnings, and lists in words."""

import sys
import warnings
from collections.abc import Sequence

PACKAGE = __name__.partition(".")[0]


class MergeWarning(UserWarning):
    """Something about the batches that changes how far the merged posterior can be trusted."""


def brief(names: Sequence[str], most: int = 5) -> str:
    """Return names as a list in words, cut short."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def warn(text: str) -> None:
    """Warn at the line that called the package, however deep inside it this is."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, MergeWarning, stacklevel=level)

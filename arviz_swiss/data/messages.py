"""The one class of warnings, and lists in words."""

from collections.abc import Sequence


class MergeWarning(UserWarning):
    """Something about the batches that changes how far the merged posterior can be trusted."""


def brief(names: Sequence[str], most: int = 5) -> str:
    """Return names as a list in words, cut short."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more

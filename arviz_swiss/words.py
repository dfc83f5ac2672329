"""Lists in words."""

from collections.abc import Sequence


def brief(names: Sequence[str], most: int = 5) -> str:
    """Return names as a list in words, cut short."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more

"""Numbers of things, as users give them."""

import numbers
from typing import Any


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Refuse what is no integer, or too small a one; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")

"""Models that nobody needs any more: rings of references, which Python frees only now and then.

It looks for them when many objects were made, however large. Models are few objects with large
arrays, so that those of many batches would be in memory at once.
"""

import contextlib
import ctypes
import gc
import threading
from collections.abc import Iterable

import pymc as pm

from arviz_swiss.pymc.graphs import bytes_of

# Bytes of models' data after which it is worth the time, a fraction of a second, to free them.
BYTES_LEFT = 2**24

_lock = threading.Lock()
_left = 0


def model_bytes(models: Iterable[pm.Model]) -> int:
    """Return how many bytes of data the models hold."""
    return sum(map(bytes_of, models))


def free_models(bytes_left: int) -> None:
    """Tell that models of so many bytes are left behind; free such, unless it is too early."""
    global _left
    with _lock:
        _left += bytes_left
        if _left < BYTES_LEFT:
            return
        _left = 0
    gc.collect()
    with contextlib.suppress(AttributeError, OSError, TypeError):
        # the C library of Linux keeps freed blocks of up to 32 MB, unless it is asked
        ctypes.CDLL(None).malloc_trim(0)

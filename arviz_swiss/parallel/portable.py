"""Carry any object to a worker, closures and functions of a notebook or script included."""

import contextlib
import functools
import pickle
import sys
import sysconfig
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

# cloudpickle has one list of modules for all threads, and each process is fed by one.
_BY_VALUE = threading.RLock()


class Portable:
    """An object for a worker, which is pickled by value where workers cannot import it.

    Nothing is copied until the object is pickled, so threads share it with the caller. The module
    of the function `by_value` is sent along, for workers that cannot import it.
    """

    def __init__(self, value: Any, by_value: Callable | None = None):
        self.value = value
        self.by_value = by_value

    def __reduce__(self):
        """Pickle the value with cloudpickle."""
        return Packed, (_pickle_by_value(self.value, self.by_value),)


class Packed:
    """What arrives of a `Portable`: opened where it is used, not by a scheduler on the way."""

    def __init__(self, content: bytes):
        self._content = content

    @property
    def value(self) -> Any:
        """Open it; whoever needs it twice keeps it."""
        return pickle.loads(self._content)


def _pickle_by_value(value: Any, function: Callable | None) -> bytes:
    """Pickle with the function's module by value, else by reference if that cannot be pickled."""
    import cloudpickle

    module = _own_module(function)
    if module is None:
        return cloudpickle.dumps(value)
    with _BY_VALUE:
        cloudpickle.register_pickle_by_value(module)
        try:
            with contextlib.suppress(Exception):
                return cloudpickle.dumps(value)
        finally:
            cloudpickle.unregister_pickle_by_value(module)
        return cloudpickle.dumps(value)


def _own_module(function: Callable | None) -> ModuleType | None:
    """Return the module of a user's function, unless it is installed and so known to workers."""
    while isinstance(function, functools.partial):
        function = function.func
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    installed = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    return None if file is None or file.startswith(installed) else module

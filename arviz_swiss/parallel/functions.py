"""What a function is: its source, and the values that it carries or refers to."""

import ast
import contextlib
import dataclasses
import dis
import functools
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from arviz_swiss.parallel.executors import is_own
from arviz_swiss.parallel.store import PRINTED, fingerprint

__all__ = ["identify"]

# No name of a variable has a space.
SOURCE = "source code"
# Code from `exec` and from a prompt that is piped in share these names, and with them, from Python
# 3.13 on, the source of whichever was registered last.
SHARED_NAMES = ("<string>", "<stdin>")
TABLES = (np.ndarray, pd.DataFrame, pd.Series, xr.Dataset, xr.DataArray)


def identify(function: Callable) -> dict[str, str | None]:
    """Return fingerprints of a function's source and of the values that decide what it does.

    Parameters
    ----------
    function : callable
        A function, lambda, method, ``functools.partial``, or an object that can be called.

    Returns
    -------
    dict
        Under "source code" that of the source, comments and layout aside; under the name of each
        argument that is fixed, default, variable of an enclosing function, and global variable,
        that of its value. None where it cannot be told: source that was typed into a prompt,
        objects that are neither data nor functions.

    Examples
    --------
    >>> import functools
    >>> from arviz_swiss.parallel.functions import identify
    >>> def scaled(x, by):
    ...     return x * by
    >>> two, three = (identify(functools.partial(scaled, by=by)) for by in (2, 3))
    >>> two["by"] == three["by"], two["source code"] == three["source code"]
    (False, True)
    """
    return _identify(function, ())


def _identify(function: Callable, within: tuple[Any, ...]) -> dict[str, str | None]:
    values: dict[str, Any] = {}
    while not inspect.isfunction(function):
        if isinstance(function, functools.partial):
            values = {f"argument {k}": v for k, v in enumerate(function.args)} | values
            values = {**function.keywords, **values}
            function = function.func
        elif inspect.ismethod(function):
            values |= {"self": _Attributes(function.__self__)}
            function = function.__func__
        elif inspect.ismethod(method := getattr(function, "__call__")):  # noqa: B004, B009
            function = method
        else:
            break
    if inspect.isfunction(function):
        values = {**_carried(function), **values}
    within = (*within, function)
    found = {name: _value(value, within) for name, value in values.items()}
    return {SOURCE: _source(function), **found}


class _Attributes(NamedTuple):
    """An object that stands for its attributes."""

    owner: Any


def _carried(function: types.FunctionType) -> dict[str, Any]:
    """Return defaults, variables of enclosing functions, and global variables, by name."""
    code = function.__code__
    values = dict(function.__kwdefaults__ or {})
    positional = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    values |= zip(positional[len(positional) - len(defaults) :], defaults, strict=True)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not yet assigned
            values[name] = cell.cell_contents
    for name in _global_names(code):
        if name in function.__globals__:
            values.setdefault(name, function.__globals__[name])
    return values


def _global_names(code: types.CodeType) -> Iterator[str]:
    # not co_names, which also holds the names of attributes
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from _global_names(constant)


def _value(value: Any, within: tuple[Any, ...]) -> str | None:
    """Return a fingerprint of one value, None if what it stands for cannot be told."""
    if isinstance(value, PRINTED) or isinstance(value, TABLES):
        return fingerprint(value)
    if any(value is one for one in within):
        return None
    if inspect.ismodule(value) or inspect.isclass(value):
        return fingerprint(value.__name__)
    if isinstance(value, functools.partial) or inspect.ismethod(value) or inspect.isfunction(value):
        if not is_own(value):
            return fingerprint(getattr(value, "__qualname__", "partial"))
        return _all_of(_identify(value, within))
    if isinstance(value, _Attributes):
        if any(value.owner is one for one in within):
            return None
        attributes = getattr(value.owner, "__dict__", {})
        within = (*within, value.owner)
        return _all_of({name: _value(one, within) for name, one in attributes.items()})
    if dataclasses.is_dataclass(value) or isinstance(value, types.SimpleNamespace):
        return _value(_Attributes(value), within)
    within = (*within, value)
    if isinstance(value, Mapping):
        return _all_of({repr(name): _value(one, within) for name, one in value.items()})
    if isinstance(value, list | tuple):
        return _all_of({str(k): _value(one, within) for k, one in enumerate(value)})
    if isinstance(value, set | frozenset):
        return _all_of({repr(one): None for one in value})
    return None


def _all_of(parts: Mapping[str, str | None]) -> str:
    return fingerprint({name: part or "unknown" for name, part in parts.items()})


def _source(function: Callable) -> str | None:
    try:
        if inspect.getfile(inspect.unwrap(function)) in SHARED_NAMES:
            return None
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return None
    with contextlib.suppress(SyntaxError):  # a lambda in the middle of a statement
        source = ast.unparse(ast.parse(source))
    return fingerprint(source)

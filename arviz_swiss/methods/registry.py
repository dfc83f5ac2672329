"""Names, properties and options of the merging methods."""

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from arviz_swiss.base.gaussian import Gaussian, Moments
from arviz_swiss.base.linalg import Spectrum


class Given(NamedTuple):
    """What a method gets: moments of the kind it expects, spectra, and weights that sum to one."""

    moments: Sequence[Moments]
    pooled: Gaussian
    spectra: Sequence[Spectrum]
    weights: np.ndarray


class Method(NamedTuple):
    """A way of merging: the kind of sub-posterior it expects, and what it makes of it.

    `makes` is "maps" (one affine map a batch), "terms" (maps whose images of all batches' draws are
    added, to new draws), "draws" (new ones, of all batches' draws at once) or "product" (new ones,
    of all batches' draws and their log densities). `pools` says that the result has the pooled
    moments, which alone can take a prior into account that counts other than once. `any_shape` says
    that the sub-posteriors need not be near a Gaussian.
    """

    name: str
    expects: str
    makes: str
    pools: bool
    any_shape: bool
    combine: Callable

    @property
    def options(self) -> list[str]:
        """Names of the method's own options."""
        parameters = inspect.signature(self.combine).parameters.values()
        return [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]


METHODS: dict[str, Method] = {}


def register(
    name: str, *, expects: str, makes: str = "maps", pools: bool = False, any_shape: bool = False
) -> Callable:
    """Return a decorator that adds a function to the methods, with the properties of `Method`."""

    def add(combine: Callable) -> Callable:
        METHODS[name] = Method(name, expects, makes, pools, any_shape, combine)
        return combine

    return add


def find(name: str) -> Method:
    """Return the method of that name, or raise an error that lists the valid ones."""
    if not isinstance(name, str) or name not in METHODS:
        valid = ", ".join(f'"{known}"' for known in METHODS)
        raise ValueError(f"unknown method {name!r}. Valid methods are {valid}.")
    return METHODS[name]


def check_options(
    method: Method, options: Mapping[str, Any], arguments: Sequence[str] = (), caller: str = "merge"
) -> None:
    """Refuse options that the method does not have; `arguments` are those of the caller itself."""
    if unknown := [name for name in options if name not in method.options]:
        valid = ", ".join(method.options) or "none"
        near = difflib.get_close_matches(unknown[0], [*method.options, *arguments], n=1)
        meant = f" Did you mean {near[0]}=?" if near else ""
        raise TypeError(
            f'method "{method.name}" has no option {", ".join(unknown)}. Its options are: {valid}; '
            f"all others are arguments of {caller} itself.{meant}"
        )


def checked_bandwidth(bandwidth: float) -> float:
    """Return a bandwidth; ValueError if it is no positive number."""
    if not isinstance(bandwidth, Real) or not 0 < bandwidth < np.inf:
        raise ValueError(f"bandwidth must be a positive number, got {bandwidth!r}")
    return float(bandwidth)

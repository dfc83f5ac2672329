"""What can be draws: chains and draws first, names that containers and files can hold."""

import re
from collections.abc import Iterable, Mapping
from numbers import Number
from typing import Any

import numpy as np

NO_CHAIN_AXIS = "Draws without a chain axis need one: x[None] makes them one chain"
# Nobody samples fewer draws in ten times as many chains: parameters were taken for draws.
FEWEST_DRAWS = 10


class Refused(ValueError):
    """What a reader refuses, with a remedy of its own."""


def check_axes(arrays: Mapping[str, Any]) -> None:
    """Refuse arrays whose first two axes cannot be chains and draws, and names no file can hold.

    Dimensions of arrays have no names, so nothing else tells a matrix of draws by parameters.
    """
    check_names(arrays)
    for name, array in arrays.items():
        if not hasattr(array, "__array__") and not isinstance(array, list | tuple | Number):
            continue
        shape = np.shape(array)
        if len(shape) > 1 and shape[0] <= shape[1]:
            continue
        if len(shape) < 2:
            raise Refused(
                f"variable {name}: shape {shape}, but the first two axes are chains and draws. "
                f"{NO_CHAIN_AXIS}."
            )
        raise Refused(
            f"variable {name}: shape {shape}, which would be {shape[0]} chains of {shape[1]} "
            f"draws. {NO_CHAIN_AXIS}. If there really are more chains than draws, name the axes: "
            f'xarray.Dataset({{"{name}": (("chain", "draw", ...), x)}}).'
        )


def check_sizes(name: str, chains: int, draws: int) -> None:
    """Refuse draws, called `name`, in ten times as many chains, which cannot be meant."""
    if draws < FEWEST_DRAWS and chains >= FEWEST_DRAWS * max(draws, 1):
        raise ValueError(
            f"{name} has {chains} chains of {draws} draws. {NO_CHAIN_AXIS}. If there really are so "
            "many chains, join some of them."
        )


def check_names(names: Iterable[Any]) -> None:
    """Refuse names that neither a DataTree nor a file can hold."""
    if slashed := [str(name) for name in names if "/" in str(name)]:
        renamed = re.sub(r"\s*/\s*", "_", slashed[0])
        raise Refused(
            f'variable {slashed[0]}: a DataTree or a file cannot hold a name with "/". Rename it, '
            f'to "{renamed}" say, or leave it out.'
        )

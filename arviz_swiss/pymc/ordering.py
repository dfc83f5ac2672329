"""The order of a variable's elements in the draws and in a model, matched by label."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from arviz_swiss.data.layout import Layout, Variable

__all__ = ["Order", "find_order"]


class Order(NamedTuple):
    """How elements must be moved to come in the model's order.

    Attributes
    ----------
    ndim : int
        Number of the variable's own dimensions, which are the last of an array.
    positions : tuple of array or None
        For each dimension, from the first on, where the model's elements are in the draws; None
        where the order is the same. Further dimensions have none.

    Examples
    --------
    >>> import numpy as np
    >>> from arviz_swiss.pymc.ordering import Order
    >>> order = Order(1, (np.array([2, 0, 1]),))
    >>> order.into(np.array([[10, 11, 12]])), order.back(np.array([[12, 10, 11]]))
    (array([[12, 10, 11]]), array([[10, 11, 12]]))
    """

    ndim: int
    positions: tuple[np.ndarray | None, ...]

    def into(self, array: np.ndarray) -> np.ndarray:
        """Return an array of draws with its elements in the model's order."""
        return self._take(array, self.positions)

    def back(self, array: np.ndarray) -> np.ndarray:
        """Return an array in the model's order with its elements in that of the draws."""
        return self._take(array, [p if p is None else np.argsort(p) for p in self.positions])

    def of_image(self, ndim: int) -> "Order":
        """Return the order of the variable's image, which has so many dimensions of its own.

        Elements along a dimension that the transform changes are its own, and stay in place.
        """
        kept = ndim if ndim == self.ndim else ndim - 1
        return Order(ndim, self.positions[:kept])

    def _take(self, array: np.ndarray, positions) -> np.ndarray:
        array = np.asarray(array)
        for axis, chosen in enumerate(positions, start=array.ndim - self.ndim):
            if chosen is not None and array.shape[axis] == chosen.size:
                array = array.take(chosen, axis=axis)
        return array


def find_order(
    variable: Variable, layout: Layout, dims: tuple[str, ...], coords: Mapping[str, Any]
) -> Order:
    """Match a variable's elements in the draws to those in the model.

    Parameters
    ----------
    variable : Variable
        One of the layout's.
    layout : Layout
        Of the draws.
    dims : tuple of str
        The variable's dimensions in the model.
    coords : mapping
        The model's coordinates.

    Returns
    -------
    Order
        The same order along dimensions without labels, or whose labels are not the model's.

    Raises
    ------
    ValueError
        If the dimensions come in another order than in the model.
    """
    if dims != variable.dims:
        if set(dims) == set(variable.dims):
            raise ValueError(
                f"variable {variable.name}: dimensions {variable.dims}, but {dims} in the model. "
                "Transpose the draws."
            )
        return Order(len(dims), ())
    positions = (_positions(layout.coords.get(dim), coords.get(dim)) for dim in dims)
    return Order(len(dims), tuple(positions))


def _positions(given: Any, wanted: Any) -> np.ndarray | None:
    """Return where the wanted labels are among those given; None if all are in place."""
    if given is None or wanted is None:
        return None
    place = {label: position for position, label in enumerate(np.asarray(given).tolist())}
    labels = np.asarray(wanted).tolist()
    if set(place) != set(labels) or list(place) == labels:
        return None
    return np.array([place[label] for label in labels])

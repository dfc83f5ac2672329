"""Elements of draws and of a model, matched by label."""

import numpy as np
import pytest
import xarray as xr

from arviz_swiss.data.layout import layout_of
from arviz_swiss.pymc.space import Order, find_order

MODEL = {"row": np.array(["a", "b", "c"]), "column": np.array([2, 1])}


def order_of(coords, dims=("row", "column")):
    sizes = {"row": 3, "column": 2}
    shape = (1, 1, *(sizes[dim] for dim in dims))
    dataset = xr.Dataset({"x": (("chain", "draw", *dims), np.zeros(shape))}, coords)
    layout = layout_of(dataset, ["x"])
    return find_order(layout.variables[0], layout, ("row", "column"), MODEL)


def test_elements_are_matched_by_label():
    order = order_of({"row": ["c", "a", "b"], "column": [1, 2]})
    draws = np.array([[["c1", "c2"], ["a1", "a2"], ["b1", "b2"]]])
    found = order.into(draws)
    assert found.tolist() == [[["a2", "a1"], ["b2", "b1"], ["c2", "c1"]]]
    np.testing.assert_array_equal(order.back(found), draws)


@pytest.mark.parametrize(
    "coords", [{}, {"row": ["a", "b", "c"], "column": [2, 1]}, {"row": [0, 1, 2]}]
)
def test_without_labels_of_the_model_elements_stay(coords):
    draws = np.arange(6).reshape(1, 3, 2)
    order = order_of(coords)
    np.testing.assert_array_equal(order.into(draws), draws)
    np.testing.assert_array_equal(order.back(draws), draws)


def test_elements_of_a_transform_stay():
    order = order_of({"row": ["c", "a", "b"], "column": [1, 2]})
    # one element fewer along the last dimension, as of a simplex
    image = np.arange(3).reshape(1, 3, 1)
    assert order.of_image(2).into(image).ravel().tolist() == [1, 2, 0]
    # all elements of a matrix in one dimension
    packed = np.arange(3).reshape(1, 3)
    assert order.of_image(1).into(packed).ravel().tolist() == [0, 1, 2]
    assert Order(0, ()).into(packed) is packed


def test_other_dimensions():
    with pytest.raises(ValueError, match=r"variable x: .*Transpose the draws"):
        order_of({}, dims=("column", "row"))

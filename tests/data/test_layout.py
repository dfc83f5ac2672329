import arviz as az
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import arviz_swiss as az_swiss
from arviz_swiss.data.layout import (
    gather,
    gather_all,
    layout_of,
    positions_of,
    row_blocks,
    scatter,
)

SHAPES = st.lists(st.lists(st.integers(1, 4), max_size=3), min_size=1, max_size=50)


def dataset_of(shapes, dtype=float, chains=2, draws=5):
    rng = np.random.default_rng(len(shapes))
    data = {}
    for k, shape in enumerate(shapes):
        dims = ("chain", "draw", *(f"d{k}_{i}" for i in range(len(shape))))
        data[f"v{k}"] = (dims, rng.standard_normal((chains, draws, *shape)).astype(dtype))
    return xr.Dataset(data, coords={"chain": np.arange(chains), "draw": np.arange(draws)})


@settings(deadline=None, max_examples=40)
@given(SHAPES, st.sampled_from([np.float32, np.float64]))
def test_unflatten_undoes_flatten(shapes, dtype):
    dataset = dataset_of(shapes, dtype)
    flat = az_swiss.data.flatten(dataset)
    assert flat.sizes["parameter"] == sum(int(np.prod(shape, dtype=int)) for shape in shapes)
    back = az_swiss.data.unflatten(flat, like=dataset)
    xr.testing.assert_equal(back, dataset)
    assert {array.dtype for array in back.data_vars.values()} == {np.dtype(dtype)}


def test_unflatten_goes_by_label():
    dataset = dataset_of([[3], []])
    flat = az_swiss.data.flatten(dataset)
    turned = flat.isel(parameter=slice(None, None, -1))
    xr.testing.assert_equal(az_swiss.data.unflatten(turned, like=dataset), dataset)
    with pytest.raises(ValueError, match=r"Missing: v0\[0\]; not in like: none"):
        az_swiss.data.unflatten(flat.isel(parameter=slice(1, None)), like=dataset)
    with pytest.raises(ValueError, match="like has no variable v1, which flat has"):
        az_swiss.data.unflatten(flat, like=dataset.drop_vars("v1"))


def test_flatten_of_what_is_not_there():
    dataset = dataset_of([[3], []])
    with pytest.raises(ValueError, match='data has no group "prior"; its groups are: posterior'):
        az_swiss.data.flatten({"posterior": {"mu": np.zeros((2, 5))}}, group="prior")
    with pytest.raises(ValueError, match="no mu; the variables are v0, v1"):
        az_swiss.data.flatten(dataset, var_names="mu")
    with pytest.raises(ValueError, match="selects nothing"):
        az_swiss.data.flatten(dataset, var_names=["~v0", "~v1"])


def test_labels_are_arvizs(to_container):
    rng = np.random.default_rng(0)
    dataset = xr.Dataset(
        {
            "mu": (("chain", "draw"), rng.standard_normal((2, 50))),
            "beta": (("chain", "draw", "term"), rng.standard_normal((2, 50, 3))),
            "m": (("chain", "draw", "row", "col"), rng.standard_normal((2, 50, 2, 2))),
            "w": (("chain", "draw", "at"), rng.standard_normal((2, 50, 2))),
        },
        coords={"chain": [0, 1], "draw": np.arange(50), "term": ["a", "b", "c"]}
        | {"row": [3, 5], "col": ["y", "z"], "at": [0.5, 1.25]},
    )
    labels = az_swiss.data.flatten(dataset).parameter.values.tolist()
    assert labels == list(az.summary(to_container(dataset)).index)
    assert labels[:2] + labels[4:6] == ["mu", "beta[a]", "m[3, y]", "m[3, z]"]


def test_var_names_select_as_in_arviz():
    dataset = dataset_of([[], [2], []])
    assert az_swiss.data.flatten(dataset, var_names="~v1").sizes["parameter"] == 2
    flat = az_swiss.data.flatten(dataset, var_names=["v"], filter_vars="like")
    assert flat.sizes["parameter"] == 4


def test_order_of_dims_does_not_matter():
    dataset = dataset_of([[2, 3]])
    turned = dataset.transpose("d0_1", "draw", "d0_0", "chain")
    straight = az_swiss.data.flatten(dataset)
    by_label = az_swiss.data.flatten(turned).sel(
        parameter=[f"v0[{j}, {i}]" for i in range(2) for j in range(3)]
    )
    np.testing.assert_array_equal(by_label.values, straight.values)


@pytest.mark.parametrize(
    ("rows", "parameters"), [(1, 1), (127, 3), (128, 3), (10_001, 40), (50, 900)]
)
def test_row_blocks_cover_all_rows_once(rows, parameters):
    covered = np.concatenate([np.arange(rows)[block] for block in row_blocks(rows, parameters)])
    np.testing.assert_array_equal(covered, np.arange(rows))


def test_scatter_undoes_gather():
    dataset = dataset_of([[], [3], [2, 2]])
    layout = layout_of(dataset, list(dataset.data_vars))
    matrices = [dataset[name].values.reshape(10, -1) for name in dataset.data_vars]
    centre = np.arange(layout.size, dtype=float)
    rows = gather(matrices, layout, slice(2, 9), centre, np.empty((8, layout.size)))
    np.testing.assert_allclose(rows, gather_all(matrices, layout)[2:9] - centre)
    back = [np.zeros_like(matrix) for matrix in matrices]
    scatter(rows, layout, slice(2, 9), centre, back)
    for matrix, original in zip(back, matrices, strict=True):
        np.testing.assert_allclose(matrix[2:9], original[2:9])
        assert not matrix[:2].any()


@pytest.mark.parametrize(
    ("wanted", "labels", "positions"),
    [
        ("abc", "cab", [1, 2, 0]),
        ("abc", "abc", [0, 1, 2]),
        ("abc", "abd", None),
        ("abc", "ab", None),
        ("aab", "aba", None),
        ("ab", "abb", None),
    ],
)
def test_positions_of_labels(wanted, labels, positions):
    found = positions_of(list(wanted), list(labels))
    assert (found if found is None else found.tolist()) == positions

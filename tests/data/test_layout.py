import arviz as az
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from arviz_swiss.base.linalg import NARROW, SMALL_PRODUCT, AffineMap
from arviz_swiss.data import flatten, unflatten
from arviz_swiss.data.layout import (
    gather,
    gather_all,
    layout_of,
    move,
    positions_of,
    row_blocks,
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
    flat = flatten(dataset)
    assert flat.sizes["parameter"] == sum(int(np.prod(shape, dtype=int)) for shape in shapes)
    back = unflatten(flat, like=dataset)
    xr.testing.assert_equal(back, dataset)
    assert {array.dtype for array in back.data_vars.values()} == {np.dtype(dtype)}


def test_unflatten_goes_by_label():
    dataset = dataset_of([[3], []])
    flat = flatten(dataset)
    turned = flat.isel(parameter=slice(None, None, -1))
    xr.testing.assert_equal(unflatten(turned, like=dataset), dataset)
    with pytest.raises(ValueError, match=r"Missing: v0\[0\]; not in like: none"):
        unflatten(flat.isel(parameter=slice(1, None)), like=dataset)
    with pytest.raises(ValueError, match="like has no variable v1, which flat has"):
        unflatten(flat, like=dataset.drop_vars("v1"))


def test_flatten_of_what_is_not_there():
    dataset = dataset_of([[3], []])
    with pytest.raises(ValueError, match='data has no group "prior"; its groups are: posterior'):
        flatten({"posterior": {"mu": np.zeros((2, 5))}}, group="prior")
    with pytest.raises(ValueError, match="no mu; the variables are v0, v1"):
        flatten(dataset, var_names="mu")
    with pytest.raises(ValueError, match="selects nothing"):
        flatten(dataset, var_names=["~v0", "~v1"])


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
    labels = flatten(dataset).parameter.values.tolist()
    assert labels == list(az.summary(to_container(dataset)).index)
    assert labels[:2] + labels[4:6] == ["mu", "beta[a]", "m[3, y]", "m[3, z]"]


def test_var_names_select_as_in_arviz():
    dataset = dataset_of([[], [2], []])
    assert flatten(dataset, var_names="~v1").sizes["parameter"] == 2
    flat = flatten(dataset, var_names=["v"], filter_vars="like")
    assert flat.sizes["parameter"] == 4


def test_order_of_dims_does_not_matter():
    dataset = dataset_of([[2, 3]])
    turned = dataset.transpose("d0_1", "draw", "d0_0", "chain")
    straight = flatten(dataset)
    by_label = flatten(turned).sel(parameter=[f"v0[{j}, {i}]" for i in range(2) for j in range(3)])
    np.testing.assert_array_equal(by_label.values, straight.values)


@pytest.mark.parametrize(
    "sample_dims", ["sample", ["sample"], ("draw", "chain"), ("chain", "w", "draw")]
)
def test_draws_may_have_other_dimensions(sample_dims):
    dims = [sample_dims] if isinstance(sample_dims, str) else sample_dims
    sizes = dict(zip(dims, (4, 3, 2), strict=False))
    rng = np.random.default_rng(0)
    dataset = xr.Dataset(
        {
            "mu": (tuple(sizes), rng.standard_normal(tuple(sizes.values()))),
            "beta": (("term", *sizes), rng.standard_normal((2, *sizes.values()))),
        },
        coords={"term": ["a", "b"], dims[0]: list("wxyz")},
    )
    flat = flatten(dataset, sample_dims=sample_dims)
    assert flat.dims == (*dims, "parameter")
    np.testing.assert_array_equal(flat.sel(parameter="beta[b]"), dataset["beta"].sel(term="b"))
    back = unflatten(flat, like=dataset, sample_dims=sample_dims)
    xr.testing.assert_equal(back, dataset.transpose(*dims, "term"))
    some = flatten(dataset, var_names="~mu", sample_dims=sample_dims)
    assert some["parameter"].values.tolist() == ["beta[a]", "beta[b]"]


def test_missing_dimensions_of_draws_are_named():
    with pytest.raises(ValueError, match=r"no dimension sample, .*need dimensions \(sample, ...\)"):
        flatten(dataset_of([[]]), sample_dims="sample")


def test_draws_that_arviz_extracts_are_flattened(to_container):
    dataset = dataset_of([[3], []])
    extracted = az.extract(to_container(dataset), keep_dataset=True)
    flat = flatten(extracted, sample_dims="sample")
    np.testing.assert_array_equal(flat, flatten(dataset).values.reshape(10, 4))


@pytest.mark.parametrize(
    ("rows", "parameters"), [(1, 1), (127, 3), (128, 3), (10_001, 40), (50, 900)]
)
def test_row_blocks_cover_all_rows_once(rows, parameters):
    covered = np.concatenate([np.arange(rows)[block] for block in row_blocks(rows, parameters)])
    np.testing.assert_array_equal(covered, np.arange(rows))


@pytest.mark.parametrize("columns", [5, 29, NARROW])
def test_blocks_of_few_columns_make_small_products(columns):
    longest = max(block.stop - block.start for block in row_blocks(100_000, columns))
    assert 500 < longest <= SMALL_PRODUCT / columns**2


def test_rows_are_gathered():
    dataset = dataset_of([[], [3], [2, 2]])
    layout = layout_of(dataset, list(dataset.data_vars))
    matrices = [dataset[name].values.reshape(10, -1) for name in dataset.data_vars]
    centre = np.arange(layout.size, dtype=float)
    centres = np.tile(centre, 8)
    rows = gather(matrices, layout, slice(2, 9), centres, np.empty((8, layout.size)))
    np.testing.assert_array_equal(rows, gather_all(matrices, layout)[2:9] - centre)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shapes", [[[], [3], [2, 2]], [[], [40], [3], [5, 4]], [[17]]])
def test_rows_are_moved(shapes, dtype):
    dataset = dataset_of(shapes)
    layout = layout_of(dataset, list(dataset.data_vars))
    matrices = [dataset[name].values.reshape(10, -1) for name in dataset.data_vars]
    rng = np.random.default_rng(0)
    scale = rng.standard_normal((layout.size,) * 2)
    affine = AffineMap(scale, 1e6 + np.arange(layout.size), -2e6 + np.arange(layout.size))
    # more rows than one block has
    many = [np.tile(matrix, (1000, 1)) for matrix in matrices]
    out = [np.empty(matrix.shape, dtype) for matrix in many]
    move(many, layout, affine, out)
    moved = (gather_all(many, layout) - affine.source) @ scale.T + affine.target
    np.testing.assert_allclose(gather_all(out, layout), moved, rtol=50 * np.finfo(dtype).eps)


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


def test_labels_are_those_of_arviz():
    coords = {
        "text": ["a", "", "b c"],
        "number": [0.1, 1e-20],
        "time": np.array(["2020-01-01", "2020-01-02T03"], "M8[ns]"),
        "flag": [True, False],
    }
    dims = {"x": ["text"], "y": ["number", "text"], "t": ["time", "flag"], "u": ["none"], "s": []}
    sizes = {dim: len(values) for dim, values in coords.items()} | {"none": 3}
    data = {
        name: (("chain", "draw", *own), np.zeros((1, 2, *(sizes[dim] for dim in own))))
        for name, own in dims.items()
    }
    layout = layout_of(xr.Dataset(data, coords), list(data))
    assert layout.labels() == layout.labels(az.labels.BaseLabeller())
    assert layout.labels()[:3] == ["x[a]", "x", "x[b c]"]

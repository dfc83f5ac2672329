"""Operations on all blocks at once, against PyTensor's own, block by block."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.replace import vectorize_graph

from arviz_swiss.pymc import points
from arviz_swiss.pymc.blockwise import LARGEST_BLOCK, BlocksAtOnce
from arviz_swiss.pymc.compiling import LOCK, without_compiler
from arviz_swiss.pymc.elementwise import IN_NUMPY
from arviz_swiss.pymc.graphs import UNCOMPILED

RNG = np.random.default_rng(7)
BLOCKS = (6, 5)


def matrices(size, blocks=BLOCKS):
    """Return matrices far from singular, filled above and below the diagonal."""
    return RNG.normal(size=(*blocks, size, size)) / size + np.eye(size)


def positive(size, blocks=BLOCKS):
    roots = matrices(size, blocks)
    return roots @ roots.swapaxes(-2, -1)


def blockwise(function, *arrays, core):
    """Return the graph of a function of blocks, with `core` dimensions each, for all blocks."""
    single = [
        pt.tensor(dtype=a.dtype, shape=(None,) * n) for a, n in zip(arrays, core, strict=True)
    ]
    many = [
        pt.tensor(dtype=a.dtype, shape=(*(1 if m == 1 else None for m in blocks), *(None,) * n))
        for a, n in zip(arrays, core, strict=True)
        for blocks in (a.shape[: a.ndim - n],)
    ]
    graph = vectorize_graph(function(*single), dict(zip(single, many, strict=True)))
    return many, graph


def in_both_ways(inputs, graph, arrays):
    """Return what NumPy and PyTensor make of a graph."""
    with without_compiler():
        functions = [pytensor.function(inputs, graph, mode=mode) for mode in (IN_NUMPY, UNCOMPILED)]
        ours, own = ([type(node.op) for node in each.maker.fgraph.toposort()] for each in functions)
        assert BlocksAtOnce in ours
        assert BlocksAtOnce not in own
        before = [array.copy() for array in arrays]
        result, expected = (each(*arrays) for each in functions)
    assert result.dtype == expected.dtype
    assert not any(np.shares_memory(result, array) for array in arrays)
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)
    return result, expected


def assert_same(function, *arrays, core):
    result, expected = in_both_ways(*blockwise(function, *arrays, core=core), arrays)
    np.testing.assert_allclose(result, expected, rtol=1e-11, atol=1e-12)
    return result


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit_diagonal", [True, False])
@pytest.mark.parametrize("columns", [(), (3,)])
@pytest.mark.parametrize("one_matrix", [True, False])
@pytest.mark.parametrize("size", [1, 2, 5, 31])
def test_triangular_systems(lower, unit_diagonal, columns, one_matrix, size):
    blocks = (BLOCKS[0], 1) if one_matrix else BLOCKS
    sides = RNG.normal(size=(*BLOCKS, size, *columns))

    def solve(matrix, side):
        return pt.linalg.solve_triangular(
            matrix, side, lower=lower, unit_diagonal=unit_diagonal, b_ndim=1 + len(columns)
        )

    assert_same(solve, matrices(size, blocks), sides, core=(2, 1 + len(columns)))


@pytest.mark.parametrize("size", [2, LARGEST_BLOCK, LARGEST_BLOCK + 1])
def test_triangular_systems_large_and_few(size):
    def solve(matrix, side):
        return pt.linalg.solve_triangular(matrix, side, lower=True)

    for blocks in ((3,), (LARGEST_BLOCK + 2,)):
        sides = RNG.normal(size=(*blocks, size, 2))
        assert_same(solve, matrices(size, blocks), sides, core=(2, 2))


def test_a_singular_system_alone_has_no_solution():
    singular = matrices(2)
    singular[2, 3, 1, 1] = 0.0
    solve = pt.linalg.solve_triangular
    result = assert_same(
        lambda a, b: solve(a, b, lower=True, b_ndim=1), singular, np.ones((*BLOCKS, 2)), core=(2, 1)
    )
    assert np.isnan(result[2, 3]).all()
    assert np.isnan(result).sum() == 2


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("size", [1, 2, 7])
def test_cholesky(lower, size):
    covariances = positive(size)
    # one triangle is read, and not the other
    unread = 1e-3 * np.triu(np.ones((size, size)), 1)
    covariances += unread if lower else unread.T
    assert_same(lambda a: pt.linalg.cholesky(a, lower=lower), covariances, core=(2,))


def test_a_matrix_that_is_not_positive_spoils_no_other():
    covariances = positive(3)
    covariances[1, 2, 0, 0] = -1.0
    result = assert_same(pt.linalg.cholesky, covariances, core=(2,))
    np.testing.assert_array_equal(np.isnan(result).any(axis=(-2, -1)).nonzero(), [[1], [2]])


@pytest.mark.parametrize("offset", [0, 2, -1])
def test_diagonal_matrices(offset):
    diagonals = RNG.normal(size=(*BLOCKS, 3))
    assert_same(lambda x: pt.basic.alloc_diag(x, offset=offset), diagonals, core=(1,))
    assert_same(
        lambda x: pt.basic.alloc_diag(x, offset=offset, axis1=0, axis2=2), diagonals, core=(2,)
    )
    inputs = [pt.tensor3()]
    graph = pt.basic.alloc_diag(inputs[0], offset=offset, axis1=1, axis2=3)
    result, expected = in_both_ways(inputs, graph, [diagonals])
    np.testing.assert_array_equal(result, expected)


def test_ranges():
    stops, starts = np.full(BLOCKS, 7), np.full((1, 1), 2, "int8")
    result = assert_same(lambda a, b: pt.arange(a, b, 2), starts, stops, core=(0, 0))
    assert result.shape == (*BLOCKS, 3)
    stops[0, 0] = 8  # other limits, the same length
    moved = np.where(stops == 8, 3, 2)
    assert_same(lambda a, b: pt.arange(a, b, 2), moved, stops, core=(0, 0))


INDICES = {
    "one": lambda x, i: x[i[0]],
    "slice": lambda x, i: x[i[0] :],
    "reversed": lambda x, i: x[: i[0] : -1],
    "some": lambda x, i: x[i],
    "pairs": lambda x, i: x[i, i],
}


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("alike", [True, False])
def test_indices(name, alike):
    indices = np.broadcast_to([1, 0, 2], (1, 1, 3) if alike else (*BLOCKS, 3)).copy()
    if not alike:
        indices[3, 3] = [1, 2, 0] if name in ("slice", "reversed") else [2, 0, 0]
    array = RNG.normal(size=(*BLOCKS, 3, 3))
    many, graph = blockwise(INDICES[name], array, indices, core=(2, 1))
    with without_compiler():
        result, expected = (
            pytensor.function(many, graph, mode=mode)(array, indices)
            for mode in (IN_NUMPY, UNCOMPILED)
        )
    np.testing.assert_array_equal(result, expected)
    assert not np.shares_memory(result, array)


def correlated_effects(groups=4, dimensions=2):
    """Return a model with intercepts and slopes of each group and their covariance."""
    x, group = RNG.normal(size=(30, dimensions)), np.arange(30) % groups
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov(
            "chol", n=dimensions, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0)
        )
        effects = pm.MvNormal("effects", 0, chol=chol, shape=(groups, dimensions))
        level = (effects[pm.Data("group", group)] * pm.Data("x", x)).sum(axis=-1)
        pm.Poisson("y", pt.exp(level), observed=RNG.poisson(1.0, 30))
    return model


@pytest.mark.parametrize(("groups", "dimensions"), [(4, 2), (1, 2), (6, 3)])
def test_effects_of_groups_with_a_covariance(groups, dimensions, monkeypatch):
    monkeypatch.setattr(points, "_kept", [])
    model = correlated_effects(groups, dimensions)
    start = model.initial_point(0)
    arrays = [
        start[v.name] + 0.3 * RNG.normal(size=(5, *start[v.name].shape)) for v in model.value_vars
    ]
    with LOCK:
        function = points.function_of_points(model.logp(), model.value_vars, True)
    results = function(arrays)
    with without_compiler(), pytensor.config.change_flags(mode="FAST_COMPILE"):
        logp = model.logp()
        outputs = [logp, *pt.grad(logp, model.value_vars)]
        single = model.compile_fn(outputs, inputs=model.value_vars)
        names = [value.name for value in model.value_vars]
        rows = [single(dict(zip(names, point, strict=True))) for point in zip(*arrays, strict=True)]
    for result, expected in zip(results, zip(*rows, strict=True), strict=True):
        np.testing.assert_allclose(result, np.stack(expected), rtol=1e-10, atol=1e-10)
    # no functions inside of it, which threads would have to wait for
    (called,) = function._shared.free
    operations = [node.op for node in called.maker.fgraph.toposort()]
    assert not any(isinstance(op, OpFromGraph) for op in operations)
    assert any(isinstance(op, BlocksAtOnce) for op in operations)

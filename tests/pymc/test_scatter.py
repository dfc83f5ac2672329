"""Sums by group in NumPy: the same as PyTensor's, for every shape of indices."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph

from arviz_swiss.pymc.elementwise import IN_NUMPY
from arviz_swiss.pymc.graphs import UNCOMPILED
from arviz_swiss.pymc.scatter import AddByGroup

RNG = np.random.default_rng(0)
GROUPS = RNG.integers(-4, 4, size=50)
POINTS = 3


def weigh(effects):
    """Return a number that depends on every row in its own way."""
    return (effects * np.linspace(0.5, 2, 50)).sum()


CASES = {
    "vector": (pt.vector("a"), lambda a: weigh(a[GROUPS]), (4,)),
    "column of a matrix": (pt.matrix("a"), lambda a: weigh(a[GROUPS, 1] ** 2), (4, 2)),
    "two indices": (pt.matrix("a"), lambda a: weigh(pt.exp(a[GROUPS, GROUPS % 2])), (4, 2)),
    "data": (pt.vector("a"), lambda a: weigh(a[pytensor.shared(GROUPS)]), (4,)),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_pytensor(case):
    variable, function, shape = CASES[case]
    many = pt.tensor(dtype="float64", shape=(None, *shape))
    (values,) = vectorize_graph([function(variable)], {variable: many})
    gradient = pt.grad(values.sum(), many)
    own = pytensor.function([many], gradient, mode=IN_NUMPY)
    theirs = pytensor.function([many], gradient, mode=UNCOMPILED)
    assert any(isinstance(node.op, AddByGroup) for node in own.maker.fgraph.toposort())
    points = RNG.normal(size=(POINTS, *shape))
    np.testing.assert_allclose(own(points), theirs(points), rtol=1e-12)


def test_values_that_are_set_are_not_added():
    array, rows = pt.matrix("array"), pt.matrix("rows")
    changed = pt.set_subtensor(array[:, GROUPS], rows)
    function = pytensor.function([array, rows], changed, mode=IN_NUMPY)
    assert not any(isinstance(node.op, AddByGroup) for node in function.maker.fgraph.toposort())


def test_inputs_are_left_alone():
    array, rows = pt.matrix("array"), pt.matrix("rows")
    function = pytensor.function(
        [array, rows], pt.inc_subtensor(array[:, GROUPS], rows), mode=IN_NUMPY
    )
    before, values = RNG.normal(size=(POINTS, 4)), RNG.normal(size=(POINTS, 50))
    kept = before.copy()
    expected = before.copy()
    np.add.at(expected, (slice(None), GROUPS), values)
    np.testing.assert_allclose(function(before, values), expected, rtol=1e-12)
    np.testing.assert_array_equal(before, kept)

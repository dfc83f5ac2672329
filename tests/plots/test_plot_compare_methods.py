"""plot_compare_methods(): measures and their noise floors, or distances between methods."""

import warnings

import numpy as np
import pandas as pd
import pytest
from drawn_batches import make_batches
from read_visuals import lines, ticks, titles, xy

import arviz_swiss as az_swiss


@pytest.fixture(scope="module")
def table():
    batches = [batch[["beta"]] for batch in make_batches(4).values()]
    reference = make_batches(1)["b0"][["beta"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        return az_swiss.compare_methods(
            batches, reference, methods=["swiss", "consensus", "pool"], kind="inflated"
        )


def test_takes_a_table_of_compare_methods(merged):
    with pytest.raises(TypeError, match="takes the table that compare_methods returns, got"):
        az_swiss.plot_compare_methods(merged)
    with pytest.raises(ValueError, match=r"takes the table .* got one with the columns mean, sd"):
        az_swiss.plot_compare_methods(pd.DataFrame({"mean": [0.0], "sd": [1.0]}, index=["mu"]))
    table = az_swiss.compare_methods(make_batches(3), methods=["swiss", "pool"], kind="inflated")
    with pytest.raises(ValueError, match="give compare_methods a reference"):
        az_swiss.plot_compare_methods(table, measures="iad")


def test_dots_are_the_measures_and_bars_their_floors(table, backend):
    names = [name for name in table if f"{name}_floor" in table]
    even = table.assign(**{name: [0.1, 0.2, 0.3] for name in names})
    even = even.assign(**{f"{name}_floor": [0.05, 0.06, 0.07] for name in names})
    even["skew"] = [0.11, 0.12, 0.13]
    pc = az_swiss.plot_compare_methods(even, backend=backend)
    assert titles(pc, "measure") == names
    for name in names:
        x, y = xy(pc, "distance", measure=name)
        np.testing.assert_allclose(x, even[name])
        np.testing.assert_array_equal(y, [2, 1, 0])
        bars = [ends for ends, _ in lines(pc, "floor", measure=name)]
        np.testing.assert_allclose(bars, [[0, 0.05], [0, 0.06], [0, 0.07]])
    assert ticks(pc, "y", measure=names[0]) == ["swiss", "consensus", "pool"]


def test_axis_is_logarithmic_only_where_values_need_it(table, backend):
    wide = table.assign(iad=[0.001, 0.1, 1.0])
    pc = az_swiss.plot_compare_methods(wide, measures="iad", backend=backend)
    np.testing.assert_allclose(xy(pc, "distance", measure="iad")[0], [-3, -1, 0], atol=1e-12)
    assert ticks(pc, "x", measure="iad") == ["0.001", "0.01", "0.1", "1"]
    narrow = table.assign(iad=[0.1, 0.2, 0.3], iad_floor=0.05)
    pc = az_swiss.plot_compare_methods(narrow, measures=["iad"], backend=backend)
    np.testing.assert_allclose(xy(pc, "distance", measure="iad")[0], [0.1, 0.2, 0.3])


def test_unknown_measure(table):
    with pytest.raises(ValueError, match="no measure kl; the table has mahalanobis"):
        az_swiss.plot_compare_methods(table, measures="kl")


def test_without_a_reference_distances_between_methods(backend):
    batches = [batch[["beta"]] for batch in make_batches(4).values()]
    table = az_swiss.compare_methods(
        batches, methods=["swiss", "consensus", "recentre"], kind="inflated"
    )
    pc = az_swiss.plot_compare_methods(table, backend=backend)
    assert titles(pc, "measure") == ["distance from each other method"]
    x, y = xy(pc, "distance", measure="distance from each other method")
    of_swiss = (y == 2) & np.isfinite(x)
    np.testing.assert_array_equal(x[of_swiss], table.loc["swiss", ["consensus", "recentre"]])

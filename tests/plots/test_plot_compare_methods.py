"""plot_compare_methods(): measures and their noise floors, or distances between methods."""

import warnings

import numpy as np
import pandas as pd
import pytest
from drawn_batches import make_batches

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


def test_dots_are_the_measures_and_bars_their_floors(table):
    axes = az_swiss.plot_compare_methods(table)
    names = [name for name in table if f"{name}_floor" in table]
    assert [ax.get_title() for ax in axes] == names
    for ax, name in zip(axes, names, strict=True):
        np.testing.assert_array_equal(ax.lines[0].get_xdata(), table[name])
        ends = [segment[1, 0] for segment in ax.collections[0].get_segments()]
        np.testing.assert_array_equal(ends, table[f"{name}_floor"])
    labels = [text.get_text() for text in axes[0].get_yticklabels()]
    assert labels == ["swiss", "consensus", "pool"]


def test_axis_is_logarithmic_only_where_values_need_it(table):
    wide = table.assign(iad=[0.001, 0.1, 1.0])
    assert az_swiss.plot_compare_methods(wide, measures="iad")[0].get_xscale() == "log"
    narrow = table.assign(iad=[0.1, 0.2, 0.3], iad_floor=0.05)
    assert az_swiss.plot_compare_methods(narrow, measures=["iad"])[0].get_xscale() == "linear"


def test_unknown_measure(table):
    with pytest.raises(ValueError, match="no measure kl; the table has mahalanobis"):
        az_swiss.plot_compare_methods(table, measures="kl")


def test_without_a_reference_distances_between_methods():
    batches = [batch[["beta"]] for batch in make_batches(4).values()]
    table = az_swiss.compare_methods(
        batches, methods=["swiss", "consensus", "recentre"], kind="inflated"
    )
    (ax,) = az_swiss.plot_compare_methods(table)
    assert len(ax.lines) == 3
    np.testing.assert_array_equal(
        ax.lines[0].get_xdata(), table.loc["swiss", ["consensus", "recentre"]]
    )

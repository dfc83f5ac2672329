"""plot_shift(): means and intervals of the batches, and which are in doubt."""

import numpy as np
import pytest
import xarray as xr
from drawn_batches import make_batches, make_merged
from scipy.stats import norm

import arviz_swiss as az_swiss
from arviz_swiss.plots import style


def test_dots_are_the_batch_means(merged):
    axes = az_swiss.plot_shift(merged, ci_prob=0.9)
    assert [ax.get_title() for ax in axes] == [
        "beta[left]",
        "beta[right]",
        "sigma (unconstrained)",
    ]
    done = merged["swiss_transform"]
    for position, ax in enumerate(axes):
        line, dots = ax.lines
        assert line.get_xdata()[0] == pytest.approx(float(done["pooled_mean"][position]))
        np.testing.assert_array_equal(dots.get_xdata(), done["mean"][:, position])
        np.testing.assert_array_equal(dots.get_ydata(), np.arange(4))
        chance, intervals = (
            [segment[:, 0] for segment in bars.get_segments()] for bars in ax.collections[:2]
        )
        variance = done["covariance"].values[:, position, position]
        half = norm.isf(0.05) * np.sqrt(variance)
        mean = done["mean"].values[:, position]
        np.testing.assert_allclose(intervals, np.stack([mean - half, mean + half], axis=1))
        pooled = float(done["pooled_covariance"][position, position])
        widths = 2 * norm.isf(0.05) * np.sqrt(4 * variance - pooled)
        np.testing.assert_allclose(np.ptp(chance, axis=1), widths)


def test_first_batch_is_on_top_and_all_are_labelled(merged):
    ax = az_swiss.plot_shift(merged)[0]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["b0", "b1", "b2", "b3"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]


def test_outliers_are_marked():
    ax = az_swiss.plot_shift(make_merged(8, odd=5), var_names="beta")[0]
    _, dots, crosses = ax.lines
    assert crosses.get_marker() == "X"
    assert crosses.get_ydata().tolist() == [5]
    assert 5 not in dots.get_ydata()
    colours = [text.get_color() for text in ax.get_yticklabels()]
    assert [b for b, colour in enumerate(colours) if colour == style.VERMILLION] == [5]


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_what_only_the_draws_tell_is_marked_with_a_report():
    batches = make_batches(8, draws=400)
    half = xr.where(batches["b2"]["chain"] == 0, 2.0, -2.0)
    batches["b2"] = batches["b2"].assign(beta=batches["b2"]["beta"] + half)
    merged = az_swiss.merge(batches, kind="inflated")
    plain = az_swiss.plot_shift(merged, var_names="beta")[0]
    assert [line.get_marker() for line in plain.lines] == ["None", "o"]
    marked = az_swiss.plot_shift(merged, var_names="beta", report=az_swiss.report(merged))[0]
    assert marked.lines[2].get_marker() == "X"
    assert marked.lines[2].get_ydata().tolist() == [2]


def test_of_two_hundred_batches_some_are_labelled_and_the_outlier():
    ax = az_swiss.plot_shift(make_merged(200, odd=123), var_names="sigma")[0]
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert len(labels) <= 30
    assert "b123" in labels
    assert len(ax.lines[1].get_xdata()) == 199


def test_any_method_will_do():
    assert len(az_swiss.plot_shift(make_merged(3, method="consensus"))) == 3


def test_the_report_of_another_merge_is_refused(merged):
    other = az_swiss.report(make_merged(3))
    with pytest.raises(ValueError, match="report= is of another merge: its labels along batch are"):
        az_swiss.plot_shift(merged, report=other)
    with pytest.raises(TypeError, match="report= takes what report"):
        az_swiss.plot_shift(merged, report=merged)

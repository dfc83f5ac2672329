"""What all plots share: axes, legends, titles, labels, probabilities."""

import subprocess
import sys
import warnings

import arviz
import numpy as np
import pytest
from drawn_batches import make_batches
from matplotlib import pyplot
from scipy.stats import norm

import arviz_swiss as az_swiss
from arviz_swiss.plots import style


def test_importing_plots_does_not_import_matplotlib():
    code = "import sys, arviz_swiss.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def extent_of_legend(axes):
    figure = np.ravel(axes)[0].figure
    figure.canvas.draw()
    return figure.legends[0].get_window_extent(), figure.bbox


@pytest.mark.parametrize("parameters", [1, 2])
def test_legends_fit_above_few_panels(parameters):
    rng = np.random.default_rng(0)
    batches = {
        f"2026-quarter-{b}-region-north": {
            "x": rng.normal(size=(2, 100, parameters)) + 40 * (b == 4)
        }
        for b in range(5)
    }
    with pytest.warns(az_swiss.MergeWarning, match="disagree"):
        merged = az_swiss.merge(batches, kind="inflated")
    full = {"x": rng.normal(size=(2, 100, parameters))}
    drawn = [az_swiss.plot_shift(merged), az_swiss.plot_batches(merged, reference=full)]
    if parameters == 2:
        drawn.append(az_swiss.plot_maps(merged))
    table = az_swiss.compare_methods(
        list(batches.values())[:4], full, methods=["swiss"], kind="inflated"
    )
    drawn.append(az_swiss.plot_compare_methods(table, measures="iad"))
    for axes in drawn:
        legend, figure = extent_of_legend(axes)
        assert legend.width <= figure.width
        assert legend.x0 >= 0 and legend.x1 <= figure.width


def test_long_names_are_wrapped():
    rng = np.random.default_rng(0)
    name = "a_parameter_with_a_name_that_is_far_too_long_for_one_line"
    merged = az_swiss.merge([{name: rng.normal(size=(2, 100))} for _ in range(2)], kind="inflated")
    (title,) = (ax.get_title() for ax in az_swiss.plot_shift(merged))
    assert title.replace("\n", "") == name
    assert max(map(len, title.split("\n"))) <= style.TITLE_WIDTH


@pytest.mark.parametrize("method", ["swiss", "recentre", "pool", "location_scatter", "average"])
def test_merged_is_drawn_where_the_merged_draws_are(method):
    batches = make_batches(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        merged = az_swiss.merge(batches, method=method, kind="inflated")
    draws = merged["posterior"]["beta"].values.reshape(-1, 2)
    ax = az_swiss.plot_shift(merged, var_names="beta", ci_prob=0.9)[0]
    assert ax.lines[0].get_xdata()[0] == pytest.approx(draws[:, 0].mean())
    span = ax.patches[0].get_extents().transformed(ax.transData.inverted())
    assert span.width == pytest.approx(2 * norm.isf(0.05) * draws[:, 0].std(ddof=1), rel=0.01)
    if method != "average":
        panel = az_swiss.plot_maps(merged, var_names="beta")[2]
        ellipse = panel.lines[-1].get_xydata()
        np.testing.assert_allclose(ellipse[:-1].mean(axis=0), draws.mean(axis=0), atol=1e-8)


@pytest.mark.parametrize("ci_prob", [0, 1, 94, -0.1, "0.9", True, np.nan])
def test_probabilities_are_none_but_between_zero_and_one(merged, ci_prob):
    for plot in (az_swiss.plot_shift, az_swiss.plot_maps):
        with pytest.raises(ValueError, match=r"ci_prob must be between 0 and 1, such as 0.94, got"):
            plot(merged, ci_prob=ci_prob)


def test_the_probability_is_arvizs_unless_given(merged):
    def drawn(**options):
        ax = az_swiss.plot_shift(merged, var_names="sigma", **options)[0]
        span = ax.patches[0].get_extents().transformed(ax.transData.inverted())
        ellipse = az_swiss.plot_maps(merged, **options)[2].lines[-1]
        return span.width, np.ptp(ellipse.get_xdata())

    own = arviz.rcParams["stats.ci_prob"]
    assert drawn() == pytest.approx(drawn(ci_prob=own))
    with arviz.rc_context({"stats.ci_prob": 0.5}):
        half = drawn()
    assert half == pytest.approx(drawn(ci_prob=np.float32(0.5)))
    assert half[0] < drawn()[0] and half[1] < drawn()[1]


def test_labels_of_many_batches_in_doubt_do_not_overlap():
    ticks = style.some_ticks(200, list(range(60, 120)))
    assert min(np.diff(ticks)) >= 200 / style.MOST_TICKS
    assert 60 in ticks


def test_shift_and_maps_take_the_dimension_of_a_simplex():
    rng = np.random.default_rng(0)
    batches = [{"w": rng.dirichlet([40, 30, 20], size=(2, 100))} for _ in range(2)]
    merged = az_swiss.merge(batches, transforms={"w": "simplex"}, kind="inflated")
    titles = [ax.get_title() for ax in az_swiss.plot_shift(merged, coords={"w_dim_0": [2]})]
    assert titles == [ax.get_title() for ax in az_swiss.plot_shift(merged)]
    assert len(titles) == 2
    assert len(az_swiss.plot_maps(merged, coords={"w_dim_0": [2]})) == 3
    assert len(az_swiss.plot_batches(merged, coords={"w_dim_0": [2]})) == 1


@pytest.mark.parametrize(
    ("function", "count"),
    [(az_swiss.plot_batches, 2), (az_swiss.plot_shift, 1)],
)
def test_axes_of_the_user_are_used_without_a_legend(function, count, merged):
    figure, given = pyplot.subplots(1, count, squeeze=False)
    axes = function(merged, var_names="sigma", axes=given)
    assert list(axes.ravel()) == list(given.ravel())
    assert not figure.legends
    with pytest.raises(ValueError, match="axes for"):
        function(merged, axes=given)


def test_labeller_and_figsize_are_arvizs(merged):
    labeller = arviz.labels.MapLabeller(var_name_map={"sigma": "spread"})
    axes = az_swiss.plot_shift(merged, var_names="sigma", labeller=labeller, figsize=(5, 3))
    assert axes[0].get_title() == "spread (unconstrained)"
    assert axes[0].figure.get_size_inches().tolist() == [5, 3]
    axes = az_swiss.plot_batches(merged, var_names="sig", filter_vars="like", labeller=labeller)
    assert axes[0, 0].get_title() == "spread"


def test_forty_panels_at_most():
    rng = np.random.default_rng(0)
    merged = az_swiss.merge(
        [{"x": rng.standard_normal((2, 700, 41))} for _ in range(2)], kind="inflated"
    )
    with pytest.warns(UserWarning, match="drawing the first 40 of 41 parameters"):
        assert len(az_swiss.plot_shift(merged)) == 40

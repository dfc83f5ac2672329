"""What all plots share: backends, titles, legends, labels, probabilities, visuals."""

import importlib.util
import subprocess
import sys
import warnings

import arviz
import numpy as np
import pytest
from drawn_batches import make_batches
from read_visuals import caption, panels, titles, visual, xy
from scipy.stats import norm

import arviz_swiss as az_swiss
from arviz_swiss.data.containers import native_container
from arviz_swiss.plots import drawing


def test_importing_plots_imports_neither_arviz_nor_what_draws():
    code = (
        "import sys, arviz_swiss, arviz_swiss.plots.plot_shift, arviz_swiss.plots.plot_certificate;"
        "sys.exit(any(name in sys.modules for name in ('arviz', 'arviz_plots', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("backend", "gone", "extra"),
    [
        ("plotly", "plotly", r'draw with plotly, .* pip install "arviz-swiss\[plots,plotly\]"'),
        ("plotly", "webcolors", r'draw with webcolors, .*"arviz-swiss\[plots,plotly\]"'),
        ("bokeh", "bokeh", r'draw with bokeh, .* pip install "arviz-swiss\[plots,bokeh\]"'),
        ("matplotlib", "matplotlib", r'draw with matplotlib, .*"arviz-swiss\[plots\]"'),
        (None, "arviz_plots", r'draw with arviz-plots, .* pip install "arviz-swiss\[plots\]"'),
    ],
)
def test_what_is_not_installed_is_named_with_its_extra(merged, monkeypatch, backend, gone, extra):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == gone else found(name)
    )
    with pytest.raises(ModuleNotFoundError, match=extra):
        az_swiss.plot_shift(merged, backend=backend)


def test_unknown_names_are_refused(merged):
    with pytest.raises(ValueError, match="backend must be one of matplotlib, plotly, bokeh, none"):
        az_swiss.plot_shift(merged, backend="gnuplot")
    with pytest.raises(ValueError, match="visuals has no dots; it has merged_interval"):
        az_swiss.plot_shift(merged, visuals={"dots": False})
    with pytest.raises(ValueError, match="aes_by_visuals has no dots; it has"):
        az_swiss.plot_shift(merged, aes_by_visuals={"dots": ["color"]})


def test_visuals_are_changed_or_left_out(merged):
    pc = az_swiss.plot_shift(
        merged, backend="none", visuals={"scatter": False, "mean": {"size": 99.0, "color": "red"}}
    )
    assert "scatter" not in pc.viz.children
    dots = visual(pc, "mean", parameter="sigma")
    assert (dots["size"], dots["facecolor"]) == (99.0, "red")


def test_a_collection_of_the_user_is_drawn_into(merged):
    first = az_swiss.plot_shift(merged, backend="matplotlib")
    figure = first.viz["figure"].item()
    again = az_swiss.plot_shift(merged, plot_collection=first)
    assert again is first
    assert len(figure.legends) == 1
    ax = first.viz["plot"].sel(parameter="sigma").item()
    assert len(ax.collections) == 2  # dots, drawn twice


def test_the_backend_is_arvizs_unless_given(merged):
    assert az_swiss.plot_shift(merged).backend == arviz.rcParams["plot.backend"] == "matplotlib"
    with arviz.rc_context({"plot.backend": "bokeh"}):
        assert az_swiss.plot_shift(merged).backend == "bokeh"


@pytest.mark.parametrize("parameters", [1, 2])
def test_legends_fit_below_few_panels(parameters):
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
    drawn = [
        az_swiss.plot_shift(merged),
        az_swiss.plot_agreement(merged),
        az_swiss.plot_batches(merged, reference=full),
    ]
    if parameters == 2:
        drawn.append(az_swiss.plot_maps(merged))
    table = az_swiss.compare_methods(
        list(batches.values())[:4], full, methods=["swiss"], kind="inflated"
    )
    drawn.append(az_swiss.plot_compare_methods(table, measures="iad"))
    for pc in drawn:
        figure = pc.viz["figure"].item()
        figure.canvas.draw()
        legend = figure.legends[0].get_window_extent()
        assert legend.x0 >= 0 and legend.x1 <= figure.bbox.width


def test_long_names_are_wrapped(backend):
    rng = np.random.default_rng(0)
    name = "a_parameter_with_a_name_that_is_far_too_long_for_one_line"
    merged = az_swiss.merge([{name: rng.normal(size=(2, 100))} for _ in range(2)], kind="inflated")
    (title,) = titles(az_swiss.plot_shift(merged, backend=backend), "parameter")
    assert title.replace(" ", "") == name
    assert max(map(len, title.split(" "))) <= drawing.TITLE_WIDTH


@pytest.mark.parametrize("method", ["swiss", "recentre", "pool", "location_scatter", "average"])
def test_merged_is_drawn_where_the_merged_draws_are(method):
    batches = make_batches(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        merged = az_swiss.merge(batches, method=method, kind="inflated")
    draws = merged["posterior"]["beta"].values.reshape(-1, 2)
    pc = az_swiss.plot_shift(merged, var_names="beta", ci_prob=0.9, backend="none")
    here = {"parameter": "beta[left]"}
    assert visual(pc, "merged_mean", **here)["x"] == pytest.approx(draws[:, 0].mean())
    band = visual(pc, "merged_interval", **here)
    width = 2 * norm.isf(0.05) * draws[:, 0].std(ddof=1)
    assert band["xmax"] - band["xmin"] == pytest.approx(width, rel=0.01)
    if method != "average":
        pc = az_swiss.plot_maps(merged, var_names="beta", backend="none")
        ellipse = np.stack(xy(pc, "merged", stage="shifted"), axis=1)
        np.testing.assert_allclose(ellipse[:-1].mean(axis=0), draws.mean(axis=0), atol=1e-8)


@pytest.mark.parametrize("ci_prob", [0, 1, 94, -0.1, "0.9", True, np.nan])
def test_probabilities_are_none_but_between_zero_and_one(merged, ci_prob):
    for plot in (az_swiss.plot_shift, az_swiss.plot_maps, az_swiss.plot_agreement):
        with pytest.raises(ValueError, match=r"ci_prob must be between 0 and 1, such as 0.94, got"):
            plot(merged, ci_prob=ci_prob)


def test_the_probability_is_arvizs_unless_given(merged):
    def drawn(**options):
        band = visual(az_swiss.plot_shift(merged, backend="none", **options), "merged_interval")[0]
        ellipse, _ = xy(
            az_swiss.plot_maps(merged, backend="none", **options), "merged", stage="scaled"
        )
        return band["xmax"] - band["xmin"], np.ptp(ellipse)

    own = arviz.rcParams["stats.ci_prob"]
    assert drawn() == pytest.approx(drawn(ci_prob=own))
    with arviz.rc_context({"stats.ci_prob": 0.5}):
        half = drawn()
    assert half == pytest.approx(drawn(ci_prob=np.float32(0.5)))
    assert half[0] < drawn()[0] and half[1] < drawn()[1]


def test_labels_of_many_batches_in_doubt_do_not_overlap():
    ticks = drawing.some_ticks(200, list(range(60, 120)))
    assert min(np.diff(ticks)) >= 200 / drawing.MOST_TICKS
    assert 60 in ticks


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (-3.3, 0.1, ["0.001", "0.01", "0.1", "1"]),
        (-1.1, 0.1, ["0.1", "0.2", "0.5", "1"]),
        (np.log10(0.95), np.log10(1.3), ["1", "1.1", "1.2", "1.3"]),
        (np.log10(1.1), np.log10(1.99), ["1.2", "1.4", "1.6", "1.8"]),
        (-14.5, 0.5, ["1e-14", "1e-11", "1e-08", "1e-05", "0.01"]),
    ],
)
def test_ticks_of_logarithms_are_round_numbers(low, high, labels):
    places, shown = drawing.log_ticks(low, high)
    assert shown == labels
    np.testing.assert_allclose(10.0 ** np.array(places), [float(label) for label in labels])


def test_shift_and_maps_take_the_dimension_of_a_simplex():
    rng = np.random.default_rng(0)
    batches = [{"w": rng.dirichlet([40, 30, 20], size=(2, 100))} for _ in range(2)]
    merged = az_swiss.merge(batches, transforms={"w": "simplex"}, kind="inflated")
    chosen = {"coords": {"w_dim_0": [2]}, "backend": "none"}
    assert titles(az_swiss.plot_shift(merged, **chosen), "parameter") == titles(
        az_swiss.plot_shift(merged, backend="none"), "parameter"
    )
    assert panels(az_swiss.plot_shift(merged, **chosen)) == 2
    assert panels(az_swiss.plot_maps(merged, **chosen)) == 3
    assert panels(az_swiss.plot_batches(merged, **chosen)) == 2


def test_labeller_and_figure_are_arvizs(merged):
    labeller = arviz.labels.MapLabeller(var_name_map={"sigma": "spread"})
    options = {"labeller": labeller, "figure_kwargs": {"figsize": (5, 3)}}
    pc = az_swiss.plot_shift(merged, var_names="sigma", **options)
    assert titles(pc, "parameter") == ["spread (unconstrained)"]
    assert pc.viz["figure"].item().get_size_inches().tolist() == [5, 3]


def test_selected_parameters_are_drawn_as_long_as_arviz_would():
    rng = np.random.default_rng(0)
    merged = az_swiss.merge(
        [{"x": rng.standard_normal((2, 700, 41))} for _ in range(2)], kind="inflated"
    )
    pc = az_swiss.plot_shift(merged, var_names="x", backend="none")
    assert panels(pc) == 40
    assert caption(pc).startswith("40 of 41 parameters")
    assert panels(az_swiss.plot_shift(merged, coords={"x_dim_0": range(20)}, backend="none")) == 20


@pytest.mark.skipif(
    native_container() == "DataTree", reason="InferenceData belongs to ArviZ 0.x, not ArviZ 1.x"
)
def test_arviz_plots_takes_a_merged_inference_data(merged):
    import arviz_plots

    pc = arviz_plots.plot_forest(merged, backend="none", combined=True)
    assert pc is not None

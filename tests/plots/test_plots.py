"""What is drawn: how many lines, where, and under which label."""

import subprocess
import sys
import warnings

import arviz
import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot
from scipy.stats import norm

import arviz_swiss as az_swiss
from arviz_swiss.data import containers, statistics
from arviz_swiss.plots import style


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def make_batches(count, odd=None, draws=100):
    rng = np.random.default_rng(count)
    batches = {}
    for b in range(count):
        values = rng.standard_normal((2, draws, 2)) @ [[1.0, 0.5], [0.0, 1.0]]
        values += np.sqrt(count) * rng.standard_normal(2) + (200 if b == odd else 0)
        batches[f"b{b}"] = xr.Dataset(
            {
                "beta": (("chain", "draw", "side"), values),
                "sigma": (("chain", "draw"), np.exp(0.1 * rng.standard_normal((2, draws)))),
            },
            coords={"side": ["left", "right"]},
        )
    return batches


def make_merged(count, odd=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        return az_swiss.merge(
            make_batches(count, odd), transforms={"sigma": "log"}, kind="inflated", **options
        )


@pytest.fixture(scope="module")
def merged():
    return make_merged(4)


def transform(merged):
    return containers.read(merged).groups["swiss_transform"]


def test_importing_plots_does_not_import_matplotlib():
    code = "import sys, arviz_swiss.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_batches_one_line_a_batch_and_the_merged(merged):
    axes = az_swiss.plot_batches(merged)
    assert axes.shape == (3, 2)
    assert all(len(ax.lines) == 5 for ax in axes.ravel())
    titles = [[ax.get_title() for ax in pair] for pair in axes]
    assert titles == [[n, f"{n}, mapped"] for n in ("beta[left]", "beta[right]", "sigma")]
    legend = axes[0, 0].figure.legends[0]
    assert [t.get_text() for t in legend.get_texts()] == ["batches", "batches, mapped", "merged"]


@pytest.mark.parametrize("parameters", [1, 2, 3, 4, 5])
def test_batches_a_pair_shares_a_row(parameters):
    rng = np.random.default_rng(0)
    batches = [{"x": rng.standard_normal((2, 100, parameters))} for _ in range(2)]
    pairs = az_swiss.plot_batches(az_swiss.merge(batches, kind="inflated"))
    assert len(pairs) == parameters
    for before, after in pairs:
        left, right = before.get_subplotspec(), after.get_subplotspec()
        assert left.rowspan == right.rowspan
        assert left.colspan.stop == right.colspan.start


def test_batches_lines_are_the_densities(merged):
    before, after = az_swiss.plot_batches(merged, var_names="sigma")[0]
    original = list(az_swiss.subposteriors(merged).values())[2]["posterior"]["sigma"].values
    grid, density, _ = statistics.kde(original.ravel())
    np.testing.assert_allclose(before.lines[2].get_xdata(), grid, rtol=1e-8)
    np.testing.assert_allclose(before.lines[2].get_ydata(), density, rtol=1e-6)
    grid, density, _ = statistics.kde(merged["posterior"]["sigma"].values[4:6].ravel())
    np.testing.assert_allclose(after.lines[2].get_ydata(), density)
    grid, density, _ = statistics.kde(merged["posterior"]["sigma"].values.ravel())
    for ax in (before, after):
        np.testing.assert_allclose(ax.lines[-1].get_xdata(), grid)
        np.testing.assert_allclose(ax.lines[-1].get_ydata(), density)
        assert ax.lines[-1].get_color() == style.BLACK


def test_batches_reference_is_drawn_too(merged):
    reference = make_batches(1)["b0"]
    ax = az_swiss.plot_batches(
        merged, var_names="beta", coords={"side": "right"}, reference=reference
    )[0, 1]
    _, density, _ = statistics.kde(reference["beta"].values[..., 1].ravel())
    np.testing.assert_allclose(ax.lines[-1].get_ydata(), density)
    assert ax.lines[-1].get_linestyle() == "--"
    assert ax.lines[-1].get_label() == "reference"


def test_batches_reference_is_matched_by_label(merged):
    reference = make_batches(1)["b0"]
    shuffled = reference.isel(side=[1, 0]).transpose("side", ...)
    axes = az_swiss.plot_batches(merged, var_names="beta", reference=shuffled)
    for side, ax in enumerate(axes[:, 0]):
        _, density, _ = statistics.kde(reference["beta"].values[..., side].ravel())
        np.testing.assert_allclose(ax.lines[-1].get_ydata(), density)
    with pytest.raises(ValueError, match=r"the reference has no beta\[left\]"):
        az_swiss.plot_batches(merged, reference=reference.sel(side=["right"]))
    with pytest.raises(ValueError, match=r"reference, variable sigma: draws that are NaN"):
        az_swiss.plot_batches(merged, reference=reference.assign(sigma=np.nan * reference["sigma"]))
    with pytest.raises(ValueError, match=r"the reference has no variable sigma"):
        az_swiss.plot_batches(merged, reference=reference.drop_vars("sigma"))


def test_batches_leaves_out_constant_elements():
    rng = np.random.default_rng(0)
    batches = []
    for _ in range(2):
        low = np.tril(rng.random((2, 100, 2, 2)) + 0.5)
        batches.append({"chol": low / np.linalg.norm(low, axis=-1, keepdims=True)})
    axes = az_swiss.plot_batches(
        az_swiss.merge(batches, transforms={"chol": "cholesky_corr"}, kind="inflated")
    )
    assert [ax.get_title() for ax in axes[:, 0]] == ["chol[1, 0]", "chol[1, 1]"]
    assert all(len(ax.lines) == 3 for ax in axes.ravel())


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
    table = az_swiss.compare(list(batches.values())[:4], full, methods=["swiss"], kind="inflated")
    drawn.append(az_swiss.plot_discrepancy(table, measures="iad"))
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
    ax = az_swiss.plot_shift(merged, var_names="beta", prob=0.9)[0]
    assert ax.lines[0].get_xdata()[0] == pytest.approx(draws[:, 0].mean())
    span = ax.patches[0].get_extents().transformed(ax.transData.inverted())
    assert span.width == pytest.approx(2 * norm.isf(0.05) * draws[:, 0].std(ddof=1), rel=0.01)
    if method != "average":
        panel = az_swiss.plot_maps(merged, var_names="beta")[2]
        ellipse = panel.lines[-1].get_xydata()
        np.testing.assert_allclose(ellipse[:-1].mean(axis=0), draws.mean(axis=0), atol=1e-8)


@pytest.mark.parametrize("prob", [0, 1, 94, -0.1, "0.9"])
def test_probabilities_are_none_but_between_zero_and_one(merged, prob):
    for plot in (az_swiss.plot_shift, az_swiss.plot_maps):
        with pytest.raises(ValueError, match=r"prob must be between 0 and 1, such as 0.94, got"):
            plot(merged, prob=prob)


def test_discrepancy_takes_a_table_of_compare(merged):
    with pytest.raises(TypeError, match="takes the table that compare returns, got"):
        az_swiss.plot_discrepancy(merged)
    table = az_swiss.compare(make_batches(3), methods=["swiss", "pool"], kind="inflated")
    with pytest.raises(ValueError, match="give compare a reference"):
        az_swiss.plot_discrepancy(table, measures="iad")


def test_shift_labels_of_many_batches_in_doubt_do_not_overlap():
    ticks = style.some_ticks(200, list(range(60, 120)))
    assert min(np.diff(ticks)) >= 200 / style.MOST_TICKS
    assert 60 in ticks


def test_batches_many_batches_get_fainter():
    few = az_swiss.plot_batches(make_merged(2), var_names="sigma")[0, 0]
    many = az_swiss.plot_batches(make_merged(60), var_names="sigma")[0, 0]
    assert len(many.lines) == 61
    assert many.lines[0].get_alpha() < 0.3 < few.lines[0].get_alpha()


def test_batches_newly_made_draws_are_refused():
    with pytest.raises(ValueError, match="newly made"):
        az_swiss.plot_batches(make_merged(3, method="consensus"))


def test_shift_dots_are_the_batch_means(merged):
    axes = az_swiss.plot_shift(merged, prob=0.9)
    assert [ax.get_title() for ax in axes] == [
        "beta[left]",
        "beta[right]",
        "sigma (unconstrained)",
    ]
    done = transform(merged)
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


def test_shift_first_batch_is_on_top_and_all_are_labelled(merged):
    ax = az_swiss.plot_shift(merged)[0]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["b0", "b1", "b2", "b3"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]


def test_shift_outliers_are_marked():
    ax = az_swiss.plot_shift(make_merged(8, odd=5), var_names="beta")[0]
    _, dots, crosses = ax.lines
    assert crosses.get_marker() == "X"
    assert crosses.get_ydata().tolist() == [5]
    assert 5 not in dots.get_ydata()
    colours = [text.get_color() for text in ax.get_yticklabels()]
    assert [b for b, colour in enumerate(colours) if colour == style.VERMILLION] == [5]


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_shift_marks_what_only_the_draws_tell_once_diagnosed():
    batches = make_batches(8, draws=400)
    half = xr.where(batches["b2"]["chain"] == 0, 2.0, -2.0)
    batches["b2"] = batches["b2"].assign(beta=batches["b2"]["beta"] + half)
    merged = az_swiss.merge(batches, kind="inflated")
    plain = az_swiss.plot_shift(merged, var_names="beta")[0]
    assert [line.get_marker() for line in plain.lines] == ["None", "o"]
    marked = az_swiss.plot_shift(az_swiss.diagnose(merged), var_names="beta")[0]
    assert marked.lines[2].get_marker() == "X"
    assert marked.lines[2].get_ydata().tolist() == [2]


def test_shift_and_maps_take_the_dimension_of_a_simplex():
    rng = np.random.default_rng(0)
    batches = [{"w": rng.dirichlet([40, 30, 20], size=(2, 100))} for _ in range(2)]
    merged = az_swiss.merge(batches, transforms={"w": "simplex"}, kind="inflated")
    titles = [ax.get_title() for ax in az_swiss.plot_shift(merged, coords={"w_dim_0": [2]})]
    assert titles == [ax.get_title() for ax in az_swiss.plot_shift(merged)]
    assert len(titles) == 2
    assert len(az_swiss.plot_maps(merged, coords={"w_dim_0": [2]})) == 3
    assert len(az_swiss.plot_batches(merged, coords={"w_dim_0": [2]})) == 1


def test_shift_of_two_hundred_batches_some_are_labelled_and_the_outlier():
    ax = az_swiss.plot_shift(make_merged(200, odd=123), var_names="sigma")[0]
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert len(labels) <= 30
    assert "b123" in labels
    assert len(ax.lines[1].get_xdata()) == 199


def test_shift_any_method_will_do():
    assert len(az_swiss.plot_shift(make_merged(3, method="consensus"))) == 3


def test_maps_ellipses_are_those_of_the_moments(merged):
    axes = az_swiss.plot_maps(merged, var_names="beta", prob=0.5)
    done = transform(merged)
    radius = np.sqrt(2 * np.log(2))
    block = np.ix_([0, 1], [0, 1])
    pooled = done["pooled_covariance"].values[block]
    target = done["pooled_mean"].values[:2]
    raw = [line for line in axes[0].lines if line.get_marker() == "None"]
    assert len(raw) == 5
    for b, line in enumerate(raw[:4]):
        covariance = done["covariance"].values[b][block]
        check_ellipse(line, done["mean"].values[b, :2], covariance, radius)
    scaled = [line for line in axes[1].lines if line.get_marker() == "None"]
    dashed = [line for line in scaled if line.get_linestyle() == "--"]
    solid = [line for line in scaled if line.get_linestyle() == "-"]
    assert (len(dashed), len(solid)) == (4, 5)
    check_ellipse(dashed[1], np.zeros(2), done["covariance"].values[1][block], radius)
    for line in solid:
        check_ellipse(line, np.zeros(2), pooled, radius)
    for line in (line for line in axes[2].lines if line.get_marker() == "None"):
        check_ellipse(line, target, pooled, radius)


def test_maps_points_are_draws(merged):
    axes = az_swiss.plot_maps(merged, var_names="beta")
    original = next(iter(az_swiss.subposteriors(merged).values()))["posterior"]["beta"].values
    mapped = merged["posterior"]["beta"].values[:2].reshape(-1, 2)
    np.testing.assert_allclose(points(axes[0])[0], original.reshape(-1, 2), atol=1e-9)
    np.testing.assert_allclose(points(axes[2])[0], mapped)
    shift = mapped - points(axes[1])[0]
    np.testing.assert_allclose(shift, np.broadcast_to(shift[0], shift.shape))
    assert [ax.get_xlabel() for ax in axes] == ["beta[left]"] * 3
    assert axes[0].get_ylabel() == "beta[right]"


def test_maps_many_batches_share_one_colour_and_few_points():
    axes = az_swiss.plot_maps(make_merged(50))
    assert sum(len(cloud) for cloud in points(axes[0])) <= 2000
    assert len({line.get_color() for line in axes[0].lines}) == 2
    texts = [text.get_text() for text in axes[0].figure.legends[0].get_texts()]
    assert texts == ["50 batches", "merged"]


def test_maps_needs_two_parameters_and_maps(merged):
    with pytest.raises(ValueError, match="draws two parameters"):
        az_swiss.plot_maps(merged, var_names="sigma")
    with pytest.raises(ValueError, match="newly made"):
        az_swiss.plot_maps(make_merged(3, method="consensus"))


def points(ax):
    return [line.get_xydata() for line in ax.lines if line.get_marker() == "."]


def check_ellipse(line, centre, covariance, radius):
    away = line.get_xydata() - centre
    distance = np.einsum("ni,ij,nj->n", away, np.linalg.inv(covariance), away)
    np.testing.assert_allclose(distance, radius**2, rtol=1e-6)


@pytest.fixture(scope="module")
def table():
    batches = [batch[["beta"]] for batch in make_batches(4).values()]
    reference = make_batches(1)["b0"][["beta"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        return az_swiss.compare(
            batches, reference, methods=["swiss", "consensus", "pool"], kind="inflated"
        )


def test_discrepancy_dots_are_the_measures_and_bars_their_floors(table):
    axes = az_swiss.plot_discrepancy(table)
    names = [name for name in table if f"{name}_floor" in table]
    assert [ax.get_title() for ax in axes] == names
    for ax, name in zip(axes, names, strict=True):
        np.testing.assert_array_equal(ax.lines[0].get_xdata(), table[name])
        ends = [segment[1, 0] for segment in ax.collections[0].get_segments()]
        np.testing.assert_array_equal(ends, table[f"{name}_floor"])
    labels = [text.get_text() for text in axes[0].get_yticklabels()]
    assert labels == ["swiss", "consensus", "pool"]


def test_discrepancy_axis_is_logarithmic_only_where_values_need_it(table):
    wide = table.assign(iad=[0.001, 0.1, 1.0])
    assert az_swiss.plot_discrepancy(wide, measures="iad")[0].get_xscale() == "log"
    narrow = table.assign(iad=[0.1, 0.2, 0.3], iad_floor=0.05)
    assert az_swiss.plot_discrepancy(narrow, measures=["iad"])[0].get_xscale() == "linear"


def test_discrepancy_unknown_measure(table):
    with pytest.raises(ValueError, match="no measure kl; the table has mahalanobis"):
        az_swiss.plot_discrepancy(table, measures="kl")


def test_discrepancy_without_a_reference_distances_between_methods():
    batches = [batch[["beta"]] for batch in make_batches(4).values()]
    table = az_swiss.compare(batches, methods=["swiss", "consensus", "recentre"], kind="inflated")
    (ax,) = az_swiss.plot_discrepancy(table)
    assert len(ax.lines) == 3
    np.testing.assert_array_equal(
        ax.lines[0].get_xdata(), table.loc["swiss", ["consensus", "recentre"]]
    )


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

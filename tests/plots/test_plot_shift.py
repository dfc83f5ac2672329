"""plot_shift(): means and intervals of the batches, and which are in doubt."""

import numpy as np
import pytest
import xarray as xr
from drawn_batches import make_batches, make_merged
from read_visuals import caption, lines, panels, ticks, titles, visual, xy
from scipy.stats import norm

import arviz_swiss as az_swiss


def test_dots_are_the_batch_means(merged, backend):
    pc = az_swiss.plot_shift(merged, ci_prob=0.9, backend=backend)
    assert titles(pc, "parameter") == ["beta[left]", "beta[right]", "sigma (unconstrained)"]
    assert caption(pc) == ""
    done = merged["swiss_transform"]
    for position, label in enumerate(done["parameter"].values):
        x, y = xy(pc, "mean", parameter=label)
        np.testing.assert_allclose(x, done["mean"][:, position])
        np.testing.assert_array_equal(y, [3, 2, 1, 0])
        variance = done["covariance"].values[:, position, position]
        half = norm.isf(0.05) * np.sqrt(variance)
        mean = done["mean"].values[:, position]
        intervals = [ends for ends, _ in lines(pc, "interval", parameter=label)]
        np.testing.assert_allclose(intervals, np.stack([mean - half, mean + half], axis=1))
        pooled = float(done["pooled_covariance"][position, position])
        chance = [ends for ends, _ in lines(pc, "scatter", parameter=label)]
        widths = 2 * norm.isf(0.05) * np.sqrt(4 * variance - pooled)
        np.testing.assert_allclose(np.ptp(chance, axis=1), widths)


def test_the_merged_interval_is_behind_all(merged):
    pc = az_swiss.plot_shift(merged, ci_prob=0.9, backend="none")
    done = merged["swiss_transform"]
    for position, label in enumerate(done["parameter"].values):
        mean = float(done["pooled_mean"][position])
        sd = float(done["pooled_covariance"][position, position]) ** 0.5
        assert visual(pc, "merged_mean", parameter=label)["x"] == pytest.approx(mean)
        band = visual(pc, "merged_interval", parameter=label)
        ends = mean + np.array([-1, 1]) * norm.isf(0.05) * sd
        assert [band["xmin"], band["xmax"]] == pytest.approx(ends.tolist(), rel=1e-3)
        assert pc.viz["plot"].sel(parameter=label).item()[0] is band


def test_plotly_draws_the_merged_mean_too(merged):
    figure = az_swiss.plot_shift(merged, backend="plotly").viz["figure"].item()
    assert sorted(shape.type for shape in figure.layout.shapes) == ["line"] * 3 + ["rect"] * 3


def test_first_batch_is_on_top_and_all_are_labelled(merged, backend):
    pc = az_swiss.plot_shift(merged, backend=backend)
    assert ticks(pc, "y", parameter="beta[left]") == ["b0", "b1", "b2", "b3"]


def test_outliers_are_marked(backend):
    pc = az_swiss.plot_shift(make_merged(8, odd=5), var_names="beta", backend=backend)
    assert xy(pc, "doubted", parameter="beta[left]")[1].tolist() == [2]  # the third from below
    assert sorted(xy(pc, "mean", parameter="beta[left]")[1]) == [0, 1, 3, 4, 5, 6, 7]


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_what_only_the_draws_tell_is_marked_with_a_report():
    batches = make_batches(8, draws=400)
    half = xr.where(batches["b2"]["chain"] == 0, 2.0, -2.0)
    batches["b2"] = batches["b2"].assign(beta=batches["b2"]["beta"] + half)
    merged = az_swiss.merge(batches, kind="inflated")
    options = {"var_names": "beta", "backend": "none"}
    assert "doubted" not in az_swiss.plot_shift(merged, **options).viz.children
    marked = az_swiss.plot_shift(merged, report=az_swiss.report(merged), **options)
    assert xy(marked, "doubted", parameter="beta[left]")[1].tolist() == [5]


def test_of_three_hundred_batches_some_are_labelled_and_the_outlier(backend):
    pc = az_swiss.plot_shift(make_merged(300, odd=123), var_names="sigma", backend=backend)
    labels = ticks(pc, "y", parameter="sigma")
    assert len(labels) <= 30
    assert "b123" in labels
    assert len(xy(pc, "mean", parameter="sigma")[0]) == 299


def test_of_many_parameters_those_beyond_chance_are_drawn():
    rng = np.random.default_rng(0)
    batches = [{"x": rng.standard_normal((2, 400, 40))} for _ in range(5)]
    # three of the parameters move, each in another batch
    for position, batch in zip((7, 20, 33), batches, strict=False):
        batch["x"][..., position] += 12
    with pytest.warns(az_swiss.MergeWarning):
        merged = az_swiss.merge(batches, kind="inflated")
    pc = az_swiss.plot_shift(merged, backend="none")
    shown = pc.viz["plot"]["parameter"].values.tolist()
    assert {"x[7]", "x[20]", "x[33]"} <= set(shown)
    assert shown == sorted(shown, key=lambda label: int(label[2:-1]))
    assert panels(pc) == 12
    assert caption(pc) == (
        "12 of 40 parameters: those whose batches lie furthest beyond chance. Choose others with "
        "var_names."
    )


def test_any_method_will_do():
    assert panels(az_swiss.plot_shift(make_merged(3, method="consensus"), backend="none")) == 3


def test_batches_may_have_aesthetics_and_facets(merged):
    pc = az_swiss.plot_shift(merged, backend="none", aes={"color": ["batch"]})
    dots = pc.viz["mean"]["mean"].sel(parameter="sigma")
    assert dots.dims == ("batch",)
    assert len({dot["facecolor"] for dot in dots.values}) == 4
    assert pc.viz["scatter"]["mean"].dims == ("parameter",)
    rows = az_swiss.plot_shift(merged, backend="none", cols=["parameter"], rows=["batch"])
    assert panels(rows) == 12
    assert xy(rows, "mean", parameter="sigma", batch="b1")[1].tolist() == [2]


def test_the_report_of_another_merge_is_refused(merged):
    other = az_swiss.report(make_merged(3))
    with pytest.raises(ValueError, match="report= is of another merge: its labels along batch are"):
        az_swiss.plot_shift(merged, report=other)
    with pytest.raises(TypeError, match="report= takes what report"):
        az_swiss.plot_shift(merged, report=merged)

"""plot_agreement(): Q of every batch against the chi-squared distribution."""

import numpy as np
import pytest
from drawn_batches import make_merged
from read_visuals import caption, lines, ticks, titles, visual, xy
from scipy.stats import chi2

import arviz_swiss as az_swiss


def agreeing(count, size=2):
    """Return a merge whose batches' means scatter as they should."""
    rng = np.random.default_rng(count)
    batches = []
    for _ in range(count):
        centre = np.sqrt(count - 1) * rng.standard_normal(size)
        batches.append({"x": rng.standard_normal((2, 400, size)) + centre})
    return az_swiss.merge(batches, kind="inflated")


def test_dots_are_q_in_order_and_against_their_quantiles(backend):
    merged = agreeing(5)
    pc = az_swiss.plot_agreement(merged, ci_prob=0.9, backend=backend)
    done = merged["swiss_diagnostics"]
    q = chi2.isf(done["batch_q_pvalue"].values, 2)
    fair = done["batch_q"].values * (1 - done["precision_bias"].values) ** 2
    np.testing.assert_allclose(q, fair, rtol=1e-6)
    x, y = xy(pc, "q", panel="order")
    np.testing.assert_array_equal(x, np.arange(5))
    np.testing.assert_allclose(y, q)
    x, y = xy(pc, "q", panel="distribution")
    np.testing.assert_allclose(y, q)
    np.testing.assert_allclose(np.sort(x), chi2.ppf((np.arange(5) + 0.5) / 5, 2))
    assert (np.argsort(x) == np.argsort(q)).all()
    assert titles(pc, "panel") == ["Q in the order of the batches", "Q against its distribution"]
    assert ticks(pc, "x", panel="order") == ["b0", "b1", "b2", "b3", "b4"]
    assert caption(pc).startswith(
        f"All batches: Q = {float(done['q_fair']):.4g} where chance gives"
    )


def test_bands_and_limit_are_those_of_chance():
    pc = az_swiss.plot_agreement(agreeing(300), ci_prob=0.9, backend="none")
    band = visual(pc, "chance", panel="order")
    assert [band["ymin"], band["ymax"]] == pytest.approx(chi2.ppf([0.05, 0.95], 2).tolist())
    for panel in ("order", "distribution"):
        assert visual(pc, "limit", panel=panel)["y"] == pytest.approx(chi2.isf(0.01 / 300, 2))
    envelope = visual(pc, "envelope", panel="distribution")
    x, y = xy(pc, "q", panel="distribution")
    low, high = (np.interp(x, envelope["x"], envelope[name]) for name in ("y_bottom", "y_top"))
    # each Q by itself is inside with .9; neighbours go together, hence the wide bound
    assert ((low <= y) & (y <= high)).mean() > 0.5
    ((line_x, line_y),) = lines(pc, "equal", panel="distribution")
    np.testing.assert_allclose(line_x, line_y)


def test_a_far_batch_is_marked_and_leaves_room_for_others(backend):
    merged = make_merged(300, odd=123)
    pc = az_swiss.plot_agreement(merged, backend=backend)
    (place,), (height,) = xy(pc, "disagreeing", panel="order")
    assert place == 123
    fair = (1 - merged["swiss_diagnostics"]["precision_bias"].values[123]) ** 2
    q = merged["swiss_diagnostics"]["batch_q"].values[123] * fair
    assert height == pytest.approx(np.log10(q), rel=1e-3)
    assert "b123" in ticks(pc, "x", panel="order")
    assert {"1", "10", "100"} <= set(ticks(pc, "y", panel="order"))
    assert len(xy(pc, "q", panel="order")[0]) == 299


def test_long_labels_stand_upright():
    rng = np.random.default_rng(0)
    batches = {f"2026-region-{b}": {"x": rng.normal(size=(2, 100))} for b in range(20)}
    pc = az_swiss.plot_agreement(az_swiss.merge(batches, kind="inflated"), backend="none")
    (given,) = (d for d in pc.viz["plot"].sel(panel="order").item() if d["function"] == "xticks")
    assert given["rotation"] == 90 and len(given["labels"]) == 20


def test_any_method_will_do():
    pc = az_swiss.plot_agreement(make_merged(3, method="consensus"), backend="none")
    assert xy(pc, "q", panel="order")[0].size == 3

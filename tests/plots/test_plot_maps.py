"""plot_maps(): ellipses and draws of two parameters, step by step."""

import numpy as np
import pytest
from drawn_batches import make_merged
from read_visuals import caption, lines, text, titles, visual, xy

import arviz_swiss as az_swiss


def check_ellipse(line, centre, covariance, radius):
    away = np.stack(line, axis=1) - centre
    distance = np.einsum("ni,ij,nj->n", away, np.linalg.inv(covariance), away)
    np.testing.assert_allclose(distance, radius**2, rtol=1e-6)


def test_ellipses_are_those_of_the_moments(merged, backend):
    pc = az_swiss.plot_maps(merged, var_names="beta", ci_prob=0.5, backend=backend)
    done = merged["swiss_transform"]
    radius = np.sqrt(2 * np.log(2))
    block = np.ix_([0, 1], [0, 1])
    pooled = done["pooled_covariance"].values[block]
    target = done["pooled_mean"].values[:2]
    for b, label in enumerate(["b0", "b1", "b2", "b3"]):
        own, mean = done["covariance"].values[b][block], done["mean"].values[b, :2]
        check_ellipse(xy(pc, "ellipse", stage="sampled", batch=label), mean, own, radius)
        check_ellipse(xy(pc, "unscaled", stage="scaled", batch=label), np.zeros(2), own, radius)
        check_ellipse(xy(pc, "ellipse", stage="scaled", batch=label), np.zeros(2), pooled, radius)
        check_ellipse(xy(pc, "ellipse", stage="shifted", batch=label), target, pooled, radius)
    assert visual(pc, "unscaled", stage="sampled", batch="b0") is None
    for stage, centre in (("sampled", target), ("scaled", np.zeros(2)), ("shifted", target)):
        check_ellipse(xy(pc, "merged", stage=stage), centre, pooled, radius)


def test_points_are_draws(merged, backend):
    pc = az_swiss.plot_maps(merged, var_names="beta", backend=backend)
    original = next(iter(az_swiss.subposteriors(merged).values()))["posterior"]["beta"].values
    mapped = merged["posterior"]["beta"].values[:2].reshape(-1, 2)
    points = {
        stage: np.stack(xy(pc, "draws", stage=stage, batch="b0"), axis=1)
        for stage in ("sampled", "scaled", "shifted")
    }
    np.testing.assert_allclose(points["sampled"], original.reshape(-1, 2), atol=1e-9)
    np.testing.assert_allclose(points["shifted"], mapped)
    shift = mapped - points["scaled"]
    np.testing.assert_allclose(shift, np.broadcast_to(shift[0], shift.shape))


def test_panels_say_what_they_show(merged, backend):
    pc = az_swiss.plot_maps(merged, var_names="beta", backend=backend)
    assert titles(pc, "stage") == ["sub-posteriors", "centred and scaled", "shifted: merged"]
    assert caption(pc) == ""
    if backend in ("none", "matplotlib"):
        assert text(pc, "xlabel", stage="scaled") == "beta[left]"
        assert text(pc, "ylabel", stage="scaled") == "beta[right]"


def test_many_batches_share_one_colour_and_few_points(backend):
    pc = az_swiss.plot_maps(make_merged(300), backend=backend)
    x, _ = xy(pc, "draws", stage="sampled")
    assert np.isfinite(x).sum() <= 2000
    assert len(lines(pc, "ellipse", stage="sampled")) == 300


def test_few_batches_have_colours_of_their_own(merged):
    pc = az_swiss.plot_maps(merged, backend="none")
    colours = [visual(pc, "ellipse", stage="scaled", batch=f"b{b}")["color"] for b in range(4)]
    assert len(set(colours)) == 4
    legend = az_swiss.plot_maps(merged, backend="matplotlib").viz["figure"].item().legends[0]
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown == ["b0", "b1", "b2", "b3", "merged"]


def test_the_two_parameters_are_chosen_where_nobody_chose():
    rng = np.random.default_rng(0)
    batches = [{"x": rng.standard_normal((2, 200, 10))} for _ in range(3)]
    batches[0]["x"][..., 3] += 9
    batches[1]["x"][..., 8] += 9
    with pytest.warns(az_swiss.MergeWarning):
        merged = az_swiss.merge(batches, kind="inflated")
    pc = az_swiss.plot_maps(merged, backend="none")
    shown = [text(pc, name, stage="sampled") for name in ("xlabel", "ylabel")]
    assert shown == ["x[3]", "x[8]"]
    assert caption(pc).startswith("2 of 10 parameters: those whose batches lie furthest")


def test_needs_two_parameters_and_maps(merged):
    with pytest.raises(ValueError, match="draws two parameters"):
        az_swiss.plot_maps(merged, var_names="sigma")
    with pytest.raises(ValueError, match="newly made"):
        az_swiss.plot_maps(make_merged(3, method="consensus"))

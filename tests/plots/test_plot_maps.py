"""plot_maps(): ellipses and draws of two parameters, step by step."""

import numpy as np
import pytest
from drawn_batches import make_merged

import arviz_swiss as az_swiss


def test_ellipses_are_those_of_the_moments(merged):
    axes = az_swiss.plot_maps(merged, var_names="beta", ci_prob=0.5)
    done = merged["swiss_transform"]
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


def test_points_are_draws(merged):
    axes = az_swiss.plot_maps(merged, var_names="beta")
    original = next(iter(az_swiss.subposteriors(merged).values()))["posterior"]["beta"].values
    mapped = merged["posterior"]["beta"].values[:2].reshape(-1, 2)
    np.testing.assert_allclose(points(axes[0])[0], original.reshape(-1, 2), atol=1e-9)
    np.testing.assert_allclose(points(axes[2])[0], mapped)
    shift = mapped - points(axes[1])[0]
    np.testing.assert_allclose(shift, np.broadcast_to(shift[0], shift.shape))
    assert [ax.get_xlabel() for ax in axes] == ["beta[left]"] * 3
    assert axes[0].get_ylabel() == "beta[right]"


def test_many_batches_share_one_colour_and_few_points():
    axes = az_swiss.plot_maps(make_merged(50))
    assert sum(len(cloud) for cloud in points(axes[0])) <= 2000
    assert len({line.get_color() for line in axes[0].lines}) == 2
    texts = [text.get_text() for text in axes[0].figure.legends[0].get_texts()]
    assert texts == ["50 batches", "merged"]


def test_needs_two_parameters_and_maps(merged):
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

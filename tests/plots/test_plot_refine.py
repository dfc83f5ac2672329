"""plot_refine(): steps and moments of each round."""

import warnings

import numpy as np
import pytest
from read_visuals import caption, lines, panels, ticks, titles, visual, xy
from refine_cases import LogRate
from scipy.stats import norm

import arviz_swiss as az_swiss


def refined_rates(batches=8, size=3, sign=1.0):
    rng = np.random.default_rng(1)
    counts = rng.uniform(2, 6, size)
    densities = [LogRate(counts, rng.gamma(counts)) for _ in range(batches)]
    draws = [
        {"u": np.log(rng.gamma(batches * counts, size=(2, 300, size)) / (batches * one.exposures))}
        for one in densities
    ]
    if sign < 0:
        for one in densities:
            one.counts, one.exposures = -one.counts, -one.exposures
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        merged = az_swiss.merge(draws, kind="inflated")
        return az_swiss.refine(merged, densities, random_seed=0, progressbar=False)


@pytest.fixture(scope="module")
def refined():
    return refined_rates()


def test_steps_and_means_are_those_of_the_rounds(refined, backend):
    pc = az_swiss.plot_refine(refined, ci_prob=0.9, backend=backend)
    done = refined["swiss_transform"]
    rounds = done.sizes["round"]
    assert titles(pc, "panel") == ["step, all parameters", "u[0]", "u[1]", "u[2]"]
    x, y = xy(pc, "step", panel="all parameters")
    np.testing.assert_array_equal(x, np.arange(1, rounds))
    step, error = done["step"].values[1:], done["step_error"].values[1:]
    np.testing.assert_allclose(y, np.log10(step))
    noise = [height[0] for _, height in lines(pc, "noise", panel="all parameters")]
    np.testing.assert_allclose(noise, np.log10(error))
    tops = [height[1] for _, height in lines(pc, "step_error", panel="all parameters")]
    np.testing.assert_allclose(tops, np.log10(step + error))
    for position, label in enumerate(["u[0]", "u[1]", "u[2]"]):
        mean = done["round_mean"].values[:, position]
        sd = np.sqrt(done["round_covariance"].values[:, position, position])
        np.testing.assert_allclose(xy(pc, "mean", panel=label)[1], mean)
        intervals = [ends for _, ends in lines(pc, "interval", panel=label)]
        half = norm.isf(0.05) * sd
        np.testing.assert_allclose(intervals, np.stack([mean - half, mean + half], axis=1))
        errors = [np.ptp(ends) / 2 for _, ends in lines(pc, "mean_error", panel=label)]
        np.testing.assert_allclose(errors, np.append(0, error) * sd, atol=1e-12)
    assert ticks(pc, "x", panel="u[0]")[:2] == ["merge", "1"]
    assert caption(pc).startswith(f"Refined in {rounds - 1} rounds")


def test_what_is_short_is_drawn(refined):
    pc = az_swiss.plot_refine(refined, backend="none")
    assert visual(pc, "short", panel="all parameters")["y"] == pytest.approx(np.log10(0.25))
    assert visual(pc, "short", panel="u[0]") is None
    figure = az_swiss.plot_refine(refined, backend="plotly").viz["figure"].item()
    assert [shape.type for shape in figure.layout.shapes] == ["line"]


def test_undone_rounds_are_crosses():
    pc = az_swiss.plot_refine(refined_rates(sign=-1.0), backend="none")
    assert "step" not in pc.viz.children
    assert xy(pc, "mean", panel="u[0]")[0].tolist() == [0]
    assert "led away from the posterior and was undone" in caption(pc)


def test_of_many_parameters_those_that_moved_most():
    refined = refined_rates(size=30)
    pc = az_swiss.plot_refine(refined, backend="none")
    assert panels(pc) == 12
    assert "11 of 30 parameters: those that refine moved most" in caption(pc)
    done = refined["swiss_transform"]
    means = done["round_mean"].values
    moved = np.abs(means[-1] - means[0]) / np.sqrt(np.diag(done["round_covariance"].values[-1]))
    assert f"u[{moved.argmax()}]" in pc.viz["plot"]["panel"].values


def test_a_merge_that_was_not_refined_is_refused(merged):
    with pytest.raises(
        ValueError, match=r"this merge has none: pass what refine\(merged, models\)"
    ):
        az_swiss.plot_refine(merged)

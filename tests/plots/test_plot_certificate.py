"""plot_certificate(): weights, their tail, k-hats of batches, and shifts."""

import warnings

import arviz
import numpy as np
import pytest
from certify_cases import Normal, normal_case
from read_visuals import caption, ticks, titles, visual, xy

import arviz_swiss as az_swiss


def certified_case(batches, size=3, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        merged, densities = normal_case(batches=batches, size=size)
        # densities that are a little off: weights that say so
        off = [Normal(one.centre + 0.1, one.sd, one.prior_sd) for one in densities]
        return az_swiss.certify(merged, off, random_seed=0, progressbar=False, **options)


@pytest.fixture(scope="module")
def certified():
    return certified_case(4)


def test_panels_show_what_the_certificate_holds(certified, backend):
    pc = az_swiss.plot_certificate(certified, backend=backend)
    done = certified["swiss_certificate"]
    ratios = np.sort(done["log_ratio"].values.ravel())[::-1] / np.log(10)
    count = int(np.ceil(min(0.2 * ratios.size, 3 * np.sqrt(ratios.size))))
    x, y = xy(pc, "largest", panel="tail")
    np.testing.assert_allclose(x, ratios[:count])
    np.testing.assert_allclose(10**y, (np.arange(count) + 0.5) / ratios.size)
    x, y = xy(pc, "khat", panel="batches")
    known = done["batch_khat"].values <= 0.7
    np.testing.assert_array_equal(x, np.flatnonzero(known))
    np.testing.assert_allclose(y, done["batch_khat"].values[known])
    for name in ("mean_shift", "sd_shift"):
        x, y = xy(pc, name, panel="shift")
        np.testing.assert_allclose(x, done[name])
        np.testing.assert_array_equal(y, [2, 1, 0])
    assert ticks(pc, "y", panel="shift") == ["x[0]", "x[1]", "x[2]"]
    assert titles(pc, "panel") == [
        f"weights of {ratios.size} draws",
        f"largest weights: k-hat {float(done['khat']):.2f}",
        "k-hat of each batch alone",
        "shift by the weights",
    ]
    assert caption(pc).lower().startswith(str(done.attrs["status"]))


def test_bars_limits_and_bands(certified):
    pc = az_swiss.plot_certificate(certified, backend="none")
    done = certified["swiss_certificate"]
    bars = visual(pc, "histogram", panel="weights")
    assert bars["y"].sum() == done["log_ratio"].size
    ratios = done["log_ratio"].values / np.log(10)
    assert bars["l_e"][0] == pytest.approx(ratios.min())
    assert bars["r_e"][-1] == pytest.approx(ratios.max())
    assert visual(pc, "usable", panel="batches")["y"] == 0.7
    assert visual(pc, "good", panel="batches")["y"] == 0.5
    chance = 2 * float(done["mahalanobis_error"]) / np.sqrt(3)
    band = visual(pc, "chance", panel="shift")
    assert [band["xmin"], band["xmax"]] == pytest.approx([-chance, chance])


def test_the_fit_is_the_smoothed_weights(certified):
    pc = az_swiss.plot_certificate(certified, backend="none")
    done = certified["swiss_certificate"]
    weights = np.sort(done["log_weight"].values.ravel())[::-1] / np.log(10)
    x, _ = xy(pc, "fit", panel="tail")
    away = x - weights[: x.size]
    np.testing.assert_allclose(away, away[0])


def test_plotly_draws_the_limits_too(certified):
    figure = az_swiss.plot_certificate(certified, backend="plotly").viz["figure"].item()
    # equal weights, two limits of k-hat, and the band of chance
    assert sorted(shape.type for shape in figure.layout.shapes) == ["line"] * 3 + ["rect"]


def test_three_hundred_batches_of_few_draws_have_no_khat():
    pc = az_swiss.plot_certificate(certified_case(300, size=2), backend="none")
    assert np.isnan(xy(pc, "khat", panel="batches")[1]).all()
    assert titles(pc, "panel")[2] == "k-hat of each batch alone: too few draws"


def test_of_many_parameters_those_that_are_shifted_most():
    certified = certified_case(3, size=40)
    pc = az_swiss.plot_certificate(certified, backend="none")
    labels = ticks(pc, "y", panel="shift")
    assert len(labels) == 15
    assert "Shifts of 15 of 40 parameters: those that the weights shift most" in caption(pc)
    done = certified["swiss_certificate"]
    moved = np.fmax(np.abs(done["mean_shift"].values), np.abs(done["sd_shift"].values))
    assert labels == [f"x[{at}]" for at in np.sort(np.argsort(-moved)[:15])]
    chosen = az_swiss.plot_certificate(certified, coords={"x_dim_0": [1, 30]}, backend="none")
    assert ticks(chosen, "y", panel="shift") == ["x[1]", "x[30]"]


def test_labeller_is_arvizs(certified):
    labeller = arviz.labels.MapLabeller(var_name_map={"x": "effect"})
    pc = az_swiss.plot_certificate(certified, labeller=labeller, backend="none")
    assert ticks(pc, "y", panel="shift")[0] == "effect[0]"


def test_a_merge_that_was_not_certified_is_refused(merged):
    with pytest.raises(ValueError, match=r"this merge has none: pass what certify\(merged, models"):
        az_swiss.plot_certificate(merged)

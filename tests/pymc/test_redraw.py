"""Draws made anew where a scale may be zero: right, certified, and honest about what they are."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from group_models import exact_posterior, exact_scaled_posterior, make_groups, scaled_groups
from read_visuals import panels, ticks, titles, xy

import arviz_swiss as az_swiss
from arviz_swiss.correcting import redraw
from arviz_swiss.data import containers

QUIET = {"progressbar": False, "random_seed": 3}
TABLE = make_groups(groups=40, rows=10, tau=0.05, seed=0)
DRAWS = 2000


def groups_of(merged):
    return containers.read(merged).groups


@pytest.fixture(scope="module")
def redrawn():
    return az_swiss.sample(scaled_groups, TABLE, groups="site", batches=4, draws=DRAWS, **QUIET)


def test_a_scale_that_may_be_zero_is_right_and_certified(redrawn):
    """Its mean and sd, which Gaussians of the batches miss by half an sd."""
    groups = groups_of(redrawn)
    assert groups["swiss_redrawn"]["reshaped"].values.tolist() == ["tau"]
    assert groups["swiss_certificate"].attrs["status"] == "certified"
    posterior = groups["posterior"]
    assert "batch" not in posterior.coords
    mean, sds = exact_scaled_posterior(TABLE)
    error = 1 / np.sqrt(float(groups["swiss_redrawn"]["effective_size"]))
    for at, name in enumerate(("level", "slope", "tau")):
        assert abs(float(posterior[name].mean()) - mean[at]) / sds[at] < 5 * error
        # a skewed parameter's sd has twice the error of a Gaussian's
        assert abs(float(posterior[name].std()) / sds[at] - 1) < 10 * error / np.sqrt(2)


def test_effects_are_drawn_given_the_scale(redrawn):
    """Their moments are those of a mixture over tau, of which the draws have the exact weights."""
    posterior = groups_of(redrawn)["posterior"]
    taus = np.quantile(posterior["tau"].values, (np.arange(40) + 0.5) / 40)
    parts = [exact_posterior(TABLE, tau) for tau in taus]
    names = parts[0][2]
    assert posterior["site"].values.tolist() == pd.factorize(TABLE["site"])[1].tolist()
    means = np.array([mean[2:] for mean, _, _ in parts])
    variances = np.array([np.diag(covariance)[2:] for _, covariance, _ in parts])
    effects = posterior["effect"].sel(site=names)
    sds = np.sqrt(variances.mean(axis=0) + means.var(axis=0))
    away = (effects.mean(("chain", "draw")).values - means.mean(axis=0)) / sds
    assert np.abs(away).max() < 5 / np.sqrt(DRAWS)
    ratios = effects.std(("chain", "draw")).values / sds
    assert abs(ratios.mean() - 1) < 0.05
    # of a draw: effects are wide where tau is large
    wide = float(
        np.corrcoef(posterior["tau"].values.ravel(), effects.std("site").values.ravel())[0, 1]
    )
    assert wide > 0.8


def test_the_report_says_what_was_done(redrawn):
    text = str(az_swiss.report(redrawn))
    assert text.startswith("Certified")
    assert "The posterior of tau is far from Gaussian, so the shared parameters were drawn" in text


def test_there_is_nothing_to_move_back(redrawn):
    with pytest.raises(ValueError, match="made anew by refine, as the posterior of tau is far"):
        az_swiss.subposteriors(redrawn)


def test_plots_draw_what_draws_made_anew_have(redrawn):
    """Rounds, batches' moments and weights, which are all equal; no batch's own draws."""
    for plot in (az_swiss.plot_batches, az_swiss.plot_maps):
        with pytest.raises(ValueError, match="made anew by refine, as the posterior of tau is far"):
            plot(redrawn, backend="none")
    shared = ["level", "slope", "tau"]
    assert panels(az_swiss.plot_shift(redrawn, backend="none")) == len(shared)
    assert panels(az_swiss.plot_refine(redrawn, backend="none")) == 1 + len(shared)
    agreement = az_swiss.plot_agreement(redrawn, backend="none")
    drawn = {"q", "disagreeing"} & set(agreement.viz.children)
    assert sum(xy(agreement, name, panel="order")[0].size for name in drawn) == 4
    certificate = az_swiss.plot_certificate(redrawn, backend="matplotlib")
    assert ticks(certificate, "y", panel="shift") == shared
    assert titles(certificate, "panel")[2] == "no batch's own draws: made anew"
    tail = certificate.viz["plot"].sel(panel="tail").item()
    low, high = tail.get_xlim()
    assert low < 0 < high and high - low == pytest.approx(0.02)
    labels = ticks(certificate, "x", panel="tail")
    assert "1" in labels and len(set(labels)) == len(labels) >= 3


def test_a_file_is_certified_alike_and_other_models_are_not(redrawn, tmp_path):
    path = tmp_path / "merged.nc"
    redrawn.to_netcdf(path)
    again = az_swiss.certify(path, build=scaled_groups, data=TABLE, **QUIET)
    assert groups_of(again)["swiss_certificate"].attrs["status"] == "certified"

    def other(rows):
        return scaled_groups(rows.assign(y=2 * rows["y"]))

    opened = containers.read(redrawn)
    # without the data, by which other rows would be refused at once
    bare = {k: v for k, v in opened.groups.items() if k not in ("observed_data", "constant_data")}
    bare["swiss_transform"] = bare["swiss_transform"].drop_vars("observed_summary", errors="ignore")
    merged = containers.build(bare, opened.container)
    with pytest.warns(az_swiss.MergeWarning, match="the draws are not from the densities given"):
        az_swiss.certify(merged, build=other, data=TABLE, **QUIET)


def test_draws_in_another_order_are_certified_alike(redrawn):
    opened = containers.read(redrawn)
    chains = [2, 0, 3, 1]
    groups = {
        name: group.isel(chain=chains, draw=slice(None, None, -2))
        if "draw" in group.dims
        else group
        for name, group in opened.groups.items()
        if name != "swiss_redrawn"
    }
    turned = opened.groups["swiss_redrawn"].transpose("draw", "chain", ...)
    merged = containers.build({**groups, "swiss_redrawn": turned}, opened.container)
    again = az_swiss.certify(merged, build=scaled_groups, data=TABLE, **QUIET)
    assert groups_of(again)["swiss_certificate"].attrs["status"] == "certified"


def test_priors_that_differ_are_not_certified(redrawn):
    first = TABLE["site"].iloc[0]

    def other(rows):
        model = scaled_groups(rows)
        if first in set(rows["site"]):
            with model:
                pm.Potential("more", -((model["level"] - 5) ** 2))
        return model

    with pytest.warns(az_swiss.MergeWarning, match='the prior of batch "b[0-3]" differs from that'):
        az_swiss.certify(redrawn, build=other, data=TABLE, **QUIET)


def spoilt(redrawn, **changes):
    opened = containers.read(redrawn)
    groups = {name: group.copy(deep=True) for name, group in opened.groups.items()}
    for name, (index, value) in changes.items():
        groups["posterior"][name][index] = value
    return containers.build(groups, opened.container)


def test_what_a_hurried_user_passes(redrawn):
    source = {"build": scaled_groups, "data": TABLE, **QUIET}
    with pytest.raises(ValueError, match="posterior has 1 values of tau that are NaN or infinite"):
        az_swiss.certify(spoilt(redrawn, tau=((0, 3), np.nan)), **source)
    with pytest.raises(ValueError, match="level does not vary in posterior any more"):
        az_swiss.certify(spoilt(redrawn, level=(slice(None), 1.0)), **source)
    opened = containers.read(redrawn)
    without = {k: v for k, v in opened.groups.items() if k != "swiss_redrawn"}
    for function in (az_swiss.report, lambda merged: az_swiss.certify(merged, **source)):
        with pytest.raises(ValueError, match='no group "swiss_redrawn" any more'):
            function(containers.build(without, opened.container))
    few = {k: v.isel(draw=[0]) if "draw" in v.dims else v for k, v in opened.groups.items()}
    with pytest.warns(az_swiss.MergeWarning, match="too few draws to tell"):
        az_swiss.certify(containers.build(few, opened.container), **source)


def test_weights_that_tell_too_little_leave_the_rounds_draws(monkeypatch):
    monkeypatch.setattr(redraw, "LEAST_EFFECTIVE", 1.1)
    with pytest.warns(az_swiss.MergeWarning, match="^not certified"):
        merged = az_swiss.sample(
            scaled_groups, TABLE, groups="site", batches=4, draws=DRAWS, **QUIET
        )
    assert "swiss_redrawn" not in groups_of(merged)


def test_a_scale_that_is_well_known_is_not_drawn_anew():
    table = make_groups(groups=40, rows=10, tau=1.0, seed=1)
    merged = az_swiss.sample(scaled_groups, table, groups="site", batches=4, draws=DRAWS, **QUIET)
    assert "swiss_redrawn" not in groups_of(merged)
    assert "batch" in groups_of(merged)["posterior"].coords

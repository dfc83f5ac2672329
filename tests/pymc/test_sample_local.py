"""sample with groups: rounds, certificate, files, predictions, and what it makes of odd tables."""

import re
import shutil
import warnings
from functools import partial

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from group_models import exact_posterior, exact_scaled_posterior, make_groups, scaled_groups

import arviz_swiss as az_swiss
from arviz_swiss.data import containers
from arviz_swiss.data.messages import MergeWarning
from arviz_swiss.merging import records
from arviz_swiss.parallel import store

TABLE = make_groups(groups=24, rows=20, seed=4)
QUIET = {"progressbar": False, "random_seed": 2}
SHORT = {**QUIET, "groups": "site", "batches": 3, "draws": 960}
NAMES = ("level", "slope", "tau")


def groups_of(merged):
    return containers.read(merged).groups


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder of a finished run, and its result."""
    folder = tmp_path_factory.mktemp("finished")
    return folder, az_swiss.sample(scaled_groups, TABLE, folder=folder, **SHORT)


@pytest.fixture(scope="module")
def merged(finished):
    return finished[1]


def assert_right(merged, table=TABLE, draws=960):
    mean, sds = exact_scaled_posterior(table)
    posterior = groups_of(merged)["posterior"]
    for at, name in enumerate(NAMES):
        away = abs(float(posterior[name].mean()) - mean[at]) / sds[at]
        # rounds leave a tenth of an sd, at most, and draws their noise
        assert away < 0.1 + 4 / np.sqrt(draws / 2), name
        ratio = float(posterior[name].std()) / sds[at]
        assert abs(ratio - 1) < 0.05 + 4 / np.sqrt(draws), name
    assert set(posterior["site"].values) == set(table["site"])


def test_the_posterior_is_that_of_all_rows(merged):
    assert_right(merged)
    groups = groups_of(merged)
    assert groups["swiss_certificate"].attrs["status"] == "certified"
    assert groups["posterior"].attrs["swiss_kind"] == "tilted"
    assert groups["swiss_pilot"].attrs["how"] == "rounds over batch b0"
    run = groups["swiss_run"]
    assert run["stage"].values.tolist() == ["plan", "pilot", "refine", "certify"]
    assert run.attrs["plain"] == run.attrs["skipped"] == ""
    assert run.attrs["rule"].startswith("3 batches, as asked for (160 rows of 8 groups, 320 draws")


def test_effects_are_in_the_order_of_all_rows(merged):
    # which no batch knows: sites are numbered at random
    names = pd.factorize(TABLE["site"])[1]
    posterior = groups_of(merged)["posterior"]
    assert posterior["site"].values.tolist() == names.tolist()
    tau = float(posterior["tau"].mean())
    mean, covariance, _ = exact_posterior(TABLE, tau)
    away = posterior["effect"].mean(("chain", "draw")).values - mean[2:]
    assert np.abs(away / np.sqrt(np.diag(covariance)[2:])).max() < 0.1 + 4 / np.sqrt(160)


def test_the_report(merged):
    text = str(az_swiss.report(merged))
    assert text.startswith("Certified") and "Refined in" in text
    assert not {f.flag for f in az_swiss.report(merged).findings} & {"did not converge"}


@pytest.mark.parametrize(
    "lost", ["pilot.nc refine.nc certify.nc", "refine.nc certify.nc", "certify.nc"]
)
def test_it_goes_on_from_a_folder(finished, tmp_path, lost):
    folder = tmp_path / "run"
    shutil.copytree(finished[0], folder)
    assert {path.name for path in folder.glob("*.nc")} == {"pilot.nc", "refine.nc", "certify.nc"}
    for name in lost.split():
        (folder / name).unlink()
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("*.nc")}
    again = az_swiss.sample(scaled_groups, TABLE, folder=folder, **SHORT)
    assert kept.items() <= {p: p.stat().st_mtime_ns for p in folder.glob("*.nc")}.items()
    for name in ("posterior", "swiss_transform", "swiss_sites", "swiss_certificate"):
        xr.testing.assert_equal(groups_of(again)[name], groups_of(finished[1])[name])


@pytest.mark.parametrize("stop", [pytest.param("pilot", marks=pytest.mark.slow), "refine"])
def test_interrupted_at_any_stage_it_goes_on(finished, tmp_path, monkeypatch, stop):
    write = store.write_result

    def interrupted(folder, name, *arguments):
        if name == stop:
            raise KeyboardInterrupt
        write(folder, name, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(store, "write_result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            az_swiss.sample(scaled_groups, TABLE, folder=tmp_path, **SHORT)
    again = az_swiss.sample(scaled_groups, TABLE, folder=tmp_path, **SHORT)
    xr.testing.assert_equal(groups_of(again)["posterior"], groups_of(finished[1])["posterior"])


def test_refine_and_certify_find_the_rows_again(merged):
    refined = az_swiss.refine(
        merged, build=scaled_groups, data=TABLE, draws=960, progressbar=False, random_seed=8
    )
    assert_right(refined)
    xr.testing.assert_equal(
        groups_of(refined)["posterior"]["site"], groups_of(merged)["posterior"]["site"]
    )
    certified = az_swiss.certify(refined, build=scaled_groups, data=TABLE, **QUIET)
    assert groups_of(certified)["swiss_certificate"].attrs["status"] != "not certified"


def test_a_time_for_single_batches_is_refused_where_there_are_rounds():
    with pytest.raises(ValueError, match=r"sampled in rounds.*Leave timeout= out, or pass nuts_"):
        az_swiss.sample(scaled_groups, TABLE, timeout=60, **SHORT)


def test_the_stages_one_by_one(quick):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few draws
        batches = quick(
            scaled_groups,
            TABLE,
            batches=3,
            groups="site",
            kind="fractionated",
            untransformed=["tau"],
            random_seed=1,
        )
        # on a scale that is not the model's
        merged = az_swiss.merge(batches, transforms={"tau": None})
    refined = az_swiss.refine(merged, build=scaled_groups, data=TABLE, draws=960, **QUIET)
    assert_right(refined)
    assert "tau" in groups_of(refined)["swiss_transform"]["variable"]


@pytest.fixture(scope="module")
def full():
    """The posterior of all rows at once, drawn from exactly, given each tau of a grid."""
    rng = np.random.default_rng(6)
    mean, sds = exact_scaled_posterior(TABLE)
    taus = np.abs(rng.normal(mean[2], sds[2], size=(4, 250)))
    draws = np.empty((4, 250, 26))
    for place in np.ndindex(4, 250):
        centre, covariance, names = exact_posterior(TABLE, taus[place])
        draws[place] = rng.multivariate_normal(centre, covariance)
    dims = ("chain", "draw")
    return xr.Dataset(
        {
            "level": (dims, draws[..., 0]),
            "slope": (dims, draws[..., 1]),
            "tau": (dims, taus),
            "effect": ((*dims, "site"), draws[..., 2:]),
        },
        coords={"chain": range(4), "draw": range(250), "site": names},
    )


def test_predictions_are_those_of_a_full_run(merged, full, uncompiled):
    found = {}
    for name, posterior in {"merged": groups_of(merged)["posterior"], "full": full}.items():
        with scaled_groups(TABLE):
            predicted = pm.sample_posterior_predictive(
                containers.build({"posterior": posterior}), progressbar=False, random_seed=1
            )
        found[name] = groups_of(predicted)["posterior_predictive"]["y"]
    means, sds = (
        [getattr(each, what)(("chain", "draw")).values for each in found.values()]
        for what in ("mean", "std")
    )
    # of 960 and of 1,000 draws with an sd of about one; effects are worth a third of these
    error = np.sqrt(1 / 320 + 1 / 1000)
    assert np.abs(means[0] - means[1]).max() < 5 * error
    assert np.abs(sds[0] / sds[1] - 1).max() < 5 * error
    # rows of other sites would be told other means
    assert np.std(means[1]) > 5 * error


def test_loo_is_that_of_a_full_run(merged, full, uncompiled):
    elpd = []
    for posterior in (groups_of(merged)["posterior"], full):
        idata = containers.build({"posterior": posterior.drop_vars("batch", errors="ignore")})
        with scaled_groups(TABLE):
            pm.compute_log_likelihood(idata, progressbar=False)
        loo = az.loo(idata)
        elpd.append(float(loo["elpd_loo"] if "elpd_loo" in dir(loo) else loo.elpd))
    # p_loo is about 20, and the error of each of the 480 terms a few hundredths
    assert abs(elpd[0] - elpd[1]) < 2
    assert abs(elpd[0] + 480 * 1.42) < 100


# of the product of N(0, 3^2) and N(1, .05^2)
NARROW_SD = (1 / 9 + 400) ** -0.5
NARROW_MEAN = 400 * NARROW_SD**2


def odd_groups(batch, effects="normal", extra=None, dims=True):
    """Build models of odd effects."""
    codes, names = pd.factorize(batch["site"])
    with pm.Model(coords={"site": names} if dims else None) as model:
        narrow = extra == "narrow prior"
        level = pm.Normal("level", *((NARROW_MEAN, NARROW_SD) if narrow else (0, 3)))
        slope = pm.Normal("slope", 0, 2)
        tau = pm.HalfNormal("tau", 1)
        size = {"dims": "site"} if dims else {"shape": len(names)}
        if effects == "non-centred":
            white = pm.Normal("white", 0, 1, **size)
            effect = pm.Deterministic("effect", tau * white, dims="site")
        elif effects == "Student":
            effect = pm.StudentT("effect", nu=50, mu=0, sigma=tau, **size)
        elif effects == "positive":
            effect = pm.math.log(pm.LogNormal("factor", 0, tau, **size))
        elif effects == "two":
            effect = pm.Normal("effect", 0, tau, **size) + pm.Normal("other", 0, 1e-3, **size)
        else:
            effect = pm.Normal("effect", 0, tau, **size)
        if extra == "potential":
            pm.Potential("narrow", -((level - 1) ** 2) / (2 * 0.05**2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that missing outcomes are imputed
            mean = level + slope * batch["x"].to_numpy() + effect[codes]
            pm.Normal("y", mean, 1, observed=batch["y"])
    return model


@pytest.mark.parametrize(
    "effects",
    [
        "non-centred",
        *(pytest.param(k, marks=pytest.mark.slow) for k in ("Student", "positive", "two")),
    ],
)
def test_effects_of_other_forms(effects):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MergeWarning)  # where draws are usable only
        merged = az_swiss.sample(partial(odd_groups, effects=effects), TABLE, **SHORT)
    assert_right(merged)
    assert groups_of(merged)["swiss_certificate"].attrs["status"] != "not certified"


def test_potentials_of_the_prior_count_once():
    """A Potential narrows the prior as the same factor in the prior itself does."""
    options = {"certify": False, **SHORT}
    as_potential, as_prior = (
        groups_of(az_swiss.sample(partial(odd_groups, extra=extra), TABLE, **options))["posterior"]
        for extra in ("potential", "narrow prior")
    )
    found, expected = as_potential["level"], as_prior["level"]
    # each run's batches have 480 draws; of means, and of standard deviations
    assert abs(float(found.mean() - expected.mean()) / float(expected.std())) < 6 / np.sqrt(480)
    assert abs(float(found.std() / expected.std()) - 1) < 6 / np.sqrt(2 * 480)


@pytest.mark.slow
def test_groups_without_coords():
    build = partial(odd_groups, dims=False)
    with pytest.warns(MergeWarning, match="labels along effect_dim_0 repeat between batches"):
        merged = az_swiss.sample(build, TABLE, certify=False, **SHORT)
    posterior = groups_of(merged)["posterior"]
    assert posterior["effect"].shape[2:] == (24,)
    mean, _ = exact_scaled_posterior(TABLE)
    assert abs(float(posterior["tau"].mean()) - mean[2]) < 0.05


def test_missing_outcomes_beside_effects():
    table = TABLE.copy()
    table.loc[::6, "y"] = np.nan
    with pytest.warns(MergeWarning, match="left out of the merge: y_unobserved"):
        merged = az_swiss.sample(odd_groups, table, **SHORT)
    mean, sds = exact_scaled_posterior(table.dropna().reset_index())
    posterior = groups_of(merged)["posterior"]
    for at, name in enumerate(NAMES):
        assert abs(float(posterior[name].mean()) - mean[at]) / sds[at] < 0.1 + 4 / np.sqrt(480)


@pytest.mark.slow
def test_groups_of_very_unequal_sizes():
    table = make_groups(sizes=[1] * 10 + [3000] + [20] * 13, seed=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MergeWarning)
        merged = az_swiss.sample(scaled_groups, table, **SHORT)
    posterior = groups_of(merged)["posterior"]
    tau = float(posterior["tau"].mean())
    mean, covariance, names = exact_posterior(table, tau)
    effects = posterior["effect"].sel(site=names).mean(("chain", "draw")).values
    away = (effects - mean[2:]) / np.sqrt(np.diag(covariance)[2:])
    assert np.abs(away).max() < 0.1 + 4 / np.sqrt(160)


@pytest.mark.slow
def test_effects_that_are_nearly_nothing():
    table = make_groups(groups=40, rows=10, tau=0.05, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MergeWarning)  # tau is skewed
        merged = az_swiss.sample(scaled_groups, table, **SHORT)
    posterior = groups_of(merged)["posterior"]
    mean, sds = exact_scaled_posterior(table)
    for at, name in enumerate(NAMES[:2]):
        assert abs(float(posterior[name].mean()) - mean[at]) / sds[at] < 0.1 + 4 / np.sqrt(480)
    # nobody is told that tau is right if it is not
    off = abs(float(posterior["tau"].mean()) - mean[2]) / sds[2]
    status = groups_of(merged)["swiss_certificate"].attrs["status"]
    assert off < 0.3 or status != "certified"


@pytest.mark.slow
def test_one_group_a_batch():
    table = make_groups(groups=4, rows=60, seed=7)
    options = {**SHORT, "batches": 4, "certify": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MergeWarning)  # steps that do not settle
        merged = az_swiss.sample(scaled_groups, table, **options)
    posterior = groups_of(merged)["posterior"]
    assert posterior["site"].values.tolist() == pd.factorize(table["site"])[1].tolist()
    mean, sds = exact_scaled_posterior(table)
    # of four groups tau is skewed, and with it the level
    assert abs(float(posterior["slope"].mean()) - mean[1]) / sds[1] < 0.1 + 4 / np.sqrt(480)


def test_one_batch_needs_no_rounds():
    merged = az_swiss.sample(scaled_groups, TABLE, **{**SHORT, "batches": 1, "certify": False})
    assert_right(merged)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"batches": 25},
            "25 batches of only 24 groups would leave a batch empty",
        ),
        ({"groups": np.arange(len(TABLE)) // 30}, r"effect has coordinate '\w+' in batch b\d and"),
        ({"kind": "other"}, "kind must be one of inflated, fractionated, full_prior, got 'other'"),
        ({"kind": "inflated"}, 'effect differ between batches.*Pass kind="fractionated"'),
        ({"draws": 0}, "draws must be"),
        ({"target_accept": 2}, "target_accept"),
        ({"cores": 3}, "cores"),
    ],
)
def test_what_is_refused(change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        az_swiss.sample(scaled_groups, TABLE, **{**SHORT, **change})


def test_a_table_sorted_by_group_without_groups():
    # few rows a group, which random batches do not share: groups= was forgotten
    table = make_groups(groups=60, rows=2, seed=8)
    with pytest.raises(ValueError, match="Pass groups=, the label of each row's group"):
        az_swiss.sample(scaled_groups, table, **{**SHORT, "groups": None})


def test_arguments_of_the_chains_are_used():
    merged = az_swiss.sample(
        scaled_groups, TABLE, chains=4, tune=30, target_accept=0.7, certify=False, **SHORT
    )
    groups = groups_of(merged)
    assert "swiss_certificate" not in groups
    sizes = groups["posterior"].sizes
    assert sizes["chain"] == 12 and sizes["draw"] >= 80
    assert 0.55 < float(groups["sample_stats"]["acceptance_rate"].mean()) < 0.88


@pytest.mark.slow
def test_another_sampler_then_rounds():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the few draws before the rounds
        merged = az_swiss.sample(scaled_groups, TABLE, nuts_sampler="nutpie", **SHORT)
    assert_right(merged)
    groups = groups_of(merged)
    assert groups["posterior"].attrs["swiss_kind"] == "tilted"
    assert groups["posterior"]["site"].values.tolist() == pd.factorize(TABLE["site"])[1].tolist()
    assert "batches" in groups["swiss_run"]["stage"].values


@pytest.mark.slow
def test_without_refine_batches_are_merged():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        merged = az_swiss.sample(scaled_groups, TABLE, refine=False, certify=False, **SHORT)
    groups = groups_of(merged)
    assert groups["posterior"].attrs["swiss_kind"] == "fractionated"
    assert "round" not in groups["swiss_transform"].dims


def test_warnings_point_at_the_users_line_and_are_told_once(finished, tmp_path, monkeypatch):
    shutil.copytree(finished[0], tmp_path / "run")
    (tmp_path / "run" / "certify.nc").unlink()
    monkeypatch.setattr(records, "SKEWED", -10.0)  # every parameter is
    with pytest.warns(MergeWarning) as caught:
        az_swiss.sample(scaled_groups, TABLE, folder=tmp_path / "run", **SHORT)
    own = [each for each in caught if issubclass(each.category, MergeWarning)]
    assert {each.filename for each in own} == {__file__}
    texts = [str(each.message) for each in own]
    assert len(set(texts)) == len(texts)
    assert sum(bool(re.match("usable|not certified", text)) for text in texts) == 1

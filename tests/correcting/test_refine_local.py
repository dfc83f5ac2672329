"""refine of merges whose batches have groups of their own: exact where all is Gaussian."""

import contextlib

import arviz as az
import distributed
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from group_models import SHARED, draw_fractionated, exact_posterior, make_groups, normal_groups
from joblib.externals.loky import get_reusable_executor
from terminal import watching

import arviz_swiss as az_swiss
from arviz_swiss.data import containers
from arviz_swiss.parallel.partition import partition, take

TABLE = make_groups()
QUIET = {"progressbar": False, "random_seed": 1}
INDICES = dict(
    zip(("b0", "b1", "b2"), partition(TABLE, 3, groups="site", random_seed=5), strict=True)
)
PARTS = {label: take(TABLE, index) for label, index in INDICES.items()}


def groups_of(merged):
    return containers.read(merged).groups


def fractionated(rng, label):
    return draw_fractionated(rng, PARTS[label], len(TABLE), label)


@pytest.fixture(scope="module")
def models():
    return {label: normal_groups(part) for label, part in PARTS.items()}


@pytest.fixture(scope="module")
def batches():
    rng = np.random.default_rng(2)
    return [fractionated(rng, label) for label in PARTS]


@pytest.fixture(scope="module")
def merged(batches):
    return az_swiss.merge(batches, model=normal_groups(TABLE))


@pytest.fixture(scope="module")
def refined(merged, models):
    return az_swiss.refine(merged, models, draws=2000, **QUIET)


def assert_right(result, table=TABLE):
    """The moments of shared parameters are exact, those of effects but for noise of draws."""
    posterior = groups_of(result)["posterior"]
    mean, covariance, names = exact_posterior(table)
    draws = np.stack([posterior[name].values for name in SHARED], axis=-1).reshape(-1, 2)
    sds = np.sqrt(np.diag(covariance))
    # no noise: the scores of Gaussian batches tell the moments exactly, and draws are moved there
    np.testing.assert_allclose((draws.mean(axis=0) - mean[:2]) / sds[:2], 0, atol=1e-3)
    np.testing.assert_allclose(np.cov(draws.T), covariance[:2, :2], rtol=0.02, atol=1e-4)
    assert sorted(posterior["site"].values) == sorted(names)
    effects = posterior["effect"].sel(site=names).stack(sample=("chain", "draw"))
    # each batch's residuals are used by every batch's chains: 640 draws, not 1,920
    effective = 640 / 2
    away = (effects.mean("sample").values - mean[2:]) / sds[2:]
    assert np.abs(away).max() < 4 / np.sqrt(effective)
    np.testing.assert_allclose(
        effects.std("sample").values / sds[2:], 1, atol=4 / np.sqrt(2 * effective)
    )
    # and they go with the shared parameters as they should
    own = np.corrcoef(np.vstack([draws.T, effects.transpose("site", "sample").values]))
    exact = covariance / np.outer(sds, sds)
    np.testing.assert_allclose(own, exact, atol=4 / np.sqrt(effective))


def test_moments_of_shared_parameters_and_of_all_effects(merged, refined):
    level = groups_of(merged)["posterior"]["level"]
    mean, covariance, _ = exact_posterior(TABLE)
    assert abs(level.mean() - mean[0]) > np.sqrt(covariance[0, 0])  # where it began
    assert_right(refined)


def test_effects_are_in_the_order_of_the_merge(merged, refined):
    names = pd.factorize(TABLE["site"])[1]
    for each in (merged, refined):
        assert groups_of(each)["posterior"]["site"].values.tolist() == names.tolist()
    assert "swiss_unordered" not in groups_of(refined)["posterior"].attrs


def test_what_the_result_says_of_itself(refined, merged):
    groups = groups_of(refined)
    attrs = groups["posterior"].attrs
    assert attrs["swiss_kind"] == "tilted" and attrs["swiss_local"] == "effect"
    maps = groups["swiss_transform"]
    assert maps.sizes["round"] > 2
    steps = maps["step"].values
    assert np.isnan(steps[0]) and steps[1] > 0.5 and steps[-1] < 0.05
    assert maps["batch"].values.tolist() == ["b0", "b1", "b2"]
    start = maps["round_mean"].isel(round=0).sel(parameter="level")
    assert float(start) == pytest.approx(float(groups_of(merged)["posterior"]["level"].mean()))
    np.testing.assert_allclose(maps["round_mean"].isel(round=-1), maps["pooled_mean"])
    assert groups["posterior"].sizes["chain"] == 3 * 8


def test_sites_sum_to_the_pooled_gaussian(refined):
    sites, maps = groups_of(refined)["swiss_sites"], groups_of(refined)["swiss_transform"]
    precision = np.linalg.inv(maps["pooled_covariance"].values)
    np.testing.assert_allclose(sites["precision"].sum("batch"), precision, rtol=1e-6)
    np.testing.assert_allclose(sites["shift"].sum("batch"), 0, atol=1e-6 * precision.max())
    # a cavity is what the others say: nearly all sites but the batch's own
    np.testing.assert_allclose(
        sites["cavity_precision"], precision - sites["precision"], atol=0.01 * precision.max()
    )
    np.testing.assert_allclose(sites["skewness"], 0, atol=0.01)


def test_subposteriors_are_the_tilted_draws(refined):
    maps = groups_of(refined)["swiss_transform"]
    back = az_swiss.subposteriors(refined)
    posterior = groups_of(refined)["posterior"]
    for at, (label, batch) in enumerate(back.items()):
        own = groups_of(batch)["posterior"]
        assert sorted(own["site"].values) == sorted(PARTS[label]["site"].unique())
        # the tilted distribution is the posterior of all rows: maps are near the identity
        scale = maps["scale"].isel(batch=at).values
        assert np.abs(scale - np.eye(2)).max() < 4 / np.sqrt(640 / 4)
        mine = posterior.isel(chain=posterior["batch"].values == label)
        centre = maps["mean"].isel(batch=at).values
        rows = np.stack([own[name].values for name in SHARED], axis=-1)
        moved = (rows - centre) @ scale.T + maps["target"].isel(batch=at).values
        np.testing.assert_allclose(moved[..., 0], mine["level"].values, atol=1e-8)


def test_a_merge_without_the_model(batches, models):
    with pytest.warns(az_swiss.MergeWarning, match="the order of the elements along site"):
        other = az_swiss.merge(batches)
    assert_right(az_swiss.refine(other, models, draws=2000, **QUIET))


def test_models_in_a_list(merged, models, refined):
    listed = az_swiss.refine(merged, list(models.values()), draws=2000, **QUIET)
    xr.testing.assert_equal(groups_of(listed)["posterior"], groups_of(refined)["posterior"])


def test_refined_again_it_stays_where_it_is(refined, models):
    again = az_swiss.refine(refined, models, draws=2000, progressbar=False, random_seed=2)
    assert_right(again)
    maps = groups_of(again)["swiss_transform"]
    assert maps["step"].values[1] < 0.1
    names = groups_of(refined)["posterior"]["site"].values
    assert (groups_of(again)["posterior"]["site"].values == names).all()


def test_inputs_stay_as_they_are(merged, models):
    before = {name: group.copy(deep=True) for name, group in groups_of(merged).items()}
    az_swiss.refine(merged, models, rounds=1, draws=10, **QUIET)
    for name, group in groups_of(merged).items():
        xr.testing.assert_identical(group, before[name])


def test_seeds_tell_the_result(merged, models):
    options = {"progressbar": False, "rounds": 1, "draws": 10}
    one, same, other = (
        groups_of(az_swiss.refine(merged, models, random_seed=seed, **options))["posterior"]
        for seed in (3, 3, 4)
    )
    xr.testing.assert_identical(one, same)
    assert not np.allclose(one["effect"], other["effect"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["processes", "dask"])
def test_executors_give_the_same_draws(merged, models, refined, kind):
    with contextlib.ExitStack() as stack:
        if kind == "processes":
            executor = stack.enter_context(get_reusable_executor(2, timeout=600))
        else:
            cluster = distributed.LocalCluster(
                n_workers=1, threads_per_worker=1, dashboard_address=":0"
            )
            executor = stack.enter_context(distributed.Client(stack.enter_context(cluster)))
        other = az_swiss.refine(merged, models, draws=2000, executor=executor, **QUIET)
    xr.testing.assert_allclose(groups_of(other)["posterior"], groups_of(refined)["posterior"])


@pytest.fixture(scope="module")
def certified(refined, models):
    return az_swiss.certify(refined, models, **QUIET)


def test_the_certificate(certified, merged, models):
    certificate = groups_of(certified)["swiss_certificate"]
    assert certificate.attrs["status"] == "certified"
    # Gaussian integrals are exact, so that weights have no spread but that of the last round
    assert float(certificate["effective_size"]) > 0.95 * certificate["log_weight"].size
    with pytest.raises(ValueError, match=r"variables of their own \(effect\).*Refine the merge"):
        az_swiss.certify(merged, models, **QUIET)


def test_what_users_do_with_it(certified):
    with pytest.warns(az_swiss.MergeWarning, match="certified as it is: use all its draws"):
        resampled = az_swiss.resample(certified, random_seed=1)
    assert groups_of(resampled)["posterior"].sizes["site"] == 9
    text = str(az_swiss.report(certified))
    assert text.startswith("Certified") and "Refined in" in text
    assert set(PARTS) == set(az_swiss.summary(certified).index)
    assert az_swiss.plot_batches(certified) is not None
    assert {f"effect[{name}]" for name in PARTS["b0"]["site"]} <= set(az.summary(certified).index)
    assert az.plot_forest(certified, var_names=["effect"]) is not None
    for name in ("batches", "shift", "maps", "refine", "certificate"):
        with pytest.raises(
            ValueError, match=r"effect was not merged by its moments.* level, slope"
        ):
            getattr(az_swiss, f"plot_{name}")(certified, var_names="effect", backend="none")


def test_files_hold_all_of_it(certified, models, tmp_path):
    path = tmp_path / "refined.nc"
    certified.to_netcdf(path)
    groups = groups_of(az_swiss.certify(path, models, **QUIET))
    for name in ("posterior", "swiss_sites", "swiss_transform", "swiss_certificate"):
        xr.testing.assert_allclose(groups[name], groups_of(certified)[name])
    assert_right(az_swiss.refine(path, models, draws=2000, **QUIET))


def test_the_bar_ends_at_100(merged, models, monkeypatch):
    with watching(monkeypatch) as screen:
        refined = az_swiss.refine(merged, models, draws=10, random_seed=1)
    taken = groups_of(refined)["swiss_transform"].sizes["round"] - 1
    last = screen.left[-1]
    done = 3 * (taken + 2)  # priors are compared first, and draws written last
    assert f"Refining, {taken} rounds: 100%" in last and f" {done}/{done} " in last


def test_a_density_of_shared_parameters_alone_is_refused(merged, models):
    class Density:
        log_prior = log_likelihood = grad_log_prior = grad_log_likelihood = lambda self, x: x

    with pytest.raises(TypeError, match=r'batch "b0": its variables effect are its own'):
        az_swiss.refine(merged, [Density() for _ in PARTS], **QUIET)


def test_a_batch_that_cannot_be_sampled_is_named_with_a_remedy(merged):
    def flat(part):
        codes, names = pd.factorize(part["site"])
        with pm.Model(coords={"site": names}) as model:
            level, slope = pm.Normal("level", 0, 3), pm.Normal("slope", 0, 2)
            effect = pm.Flat("effect", dims="site")
            mean = level + slope * part["x"].to_numpy() + 0 * effect[codes]
            pm.Normal("y", mean, 1, observed=part["y"])
        return model

    densities = {label: normal_groups(part) for label, part in PARTS.items()}
    densities["b1"] = flat(PARTS["b1"])
    with pytest.raises(RuntimeError, match=r'batch "b1".*flat in a local variable.*larger batches'):
        az_swiss.refine(merged, densities, **QUIET)

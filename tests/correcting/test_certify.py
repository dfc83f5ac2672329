import warnings

import numpy as np
import pytest
import xarray as xr
from certify_cases import Normal, TwoModes, draw_on_grid, khat_of, logistic_case, normal_case
from scipy.special import logsumexp
from scipy.stats import norm
from verdicts import certificate_verdict

import arviz_swiss as az_swiss
from arviz_swiss.base.weights import mixture_of
from arviz_swiss.data import containers

QUIET = {"progressbar": False}


@pytest.mark.parametrize("kind", ["inflated", "fractionated"])
def test_gaussian_model_is_certified(kind):
    merged, densities = normal_case(kind)
    certified = az_swiss.certify(merged, densities, random_seed=1, **QUIET)
    certificate = certified["swiss_certificate"]
    assert certificate["khat"] < 0.3
    assert certificate["effective_size"] > 900
    assert np.abs(certificate["mean_shift"]).max() < 0.1
    assert np.abs(certificate["sd_shift"]).max() < 0.1
    # beyond their errors by what 800 draws leave of the batches' moments
    assert certificate["mahalanobis_error"] < 0.01 and certificate["mahalanobis_shift"] < 0.1
    assert certificate["covariance_error"] < 0.01 and certificate["covariance_change"] < 0.1
    assert certificate["overlap_error"] < 0.01
    assert certificate.attrs["status"] == "certified"
    assert certificate.attrs["remedy"] == ""
    sentence = f" weighed draws): {certificate.attrs['reason']}."
    assert certificate_verdict(certified).startswith("certified (k-hat ")
    assert certificate_verdict(certified).endswith(sentence)


def test_full_prior_batches_are_certified():
    rng = np.random.default_rng(1)
    densities = [Normal(rng.normal(0, 0.3, 2), 1.0, 1.5) for _ in range(3)]
    draws = [{"x": one.draw(rng)} for one in densities]
    prior = {"prior": {"x": rng.normal(0, 1.5, size=(4, 2000, 2))}}
    merged = az_swiss.merge(draws, kind="full_prior", prior=prior)
    # as exact as the draws of the prior
    assert khat_of(merged, densities) < 0.5


def test_weights_are_those_of_known_densities():
    # one batch: the mixture is its own normal density, moved
    rng = np.random.default_rng(2)
    density = Normal([0.5], 1.0, 1.0)
    moved = az_swiss.merge([{"x": density.draw(rng)}], powers=1)
    shifted = containers.read(moved).groups
    shifted["posterior"] = shifted["posterior"] + 0.3
    maps = shifted["swiss_transform"]
    shifted["swiss_transform"] = maps.assign(target=maps["target"] + 0.3)
    merged = containers.build(shifted)
    with pytest.warns(
        az_swiss.MergeWarning,
        match=r"^usable \(.*: to be used with the weights only: .*Call refine, or resample",
    ):
        certified = az_swiss.certify(merged, [density], random_seed=3, **QUIET)
    certificate = certified["swiss_certificate"]
    y = merged["posterior"]["x"].sel(draw=certificate["draw"]).values[..., 0]
    sd = 2**-0.5
    exact = norm.logpdf(y, 0.25, sd) - norm.logpdf(y - 0.3, 0.25, sd)
    difference = certificate["log_ratio"].values - exact
    np.testing.assert_allclose(difference, difference.mean(), atol=1e-9)
    assert np.exp(certificate["log_ratio"]).mean() == pytest.approx(1.0)
    assert np.exp(certificate["log_weight"]).sum() == pytest.approx(1.0)
    # weights bring the mean back, up to the error of 800 draws
    assert abs(certificate["mean"].item() - 0.25) < 4 * sd * 800**-0.5
    assert certificate["mean_shift"].item() == pytest.approx(-0.3 / sd, abs=0.15)


def test_draws_are_spread_evenly_over_chains():
    merged, densities = normal_case()
    certificate = az_swiss.certify(merged, densities, draws=240, **QUIET)["swiss_certificate"]
    assert dict(certificate["log_weight"].sizes) == {"chain": 8, "draw": 30}
    gaps = np.diff(certificate["draw"])
    assert gaps.min() >= 13 and gaps.max() <= 14
    np.testing.assert_array_equal(certificate["batch"], merged["posterior"]["batch"])
    assert certificate["batch_label"].values.tolist() == ["b0", "b1", "b2", "b3"]
    assert np.isfinite(certificate["batch_khat"]).all()
    few = az_swiss.certify(merged, densities, draws=80, **QUIET)["swiss_certificate"]
    assert np.isnan(few["batch_khat"]).all()


def test_a_thousand_draws_of_many_short_chains():
    rng, size, count = np.random.default_rng(5), 4, 20
    densities = [Normal(rng.normal(0, 1, size), 1.0) for _ in range(count)]
    draws = [{"x": one.draw(rng, power=count, shape=(4, 60))} for one in densities]
    merged = az_swiss.merge(draws, kind="inflated", covariance="corrected")
    refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    certificate = az_swiss.certify(refined, densities, random_seed=1, **QUIET)["swiss_certificate"]
    # 13 of the 60 draws of each of 80 chains
    assert dict(certificate["log_weight"].sizes) == {"chain": 80, "draw": 13}
    gaps = np.diff(certificate["draw"])
    assert gaps.min() >= 4 and gaps.max() <= 5
    assert certificate.attrs["status"] == "certified"
    assert np.isfinite(certificate["batch_khat"]).all()
    # of 208 squares, 52 draws of 4 parameters, the mean has a variance of 2 over their number
    assert np.abs(certificate["batch_width"] ** 2 - 1).max() < 4 * np.sqrt(2 / (52 * size))
    assert certificate["batch_offset"].max() < 4 * np.sqrt(size / 52)


def test_everything_survives_a_file(tmp_path):
    merged, densities = normal_case()
    certified = az_swiss.certify(merged, densities, random_seed=1, **QUIET)
    assert type(certified) is type(merged)
    path = tmp_path / "certified.nc"
    groups = containers.read(certified).groups
    xr.DataTree.from_dict({f"/{k}": v for k, v in groups.items()}).to_netcdf(
        path, engine="h5netcdf"
    )
    back = containers.read(path).groups["swiss_certificate"].load()
    xr.testing.assert_equal(back, groups["swiss_certificate"])
    assert certificate_verdict(path) == certificate_verdict(certified)
    with pytest.warns(az_swiss.MergeWarning, match="only 1000 of 3200 merged draws"):
        again, before = (az_swiss.resample(one, random_seed=1) for one in (path, certified))
    np.testing.assert_array_equal(again["posterior"]["x"], before["posterior"]["x"])


def test_a_batch_of_another_shape_is_seen_and_harmless():
    rng = np.random.default_rng(4)
    densities = [*(Normal([0.0], 0.05) for _ in range(3)), TwoModes([3.0], 0.5, 0.5)]
    draws = [{"x": one.draw(rng, power=4)} for one in densities[:3]]
    draws.append({"x": draw_on_grid(rng, densities[3], power=4)})
    merged = az_swiss.merge(draws, kind="inflated")
    certificate = az_swiss.certify(merged, densities, random_seed=1, **QUIET)["swiss_certificate"]
    assert certificate["khat"] < 0.5
    assert certificate["batch_khat"][:3].max() < 0.7 < certificate["batch_khat"][3]


def test_a_merge_wholly_without_density_is_not_certified():
    rng = np.random.default_rng(15)
    densities = [Normal([0.0], 1.0), Normal([0.0], 1.0)]
    draws = [{"x": one.draw(rng, power=2)} for one in densities]
    contents = containers.read(az_swiss.merge(draws, kind="inflated"))
    groups, maps = dict(contents.groups), contents.groups["swiss_transform"]
    groups["posterior"] = groups["posterior"] - 100.0
    groups["swiss_transform"] = maps.assign(target=maps["target"] - 100.0)
    moved = containers.build(groups, contents.container)

    class Bounded(Normal):
        def log_prior(self, x):
            return np.where(x[:, 0] > -50, 0.0, -np.inf)

    bounded = [Bounded([0.0], 1.0) for _ in range(2)]
    with pytest.warns(az_swiss.MergeWarning, match=r"^not certified \(k-hat inf.*bounds of x"):
        az_swiss.certify(moved, bounded, random_seed=1, **QUIET)


def test_a_shifted_batch_is_noticed(logistic_regression, sample_batch):
    rng = np.random.default_rng(6)
    densities, draws = logistic_case(logistic_regression, sample_batch, rng)
    draws[1]["x"] = draws[1]["x"] + 1.5
    with pytest.warns(az_swiss.MergeWarning, match="disagree"):
        merged = az_swiss.merge(draws, kind="inflated")
    assert khat_of(merged, densities) > 0.7


@pytest.mark.parametrize("heavy", [(0.5, 0.5, 0.5), (0.5, 0.52, 0.55)])
def test_a_bimodal_target_is_noticed(heavy):
    # the batches' means agree, so that no test of their moments can tell
    rng = np.random.default_rng(7)
    densities = [
        TwoModes([centre], 0.5, share) for centre, share in zip((0.5, 2.0, 5.0), heavy, strict=True)
    ]
    draws = [{"x": draw_on_grid(rng, one, power=3, shape=(2, 1000))} for one in densities]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", az_swiss.MergeWarning)
        merged = az_swiss.merge(draws, kind="inflated")
    assert caught or khat_of(merged, densities) > 0.7


def test_a_merge_that_is_too_narrow_is_noticed():
    merged, densities = normal_case(size=4)
    contents = containers.read(merged)
    maps = contents.groups["swiss_transform"]
    groups = dict(contents.groups)
    mean = maps["pooled_mean"].values
    groups["posterior"] = (groups["posterior"] - mean) * 0.5 + mean
    groups["swiss_transform"] = maps.assign(scale=maps["scale"] * 0.5)
    assert khat_of(containers.build(groups, contents.container), densities) > 0.7


def test_newly_made_draws_are_refused():
    rng = np.random.default_rng(8)
    densities = [Normal([0.0], 1.0) for _ in range(2)]
    draws = [{"x": one.draw(rng, power=2)} for one in densities]
    merged = az_swiss.merge(draws, kind="inflated", method="consensus")
    with pytest.raises(ValueError, match='method "consensus", whose draws were newly made'):
        az_swiss.certify(merged, densities, **QUIET)


def test_densities_of_other_batches_are_refused_where_draws_have_none():
    class Bounded(Normal):
        def log_likelihood(self, x):
            inside = (x > self.centre - 1).all(axis=1)
            return np.where(inside, super().log_likelihood(x), -np.inf)

    merged, densities = normal_case()
    with pytest.raises(ValueError, match='batch "b0": some of its own draws have no density'):
        az_swiss.certify(merged, [Bounded(np.full(3, 2.0), 1.0, 2.0), *densities[1:]], **QUIET)


def test_draws_must_be_enough():
    merged, densities = normal_case()
    with pytest.raises(ValueError, match="draws must be an integer of at least 25, got 10"):
        az_swiss.certify(merged, densities, draws=10, **QUIET)


def test_report_and_summary_mention_both():
    merged, densities = normal_case()
    before = az_swiss.report(merged)
    assert "Refined" not in str(before) and "certified" not in str(before)
    assert "khat" not in az_swiss.summary(merged)
    refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    certified = az_swiss.certify(refined, densities, random_seed=1, **QUIET)
    text = str(az_swiss.report(certified))
    assert "\nRefined in " in text and text.startswith("Certified (k-hat ")
    by_batch = az_swiss.summary(certified)
    np.testing.assert_array_equal(
        by_batch["khat"], certified["swiss_certificate"]["batch_khat"].values
    )
    by_parameter = az_swiss.summary(certified, by="parameter")
    np.testing.assert_array_equal(
        by_parameter["weights_shift"], certified["swiss_certificate"]["mean_shift"].values
    )


def test_report_finds_what_is_not_certified():
    merged, densities = normal_case(size=4)
    wrong = [Normal(one.centre + 1, 1.0, 2.0) for one in densities]
    with pytest.warns(az_swiss.MergeWarning, match="^not certified"):
        certified = az_swiss.certify(merged, wrong, **QUIET)
    (finding,) = [f for f in az_swiss.report(certified).findings if f.flag == "not certified"]
    assert "do not come from the densities given for them." in finding.what
    assert finding.remedy.startswith("pass the densities of the batches as they were sampled")


def test_a_certificate_without_a_status_is_refused():
    merged, densities = normal_case()
    contents = containers.read(az_swiss.certify(merged, densities, random_seed=1, **QUIET))
    old = contents.groups["swiss_certificate"].copy()
    old.attrs = {"verdict": "certified (k-hat 0.1): all is well."}
    groups = {**contents.groups, "swiss_certificate": old}
    written = containers.build(groups, contents.container)
    for ask in (az_swiss.report, az_swiss.resample, certificate_verdict):
        with pytest.raises(ValueError, match=r"has lost its attributes .* call certify again"):
            ask(written)


def test_a_merged_object_without_the_chains_of_a_batch_is_not_certified():
    rng = np.random.default_rng(0)
    batches = [{"x": rng.normal(size=(2, 200))} for _ in range(2)]
    merged = az_swiss.merge(batches, kind="inflated")
    densities = [Normal(0.0, 2**0.5) for _ in batches]
    some = containers.build(
        {
            name: group.isel(chain=[0, 1]) if "chain" in group.dims else group
            for name, group in containers.read(merged).groups.items()
        }
    )
    with pytest.raises(ValueError, match=r'batch 1 \("b1"\): none of its chains is left'):
        az_swiss.certify(some, densities, progressbar=False)


def test_draws_that_were_selected_since_are_said_so():
    merged, densities = normal_case()
    certified = az_swiss.certify(merged, densities, random_seed=1, **QUIET)
    contents = containers.read(certified)
    groups = dict(contents.groups)
    groups["swiss_certificate"] = groups["swiss_certificate"].isel(draw=slice(None, None, 5))
    thinned = containers.build(groups, contents.container)
    assert "of 1000 weighed draws, of which 200 were selected since" in certificate_verdict(thinned)


def test_a_certified_report_does_not_say_that_a_pass_is_no_proof():
    merged, densities = normal_case()
    assert "A pass is no proof" in str(az_swiss.report(merged))
    certified = az_swiss.certify(merged, densities, random_seed=1, **QUIET)
    report = str(az_swiss.report(certified))
    assert report.startswith("Certified") and "A pass is no proof" not in report


def many_batches(batches, chains, draws=200):
    rng = np.random.default_rng(4)
    densities = [Normal(rng.normal(0, 0.5, 2), 1.0, 2.0) for _ in range(batches)]
    made = [{"x": one.draw(rng, power=batches, shape=(chains, draws))} for one in densities]
    return az_swiss.merge(made, kind="inflated"), densities


def certificate_of(merged, densities, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        return az_swiss.certify(merged, densities, random_seed=5, **options, **QUIET)


def slow_ratios(merged, densities, certificate):
    """Return log ratios of the full posterior and the mixture of the batches that were weighed."""
    posterior, maps = (containers.read(merged).groups[n] for n in ("posterior", "swiss_transform"))
    picked = posterior["x"].sel(chain=certificate["chain"], draw=certificate["draw"])
    y = picked.values.reshape(-1, 2)
    owners = np.repeat(certificate["batch"].values.astype(str), certificate.sizes["draw"])
    logs, sources = [], np.empty(len(y), dtype=int)
    for label, density in zip(maps["batch"].values.astype(str), densities, strict=True):
        if label in owners:
            one = maps.sel(batch=label)
            away = np.linalg.solve(one["scale"].values, (y - one["target"].values).T).T
            back = away + one["mean"].values
            sources[owners == label] = len(logs)
            power = float(one["power"])
            logs.append(power * density.log_likelihood(back) + density.log_prior(back))
    full = densities[0].log_prior(y) + sum(one.log_likelihood(y) for one in densities)
    ratios = full - mixture_of(np.array(logs), sources).log_density
    return ratios - logsumexp(ratios) + np.log(ratios.size)


@pytest.mark.parametrize(
    ("batches", "chains", "draws", "weighed"), [(5, 2, 1000, 10), (30, 4, 60, 60), (40, 1, 25, 25)]
)
def test_weights_are_those_of_all_densities_at_all_draws(batches, chains, draws, weighed):
    """Of more chains than draws as many are weighed, and in the last case not all batches."""
    merged, densities = many_batches(batches, chains)
    found = certificate_of(merged, densities, draws=draws)["swiss_certificate"]
    assert found.sizes["chain"] == weighed
    assert len(np.unique(found["batch"])) == min(batches, weighed)
    expected = slow_ratios(merged, densities, found)
    np.testing.assert_allclose(found["log_ratio"].values.ravel(), expected, atol=1e-9)


def test_every_batch_is_compared_with_its_density_whichever_are_weighed():
    merged, densities = many_batches(30, chains=12)
    found = [certificate_of(merged, densities, draws=draws) for draws in (360, 100)]
    everything, some = (each["swiss_certificate"] for each in found)
    for name in ("batch_offset", "batch_width"):
        assert np.isfinite(some[name]).all()
        np.testing.assert_array_equal(some[name], everything[name])
    with pytest.warns(az_swiss.MergeWarning, match="only 100 of 72000 merged draws were weighed"):
        resampled = az_swiss.resample(found[1], draws=100, random_seed=1)
    weighed = merged["posterior"]["x"].sel(chain=some["chain"], draw=some["draw"]).values
    assert np.isin(resampled["posterior"]["x"].values, weighed).all()

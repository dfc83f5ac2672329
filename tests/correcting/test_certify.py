import re
import warnings

import numpy as np
import pytest
import xarray as xr
from scipy.special import expit, logsumexp
from scipy.stats import norm
from verdicts import certificate_verdict

import arviz_swiss as az_swiss
from arviz_swiss.data import containers

QUIET = {"progressbar": False}


class Normal:
    """A flat or normal prior of mean zero, and a normal likelihood, in independent directions."""

    def __init__(self, centre, sd, prior_sd=np.inf):
        self.centre, self.sd, self.prior_sd = np.atleast_1d(centre), sd, prior_sd

    def log_prior(self, x):
        return -0.5 * np.sum((x / self.prior_sd) ** 2, axis=1)

    def grad_log_prior(self, x):
        return -x / self.prior_sd**2

    def log_likelihood(self, x):
        return -0.5 * np.sum(((x - self.centre) / self.sd) ** 2, axis=1)

    def grad_log_likelihood(self, x):
        return (self.centre - x) / self.sd**2

    def draw(self, rng, power=1.0, prior_power=1.0, shape=(2, 400)):
        precision = power / self.sd**2 + prior_power / self.prior_sd**2
        mean = power * self.centre / self.sd**2 / precision
        return rng.normal(mean, precision**-0.5, size=(*shape, self.centre.size))


class TwoModes(Normal):
    """A likelihood with modes at plus and minus the centre, one of them heavier."""

    def __init__(self, centre, sd, heavy):
        super().__init__(centre, sd)
        self.logs = np.log([heavy, 1 - heavy])

    def _parts(self, x):
        return self.logs + norm.logpdf(x[:, :1], [-self.centre[0], self.centre[0]], self.sd)

    def log_likelihood(self, x):
        return logsumexp(self._parts(x), axis=1)

    def grad_log_likelihood(self, x):
        parts = self._parts(x)
        shares = np.exp(parts - logsumexp(parts, axis=1, keepdims=True))
        pulls = (np.array([-1, 1]) * self.centre[0] - x) / self.sd**2
        return np.sum(shares * pulls, axis=1, keepdims=True)


def normal_case(kind="inflated", batches=4, size=3, seed=0):
    rng = np.random.default_rng(seed)
    densities = [Normal(rng.normal(0, 0.5, size), 1.0, 2.0) for _ in range(batches)]
    power, prior_power = {"inflated": (batches, 1), "fractionated": (1, 1 / batches)}[kind]
    draws = [{"x": one.draw(rng, power, prior_power)} for one in densities]
    return az_swiss.merge(draws, kind=kind), densities


def khat_of(merged, densities):
    """Return k-hat; a merge that is not certified warns, and must."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", az_swiss.MergeWarning)
        certified = az_swiss.certify(merged, densities, random_seed=1, **QUIET)
    certificate = certified["swiss_certificate"]
    assert bool(caught) != (certificate.attrs["status"] == "certified")
    return float(certificate["khat"])


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


def draw_on_grid(rng, density, power, shape=(2, 400)):
    grid = np.linspace(-9, 9, 18001)
    weights = np.exp(power * density.log_likelihood(grid[:, None]))
    step = grid[1] - grid[0]
    drawn = rng.choice(grid, size=(*shape, 1), p=weights / weights.sum())
    return drawn + rng.uniform(-step / 2, step / 2, size=drawn.shape)


def test_a_batch_of_another_shape_is_seen_and_harmless():
    rng = np.random.default_rng(4)
    densities = [*(Normal([0.0], 0.05) for _ in range(3)), TwoModes([3.0], 0.5, 0.5)]
    draws = [{"x": one.draw(rng, power=4)} for one in densities[:3]]
    draws.append({"x": draw_on_grid(rng, densities[3], power=4)})
    merged = az_swiss.merge(draws, kind="inflated")
    certificate = az_swiss.certify(merged, densities, random_seed=1, **QUIET)["swiss_certificate"]
    assert certificate["khat"] < 0.5
    assert certificate["batch_khat"][:3].max() < 0.7 < certificate["batch_khat"][3]


def logistic_case(logistic_regression, sample_batch, rng, batches=4, size=20):
    truth = rng.normal(0, 0.4, size)
    densities = []
    for _ in range(batches):
        design = rng.standard_normal((250, size))
        outcomes = (rng.random(250) < expit(design @ truth)).astype(float)
        densities.append(logistic_regression(design, outcomes, np.ones(250), sd=2.0))
    draws = [
        {"x": sample_batch(rng, one, size, power=batches).reshape(4, -1, size)} for one in densities
    ]
    return densities, draws


def test_data_that_were_replaced_after_sampling_are_noticed(logistic_regression, sample_batch):
    rng = np.random.default_rng(5)
    densities, draws = logistic_case(logistic_regression, sample_batch, rng)
    others, _ = logistic_case(logistic_regression, sample_batch, rng)
    merged = az_swiss.refine(
        az_swiss.merge(draws, kind="inflated"), densities, random_seed=1, **QUIET
    )
    assert khat_of(merged, densities) < 0.5
    assert khat_of(merged, [*densities[:3], others[0]]) > 0.7


@pytest.mark.parametrize("size", [1, 10])
@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_draws_of_another_density_are_noticed(size):
    # few parameters: the weights alone would mend the merge, but for a wrong posterior
    merged, densities = normal_case(size=size)
    wrong = [*densities[:2], Normal(densities[2].centre + 0.8, 1.0, 2.0), densities[3]]
    with pytest.warns(az_swiss.MergeWarning, match=r"the draws of b2 \(off by .* do not come from"):
        certified = az_swiss.certify(merged, wrong, random_seed=1, **QUIET)
    offsets = certified["swiss_certificate"]["batch_offset"]
    # four times the likelihood, and the prior
    off = 0.8 * np.sqrt(size) * 4 / np.sqrt(4 + 0.25)
    # 250 draws a batch
    assert offsets[2] == pytest.approx(off, abs=4 * 250**-0.5)
    assert offsets[[0, 1, 3]].max() < 4 * np.sqrt(size / 250)


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_densities_that_are_right_are_not_doubted():
    doubted = 0
    for seed in range(30):
        merged, densities = normal_case(size=6, seed=seed)
        certified = az_swiss.certify(merged, densities, draws=200, random_seed=1, **QUIET)
        doubted += "do not come" in certificate_verdict(certified)
    assert doubted == 0


POWERS = {
    # what batches were sampled from, and what merge was told
    "plain told as inflated": ((1, 1), "inflated", 4.0),
    "inflated told as fractionated": ((16, 1), "fractionated", 0.25),
}


@pytest.mark.parametrize("name", POWERS)
def test_wrong_kinds_and_powers_are_noticed(name):
    (power, prior_power), told, width = POWERS[name]
    rng = np.random.default_rng(11)
    densities = [Normal(rng.normal(3, 0.06, 1), 0.06, 10.0) for _ in range(16)]
    draws = [{"x": one.draw(rng, power, prior_power, shape=(2, 500))} for one in densities]
    with warnings.catch_warnings():
        # where draws are narrower than told, the batches seem to disagree
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        merged = az_swiss.merge(draws, kind=told)
    with pytest.warns(az_swiss.MergeWarning, match="^not certified .* wrong kind or powers"):
        certified = az_swiss.certify(merged, densities, random_seed=1, **QUIET)
    # 16 batches of 64 draws: variances within a few errors of (2 / 1024)^(1/2)
    widths = certified["swiss_certificate"]["batch_width"]
    assert float(np.sqrt((widths**2).mean())) == pytest.approx(width, rel=0.1)
    assert "merge with the kind= or powers=" in certificate_verdict(certified)
    # refine does not mend what the weights are made of
    with pytest.warns(az_swiss.MergeWarning, match=r"merge in every direction.* 16 batches"):
        refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    with pytest.warns(az_swiss.MergeWarning, match="wrong kind or powers"):
        az_swiss.certify(refined, densities, random_seed=1, **QUIET)


def test_tempered_densities_are_noticed():
    merged, densities = normal_case()
    tempered = [Normal(one.centre, 0.5, 2.0) for one in densities]
    with pytest.warns(az_swiss.MergeWarning, match=r"wrong kind or powers.*not tempered ones"):
        az_swiss.certify(merged, tempered, random_seed=1, **QUIET)


def test_draws_that_are_too_wide_are_not_certified_without_weights():
    rng = np.random.default_rng(12)
    densities = [Normal(rng.normal(0, 1, 2), 1.0) for _ in range(4)]
    draws = [{"x": one.draw(rng, power=4, shape=(2, 500))} for one in densities]
    merged = az_swiss.merge(draws, kind="inflated", method="pool")
    with pytest.warns(az_swiss.MergeWarning, match=r"^usable .* no direction by more than \d\d%"):
        certified = az_swiss.certify(merged, densities, random_seed=1, **QUIET)
    certificate = certified["swiss_certificate"]
    assert certificate["khat"] < 0.5 and np.abs(certificate["mean_shift"]).max() < 0.2
    assert certificate["sd_shift"].min() < -0.2
    np.testing.assert_allclose(certificate["sd"], 0.5, rtol=0.1)


@pytest.mark.parametrize("correlation, length", [(0.8, 1000), (0.9, 1000), (0.9, 250)])
def test_chains_that_mix_slowly_are_not_doubted(correlation, length):
    rng = np.random.default_rng(13)
    doubted = 0
    for _ in range(10):
        densities = [Normal(rng.normal(0, 0.1, 2), 1.0) for _ in range(4)]
        draws = []
        for one in densities:
            x = rng.standard_normal((2, length, 2))
            for i in range(1, length):
                x[:, i] = correlation * x[:, i - 1] + np.sqrt(1 - correlation**2) * x[:, i]
            draws.append({"x": one.centre + x / 2})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", az_swiss.MergeWarning)
            merged = az_swiss.merge(draws, kind="inflated")
            certified = az_swiss.certify(merged, densities, random_seed=1, **QUIET)
        doubted += "given for them" in certificate_verdict(certified)
    assert doubted == 0


class Positive(Normal):
    """A likelihood that ends at zero, where it is not zero."""

    def log_prior(self, x):
        return np.where((x > 0).all(axis=1), 0.0, -np.inf)

    def grad_log_prior(self, x):
        return np.zeros_like(x)

    def draw(self, rng, power, shape=(2, 500)):
        drawn = rng.normal(self.centre, self.sd / power**0.5, 20 * np.prod(shape))
        return drawn[drawn > 0][: np.prod(shape)].reshape(*shape, 1)


@pytest.mark.parametrize("centres", [(0.0, 0.0, 0.0, 0.0), (-0.25, 0.0, 0.25, 0.5)])
def test_bounded_variables_on_their_own_scale_are_not_doubted(centres):
    rng = np.random.default_rng(14)
    densities = [Positive([centre], 0.5) for centre in centres]
    draws = [{"scale": one.draw(rng, power=4)} for one in densities]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        merged = az_swiss.merge(draws, kind="inflated")
    for seed in range(5):
        with warnings.catch_warnings():
            # others, such as of infinities that were subtracted, are errors
            warnings.simplefilter("ignore", az_swiss.MergeWarning)
            certified = az_swiss.certify(merged, densities, random_seed=seed, **QUIET)
        verdict = certificate_verdict(certified)
        assert "given for them" not in verdict
        assert not verdict.startswith("not") or "bounds of scale[0]. Merge on an unb" in verdict
        assert np.isnan(certified["swiss_certificate"]["batch_offset"]).all()


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


COLLINEAR = 0.95
FEW = {"chains": 60, "warmup": 40, "draws": 16}


def collinear_case(logistic_regression, sample_batch, rng):
    """Ten batches of 400 rows, with six slopes of predictors that are correlated by .95."""
    rows, size, batches = 4000, 6, 10
    common = rng.standard_normal((rows, 1))
    own = rng.standard_normal((rows, size))
    design = np.sqrt(COLLINEAR) * common + np.sqrt(1 - COLLINEAR) * own
    outcomes = (rng.random(rows) < expit(design @ np.full(size, 0.25))).astype(float)
    densities = [
        logistic_regression(design[part], outcomes[part], np.ones(len(part)), sd=2.5)
        for part in np.array_split(np.arange(rows), batches)
    ]
    draws = [
        {"x": sample_batch(rng, one, size, power=batches, **FEW).reshape(4, -1, size)}
        for one in densities
    ]
    whole = logistic_regression(design, outcomes, np.ones(rows), sd=2.5)
    return densities, draws, whole


def test_an_error_of_a_sum_of_slopes_is_not_overlooked(logistic_regression, sample_batch):
    rng = np.random.default_rng(31)
    densities, draws, whole = collinear_case(logistic_regression, sample_batch, rng)
    merged = az_swiss.merge(draws, kind="inflated")
    with pytest.warns(az_swiss.MergeWarning, match=r"^usable .*Call refine, or resample"):
        doubted = az_swiss.certify(merged, densities, random_seed=1, **QUIET)["swiss_certificate"]
    # by each parameter alone, nothing is wrong
    shifts = np.abs([doubted["mean_shift"], doubted["sd_shift"]])
    assert doubted["khat"] < 0.5 and shifts.max() < 0.2
    assert doubted["mahalanobis_shift"] > 0.4
    assert doubted["mahalanobis_error"] < 0.1

    refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    certified = az_swiss.certify(refined, densities, random_seed=1, **QUIET)
    assert certified["swiss_certificate"].attrs["status"] == "certified"
    reference = sample_batch(rng, whole, 6, **FEW).reshape(-1, 6)
    precision = np.linalg.inv(np.cov(reference.T))
    off = [
        one["posterior"]["x"].mean(("chain", "draw")).values - reference.mean(axis=0)
        for one in (merged, refined)
    ]
    before, after = (np.sqrt(one @ precision @ one) for one in off)
    # 960 draws of the reference, 9,600 of the merge; they depend on one another, so count half
    assert before > 0.4 and after < 2 * np.sqrt(6 * (1 / 480 + 1 / 4800))


def test_too_few_draws_to_tell_are_said_so_and_as_many_as_advised_certify():
    rng, size = np.random.default_rng(1), 100
    densities = [Normal(rng.normal(0, 1.0, size), 1.0, 2.0) for _ in range(5)]
    draws = [{"x": one.draw(rng, power=5, shape=(4, 1000))} for one in densities]
    merged = az_swiss.merge(draws, kind="inflated", covariance="corrected")
    refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    with pytest.warns(az_swiss.MergeWarning, match="too few draws were weighed to tell"):
        doubted = az_swiss.certify(refined, densities, random_seed=1, **QUIET)["swiss_certificate"]
    assert doubted["covariance_error"] > 0.2
    (needed,) = re.findall(r"draws=(\d+)", doubted.attrs["remedy"])
    certified = az_swiss.certify(refined, densities, draws=int(needed), random_seed=1, **QUIET)
    assert certified["swiss_certificate"].attrs["status"] == "certified"
    precision = 5 + 1 / 4
    mean = sum(one.centre for one in densities) / precision
    off = refined["posterior"]["x"].mean(("chain", "draw")).values - mean
    # draws get the moments that refine finds, which are exact here
    np.testing.assert_allclose(off, 0.0, atol=1e-8)


def test_a_joint_error_is_found_where_no_parameter_moves():
    """Two parameters correlated by -.99: their sum is off, by .6 sds, each by .04."""
    rng = np.random.default_rng(31)
    covariance = np.array([[1.0, -0.99], [-0.99, 1.0]])
    root, precision = np.linalg.cholesky(covariance), np.linalg.inv(covariance)

    class Correlated:
        def log_prior(self, x):
            return np.zeros(len(x))

        def grad_log_prior(self, x):
            return np.zeros_like(x)

        def log_likelihood(self, x):
            return -0.5 * np.sum(x @ precision * x, axis=1)

        def grad_log_likelihood(self, x):
            return -x @ precision

    draws = {"x": rng.standard_normal((4, 1000, 2)) @ root.T}
    contents = containers.read(az_swiss.merge([draws], powers=1))
    groups, maps = dict(contents.groups), contents.groups["swiss_transform"]
    step = 0.6 * np.sqrt(2 * 0.01) / 2
    groups["posterior"] = groups["posterior"] + step
    groups["swiss_transform"] = maps.assign(target=maps["target"] + step)
    wrong = containers.build(groups, contents.container)
    with pytest.warns(az_swiss.MergeWarning, match=r"^usable .* move the mean by 0\.6"):
        found = az_swiss.certify(wrong, [Correlated()], draws=4000, **QUIET)["swiss_certificate"]
    assert np.abs(found["mean_shift"]).max() < 0.1
    # the weights vary by exp(.36) - 1
    error = float(found["mahalanobis_error"])
    assert error == pytest.approx(np.sqrt(2 * 0.43 / 4000), rel=0.5)
    assert float(found["mahalanobis_shift"]) == pytest.approx(0.6, abs=3 * error)


def test_batches_that_do_not_overlap_are_said_so_and_swiss_mends_it(exact_draws):
    rng = np.random.default_rng(32)
    densities = [Normal([centre], 1.0) for centre in (-4.0, 4.0)]
    draws = [{"x": exact_draws(rng, one.centre, np.eye(1) / 2, draws=400)} for one in densities]
    with warnings.catch_warnings():
        # so far apart, they disagree as well
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        apart, together = (
            az_swiss.merge(draws, kind="inflated", method=method) for method in ("pool", "swiss")
        )
    with pytest.warns(az_swiss.MergeWarning, match=r"^not certified .*barely overlap.*\"swiss\""):
        doubted = az_swiss.certify(apart, densities, random_seed=1, **QUIET)["swiss_certificate"]
    assert doubted["overlap_error"] > 1
    certified = az_swiss.certify(together, densities, random_seed=1, **QUIET)
    assert certified["swiss_certificate"].attrs["status"] == "certified"
    assert float(certified["posterior"]["x"].mean()) == pytest.approx(0, abs=1e-9)


def test_batches_that_overlap_with_no_other_do_no_harm_where_the_posterior_is_not():
    rng = np.random.default_rng(33)
    densities = [Normal([centre], 1.0) for centre in (-12.0, 0.0, 12.0)]
    draws = [{"x": one.draw(rng, power=3)} for one in densities]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        merged = az_swiss.merge(draws, kind="inflated", method="pool")
    with pytest.warns(az_swiss.MergeWarning, match=r"^usable .*Call refine, or resample"):
        weighed = az_swiss.certify(merged, densities, draws=2400, random_seed=1, **QUIET)
    posterior = az_swiss.resample(weighed, draws=800, random_seed=1)["posterior"]["x"]
    # only the middle batch's 800 draws have weight
    assert abs(float(posterior.mean())) < 4 * 3**-0.5 * 800**-0.5
    assert float(posterior.std()) == pytest.approx(3**-0.5, rel=4 * 1600**-0.5)


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
        },
        containers.native_container(),
    )
    with pytest.raises(ValueError, match=r'batch 1 \("b1"\): none of its chains is left'):
        az_swiss.certify(some, densities, progressbar=False)


def test_slow_chains_of_an_exact_refined_merge_are_not_to_be_resampled():
    # moments are exact, but the weights would shift them by what few draws leave of the batches'
    rng, size, correlation = np.random.default_rng(5), 20, 0.8
    densities = [Normal(rng.normal(0, 1, size), 1.0) for _ in range(4)]
    draws = []
    for one in densities:
        x = rng.standard_normal((4, 500, size))
        for i in range(1, 500):
            x[:, i] = correlation * x[:, i - 1] + np.sqrt(1 - correlation**2) * x[:, i]
        draws.append({"x": one.centre + x / 2})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        merged = az_swiss.merge(draws, kind="inflated")
    refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    exact = np.mean([one.centre for one in densities], axis=0)
    mean = refined["posterior"]["x"].mean(("chain", "draw"))
    np.testing.assert_allclose(mean, exact, atol=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        found = az_swiss.certify(refined, densities, random_seed=1, **QUIET)["swiss_certificate"]
    # about 8,000 / 9 effective draws of 20 parameters
    assert found["mahalanobis_error"] == pytest.approx(np.sqrt(20 * 9 / 8000), rel=0.3)
    assert "resample" not in found.attrs["remedy"]


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

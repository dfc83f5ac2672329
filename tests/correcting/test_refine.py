import warnings

import numpy as np
import pytest
import xarray as xr
from scipy.special import digamma, expit, polygamma
from scipy.stats import truncnorm

import arviz_swiss as az_swiss
from arviz_swiss.data import containers
from arviz_swiss.merging.merged import open_merged

QUIET = {"progressbar": False}


class GaussianDensity:
    """A Gaussian prior and a Gaussian likelihood, given by mean and precision."""

    def __init__(self, prior, likelihood):
        self.terms = {"prior": prior, "likelihood": likelihood}

    def _log(self, term, x):
        mean, precision = self.terms[term]
        return -0.5 * np.einsum("ij,jk,ik->i", x - mean, precision, x - mean)

    def _grad(self, term, x):
        mean, precision = self.terms[term]
        return -(x - mean) @ precision

    def log_prior(self, x):
        return self._log("prior", x)

    def log_likelihood(self, x):
        return self._log("likelihood", x)

    def grad_log_prior(self, x):
        return self._grad("prior", x)

    def grad_log_likelihood(self, x):
        return self._grad("likelihood", x)

    def moments(self, power, prior_power):
        weights = {"prior": prior_power, "likelihood": power}
        precision = sum(weights[term] * own for term, (_, own) in self.terms.items())
        natural = sum(weights[term] * own @ mean for term, (mean, own) in self.terms.items())
        return np.linalg.solve(precision, natural), np.linalg.inv(precision)


class LogRate:
    """Counts with a flat prior of the log rates: the log of Gamma draws, skewed for few counts."""

    def __init__(self, counts, exposures):
        self.counts, self.exposures = counts, exposures

    def log_prior(self, x):
        return np.zeros(len(x))

    def grad_log_prior(self, x):
        return np.zeros_like(x)

    def log_likelihood(self, x):
        return x @ self.counts - np.exp(x) @ self.exposures

    def grad_log_likelihood(self, x):
        return self.counts - np.exp(x) * self.exposures


@pytest.fixture
def gaussian_merge(exact_draws, random_covariance):
    """Return a function: draws and densities of a Gaussian model whose merge is exact."""

    def make(kind="inflated", batches=3, size=4, seed=0):
        rng = np.random.default_rng(seed)
        prior = (rng.standard_normal(size), np.linalg.inv(4 * random_covariance(rng, size)))
        densities, draws = {}, {}
        power, prior_power = (batches, 1.0) if kind == "inflated" else (1.0, 1 / batches)
        for position in range(batches):
            likelihood = (rng.standard_normal(size), np.linalg.inv(random_covariance(rng, size)))
            density = GaussianDensity(prior, likelihood)
            densities[f"b{position}"] = density
            mean, covariance = density.moments(power, prior_power)
            draws[f"b{position}"] = {"theta": exact_draws(rng, mean, covariance)}
        return az_swiss.merge(draws, kind=kind), densities, draws

    return make


@pytest.fixture(scope="module")
def log_rates():
    """Return a merge that is wrong, its densities, the exact moments, and the batches' draws."""
    rng = np.random.default_rng(1)
    counts, batches = np.array([2.0, 3.0, 5.0]), 8
    densities = [LogRate(counts, rng.gamma(counts)) for _ in range(batches)]
    draws = [
        {"u": np.log(rng.gamma(batches * counts, size=(2, 500, 3)) / (batches * one.exposures))}
        for one in densities
    ]
    total = sum(one.exposures for one in densities)
    mean = digamma(batches * counts) - np.log(total)
    return (
        az_swiss.merge(draws, kind="inflated"),
        densities,
        mean,
        np.sqrt(polygamma(1, batches * counts)),
        draws,
    )


def mahalanobis(merged, mean, covariance, name="theta"):
    between = merged["posterior"][name].mean(("chain", "draw")).values - mean
    return float(np.sqrt(between @ np.linalg.solve(covariance, between)))


@pytest.mark.parametrize("kind", ["inflated", "fractionated"])
def test_exact_merge_is_left_alone(gaussian_merge, kind):
    merged, densities, _ = gaussian_merge(kind)
    refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    np.testing.assert_allclose(
        refined["posterior"]["theta"], merged["posterior"]["theta"], atol=1e-8, rtol=0
    )
    assert refined["swiss_transform"].sizes["round"] == 2


def test_one_round_is_exact_for_a_gaussian_posterior(gaussian_merge):
    merged, densities, draws = gaussian_merge()
    exact = merged["swiss_transform"]
    wrong = az_swiss.merge(draws, method="recentre", kind="inflated")
    refined = az_swiss.refine(wrong, densities, rounds=1, random_seed=1, **QUIET)
    record = refined["swiss_transform"]
    np.testing.assert_allclose(record["pooled_mean"], exact["pooled_mean"], atol=1e-8)
    np.testing.assert_allclose(record["pooled_covariance"], exact["pooled_covariance"], atol=1e-8)
    rows = refined["posterior"]["theta"].values.reshape(-1, 4)
    np.testing.assert_allclose(rows.mean(axis=0), exact["pooled_mean"], atol=1e-8)


@pytest.mark.parametrize("method", ["swiss", "pool", "recentre"])
def test_subposteriors_undo_every_round(log_rates, method):
    _, densities, _, _, draws = log_rates
    merged = az_swiss.merge(draws, method=method, kind="inflated")
    for rounds in (4, 2):
        merged = az_swiss.refine(merged, densities, rounds=rounds, random_seed=3, **QUIET)
    for label, back in az_swiss.subposteriors(merged).items():
        original = draws[int(label[1:])]["u"]
        np.testing.assert_allclose(back["posterior"]["u"], original, atol=1e-9)


def test_newly_made_draws_can_be_refined(log_rates):
    _, densities, mean, sd, draws = log_rates
    merged = az_swiss.merge(draws, method="consensus", kind="inflated")
    refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    assert mahalanobis(refined, mean, np.diag(sd**2), "u") < 0.1
    assert "scale" not in refined["swiss_transform"]


def test_rounds_remove_the_error_and_are_recorded(log_rates):
    merged, densities, mean, sd, _ = log_rates
    refined = az_swiss.refine(merged, densities, random_seed=2, **QUIET)
    assert mahalanobis(merged, mean, np.diag(sd**2), "u") > 0.5
    record = refined["swiss_transform"]
    assert mahalanobis(refined, mean, np.diag(sd**2), "u") < 3 * record["step_error"][-1]
    np.testing.assert_allclose(np.sqrt(np.diag(record["pooled_covariance"])), sd, rtol=0.05)

    assert record["round"].values.tolist() == list(range(record.sizes["round"]))
    before = merged["swiss_transform"]
    np.testing.assert_allclose(record["round_mean"][0], before["pooled_mean"], atol=1e-12)
    np.testing.assert_array_equal(record["round_mean"][-1], record["pooled_mean"])
    np.testing.assert_array_equal(record["round_covariance"][-1], record["pooled_covariance"])
    steps = record["step"].values
    assert np.isnan(steps[0]) and np.all(np.diff(steps[1:3]) < 0)
    for after in range(1, record.sizes["round"]):
        one, other = (record.isel(round=r) for r in (after - 1, after))
        between = (other["round_mean"] - one["round_mean"]).values
        precision = np.linalg.inv(other["round_covariance"].values)
        assert steps[after] == pytest.approx(np.sqrt(between @ precision @ between), rel=1e-6)
        relative = np.linalg.eigvals(one["round_covariance"].values @ precision).real
        np.testing.assert_allclose(
            other["eigenvalue_range"], [relative.min(), relative.max()], rtol=1e-6
        )


def test_draws_have_the_recorded_moments_and_keep_their_shape(log_rates):
    merged, densities, *_ = log_rates
    refined = az_swiss.refine(merged, densities, random_seed=2, **QUIET)
    old, new = (m["posterior"]["u"].values.reshape(-1, 3) for m in (merged, refined))
    record = refined["swiss_transform"]
    np.testing.assert_allclose(new.mean(axis=0), record["pooled_mean"], atol=1e-9)
    np.testing.assert_allclose(np.cov(new.T), record["pooled_covariance"], rtol=1e-2, atol=1e-4)
    # one affine map for all
    design = np.column_stack([np.ones(len(old)), old])
    left = new - design @ np.linalg.lstsq(design, new, rcond=None)[0]
    assert np.abs(left).max() < 1e-10


def test_refining_again_goes_on_where_it_stopped(log_rates):
    merged, densities, *_ = log_rates
    with pytest.warns(az_swiss.MergeWarning, match="while its steps were still long: 0.7.. post"):
        once = az_swiss.refine(merged, densities, rounds=1, random_seed=2, **QUIET)
    twice = az_swiss.refine(once, densities, rounds=2, random_seed=3, **QUIET)
    record = twice["swiss_transform"]
    assert record["round"].values.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(
        record["round_mean"][:2], once["swiss_transform"]["round_mean"], atol=1e-12
    )


def test_stops_early_and_leaves_the_input_alone(log_rates):
    merged, densities, *_ = log_rates
    before = merged["posterior"]["u"].values.copy()
    refined = az_swiss.refine(merged, densities, rounds=50, random_seed=2, **QUIET)
    record = refined["swiss_transform"]
    assert record.sizes["round"] < 30
    assert record["step"][-1] <= np.hypot(*record["step_error"][-2:])
    assert record["step"][-2] > record["step_error"][-2] or record.sizes["round"] == 2
    np.testing.assert_array_equal(merged["posterior"]["u"], before)
    assert "round" not in merged["swiss_transform"].dims


def test_the_same_seed_gives_the_same_draws(log_rates):
    merged, densities, *_ = log_rates
    one, other = (az_swiss.refine(merged, densities, random_seed=5, **QUIET) for _ in range(2))
    np.testing.assert_array_equal(one["posterior"]["u"], other["posterior"]["u"])


def test_steps_that_do_not_shrink_are_undone():
    class Growing(LogRate):
        """A gradient that grows with every call after the first: no posterior at all."""

        calls = 0

        def grad_log_likelihood(self, x):
            grown = 3.0 * self.calls**2
            self.calls += 1
            return super().grad_log_likelihood(x) + grown

    rng = np.random.default_rng(1)
    counts = np.full(2, 50.0)
    draws = [{"u": np.log(rng.gamma(2 * counts, size=(2, 300, 2)) / 100)} for _ in range(2)]
    densities = [Growing(counts, np.full(2, 50.0)) for _ in range(2)]
    merged = az_swiss.merge(draws, kind="inflated")
    with pytest.warns(az_swiss.MergeWarning, match=r"as it was: the steps of refine do not shrink"):
        left = az_swiss.refine(merged, densities, points=50, random_seed=1, **QUIET)
    check_left_alone(left, merged, rounds=5)


def check_left_alone(left, merged, rounds):
    """Check that nothing but the record of rounds is new."""
    for group, dataset in containers.read(merged).groups.items():
        if group != "swiss_transform":
            xr.testing.assert_identical(containers.read(left).groups[group], dataset)
    record, before = left["swiss_transform"], merged["swiss_transform"]
    for name in before.data_vars:
        xr.testing.assert_identical(record[name], before[name])
    assert record["taken"].values.tolist() == [True] + rounds * [False]
    np.testing.assert_allclose(record["round_mean"][-1], before["pooled_mean"], atol=1e-9)
    said = open_merged(left, "posterior").refinement.describe()
    assert f"led away from the posterior and was undone ({rounds} round" in said


@pytest.mark.parametrize("method", ["grad_log_likelihood", "grad_log_prior"])
def test_a_gradient_of_the_wrong_sign_leaves_the_merge(gaussian_merge, method):
    merged, densities, _ = gaussian_merge()
    right = getattr(densities["b1"], method)
    for label in ("b1",) if method == "grad_log_likelihood" else tuple(densities):
        own = getattr(densities[label], method)
        setattr(densities[label], method, lambda x, own=own: -own(x))
    message = rf"leaves the merge as it was: {method} is not the gradient of .*\"b1\".*Mend the"
    with pytest.warns(az_swiss.MergeWarning, match=message):
        left = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    check_left_alone(left, merged, rounds=1)
    # mended as the message says, and from there
    for density in densities.values():
        density.__dict__.pop(method, None)
    assert np.array_equal(right(np.ones((1, 4))), getattr(densities["b1"], method)(np.ones((1, 4))))
    refined = az_swiss.refine(left, densities, random_seed=1, **QUIET)
    np.testing.assert_allclose(
        refined["posterior"]["theta"], merged["posterior"]["theta"], atol=1e-8, rtol=0
    )
    assert refined["swiss_transform"]["taken"].values.tolist() == [True, False, True]


@pytest.mark.parametrize("negative", [2, 4])
def test_negative_log_likelihoods_leave_the_merge(gaussian_merge, negative):
    merged, densities, _ = gaussian_merge(batches=4)

    def change_signs():
        for label in list(densities)[:negative]:
            mean, precision = densities[label].terms["likelihood"]
            densities[label].terms["likelihood"] = (mean, -precision)

    change_signs()
    with pytest.warns(az_swiss.MergeWarning, match=r"it was: .*\(a negative log likelihood\)"):
        left = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    check_left_alone(left, merged, rounds=1)
    change_signs()
    refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    np.testing.assert_allclose(
        refined["posterior"]["theta"], merged["posterior"]["theta"], atol=1e-8, rtol=0
    )


def test_a_density_without_a_maximum_leaves_the_merge():
    class Saddle(LogRate):
        """Curves downwards in one direction and upwards in the other, whatever the scale."""

        def log_likelihood(self, x):
            return 5 * (x[:, 1] ** 2 - x[:, 0] ** 2)

        def grad_log_likelihood(self, x):
            return 10 * x * np.array([-1, 1])

    rng = np.random.default_rng(1)
    draws = [{"u": rng.normal(0.0, 0.2, (2, 500, 2))} for _ in range(4)]
    merged = az_swiss.merge(draws, kind="inflated")
    densities = [Saddle(None, None) for _ in draws]
    with pytest.warns(az_swiss.MergeWarning, match="curves upwards in some directions after"):
        left = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    check_left_alone(left, merged, rounds=5)


def test_rounds_that_end_nowhere_leave_the_merge():
    class Ending(LogRate):
        """No density beyond some log rate, to which the first round leads."""

        def grad_log_likelihood(self, x):
            return np.where(x > 4.5, np.nan, super().grad_log_likelihood(x))

    rng = np.random.default_rng(1)
    draws = [{"u": rng.normal(0.0, 1.0, (2, 500, 1))} for _ in range(2)]
    merged = az_swiss.merge(draws, kind="inflated")
    densities = [Ending(np.array([count]), np.array([1.0])) for count in (190.0, 210.0)]
    with pytest.warns(az_swiss.MergeWarning, match=r"where there is no posterior \(batch"):
        left = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    check_left_alone(left, merged, rounds=left["swiss_transform"].sizes["round"] - 1)


@pytest.mark.parametrize("raised", [FloatingPointError, ValueError])
def test_densities_that_raise_in_later_rounds_leave_the_merge(raised):
    class Raising(LogRate):
        """Refuses points beyond some log rate, to which the first round leads."""

        def grad_log_likelihood(self, x):
            if x.max() > 4.5:
                raise raised("overflow")
            return super().grad_log_likelihood(x)

    rng = np.random.default_rng(1)
    draws = [{"u": rng.normal(0.0, 1.0, (2, 500, 1))} for _ in range(2)]
    merged = az_swiss.merge(draws, kind="inflated")
    densities = [Raising(np.array([count]), np.array([1.0])) for count in (190.0, 210.0)]
    with pytest.warns(az_swiss.MergeWarning, match=r"no posterior \(batch \"b0\".*overflow"):
        left = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    check_left_alone(left, merged, rounds=left["swiss_transform"].sizes["round"] - 1)


def test_bounds_that_later_rounds_lead_over_leave_the_merge():
    class Bounded(LogRate):
        """A log rate that ends where the first round leads."""

        def log_prior(self, x):
            return np.where(x[:, 0] < 4.5, 0.0, -np.inf)

    rng = np.random.default_rng(1)
    draws = [{"u": rng.normal(0.0, 1.0, (2, 500, 1))} for _ in range(2)]
    merged = az_swiss.merge(draws, kind="inflated")
    densities = [Bounded(np.array([count]), np.array([1.0])) for count in (190.0, 210.0)]
    with pytest.warns(az_swiss.MergeWarning, match=r"no posterior \(.* outside the bounds of u"):
        left = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    check_left_alone(left, merged, rounds=left["swiss_transform"].sizes["round"] - 1)


class Rough(LogRate):
    """A log rate with waves: their slopes are noise at few points, and nearly nothing at many."""

    def log_likelihood(self, x):
        return super().log_likelihood(x) + 0.012 * np.cos(1e3 * x).sum(axis=1)

    def grad_log_likelihood(self, x):
        return super().grad_log_likelihood(x) - 12 * np.sin(1e3 * x)


def test_steps_within_much_noise_are_undone_and_more_points_mend_it():
    rng = np.random.default_rng(4)
    counts, batches = np.array([100.0]), 4
    densities = [Rough(counts, counts * rng.gamma(100, 0.01)) for _ in range(batches)]
    draws = [
        {"u": np.log(rng.gamma(batches * counts, size=(4, 5000, 1)) / (batches * one.exposures))}
        for one in densities
    ]
    merged = az_swiss.merge(draws, kind="inflated")
    with pytest.warns(az_swiss.MergeWarning, match="vary too much to tell where to go.*points="):
        left = az_swiss.refine(merged, densities, points=20, rounds=1, random_seed=1, **QUIET)
    check_left_alone(left, merged, rounds=1)
    refined = az_swiss.refine(left, densities, points=20_000, random_seed=1, **QUIET)
    exact = digamma(batches * counts) - np.log(sum(one.exposures for one in densities))
    sd = np.sqrt(polygamma(1, batches * counts))
    error = float(refined["swiss_transform"]["step_error"][-1])
    assert error < 0.1
    assert mahalanobis(refined, exact, np.diag(sd**2), "u") < 4 * error


def flags_of(merged):
    return [finding.flag for finding in az_swiss.report(merged).findings]


def test_reports_keep_what_refine_warned_of(log_rates):
    merged, densities, *_ = log_rates
    with pytest.warns(az_swiss.MergeWarning, match="still long"):
        once = az_swiss.refine(merged, densities, rounds=1, random_seed=2, **QUIET)
    report = az_swiss.report(once)
    (finding,) = [f for f in report.findings if f.flag == "refine unsettled"]
    assert "0.7" in finding.what and finding.remedy.startswith("refine it again")
    assert "Nothing speaks against" not in str(report)
    # the error that small batches leave is told until rounds have settled
    assert ("expect an error" in str(report).lower()) == (
        "expect an error" in str(az_swiss.report(merged)).lower()
    )
    # as it says
    again = az_swiss.refine(once, densities, random_seed=3, **QUIET)
    assert "refine unsettled" not in flags_of(again)
    assert "expect an error" not in str(az_swiss.report(again)).lower()
    assert "certify(merged, models) tells" in str(az_swiss.report(again))


def test_reports_keep_that_rounds_were_undone(gaussian_merge, tmp_path):
    merged, densities, _ = gaussian_merge(batches=4)
    mean, precision = densities["b1"].terms["likelihood"]
    for label in densities:
        densities[label].terms["likelihood"] = (mean, -precision)
    with pytest.warns(az_swiss.MergeWarning, match="leaves the merge as it was"):
        left = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    assert "refine undone" in flags_of(left)
    path = tmp_path / "left.nc"
    left.to_netcdf(path)
    assert "refine undone" in flags_of(path)


def test_reports_keep_a_step_that_no_merge_explains():
    merged, densities = far_case(4.0)
    refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    (finding,) = [f for f in az_swiss.report(refined).findings if f.flag == "long step"]
    assert "certify" in finding.remedy


def test_one_odd_batch_of_two_does_not_stop_refine():
    class HeavyTailed(LogRate):
        """A Cauchy likelihood, far from where the other batch is."""

        def log_likelihood(self, x):
            return -np.log1p((x[:, 0] - 0.55) ** 2 / 1e-4)

        def grad_log_likelihood(self, x):
            return -2 * (x - 0.55) / (1e-4 + (x - 0.55) ** 2)

    rng = np.random.default_rng(1)
    densities = [LogRate(np.array([100.0]), np.array([100.0])), HeavyTailed(None, None)]
    draws = [{"u": np.log(rng.gamma(100, 1 / 100, (2, 1000, 1)))} for _ in range(2)]
    merged = az_swiss.merge(draws, kind="inflated")
    with pytest.warns(az_swiss.MergeWarning, match="log likelihood of batch b1 curves upwards"):
        refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    assert "curves upwards" in flags_of(refined)
    grid = np.linspace(-0.6, 0.6, 4001)[:, None]
    logs = sum(one.log_likelihood(grid) for one in densities)
    weights = np.exp(logs - logs.max())
    mean = np.average(grid[:, 0], weights=weights)
    sd = np.sqrt(np.average((grid[:, 0] - mean) ** 2, weights=weights))
    error = float(refined["swiss_transform"]["step_error"][-1])
    assert mahalanobis(refined, [mean], [[sd**2]], "u") < 4 * error


def test_records_of_the_version_before_are_read(log_rates):
    merged, densities, *_ = log_rates
    refined = az_swiss.refine(merged, densities, random_seed=2, **QUIET)
    contents = containers.read(refined)
    groups = dict(contents.groups)
    groups["swiss_transform"] = groups["swiss_transform"].drop_vars("taken")
    old = containers.build(groups, contents.container)
    assert str(az_swiss.report(old)) == str(az_swiss.report(refined))
    again = az_swiss.refine(old, densities, random_seed=3, **QUIET)
    assert again["swiss_transform"]["taken"].all()
    certified = az_swiss.certify(old, densities, random_seed=1, **QUIET)
    assert certified["swiss_certificate"].attrs["status"] == "certified"


def far_case(start, sd=0.04):
    """Return draws of one log rate that are far from its posterior, and the densities."""
    rng = np.random.default_rng(1)
    densities = [LogRate(np.array([t]), np.array([50.0])) for t in (150.0, 160.0, 140.0, 150.0)]
    return az_swiss.merge(
        [{"u": rng.normal(start, sd, (2, 500, 1))} for _ in densities], kind="inflated"
    ), densities


def off_by(refined):
    # 600 events of 200 hours
    return float(np.abs(refined["posterior"]["u"].mean() - np.log(3.0))) * 600**0.5


@pytest.mark.parametrize(
    "start, rounds, why",
    [
        # the last step is shorter than the one before, not than all
        (-2.0, 5, "the steps of refine do not shrink"),
        (4.0, 1, "could not change the covariance as far as it had to"),
        (1.2, 1, "refine ended while its steps were still long"),
    ],
)
def test_ending_far_from_the_posterior_is_warned_of(start, rounds, why):
    merged, densities = far_case(start)
    with pytest.warns(az_swiss.MergeWarning, match=why):
        az_swiss.refine(merged, densities, rounds=rounds, random_seed=1, **QUIET)


def test_more_rounds_lead_where_too_few_did_not():
    # as the warning says
    merged, densities = far_case(-2.0)
    with pytest.warns(az_swiss.MergeWarning, match="leaves the merge as it was.*more rounds"):
        left = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    check_left_alone(left, merged, rounds=5)
    refined = az_swiss.refine(merged, densities, rounds=15, random_seed=1, **QUIET)
    assert off_by(refined) < 0.1


def test_coming_from_far_is_no_reason_to_warn():
    merged, densities = far_case(4.0)
    refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    assert refined["swiss_transform"]["step"][1] > 100
    assert off_by(refined) < 0.1


def test_transformed_variables_constants_and_other_groups(tmp_path, to_container):
    rng = np.random.default_rng(2)
    densities = [LogRate(np.full(2, 4.0), rng.gamma(4.0, size=2)) for _ in range(4)]
    batches = []
    for one in densities:
        rate = rng.gamma(16.0, size=(2, 400, 2)) / (4 * one.exposures)
        fixed = np.full((2, 400), 7.0)
        batches.append(
            to_container(
                {"rate": rate, "fixed": fixed},
                sample_stats={"diverging": np.zeros((2, 400), dtype=bool)},
            )
        )
    merged = az_swiss.merge(batches, transforms={"rate": "log"}, kind="inflated")
    contents = containers.read(merged)
    stale = {**contents.groups, "log_likelihood": contents.groups["posterior"]}
    merged = containers.build(stale, contents.container)

    refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    groups = containers.read(refined).groups
    assert "log_likelihood" not in groups
    assert {"posterior", "unconstrained_posterior", "sample_stats"} <= set(groups)
    assert type(refined) is type(merged)
    posterior = groups["posterior"]
    np.testing.assert_array_equal(posterior["fixed"], 7.0)
    np.testing.assert_allclose(np.exp(groups["unconstrained_posterior"]["rate"]), posterior["rate"])
    assert posterior["rate"].dims == contents.groups["posterior"]["rate"].dims
    total = sum(one.exposures for one in densities)
    exact = 16.0 / total
    np.testing.assert_allclose(posterior["rate"].mean(("chain", "draw")), exact, rtol=0.03)

    path = tmp_path / "refined.nc"
    xr.DataTree.from_dict({f"/{k}": v for k, v in groups.items()}).to_netcdf(
        path, engine="h5netcdf"
    )
    back = az_swiss.subposteriors(path)
    for batch, found in zip(batches, back.values(), strict=True):
        np.testing.assert_allclose(found["posterior"]["rate"], batch["posterior"]["rate"])


def test_float32_draws_stay_float32():
    rng = np.random.default_rng(3)
    densities = [LogRate(np.full(2, 9.0), np.full(2, 3.0)) for _ in range(2)]
    draws = [
        {"u": np.log(rng.gamma(18.0, size=(2, 400, 2)) / 6).astype(np.float32)} for _ in range(2)
    ]
    refined = az_swiss.refine(
        az_swiss.merge(draws, kind="inflated"), densities, random_seed=1, **QUIET
    )
    assert refined["posterior"]["u"].dtype == np.float32


def test_batches_with_latent_variables_are_refused(log_rates):
    merged, densities, *_ = log_rates
    contents = containers.read(merged)
    groups = dict(contents.groups)
    groups["posterior"] = groups["posterior"].assign_attrs(swiss_local="effect")
    local = containers.build(groups, contents.container)
    for function in (az_swiss.refine, az_swiss.certify):
        with pytest.raises(ValueError, match=r"latent variables of their own \(effect\)"):
            function(local, densities, **QUIET)


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"points": -1}, {"points": 2.5}])
def test_counts_must_be_positive_integers(log_rates, wrong):
    merged, densities, *_ = log_rates
    with pytest.raises(ValueError, match="must be an integer of at least 1"):
        az_swiss.refine(merged, densities, **wrong, **QUIET)


def test_what_was_not_merged_is_refused(log_rates):
    with pytest.raises(TypeError, match="not a merged object: got dict"):
        az_swiss.refine({"u": np.zeros((2, 10))}, log_rates[1], **QUIET)


FREQUENCIES = np.array([1, 0.02, 0.03, 0.05, 0.001])
TRUTH = np.array([-3, 1.2, -0.5, 0.8, 3])


def paper_data(rng, rows=100_000):
    design = (rng.random((rows, 5)) < FREQUENCIES).astype(float)
    return design, rng.random(rows) < expit(design @ TRUTH)


def counted(logistic_regression, design, outcomes):
    """Return a density that sees each of the few distinct rows once, with its counts."""
    rows, which = np.unique(design, axis=0, return_inverse=True)
    which = which.ravel()
    return logistic_regression(
        rows, np.bincount(which, weights=outcomes), np.bincount(which), sd=10.0
    )


@pytest.mark.slow
def test_simulated_logistic_regression_of_the_paper(logistic_regression, sample_batch):
    rng = np.random.default_rng(20)
    design, outcomes = paper_data(rng)
    whole = counted(logistic_regression, design, outcomes)
    draws = sample_batch(rng, whole, 5, chains=400, draws=100)
    reference = {"theta": draws.reshape(4, -1, 5)}
    ratios = []
    for _ in range(5):
        densities, batches = [], []
        for rows in np.array_split(rng.permutation(len(design)), 25):
            densities.append(counted(logistic_regression, design[rows], outcomes[rows]))
            batch = sample_batch(rng, densities[-1], 5, power=25)
            batches.append({"theta": batch.reshape(4, -1, 5)})
        merged = az_swiss.merge(batches, kind="inflated")
        refined = az_swiss.refine(merged, densities, rounds=2, random_seed=rng, **QUIET)
        before, after = (az_swiss.discrepancy(m, reference) for m in (merged, refined))
        assert before["mahalanobis"] > 0.5
        assert after["mahalanobis"] <= 0.05
        ratios.append(after["iad"] / after["iad_floor"])
        certified = az_swiss.certify(refined, densities, random_seed=rng, **QUIET)
        assert certified["swiss_certificate"]["khat"] < 0.5
        assert certified["swiss_certificate"].attrs["status"] == "certified"
    assert np.mean(ratios) <= 1.5


@pytest.mark.slow
def test_small_batches(logistic_regression, sample_batch):
    rng = np.random.default_rng(21)
    rows, size, batches = 1000, 25, 5
    design = rng.standard_normal((rows, size))
    design[:, 0] = 1
    outcomes = (rng.random(rows) < expit(design @ rng.normal(0, 0.7, size))).astype(float)
    parts = np.array_split(np.arange(rows), batches)
    densities = [
        logistic_regression(design[part], outcomes[part], np.ones(len(part)), sd=1.0)
        for part in parts
    ]
    draws = [sample_batch(rng, one, size, power=batches, draws=25, leaps=10) for one in densities]
    merged = az_swiss.merge([{"theta": one.reshape(4, -1, size)} for one in draws], kind="inflated")
    whole = logistic_regression(design, outcomes, np.ones(rows), sd=1.0)
    reference = sample_batch(rng, whole, size, chains=200, draws=150, leaps=10)
    reference = {"theta": reference.reshape(4, -1, size)}

    refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    before, after = (az_swiss.discrepancy(m, reference) for m in (merged, refined))
    assert before["mahalanobis"] > 2
    # the reference has an error of its own
    assert after["mahalanobis"] <= np.hypot(0.1, after["mahalanobis_floor"])
    with pytest.warns(az_swiss.MergeWarning, match="not certified"):
        uncertified = az_swiss.certify(merged, densities, random_seed=1, **QUIET)
    certified = az_swiss.certify(refined, densities, random_seed=1, **QUIET)
    assert uncertified["swiss_certificate"]["khat"] > 0.7
    assert certified["swiss_certificate"]["khat"] < 0.5


class Truncated:
    """Rows of N(tau, 1) with a half-normal prior of tau, on its own scale."""

    def __init__(self, rows):
        self.rows = rows

    def log_prior(self, x):
        return np.where(x[:, 0] > 0, -0.5 * x[:, 0] ** 2, -np.inf)

    def grad_log_prior(self, x):
        return -x

    def log_likelihood(self, x):
        return -0.5 * np.sum((self.rows - x) ** 2, axis=1)

    def grad_log_likelihood(self, x):
        return np.sum(self.rows - x, axis=1, keepdims=True)


def test_a_density_that_is_cut_off_is_not_refined():
    rng = np.random.default_rng(0)
    densities = [Truncated(rng.normal(0.02, 1, 30)) for _ in range(4)]
    batches = []
    for one in densities:
        precision = 4 * one.rows.size + 1
        centre, sd = 4 * one.rows.sum() / precision, precision**-0.5
        draws = truncnorm.rvs(-centre / sd, np.inf, centre, sd, size=(4, 500), random_state=rng)
        batches.append({"tau": draws})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        merged = az_swiss.merge(batches, kind="inflated")
    assert (merged["posterior"]["tau"] < 0).any()
    with pytest.raises(
        ValueError, match=r"merged draws are outside the bounds of tau.*transforms="
    ):
        az_swiss.refine(merged, densities, random_seed=1, **QUIET)


def test_shifts_are_seen_from_the_refined_posterior(logistic_regression, sample_batch):
    rng = np.random.default_rng(5)
    design = np.column_stack([np.ones(600), rng.standard_normal((600, 2))])
    outcomes = (rng.random(600) < expit(design @ [-2.0, 1.0, 0.5])).astype(float)
    densities = [
        logistic_regression(design[part], outcomes[part], np.ones(len(part)), sd=2.0)
        for part in np.array_split(np.arange(600), 4)
    ]
    draws = [sample_batch(rng, one, 3, power=4) for one in densities]
    merged = az_swiss.merge([{"theta": one.reshape(4, -1, 3)} for one in draws], kind="inflated")
    refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    maps = refined["swiss_transform"]
    sd = np.sqrt(np.diag(maps["pooled_covariance"]))
    expected = (maps["mean"].values - maps["pooled_mean"].values) / sd
    for statistics in (refined["swiss_diagnostics"], az_swiss.report(refined).statistics):
        np.testing.assert_allclose(statistics["shift"], expected)
    assert not np.allclose(merged["swiss_diagnostics"]["shift"], expected, atol=0.01)

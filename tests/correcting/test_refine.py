import warnings

import numpy as np
import pytest
import xarray as xr
from refine_cases import (
    LogRate,
    mahalanobis,
)
from scipy.special import expit
from scipy.stats import truncnorm

import arviz_swiss as az_swiss
from arviz_swiss.data import containers

QUIET = {"progressbar": False}


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


def test_what_was_computed_of_the_draws_before_is_left_out(log_rates):
    _, densities, _, _, draws = log_rates
    groups = containers.read(az_swiss.merge(draws, kind="inflated")).groups
    rate = np.exp(groups["posterior"]["u"])
    groups["posterior"] = groups["posterior"].assign(rate=rate)
    merged = containers.build(groups)
    assert "rate" in az_swiss.summary(merged, by="parameter", kind="stats").index[-1]
    refined = containers.read(az_swiss.refine(merged, densities, random_seed=1, **QUIET)).groups
    assert set(refined["posterior"].data_vars) == {"u"}
    assert "Without rate of" in str(az_swiss.report(containers.build(refined)))
    for back in az_swiss.subposteriors(merged).values():
        assert "rate" not in containers.read(back).groups["posterior"]


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


def test_densities_that_know_no_local_variables_are_refused(log_rates):
    merged, densities, *_ = log_rates
    contents = containers.read(merged)
    groups = dict(contents.groups)
    groups["posterior"] = groups["posterior"].assign_attrs(swiss_local="effect")
    local = containers.build(groups, contents.container)
    with pytest.raises(TypeError, match=r'batch "b0": its variables effect are its own.*build='):
        az_swiss.refine(local, densities, **QUIET)
    with pytest.raises(ValueError, match=r"variables of their own \(effect\).*refine\(merged, mod"):
        az_swiss.certify(local, densities, **QUIET)


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

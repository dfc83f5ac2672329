import re

import numpy as np
import pytest
import xarray as xr
from refine_cases import LogRate, check_left_alone, far_case, flags_of, mahalanobis, off_by
from scipy.special import digamma, polygamma

import arviz_swiss as az_swiss
from arviz_swiss.base.gaussian import Round, gaussian
from arviz_swiss.correcting import rounds
from arviz_swiss.correcting.rounds import Rounds
from arviz_swiss.merging.records import Doubt, read_refinement

QUIET = {"progressbar": False}

LABELS = ["a", "b", "c", "d"]


def step(length, error=0.01, mean=0.0, variance=1.0, unlimited=(0.9, 1.1), change=0.0):
    """Return a round of two parameters."""
    moments = gaussian(np.full(2, mean), variance * np.eye(2))
    eigenvalues = np.clip(unlimited, 0.2, 5.0)
    return Round(moments, length, error, change, error, eigenvalues, np.array(unlimited))


def of(*history, **others):
    return Rounds(list(history), LABELS, **others)


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([step(0.02)], True),
        ([step(0.03)], False),
        # a step has the noise of where it starts, too
        ([step(1.0), step(0.028)], True),
        ([step(1.0), step(0.029)], False),
        ([step(0.0, change=0.03)], False),
        # exact, but for rounding
        ([step(1.0, error=0.0), step(1e-8, error=0.0)], True),
        # nothing can be told through so much noise
        ([step(0.1, error=0.3)], False),
    ],
)
def test_rounds_settle_when_nothing_but_noise_changes(history, expected):
    assert rounds.settled(history) == expected


@pytest.mark.parametrize(
    ("some", "labels", "expected"),
    [("ab", "abcd", True), ("a", "abcd", False), ("a", "ab", False), ("ab", "ab", True)],
)
def test_half_of_the_densities(some, labels, expected):
    assert rounds.are_half(list(some), list(labels)) == expected
    assert rounds.are_half(["all rows"], ["all rows"])


@pytest.mark.parametrize(
    ("done", "wrong", "reason"),
    [
        (of(step(1.0)), ["grad_log_prior is none"], "grad_log_prior is none"),
        (of(step(1.0), failure="overflow."), [], r"no posterior \(overflow\)"),
        (of(step(1.0), upwards=["a", "b"]), [], "batches a, b curve upwards"),
        (of(step(1.0, unlimited=(-1.0, 2.0))), [], "upwards in some directions after 1 posterior"),
        (of(step(1.0, unlimited=(-1.0, -2.0))), [], "upwards in every direction after"),
        (of(step(1.0), step(0.5), step(1.5)), [], "do not shrink: 1, 0.5, 1.5"),
        (of(step(1.0, error=0.3)), [], "vary too much to tell where to go"),
    ],
)
def test_rounds_that_lead_away_are_undone(done, wrong, reason):
    doubt = rounds.doubt_undone(done, wrong)
    assert doubt.flag == rounds.UNDONE
    assert re.search(reason, doubt.what)


def test_rounds_that_settle_are_not_doubted():
    done = of(step(1.0), step(0.1), step(0.01))
    assert rounds.doubt_undone(done, []) is None
    assert rounds.doubt_steps(done) is None
    assert rounds.doubt_steps(of(step(0.5))).flag == rounds.UNSETTLED
    assert rounds.doubt_steps(of(step(0.01), upwards=["a"])).flag == rounds.UPWARDS


def test_precisions_that_count_batches_are_doubted_whatever_the_number_of_densities():
    pooled = np.eye(2)
    for variance, cause in ((1 / 6, "plain or fractionated"), (6.0, "inflated batches were")):
        for labels in (["all rows"], LABELS):
            done = Rounds([step(0.0, variance=variance)], labels)
            doubt = rounds.doubt_counts(done, 6, pooled, "")
            assert doubt.flag == rounds.MISCOUNTED and cause in doubt.what
            assert rounds.doubt_counts(done, 2, pooled, "") is None
    done = Rounds([step(0.0)], LABELS)
    assert rounds.doubt_counts(done, 6, pooled, "") is None


def test_equal_densities_that_count_the_data_several_times_are_refused():
    twice = of(step(0.0, variance=0.25), alike=True)
    with pytest.raises(ValueError, match=r"all 4 densities are equal, .* to 4 times.*As follows"):
        rounds.doubt_counts(twice, 6, np.eye(2), "As follows.")
    # equal data, or one density of all rows
    assert rounds.doubt_counts(of(step(0.0), alike=True), 6, np.eye(2), "") is None
    alone = Rounds([step(0.0, variance=0.25)], ["all rows"], alike=True)
    assert rounds.doubt_counts(alone, 6, np.eye(2), "") is None


@pytest.fixture
def maps():
    square = ("parameter", "parameter_bis")
    return xr.Dataset(
        {
            "pooled_mean": ("parameter", np.zeros(2)),
            "pooled_covariance": (square, np.eye(2)),
            "scale": (("batch", *square), np.array([np.eye(2), 2 * np.eye(2)])),
            "target": (("batch", "parameter"), np.array([[0.0, 0.0], [1.0, 0.0]])),
        }
    )


def test_rounds_that_are_taken_move_maps_and_moments(maps):
    start = gaussian(np.zeros(2), np.eye(2))
    history = [step(1.0, mean=1.0), step(0.1, mean=2.0, variance=4.0)]
    record = rounds.recorded(maps, start, history, None)
    np.testing.assert_allclose(record["pooled_mean"], 2.0)
    np.testing.assert_allclose(record["scale"], 2 * maps["scale"].values)
    np.testing.assert_allclose(record["target"], [[2.0, 2.0], [4.0, 2.0]])
    np.testing.assert_array_equal(record["step"], [np.nan, 1.0, 0.1])
    refinement = read_refinement(record)
    assert refinement.is_settled and refinement.undone == 0


def test_rounds_that_are_undone_are_recorded_and_move_nothing(maps):
    start = gaussian(np.zeros(2), np.eye(2))
    first = rounds.recorded(maps, start, [step(1.0, mean=1.0)], None)
    doubt = Doubt(rounds.UNDONE, "it leads away", "Look.")
    record = rounds.recorded(first, step(1.0, mean=1.0).moments, [step(9.0, mean=5.0)], doubt)
    for name in maps.data_vars:
        xr.testing.assert_equal(record[name], first[name])
    assert record["taken"].values.tolist() == [True, True, False]
    refinement = read_refinement(record)
    assert refinement.doubt == doubt and refinement.undone == 1
    np.testing.assert_array_equal(refinement.steps, [1.0])
    # what speaks against rounds goes with them
    again = rounds.recorded(record, step(1.0, mean=1.0).moments, [step(0.1, mean=1.1)], None)
    assert read_refinement(again).doubt is None
    assert again["round"].values.tolist() == [0, 1, 2, 3]


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

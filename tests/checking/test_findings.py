"""What is said of a merge as a whole: at which values it is, and at which it is not."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from scipy.special import digamma, polygamma
from spoilt_batches import judged, merged_quietly, sound_evidence, with_group

import arviz_swiss as az_swiss
from arviz_swiss.checking import findings as finders
from arviz_swiss.checking.batch_findings import FIND_BROKEN
from arviz_swiss.checking.evidence import Evidence, Finding
from arviz_swiss.checking.findings import FINDERS, flags_by_batch, named_batches
from arviz_swiss.merging.diagnostics import SHRINKAGE
from arviz_swiss.merging.merged import open_merged


@pytest.fixture(scope="module")
def sound():
    return sound_evidence()


def with_statistic(evidence, name, value):
    """Return the evidence with another value of a statistic, in all batches and parameters."""
    values = xr.full_like(evidence.statistics[name], value)
    return replace(evidence, statistics=evidence.statistics.assign({name: values}))


def with_maps_attrs(evidence, **attrs):
    maps = evidence.merged.maps.assign_attrs({f"swiss_{k}": v for k, v in attrs.items()})
    return with_group(evidence, "swiss_transform", maps)


def certified(evidence, status="certified"):
    certificate = xr.Dataset(attrs={"status": status, "reason": "so it is", "remedy": "call it"})
    return with_group(evidence, "swiss_certificate", certificate)


def refined(evidence, step):
    maps = evidence.merged.maps
    steps = {"step": ("round", [np.nan, step]), "step_error": ("round", [np.nan, 0.1])}
    return with_group(evidence, "swiss_transform", maps.assign(steps))


DOUBT = {"refine_flag": "refine unsettled", "refine_doubt": "It moved", "refine_remedy": "Go on."}
# how each comes to be told, and how not
CASES = {
    "usable": (
        finders.find_uncertified,
        lambda sound: certified(sound, "usable"),
        [lambda sound: sound, certified],
    ),
    "kind guessed": (
        finders.find_kind,
        lambda sound: with_maps_attrs(sound, kind_from="guess"),
        [
            lambda sound: with_maps_attrs(sound, kind_from="argument"),
            lambda sound: certified(with_maps_attrs(sound, kind_from="guess")),
        ],
    ),
    "looks plain": (
        finders.find_kind,
        lambda sound: with_statistic(sound, "q_fair", 15 / 6),
        [
            lambda sound: with_statistic(sound, "q_fair", 15.0),
            lambda sound: certified(with_statistic(sound, "q_fair", 15 / 6)),
        ],
    ),
    "skewed": (
        finders.find_skewed,
        lambda sound: with_statistic(sound, "skewness", -1.01),
        [
            lambda sound: with_statistic(sound, "skewness", -0.99),
            lambda sound: certified(with_statistic(sound, "skewness", -1.01)),
            lambda sound: refined(with_statistic(sound, "skewness", -1.01), 0.1),
            lambda sound: replace(sound, statistics=sound.merged.diagnostics),
        ],
    ),
    "expected error": (
        finders.find_expected_error,
        lambda sound: with_statistic(sound, "expected_error", 0.51),
        [
            lambda sound: with_statistic(sound, "expected_error", 0.49),
            lambda sound: replace(
                with_statistic(sound, "expected_error", 0.51), broken=frozenset({"b1"})
            ),
            lambda sound: refined(with_statistic(sound, "expected_error", 0.51), 0.1),
            lambda sound: certified(with_statistic(sound, "expected_error", 0.51), "usable"),
        ],
    ),
    "prior's shape": (
        finders.find_prior_error,
        lambda sound: with_statistic(sound, "prior_error", 0.51),
        [
            lambda sound: with_statistic(sound, "prior_error", 0.49),
            lambda sound: refined(with_statistic(sound, "prior_error", 0.51), 0.1),
            lambda sound: certified(with_statistic(sound, "prior_error", 0.51), "usable"),
        ],
    ),
    "refine unsettled": (
        finders.find_refine,
        lambda sound: with_maps_attrs(refined(sound, 1.0), **DOUBT),
        [
            lambda sound: refined(sound, 1.0),
            lambda sound: certified(with_maps_attrs(refined(sound, 1.0), **DOUBT)),
        ],
    ),
    "long step": (
        finders.find_refine,
        lambda sound: refined(sound, 5.1),
        [
            lambda sound: refined(sound, 4.9),
            lambda sound: refined(with_statistic(sound, "expected_error", 1.0), 5.1),
            lambda sound: certified(refined(sound, 5.1)),
        ],
    ),
    "few draws": (
        finders.find_few_draws,
        lambda sound: with_statistic(sound, "precision_bias", SHRINKAGE + 0.001),
        [
            lambda sound: with_statistic(sound, "precision_bias", SHRINKAGE - 0.001),
            lambda sound: refined(with_statistic(sound, "precision_bias", 0.1), 0.1),
            lambda sound: certified(with_statistic(sound, "precision_bias", 0.1)),
        ],
    ),
}


@pytest.mark.parametrize("flag", CASES)
def test_what_is_told_and_what_not(sound, flag):
    finder, told, not_told = CASES[flag]
    (finding,) = finder(told(sound))
    assert (finding.flag, finding.batches) == (flag, ())
    for case in not_told:
        assert list(finder(case(sound))) == []


def test_skewness_can_tell_the_error(sound):
    """Whichever of the two statistics is larger counts; one that is missing does not."""
    assert list(finders.find_expected_error(with_statistic(sound, "skewness_error", 0.51)))
    without = sound.statistics.drop_vars(["skewness_error", "expected_error"])
    assert finders.expected_error(replace(sound, statistics=without)) == 0.0


def test_nothing_speaks_against_a_sound_merge(sound):
    assert finders.find_all(sound.merged, sound.statistics) == []


def test_named_batches_are_in_the_order_of_the_findings():
    findings = [Finding("", ("c", "a"), "", ""), Finding("", (), "", ""), Finding("", "ab", "", "")]
    assert named_batches(findings) == ["c", "a", "b"]


def test_skewed_parameters_and_few_draws_concern_the_whole_merge():
    rng = np.random.default_rng(0)
    batches = [
        {"s": rng.exponential(size=(4, 80)), "x": rng.normal(away, 1, size=(4, 80, 20))}
        for away in (-1, 1)
    ]
    report = judged(batches)
    by_flag = {finding.flag: finding for finding in report.findings}
    assert set(by_flag) == {"skewed", "few draws"}
    assert by_flag["skewed"].batches == by_flag["few draws"].batches == ()
    assert by_flag["skewed"].what.startswith("s is strongly skewed")
    assert 'transforms={"s": "log"}' in by_flag["skewed"].remedy
    assert "the merge as a whole is" in report.verdict


class LogRate:
    """Events of one batch, by their log rate; the prior is flat."""

    def __init__(self, events, exposure=1.0):
        self.events, self.exposure = events, exposure

    def log_prior(self, x):
        return np.zeros(len(x))

    def grad_log_prior(self, x):
        return np.zeros_like(x)

    def log_likelihood(self, x):
        return np.sum(self.events * x - self.exposure * np.exp(x), axis=1)

    def grad_log_likelihood(self, x):
        return self.events - self.exposure * np.exp(x)


def log_rates(events):
    """Return densities and draws of batches with so many events, and the exact moments."""
    rng, batches, total = np.random.default_rng(3), len(events), sum(events)
    draws = {
        f"b{b}": {"u": np.log(rng.gamma(batches * count, size=(4, 500)) / batches)}
        for b, count in enumerate(events)
    }
    mean, sd = digamma(total) - np.log(batches), np.sqrt(polygamma(1, total))
    return [LogRate(count) for count in events], draws, mean, sd


def test_an_odd_batch_is_not_to_be_dropped_once_there_is_a_certificate():
    densities, draws, mean, sd = log_rates([25.0] * 7 + [60.0])

    def off(merged):
        return abs(float(merged["posterior"]["u"].mean()) - mean) / sd

    merged = merged_quietly(draws)
    (before,) = [f for f in az_swiss.report(merged).findings if f.batches]
    assert before.batches == ("b7",) and 'drop=["b7"]' in before.remedy

    with pytest.warns(az_swiss.MergeWarning, match=r"Call refine"):
        weighed = az_swiss.certify(merged, densities, random_seed=1, progressbar=False)
    report = az_swiss.report(weighed)
    first, odd = (f for f in report.findings if f.flag != "disagree")
    assert str(report).startswith(f"{first.flag.capitalize()} (k-hat ")
    assert first.remedy.startswith("call refine") and odd.batches == ("b7",)
    assert odd.remedy.startswith("first what the certificate asks for: call refine")
    assert "drop=" not in str(report)

    dropped = merged_quietly(draws, drop=["b7"])
    refined = az_swiss.refine(merged, densities, random_seed=1, progressbar=False)
    assert off(dropped) > off(merged) > 0.2
    # 16,000 draws, of batches whose shapes differ: nothing but the error of 200 points
    assert off(refined) < max(0.05, 3 * float(refined["swiss_transform"]["step_error"][-1]))

    certified = az_swiss.certify(refined, densities, random_seed=1, progressbar=False)
    report = az_swiss.report(certified)
    assert str(report).startswith("Certified (k-hat ")
    (odd,) = [f for f in report.findings if f.batches]
    assert odd.batches == ("b7",) and odd.remedy.startswith("nothing for the sake of this merge")
    assert "drop=" not in str(report) and "in doubt" not in str(report)


def test_flags_by_batch():
    findings = [
        Finding("stuck", ("a",), "", ""),
        Finding("wide", ("a", "b"), "", ""),
        Finding("x", (), "", ""),
    ]
    assert flags_by_batch(findings, ["a", "b", "c"]) == ["stuck, wide", "wide", ""]


def test_every_finder_is_documented():
    assert all(finder.__doc__.startswith("Find ") for finder in (*FIND_BROKEN, *FINDERS))


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_few_draws_are_no_finding_once_they_are_corrected_for():
    rng = np.random.default_rng(0)
    batches = [{"x": rng.normal(size=(2, 150, 12))} for _ in range(4)]

    def is_found(batches, **options):
        merged = open_merged(az_swiss.merge(batches, kind="inflated", **options), "posterior")
        return any(finders.find_few_draws(Evidence(merged, merged.diagnostics)))

    assert is_found(batches)
    assert not is_found(batches, covariance="corrected")
    assert is_found(batches, covariance="shrunk")
    assert not is_found(batches, covariance="diagonal")
    too_few = [{"x": one["x"][:, :12]} for one in batches]
    assert is_found(too_few, covariance="corrected")


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
@pytest.mark.parametrize("covariance", ["sample", "shrunk", "corrected"])
@pytest.mark.parametrize(("draws", "is_enough"), [(150, True), (12, False)])
def test_a_correction_is_advised_only_where_it_mends(covariance, draws, is_enough):
    rng = np.random.default_rng(0)
    batches = [{"x": rng.normal(size=(2, draws, 12))} for _ in range(4)]
    merged = merged_quietly(batches, covariance=covariance)
    opened = open_merged(merged, "posterior")
    findings = list(finders.find_few_draws(Evidence(opened, opened.diagnostics)))
    assert bool(findings) == (covariance != "corrected" or not is_enough)
    for finding in findings:
        assert ('covariance="corrected"' in finding.remedy) == is_enough


def test_refine_is_advised_only_where_it_is_not_refused(sound):
    plain = sound.merged
    assert finders.remove_error(plain).startswith("refine(merged, models)")
    posterior = plain.draws.assign_attrs(swiss_dropped=["b9"])
    advised = finders.remove_error(with_group(sound, "posterior", posterior).merged)
    assert advised.startswith("merge fewer, larger batches")
    assert "refine(" not in advised


def test_certify_is_not_advised_for_newly_made_draws():
    densities, draws, _, _ = log_rates([18.0, 32.0, 24.0, 21.0, 30.0, 25.0])
    for method, is_advised in (("swiss", True), ("consensus", False)):
        merged = merged_quietly(draws, method=method)
        refined = az_swiss.refine(merged, densities, random_seed=1, progressbar=False)
        assert ("certify(" in str(az_swiss.report(refined))) == is_advised
    with pytest.raises(ValueError, match="cannot be certified"):
        az_swiss.certify(refined, densities, progressbar=False)

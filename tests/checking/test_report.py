"""report() and the findings behind it: a spoilt batch is named, and only it."""

import warnings

import numpy as np
import pytest
from scipy.special import digamma, polygamma

import arviz_swiss as az_swiss
from arviz_swiss.checking import findings
from arviz_swiss.checking.findings import FINDERS, Finding, flags_by_batch
from arviz_swiss.data import containers
from arviz_swiss.merging.merged import open_merged


def partition(rng, count=6, size=3, chains=4, draws=250):
    """Sub-posteriors of a random partition, whose means scatter as they should."""
    return {
        f"b{b}": {
            "beta": rng.standard_normal((chains, draws, size))
            + np.sqrt(count) * rng.standard_normal(size)
        }
        for b in range(count)
    }


def judged(batches, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        return az_swiss.report(az_swiss.merge(batches, **{"kind": "inflated", **options}))


def named(report):
    return {label for finding in report.findings for label in finding.batches}


def shift(draws):
    draws += 10 * np.sqrt(6)


def stick(draws):
    draws[..., 1] = 40 + 1e-4 * draws[..., 1]


def leave_one_chain(draws):
    draws[2] += 10


def crawl(draws):
    draws[...] = np.cumsum(draws, axis=1) / 15


def widen(draws):
    draws[..., 0] = draws[..., 0].mean() + 5 * (draws[..., 0] - draws[..., 0].mean())


def split_in_two(draws):
    draws[:, ::2, 2] += 12


def skew(draws):
    draws[..., 0] = draws[..., 0].mean() + 0.5 * (
        np.exp(draws[..., 0] - draws[..., 0].mean()) - 1.6
    )


@pytest.mark.parametrize(
    ("spoil", "flag"),
    [
        (shift, "disagrees"),
        (stick, "stuck"),
        (leave_one_chain, "did not converge"),
        (crawl, "did not converge"),
        (widen, "wide"),
        (split_in_two, "bimodal"),
        (skew, "shape differs"),
    ],
)
def test_a_spoilt_batch_is_named_and_only_it(spoil, flag):
    batches = partition(np.random.default_rng(1))
    spoil(batches["b3"]["beta"])
    report = judged(batches)
    assert named(report) == {"b3"}
    assert flag in [finding.flag for finding in report.findings]
    assert "1 of 6 batches is in doubt: b3." in str(report)
    assert all(finding.remedy in str(report) for finding in report.findings)


def test_leaving_the_named_batch_out_ends_the_complaint():
    batches = partition(np.random.default_rng(1))
    shift(batches["b3"]["beta"])
    report = judged(batches, drop=named(judged(batches)))
    assert report.findings == ()
    assert "Left out: b3. It stands for as many rows as before" in str(report)


@pytest.mark.parametrize("count", [1, 2, 20])
def test_nothing_is_said_against_a_random_partition(count):
    report = judged(partition(np.random.default_rng(count), count))
    assert report.findings == ()
    assert "A pass is no proof" in str(report)
    assert f"{count} batch" in str(report)


def test_drift_is_found_though_no_batch_is_odd():
    """A drift from first to last of half the range that chance gives to single means."""
    batches = partition(np.random.default_rng(0), count=20)
    for b in range(20):
        batches[f"b{b}"]["beta"] += np.sqrt(20) * (b - 9.5) / 9.5 * 2
    report = judged(batches)
    assert "disagree" in [finding.flag for finding in report.findings]
    assert "Sorted data, drift" in str(report)
    assert "shuffle" in str(report)


@pytest.mark.parametrize("count", [4, 6, 8, 9, 12])
def test_drift_over_few_batches_blames_none_of_them(count):
    batches = partition(np.random.default_rng(count), count)
    for b in range(count):
        batches[f"b{b}"]["beta"] += 10 * np.sqrt(count) * b
    report = judged(batches)
    (finding,) = report.findings
    assert (finding.flag, finding.batches) == ("disagree", ())
    assert "without those named" not in finding.what
    assert "furthest b" in finding.what
    assert "No single batch is in doubt" in str(report)


def test_a_dozen_bad_batches_of_a_hundred_are_named_as_the_warning_does():
    batches = partition(np.random.default_rng(0), 100, size=1)
    bad = [f"b{b}" for b in range(20, 32)]
    for label in bad:
        batches[label]["beta"] += 150
    with pytest.warns(az_swiss.MergeWarning, match="disagree") as warned:
        report = az_swiss.report(az_swiss.merge(batches, kind="inflated"))
    assert named(report) == set(bad)
    assert "12 of 100 batches are in doubt" in str(report)
    assert "without those named" not in str(report)
    worst = [finding.batches[0] for finding in report.findings][:5]
    assert all(f'("{label}")' in str(warned[0].message) for label in worst)
    assert "and 7 more" in str(warned[0].message)


def test_the_warning_lists_the_same_as_the_report_when_none_is_named():
    batches = partition(np.random.default_rng(0), 20, size=1)
    for b in range(20):
        batches[f"b{b}"]["beta"] += 30 * b
    with pytest.warns(az_swiss.MergeWarning, match="disagree") as warned:
        (finding,) = az_swiss.report(az_swiss.merge(batches, kind="inflated")).findings
    listed = finding.what.partition("furthest ")[2].partition(")")[0].split(", ")
    assert len(listed) == 5
    assert all(f'("{label}")' in str(warned[0].message) for label in listed)


def test_the_rest_is_judged_without_those_named():
    batches = partition(np.random.default_rng(0), count=20)
    for b in range(20):
        batches[f"b{b}"]["beta"] += np.sqrt(20) * (b - 9.5) / 9.5 * 1.5
    batches["b7"]["beta"] += 300
    report = judged(batches)
    assert [(f.flag, f.batches) for f in report.findings] == [
        ("disagrees", ("b7",)),
        ("disagree", ()),
    ]
    assert "without those named" in str(report)


def test_a_report_on_many_poor_batches_is_short_and_begins_with_the_worst():
    batches = partition(np.random.default_rng(0), 40, size=1)
    for b in range(40):
        batches[f"b{b}"]["beta"][:2] += 2 + b / 20
    report = judged(batches)
    assert len(report.findings) == 40
    rhats = [float(f.what.partition("R-hat is ")[2].split()[0]) for f in report.findings]
    assert rhats == sorted(rhats, reverse=True)
    lines = str(report).splitlines()[2:]
    assert len(lines) == 4
    assert lines[:3] == [f"- {finding}" for finding in report.findings[:3]]
    others = [finding.batches[0] for finding in report.findings[3:]]
    assert lines[3].startswith(
        f'- and 37 more with "did not converge": {", ".join(others[:10])}, ....'
    )
    assert report._repr_html_().count("<li>") == 4


def test_divergences_and_few_effective_draws(to_container):
    rng = np.random.default_rng(0)
    batches = {}
    for b in range(3):
        slow = np.repeat(rng.standard_normal((4, 15 if b else 150)), 20 if b else 2, axis=1)
        diverging = np.zeros(slow.shape, dtype=bool)
        diverging[0, : 7 * b] = True
        batches[f"b{b}"] = to_container({"x": slow}, sample_stats={"diverging": diverging})
    report = judged(batches)
    by_flag = {finding.flag: finding for finding in report.findings}
    assert by_flag["divergences"].batches == ("b2", "b1")
    assert "b2 (14), b1 (7)" in by_flag["divergences"].what
    assert "target_accept" in by_flag["divergences"].remedy
    few = [
        f.batches for f in report.findings if f.flag in ("few effective draws", "did not converge")
    ]
    assert sorted(few) == [("b1",), ("b2",)]


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


def test_two_modes_everywhere_concern_the_whole_merge():
    rng = np.random.default_rng(0)
    batches = [
        {"x": away + rng.standard_normal((4, 250)) + 8 * rng.integers(0, 2, (4, 250))}
        for away in (-4, 0, 4)
    ]
    (finding,) = judged(batches).findings
    assert finding.flag == "bimodal"
    assert finding.batches == ()


def test_a_batch_that_decides_alone_is_named():
    rng = np.random.default_rng(0)
    batches = [
        {"x": away + rng.standard_normal((4, 250)) * (1 if away else 0.05)}
        for away in (0, -2, 1, 3)
    ]
    assert [(f.flag, f.batches) for f in judged(batches).findings] == [("decides alone", ("b0",))]


def test_newly_made_draws_are_judged_by_moments():
    batches = partition(np.random.default_rng(1))
    shift(batches["b3"]["beta"])
    report = judged(batches, method="consensus")
    assert named(report) == {"b3"}
    assert "were not looked at" in str(report)


def test_report_prints_and_shows():
    batches = partition(np.random.default_rng(1))
    shift(batches["b3"]["beta"])
    report = judged({f"<{label}>": batch for label, batch in batches.items()})
    assert repr(report) == str(report)
    assert "&lt;b3&gt;" in report._repr_html_()
    assert "<b3>" not in report._repr_html_()


def test_a_diagnosed_object_is_not_diagnosed_again(monkeypatch):
    diagnosed = az_swiss.diagnose(
        az_swiss.merge(partition(np.random.default_rng(2)), kind="inflated")
    )
    monkeypatch.setattr(containers, "convergence", None)
    assert az_swiss.report(diagnosed).findings == ()


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


def odd_case(odd=60.0, others=25.0, batches=8):
    """Return densities and draws of which one batch has far more events, and the exact moments."""
    rng = np.random.default_rng(3)
    densities = [LogRate(others) for _ in range(batches - 1)] + [LogRate(odd)]
    draws = {
        f"b{b}": {"u": np.log(rng.gamma(batches * one.events, size=(4, 500)) / batches)}
        for b, one in enumerate(densities)
    }
    total = sum(one.events for one in densities)
    return densities, draws, digamma(total) - np.log(batches), np.sqrt(polygamma(1, total))


def merged_quietly(draws, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        return az_swiss.merge(draws, kind="inflated", **options)


def test_an_odd_batch_is_not_to_be_dropped_once_there_is_a_certificate():
    densities, draws, mean, sd = odd_case()

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
    assert all(finder.__doc__.startswith("Find ") for finder in FINDERS)


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_few_draws_are_no_finding_once_they_are_corrected_for():
    rng = np.random.default_rng(0)
    batches = [{"x": rng.normal(size=(2, 150, 12))} for _ in range(4)]

    def is_found(batches, **options):
        merged = open_merged(az_swiss.merge(batches, kind="inflated", **options), "posterior")
        return any(findings.find_few_draws(merged, frozenset()))

    assert is_found(batches)
    assert not is_found(batches, covariance="corrected")
    assert is_found(batches, covariance="shrunk")
    assert not is_found(batches, covariance="diagonal")
    too_few = [{"x": one["x"][:, :12]} for one in batches]
    assert is_found(too_few, covariance="corrected")


def test_the_warning_tells_the_statistic_that_fired():
    """One parameter scatters too much, the others too little: Q of all is not large."""
    rng = np.random.default_rng(0)
    batches = []
    for b in range(20):
        draws = rng.normal(size=(2, 500, 5))
        draws[..., 0] += 8 * (-1) ** b
        batches.append({"x": draws})
    with pytest.warns(az_swiss.MergeWarning, match=r"disagree \(in x\[0\]: p = ") as warned:
        merged = az_swiss.merge(batches, kind="inflated")
    assert float(merged["swiss_diagnostics"]["q_pvalue"]) > 0.5
    assert "degrees of freedom" not in str(warned[0].message)

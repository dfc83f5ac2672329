"""report(): what it prints, shows and holds."""

import numpy as np
import pytest
import xarray as xr
from spoilt_batches import judged, named, partition, shift

import arviz_swiss as az_swiss
from arviz_swiss.checking.evidence import Finding
from arviz_swiss.checking.report import Report
from arviz_swiss.data import containers


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


def test_a_report_on_many_poor_batches_is_short_and_begins_with_the_worst():
    batches = partition(np.random.default_rng(0), 40, size=1)
    for b in range(40):
        batches[f"b{b}"]["beta"][:2] += 2 + b / 20
    report = judged(batches)
    assert len(report.findings) == 40
    rhats = [float(f.what.partition("R-hat is ")[2].split()[0]) for f in report.findings]
    assert rhats == sorted(rhats, reverse=True)
    first, *lines, last = str(report).splitlines()
    assert first.startswith("40 of 40 batches are in doubt")
    assert last.startswith("40 batches, 1 parameter, merged")
    assert len(lines) == 4
    assert lines[:3] == [f"- {finding}" for finding in report.findings[:3]]
    others = [finding.batches[0] for finding in report.findings[3:]]
    listed = f"{', '.join(others[:10])} and 27 more."
    assert lines[3].startswith(f'- and 37 more with "did not converge": {listed} What to do: ')
    assert report._repr_html_().count("<li>") == 4


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


@pytest.mark.parametrize(
    "status, is_in_doubt", [(None, True), ("not certified", True), ("certified", False)]
)
def test_a_merge_is_in_doubt_unless_nothing_is_found_or_it_is_certified(status, is_in_doubt):
    found = Finding("odd", ("b0",), "b0 is odd.", "look at it.")
    assert Report("verdict", (found,), xr.Dataset(), status).is_in_doubt == is_in_doubt
    assert not Report("verdict", (), xr.Dataset(), status).is_in_doubt


def test_a_report_holds_the_statistics_and_does_not_change_the_object():
    merged = az_swiss.merge(partition(np.random.default_rng(2)), kind="inflated")
    report = az_swiss.report(merged)
    assert set(merged["swiss_diagnostics"]) < set(report.statistics)
    assert "rhat" not in merged["swiss_diagnostics"]
    assert float(report.statistics["rhat"].max()) < 1.05
    assert report == az_swiss.report(merged)
    assert report.merged is merged
    assert az_swiss.report(
        az_swiss.merge(partition(np.random.default_rng(3)), kind="inflated")
    ) != (report)


def test_an_error_too_small_for_a_finding_is_worth_a_sentence():
    sound = az_swiss.merge(partition(np.random.default_rng(2)), kind="inflated")
    groups = containers.read(sound).groups

    def with_error(error):
        values = groups["swiss_diagnostics"].assign(expected_error=error)
        changed = groups | {"swiss_diagnostics": values}
        return az_swiss.report(containers.build(changed))

    noted = with_error(0.3)
    assert noted.findings == ()
    assert "Expect an error of the order of 0.3 posterior sds" in noted.verdict
    assert "Nothing speaks against" not in noted.verdict
    assert "xpect an error" not in with_error(0.1).verdict
    assert "Nothing speaks against" in with_error(0.1).verdict
    assert [finding.flag for finding in with_error(0.6).findings] == ["expected error"]


@pytest.mark.parametrize("function", [az_swiss.report, az_swiss.summary])
def test_what_merge_did_not_make_is_refused(function, to_container):
    with pytest.raises(ValueError, match="not a merged object: no group swiss_transform"):
        function(to_container({"x": np.zeros((2, 10))}))

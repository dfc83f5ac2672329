"""A spoilt batch is named, and only it; a batch that is a little off is not."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from autoregressive import autoregressive
from spoilt_batches import flags, judged, named, partition, shift, sound_evidence, with_group

import arviz_swiss as az_swiss
from arviz_swiss.base.effective import size_by_chance
from arviz_swiss.checking import batch_findings as finders
from arviz_swiss.checking.batch_findings import ALONE, SHAPE, WIDE
from arviz_swiss.checking.statistics import FALSE_ALARM, RHAT, STUCK, VALLEY


@pytest.fixture(scope="module")
def sound():
    return sound_evidence()


def with_statistic(evidence, name, value):
    """Return the evidence with another value of the fourth batch, in the first parameter."""
    values = evidence.statistics[name].copy(deep=True)
    values[(3, 0) if values.ndim == 2 else 3] = value
    return replace(evidence, statistics=evidence.statistics.assign({name: values}))


# in one of 18 parameters of the batches, a hundred being enough
FEW = size_by_chance(100, FALSE_ALARM / 2 / 18)
# each with a value that is told, and one that is not
LIMITS = [
    (finders.find_unconverged, "did not converge", "rhat", RHAT + 0.001, RHAT - 0.001),
    (finders.find_few_effective, "few effective draws", "ess_within", FEW - 1, FEW + 1),
    (finders.find_few_effective, "few effective draws", "ess_within", FEW - 1, np.nan),
    (finders.find_bimodal, "bimodal", "valley", VALLEY + 0.01, VALLEY - 0.01),
    (finders.find_alone, "decides alone", "eigenvalue_max", (6.06 * ALONE) ** 0.5, 5.94**0.5 * 0.9),
    (finders.find_shape, "shape differs", "shape", 0.101 + SHAPE, 0.099 + SHAPE),
    (finders.find_divergences, "divergences", "divergences", 1, 0),
]


@pytest.mark.parametrize(("finder", "flag", "name", "told", "not_told"), LIMITS)
def test_limits_of_statistics(sound, finder, flag, name, told, not_told):
    zeros = np.zeros((6, 3))
    sound = replace(
        sound,
        statistics=sound.statistics.assign(
            shape_noise=(("batch", "parameter"), zeros + 0.05), divergences=("batch", zeros[:, 0])
        ),
    )
    assert list(finder(with_statistic(sound, name, not_told))) == []
    (finding,) = finder(with_statistic(sound, name, told))
    assert (finding.flag, finding.batches) == (flag, ("b3",))


@pytest.mark.parametrize(
    ("finder", "flag", "told", "not_told"),
    [
        (finders.find_stuck, "stuck", 0.9 * STUCK, 1.1 * STUCK),
        (finders.find_wide, "wide", 1.01 * WIDE, 0.99 * WIDE),
    ],
)
def test_limits_of_widths(sound, finder, flag, told, not_told):
    def as_wide(width):
        covariance = sound.merged.maps["covariance"].copy(deep=True)
        sds = np.sqrt(np.einsum("bii->bi", covariance))[[0, 1, 2, 4, 5], 0]
        # the median of six is the mean of the third and the fourth
        middle = np.sort(np.append(sds, width * 1e9 if width > 1 else 0))[2:4].mean()
        covariance[3, 0, 0] = (width * middle) ** 2
        return with_group(sound, "swiss_transform", sound.merged.maps.assign(covariance=covariance))

    assert list(finder(as_wide(not_told))) == []
    (finding,) = finder(as_wide(told))
    assert (finding.flag, finding.batches) == (flag, ("b3",))


@pytest.mark.parametrize(("finder", "flag", "name", "told", "not_told"), LIMITS[1:6])
def test_of_a_broken_batch_nothing_more_is_said(sound, finder, flag, name, told, not_told):
    broken = replace(with_statistic(sound, name, told), broken=frozenset({"b3"}))
    assert list(finder(broken)) == []


@pytest.mark.parametrize(
    "finder",
    [
        finders.find_unconverged,
        finders.find_few_effective,
        finders.find_bimodal,
        finders.find_shape,
        finders.find_divergences,
    ],
)
def test_what_needs_draws_is_silent_without_them(sound, finder):
    assert list(finder(replace(sound, statistics=sound.merged.diagnostics))) == []


def test_worst_first():
    assert finders.worst_first(np.array([1.0, 5.0, 3.0, 5.0]), 2.0) == [1, 3, 2]
    assert finders.worst_first(np.array([1.0, 2.0]), 2.0) == []


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
    assert flag in flags(report)
    assert "1 of 6 batches is in doubt: b3." in str(report)
    assert all(finding.remedy in str(report) for finding in report.findings)


def shift_a_little(draws):
    draws += 0.5 * np.sqrt(6)


def skew_a_little(draws):
    draws += 0.02 * draws**2


def part_a_little(draws):
    draws[:, ::2, 2] += 1.5


@pytest.mark.parametrize("spoil", [shift_a_little, skew_a_little, part_a_little])
def test_a_batch_that_is_a_little_off_is_not_named(spoil):
    batches = partition(np.random.default_rng(1))
    spoil(batches["b3"]["beta"])
    assert judged(batches).findings == ()


def test_drift_is_found_though_no_batch_is_odd():
    """A drift from first to last of half the range that chance gives to single means."""
    batches = partition(np.random.default_rng(0), count=20)
    for b in range(20):
        batches[f"b{b}"]["beta"] += np.sqrt(20) * (b - 9.5) / 9.5 * 2
    report = judged(batches)
    assert "disagree" in flags(report)
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


def test_divergences_and_few_effective_draws(to_container):
    rng = np.random.default_rng(0)
    batches = {}
    for b in range(3):
        slow = np.repeat(rng.standard_normal((4, 3 if b else 150)), 100 if b else 2, axis=1)
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


def test_few_effective_draws_of_the_median_parameter(sound):
    statistics = sound.statistics
    sizes = statistics["ess_within"].copy(deep=True)
    # of single parameters that could be chance, of most it is not
    sizes[3], sizes[4, 0] = 30.0, 30.0
    (finding,) = finders.find_few_effective(
        replace(sound, statistics=statistics.assign(ess_within=sizes))
    )
    assert finding.batches == ("b3",)
    assert finding.what == "b3 has only 30 effective draws of the median parameter."
    assert "at least 100 effective draws" in finding.remedy


def test_what_chance_allows_is_not_told(sound):
    statistics = sound.statistics
    few = replace(
        sound,
        statistics=statistics.assign(
            rhat=xr.full_like(statistics["rhat"], 1.09),
            rhat_limit=xr.full_like(statistics["rhat"], 1.1),
        ),
    )
    assert list(finders.find_unconverged(few)) == []
    (finding,) = finders.find_unconverged(with_statistic(few, "rhat", 1.11))
    assert finding.what == f"b3 did not converge: R-hat is 1.11 in {sound.merged.parameters[0]}."


def short_batches(seed, shape, size=28, count=20):
    """Draw inflated batches of independent parameters, each of unit information.

    All draws of a batch are worth 150 independent ones.
    """
    rng, draws = np.random.default_rng(seed), np.prod(shape)
    sd, correlation = count**-0.5, (draws - 150) / (draws + 150)
    batches = {}
    for b in range(count):
        chains = autoregressive(rng, correlation, *shape, size)
        batches[f"b{b}"] = {"x": rng.normal(size=size) + sd * chains}
    return batches, sd


@pytest.mark.parametrize("shape", [(4, 60), (1, 150)])
def test_short_but_good_batches_are_not_accused(shape):
    batches, _ = short_batches(1, shape)
    # warnings are errors
    merged = az_swiss.merge(batches, kind="inflated", covariance="corrected")
    report = az_swiss.report(merged)
    assert report.findings == ()
    assert str(report).count("\n") == 1
    # by the limits of long runs some would have been
    least = report.statistics[["ess_bulk", "ess_tail"]].min().to_array().min()
    assert report.statistics["rhat"].max() > RHAT or least < 100


def off_in_half(draws, sd):
    draws[0, :, :14] += sd


def off_in_one(draws, sd):
    draws[0, :, 5] += 2 * sd


def stand_still(draws, sd):
    draws[...] = draws[:, :1] + 1e-5 * draws


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
@pytest.mark.parametrize("spoil", [off_in_half, off_in_one, stand_still])
def test_a_bad_one_among_short_batches_is_named(spoil):
    batches, sd = short_batches(1, (4, 60))
    spoil(batches["b7"]["x"], sd)
    report = az_swiss.report(az_swiss.merge(batches, kind="inflated", covariance="corrected"))
    assert ("did not converge", ("b7",)) in [(f.flag, f.batches) for f in report.findings]
    assert {label for f in report.findings for label in f.batches} == {"b7"}

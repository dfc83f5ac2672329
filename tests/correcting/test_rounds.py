import re

import numpy as np
import pytest
import xarray as xr

from arviz_swiss.base.gaussian import Round, gaussian
from arviz_swiss.correcting import rounds
from arviz_swiss.correcting.rounds import Rounds
from arviz_swiss.merging.records import Doubt, read_refinement

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

"""What certify and refine recorded, read back as data and as words."""

import numpy as np
import pytest
import xarray as xr

from arviz_swiss.data import containers, schema
from arviz_swiss.merging.records import (
    CERTIFIED,
    USABLE,
    Doubt,
    Verdict,
    count_rounds,
    describe_pilot,
    read_certificate,
    read_refinement,
)


def certificate(verdict, weights=6, weighed=6):
    return xr.Dataset(
        {
            "log_weight": (("chain", "draw"), np.zeros((2, weights // 2))),
            "khat": 0.25,
            "effective_size": 5.0,
            "weighed": weighed,
        },
        attrs=dict(zip((schema.STATUS, schema.REASON, schema.REMEDY), verdict, strict=True)),
    )


def rounds(taken, doubt=None):
    count = len(taken)
    return xr.Dataset(
        {
            "step": ("round", np.arange(count) / 10),
            "step_error": ("round", np.arange(count) / 100),
            "taken": ("round", np.array(taken)),
        },
        attrs=dict(zip(schema.REFINE_ATTRS, doubt, strict=True)) if doubt else {},
    )


def through_a_file(dataset, name, folder):
    groups = {"posterior": xr.Dataset({"x": 1.0}), name: dataset}
    path = folder / "merged.nc"
    containers.build(groups).to_netcdf(path)
    return containers.read(path).groups


def test_a_certificate_survives_a_file(tmp_path):
    verdict = Verdict(USABLE, "k-hat is fair", "")
    groups = through_a_file(certificate(verdict), schema.CERTIFICATE, tmp_path)
    read = read_certificate(groups)
    assert read.verdict == verdict
    assert read.khat == 0.25
    assert not read.is_certified


def test_a_certificate_in_words():
    def describe(**sizes):
        dataset = certificate(Verdict(CERTIFIED, "all is well", "go on"), **sizes)
        return read_certificate({schema.CERTIFICATE: dataset}).describe()

    assert describe() == (
        "certified (k-hat 0.25, 5 effective of 6 weighed draws): all is well. Go on."
    )
    assert "of 6 weighed draws, of which 4 were selected since" in describe(weights=4)


def test_no_certificate_and_one_without_a_status():
    assert read_certificate({}) is None
    with pytest.raises(ValueError, match=r"has lost its attributes .*status.* call certify again"):
        read_certificate({schema.CERTIFICATE: xr.Dataset({"khat": 0.1})})


@pytest.mark.parametrize(
    ("taken", "steps", "undone"),
    [
        ([True], [], 0),
        ([True, True, True], [0.1, 0.2], 0),
        ([True, True, False, False], [0.1], 2),
        ([True, False], [], 1),
        ([True, False, True], [0.2], 0),
    ],
)
def test_rounds_that_moved_the_draws_and_that_were_undone(taken, steps, undone):
    refinement = read_refinement(rounds(taken))
    np.testing.assert_allclose(refinement.steps, steps)
    np.testing.assert_allclose(refinement.errors, np.array(steps) / 10)
    assert refinement.undone == undone
    assert refinement.is_settled == bool(steps)
    assert ("was undone" in refinement.describe()) == bool(undone)


def test_without_rounds_there_is_nothing_to_say():
    refinement = read_refinement(xr.Dataset())
    assert not refinement.is_refined
    assert refinement.describe() == ""


def test_a_doubt_survives_a_file(tmp_path):
    doubt = Doubt("not settled", "the last step is large", "more rounds")
    groups = through_a_file(rounds([True, True], doubt), schema.TRANSFORM, tmp_path)
    refinement = read_refinement(groups[schema.TRANSFORM])
    assert refinement.doubt == doubt
    assert refinement.is_refined
    assert not refinement.is_settled
    assert refinement.describe().startswith("Refined in 1 round, by 0.1 posterior sds")


def test_rounds_are_counted_in_words():
    assert [count_rounds(count) for count in (1, 2)] == ["1 round", "2 rounds"]


@pytest.mark.parametrize(
    "status, khat, effective, words",
    [
        (CERTIFIED, 0.04, 198, "would have done better"),
        (CERTIFIED, 0.04, 180, "would have done as well: k-hat 0.04, 90% of its draws effective"),
        (CERTIFIED, 0.3, 152, "would have done as well"),
        (CERTIFIED, 0.3, 148, "would have done less well"),
        (CERTIFIED, 0.6, 190, "would have done less well"),
        (CERTIFIED, 0.8, 20, "would not have done: k-hat 0.80, 10% of its draws effective"),
        (USABLE, 0.1, 160, "would have done better"),
    ],
)
def test_what_the_pilot_would_have_got(status, khat, effective, words):
    dataset = certificate(Verdict(status, "why", "")).assign(
        pilot_khat=khat, pilot_effective_size=effective, pilot_draws=200
    )
    text = describe_pilot(read_certificate({schema.CERTIFICATE: dataset}), "Laplace")
    assert text.startswith(f"The pilot's Gaussian alone (Laplace) {words}")
    assert text.endswith(", against 0.25 and 83% of the merged draws.")


def test_without_a_pilot_there_is_nothing_to_say():
    record = read_certificate({schema.CERTIFICATE: certificate(Verdict(CERTIFIED, "why", ""))})
    assert describe_pilot(record, "") == ""

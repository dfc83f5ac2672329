import re

import pytest

from arviz_swiss.base import weights
from arviz_swiss.correcting.certificate import Evidence, judge


def evidence(khat=0.3, effective=950, **others):
    """Return what speaks for a merge, with exceptions; `shift` and others have no error."""
    names = ("shift", "shift_error", "stretch", "stretch_error")
    change = weights.Change(*(others.pop(name, 0.0) for name in names))
    plain = {"overlap_error": 0.0, "doubt": "", "bounded": [], "refined": True, "method": "swiss"}
    plain |= {"undone": False, "sampling_error": 0.0}
    given = {"khat": khat, "effective": effective, "weighed": 1000, "draws": 8000, "change": change}
    return Evidence(**given | plain | others)


@pytest.mark.parametrize(
    ("found", "status", "remedy"),
    [
        ({"effective": 800}, "certified", ""),
        # k-hat of a thousand weights that are nearly equal is mostly noise
        ({"khat": 0.6}, "certified", ""),
        ({"khat": 0.6, "effective": 800}, "usable", "call refine again, or resample"),
        ({"shift": 0.3}, "usable", "call refine again, or resample"),
        ({"shift": 0.3, "refined": False}, "usable", "call refine, or resample"),
        ({"stretch": 0.3}, "usable", "call refine again, or resample"),
        # noise explains them
        ({"shift": 0.21, "shift_error": 0.15}, "certified", ""),
        ({"stretch": 0.15, "stretch_error": 0.16}, "certified", ""),
        # nothing can be told through such noise
        ({"shift_error": 0.3}, "not certified", "sample longer: 8000 merged"),
        ({"stretch_error": 0.25}, "not certified", r"certify\(merged, densities, draws=6300\)"),
        ({"shift": 0.5, "stretch_error": 0.25}, "usable", "call refine again"),
        ({"khat": 0.9}, "usable", "trust no quantiles beyond 10% and 90%"),
        # equal weights, whatever their tail
        ({"khat": 2.9, "effective": 999.7}, "certified", ""),
        ({"khat": 2.9, "effective": 999.7, "shift_error": 0.3}, "not certified", "sample longer"),
        # what the batches' draws leave is not lowered by weighing more
        ({"stretch_error": 0.25, "sampling_error": 0.1}, "not certified", "draws=7000"),
        ({"stretch_error": 0.25, "sampling_error": 0.24}, "not certified", "^sample longer"),
        # refine led away
        ({"shift": 0.3, "refined": False, "undone": True}, "usable", "^resample to use the w.*few"),
        (
            {"khat": 0.9, "effective": 500, "refined": False, "undone": True},
            "not certified",
            "^merge fewer and larger batches",
        ),
        ({"khat": 0.9, "shift": 0.3}, "not certified", "^merge fewer and larger batches"),
        ({"khat": 0.9, "effective": 500, "refined": False}, "not certified", "^call refine, or m"),
        ({"khat": 0.9, "bounded": ["tau"]}, "not certified", "unbounded scale"),
        ({"doubt": "wrong", "khat": 0.1}, "not certified", "pass the densities"),
        ({"overlap_error": 1.0}, "not certified", "fewer and larger"),
        ({"overlap_error": 1.0, "method": "pool"}, "not certified", 'method="swiss"'),
    ],
)
def test_verdicts(found, status, remedy):
    verdict = judge(evidence(**found))
    assert verdict.status == status
    assert re.search(remedy, verdict.remedy)
    assert bool(verdict.remedy) == (status != "certified")

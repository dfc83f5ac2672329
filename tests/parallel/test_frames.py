"""Frames of other libraries than pandas, in memory."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from arviz_swiss.parallel.levels import how_to_use, share_levels
from arviz_swiss.parallel.partition import partition, row_count, take
from arviz_swiss.parallel.store import fingerprint

FRAME = pd.DataFrame(
    {"x": np.arange(12.0), "site": list("aabbccddeeff"), "month": ["may", "june"] * 6}
)
FRAMES = {"polars": pl.from_pandas(FRAME), "pyarrow": pa.Table.from_pandas(FRAME)}


@pytest.fixture(params=list(FRAMES))
def frame(request):
    return FRAMES[request.param]


def to_pandas(frame):
    return frame.to_pandas()


def test_rows_are_counted_and_taken_as_the_same_type(frame):
    assert row_count(frame) == 12
    taken = take(frame, [3, 0])
    assert type(taken) is type(frame)
    assert to_pandas(taken)["x"].tolist() == [3.0, 0.0]


def test_they_are_divided_like_those_of_pandas(frame):
    for labels in ({}, {"groups": "site"}, {"stratify": "month"}):
        indices = partition(frame, 3, random_seed=1, **labels)
        expected = partition(FRAME, 3, random_seed=1, **labels)
        assert all(map(np.array_equal, indices, expected))


def test_a_name_that_is_no_column_is_refused(frame):
    with pytest.raises(ValueError, match=r"groups='place' is not a column of the data .* site"):
        partition(frame, 2, groups="place")


def test_fingerprints_follow_the_values(frame):
    assert fingerprint(frame) == fingerprint(take(frame, np.arange(12)))
    assert fingerprint(frame) != fingerprint(take(frame, np.arange(12)[::-1]))


def test_shared_levels_stay_whatever_is_taken(frame):
    data = take(share_levels(frame, ["month"]), [0])
    names = {"data": data, "np": np}
    coords, codes = (line.strip() for line in how_to_use(data, "month").splitlines())
    levels = eval(coords.removeprefix("coords="), names)["month"]
    assert list(levels) == ["june", "may"]
    assert np.asarray(eval(codes, names)).tolist() == [1]


def test_a_missing_level_is_refused(frame):
    holes = FRAME.assign(month=FRAME["month"].where(FRAME["x"] != 4))
    data = pl.from_pandas(holes) if isinstance(frame, pl.DataFrame) else pa.Table.from_pandas(holes)
    with pytest.raises(ValueError, match="1 missing levels, the first in row 4"):
        share_levels(data, ["month"])

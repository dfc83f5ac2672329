import numpy as np
import pytest

from arviz_swiss.base.counts import check_count


@pytest.mark.parametrize(("value", "least"), [(1, 1), (np.int32(7), 5), (0, 0), (10**20, 1)])
def test_integers_that_are_large_enough(value, least):
    check_count("draws", value, least)


@pytest.mark.parametrize(
    ("value", "least"), [(0, 1), (4, 5), (-1, 0), (2.0, 1), (True, 1), (np.True_, 1), ("3", 1)]
)
def test_anything_else_is_refused_by_name(value, least):
    with pytest.raises(ValueError, match=f"draws must be an integer of at least {least}, got "):
        check_count("draws", value, least)


def test_one_is_the_least_by_default():
    with pytest.raises(ValueError, match="of at least 1, got None"):
        check_count("draws", None)

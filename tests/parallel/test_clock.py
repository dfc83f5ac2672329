import time

import pytest

from arviz_swiss.parallel.clock import Clock


def test_stages_are_timed_in_the_order_they_began():
    clock = Clock()
    with clock("sleep"):
        time.sleep(0.05)
    with clock("work"):
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
    assert list(clock.wall) == list(clock.cpu) == ["sleep", "work"]
    assert clock.wall["sleep"] >= 0.05 > clock.cpu["sleep"]
    assert clock.cpu["work"] >= 0.05


def test_a_stage_that_is_entered_again_or_left_by_an_error_counts():
    clock = Clock()
    for _ in range(2):
        with pytest.raises(KeyError), clock("stage"):
            time.sleep(0.02)
            raise KeyError
    assert clock.wall["stage"] >= 0.04

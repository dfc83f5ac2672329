import numpy as np
import pytest

from arviz_swiss.correcting.provenance import Own, edges, examine


def own(rng, label="north", width=1.0, shift=0.0, shape=(2, 50, 3)):
    draws = width * rng.standard_normal(shape) + shift
    return Own(label, draws, -draws, width**2 * np.eye(shape[-1]))


ALL = np.ones(3, dtype=bool)


def test_right_draws_are_not_doubted():
    rng = np.random.default_rng(0)
    found = examine([own(rng, str(position)) for position in range(10)], ALL)
    assert found.doubt == ""
    assert found.offsets.max() < 5 * np.sqrt(3 / 100)
    np.testing.assert_allclose(found.widths, 1.0, atol=5 * np.sqrt(2 / 300) / 2)


def test_one_batch_of_another_width_is_named():
    rng = np.random.default_rng(1)
    found = examine([*(own(rng, str(i)) for i in range(20)), own(rng, "west", 2.0)], ALL)
    assert found.widths[-1] == pytest.approx(2.0, rel=0.2)
    assert found.doubt.startswith("the draws of west (")
    assert "times as wide) have not the sds" in found.doubt
    assert found.doubt.endswith("wrong kind or powers")


def test_many_batches_of_few_draws_are_doubted_together():
    rng = np.random.default_rng(2)
    few = [own(rng, str(position), 0.5, shape=(2, 3, 3)) for position in range(100)]
    found = examine(few, ALL)
    assert np.isnan(found.offsets).all() and np.isnan(found.widths).all()
    assert found.doubt.startswith("the draws of the batches (0.5")
    assert "times as wide, on the whole) have not the sds" in found.doubt


def test_a_shift_is_told_from_another_width():
    rng = np.random.default_rng(3)
    found = examine([own(rng), own(rng, "west", shift=1.0)], ALL)
    assert found.doubt.startswith("the draws of west (off by 1.")
    assert "do not come from the densities" in found.doubt
    assert "wrong kind" not in found.doubt


def test_a_width_that_does_no_harm_is_left_alone():
    rng = np.random.default_rng(4)
    # seen by 60,000 draws: 2% of an sd
    assert examine([own(rng, width=1.02, shape=(4, 15_000, 3))], ALL).doubt == ""


def test_parameters_that_are_not_tested_do_not_count():
    rng = np.random.default_rng(5)
    draws = rng.standard_normal((2, 50, 3))
    draws[..., 1] = np.abs(draws[..., 1])
    bounded = [Own("north", draws, -draws, np.eye(3))]
    assert "do not come" in examine(bounded, ALL).doubt
    assert examine(bounded, np.array([True, False, True])).doubt == ""
    nothing = examine(bounded, np.zeros(3, dtype=bool))
    assert nothing.doubt == "" and np.isnan(nothing.offsets).all()


def test_edges_are_those_of_parameters_that_explain_what_is_outside():
    rng = np.random.default_rng(6)
    points = rng.standard_normal((500, 4))
    inside = (points[:, 1] > -1) & (points[:, 3] < 1.5)
    found = edges(points, np.where(inside, 0.0, -np.inf))
    np.testing.assert_array_equal(found, [False, True, False, True])
    assert not edges(points, np.zeros(500)).any()
    assert edges(points, np.full(500, -np.inf)).all()


def test_edges_that_no_parameter_explains_may_be_of_any():
    points = np.random.default_rng(7).uniform(size=(500, 2))
    assert edges(points, np.where(np.ptp(points, axis=1) < 0.3, -np.inf, 0.0)).all()

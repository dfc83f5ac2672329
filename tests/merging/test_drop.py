"""merge(drop=): what remains stands for what it says."""

import warnings

import numpy as np
import pytest

import arviz_swiss as az_swiss
from arviz_swiss import MergeWarning
from arviz_swiss.data import containers

PRIOR = np.diag([0.5, 2.0])


@pytest.fixture
def gaussian(exact_draws, random_covariance):
    """Return a function that makes exact Gaussian batches, and the precisions of their data."""

    def make(prior_power, power, count=5):
        rng = np.random.default_rng(0)
        data = [np.linalg.inv(random_covariance(rng, 2)) for _ in range(count)]
        batches = {}
        for b, information in enumerate(data):
            covariance = np.linalg.inv(prior_power * PRIOR + power * information)
            batches[f"b{b}"] = {"x": exact_draws(rng, 0.1 * rng.standard_normal(2), covariance)}
        return batches, data

    return make


def transform(merged):
    return containers.read(merged).groups["swiss_transform"]


def test_inflated_batches_stand_for_as_many_rows(gaussian):
    batches, data = gaussian(1.0, 5.0)
    merged = az_swiss.merge(batches, drop=["b1", "b4"], kind="inflated")
    expected = PRIOR + 5 / 3 * (data[0] + data[2] + data[3])
    np.testing.assert_allclose(
        transform(merged)["pooled_covariance"], np.linalg.inv(expected), rtol=1e-8
    )
    np.testing.assert_allclose(transform(merged)["power"], 3.0)
    assert transform(merged)["batch"].values.tolist() == ["b0", "b2", "b3"]
    attrs = merged["posterior"].attrs
    assert list(attrs["swiss_dropped"]) == ["b1", "b4"]
    assert attrs["swiss_stands_for"] == (
        "as many rows as before, all like those of the remaining 3 batches"
    )


def test_fractionated_batches_keep_the_priors_remaining_share(gaussian):
    batches, data = gaussian(0.2, 1.0)
    merged = az_swiss.merge(batches, kind="fractionated", drop="b1")
    expected = 0.8 * PRIOR + sum(data) - data[1]
    np.testing.assert_allclose(
        transform(merged)["pooled_covariance"], np.linalg.inv(expected), rtol=1e-8
    )
    assert merged["posterior"].attrs["swiss_stands_for"] == (
        "the rows of the remaining 4 batches only, under the prior to the power 0.8"
    )
    assert merged["posterior"].attrs["swiss_dropped"] == "b1"


def test_full_prior_batches_still_count_the_whole_prior(gaussian, exact_draws):
    batches, data = gaussian(1.0, 1.0)
    prior = exact_draws(np.random.default_rng(1), np.zeros(2), np.linalg.inv(PRIOR))
    merged = az_swiss.merge(batches, kind="full_prior", prior={"x": prior}, drop=[1])
    expected = PRIOR + sum(data) - data[1]
    np.testing.assert_allclose(
        transform(merged)["pooled_covariance"], np.linalg.inv(expected), rtol=1e-8
    )
    assert "under the whole prior" in merged["posterior"].attrs["swiss_stands_for"]


@pytest.mark.parametrize("method", ["swiss", "consensus"])
def test_the_dropped_batch_leaves_no_trace(gaussian, method):
    batches, _ = gaussian(1.0, 5.0)
    clean = az_swiss.merge(batches, method=method, drop="b3", kind="inflated")
    batches["b3"] = {"x": batches["b3"]["x"] + 1e6}
    np.testing.assert_array_equal(
        az_swiss.merge(batches, method=method, drop=3, kind="inflated")["posterior"]["x"],
        clean["posterior"]["x"],
    )


def test_undo_of_a_merge_with_drop_merges_to_the_same(gaussian):
    batches, _ = gaussian(1.0, 5.0)
    merged = az_swiss.merge(batches, drop="b3", kind="inflated")
    again = az_swiss.merge(az_swiss.subposteriors(merged))
    np.testing.assert_allclose(again["posterior"]["x"], merged["posterior"]["x"], rtol=1e-8)


def test_powers_are_given_for_all_batches(gaussian):
    batches, _ = gaussian(1.0, 5.0)
    powers = [2.0, 4.0, 8.0, 16.0, 16.0]
    merged = az_swiss.merge(batches, powers=powers, drop="b0")
    np.testing.assert_allclose(transform(merged)["power"], [2.0, 4.0, 8.0, 8.0])


@pytest.mark.parametrize("drop", ["b9", 7, -1, ["b1", "nothing"], [1.5], 1.0])
def test_unknown_batches_are_refused(gaussian, drop):
    with pytest.raises(ValueError, match=r'drop names .*, but the batches are "b0", "b1"'):
        az_swiss.merge(gaussian(1.0, 5.0)[0], drop=drop)


def test_not_all_batches_can_be_dropped(gaussian):
    with pytest.raises(ValueError, match="drop names all 5 batches"):
        az_swiss.merge(gaussian(1.0, 5.0)[0], drop=range(5))


def test_pvalues_stay_uniform_when_half_the_batches_are_dropped():
    """Standard error sqrt(.1 * .9 / 200) = 2.1%; the bound is four of them."""
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((2, 500, 2))
    low = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MergeWarning)
        for _ in range(200):
            centres = np.sqrt(8) * rng.standard_normal((8, 2))
            merged = az_swiss.merge(
                [{"x": draws + centre} for centre in centres], drop=range(4), kind="inflated"
            )
            found = containers.read(merged).groups["swiss_diagnostics"]
            low.append(float(found["q_pvalue"]) < 0.1)
    assert abs(np.mean(low) - 0.1) < 0.085


def test_an_integer_that_is_a_label_and_another_ones_position(gaussian):
    batches, _ = gaussian(1.0, 3.0, count=3)
    batches = {number: batch for number, batch in zip([1, 2, 3], batches.values(), strict=True)}
    message = r'drop names 1, which is the label of batch 0 \("1"\) and the position of batch 1'
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(batches, drop=1)
    merged = az_swiss.merge(batches, drop="1", kind="inflated")
    assert transform(merged)["batch"].values.tolist() == ["2", "3"]


def test_what_was_dropped_is_not_said_of_a_later_merge(gaussian):
    batches, _ = gaussian(1.0, 5.0)
    kept = az_swiss.subposteriors(az_swiss.merge(batches, drop="b1", kind="inflated"))
    assert [type(label) for label in kept] == [str] * 4
    for batch in kept.values():
        said = containers.read(batch).groups["posterior"].attrs
        assert not {"swiss_dropped", "swiss_stands_for"} & set(said)


def test_positions_and_labels_of_other_types(random_batches):
    batches = random_batches(np.random.default_rng(0), batches=3)
    labelled = dict(zip((10, 20, 30), batches, strict=True))
    for drop in (np.int64(1), np.array([1])):
        assert az_swiss.merge(batches, drop=drop, kind="inflated")[
            "swiss_transform"
        ].batch.values.tolist() == [
            "b0",
            "b2",
        ]
    assert az_swiss.merge(labelled, drop=20, kind="inflated")[
        "swiss_transform"
    ].batch.values.tolist() == [
        "10",
        "30",
    ]
    with pytest.raises(TypeError, match="labels or positions of batches, got True"):
        az_swiss.merge(batches, drop=True)

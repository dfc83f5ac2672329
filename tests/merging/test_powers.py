"""Powers from arguments and attributes; what remains of them when batches are dropped."""

import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import arviz_swiss as az_swiss
from arviz_swiss import MergeWarning
from arviz_swiss.data import containers


@pytest.fixture
def batches(to_container):
    """Three batches of 10, 20 and 30 observations."""
    rng = np.random.default_rng(0)
    return [
        to_container({"x": rng.standard_normal((2, 500))}, observed_data={"y": np.ones(size)})
        for size in (10, 20, 30)
    ]


def powers_of(merged):
    return containers.read(merged).groups["swiss_transform"]["power"].values.tolist()


def test_unequal_sizes_without_powers_are_warned_of(batches):
    with pytest.warns(MergeWarning, match="10 to 30 observations.*power 3.*total_size=N"):
        merged = az_swiss.merge(batches, kind="inflated")
    assert powers_of(merged) == [3, 3, 3]


def test_given_powers_are_used_without_a_warning(batches):
    assert powers_of(az_swiss.merge(batches, powers=[6, 3, 2])) == [6, 3, 2]
    assert powers_of(az_swiss.merge(batches, powers={"b2": 2, "b1": 3, "b0": 6})) == [6, 3, 2]


def test_powers_are_read_from_the_attributes():
    rng = np.random.default_rng(0)
    batches = [
        xr.Dataset({"x": (("chain", "draw"), rng.standard_normal((2, 500)))}).assign_attrs(
            swiss_power=power, swiss_kind="inflated"
        )
        for power in (6.0, 3.0, 2.0)
    ]
    assert powers_of(az_swiss.merge(batches)) == [6, 3, 2]


def test_weight_is_one_over_the_power():
    """With unit variances the merged mean is sum(mean / power)."""
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((1, 500))
    draws = (draws - draws.mean()) / draws.std(ddof=1)
    batches = [{"x": draws + mean} for mean in (0.0, 0.1, 0.2)]
    merged = az_swiss.merge(batches, powers=[6, 3, 2])
    np.testing.assert_allclose(
        containers.read(merged).groups["posterior"]["x"].mean(), 0.1 / 3 + 0.2 / 2
    )


class Gaussian:
    """A Gaussian model in batches: the moments that each has, and those of some of its rows."""

    def __init__(self, batches, size=2):
        rng = np.random.default_rng(0)
        self.prior = np.eye(size)
        factors = rng.standard_normal((batches, size, size))
        self.precisions = factors @ factors.transpose(0, 2, 1) + np.eye(size)
        self.naturals = rng.standard_normal((batches, size))

    def moments(self, likelihood_power, prior_power, batches):
        precision = prior_power * self.prior + likelihood_power * self.precisions[batches].sum(0)
        covariance = np.linalg.inv(precision)
        return likelihood_power * covariance @ self.naturals[batches].sum(0), covariance


@pytest.mark.parametrize("kind", ["inflated", "fractionated"])
def test_missing_batches_are_asked_for(kind, exact_draws):
    """With all of them, or with draws of the prior, the posterior is right."""
    count, rng = 4, np.random.default_rng(1)
    problem = Gaussian(count)
    power, prior_power = (count, 1.0) if kind == "inflated" else (1.0, 1 / count)
    attrs = {"swiss_kind": kind, "swiss_power": power, "swiss_prior_power": prior_power}

    def draws(*moments, **attrs):
        dims = ("chain", "draw", "term")
        return xr.Dataset({"x": (dims, exact_draws(rng, *moments))}, attrs=attrs)

    batches = [
        draws(*problem.moments(power, prior_power, [b]), swiss_batch=f"b{b}", **attrs)
        for b in range(count)
    ]
    given = [batches[0], batches[2]]
    message = (
        r"counted 0\.5 times.*are batches missing\? These 2 hold 50% of the rows.*about 4 "
        r"\(b1, b3 not among them\)\. Pass all of them"
    )
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(given)
    prior = draws(np.zeros(2), np.linalg.inv(problem.prior))
    for merged, rows in (
        (az_swiss.merge(batches), [0, 1, 2, 3]),
        (az_swiss.merge(given, prior=prior, covariance="sample"), [0, 2]),
    ):
        mean, covariance = problem.moments(1.0, 1.0, rows)
        maps = containers.read(merged).groups["swiss_transform"]
        np.testing.assert_allclose(maps["pooled_mean"], mean, rtol=1e-9)
        np.testing.assert_allclose(maps["pooled_covariance"], covariance, rtol=1e-9)


def test_missing_batches_are_asked_for_without_attributes_too(batches):
    with pytest.raises(
        ValueError, match=r"are batches missing\? These 2 .*there should be about 6"
    ):
        az_swiss.merge(batches[:2], kind="inflated", powers=6)


@pytest.fixture
def halves(exact_draws):
    """Two merged halves of a Gaussian problem's four batches, the problem, and its prior."""
    rng, problem = np.random.default_rng(2), Gaussian(4)

    def draws(*moments):
        dims = ("chain", "draw", "term")
        return xr.Dataset({"x": (dims, exact_draws(rng, *moments))})

    merged = [
        az_swiss.merge([draws(*problem.moments(2.0, 1.0, [b])) for b in pair], kind="inflated")
        for pair in ([0, 1], [2, 3])
    ]
    return problem, merged, draws(np.zeros(2), np.linalg.inv(problem.prior))


def test_merged_objects_are_plain_runs(halves):
    problem, merged, prior = halves
    with pytest.raises(ValueError, match=r'batch 0 .*itself a merged.*kind="full_prior" with pri'):
        az_swiss.merge(merged)
    whole = az_swiss.merge(merged, kind="full_prior", prior=prior)
    maps = containers.read(whole).groups["swiss_transform"]
    mean, covariance = problem.moments(1.0, 1.0, [0, 1, 2, 3])
    # moments of chains end to end differ from the pooled by their number of degrees of freedom
    np.testing.assert_allclose(maps["pooled_mean"], mean, rtol=0.01)
    np.testing.assert_allclose(maps["pooled_covariance"], covariance, rtol=0.01)
    for half, found in zip(merged, az_swiss.subposteriors(whole).values(), strict=True):
        expected = containers.read(half).groups["posterior"]["x"]
        found = containers.read(found).groups["posterior"]["x"]
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_one_merged_object_is_what_it_was(halves):
    _, merged, _ = halves
    expected = containers.read(merged[0]).groups["posterior"]["x"]
    again = containers.read(az_swiss.merge(merged[:1])).groups["posterior"]["x"]
    np.testing.assert_allclose(again, expected, rtol=1e-9)


def test_batches_of_a_merged_object_merge_again(halves):
    _, merged, _ = halves
    back = az_swiss.subposteriors(merged[0])
    again = containers.read(az_swiss.merge(back)).groups["posterior"]["x"]
    np.testing.assert_allclose(again, containers.read(merged[0]).groups["posterior"]["x"])


@pytest.mark.parametrize("attrs", [{"swiss_kind": "full_prior"}, {"swiss_power": 2.0}])
def test_one_batch_does_not_speak_for_all(attrs):
    rng = np.random.default_rng(3)
    batches = [
        xr.Dataset({"x": (("chain", "draw"), rng.standard_normal((2, 500)))}) for _ in range(2)
    ]
    batches[1].attrs = attrs
    message = r"batch 0 \(.b0.\) does not say what it was sampled from, batch 1 .*Pass the kind"
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(batches)


def test_rounded_powers_are_told_so(batches):
    sizes = np.array([3, 3, 4])
    message = r"counted 1\.0000\d* times.*look rounded: pass N / n_b unrounded"
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(batches, kind="inflated", powers=[3.333, 3.333, 2.5])
    exact = powers_of(az_swiss.merge(batches, kind="inflated", powers=10 / sizes))
    np.testing.assert_allclose(exact, 10 / sizes)


def test_powers_of_a_series_are_matched_by_label(random_batches):
    batches = dict(zip("ab", random_batches(np.random.default_rng(0), batches=2), strict=True))
    powers = pd.Series({"b": 4.0, "a": 4 / 3})
    merged = az_swiss.merge(batches, powers=powers)
    np.testing.assert_allclose(merged["swiss_transform"]["power"], [4 / 3, 4.0])
    by_position = pd.Series([4 / 3, 4.0])
    merged = az_swiss.merge(batches, powers=by_position)
    np.testing.assert_allclose(merged["swiss_transform"]["power"], [4 / 3, 4.0])


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

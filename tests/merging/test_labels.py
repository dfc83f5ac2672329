"""Labels that number the batches, and lists beside batches that are not in their order."""

import numpy as np
import pandas as pd
import pytest

import arviz_swiss as az_swiss
from arviz_swiss.data import containers
from arviz_swiss.merging.labels import (
    are_shuffled,
    by_batch,
    choose_labels,
    numbers_of,
    positions_kept,
    renumbered,
)

QUIET = {"progressbar": False}
COUNT = 12


@pytest.mark.parametrize(
    ("labels", "numbers"),
    [
        (["b0", "b1", "b10", "b2"], [0, 1, 10, 2]),
        (["2", "1", "0"], [2, 1, 0]),
        (["run-3-x", "run-20-x"], [3, 20]),
        (["north", "south"], None),
        (["b0", "c1"], None),
        (["2024-1", "2024-2"], [1, 2]),
        (["run_2024_1", "run_2024_10", "run_2024_2"], [1, 10, 2]),
        (["v2-part10-of12", "v2-part9-of12"], [10, 9]),
        (["2024-1", "2025-2"], None),
        (["b7"], [7]),
        (["2024-1"], None),
    ],
)
def test_numbers_in_labels(labels, numbers):
    assert numbers_of(labels) == numbers
    assert are_shuffled(labels) == (numbers is not None and numbers != sorted(numbers))


def test_labels_are_renumbered():
    assert renumbered(["b0"], 12) == "b12"
    assert renumbered(["2024-003.x", "2024-004.x"], 12) == "2024-012.x"


def test_labels_are_recorded_ones_else_files_else_positions():
    assert choose_labels(["b3", "b1"], ["x.nc", "y.nc"]) == ["b3", "b1"]
    assert choose_labels([None, "b1"], ["in/b10.nc", "in/b2.zarr"]) == ["b10", "b2"]
    assert choose_labels([None, None], ["one/run.nc", "two/run.nc"]) == ["b0", "b1"]
    assert choose_labels(["b0", "b0"], ["", ""]) == ["b0", "b1"]


NORTH_SOUTH = ["north", "south"]


@pytest.mark.parametrize(
    ("given", "labels", "values"),
    [
        ([1, 2], NORTH_SOUTH, [1, 2]),
        (np.array([1, 2]), NORTH_SOUTH, [1, 2]),
        ({"south": 2, "north": 1}, NORTH_SOUTH, [1, 2]),
        ({1: 2, 0: 1}, NORTH_SOUTH, [1, 2]),
        ({np.int64(1): 2, np.int64(0): 1}, NORTH_SOUTH, [1, 2]),
        ({2: 2, 1: 1}, ["1", "2"], [1, 2]),
        ({0: "last", 1: "first"}, ["1", "0"], ["first", "last"]),
        (pd.Series([2, 1], index=["south", "north"]), NORTH_SOUTH, [1, 2]),
        ([7], ["b3"], [7]),
    ],
)
def test_values_by_label_or_position(given, labels, values):
    assert by_batch(given, labels, "powers", "power") == values


@pytest.mark.parametrize(
    ("given", "labels", "error", "message"),
    [
        (
            {"north": 1, "east": 2},
            NORTH_SOUTH,
            ValueError,
            r"rates has batches north, east; the merged object has north, south: no rate for "
            r'batch 1 \("south"\), unknown batches east',
        ),
        ({0: 1, 1: 2}, ["1", "2"], ValueError, "unknown batches 0"),
        ({0: 1, 2: 2}, NORTH_SOUTH, ValueError, r'for batch 1 \("south"\), unknown batches 2'),
        ({0: 1, "south": 2}, NORTH_SOUTH, ValueError, "unknown batches 0"),
        ({0: 1, 1: 2}, ["b1", "b0"], ValueError, "unknown batches 0, 1"),
        ([1], NORTH_SOUTH, ValueError, "rates has 1 elements for 2 batches"),
        ([1, 2], ["b10", "b9"], ValueError, "order b10, b9.*mapping of batch label to rate"),
        ("ab", NORTH_SOUTH, TypeError, "rates must be a sequence of one rate a batch.*got str"),
        (1.5, NORTH_SOUTH, TypeError, "got float"),
        (pd.Series([1, 2], index=["a", "a"]), NORTH_SOUTH, ValueError, "rates is a Series with"),
    ],
)
def test_values_that_name_other_batches_are_refused(given, labels, error, message):
    with pytest.raises(error, match=message):
        by_batch(given, labels, "rates", "rate", "the merged object")


@pytest.mark.parametrize(
    ("drop", "kept"),
    [(None, [0, 1, 2]), ("b", [0, 2]), (2, [0, 1]), (["c", 0], [1]), ([], [0, 1, 2])],
)
def test_batches_that_are_kept(drop, kept):
    assert positions_kept(drop, ["a", "b", "c"]) == kept


def test_a_number_drops_the_label_where_that_is_no_other_ones_position():
    assert positions_kept(20, ["10", "20", "30"]) == [0, 2]
    assert positions_kept(1, ["0", "1", "2"]) == [0, 2]
    with pytest.raises(ValueError, match=r"the label of batch 0.*the position of batch 1"):
        positions_kept(1, ["1", "2"])


class Normal:
    """The density of one row: a normal with its centre, under a normal prior around zero."""

    def __init__(self, centre):
        self.centre = centre

    def log_prior(self, x):
        return -0.5 * x[:, 0] ** 2

    def grad_log_prior(self, x):
        return -x

    def log_likelihood(self, x):
        return -0.5 * (x[:, 0] - self.centre) ** 2

    def grad_log_likelihood(self, x):
        return self.centre - x


@pytest.fixture(scope="module")
def centres():
    return np.random.default_rng(0).normal(0, 1.5, COUNT)


@pytest.fixture(scope="module")
def files(centres, exact_draws, to_container, tmp_path_factory):
    """Files b0 to b11 of inflated batches, one row each, in the order of their names as text."""
    folder = tmp_path_factory.mktemp("files")
    for number, centre in enumerate(centres):
        # the prior has precision 1, the row COUNT times 1
        mean, variance = COUNT * centre / (COUNT + 1), np.eye(1) / (COUNT + 1)
        draws = exact_draws(np.random.default_rng(number), [mean], variance)[..., 0]
        to_container({"mu": draws}).to_netcdf(folder / f"b{number}.nc")
    return sorted(folder.glob("b*.nc"))


def test_a_list_of_densities_beside_sorted_files_is_refused(files, centres):
    merged = az_swiss.merge(files, kind="inflated")
    assert merged["swiss_transform"]["batch"].values[:4].tolist() == ["b0", "b1", "b10", "b11"]
    in_order = [Normal(centre) for centre in centres]
    for function in (az_swiss.certify, az_swiss.refine):
        with pytest.raises(ValueError, match=r"order b0, b1, b10, .*mapping of batch label to den"):
            function(merged, in_order, **QUIET)
    by_label = {f"b{number}": density for number, density in enumerate(in_order)}
    certified = az_swiss.certify(merged, by_label, random_seed=1, **QUIET)
    assert certified["swiss_certificate"].attrs["status"] == "certified"
    exact = centres.sum() / (COUNT + 1)
    np.testing.assert_allclose(certified["posterior"]["mu"].mean(), exact, rtol=1e-10)
    np.testing.assert_allclose(certified["posterior"]["mu"].std(ddof=1), (COUNT + 1) ** -0.5, 0.01)


def test_a_wrong_order_is_named_as_a_cause(files, centres):
    in_order = sorted(files, key=lambda path: int(path.stem[1:]))
    merged = az_swiss.merge(in_order, kind="inflated")
    densities = [Normal(centre) for centre in centres[::-1]]
    with pytest.warns(az_swiss.MergeWarning, match="not in another order than the batches"):
        az_swiss.certify(merged, densities, random_seed=1, **QUIET)


def powers_of(merged):
    maps = containers.read(merged).groups["swiss_transform"]
    return dict(zip(maps["batch"].values.tolist(), maps["power"].values.tolist(), strict=True))


def test_a_list_of_unequal_powers_beside_sorted_files_is_refused(files):
    powers = {f"b{n}": 9.0 if n < 3 else 13.5 for n in range(COUNT)}
    with pytest.raises(ValueError, match=r"order b0, b1, b10, .*mapping of batch label to power"):
        az_swiss.merge(files, kind="inflated", powers=list(powers.values()))
    assert powers_of(az_swiss.merge(files, kind="inflated", powers=powers)) == powers
    series = pd.Series(powers).sample(frac=1, random_state=1)
    assert powers_of(az_swiss.merge(files, kind="inflated", powers=series)) == powers
    same = az_swiss.merge(files, kind="inflated", powers=[COUNT] * COUNT)
    assert set(powers_of(same).values()) == {COUNT}
    with pytest.raises(ValueError, match="unknown batches 0, 1, 2"):
        az_swiss.merge(files, kind="inflated", powers=pd.Series(list(powers.values())))


@pytest.mark.parametrize("keys", [[0, 1, 2], [2, 1, 0], ["b0", "b1", "b2"]])
@pytest.mark.parametrize("step", [1, -1])
def test_a_series_is_read_by_label(keys, step):
    """Also one that pandas numbered by itself, reversed or not."""
    rng = np.random.default_rng(0)
    batches = {key: {"x": rng.standard_normal((2, 200))} for key in keys}
    series = pd.Series([2.0, 4.0, 4.0])[::step]
    expected = {str(key): {"0": 2.0}.get(str(key)[-1], 4.0) for key in keys}
    for powers in (series, series.to_dict()):
        assert powers_of(az_swiss.merge(batches, kind="inflated", powers=powers)) == expected


def test_labels_of_a_series_must_be_unique():
    rng = np.random.default_rng(0)
    batches = [{"x": rng.standard_normal((2, 200))} for _ in range(2)]
    with pytest.raises(ValueError, match="labels that occur twice"):
        az_swiss.merge(batches, kind="inflated", powers=pd.Series([2.0, 2.0], index=["b0", "b0"]))


def test_a_list_beside_shuffled_numbers_is_refused():
    rng = np.random.default_rng(0)
    batches = {key: {"x": rng.standard_normal((2, 200))} for key in (2, 1, 0)}
    with pytest.raises(ValueError, match=r"powers is a list, but .* order 2, 1, 0"):
        az_swiss.merge(batches, kind="inflated", powers=[2, 4, 4])

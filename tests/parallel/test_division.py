import numpy as np
import pandas as pd
import pytest

from arviz_swiss.parallel.division import divide_again, division_attrs
from arviz_swiss.parallel.partition import partition

SEED = 2**63 + 5


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"y": rng.normal(size=60), "site": np.arange(60) // 4, "sex": [0, 1] * 30})


@pytest.mark.parametrize(
    "labels", [{}, {"groups": "site"}, {"stratify": "sex"}, {"groups": "site", "stratify": "half"}]
)
def test_columns_and_seed_are_recorded_and_give_the_same_rows(table, labels):
    table["half"] = table["site"] % 2
    indices = partition(table, 5, random_seed=SEED, **labels)
    attrs = division_attrs(table, indices, SEED, **labels)
    assert all(isinstance(value, str) for value in attrs.values())
    again = divide_again(table.copy(), attrs, 5)
    assert len(again) == 5
    for index, expected in zip(again, indices, strict=True):
        np.testing.assert_array_equal(index, expected)


def test_labels_that_were_arrays_must_be_given_again(table):
    sites = table["site"].to_numpy()
    indices = partition(table, 5, groups=sites, random_seed=1)
    attrs = division_attrs(table, indices, 1, sites)
    with pytest.raises(ValueError, match=r"into 5 batches otherwise.*not as the name of a colu"):
        divide_again(table, attrs, 5)
    with pytest.raises(ValueError, match="divides the rows into 5 batches otherwise"):
        divide_again(table, attrs, 5, groups=sites // 2)
    again = divide_again(table, attrs, 5, groups=sites)
    assert all(map(np.array_equal, again, indices))


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.assign(y=table["y"] + 1e-9),
        lambda table: table.iloc[::-1],
        lambda table: table.iloc[:-1],
        lambda table: table.rename(columns={"y": "z"}),
    ],
)
def test_other_data_are_refused(table, change):
    attrs = division_attrs(table, partition(table, 5, random_seed=1), 1)
    with pytest.raises(ValueError, match="the data differ from those that sample_batches divided"):
        divide_again(change(table), attrs, 5)


def test_another_seed_and_other_numbers_of_rows_or_batches_are_refused(table):
    attrs = division_attrs(table, partition(table, 5, random_seed=1), 1)
    del attrs["swiss_data"]
    for data, batches, seed in ((table, 5, "2"), (table, 4, "1"), (table.iloc[1:], 5, "1")):
        with pytest.raises(ValueError, match=rf"seed {seed} divides .* {batches} batches oth"):
            divide_again(data, {**attrs, "swiss_random_seed": seed}, batches)


def test_batches_of_other_makers_have_no_seed(table):
    with pytest.raises(ValueError, match=r"record no seed .*pass one density for each batch"):
        divide_again(table, {}, 5)

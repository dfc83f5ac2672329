"""Tables that are not in memory: groups, levels, some of their rows, and frames made of them."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pds
import pytest

from arviz_swiss.parallel import sources, tables
from arviz_swiss.parallel.levels import share_levels
from arviz_swiss.parallel.tables import Table, opened_table, some_rows

ROWS = 600


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "row": np.arange(ROWS),
            "site": np.char.add("s", rng.integers(0, 20, size=ROWS).astype(str)),
            "month": np.array(["may", "june", "july"])[np.arange(ROWS) * 3 // ROWS],
            "year": 2000 + np.arange(ROWS) % 4,
        }
    )


@pytest.fixture
def table(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK", 100)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=70)
    return Table(sources.find_source(tmp_path / "rows.parquet"))


def test_groups_are_those_of_pandas_in_the_order_of_their_rows(table, frame, monkeypatch):
    monkeypatch.setattr(tables, "SEEN_AT_ONCE", 50)
    groups = table.groups("site")
    expected = frame["site"].value_counts(sort=False)
    assert groups.labels.to_pylist() == pd.unique(frame["site"]).tolist()
    assert dict(zip(groups.labels.to_pylist(), groups.sizes, strict=True)) == expected.to_dict()


def test_a_stratum_that_varies_within_a_group_is_refused(table):
    with pytest.raises(ValueError, match=r"constant within each group, but it varies in group s"):
        table.groups("site", "year")


def test_a_missing_label_is_named_by_its_row(frame, tmp_path):
    frame.loc[321, "site"] = None
    frame.to_parquet(tmp_path / "holes.parquet", row_group_size=100)
    with opened_table(tmp_path / "holes.parquet") as table:
        with pytest.raises(ValueError, match=r"groups='site' has missing labels.*in row 321"):
            table.groups("site")
        with pytest.raises(ValueError, match=r"shared='site' has missing labels.*in row 321"):
            share_levels(table, ["site"])


def test_labels_must_be_names_of_columns(table):
    with pytest.raises(ValueError, match="groups='place' is not a column of the data, which has"):
        table.groups("place")
    with pytest.raises(TypeError, match="must be the name of a column where rows are read"):
        table.groups(np.zeros(ROWS))


# pandas 3.1 warns of what Dask does in reading an index
@pytest.mark.filterwarnings(r"ignore:(.|\n)*DataFrame.(re)?set_index is deprecated")
def test_an_index_has_labels_by_its_name_and_no_levels(frame, tmp_path):
    path, indexed = tmp_path / "indexed.parquet", frame.set_index("site")
    indexed.to_parquet(path)
    for data in (path, indexed):
        with opened_table(data) as table:
            with pytest.raises(ValueError, match=r"shared='site' is in the index.*reset_index\(\)"):
                share_levels(table, ["site"])
    for data in (dd.read_parquet(path).reset_index(), indexed.reset_index()):
        with opened_table(data) as table:
            share_levels(table, ["site"])
    indexed.rename_axis(None).to_parquet(path)
    for name in ("site", "__index_level_0__"):
        with opened_table(path) as table, pytest.raises(ValueError, match=r"has .*rename_axis"):
            table.groups(name)
    # other libraries have columns alone
    with opened_table(pl.scan_parquet(path)) as table:
        assert set(table.groups("__index_level_0__").labels.to_pylist()) == set(frame["site"])


def test_shared_levels_are_those_of_all_rows_in_every_library(frame, tmp_path):
    path = tmp_path / "rows.parquet"
    frame.to_parquet(path)
    expected = ["july", "june", "may"]
    with opened_table(path) as table:
        rows = some_rows(share_levels(table, ["month", "year"]), 3, None, 0)
        assert rows["month"].cat.categories.tolist() == expected
        assert rows["year"].cat.categories.tolist() == [2000, 2001, 2002, 2003]
        assert rows["month"].tolist() == frame["month"].iloc[rows["row"]].tolist()
    with opened_table(pl.scan_parquet(path)) as table:
        rows = some_rows(share_levels(table, ["month"]), 3, None, 0)
        assert rows["month"].dtype == pl.Enum(expected)
        with pytest.raises(TypeError, match="polars has categories of text only"):
            share_levels(table, ["year"])
    with opened_table(pds.dataset(path)) as table:
        rows = some_rows(share_levels(table, ["month"]), 3, None, 0)
        assert rows["month"].combine_chunks().dictionary.to_pylist() == expected


@pytest.mark.parametrize("form", ["path", "dask"])
def test_categories_keep_their_order_and_those_that_no_row_has(form, frame, tmp_path):
    months = pd.CategoricalDtype(["april", "may", "june", "july"], ordered=True)
    frame = frame.assign(month=frame["month"].astype(months))
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=70)
    data = {"path": tmp_path / "rows.parquet", "dask": dd.from_pandas(frame, npartitions=3)}[form]
    with opened_table(data) as table:
        rows = some_rows(share_levels(table, []), 3, None, 0)
    assert rows["month"].dtype == months
    assert rows["month"].tolist() == frame["month"].iloc[rows["row"]].tolist()


def test_enumerations_of_polars_stay_what_they_are(frame, tmp_path):
    months = pl.Enum(["april", "may", "june", "july"])
    lazy = pl.from_pandas(frame).lazy().with_columns(pl.col("month").cast(months))
    with opened_table(lazy) as table:
        rows = some_rows(share_levels(table, []), 3, None, 0)
    assert rows["month"].dtype == months


def test_some_rows_are_from_all_over_a_sorted_table(table):
    rows = some_rows(table, 60, None, seed=0)["row"].to_numpy()
    assert len(np.unique(rows)) == 60
    # with sixty of six hundred at random a third without any has the chance (2/3)^60
    assert all(np.any(rows // 200 == third) for third in range(3))


def test_some_rows_are_of_whole_groups(table, frame):
    rows = some_rows(table, 100, "site", seed=0)
    sizes = frame["site"].value_counts().to_dict()
    assert 4 <= rows["site"].nunique() < 20
    assert rows["site"].value_counts().to_dict().items() <= sizes.items()


def test_what_is_in_memory_stays_as_it_is(frame):
    for data in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame), 7):
        with opened_table(data) as given:
            assert given is data


def test_a_temporary_folder_ends_with_the_context(table, tmp_path):
    with opened_table(tmp_path / "rows.parquet") as opened:
        folder = opened.folder
        folder.mkdir()
    assert not folder.parent.exists()
    with opened_table(tmp_path / "rows.parquet", tmp_path / "run") as opened:
        assert opened.folder == tmp_path / "run" / "swiss_rows"

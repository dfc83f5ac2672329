"""Rows are known again by all that they hold, however they are cut, and told from any others."""

import json
import os

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pds
import pytest

from arviz_swiss.parallel import row_hashes
from arviz_swiss.parallel.row_hashes import hash_rows
from arviz_swiss.parallel.splitting import split
from arviz_swiss.parallel.tables import opened_table

ROWS = 5000


@pytest.fixture
def frame():
    return pd.DataFrame({"x": np.arange(ROWS, dtype=float), "y": np.arange(ROWS) % 3})


def write(frame, path):
    """Write uncompressed rows, so that other values take as much room."""
    frame.to_parquet(
        path,
        row_group_size=1000,
        compression=None,
        use_dictionary=False,
        write_statistics=False,
    )


def fingerprint(data, folder=None):
    with opened_table(data, folder) as table:
        return table.fingerprint


FORMS = {
    "path": str,
    "polars": pl.scan_parquet,
    "dataset": pds.dataset,
    "dask": dd.read_parquet,
    "dask by a function": lambda path: dd.from_map(pd.read_parquet, [path]),
}


@pytest.mark.parametrize("form", FORMS)
def test_one_value_in_the_last_row_group_makes_other_rows(form, frame, tmp_path):
    path = tmp_path / "rows.parquet"
    write(frame, path)
    size, known = path.stat().st_size, fingerprint(FORMS[form](str(path)))
    assert fingerprint(FORMS[form](str(path))) == known
    write(frame.assign(x=frame["x"].where(frame["x"] < ROWS - 1, -7.0)), path)
    assert path.stat().st_size == size
    assert fingerprint(FORMS[form](str(path))) != known


def test_datasets_of_text_are_known_by_all_their_rows(frame, tmp_path):
    frame.to_csv(tmp_path / "rows.csv", index=False)
    known = fingerprint(pds.dataset(tmp_path / "rows.csv", format="csv"))
    frame.loc[ROWS - 1, "x"] = 7.0
    frame.to_csv(tmp_path / "rows.csv", index=False)
    assert fingerprint(pds.dataset(tmp_path / "rows.csv", format="csv")) != known


def test_a_filter_of_a_dataset_makes_other_rows(frame, tmp_path):
    write(frame, tmp_path / "rows.parquet")
    dataset = pds.dataset(tmp_path / "rows.parquet")
    few, others = (dataset.filter(pds.field("y") == value) for value in (0, 1))
    assert fingerprint(few) != fingerprint(others)


@pytest.mark.parametrize("form", FORMS)
def test_the_folder_of_a_split_refuses_rows_that_have_changed(form, frame, tmp_path):
    path, folder = tmp_path / "rows.parquet", tmp_path / "run"
    write(frame, path)

    def divide():
        with opened_table(FORMS[form](str(path)), folder) as table:
            return split(table, 3, random_seed=1)

    first = divide()
    assert divide() == first
    (folder / "settings.json").write_text("{}")
    times = path.stat()
    write(frame.assign(x=frame["x"].where(frame["x"] < ROWS - 1, -7.0)), path)
    # as tools that copy files do
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(ValueError, match="other settings: data: "):
        divide()


def test_a_file_that_has_not_changed_is_read_once(frame, tmp_path, monkeypatch):
    path, folder = tmp_path / "rows.parquet", tmp_path / "run"
    write(frame, path)
    with opened_table(path, folder) as table:
        first = split(table, 3, random_seed=1)
    monkeypatch.setattr(row_hashes, "_hash_file", None)
    with opened_table(path, folder) as table:
        assert split(table, 3, random_seed=1) == first


@pytest.mark.parametrize("form", ["polars", "dataset", "dask"])
def test_rows_are_read_once_to_divide_them_and_know_them_again(form, frame, tmp_path, monkeypatch):
    write(frame, tmp_path / "rows.parquet")
    with opened_table(FORMS[form](str(tmp_path / "rows.parquet"))) as table:
        passes, blocks = [], table.source.blocks

        def counted(columns=None):
            passes.append(columns)
            return blocks(columns)

        monkeypatch.setattr(table.source, "blocks", counted)
        made = split(table, 3, random_seed=1)
        assert passes == [None]
    assert made.fingerprint == fingerprint(FORMS[form](str(tmp_path / "rows.parquet")))


def test_the_hash_is_the_same_however_rows_are_cut(monkeypatch):
    monkeypatch.setattr(row_hashes, "ROWS_HASHED", 64)
    rng = np.random.default_rng(0)
    texts = np.where(rng.random(1000) < 0.2, None, np.char.add("s", np.arange(1000).astype(str)))
    table = pa.table(
        {
            "number": pa.array(rng.normal(size=1000), mask=rng.random(1000) < 0.1),
            "truth": rng.random(1000) < 0.5,
            "text": pa.array(texts),
            "category": pa.array(texts).dictionary_encode(),
            "list": pa.array([[i] * (i % 4) for i in range(1000)]),
        }
    )
    hashes = {
        hash_rows(table.to_batches(max_chunksize=size), table.schema)
        for size in (1000, 64, 63, 7, 1)
    }
    assert len(hashes) == 1
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        others = table.set_column(
            table.column_names.index(name),
            table.schema.field(name),
            pa.chunked_array([column[:-1], column[:1]]),
        )
        assert hash_rows(others.to_batches(), table.schema) not in hashes, name


def test_values_below_missing_ones_do_not_count():
    mask = np.array([False, True, False])
    one, other = (pa.array([1.0, hidden, 2.0], mask=mask) for hidden in (5.0, 6.0))
    schema = pa.schema({"x": pa.float64()})
    same = [hash_rows([pa.record_batch([v], ["x"])], schema) for v in (one, other)]
    assert same[0] == same[1]
    assert same[0] != hash_rows([pa.record_batch([pa.array([1.0, 2.0, None])], ["x"])], schema)


def test_folders_that_tell_a_column_are_part_of_the_rows(frame, tmp_path):
    for year in (2020, 2021):
        (tmp_path / f"year={year}").mkdir()
        write(frame, tmp_path / f"year={year}" / "rows.parquet")
    known = fingerprint(tmp_path)
    (tmp_path / "year=2021").rename(tmp_path / "year=2022")
    assert fingerprint(tmp_path) != known


def test_the_record_tells_what_files_were_known_by(frame, tmp_path):
    write(frame, tmp_path / "rows.parquet")
    with opened_table(tmp_path / "rows.parquet", tmp_path / "run") as table:
        made = split(table, 3, random_seed=1)
    with open(os.path.join(made.folder, "split.json"), encoding="utf-8") as file:
        files = json.load(file)["files"]
    size = (tmp_path / "rows.parquet").stat().st_size
    assert [state[0] for state in files.values()] == [size]

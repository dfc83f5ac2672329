"""Rows that are not in memory: recognised, read block by block, known again."""

import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest

from arviz_swiss.parallel import sources
from arviz_swiss.parallel.sources import find_source
from arviz_swiss.parallel.tables import Table

ROWS = 1000


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "row": np.arange(ROWS),
            "x": rng.normal(size=ROWS),
            "site": np.char.add("s", (np.arange(ROWS) // 100).astype(str)),
        }
    )


@pytest.fixture
def path(frame, tmp_path):
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=300)
    return str(tmp_path / "rows.parquet")


def in_pieces(frame, folder, sizes):
    folder.mkdir()
    ends = np.cumsum([0, *sizes])
    for number, (start, end) in enumerate(pairwise(ends)):
        frame.iloc[start:end].to_parquet(folder / f"part{number}.parquet", index=False)
    return folder


def rows_of(source, columns=None):
    return pa.Table.from_batches(source.blocks(columns)).to_pandas()


def known_by(data):
    return Table(find_source(data)).fingerprint


def all_forms(frame, path, folder):
    in_pieces(frame, folder, [400, 600])
    return {
        "path": (path, "pandas"),
        "folder": (folder, "pandas"),
        "pattern": (str(folder / "*.parquet"), "pandas"),
        "list": ([str(folder / "part0.parquet"), folder / "part1.parquet"], "pandas"),
        "dask": (dd.from_pandas(frame, npartitions=3), "pandas"),
        "dask of files": (dd.read_parquet(path), "pandas"),
        "lazy polars": (pl.from_pandas(frame).lazy(), "polars"),
        "polars of files": (pl.scan_parquet(path), "polars"),
        "dataset": (pds.dataset(path), "pyarrow"),
        "dataset in memory": (pds.dataset(pa.Table.from_pandas(frame)), "pyarrow"),
    }


FORMS = (
    "path", "folder", "pattern", "list", "dask", "dask of files", "lazy polars", "polars of files",
    "dataset", "dataset in memory",
)  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_all_rows_in_order(form, frame, path, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK", 128)
    data, library = all_forms(frame, path, tmp_path / "pieces")[form]
    source = find_source(data)
    rows = rows_of(source)
    assert source.library == library
    assert source.count() == ROWS
    assert rows["row"].tolist() == frame["row"].tolist()
    assert np.array_equal(rows["x"], frame["x"])
    assert rows["site"].tolist() == frame["site"].tolist()
    assert list(rows_of(source, ["site"])) == ["site"]
    assert max(map(len, source.blocks())) <= 128


@pytest.mark.parametrize("form", FORMS)
def test_a_source_is_known_again_and_told_from_another(form, frame, path, tmp_path):
    data, _ = all_forms(frame, path, tmp_path / "pieces")[form]
    known = known_by(data)
    assert known_by(data) == known
    other = frame.assign(x=0.0)
    other.to_parquet(path, row_group_size=300)
    shutil.rmtree(tmp_path / "pieces")
    changed, _ = all_forms(other, path, tmp_path / "pieces")[form]
    assert known_by(changed) != known


def test_files_are_known_again_after_a_copy(path, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    copy = tmp_path / "elsewhere" / "rows.parquet"
    shutil.copy(path, copy)
    os.utime(copy, (0, 0))
    assert known_by(copy) == known_by(path)


def test_folders_of_a_partitioned_dataset_are_a_column(frame, tmp_path):
    frame.to_parquet(tmp_path / "by_site", partition_cols=["site"])
    source = find_source(tmp_path / "by_site")
    rows = rows_of(source)
    assert rows["site"].astype(str).tolist() == frame["site"].tolist()
    assert rows_of(source, ["site"])["site"].astype(str).tolist() == frame["site"].tolist()


@pytest.mark.parametrize("pattern", ["*", "**/*.parquet", "site=*", "*/*.parquet"])
def test_folders_below_a_pattern_are_a_column(pattern, frame, tmp_path):
    frame.to_parquet(tmp_path / "by_site", partition_cols=["site"])
    rows = rows_of(find_source(tmp_path / "by_site" / pattern))
    assert rows["site"].astype(str).tolist() == frame["site"].tolist()


def test_of_a_folder_tables_are_read_and_nothing_else(frame, path, tmp_path):
    for name in ("notes.txt", "_SUCCESS", "rows.parquet.crc"):
        (tmp_path / name).write_text("no table")
    for name in (".rows.tmp", "_temporary", "run/swiss_rows"):
        (tmp_path / name).mkdir(parents=True)
        frame.to_parquet(tmp_path / name / "b0.parquet")
    assert find_source(tmp_path).count() == ROWS


def test_folders_above_a_file_are_no_columns(frame, tmp_path):
    (tmp_path / "run=3").mkdir()
    frame.to_parquet(tmp_path / "run=3" / "rows.parquet")
    assert find_source(tmp_path / "run=3" / "rows.parquet").schema.names == list(frame)


@pytest.mark.parametrize(
    "data",
    [
        np.zeros(3),
        np.array(["a", "b"]),
        np.array([["a.csv"]]),
        [1, 2],
        ["a", "b"],
        ["a.csv", 1],
        {"x": [1]},
        pd.DataFrame({"x": [1]}),
        3,
        [],
    ],
)
def test_what_is_in_memory_is_no_source(data):
    assert find_source(data) is None


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_names_of_which_some_are_no_parquet_files_are_no_rows(kind, frame, path, tmp_path):
    frame.to_csv(tmp_path / "rows.csv", index=False)
    shutil.copy(path, tmp_path / "rows.dat")
    assert find_source(kind([path, str(tmp_path / "rows.dat")])).count() == 2 * ROWS
    assert find_source(kind([str(tmp_path / "rows.dat")])).count() == ROWS
    for names in ([path, str(tmp_path / "rows.csv")], [str(tmp_path / "rows.csv")]):
        with pytest.raises(ValueError, match=r"rows.csv is no Parquet file.*polars.scan_csv"):
            find_source(kind(names))
    with pytest.raises(FileNotFoundError, match=r"no file is at .*gone"):
        find_source(kind([path, "gone"]))


def test_frames_in_memory_are_no_source(frame):
    assert find_source(pl.from_pandas(frame)) is None
    assert find_source(pa.Table.from_pandas(frame)) is None


def test_a_missing_path_says_what_can_be_passed(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file is at .*gone.*a pattern such as"):
        find_source(tmp_path / "gone.parquet")


def test_a_folder_without_parquet_files_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(FileNotFoundError, match="has no Parquet files"):
        find_source(tmp_path)


def test_the_advice_for_a_csv_file_works(frame, tmp_path, monkeypatch):
    path = tmp_path / "rows.csv"
    frame.to_csv(path, index=False)
    with pytest.raises(ValueError, match="no Parquet file") as raised:
        find_source(path)
    advice = str(raised.value)
    assert f'polars.scan_csv("{path}").sink_parquet("rows.parquet")' in advice
    monkeypatch.chdir(tmp_path)
    pl.scan_csv(path).sink_parquet("rows.parquet")
    assert find_source("rows.parquet").count() == ROWS
    assert find_source(pl.scan_csv(path)).count() == ROWS


def test_files_of_other_columns_are_refused_by_name(frame, tmp_path):
    folder = in_pieces(frame, tmp_path / "pieces", [500, 500])
    frame.assign(row=frame["row"].astype(float)).to_parquet(folder / "part1.parquet", index=False)
    with pytest.raises(ValueError, match=r"part1.*other columns.*row is double, and int64"):
        find_source(folder)
    frame[["row", "x"]].to_parquet(folder / "part1.parquet", index=False)
    with pytest.raises(ValueError, match="site is not there, and"):
        find_source(folder)


def test_a_file_that_ends_early_is_refused_by_name(path, tmp_path):
    (tmp_path / "cut.parquet").write_bytes(Path(path).read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"cut\.parquet cannot be read.*Write it again"):
        find_source(tmp_path / "cut.parquet")


def test_columns_of_one_name_are_refused(tmp_path):
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(ValueError, match=r"twice\.parquet has several columns called 'x'"):
        find_source(tmp_path / "twice.parquet")


def test_a_partition_of_other_types_than_the_frame_says_is_named(frame):
    def part(number):
        return frame.assign(row="text") if number else frame

    source = find_source(dd.from_map(part, [0, 1], meta=frame.iloc[:0]))
    with pytest.raises(ValueError, match="partition 1 of the Dask DataFrame has other columns or"):
        list(source.blocks())


def test_a_file_given_twice_is_refused(path):
    with pytest.raises(ValueError, match="given twice"):
        find_source([path, path])


def test_reading_a_file_holds_a_block_and_no_row_group(tmp_path):
    # in a process of its own, because the pool's maximum is of all its life
    rows = 2_000_000
    table = pa.table(
        {f"x{number}": np.random.default_rng(number).normal(size=rows) for number in range(5)}
    )
    pq.write_table(table, tmp_path / "one.parquet", row_group_size=rows)
    code = (
        "import sys, pyarrow as pa\n"
        "from arviz_swiss.parallel.sources import find_source\n"
        "print(sum(len(block) for block in find_source(sys.argv[1]).blocks()))\n"
        "print(pa.default_memory_pool().max_memory())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "one.parquet")],
        capture_output=True,
        text=True,
        check=True,
    )
    read, most = map(int, done.stdout.split())
    assert read == rows
    assert most < table.nbytes / 4

"""One pass that writes the rows of each batch into a file: exact, alike however cut, resumable."""

import json
import os
import signal
import subprocess
import sys
import time

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pds
import pytest
from pyarrow import parquet
from scipy.stats import chisquare
from terminal import watching

from arviz_swiss.data import temporaries
from arviz_swiss.parallel import assigning, sources, splitting
from arviz_swiss.parallel.partition import partition
from arviz_swiss.parallel.splitting import split
from arviz_swiss.parallel.tables import opened_table

ROWS, BATCHES = 4000, 7


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "row": np.arange(ROWS),
            "y": np.arange(ROWS) >= ROWS // 2,
            "x": rng.normal(size=ROWS),
            "site": np.char.add("s", (np.arange(ROWS) // 40).astype(str)),
            "rare": np.where(np.arange(ROWS) % 500 == 0, "yes", "no"),
            "region": (np.arange(ROWS) // 800).astype(str),
        }
    )


@pytest.fixture
def path(frame, tmp_path):
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=300)
    return tmp_path / "rows.parquet"


def divided(data, folder=None, batches=BATCHES, random_seed=1, **labels):
    """Return the frames of the batches."""
    with opened_table(data, folder) as table:
        made = split(table, batches, random_seed=random_seed, **labels)
        return [batch.load() for batch in made.batches]


def numbers(batches):
    return [np.asarray(batch["row"]).tolist() for batch in batches]


def test_every_row_is_in_one_batch_as_it_was(path, frame):
    batches = divided(path)
    together = pd.concat(batches).sort_values("row", ignore_index=True)
    pd.testing.assert_frame_equal(together, frame)
    assert all(batch["row"].is_monotonic_increasing for batch in batches)


@pytest.mark.parametrize("extra", [{}, {"text": "a"}], ids=["numbers", "text"])
def test_one_missing_value_gives_all_batches_the_type_that_the_table_has(extra, tmp_path):
    # the first row alone lacks values: other batches' own rows would be integers, true and false
    count = pd.array([None, *range(99)], dtype="Int64")
    table = pa.table({"count": pa.array(count), "yes": pa.array([None, *[True] * 99])})
    for name, value in extra.items():
        table = table.append_column(name, pa.array([value] * 100))
    parquet.write_table(table, tmp_path / "rows.parquet")
    expected = pd.read_parquet(tmp_path / "rows.parquet").dtypes
    for _ in ("divided", "found again"):
        for batch in divided(tmp_path / "rows.parquet", tmp_path / "run", batches=3):
            pd.testing.assert_series_equal(batch.dtypes, expected)
    # of numbers alone, which are read column by column
    parquet.write_table(table.select(["count"]), tmp_path / "count.parquet")
    assert {batch["count"].dtype for batch in divided(tmp_path / "count.parquet")} == {
        np.dtype(float)
    }


def test_a_sorted_file_is_shuffled_row_by_row(tmp_path):
    rows, batches = 200_000, 10
    pd.DataFrame({"y": np.arange(rows) >= rows // 2}).to_parquet(tmp_path / "sorted.parquet")
    owner = np.empty(rows, dtype=int)
    for number, index in enumerate(partition(tmp_path / "sorted.parquet", batches, random_seed=3)):
        owner[index] = number
    # sizes, sizes within each outcome, and pairs of neighbours are as of independent rows
    assert chisquare(np.bincount(owner)).pvalue > 1e-6
    assert chisquare(np.bincount(owner[: rows // 2])).pvalue > 1e-6
    assert chisquare(np.bincount(owner[:-1:2] * batches + owner[1::2])).pvalue > 1e-6


@pytest.mark.parametrize("labels", [{}, {"groups": "site"}, {"stratify": "rare"}])
def test_the_same_seed_divides_alike_however_rows_are_cut(
    labels, path, frame, tmp_path, monkeypatch
):
    expected = numbers(divided(path, **labels))
    frame.to_parquet(tmp_path / "other.parquet", row_group_size=77)
    monkeypatch.setattr(sources, "BLOCK", 53)
    monkeypatch.setattr(splitting, "LEAST_WAITING", 10_000)
    (tmp_path / "pieces").mkdir()
    for number, start in enumerate(range(0, ROWS, 1300)):
        frame.iloc[start : start + 1300].to_parquet(tmp_path / "pieces" / f"{number}.parquet")
    others = {
        "row groups": tmp_path / "other.parquet",
        "files": tmp_path / "pieces",
        "dask": dd.from_pandas(frame, npartitions=3),
        "polars": pl.scan_parquet(path),
        "dataset": pds.dataset(path),
    }
    for form, data in others.items():
        assert numbers(divided(data, **labels)) == expected, form
    assert numbers(divided(path, random_seed=2, **labels)) != expected


@pytest.mark.parametrize(
    "labels",
    [{}, {"groups": "site"}, {"stratify": "rare"}, {"groups": "site", "stratify": "region"}],
)
def test_partition_tells_the_row_numbers_of_the_split(labels, path):
    indices = partition(path, BATCHES, random_seed=1, **labels)
    assert [index.tolist() for index in indices] == numbers(divided(path, **labels))


def test_passes_over_files_are_shown(path, tmp_path, monkeypatch):
    for module in ("assigning", "tables", "row_hashes"):
        monkeypatch.setattr(f"arviz_swiss.parallel.{module}.SOON", 0.0)
    with watching(monkeypatch) as screen:
        partition(path, BATCHES, groups="site", random_seed=1)
    names = [line.partition(":")[0] for line in screen.left]
    assert names == ["Finding groups", "Partitioning"]
    assert all("100%" in line and f" {ROWS}/{ROWS} " in line for line in screen.left)
    with watching(monkeypatch) as screen:
        partition(path, BATCHES, groups="site", random_seed=1, progressbar=False)
    assert screen.text == ""
    with watching(monkeypatch) as screen, opened_table(path, tmp_path / "run", True) as table:
        split(table, BATCHES, random_seed=1)
    names = {line.partition(":")[0]: line for line in screen.left}
    assert names.keys() == {"Splitting", "Reading files"}
    assert all("100%" in line for line in screen.left)


def test_groups_stay_together_and_batches_are_balanced(path):
    batches = divided(path, groups="site")
    sites = [set(batch["site"]) for batch in batches]
    assert sum(map(len, sites)) == len(set.union(*sites)) == 100
    # groups of forty rows: sizes differ by one group at most
    assert np.ptp([len(batch) for batch in batches]) <= 40


def test_labels_may_be_the_index_of_a_frame(path, frame, tmp_path):
    labels = {"groups": "site", "stratify": "region"}
    expected = numbers(divided(path, batches=4, **labels))
    indexed = frame.set_index(["site", "region"])
    indexed.to_parquet(tmp_path / "indexed.parquet")
    lazy = dd.from_pandas(indexed.reset_index("region"), npartitions=3, sort=False)
    for data in (tmp_path / "indexed.parquet", lazy):
        batches = divided(data, batches=4, **labels)
        assert numbers(batches) == expected
        assert "site" in batches[0].index.names
        # as where the rows of a few groups are divided once more
        again = partition(batches[0], 2, groups="site", random_seed=1)
        sites = [set(batches[0].index.get_level_values("site")[index]) for index in again]
        assert not set.intersection(*sites)


def test_strata_are_dealt_evenly(path):
    rare = [int((batch["rare"] == "yes").sum()) for batch in divided(path, stratify="rare")]
    assert sum(rare) == 8
    assert np.ptp(rare) <= 1
    both = divided(path, batches=4, groups="site", stratify="region")
    for region in "01234":
        groups = [batch.loc[batch["region"] == region, "site"].nunique() for batch in both]
        assert groups == [5, 5, 5, 5]


def test_build_gets_the_type_that_was_given(path):
    assert isinstance(divided(path)[0], pd.DataFrame)
    assert isinstance(divided(dd.read_parquet(path))[0], pd.DataFrame)
    assert isinstance(divided(pl.scan_parquet(path))[0], pl.DataFrame)
    assert type(divided(pds.dataset(path))[0]).__module__.startswith("pyarrow")


def test_many_batches_go_by_way_of_bundles(path, frame, tmp_path, monkeypatch):
    expected = numbers(divided(path, batches=50))
    monkeypatch.setattr(splitting, "FILES_AT_ONCE", 8)
    monkeypatch.setattr(splitting, "BLOCK", 100)
    assert numbers(divided(path, tmp_path / "run", batches=50)) == expected
    assert {p.suffix for p in (tmp_path / "run" / "swiss_rows").iterdir()} == {".parquet", ".json"}


def test_a_finished_split_is_used_again(path, tmp_path, monkeypatch):
    first = numbers(divided(path, tmp_path / "run"))
    monkeypatch.setattr(splitting, "_scatter", None)
    assert numbers(divided(path, tmp_path / "run")) == first


def test_another_split_in_the_folder_of_a_run_is_refused(path, frame, tmp_path):
    divided(path, tmp_path / "run")
    (tmp_path / "run" / "settings.json").write_text("{}")
    with pytest.raises(ValueError, match=r"other settings: batches: 7 → 8.*another folder"):
        divided(path, tmp_path / "run", batches=8)
    frame.assign(x=0.0).to_parquet(path)
    with pytest.raises(ValueError, match="other settings: data: "):
        divided(path, tmp_path / "run")


def test_another_split_is_replaced_while_no_run_has_begun(path, tmp_path):
    divided(path, tmp_path / "run")
    assert len(divided(path, tmp_path / "run", batches=8)) == 8
    record = tmp_path / "run" / "swiss_rows" / "split.json"
    # by a process that may be about to begin one
    for writer in ([temporaries._host(), os.getppid()], ["elsewhere", 7], None):
        record.write_text(json.dumps({**json.loads(record.read_text()), "writer": writer}))
        with pytest.raises(ValueError, match="other settings: batches: 8 → 7"):
            divided(path, tmp_path / "run")


def test_a_file_that_was_deleted_is_missed(path, tmp_path):
    divided(path, tmp_path / "run")
    (tmp_path / "run" / "swiss_rows" / "b3.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"b3.parquet is not there.*divides the rows again"):
        divided(path, tmp_path / "run")


def test_a_damaged_record_is_refused(path, tmp_path):
    divided(path, tmp_path / "run")
    (tmp_path / "run" / "swiss_rows" / "split.json").write_text("{")
    with pytest.raises(ValueError, match="cannot be read"):
        divided(path, tmp_path / "run")


def test_empty_batches_and_tables_are_refused(frame, tmp_path):
    frame[:5].to_parquet(tmp_path / "few.parquet")
    with pytest.raises(ValueError, match=r"of 5 batches got none of the 5 rows.*batches=1"):
        divided(tmp_path / "few.parquet", batches=5)
    with pytest.raises(ValueError, match="6 batches of only 5 rows"):
        partition(tmp_path / "few.parquet", 6)
    frame[:0].to_parquet(tmp_path / "none.parquet")
    with pytest.raises(ValueError, match="the data has no rows to divide"):
        divided(tmp_path / "none.parquet")
    with pytest.raises(ValueError, match="7 batches of only 5 groups"):
        frame[:200].to_parquet(tmp_path / "groups.parquet")
        divided(tmp_path / "groups.parquet", groups="site")


def test_a_column_of_distinct_values_is_no_stratum(path, monkeypatch):
    monkeypatch.setattr(assigning, "MOST_STRATA", 100)
    with pytest.raises(ValueError, match=r"stratify='x' has more than 100 values"):
        divided(path, stratify="x")


def test_a_split_that_fails_leaves_nothing_behind(path, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(splitting, "_write_groups", fail)
    with pytest.raises(OSError, match=r"could not be written.*No space left.*as much room"):
        divided(path, tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_an_error_of_reading_is_told_as_it_is(tmp_path):
    def part(number):
        if number == 2:
            raise OSError(5, "Input/output error", "part2")
        return pd.DataFrame({"x": np.arange(10.0)})

    source = dd.from_map(part, range(3), meta=pd.DataFrame({"x": [1.0]}))
    with opened_table(source, tmp_path / "run") as table:
        table._rows = 30
        with pytest.raises(OSError, match="part2") as raised:
            split(table, 2, random_seed=1)
    assert "written" not in str(raised.value)


FOR_NOW = """
import sys, time
from arviz_swiss.parallel.splitting import split
from arviz_swiss.parallel.tables import opened_table
with opened_table(sys.argv[1]) as table:
    split(table, 7, random_seed=1)
    print(table.folder.parent, flush=True)
    time.sleep(600)
"""


def test_what_a_killed_call_without_a_folder_leaves_is_removed_by_the_next(path):
    command = [sys.executable, "-c", FOR_NOW, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        left = process.stdout.readline().strip()
        divided(path)
        assert os.path.exists(left)
        process.kill()
    assert os.path.exists(left)
    divided(path)
    assert not os.path.exists(left)


SLOWLY = """
import sys, time
from arviz_swiss.parallel import sources, splitting
from arviz_swiss.parallel.tables import opened_table
sources.BLOCK, splitting.LEAST_WAITING = 100, 1000
write = splitting._write_groups
def slowly(*arguments):
    write(*arguments)
    print("written", flush=True)
    time.sleep(0.1)
splitting._write_groups = slowly
with opened_table(sys.argv[1], sys.argv[2]) as table:
    splitting.split(table, 7, random_seed=1)
"""


def test_a_split_that_is_killed_is_begun_again_and_leaves_nothing(path, tmp_path):
    expected = numbers(divided(path))
    with subprocess.Popen(
        [sys.executable, "-c", SLOWLY, str(path), str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        for _ in range(3):
            assert process.stdout.readline() == "written\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
    begun = list((tmp_path / "run").iterdir())
    assert len(begun) == 1
    assert begun[0].suffix == ".tmp"
    assert numbers(divided(path, tmp_path / "run")) == expected
    assert [entry.name for entry in (tmp_path / "run").iterdir()] == ["swiss_rows"]


def test_what_others_are_writing_is_left_alone(path, tmp_path):
    (tmp_path / "run").mkdir()
    mine, elsewhere, abandoned = (
        tmp_path / "run" / f".swiss_rows.{name}.{32 * 'a'}.tmp"
        for name in (f"{temporaries._host()}.{os.getppid()}", "elsewhere.7", "long-ago.7")
    )
    for folder in (mine, elsewhere, abandoned):
        folder.mkdir()
    for folder in (mine, abandoned):
        os.utime(folder, (0, time.time() - 2 * temporaries.FOLDER_ABANDONED_AFTER))
    divided(path, tmp_path / "run")
    assert mine.exists()
    assert elsewhere.exists()
    assert not abandoned.exists()


def test_the_record_tells_the_seed_and_the_sizes(path, tmp_path):
    batches = divided(path, tmp_path / "run", random_seed=5)
    record = json.loads((tmp_path / "run" / "swiss_rows" / "split.json").read_text())
    assert record["rows"] == list(map(len, batches))
    with opened_table(path, tmp_path / "run") as table:
        assert splitting.recorded_seed(table) == 5
    with opened_table(path, tmp_path / "other") as table:
        assert splitting.recorded_seed(table) is None


def test_rows_of_the_user_in_the_folder_of_the_split_are_left_alone(frame, path, tmp_path):
    own = tmp_path / "run" / "swiss_rows"
    own.mkdir(parents=True)
    frame.to_parquet(own / "own.parquet")
    with pytest.raises(ValueError, match=r"own.parquet is in .*Pass another folder than"):
        divided(own / "own.parquet", tmp_path / "run")
    with pytest.raises(ValueError, match=r"holds others.*Pass another folder than"):
        divided(path, tmp_path / "run")
    assert [file.name for file in own.iterdir()] == ["own.parquet"]


def test_a_folder_of_the_user_named_rows_is_no_hindrance(frame, tmp_path):
    (tmp_path / "rows").mkdir()
    frame.to_parquet(tmp_path / "rows" / "own.parquet")
    first = numbers(divided(tmp_path / "rows" / "*.parquet", tmp_path))
    assert numbers(divided(tmp_path / "rows", tmp_path)) == first


def test_an_empty_folder_is_written_to(path, tmp_path):
    (tmp_path / "run" / "swiss_rows").mkdir(parents=True)
    assert numbers(divided(path, tmp_path / "run")) == numbers(divided(path))


def test_the_folder_of_a_run_may_be_inside_that_of_the_data(frame, tmp_path):
    frame.to_parquet(tmp_path / "rows.parquet")
    first = numbers(divided(tmp_path, tmp_path / "run"))
    assert numbers(divided(tmp_path, tmp_path / "run")) == first
    assert numbers(divided(tmp_path)) == first

"""The folder of finished batches: real files, cut short, unreadable, on a disk that is full."""

import copy
import datetime
import errno
import json
import os
import subprocess
import sys
import tracemalloc

import arviz as az
import distributed
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from arviz_swiss.data import containers
from arviz_swiss.data.messages import MergeWarning
from arviz_swiss.parallel import store


def make_batch(label="b0", draws=50):
    rng = np.random.default_rng(1)
    posterior = xr.Dataset(
        {
            "beta": (("chain", "draw", "k"), rng.normal(size=(2, draws, 2))),
            "sigma": (("chain", "draw"), rng.normal(size=(2, draws))),
        },
        coords={"chain": [0, 1], "draw": np.arange(draws), "k": ["a", "b"]},
        attrs={"swiss_batch": label, "swiss_size": 7, "swiss_power": 2.5},
    )
    stats = xr.Dataset({"diverging": (("chain", "draw"), np.zeros((2, draws), dtype=bool))})
    groups = {"posterior": posterior, "sample_stats": stats}
    return containers.build(groups)


def test_round_trip(tmp_path):
    batch = make_batch()
    store.write_batch(tmp_path, "b0", batch)
    back = store.read_batch(tmp_path, "b0")
    assert type(back) is type(batch)
    for name in ("posterior", "sample_stats"):
        xr.testing.assert_identical(
            containers.read(back).groups[name], containers.read(batch).groups[name]
        )
    assert [path.name for path in tmp_path.iterdir()] == ["b0.nc"]


def test_a_batch_is_written_while_a_dask_client_is_active(tmp_path):
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster),
    ):
        store.write_batch(tmp_path, "b0", make_batch())
    assert store.read_batch(tmp_path, "b0") is not None


def test_arviz_reads_the_file_as_its_own(tmp_path):
    batch = make_batch()
    store.write_batch(tmp_path, "b0", batch)
    read = az.from_netcdf(tmp_path / "b0.nc")
    assert type(read) is type(batch)
    np.testing.assert_array_equal(read.posterior["beta"], batch.posterior["beta"])
    assert read.posterior.attrs["swiss_power"] == 2.5


def test_a_batch_that_is_not_there(tmp_path):
    assert store.read_batch(tmp_path, "b0") is None
    assert store.read_batch(tmp_path / "nowhere", "b0") is None


@pytest.mark.parametrize("part", [0, 0.01, 0.3, 0.7, 0.99])
def test_a_file_cut_short_is_not_read(tmp_path, part):
    store.write_batch(tmp_path, "b0", make_batch())
    path = tmp_path / "b0.nc"
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    with pytest.warns(MergeWarning, match=r"batch b0: .*b0.nc cannot be read .* sampled again"):
        assert store.read_batch(tmp_path, "b0") is None


def test_a_file_under_another_name_is_not_read(tmp_path):
    store.write_batch(tmp_path, "b1", make_batch("b0"))
    content = (tmp_path / "b1.nc").read_bytes()
    with pytest.raises(ValueError, match=r"b1\.nc holds batch b0, not b1\. Move the file away"):
        store.read_batch(tmp_path, "b1")
    assert (tmp_path / "b1.nc").read_bytes() == content


def test_temporary_files_are_not_read(tmp_path):
    store.write_batch(tmp_path, "b0", make_batch())
    (tmp_path / "b0.nc").rename(tmp_path / ".b0.nc.12ab.tmp")
    assert store.read_batch(tmp_path, "b0") is None
    assert store.read_settings(tmp_path) is None


FULL_DISK = """
import resource, sys
sys.path[:0] = {path!r}
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_store import make_batch
from arviz_swiss.parallel import store
folder = Path({folder!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
try:
    store.write_batch(folder, "b1", make_batch("b1", draws=5_000))
except OSError as error:
    print(error)
store.write_batch(folder, "b2", make_batch("b2"))
print("alive")
"""


def test_disk_full_while_writing(tmp_path):
    script = FULL_DISK.format(
        path=sys.path, tests=os.path.dirname(__file__), folder=os.fspath(tmp_path)
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "batch b1 was sampled but could not be saved" in done.stdout
    assert done.stdout.endswith("alive\n")
    assert [path.name for path in tmp_path.iterdir()] == ["b2.nc"]


WRITERS = {
    "batch b0 was sampled": lambda folder: store.write_batch(folder, "b0", make_batch()),
    "stage pilot was done": lambda folder: store.write_result(folder, "pilot", {}, {}),
}


@pytest.mark.parametrize("done", WRITERS)
def test_what_cannot_be_written_is_named_and_its_memory_given_back(tmp_path, monkeypatch, done):
    views = []

    def refuse(path, content):
        views.append(content)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "_write_new", refuse)
    with pytest.raises(OSError, match=rf"{done} but could not be saved in .*: No space left"):
        WRITERS[done](tmp_path)
    # a view that is still open at exit crashes the interpreter
    with pytest.raises(ValueError, match="released"):
        len(views[0])


def test_settings_round_trip(tmp_path):
    folder = tmp_path / "a" / "b"
    assert store.read_settings(folder) is None
    settings = {"batches": 3, "kind": "inflated", "groups": None, "random_seed": 2**63}
    store.create_settings(folder, settings)
    assert store.read_settings(folder) == settings
    assert json.loads((folder / "settings.json").read_text()) == settings


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    assert store.read_settings(tmp_path / "file" / "folder") is None
    with pytest.raises(OSError, match=r"folder .*file.folder cannot be written to: Not a dir"):
        store.create_settings(tmp_path / "file" / "folder", {})


def test_folder_with_batches_but_without_settings(tmp_path):
    store.write_batch(tmp_path, "b0", make_batch())
    with pytest.raises(ValueError, match=r"holds batches but no settings.json"):
        store.read_settings(tmp_path)


@pytest.mark.parametrize(
    "content, reason",
    [
        ("{", "Expecting property name"),
        ("", "Expecting value"),
        ("[]", "it holds a list, expected an object"),
        ("null", "it holds a NoneType"),
        ('"batches"', "it holds a str"),
        ("{}", "its random_seed is None, expected an integer"),
        ('{"random_seed": "five"}', "its random_seed is 'five'"),
        ('{"random_seed": -1}', "its random_seed is -1"),
        ('{"batches": 3, "random_see', "Unterminated string"),
        (b"\xff\xfe", "can't decode"),
    ],
)
def test_settings_that_are_none(tmp_path, content, reason):
    content = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "settings.json").write_bytes(content)
    message = rf"settings.json cannot be read as the settings of a folder: .*{reason}.*Pass another"
    with pytest.raises(ValueError, match=message):
        store.read_settings(tmp_path)


def test_settings_are_created_once(tmp_path):
    assert store.create_settings(tmp_path, {"random_seed": 1})
    assert not store.create_settings(tmp_path, {"random_seed": 2})
    assert store.read_settings(tmp_path) == {"random_seed": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]


def test_settings_are_created_once_without_hard_links(tmp_path, monkeypatch):
    """No file system without them can be mounted here, so the call answers as theirs does."""

    def link(source, target):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    test_settings_are_created_once(tmp_path)


CREATE = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from arviz_swiss.parallel import store
print("ready", flush=True)
sys.stdin.readline()
number = int(sys.argv[1])
settings = {{"random_seed": number, "padding": "x" * 100_000}}
print(store.create_settings(Path({folder!r}), settings))
print(store.read_settings(Path({folder!r}))["random_seed"])
"""


def test_of_several_processes_one_creates_the_settings(tmp_path):
    folder = tmp_path / "runs"
    script = CREATE.format(path=sys.path, folder=os.fspath(folder))
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", script, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    told = [process.communicate(timeout=120)[0].split() for process in processes]
    (winner,) = [number for number, (created, _) in enumerate(told) if created == "True"]
    assert {seed for _, seed in told} == {str(winner)}
    assert [path.name for path in folder.iterdir()] == ["settings.json"]


def test_a_file_of_another_run_is_refused_and_left_alone(tmp_path):
    store.write_batch(tmp_path, "b0", make_batch())
    assert store.read_batch(tmp_path, "b0", {"swiss_power": 2.5}) is not None
    content = (tmp_path / "b0.nc").read_bytes()
    for attrs in ({"swiss_partition": "aa"}, {"swiss_power": 3.5}):
        (name,) = attrs
        with pytest.raises(ValueError, match=rf"b0.nc is of another run .*: {name} differ"):
            store.read_batch(tmp_path, "b0", attrs)
    assert (tmp_path / "b0.nc").read_bytes() == content


def test_every_setting_that_differs_is_named(tmp_path):
    old = {"draws": 500, "kind": "inflated", "tune": 10}
    store.require_same(old, dict(old), tmp_path)
    with pytest.raises(ValueError, match=r"draws: 500 → 600, groups: None → ab\. ") as error:
        store.require_same(old, {**old, "draws": 600, "groups": "ab"}, tmp_path)
    assert "kind" not in str(error.value)


FRAME = pd.DataFrame({"x": [1.0, 2.0], "g": ["a", "b"], "t": pd.to_datetime(["2020", "2021"])})
DIFFERENT = {
    "array": np.arange(6.0),
    "dtype": np.arange(6),
    "shape": np.arange(6.0).reshape(2, 3),
    "value": np.array([0, 1, 2, 3, 4, 6.0]),
    "dict": {"x": np.arange(6.0)},
    "name": {"y": np.arange(6.0)},
    "frame": FRAME,
    "column": FRAME.rename(columns={"x": "y"}),
    "text": FRAME.assign(g=["a", "c"]),
    "order": FRAME.iloc[::-1],
    "category": FRAME.assign(g=FRAME["g"].astype("category").cat.rename_categories(["a", "d"])),
    "codes": FRAME.assign(g=pd.Categorical(["a", "b"], categories=["a", "b"])),
    "other codes": FRAME.assign(g=pd.Categorical(["a", "b"], categories=["b", "a"])),
    "time zone": FRAME.assign(t=FRAME["t"].dt.tz_localize("UTC")),
    "mask": np.ma.array(np.arange(6.0), mask=np.arange(6) == 2),
    "other mask": np.ma.array(np.arange(6.0), mask=np.arange(6) == 3),
    "missing text": FRAME.assign(g=["a", None]),
    "empty text": FRAME.assign(g=["a", ""]),
    "text nan": FRAME.assign(g=["a", "nan"]),
    "large integers": [2**70, 1],
    "larger integers": [2**70 + 1, 1],
    "series": FRAME["x"],
    "dataset": xr.Dataset.from_dataframe(FRAME[["x"]]),
    "labels": xr.Dataset.from_dataframe(FRAME[["x"]]).assign_coords(index=[5, 6]),
    "list": ["a", "b"],
    "scalar": "x",
    "number": 3,
    "text number": "3",
    "nested": {"x": {"y": 1}, "z": 2},
    "nested otherwise": {"x": {"y": 1, "z": 2}},
    "pairs": [["a"], ["b", "c"]],
    "pairs otherwise": [["a", "b"], ["c"]],
}


def test_fingerprints_tell_data_apart_and_repeat():
    prints = {name: store.fingerprint(data) for name, data in DIFFERENT.items()}
    assert len(set(prints.values())) == len(DIFFERENT)
    assert prints == {name: store.fingerprint(data) for name, data in DIFFERENT.items()}
    assert store.fingerprint(FRAME.copy()) == prints["frame"]


DAY = datetime.date(2020, 1, 1)
LIKE = {
    "layout": (np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(6.0).reshape(2, 3)),
    "part": (np.arange(10)[::2], np.array([0, 2, 4, 6, 8])),
    "blocks": (pd.DataFrame({"x": [1.0], "y": [2.0]}), pd.DataFrame([[1.0, 2.0]], columns=[*"xy"])),
    "order of keys": ({"b": 1, 3: 2, None: 4}, {None: 4, 3: 2, "b": 1}),
    "order of a set": ({"a", "b", 3}, {3, "b", "a"}),
    "one object twice": ([DAY, DAY], [DAY, datetime.date(2020, 1, 1)]),
    "chunks": (xr.Dataset({"x": ("i", np.ones(4))}).chunk(2), xr.Dataset({"x": ("i", np.ones(4))})),
    "text": (np.array(["a", "bc"], dtype=object), np.array(["a", "".join("bc")], dtype=object)),
}  # fmt: skip


@pytest.mark.parametrize(("data", "same"), LIKE.values(), ids=LIKE)
def test_fingerprints_are_of_values_not_of_memory(data, same):
    assert store.fingerprint(data) == store.fingerprint(same)


HASHED = """
import sys
sys.path[:0] = {path!r}
import numpy as np
from arviz_swiss.parallel import store
print(store.fingerprint([{{"b": np.arange(3), 3: None}}, {{"x", "y", 2}}, "text"]))
"""


def test_fingerprints_are_the_same_in_every_process():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HASHED.format(path=sys.path)],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = store.fingerprint([{"b": np.arange(3), 3: None}, {"x", "y", 2}, "text"])
    assert done.stdout.strip() == here


def test_large_arrays_are_not_copied():
    large = np.zeros((50_000, 20))
    data = {"x": large, "y": pd.DataFrame(large)}
    tracemalloc.start()
    store.fingerprint(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < large.nbytes / 4  # a column of a table may be, while it is read


LONG = 200_000
SLOWLY_READ = {
    "numbers": np.linspace(0, 1, LONG).tolist(),
    "times": pd.Series(pd.date_range("2020", periods=LONG, freq="s", tz="UTC")),
}


@pytest.mark.parametrize("data", SLOWLY_READ.values(), ids=SLOWLY_READ)
def test_columns_of_objects_are_read_at_once(data):
    tracemalloc.start()
    store.fingerprint(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 80 * LONG  # a list of type and text for each entry takes five times as much


def test_fingerprints_read_long_arrays_in_cells():
    """NumPy prints the first and the last three of many numbers."""
    curve = np.arange(5000.0)
    other = curve.copy()
    other[2500] = -1
    ragged = [np.empty(2, dtype=object) for _ in range(2)]
    ragged[0][:], ragged[1][:] = [curve, curve[:3]], [other, curve[:3]]
    frames = [pd.DataFrame({"id": [1, 2], "curve": [one, curve]}) for one in (curve, other)]
    lists = [[curve, np.ones((5, 2))], [other, np.ones((5, 2))]]
    for one, changed in (ragged, frames, lists):
        assert store.fingerprint(one) == store.fingerprint(copy.deepcopy(one))
        assert store.fingerprint(one) != store.fingerprint(changed)


def test_a_folder_of_an_earlier_version_is_said_to_be_one(tmp_path):
    now = {"draws": 500, "random_seed": 1, "partition": "a7"}
    with pytest.raises(ValueError, match=r"made by an earlier version .* Pass another folder"):
        store.require_same({"draws": 500, "random_seed": 1}, now, tmp_path)

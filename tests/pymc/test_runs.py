"""The folder of a run: resumed, refused, shared by two processes, killed, on a full disk."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from batch_models import DATA, assert_same_draws, build, mean_only, with_prior

import arviz_swiss
from arviz_swiss import merge
from arviz_swiss.data import containers
from arviz_swiss.data.messages import MergeWarning
from arviz_swiss.parallel import store
from arviz_swiss.parallel.partition import partition


def test_resuming_a_folder(quick, tmp_path):
    idatas = quick(mean_only, batches=3, random_seed=11)
    folder = tmp_path / "runs"
    first = quick(mean_only, batches=3, random_seed=11, folder=str(folder))
    assert_same_draws(first, idatas)
    assert {path.name for path in folder.iterdir()} == {
        *(f"b{i}.nc" for i in range(3)),
        "settings.json",
    }
    (folder / "b1.nc").unlink()
    content = (folder / "b2.nc").read_bytes()
    (folder / "b2.nc").write_bytes(content[:-100])
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}

    with pytest.warns(MergeWarning, match=r"batch b2: .*sampled again"):
        resumed = quick(mean_only, batches=3, folder=folder)  # the seed is that of the folder

    assert_same_draws(resumed, idatas)
    changed = {
        path.name for path in folder.iterdir() if path.stat().st_mtime_ns != before.get(path)
    }
    assert changed == {"b1.nc", "b2.nc"}

    changes = {
        "batches": 4,
        "kind": "fractionated",
        "draws": 70,
        "tune": 50,
        "chains": 2,
        "nuts_sampler": "nutpie",
        "random_seed": 12,
        "groups": "group",
        "stratify": DATA["x"] > 0,
        "target_accept": 0.9,
    }
    for name, value in changes.items():
        setting = "sample_kwargs" if name == "target_accept" else name
        with pytest.raises(ValueError, match=rf"other settings: .*\b{setting}: .* → "):
            quick(mean_only, **{"batches": 3, "folder": folder, name: value})
    with pytest.raises(ValueError, match=r"other settings: data: \w+ → \w+\."):
        quick(mean_only, DATA.assign(x=DATA["x"] + 1), batches=3, folder=folder)
    assert_same_draws(quick(mean_only, batches=3, folder=folder, reproducible=True), idatas)


def test_a_folder_is_not_resumed_with_another_model(quick, tmp_path):
    """The settings are written before the first batch, so no batch need be sampled here."""
    closed = ThreadPoolExecutor(1)
    closed.shutdown()

    def begin(build):
        quick(build, batches=2, folder=tmp_path, executor=closed)

    for _ in range(2):
        with pytest.raises(RuntimeError, match="could not be submitted"):
            begin(with_prior(10.0))
    message = rf"folder {tmp_path} was begun with: their density differ.* Pass another folder"
    with pytest.raises(ValueError, match=message):
        begin(with_prior(0.01))
    with pytest.raises(ValueError, match=r"their density and structure and deterministics differ"):
        begin(build)
    with pytest.raises(RuntimeError, match="could not be submitted"):
        begin(mean_only)


# Two batches of a mean alone: whether they agree is not at stake.
@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_batches_of_two_models_are_not_merged(quick, tmp_path):
    settings = {"batches": 2, "random_seed": 1}
    narrow, wide, again = (
        quick(with_prior(sd), folder=tmp_path / name, **settings)
        for name, sd in (("narrow", 0.01), ("wide", 10.0), ("again", 10.0))
    )
    with pytest.raises(ValueError, match=r"are of two models: their density differ"):
        merge([wide[0], narrow[1]])
    merge([wide[0], again[1]])


# A model that knows only the mean: random batches may well disagree.
@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
@pytest.mark.parametrize("seed", [None, np.random.default_rng(3), 7])
def test_the_partition_can_be_repeated(quick, seed):
    idatas = quick(mean_only, batches=3, random_seed=seed)
    (text,) = {idata.posterior.attrs["swiss_random_seed"] for idata in idatas}
    for index, idata in zip(partition(DATA, 3, random_seed=int(text)), idatas, strict=True):
        np.testing.assert_array_equal(idata.observed_data["y"], DATA["y"].iloc[index])
    if seed == 7:
        assert text == "7"
    assert merge(idatas).posterior.attrs["swiss_random_seed"] == text


def test_a_folder_holds_the_batches_of_one_run(quick, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    settings = {"batches": 2}
    mine = quick(mean_only, folder=one, random_seed=1, **settings)
    foreign = quick(mean_only, folder=other, random_seed=2, **settings)
    for idata in mine:
        attrs = idata["posterior"].attrs
        recorded = json.loads(attrs["swiss_settings"])
        assert recorded["partition"] == attrs["swiss_partition"]
        assert recorded["random_seed"] == int(attrs["swiss_random_seed"]) == 1
        assert recorded["data"] == store.fingerprint(DATA)
        assert attrs["swiss_version"] == arviz_swiss.__version__
        assert attrs["swiss_pymc_version"] == pm.__version__
    with pytest.raises(ValueError, match=r'\("b0"\) and .*\("b1"\) are of two partitions'):
        merge([mine[0], foreign[1]])

    (other / "b1.nc").replace(one / "b1.nc")
    with pytest.raises(ValueError, match=r"one/b1.nc is of another run .* Move the file away"):
        quick(mean_only, folder=one, **settings)
    (one / "b1.nc").unlink()
    assert_same_draws(quick(mean_only, folder=one, **settings), mine)


def test_a_folder_begun_with_other_versions(quick, tmp_path):
    settings = {"batches": 2, "folder": tmp_path}
    mine = quick(mean_only, random_seed=1, **settings)
    path = tmp_path / "settings.json"
    recorded = json.loads(path.read_text())
    assert recorded["version pymc"] == pm.__version__
    assert recorded["version arviz_swiss"] == arviz_swiss.__version__
    path.write_text(json.dumps({**recorded, "version pymc": "4.0"}))
    assert_same_draws(quick(mean_only, **settings), mine)
    (tmp_path / "b1.nc").unlink()
    message = rf"other versions: pymc 4.0 → {pm.__version__}\. The batches that are missing"
    with pytest.warns(MergeWarning, match=message):
        again = quick(mean_only, **settings)
    assert_same_draws(again, mine)


def test_one_batch_alone_is_no_partition(quick):
    (idata,) = quick(mean_only, batches=1)
    assert "swiss_partition" not in idata["posterior"].attrs


def test_numpy_integers_as_settings(quick, tmp_path):
    settings = {"batches": np.int64(2), "draws": np.int64(5), "tune": np.int64(5), "chains": 1}
    quick(mean_only, folder=tmp_path, random_seed=1, **settings)
    quick(mean_only, folder=tmp_path, random_seed=1, **{**settings, "draws": 5})


@pytest.mark.parametrize("content", ["[]", "{}", "3", '{"random_seed": 1.5}'])
def test_settings_that_are_none(quick, tmp_path, content):
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(ValueError, match=r"settings.json cannot be read as the settings of a fold"):
        quick(mean_only, batches=2, folder=tmp_path)


def test_folder_that_cannot_be_written_to(quick, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"folder .* cannot be written to: Not a directory"):
        quick(mean_only, batches=2, folder=tmp_path / "file" / "runs")


SCRIPT = """
import sys
sys.path[:0] = {path!r}
import warnings
warnings.simplefilter("ignore")
import os
import resource
import threading
import time
import numpy as np
import pymc as pm
from concurrent.futures import ThreadPoolExecutor
from arviz_swiss import partition
from arviz_swiss.pymc import BatchError, sample_batches

def build(batch):
    # the worker never gets beyond the model of the third batch
    in_worker = threading.current_thread() is not threading.main_thread()
    third = partition(data, 3, random_seed=5)[2]
    if "STALL" in os.environ and in_worker and batch[0] == data[third[0]]:
        time.sleep(600)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("y", mu, 1, observed=pm.Data("y_data", batch))
    return model

data = np.random.default_rng(0).normal(size=60)
settings = dict(batches=3, folder={folder!r}, nuts_sampler={sampler!r}, draws={draws}, tune={draws},
                random_seed=5, progressbar=False, reproducible=True)
{body}
"""


# What is at stake are files: no compiler is needed.
UNCOMPILED = "mode=FAST_COMPILE,cxx="


def script_of(folder, body, sampler="nutpie", draws=100):
    return SCRIPT.format(
        path=sys.path, folder=os.fspath(folder), body=body, sampler=sampler, draws=draws
    )


def start(script, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def finish(process):
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output


def wait_for(path, process):
    deadline = time.monotonic() + 300
    while not path.exists():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)


# Both processes have read an empty folder, and drawn a seed, before they meet in their first model.
RACE = """
import sys
sys.path[:0] = {path!r}
import warnings
warnings.simplefilter("ignore")
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy as np
import pymc as pm
from arviz_swiss.pymc import sample_batches

MET = Path({met!r})

def build(batch):
    (MET / str(os.getpid())).touch()
    while len(list(MET.iterdir())) < 2:
        time.sleep(0.01)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("y", mu, 1, observed=pm.Data("y_data", batch))
    return model

with ThreadPoolExecutor(1) as executor:
    idatas = sample_batches(build, np.arange(40.0), batches=4, folder={folder!r}, draws=20, tune=20,
                            chains=1, nuts_sampler="pymc", executor=executor, progressbar=False)
for idata in idatas:
    attrs, rows = idata["posterior"].attrs, idata["observed_data"]["y"].values.tolist()
    print(json.dumps([attrs["swiss_random_seed"], attrs.get("swiss_partition"), rows]))
"""


@pytest.mark.slow
def test_two_processes_on_one_folder(tmp_path):
    folder, met = tmp_path / "runs", tmp_path / "met"
    met.mkdir()
    script = RACE.format(path=sys.path, met=os.fspath(met), folder=os.fspath(folder))
    both = [start(script, PYTENSOR_FLAGS=UNCOMPILED) for _ in range(2)]
    batches = [json.loads(line) for process in both for line in finish(process).splitlines()]
    assert len(batches) == 8
    assert batches[:4] == batches[4:]
    ((seed, _),) = {(seed, rows) for seed, rows, _ in batches}
    assert json.loads((folder / "settings.json").read_text())["random_seed"] == int(seed)
    assert sorted(value for _, _, values in batches[:4] for value in values) == list(range(40))
    assert {path.suffix for path in folder.iterdir()} == {".nc", ".json"}
    for label, (_, partitioned, values) in zip(("b0", "b1", "b2", "b3"), batches, strict=False):
        groups = containers.read(folder / f"{label}.nc").groups
        assert groups["posterior"].attrs["swiss_partition"] == partitioned
        assert groups["observed_data"]["y"].values.tolist() == values


STALLING = """
os.environ["STALL"] = "yes"
with ThreadPoolExecutor(1) as executor:
    sample_batches(build, data, executor=executor, **settings)
"""
RESUMING = """
with ThreadPoolExecutor(1) as executor:
    sample_batches(build, data, executor=executor, **settings)
    sample_batches(build, data, executor=executor, **{**settings, "folder": os.environ["WHOLE"]})
"""


@pytest.mark.slow
def test_killed_half_way_and_resumed(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    # the first process finds nothing compiled on the disk, the second finds what it left
    flags = f"base_compiledir={tmp_path / 'compiled'}"
    environment = {"PYTENSOR_FLAGS": flags, "WHOLE": os.fspath(whole)}
    process = start(script_of(killed, STALLING), **environment)
    wait_for(killed / "b1.nc", process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = [(killed / name).stat() for name in ("b0.nc", "b1.nc")]
    assert not (killed / "b2.nc").exists()

    finish(start(script_of(killed, RESUMING), **environment))

    after = [(killed / name).stat() for name in ("b0.nc", "b1.nc")]
    assert [(s.st_mtime_ns, s.st_ino) for s in after] == [(s.st_mtime_ns, s.st_ino) for s in before]
    resumed, complete = (
        [containers.read(folder / f"b{i}.nc").groups["posterior"].load() for i in range(3)]
        for folder in (killed, whole)
    )
    for posterior, expected in zip(resumed, complete, strict=True):
        xr.testing.assert_equal(posterior, expected)


INTERRUPTED = """
import signal
# shells start background jobs with interrupts ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
sample_batches(build, data, **{**settings, "draws": 500_000, "tune": 100, "reproducible": False})
"""


@pytest.mark.slow
def test_an_interrupt_ends_the_threads_and_keeps_what_is_done(tmp_path):
    script = script_of(tmp_path, INTERRUPTED)
    with start(script, LOKY_MAX_CPU_COUNT="1") as process:
        try:
            wait_for(tmp_path / "b0.nc", process)
            process.send_signal(signal.SIGINT)
            started = time.monotonic()
            _, errors = process.communicate(timeout=300)
            elapsed = time.monotonic() - started
        finally:
            process.kill()
    hint = f"1 of 3 batches were finished and are saved in {tmp_path}: the same call goes on"
    assert f"KeyboardInterrupt\n{hint}" in errors
    assert {path.name for path in tmp_path.iterdir()} == {"b0.nc", "settings.json"}
    # the second batch, which had hardly begun, was not waited for
    posterior = containers.read(tmp_path / "b0.nc").groups["posterior"]
    assert elapsed < posterior.attrs["sampling_time"]


DISK_FULL = """
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
with ThreadPoolExecutor(1) as executor:
    try:
        sample_batches(build, data, executor=executor, **settings)
    except BatchError as error:
        print(error)
        print(sorted(error.idatas), sorted(error.failed))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(len(sample_batches(build, data, executor=executor, **settings)))
"""


@pytest.mark.slow
def test_disk_full_while_saving(tmp_path):
    folder = tmp_path / "runs"
    script = script_of(folder, DISK_FULL, sampler="pymc", draws=20)
    output = finish(start(script, PYTENSOR_FLAGS=UNCOMPILED))
    assert "3 of 3 batches failed: b0 (OSError: [Errno 27] batch b0 was sampled but could" in output
    assert "['b0', 'b1', 'b2'] ['b0', 'b1', 'b2']\n3\n" in output
    names = {path.name for path in folder.iterdir()}
    assert names == {"b0.nc", "b1.nc", "b2.nc", "settings.json"}
    assert json.loads((folder / "settings.json").read_text())["random_seed"] == 5

"""merge(into=): the same merge, written batch by batch, where draws do not fit in memory."""

import os
import subprocess
import sys
import weakref

import arviz as az
import dask
import dask.array
import numpy as np
import pytest
import xarray as xr
from merged_groups import groups_of
from normal_density import Normal
from parts import assert_alike, said_by

import arviz_swiss as az_swiss
from arviz_swiss.data import containers, temporaries

pytestmark = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
CHAINS, DRAWS = 2, 100


def batch_of(seed, to_container):
    rng = np.random.default_rng(seed)
    coords = {"k": ["a", "b", "c"]}
    posterior = xr.Dataset(
        {
            "beta": (("chain", "draw", "k"), rng.normal(size=(CHAINS, DRAWS, 3))),
            "tau": (("chain", "draw"), rng.gamma(9.0, size=(CHAINS, DRAWS))),
        },
        coords=coords,
        attrs={"swiss_kind": "inflated", "swiss_power": 4.0, "swiss_batch": f"batch {seed}"},
    )
    stats = {"diverging": np.zeros((CHAINS, DRAWS)), "lp": np.ones((CHAINS, DRAWS))}
    rows = {"row": np.arange(5) + 5 * seed}
    observed = xr.Dataset({"y": ("row", rng.normal(size=5))}, coords=rows)
    return to_container(posterior, sample_stats=stats, observed_data=observed)


@pytest.fixture
def files(tmp_path, to_container):
    paths = [tmp_path / f"b{seed}.nc" for seed in range(4)]
    for seed, path in enumerate(paths):
        batch_of(seed, to_container).to_netcdf(path)
    return paths


def assert_same(stored, merged):
    present, expected = groups_of(stored), groups_of(merged)
    assert set(present) == set(expected)
    for name, dataset in expected.items():
        assert_alike(present[name].load(), dataset)
    assert said_by(present["posterior"]) == said_by(expected["posterior"])


def test_the_store_holds_what_merge_returns(files, tmp_path):
    target = tmp_path / "merged.zarr"
    stored = az_swiss.merge(files, into=target, transforms={"tau": "log"})
    merged = az_swiss.merge(files, transforms={"tau": "log"})
    assert type(stored) is type(merged)
    assert_same(stored, merged)
    assert_same(containers.build(containers.read(target).groups), merged)
    assert not list(tmp_path.glob(".*"))


def test_the_store_is_opened_lazily(files, tmp_path):
    stored = az_swiss.merge(files, into=tmp_path / "merged.zarr")
    assert not stored["posterior"]["beta"].variable._in_memory
    tree = xr.open_datatree(tmp_path / "merged.zarr", engine="zarr")
    assert tree["posterior/beta"].encoding["chunks"] == (1, DRAWS, 3)
    # ArviZ 0.23 does not read stores itself where zarr is newer than it
    is_old = containers.native_container() == "InferenceData"
    read = az.InferenceData.from_datatree if is_old else xr.DataTree.copy
    assert az.summary(read(tree)).equals(az.summary(stored))


def test_everything_works_on_the_store(files, tmp_path):
    stored = az_swiss.merge(files, into=tmp_path / "merged.zarr", transforms={"tau": "log"})
    merged = az_swiss.merge(files, transforms={"tau": "log"})
    assert az.summary(stored).equals(az.summary(merged))
    assert str(az_swiss.report(stored)) == str(az_swiss.report(merged))
    assert str(az_swiss.report(tmp_path / "merged.zarr")) == str(az_swiss.report(merged))
    back, again = (az_swiss.subposteriors(each) for each in (stored, merged))
    for label, own in again.items():
        assert_alike(groups_of(back[label])["posterior"], groups_of(own)["posterior"])

    densities = {label: Normal(np.full(4, k)) for k, label in enumerate(again)}
    options = {"rounds": 1, "random_seed": 1, "progressbar": False}
    refined = [groups_of(az_swiss.refine(x, densities, **options)) for x in (stored, merged)]
    assert_alike(refined[0]["posterior"], refined[1]["posterior"])


def test_zarr_stores_and_containers_are_batches_too(files, tmp_path, to_container):
    for position, path in enumerate(files):
        az_swiss.merge([path], into=tmp_path / f"s{position}.zarr", kind="inflated", powers=1)
    stores = [tmp_path / f"s{position}.zarr" for position in range(4)]
    options = {"kind": "inflated", "powers": 4}
    stored = az_swiss.merge(stores, into=tmp_path / "merged.zarr", **options)
    assert_same(stored, az_swiss.merge(stores, **options))
    batches = [batch_of(seed, to_container) for seed in range(3)]
    stored = az_swiss.merge(batches, into=tmp_path / "again.zarr", powers=3)
    assert_same(stored, az_swiss.merge(batches, powers=3))


def test_statistics_of_several_dtypes(tmp_path, to_container):
    """Every batch's values are in the store, whatever the first batch's are stored as."""
    ones = np.ones((CHAINS, DRAWS))
    stats = [
        {"text": np.full(ones.shape, "ab"), "share": ones > 0, "depth": ones.astype(np.int8)},
        {"text": np.full(ones.shape, "abcdef"), "share": 0.5 * ones, "depth": 300 * ones},
        {"text": np.full(ones.shape, "abc", object), "share": ones > 0, "depth": ones},
    ]
    batches = []
    for seed, own in enumerate(stats):
        own = xr.Dataset({name: (("chain", "draw"), values) for name, values in own.items()})
        posterior = groups_of(batch_of(seed, to_container))["posterior"]
        batches.append(to_container(posterior, sample_stats=own))
    for count in (2, 3):
        stored = az_swiss.merge(batches[:count], into=tmp_path / f"m{count}.zarr", powers=count)
        assert_same(stored, az_swiss.merge(batches[:count], powers=count))
        assert stored["sample_stats"]["text"].values[CHAINS, 0] == "abcdef"


def test_a_store_is_replaced_on_demand_alone(files, tmp_path):
    target = tmp_path / "merged.zarr"
    az_swiss.merge(files, into=target)
    before = containers.read(target).groups["posterior"].load()
    with pytest.raises(FileExistsError, match=r"merged.zarr is there already: pass overwrite=True"):
        az_swiss.merge(files[:3], into=target, powers=3)
    assert_alike(containers.read(target).groups["posterior"].load(), before)
    stored = az_swiss.merge(files[:3], into=target, powers=3, overwrite=True)
    assert_same(stored, az_swiss.merge(files[:3], powers=3))
    assert_same(containers.build(containers.read(target).groups), stored)
    assert not list(tmp_path.glob(".*"))


def test_what_is_no_merged_object_is_not_replaced(files, tmp_path):
    folder, file, foreign = (tmp_path / f"{name}.zarr" for name in ("folder", "file", "foreign"))
    folder.mkdir()
    (folder / "precious.txt").write_text("mine")
    file.write_text("mine")
    xr.Dataset({"image": ("x", [1.0])}).to_zarr(foreign, zarr_format=2)
    for target, text in (
        (folder, "no zarr store"),
        (file, "no zarr store"),
        (foreign, "of no merged"),
    ):
        with pytest.raises(ValueError, match=rf"{target.name} is .*{text}.*choose another name"):
            az_swiss.merge(files, into=target, overwrite=True)
    assert (folder / "precious.txt").read_text() == file.read_text() == "mine"
    assert xr.open_zarr(foreign)["image"].values.tolist() == [1.0]


def test_an_input_is_not_replaced(files, tmp_path):
    first = tmp_path / "s0.zarr"
    stored = az_swiss.merge(files[:1], into=first, kind="inflated", powers=1)
    before = groups_of(stored)["posterior"].copy().load()
    link = tmp_path / "link.zarr"
    link.symlink_to(first)
    options = {"kind": "inflated", "powers": 2, "overwrite": True}
    for source, target in ((first, first), (first, link), (link, first), (stored, first)):
        other = groups_of(az_swiss.merge(files[1:2], kind="inflated", powers=1))["posterior"]
        sources = [stored["posterior"] if source is stored else source, other]
        with pytest.raises(ValueError, match=r"s0.zarr is one of the inputs: choose another name"):
            az_swiss.merge(sources, into=target, **options)
    assert_alike(containers.read(first).groups["posterior"].load(), before)


def test_a_link_stays_and_what_it_stands_for_is_replaced(files, tmp_path):
    place, link = tmp_path / "far" / "real.zarr", tmp_path / "link.zarr"
    link.symlink_to(place)
    for _ in range(2):
        stored = az_swiss.merge(files, into=link, overwrite=True)
        assert link.is_symlink()
        assert_same(containers.build(containers.read(place).groups), stored)


def test_a_merge_that_fails_leaves_what_was_there(files, tmp_path, monkeypatch):
    target = tmp_path / "merged.zarr"
    az_swiss.merge(files, into=target)
    before = containers.read(target).groups["posterior"].load()
    from arviz_swiss.merging import into

    real, calls = into._write_part, []

    def fail_late(*args):
        calls.append(args)
        if len(calls) > 4:
            raise OSError(28, "No space left on device")
        real(*args)

    monkeypatch.setattr(into, "_write_part", fail_late)
    with pytest.raises(OSError, match="No space left"):
        az_swiss.merge(files[:3], into=target, powers=3, overwrite=True)
    assert_alike(containers.read(target).groups["posterior"].load(), before)
    with pytest.raises(OSError, match="No space left"):
        az_swiss.merge(files, into=tmp_path / "other.zarr")
    assert sorted(p.name for p in tmp_path.glob("*.zarr")) == ["merged.zarr"]
    assert not list(tmp_path.glob(".*"))


def test_a_store_is_back_if_the_new_one_cannot_take_its_place(files, tmp_path, monkeypatch):
    target = tmp_path / "merged.zarr"
    az_swiss.merge(files, into=target)
    before = containers.read(target).groups["posterior"].load()
    replace = os.replace

    def fail_for_new(source, place):
        if str(source).endswith(".tmp"):
            raise PermissionError(13, "Permission denied")
        replace(source, place)

    monkeypatch.setattr(os, "replace", fail_for_new)
    with pytest.raises(PermissionError):
        az_swiss.merge(files[:3], into=target, powers=3, overwrite=True)
    assert_alike(containers.read(target).groups["posterior"].load(), before)
    assert not list(tmp_path.glob(".*"))


def test_what_a_killed_writer_left_is_put_back_or_removed(files, tmp_path):
    target = tmp_path / "merged.zarr"
    az_swiss.merge(files, into=target)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    writer = f"{temporaries._host()}.{ended.pid}.{32 * 'a'}"
    target.rename(tmp_path / f".merged.zarr.{writer}.old")
    (tmp_path / f".merged.zarr.{writer}.tmp").mkdir()
    other = tmp_path / f".other.zarr.{writer}.tmp"
    other.mkdir()
    with pytest.raises(FileExistsError, match="is there already"):
        az_swiss.merge(files, into=target)
    assert containers.read(target).groups["posterior"].sizes["chain"] == 4 * CHAINS
    assert list(tmp_path.glob(".*")) == [other]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"into": "merged.nc"}, ValueError, r'must end in .zarr: into="merged.zarr"'),
        ({"into": 3}, TypeError, "into must be the path of a zarr store, got int"),
        ({"into": "m.zarr", "method": "consensus"}, ValueError, "merge without into= and save"),
    ],
)
def test_what_cannot_be_written(files, options, error, text):
    with pytest.raises(error, match=text):
        az_swiss.merge(files, **options)


class Drawn(np.ndarray):
    """Draws that can be watched until they are forgotten."""


def test_lazy_batches_are_in_memory_one_at_a_time(tmp_path, to_container):
    live, most, made = set(), [0], []

    def draw(seed):
        draws = np.random.default_rng(seed).normal(size=(CHAINS, DRAWS, 3)).view(Drawn)
        made.append(seed)
        live.add(id(draws))
        weakref.finalize(draws, live.discard, id(draws))
        most[0] = max(most[0], len(live))
        return draws

    batches = []
    for seed in range(6):
        lazy = dask.delayed(draw, pure=False)(seed)
        array = dask.array.from_delayed(lazy, (CHAINS, DRAWS, 3), float)
        batches.append(to_container(xr.Dataset({"theta": (("chain", "draw", "k"), array)})))
    with dask.config.set(scheduler="synchronous"):
        stored = az_swiss.merge(batches, into=tmp_path / "merged.zarr", kind="inflated")
        assert sorted(set(made)) == list(range(6))
        assert most[0] <= 2
        assert all(batch["posterior"]["theta"].chunks for batch in batches)
        assert_same(stored, az_swiss.merge(batches, kind="inflated"))


WITHIN = """
import resource, sys
import numpy as np, xarray as xr
import arviz_swiss as az_swiss
folder, files, allowed = sys.argv[1], sys.argv[2:-1], int(sys.argv[-1])
# what reading, computing and writing import is there before memory is counted
az_swiss.merge(files[:2], into=f"{folder}/warm.zarr", kind="inflated", overwrite=True)
def used():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("VmData")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used() + allowed, -1))
stored = az_swiss.merge(files, into=f"{folder}/merged.zarr", kind="inflated")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited by Linux")
def test_draws_that_do_not_fit_in_memory(tmp_path):
    count, shape = 120, (2, 16_000, 20)
    paths = []
    for seed in range(count):
        draws = np.random.default_rng(seed).normal(size=shape)
        paths.append(str(tmp_path / f"b{seed:03}.nc"))
        posterior = xr.Dataset({"theta": (("chain", "draw", "k"), draws)})
        xr.DataTree.from_dict({"/posterior": posterior}).to_netcdf(paths[-1], engine="h5netcdf")
    allowed = count * draws.nbytes // 4
    arguments = [sys.executable, "-c", WITHIN, str(tmp_path), *paths, str(allowed)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    stored = containers.read(tmp_path / "merged.zarr").groups["posterior"]
    assert stored.sizes["chain"] == 2 * count
    in_memory = az_swiss.merge(paths, kind="inflated")["posterior"]["theta"]
    part = slice(6, 14)
    expected = in_memory[part].values
    np.testing.assert_allclose(stored["theta"][part].values, expected, rtol=1e-12, atol=1e-12)
    # the limit is one that the merge in memory does not keep to
    arguments[2] = WITHIN.replace(', into=f"{folder}/merged.zarr"', "")
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert "MemoryError" in done.stderr

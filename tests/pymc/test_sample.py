"""sample: from a model and a table to one posterior, on every way through it."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import distributed
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from batch_models import DATA, build, hierarchy
from joblib.externals.loky import get_reusable_executor

import arviz_swiss as az_swiss
from arviz_swiss.data import containers
from arviz_swiss.data.messages import MergeWarning
from arviz_swiss.pymc import pilot_run, running, whitened

QUIET = {"progressbar": False, "random_seed": 3}
SHORT = {**QUIET, "batches": 4, "draws": 400}
ROWS = 2000


def make_rows(rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"x": rng.normal(size=rows)})
    table["y"] = 1 + 2 * table["x"] + rng.normal(size=rows)
    return table


TABLE = make_rows()


def groups_of(merged):
    return containers.read(merged).groups


@pytest.fixture(scope="module")
def merged():
    return az_swiss.sample(build, TABLE, **QUIET)


def exact_slope(table):
    """Return mean and sd of the coefficients, given the residual sd, which is nearly known."""
    design = np.column_stack([np.ones(len(table)), table["x"]])
    noise = np.linalg.lstsq(design, table["y"], rcond=None)[1][0] / (len(table) - 2)
    precision = design.T @ design / noise + np.eye(2) / 9
    covariance = np.linalg.inv(precision)
    return covariance @ design.T @ table["y"] / noise, np.sqrt(np.diag(covariance))


def test_the_posterior_is_that_of_all_rows(merged):
    draws = groups_of(merged)["posterior"]["beta"]
    mean, sd = exact_slope(TABLE)
    rows = draws.sizes["chain"] * draws.sizes["draw"]
    # refine leaves the mean off by a few hundredths of an sd
    assert np.abs((draws.mean(("chain", "draw")) - mean) / sd).max() < 0.05 + 4 / np.sqrt(rows)
    np.testing.assert_allclose(draws.std(("chain", "draw")), sd, rtol=0.05 + 4 / np.sqrt(2 * rows))
    assert groups_of(merged)["swiss_certificate"].attrs["status"] == "certified"


def test_what_the_result_holds(merged):
    groups = groups_of(merged)
    assert {"swiss_pilot", "swiss_run", "swiss_certificate", "swiss_transform"} <= set(groups)
    assert list(groups["posterior"].data_vars) == ["beta", "sigma", "variance"]
    assert list(groups["posterior"]["coefficient"].values) == ["level", "slope"]
    posterior = groups["posterior"]
    np.testing.assert_allclose(posterior["variance"], posterior["sigma"] ** 2)
    assert posterior.sizes["chain"] * posterior.sizes["draw"] >= 4000
    run = groups["swiss_run"]
    stages = ["plan", "pilot", "batches", "merge", "refine", "certify"]
    assert list(run["stage"].values) == stages
    assert (run["seconds"] > 0).all()
    assert run.attrs["rule"].startswith("10 batches, by the rows of a batch (200 rows, 400 draws;")
    assert run.attrs["plain"] == run.attrs["with_full_warmup"] == run.attrs["skipped"] == ""
    assert "pilot_khat" in groups["swiss_certificate"]
    assert groups["swiss_pilot"].attrs["how"] == "Laplace"


def test_the_report_has_nothing_against_short_but_good_batches(merged):
    flags = {finding.flag for finding in az_swiss.report(merged).findings}
    assert not flags & {"did not converge", "few effective draws"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["threads", "processes", "dask"])
def test_the_same_draws_on_every_executor(kind, finished):
    with contextlib.ExitStack() as stack:
        if kind == "threads":
            executor = stack.enter_context(ThreadPoolExecutor(2))
        elif kind == "processes":
            executor = stack.enter_context(get_reusable_executor(2, timeout=600))
        else:
            cluster = distributed.LocalCluster(
                n_workers=1, threads_per_worker=1, dashboard_address=":0"
            )
            executor = stack.enter_context(distributed.Client(stack.enter_context(cluster)))
        found = az_swiss.sample(build, TABLE, executor=executor, **SHORT)
    xr.testing.assert_allclose(groups_of(found)["posterior"], groups_of(finished[1])["posterior"])


@pytest.mark.parametrize("kind", ["fractionated", "full_prior"])
def test_other_kinds_of_batches(kind, merged):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MergeWarning)
        other = az_swiss.sample(build, TABLE, kind=kind, **SHORT)
    assert groups_of(other)["posterior"].attrs["swiss_kind"] == kind
    own, expected = (groups_of(each)["posterior"]["beta"] for each in (other, merged))
    shift = (own.mean(("chain", "draw")) - expected.mean(("chain", "draw"))) / expected.std()
    assert np.abs(shift).max() < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["pymc", "nutpie"])
def test_samplers_of_pymc_sample_whitened_batches(sampler, merged):
    with ThreadPoolExecutor(1) as executor:  # not one compilation a process
        other = az_swiss.sample(build, TABLE, nuts_sampler=sampler, executor=executor, **SHORT)
    own, expected = (groups_of(each)["posterior"]["beta"] for each in (other, merged))
    mean, sd = exact_slope(TABLE)
    assert np.abs((own.mean(("chain", "draw")) - mean) / sd).max() < 0.05 + 4 / np.sqrt(400)
    assert own.dims == expected.dims
    assert groups_of(other)["swiss_certificate"].attrs["status"] == "certified"


def test_stages_can_be_left_out():
    merged = az_swiss.sample(build, TABLE, refine=False, certify=False, **SHORT)
    groups = groups_of(merged)
    assert "swiss_certificate" not in groups
    assert "round" not in groups["swiss_transform"].dims
    # without refine the moments need more draws: 100 a parameter, and 400 a batch at least
    sizes = groups["posterior"].sizes
    assert sizes["chain"] * sizes["draw"] == 4 * 400


def test_methods_that_make_new_draws():
    with pytest.raises(ValueError, match=r'method "consensus" makes new draws.*certify=False'):
        az_swiss.sample(build, TABLE, method="consensus", **SHORT)
    merged = az_swiss.sample(build, TABLE, method="consensus", certify=False, **SHORT)
    assert groups_of(merged)["posterior"].attrs["swiss_method"] == "consensus"


def test_deterministics_of_the_rows_are_left_out_and_told():
    def with_rows(batch):
        model = build(batch)
        with model:
            pm.Deterministic("mean_x", model["beta"][0] + batch["x"].mean())
            pm.Deterministic("fitted", model["beta"][0] + model["beta"][1] * model["x"])
        return model

    with pytest.warns(MergeWarning, match="left out of the merge: mean_x"):
        merged = az_swiss.sample(with_rows, TABLE, refine=False, certify=False, **SHORT)
    posterior = groups_of(merged)["posterior"]
    assert list(posterior.data_vars) == ["beta", "sigma", "variance"]
    assert "Without mean_x, fitted of draws before they moved" in str(az_swiss.report(merged))


def test_potentials_of_the_rows_are_refused():
    def with_rows(batch):
        model = build(batch)
        with model:
            pm.Potential("rows", -((model["beta"][0] - batch["y"].to_numpy()) ** 2).sum())
        return model

    with pytest.raises(ValueError, match=r"Potential rows differs between batches b0 and b1"):
        az_swiss.sample(with_rows, TABLE, **SHORT)


@pytest.mark.slow
def test_two_modes_are_not_hidden():
    def two_modes(batch):
        with pm.Model() as model:
            a = pm.Normal("a", 0.3, 3)
            pm.Normal("y", a**2, 1, observed=batch)
        return model

    y = np.random.default_rng(2).normal(4, 1, size=400)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MergeWarning)
        merged = az_swiss.sample(two_modes, y, random_seed=1, progressbar=False)
    groups = groups_of(merged)
    assert "several modes, which differ most in a" in groups["swiss_run"].attrs["plain"]
    assert groups["swiss_certificate"].attrs["status"] != "certified"


def test_variables_of_their_own_without_groups():
    with pytest.raises(ValueError, match="groups=, which keeps all rows of a group"):
        az_swiss.sample(hierarchy, DATA, batches=2, **QUIET)


@pytest.mark.slow
def test_without_a_mode_a_run_of_one_batch_is_the_pilot(monkeypatch):
    def no_mode(*arguments):
        raise pilot_run.NoMode("no mode here")

    monkeypatch.setattr(pilot_run, "laplace", no_mode)
    merged = az_swiss.sample(build, TABLE, **SHORT)
    assert groups_of(merged)["swiss_pilot"].attrs["how"] == "a run of batch b0"
    assert groups_of(merged)["swiss_certificate"].attrs["status"] == "certified"


@pytest.mark.slow
def test_chains_that_do_not_meet_are_sampled_with_a_full_warmup(monkeypatch):
    monkeypatch.setattr(whitened, "LEAST_EFFECTIVE", 100.0)  # nothing is good enough
    merged = az_swiss.sample(build, TABLE, **SHORT)
    run = groups_of(merged)["swiss_run"]
    assert run.attrs["with_full_warmup"] == "b0,b1,b2,b3"
    assert groups_of(merged)["swiss_certificate"].attrs["status"] == "certified"
    assert "b0, b1, b2, b3" in str(az_swiss.report(merged))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder of a finished run, and its result."""
    folder = tmp_path_factory.mktemp("finished")
    return folder, az_swiss.sample(build, TABLE, folder=folder, **SHORT)


@pytest.fixture
def folder(finished, tmp_path):
    """A copy of that folder."""
    shutil.copytree(finished[0], tmp_path / "run")
    return tmp_path / "run"


def test_a_finished_folder_is_read(folder, finished):
    names = {path.name for path in folder.iterdir()}
    assert names == {
        *(f"b{i}.nc" for i in range(4)),
        "settings.json",
        "pilot.nc",
        "refine.nc",
        "certify.nc",
    }
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = az_swiss.sample(build, TABLE, folder=folder, **SHORT)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert_same_results(again, finished[1])


@pytest.mark.parametrize("lost", ["pilot.nc", "b1.nc", "refine.nc certify.nc", "certify.nc"])
def test_what_is_lost_or_damaged_is_made_again(folder, finished, lost):
    for name in lost.split():
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MergeWarning)  # that a batch is damaged
        again = az_swiss.sample(build, TABLE, folder=folder, **SHORT)
    assert_same_results(again, finished[1])


def test_a_folder_of_other_settings_is_refused(folder):
    with pytest.raises(ValueError, match=r"was made with other settings: .*draws"):
        az_swiss.sample(build, TABLE, folder=folder, **{**SHORT, "draws": 4000})


def test_other_stages_of_the_same_batches(folder):
    before = (folder / "b0.nc").stat().st_mtime_ns
    merged = az_swiss.sample(build, TABLE, folder=folder, certify=False, **SHORT)
    assert "swiss_certificate" not in groups_of(merged)
    assert (folder / "b0.nc").stat().st_mtime_ns == before


def assert_same_results(found, expected):
    found, expected = groups_of(found), groups_of(expected)
    assert set(found) == set(expected)
    for name in ("posterior", "swiss_transform", "swiss_certificate", "swiss_pilot"):
        xr.testing.assert_equal(found[name], expected[name])


SCRIPT = """
import sys
sys.path[:0] = {path!r}
import warnings
warnings.simplefilter("ignore")
import arviz_swiss as az_swiss
from test_sample import SHORT, TABLE, build
from arviz_swiss.parallel import store

write, wanted = store._write_whole, {stop!r}
def stopping(path, *arguments, **options):
    if path.name == wanted:
        print("here", flush=True)
        import time
        time.sleep(600)
    write(path, *arguments, **options)
store._write_whole = stopping
az_swiss.sample(build, TABLE, folder={folder!r}, **SHORT)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stop", "sent"),
    [
        ("pilot.nc", signal.SIGKILL),
        ("b2.nc", signal.SIGKILL),
        ("b2.nc", signal.SIGINT),
        ("refine.nc", signal.SIGKILL),
        ("certify.nc", signal.SIGINT),
    ],
)
def test_interrupted_at_any_stage_it_goes_on(tmp_path, finished, stop, sent):
    folder = tmp_path / "run"
    tests = os.path.dirname(__file__)
    script = SCRIPT.format(path=[tests, *sys.path], stop=stop, folder=os.fspath(folder))
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # shells ignore it for background jobs
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout.readline() == "here\n", process.stderr.read()
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("*.nc")}
    process.send_signal(sent)
    started = time.monotonic()
    process.communicate(timeout=60)
    assert time.monotonic() - started < 30
    assert process.returncode != 0
    resumed = az_swiss.sample(build, TABLE, folder=folder, **SHORT)
    assert kept.items() <= {p: p.stat().st_mtime_ns for p in folder.glob("*.nc")}.items()
    assert not list(folder.glob(".*")) or sent == signal.SIGKILL
    assert_same_results(resumed, finished[1])


def test_a_batch_that_fails_does_not_lose_the_others(tmp_path, monkeypatch):
    sample_task = running.sample_task

    def fail(task):
        if task.label == "b1":
            raise RuntimeError("no luck")
        return sample_task(task)

    monkeypatch.setattr(running, "sample_task", fail)
    with pytest.raises(az_swiss.BatchError, match=r"1 of 4 batches failed: b1 \(RuntimeError"):
        az_swiss.sample(build, TABLE, folder=tmp_path, **SHORT)
    assert (tmp_path / "b0.nc").exists()
    assert not (tmp_path / "b1.nc").exists()

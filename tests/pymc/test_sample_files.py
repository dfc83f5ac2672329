"""sample and sample_batches of rows that are in files: the same posterior, whatever the frame."""

import os
import pickle
import shutil
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
import pymc as pm
import pytest

import arviz_swiss as az_swiss
from arviz_swiss.correcting import evaluation
from arviz_swiss.correcting.batch_model import BatchModel
from arviz_swiss.data import containers
from arviz_swiss.parallel import splitting
from arviz_swiss.parallel.batch_rows import BatchRows
from arviz_swiss.parallel.splitting import split
from arviz_swiss.parallel.tables import opened_table
from arviz_swiss.pymc import running
from arviz_swiss.pymc.coordinates import Coordinates

ROWS = 2000
SHORT = {"progressbar": False, "random_seed": 3, "batches": 4, "draws": 400}


def make_rows():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=ROWS), "site": np.arange(ROWS) // 50})
    table["month"] = np.array(["may", "june", "july"])[np.arange(ROWS) % 3]
    effects = rng.normal(size=ROWS // 50)
    table["y"] = 1 + 2 * table["x"] + effects[table["site"]] + rng.normal(size=ROWS)
    return table.sort_values("y", ignore_index=True)


TABLE = make_rows()


def build(rows):
    with pm.Model() as model:
        x = pm.Data("x", np.asarray(rows["x"]))
        intercept = pm.Normal("intercept", 0, 3)
        slope = pm.Normal("slope", 0, 3)
        sigma = pm.HalfNormal("sigma", 2)
        pm.Normal("y", intercept + slope * x, sigma, observed=np.asarray(rows["y"]))
    return model


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "rows.parquet"
    TABLE.to_parquet(path, row_group_size=300)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("sampled") / "run"


@pytest.fixture(scope="module")
def merged(path, folder):
    return az_swiss.sample(build, path, folder=folder, **SHORT)


def groups_of(merged):
    return containers.read(merged).groups


def moments(merged):
    posterior = groups_of(merged)["posterior"]
    names = ("intercept", "slope", "sigma")
    return np.array([[float(posterior[k].mean()), float(posterior[k].std())] for k in names])


def check_same(merged, other, draws):
    """Means differ by their Monte Carlo errors, of so many draws each, sds by theirs."""
    (means, sds), (others, other_sds) = moments(merged).T, moments(other).T
    assert np.all(np.abs(means - others) < 5 * sds * np.sqrt(2 / draws))
    assert np.all(np.abs(sds / other_sds - 1) < 5 / np.sqrt(draws))


def test_a_sorted_file_gives_the_posterior_of_its_rows(merged):
    # refined draws have the moments that the gradients told; a quarter is worth of independent ones
    check_same(merged, az_swiss.sample(build, TABLE, **SHORT), draws=100)
    assert groups_of(merged)["swiss_certificate"].attrs["status"] == "certified"
    assert "observed_data" not in groups_of(merged)


@pytest.mark.parametrize("form", ["polars", "lazy polars", "dask", "dataset", "arrow table"])
def test_every_kind_of_frame_gives_the_same(form, path, merged):
    forms = {
        "polars": lambda: pl.read_parquet(path),
        "lazy polars": lambda: pl.scan_parquet(path),
        "dask": lambda: dd.read_parquet(path),
        "dataset": lambda: pds.dataset(path),
        "arrow table": lambda: pa.Table.from_pandas(TABLE),
    }
    seen = set()

    def build_and_tell(rows):
        seen.add(type(rows))
        return build(rows)

    other = az_swiss.sample(build_and_tell, forms[form](), **SHORT)
    expected = {"dask": pd.DataFrame, "dataset": pa.Table, "arrow table": pa.Table}
    assert seen == {expected.get(form, pl.DataFrame)}
    check_same(merged, other, draws=100)


def test_batches_are_sampled_without_their_rows_in_a_task(path, tmp_path, monkeypatch):
    tasks = []
    sample_task = running.sample_task

    def note(task):
        tasks.append(task)
        return sample_task(task)

    monkeypatch.setattr(running, "sample_task", note)
    az_swiss.sample(build, path, folder=tmp_path, refine=False, certify=False, **SHORT)
    assert [type(task.data) for task in tasks] == [BatchRows] * 4
    assert all(task.model is None for task in tasks)
    assert max(len(pickle.dumps(task.data)) for task in tasks) < 1000


def test_sample_batches_divides_as_partition_does(path, quick):
    idatas = quick(build, path, batches=2, random_seed=5, keep_data=True)
    indices = az_swiss.partition(path, 2, random_seed=5)
    assert sum(index.size for index in indices) == ROWS
    for idata, index in zip(idatas, indices, strict=True):
        groups = groups_of(idata)
        assert groups["posterior"].attrs["swiss_size"] == index.size
        np.testing.assert_array_equal(groups["observed_data"]["y"], TABLE["y"][index])
        np.testing.assert_array_equal(groups["constant_data"]["x"], TABLE["x"][index])


def test_rows_of_files_are_kept_on_request(path, monkeypatch):
    def stop(*_, limits, **__):
        raise InterruptedError(str(limits.keep_data))

    monkeypatch.setattr(sys.modules["arviz_swiss.pymc.sample_batches"], "run_batches", stop)
    for data, default in ((path, "False"), (TABLE, "True")):
        for options, kept in (({}, default), ({"keep_data": True}, "True")):
            with pytest.raises(InterruptedError, match=kept):
                az_swiss.sample_batches(build, data, batches=2, **options)


def test_refine_and_certify_find_the_rows_again(path, merged, folder, tmp_path):
    attrs = groups_of(merged)["posterior"].attrs
    assert attrs["swiss_rows"] == str(folder)
    options = {"build": build, "data": path, "random_seed": 1, "progressbar": False}
    here = az_swiss.certify(az_swiss.refine(merged, **options), **options)
    assert groups_of(here)["swiss_certificate"].attrs["status"] == "certified"
    # without the folder they are divided again, alike
    shutil.copytree(folder, tmp_path / "moved")
    gone = groups_of(merged)["posterior"].assign_attrs(swiss_rows=str(tmp_path / "gone"))
    away = containers.build({**groups_of(merged), "posterior": gone})
    again = az_swiss.certify(az_swiss.refine(away, **options), **options)
    moved = az_swiss.certify(
        az_swiss.refine(away, folder=tmp_path / "moved", **options),
        folder=tmp_path / "moved",
        **options,
    )
    for other in (again, moved):
        assert np.allclose(
            groups_of(other)["posterior"]["slope"], groups_of(here)["posterior"]["slope"], rtol=1e-9
        )


def test_other_rows_are_refused_afterwards(merged, tmp_path):
    TABLE.assign(y=0.0).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(ValueError, match="the data differ from those that sample_batches divided"):
        az_swiss.refine(merged, build=build, data=tmp_path / "other.parquet", progressbar=False)


@pytest.fixture
def evaluated(path, tmp_path, monkeypatch):
    """Return a function that evaluates 8 batches in files, and tells which files it opened."""
    with opened_table(path, tmp_path) as table:
        rows = split(table, 8, random_seed=1).batches
    opened = []
    load = BatchRows.load
    monkeypatch.setattr(
        BatchRows, "load", lambda self: (opened.append(os.path.basename(self.path)), load(self))[1]
    )
    monkeypatch.setattr("joblib.cpu_count", lambda: 1)  # in their order
    models = {
        f"b{number}": BatchModel(build, batch, f"b{number}") for number, batch in enumerate(rows)
    }
    space = Coordinates(build(rows[0].load())).merge_space
    request = [evaluation.Request("log_likelihood", np.zeros((1, 3)))]

    def run(*passes, room):
        # of batches of 250 rows, of x and y
        monkeypatch.setattr(evaluation, "BYTES_KEPT", int(room * 250 * 16))
        answers, files = [], []
        with evaluation.evaluating(models, space) as evaluate:
            for labels in passes:
                opened.clear()
                answers.append(evaluate(dict.fromkeys(labels, request)))
                files.append([name.removesuffix(".parquet") for name in opened])
        return answers, files

    return run


EIGHT = [f"b{number}" for number in range(8)]


def test_the_first_batches_are_kept_as_long_as_there_is_room(evaluated):
    (first, second), files = evaluated(EIGHT, EIGHT, room=5.5)
    assert files == [EIGHT, EIGHT[5:]]
    assert first == second


def test_of_large_batches_the_newest_is_kept(evaluated):
    (_, again, first, second, _), files = evaluated(["b0"], ["b0"], EIGHT, EIGHT, ["b7"], room=1.5)
    assert files == [["b0"], [], EIGHT[1:], EIGHT, []]
    assert first == second
    assert again["b0"] == first["b0"]


def effects(rows):
    labels = rows["site"] if "site" in rows.columns else rows.index
    sites, index = np.unique(labels, return_inverse=True)
    with pm.Model(coords={"site": sites}) as model:
        mu, tau = pm.Normal("mu", 0, 10), pm.HalfNormal("tau", 2)
        effect = pm.Normal("effect", mu, tau, dims="site")
        slope = pm.Normal("slope", 0, 3)
        mean = effect[index] + slope * np.asarray(rows["x"])
        pm.Normal("y", mean, 1, observed=np.asarray(rows["y"]))
    return model


def test_groups_are_whole_and_in_the_order_of_all_rows(tmp_path):
    """Also where pandas has written them as the index of a frame."""
    options = {**SHORT, "batches": 2, "groups": "site"}
    TABLE.set_index("site").to_parquet(tmp_path / "rows.parquet")
    merged = az_swiss.sample(effects, tmp_path / "rows.parquet", **options)
    posterior = groups_of(merged)["posterior"]
    assert posterior["site"].values.tolist() == sorted(TABLE["site"].unique())
    assert groups_of(merged)["swiss_certificate"].attrs["status"] == "certified"
    other = groups_of(az_swiss.sample(effects, TABLE, **options))["posterior"]
    away = posterior["effect"].mean(("chain", "draw")) - other["effect"].mean(("chain", "draw"))
    error = other["effect"].std(("chain", "draw")) * np.sqrt(2 / 100)
    assert float((abs(away) / error).max()) < 5


def monthly(rows):
    month = rows["month"].cat
    with pm.Model(coords={"month": month.categories}) as model:
        effect = pm.Normal("effect", 0, 3, dims="month")
        sigma = pm.HalfNormal("sigma", 5)
        pm.Normal("y", effect[month.codes.to_numpy()], sigma, observed=rows["y"].to_numpy())
    return model


def test_shared_levels_are_told_to_every_batch(path):
    merged = az_swiss.sample(monthly, path, shared="month", **SHORT)
    posterior = groups_of(merged)["posterior"]
    assert posterior["month"].values.tolist() == ["july", "june", "may"]
    means = TABLE.groupby("month")["y"].mean()
    away = posterior["effect"].mean(("chain", "draw")).values - means.to_numpy()
    assert np.all(np.abs(away) < 5 * 2.5 / np.sqrt(ROWS / 3) * np.sqrt(1 / 100) + 0.01)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"groups": np.zeros(ROWS)}, TypeError, "must be the name of a column"),
        ({"stratify": "place"}, ValueError, "stratify='place' is not a column"),
        ({"shared": "place"}, ValueError, "shared='place' is not a column"),
    ],
)
def test_wrong_columns_are_refused(path, arguments, error, message):
    with pytest.raises(error, match=message):
        az_swiss.sample(build, path, **{**SHORT, **arguments})


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[3])
import test_sample_files as case
import arviz_swiss as az_swiss
az_swiss.sample(case.build, sys.argv[1], folder=sys.argv[2], **{**case.SHORT, "batches": 8})
"""


def test_a_run_that_is_killed_while_it_samples_goes_on(path, tmp_path):
    run = tmp_path / "run"
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(path), str(run)]
    with subprocess.Popen([*command, os.path.dirname(__file__)]) as process:
        while len(list(run.glob("b*.nc"))) < 2:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept = {file: file.stat().st_mtime_ns for file in (run / "swiss_rows").iterdir()}
    merged = az_swiss.sample(build, path, folder=run, **{**SHORT, "batches": 8})
    assert {file: file.stat().st_mtime_ns for file in (run / "swiss_rows").iterdir()} == kept
    assert groups_of(merged)["swiss_certificate"].attrs["status"] == "certified"


OTHER = """
import sys, time
from arviz_swiss.parallel.splitting import split
from arviz_swiss.parallel.tables import opened_table
with opened_table(sys.argv[1], sys.argv[2]) as table:
    split(table, int(sys.argv[3]), random_seed=3)
    print("divided", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def another_process(path, tmp_path):
    """Let another process divide the rows into so many batches by the seed 3, and not end."""
    begun = []

    def begin(batches):
        command = [sys.executable, "-W", "ignore", "-c", OTHER, path, tmp_path / "run", batches]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        begun.append(subprocess.Popen(list(map(str, command)), text=True, **pipes))
        assert begun[-1].stdout.readline() == "divided\n"

    yield begin
    for process in begun:
        process.communicate()


@pytest.mark.parametrize("moment", ["_find", "_scatter"])
def test_another_process_divides_the_rows_at_once(
    moment, path, tmp_path, monkeypatch, another_process
):
    """Before this one has looked for them, and while it divides them."""
    function = getattr(splitting, moment)

    def overtaken(*arguments):
        monkeypatch.setattr(splitting, moment, function)
        another_process(4)
        return function(*arguments)

    monkeypatch.setattr(splitting, moment, overtaken)
    options = {**SHORT, "random_seed": None, "refine": False, "certify": False}
    merged = az_swiss.sample(build, path, folder=tmp_path / "run", **options)
    assert groups_of(merged)["posterior"].attrs["swiss_random_seed"] == "3"


def test_another_process_divides_the_rows_otherwise(path, tmp_path, monkeypatch, another_process):
    scatter = splitting._scatter

    def overtaken(*arguments):
        another_process(5)
        return scatter(*arguments)

    monkeypatch.setattr(splitting, "_scatter", overtaken)
    with pytest.raises(ValueError, match="other settings: batches: 5 → 4"):
        az_swiss.sample(build, path, folder=tmp_path / "run", **{**SHORT, "random_seed": None})


def test_rows_that_another_process_has_replaced_are_not_sampled(
    path, tmp_path, monkeypatch, another_process
):
    def overtaken(folder, settings):
        shutil.rmtree(folder / "swiss_rows")
        another_process(4)
        return create(folder, settings)

    create = running.store.create_settings
    monkeypatch.setattr(running.store, "create_settings", overtaken)
    with pytest.raises(ValueError, match=r"has divided the rows in .* otherwise meanwhile"):
        az_swiss.sample(build, path, folder=tmp_path / "run", **{**SHORT, "random_seed": 4})


MEMORY = """
import resource, sys
sys.path.insert(0, sys.argv[2])
import big
import arviz_swiss as az_swiss
rows, batches = int(sys.argv[3]), int(sys.argv[4])
if rows:
    big.make(sys.argv[1], rows)
az_swiss.sample(
    big.build, sys.argv[1], batches=batches, draws=200, certify=False, random_seed=1,
    progressbar=False,
)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def peak_of(path, rows, batches):
    folder = os.path.join(os.path.dirname(__file__), "..", "..", "benchmarks")
    command = [sys.executable, "-W", "ignore", "-c", MEMORY, str(path), folder]
    done = subprocess.run(
        [*command, str(rows), str(batches)], capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])

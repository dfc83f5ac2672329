"""Sample a table that does not fit: made, split, sampled in batches, merged, refined, certified.

    python benchmarks/big.py [--rows 20000000] [--batches 40] [--folder big] [--kill]

A logistic regression of ten columns, 1.6 GB as numbers of 20 million rows, in one Parquet file that
is sorted by the outcome. Every step runs in a process of its own, and the peak memory of each is
printed: no process is to take more than importing PyMC does, and a quarter of the data. `--kill`
kills the run in the split and in sampling, and runs the same call again. The folder holds the table
and what is made of it, about twice the size of the data; it stays there.
"""

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

COLUMNS, BLOCK = 10, 2**18
EFFECTS = np.linspace(-1, 1, COLUMNS - 1)
NAMES = [f"x{number}" for number in range(COLUMNS - 1)]
# Batches that are there when the run is killed while it samples.
SAMPLED = 5


def block(number, rows):
    """Return predictors and outcomes of one block of rows, as often as they are asked for."""
    rng = np.random.default_rng(number)
    x = rng.normal(size=(rows, COLUMNS - 1))
    return x, rng.random(rows) < 1 / (1 + np.exp(0.5 - x @ EFFECTS))


def make(path, rows):
    """Write the table, block by block: first all rows without success, then all with."""
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([*((name, pa.float64()) for name in NAMES), ("y", pa.int64())])
    with parquet.ParquetWriter(path, schema) as writer:
        for outcome in (False, True):
            for number, start in enumerate(range(0, rows, BLOCK)):
                x, y = block(number, min(BLOCK, rows - start))
                columns = dict(zip(NAMES, x[y == outcome].T, strict=True))
                columns["y"] = y[y == outcome].astype(np.int64)
                writer.write_table(pa.table(columns, schema=schema))


def build(rows):
    import pymc as pm

    with pm.Model() as model:
        x = pm.Data("x", rows[NAMES].to_numpy())
        intercept = pm.Normal("intercept", 0, 5)
        effects = pm.Normal("effects", 0, 5, shape=COLUMNS - 1)
        pm.Bernoulli("y", logit_p=intercept + x @ effects, observed=rows["y"].to_numpy())
    return model


def sample(path, folder, batches):
    import arviz_swiss as az_swiss

    merged = az_swiss.sample(build, path, batches=batches, random_seed=1, folder=folder)
    run = merged["swiss_run"]
    stages = run["stage"].values.tolist()
    posterior = merged["posterior"]
    means = [float(posterior["intercept"].mean()), *posterior["effects"].values.mean((0, 1))]
    sds = [float(posterior["intercept"].std()), *posterior["effects"].values.std((0, 1))]
    away = (np.array(means) - [-0.5, *EFFECTS]) / sds
    return {
        "status": merged["swiss_certificate"].attrs["status"],
        "farthest": float(np.abs(away).max()),
        "cpu": dict(zip(stages, run["cpu_seconds"].values.tolist(), strict=True)),
        "wall": dict(zip(stages, run["seconds"].values.tolist(), strict=True)),
    }


def step(name, path, folder, rows, batches):
    """Run one step in this process, and print what it found and took."""
    facts = {}
    if name == "import":
        import pymc  # noqa: F401
    elif name == "make":
        make(path, rows)
    else:
        facts = sample(path, folder, batches) or {}
    who = {"itself": resource.RUSAGE_SELF, "workers": resource.RUSAGE_CHILDREN}
    usage = {k: resource.getrusage(v) for k, v in who.items()}
    facts["peaks"] = {k: u.ru_maxrss / 1024 for k, u in usage.items() if u.ru_maxrss}
    facts["seconds"] = sum(u.ru_utime + u.ru_stime for u in usage.values())
    print("\n" + json.dumps(facts), flush=True)


def start(name, arguments):
    command = [sys.executable, __file__, "--step", name, "--rows", str(arguments.rows)]
    command += ["--batches", str(arguments.batches), "--folder", str(arguments.folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def finish(name, arguments):
    """Run one step to its end, and print the peak memory of its processes."""
    began = time.perf_counter()
    with start(name, arguments) as process:
        text, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{name} ended with code {process.returncode}")
    facts = json.loads(text.strip().splitlines()[-1])
    peaks = ", ".join(f"{who} {peak:.0f} MB" for who, peak in facts["peaks"].items())
    wall = time.perf_counter() - began
    print(f"{name:>8}: peak of {peaks}; {facts['seconds']:.0f} CPU s, {wall:.0f} s", flush=True)
    return facts


def kill(arguments, when, where):
    """Kill the run with all its processes as soon as something is there."""
    with start("sample", arguments) as process:
        while not when():
            if process.poll() is not None:
                raise SystemExit(f"the run ended before it could be killed {where}")
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    print(f"  killed {where}", flush=True)


def main(arguments):
    folder, run = arguments.folder, arguments.folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    imports = finish("import", arguments)["peaks"]["itself"]
    finish("make", arguments)
    if arguments.kill:
        kill(arguments, lambda: any(run.glob(".swiss_rows.*.tmp/b1.parquet")), "in the split")
        kill(arguments, lambda: len(list(run.glob("b*.nc"))) >= SAMPLED, "in sampling")
    facts = finish("sample", arguments)
    for stage, seconds in facts["cpu"].items():
        print(f"{stage:>16}: {seconds:.1f} CPU s of this process, {facts['wall'][stage]:.1f} s")
    size = arguments.rows * COLUMNS * 8 / 2**20
    limit, peak = imports + size / 4, max(facts["peaks"].values())
    kept = "holds " if peak <= limit else "MISSED"
    print(
        f"  {kept}  peak {peak:.0f} MB, at most {limit:.0f} (PyMC {imports:.0f}, data {size:.0f})"
    )
    kept = "holds " if facts["status"] == "certified" else "MISSED"
    print(
        f"  {kept}  {facts['status']}; truth within {facts['farthest']:.1f} sds of each parameter"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Sample a table that does not fit.")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--folder", type=Path, default=Path("big"))
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--step", choices=["import", "make", "sample"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    table = given.folder / "rows.parquet"
    if given.step:
        step(given.step, table, given.folder / "run", given.rows, given.batches)
    else:
        main(given)

"""Measure the memory that `sample_batches` takes: of this process, and of its workers.

    python benchmarks/memory.py [--rows 5000000] [--batches 20] [--ways threads processes]

A linear regression of 10 columns, by few draws: what is measured is memory. Each way runs in a
process of its own, which reads its resident memory after the imports and once the data are there;
peaks are looked at every few milliseconds. The parent is to take at most 1.3 times the data above
the data, a worker at most its batch and 600 MB.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
import warnings

MB = 1e6
COLUMNS = 10
MOST_ABOVE, MOST_OF_WORKER = 1.3, 600.0
# Arguments of each way: threads of one process where nutpie samples, processes by PyMC's sampler.
WAYS = {
    "threads": {"nuts_sampler": "nutpie"},
    "processes": {"nuts_sampler": "pymc"},
    "threads, no rows kept": {"nuts_sampler": "nutpie", "keep_data": False},
    "processes, no rows kept": {"nuts_sampler": "pymc", "keep_data": False},
}


def main(rows, batches, ways):
    data = rows * COLUMNS * 8 / MB
    print(f"{rows} rows x {COLUMNS}: {data:.0f} MB, {batches} batches of {data / batches:.0f} MB")
    for way in ways:
        command = [sys.executable, __file__, "--one", way, "--rows", str(rows)]
        command += ["--batches", str(batches)]
        found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        above = (found["peak"] - found["imports"]) / data - 1
        print(
            f"{way}: imports {found['imports']:.0f} MB, parent's peak {found['peak']:.0f} MB, "
            f"workers' {found['workers']:.0f} MB, CPU {found['cpu']:.0f} s, {found['wall']:.0f} s"
        )
        _say(above <= MOST_ABOVE, f"{above:.2f} times the data above the data", MOST_ABOVE)
        if found["workers"]:
            more = found["workers"] - data / batches
            _say(more <= MOST_OF_WORKER, f"a worker {more:.0f} MB above its batch", MOST_OF_WORKER)


def _say(holds, text, limit):
    print(f"  {'holds ' if holds else 'MISSED'}  {text} (at most {limit:g})")


def build(batch):
    import pymc as pm

    with pm.Model() as model:
        x, y = pm.Data("x", batch[:, :-1]), pm.Data("y_data", batch[:, -1])
        beta = pm.Normal("beta", 0, 10, shape=COLUMNS - 1)
        pm.Normal("y", x @ beta, pm.HalfNormal("sigma", 5), observed=y)
    return model


def run_one(way, rows, batches):
    """Sample in this process, and print the peaks as JSON."""
    import numpy as np
    import psutil

    from arviz_swiss.pymc import sample_batches

    if WAYS[way]["nuts_sampler"] == "nutpie":
        import nutpie  # noqa: F401
    here = psutil.Process()
    found = {"imports": here.memory_info().rss / MB, "peak": 0.0, "workers": 0.0}
    data = np.empty((rows, COLUMNS))
    np.random.default_rng(1).standard_normal(out=data)
    data[:, -1] += data[:, 0]
    threading.Thread(target=_watch, args=(here, found), daemon=True).start()
    begun = time.perf_counter()
    options = {"draws": 20, "tune": 20, "chains": 1, "random_seed": 1, "progressbar": False}
    idatas = sample_batches(build, data, batches=batches, **options, **WAYS[way])
    assert len(idatas) == batches
    times = os.times()
    found["cpu"] = times.user + times.system + times.children_user + times.children_system
    found["wall"] = time.perf_counter() - begun
    print(json.dumps(found))


def _watch(here, found):
    import psutil

    while True:
        found["peak"] = max(found["peak"], here.memory_info().rss / MB)
        for child in here.children(recursive=True):
            try:
                found["workers"] = max(found["workers"], child.memory_info().rss / MB)
            except psutil.Error:
                continue
        time.sleep(0.005)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Memory of sample_batches.")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.one:
        run_one(arguments.one, arguments.rows, arguments.batches)
    else:
        main(arguments.rows, arguments.batches, arguments.ways)

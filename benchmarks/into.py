"""Merge files whose draws are several times the memory that the process may use.

    python benchmarks/into.py [--files 200] [--draws 5000] [--parameters 50] [--times 4]

The merge runs in a process of its own, which may take no more memory for data (RLIMIT_DATA) than it
has after one merge of one file, and the draws' size over `times`. Every tenth batch is compared
with its part by moments, plan and apply, in memory.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import xarray as xr

import arviz_swiss as az_swiss

WITHIN = """
import json, resource, sys, time
import arviz_swiss as az_swiss
folder, allowed, *files = sys.argv[1:]
def status(name):
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024
az_swiss.merge(files[:1], into=f"{folder}/one.zarr", powers=1)
before, resident = status("VmData"), status("VmRSS")
resource.setrlimit(resource.RLIMIT_DATA, (before + int(allowed), -1))
start, cpu = time.perf_counter(), time.process_time()
az_swiss.merge(files, into=f"{folder}/merged.zarr", kind="inflated")
took = time.perf_counter() - start, time.process_time() - cpu
print(json.dumps([*took, status("VmHWM") - resident]))
"""


def main(files, chains, draws, parameters, times):
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(Path(folder), files, (chains, draws, parameters))
        size = files * chains * draws * parameters * 8
        arguments = [sys.executable, "-c", WITHIN, folder, str(size // times), *paths]
        run = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if run.returncode:
            sys.exit(f"failed within {size / times / 2**20:.0f} MiB:\n{run.stderr[-2000:]}")
        wall, cpu, peak = json.loads(run.stdout.splitlines()[-1])
        print(
            f"{files} files of {chains} x {draws} x {parameters}: {size / 2**20:.0f} MiB of draws"
        )
        print(f"memory allowed: {size / times / 2**20:.0f} MiB, a part of {times}")
        print(f"merged in {wall:.0f} s, {cpu:.0f} CPU s; {peak / 2**20:.0f} MiB more than before")
        print(f"largest difference from parts in memory: {difference(folder, paths):.1e} sds")


def write_files(folder, files, shape):
    """Write batches of a Gaussian, and return their paths."""
    paths = []
    for seed in range(files):
        rng = np.random.default_rng(seed)
        values = rng.normal(rng.normal(size=shape[2]) / np.sqrt(files), size=shape)
        posterior = xr.Dataset({"theta": (("chain", "draw", "k"), values)})
        paths.append(str(folder / f"b{seed:04}.nc"))
        xr.DataTree.from_dict({"/posterior": posterior}).to_netcdf(paths[-1], engine="h5netcdf")
    return paths


def difference(folder, paths):
    """Return how far draws of every tenth batch are from those of moments, plan and apply."""
    stored = xr.open_datatree(f"{folder}/merged.zarr", engine="zarr")["posterior"]
    plan = az_swiss.plan([az_swiss.moments(path, kind="inflated") for path in paths])
    largest = 0.0
    for path in paths[::10]:
        part = plan.apply(path)["posterior"]["theta"]
        there = stored["theta"].sel(chain=part["chain"]).values
        largest = max(largest, float(np.abs(there - part.values).max() / part.values.std()))
    return largest


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in {
        "files": 200,
        "chains": 4,
        "draws": 5000,
        "parameters": 50,
        "times": 4,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    main(**vars(parser.parse_args()))

"""How the CPU time of `merge` grows: with batches, with batches that disagree, with variables.

    python benchmarks/merge_growth.py [largest number of batches]

Run with one BLAS thread (OMP_NUM_THREADS=1). Every exponent is that of the time between the first
and the last column, by the best of several runs: 1 is linear. Small batches, 200 draws of five
parameters, as dicts of arrays and as the container of the installed ArviZ. Batches that disagree
have means that scatter more widely than chance, with heavy tails, so that many are set aside.
Variables have a dimension of their own each, with one element, and 4 batches.
"""

import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import xarray as xr

import arviz_swiss as az_swiss
from arviz_swiss.data import containers

CHAINS, DRAWS = 2, 100


def main(largest):
    """Print all tables."""
    warnings.simplefilter("ignore", az_swiss.MergeWarning)
    counts = [largest // 16, largest // 4, largest]
    az_swiss.merge(dicts(4), kind="fractionated")
    for name, make, method in (
        ("dicts", dicts, "swiss"),
        ("containers", built, "swiss"),
        ("consensus of containers", built, "consensus"),
    ):
        print_growth(name, "batches", counts, [time_merge(make(n), method=method) for n in counts])
    counts = [count // 3 for count in counts]
    times = [time_merge(dicts(n, scatter=1.3)) for n in counts]
    print_growth("disagreeing dicts", "batches", counts, times)
    counts = [50, 150, 450]
    print_growth("own dims", "variables", counts, [time_merge(wide(n)) for n in counts])
    for name, extra in (("posterior alone", False), ("seven groups", True)):
        milliseconds = 1e3 * time_files(extra) / 20
        print(f"a netCDF file of 2 x 500 draws, {name}: {milliseconds:.1f} ms")


def dicts(count, scatter=0.0):
    """Return so many batches, whose means scatter by so many of their sds, with heavy tails."""
    rng = np.random.default_rng(0)
    shape = (CHAINS, DRAWS)
    shifts = scatter * rng.standard_t(3, size=(count, 4))
    return [
        {"x": rng.normal(size=(*shape, 4)) + shift, "y": rng.normal(size=shape)} for shift in shifts
    ]


def built(count):
    """Return the same batches as containers."""
    return [containers.build(containers.read(batch).groups) for batch in dicts(count)]


def wide(count):
    """Return four batches with so many variables."""
    rng = np.random.default_rng(0)
    arrays = [{f"v{i}": rng.normal(size=(2, 300, 1)) for i in range(count)} for _ in range(4)]
    return [containers.build(containers.read(batch).groups) for batch in arrays]


def time_files(extra, count=20):
    """Return CPU seconds to merge netCDF files, with groups beside the draws or without."""
    rng = np.random.default_rng(0)
    stats = rng.normal(size=(2, 500))
    draws = {name: (("chain", "draw"), stats) for name in ("lp", "energy", "steps")}
    rows = {"y": ("obs", np.arange(100.0))}
    by_row = {"y": (("chain", "draw", "obs"), rng.normal(size=(2, 500, 100)))}
    groups = {"sample_stats": draws, "observed_data": rows, "constant_data": rows}
    groups |= dict.fromkeys(("log_likelihood", "posterior_predictive", "prior_predictive"), by_row)
    beside = {name: xr.Dataset(data) for name, data in groups.items()} if extra else {}
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for position in range(count):
            batch = {"x": rng.normal(size=(2, 500, 4)), "y": rng.normal(size=(2, 500))}
            files.append(Path(folder) / f"b{position}.nc")
            containers.build({**containers.read(batch).groups, **beside}).to_netcdf(files[-1])
        return time_merge(files)


def time_merge(batches, repeats=3, **options):
    """Return the least CPU seconds of some runs."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        az_swiss.merge(batches, kind="fractionated", **options)
        seconds.append(time.process_time() - start)
    return min(seconds)


def print_growth(name, what, counts, seconds):
    """Print seconds by count, and the exponent of their growth."""
    exponent = np.log(seconds[-1] / seconds[0]) / np.log(counts[-1] / counts[0])
    cells = ", ".join(f"{n}: {s:.2f} s" for n, s in zip(counts, seconds, strict=True))
    print(f"{name} ({what}): {cells}; exponent {exponent:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)

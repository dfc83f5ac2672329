"""Run the command line over files of batches."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import xarray as xr
from normal_density import Normal

from arviz_swiss.cli import main
from arviz_swiss.data import containers

ROOT = Path(__file__).parents[2]
CENTRES = {"north": (-0.9, 0.4), "east": (0.2, -0.6), "south": (0.5, 0.9), "west": (0.1, -0.3)}
MODELS = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from normal_density import Normal
from pathlib import Path

CENTRES = {CENTRES}

def density(label):
    print("making", label)
    return Normal(CENTRES[label])

def other_density(label):
    return Normal([5.0, 5.0])

def broken(label):
    raise KeyError("rows")

def quits(label):
    sys.exit()

class Quitter(Normal):
    def log_likelihood(self, x):
        sys.exit()

def quits_later(label):
    return Quitter(CENTRES[label])

def model():
    sys.exit()

def slow(label):
    Path("begun").touch()
    time.sleep(60)
"""


def environment():
    """Return variables by which a process finds this package."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


def run(folder, *arguments):
    """Run a command in a folder; return what it says, and its exit code."""
    return subprocess.run(
        [sys.executable, "-m", "arviz_swiss", *map(str, arguments)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def call(capsys, *arguments):
    """Run a command in this process, whose imports are there already, in the current folder."""
    capsys.readouterr()
    code = main([*map(str, arguments)])
    return subprocess.CompletedProcess(arguments, code, *capsys.readouterr())


def batch(label, kind="inflated", chains=2, draws=400):
    """Return the groups of one batch of `CENTRES`, inflated."""
    rng = np.random.default_rng(sorted(CENTRES).index(label))
    power = float(len(CENTRES))
    drawn = Normal(CENTRES[label]).draw(rng, power, (chains, draws))
    attrs = {"swiss_kind": kind, "swiss_power": power} if kind else {}
    dims = ("chain", "draw", "term")
    return {
        "posterior": xr.Dataset(
            {"theta": (dims, drawn)},
            {"chain": range(chains), "draw": range(draws), "term": ["a", "b"]},
            attrs,
        )
    }


def write_native(groups, path):
    """Write the container of the installed ArviZ."""
    containers.build(groups).to_netcdf(path)


def write_datatree(groups, path):
    """Write a DataTree, ArviZ 1.x's container, on either stack."""
    containers.build(groups, "DataTree").to_netcdf(path, engine="h5netcdf")


def write_by_group(groups, path):
    """Write one group after the other, as ArviZ 0.x does."""
    for name, dataset in groups.items():
        dataset.to_netcdf(path, mode="a" if path.exists() else "w", group=name, engine="h5netcdf")


WRITERS = [write_native, write_datatree, write_by_group]

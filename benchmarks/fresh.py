"""Run a way of sampling in a new process, with caches of its own, and say what that cost."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

SCRIPT = Path(__file__).with_name("ways.py")
MINUTES, GIGABYTES = 45, 16


class Run(NamedTuple):
    """Cost and draws of one process.

    CPU seconds, wall-clock seconds, and the most memory that it or a process that it started held;
    `draws` by (chain, draw, parameter), `log_weights` of all draws where they have any, and the
    `facts` that the way tells.
    """

    cpu: float
    wall: float
    gigabytes: float
    draws: np.ndarray
    log_weights: np.ndarray | None
    facts: dict


def write_data(problem, rows, folder):
    """Write the data of a problem and return their path: reading them costs every way the same."""
    path = Path(folder) / "data.npz"
    np.savez(path, **problem.load(rows))
    return path


def run(way, problem, data, caches, **settings):
    """Return what a way of sampling costs and finds; `caches` is the folder for compiled code."""
    with tempfile.TemporaryDirectory() as folder:
        output, messages = Path(folder) / "draws.npz", Path(folder) / "messages"
        command = [sys.executable, SCRIPT, way, problem, data, output, json.dumps(settings)]
        with open(messages, "w") as stream:
            status, cost = _cost([str(word) for word in command], _environment(caches), stream)
        if status != 0:
            last = "\n".join(messages.read_text().splitlines()[-15:])
            raise RuntimeError(f"{way} of {problem} ended with status {status}:\n{last}")
        with np.load(output) as file:
            weights = file["log_weights"] if "log_weights" in file else None
            return Run(*cost, file["draws"], weights, json.loads(str(file["facts"])))


def _environment(caches):
    return {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        **os.environ,
        "PYTENSOR_FLAGS": f"base_compiledir={caches}/pytensor",
        "NUMBA_CACHE_DIR": f"{caches}/numba",
    }


def _cost(command, environment, messages):
    """Return the exit status, and CPU seconds, wall-clock seconds and gigabytes of a process."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command, env=environment, stdout=messages, stderr=messages, preexec_fn=_limit_memory
    )
    alarm = threading.Timer(60 * MINUTES, process.kill)
    alarm.start()
    # of this process and those that it waited for, which RUSAGE_CHILDREN would add to others'
    _, status, usage = os.wait4(process.pid, 0)
    alarm.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - started
    return process.returncode, (usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 2**20)


def _limit_memory():
    resource.setrlimit(resource.RLIMIT_DATA, (GIGABYTES * 2**30,) * 2)


def repeat(ways, problem, data, states, repeats, judge):
    """Return for each state and way the medians of what `judge` makes of the runs.

    `ways` maps names to a way and its settings. Each repeat starts with empty caches, one folder a
    way: the first state is cold, and a second one finds what the first has left.
    """
    found = {(state, way): [] for state in states for way in ways}
    for number in range(repeats):
        with tempfile.TemporaryDirectory() as caches:
            folders = {name: Path(caches, name) for name in ways}
            for state in states:
                runs = {
                    name: run(way, problem, data, folders[name], random_seed=number, **settings)
                    for name, (way, settings) in ways.items()
                }
                for name, figures in judge(runs).items():
                    found[state, name].append(figures)
    return {key: _medians(figures) for key, figures in found.items()}


def _medians(figures):
    """Return the median of each number; what is true or false must be true of every run."""
    series = {name: [one[name] for one in figures] for name in figures[0]}
    return {
        name: all(values) if isinstance(values[0], bool) else float(np.median(values))
        for name, values in series.items()
    }

"""Measure what dividing saves: a logistic regression of 100,000 rows, in 8 batches and whole.

Run ``python benchmarks/divide.py``. Each run is a process of its own, with an empty compilation
cache first ("cold") and with what that left ("warm"). CPU and wall-clock seconds hold everything:
imports, compilation, sampling and, for the batches, the merge. Both runs take 1000 draws in each
of two chains after 1000 of warmup, of every batch or of all rows; both use nutpie and two cores.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np

ROWS, COLUMNS, BATCHES, CORES = 100_000, 10, 8, 2


def main():
    """Run both ways, cold and warm, and print the table."""
    print(f"logistic regression, {ROWS} x {COLUMNS}: {BATCHES} batches against all rows at once")
    print(f"{'':>14} {'CPU s':>8} {'wall s':>8} {'ESS':>8} {'CPU s per 1000 ESS':>20}")
    with tempfile.TemporaryDirectory() as folder:
        for state in ("cold", "warm"):
            whole, divided = (measure(way, folder) for way in ("whole", "divided"))
            for way, found in (("whole", whole), ("divided", divided)):
                cost = 1000 * found["cpu"] / found["ess"]
                print(
                    f"{f'{way}, {state}':>14} {found['cpu']:8.1f} {found['wall']:8.1f} "
                    f"{found['ess']:8.0f} {cost:20.1f}"
                )
            cheaper = whole["cpu"] / whole["ess"] / (divided["cpu"] / divided["ess"])
            faster = whole["wall"] / whole["ess"] / (divided["wall"] / divided["ess"])
            shift = np.abs(np.subtract(whole["mean"], divided["mean"]) / whole["sd"]).max()
            print(
                f"{state}: dividing takes {cheaper:.1f} times less CPU (target 3) and "
                f"{faster:.1f} times less wall-clock time for the same effective draws, "
                f"{whole['wall'] / divided['wall']:.2f} times less for the whole job; "
                f"largest shift of a mean {shift:.2f} sds",
                flush=True,
            )


def measure(way, folder):
    """Return what one run in a new process cost and found."""
    flags = f"base_compiledir={folder}/{way}"
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    answer = subprocess.run(
        [sys.executable, __file__, way],
        env=os.environ | {"PYTENSOR_FLAGS": flags, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(answer.stdout.splitlines()[-1]) | {"cpu": cpu, "wall": wall}


def simulate():
    """Return the features, an intercept first, and the outcomes."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((ROWS, COLUMNS))
    features[:, 0] = 1
    logits = features @ rng.normal(0, 0.5, COLUMNS)
    return {"X": features, "y": (rng.random(ROWS) < 1 / (1 + np.exp(-logits))).astype(int)}


def build(data):
    """Return the model of some rows."""
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2, shape=COLUMNS)
        logits = pm.Data("X", data["X"]) @ beta
        pm.Bernoulli("y", logit_p=logits, observed=pm.Data("y_data", data["y"]))
    return model


def run(way):
    """Sample one way and print the effective size, means and sds as JSON."""
    import arviz as az
    import pymc as pm

    import arviz_swiss as az_swiss
    from arviz_swiss.data import containers

    settings = {"nuts_sampler": "nutpie", "chains": 2, "random_seed": 1, "progressbar": False}
    if way == "whole":
        with build(simulate()):
            found = pm.sample(cores=CORES, **settings)
    else:
        idatas = az_swiss.sample_batches(build, simulate(), batches=BATCHES, **settings)
        found = az_swiss.merge(idatas)
    posterior = containers.read(found).groups["posterior"]
    draws = posterior["beta"]
    summary = {
        "ess": float(az.ess(posterior)["beta"].min()),
        "mean": draws.mean(("chain", "draw")).values.tolist(),
        "sd": draws.std(("chain", "draw")).values.tolist(),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if len(sys.argv) > 1:
        run(sys.argv[1])
    else:
        main()

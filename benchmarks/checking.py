"""Measure what checking a merge costs: `report`, `plot_batches`, `compare_methods`, `certify`.

    python benchmarks/checking.py [report] [plot] [compare] [certify]

CPU seconds in the program itself, with one BLAS thread, each measurement in a process of its own;
the peak of memory is by tracemalloc, above what was there before the call, in a second call.
Ratios are against the same statistics one variable at a time, by ArviZ (`report`, of some
variables, carried over to all), and against all measures of every pair of methods (`compare`).
Growth is the power of the batches with which CPU time grows.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import tracemalloc
import warnings

import numpy as np

# batches, chains, draws, parameters
REPORTS = ((20, 4, 1000, 30), (100, 2, 1000, 50), (100, 4, 1000, 100))
COMPARED = (10, 4, 1000, 60)
CERTIFIED, PARAMETERS = (100, 300, 1000, 3000), 5
PLOTTED = (10, 100)
# So many variables are measured by ArviZ.
SOME = 20


class Normal:
    """A normal prior, and a normal likelihood of sd one."""

    def __init__(self, centre):
        self.centre = centre

    def log_prior(self, x):
        return -0.5e-4 * np.sum(x**2, axis=1)

    def grad_log_prior(self, x):
        return -1e-4 * x

    def log_likelihood(self, x):
        return -0.5 * np.sum((x - self.centre) ** 2, axis=1)

    def grad_log_likelihood(self, x):
        return self.centre - x


def normal_batches(batches, chains, draws, parameters):
    """Return the batches of a merge, with means that differ a little."""
    rng = np.random.default_rng(0)
    return [
        {"x": rng.normal(0.1 * rng.normal(size=parameters), 1.0, (chains, draws, parameters))}
        for _ in range(batches)
    ]


def measure_report(*sizes):
    import arviz_swiss as az_swiss

    merged = az_swiss.merge(normal_batches(*sizes), kind="inflated")
    taken = cost(lambda: az_swiss.report(merged))
    some = merged["posterior"]["x"].values[: sizes[1], :, :SOME]
    arviz_statistics(some[..., 0])
    one_by_one = cpu(lambda: [arviz_statistics(some[..., j]) for j in range(some.shape[-1])])
    by_arviz = one_by_one / some.shape[-1] * sizes[0] * sizes[3]
    return {**taken, "ratio": by_arviz / taken["cpu"], "draws": 8 * int(np.prod(sizes))}


def arviz_statistics(draws):
    """Compute what `report` does, of one (chain, draw) array, by ArviZ."""
    import arviz

    arviz.rhat(draws)
    arviz.ess(draws, method="bulk")
    arviz.ess(draws, method="tail", prob=(0.05, 0.95))
    if hasattr(arviz, "kde"):
        arviz.kde(draws.ravel())
    else:
        from arviz_stats.base import array_stats

        array_stats.kde(draws.ravel())


def measure_plot(batches):
    import matplotlib

    matplotlib.use("Agg")
    import arviz_swiss as az_swiss

    merged = az_swiss.merge(normal_batches(batches, 4, 1000, 40), kind="inflated")
    return cost(lambda: az_swiss.plot_batches(merged))


def measure_compare(*sizes):
    import arviz_swiss as az_swiss
    from arviz_swiss.methods import METHODS

    batches = normal_batches(*sizes)
    options = {"kind": "inflated", "random_seed": 1}
    taken = cost(lambda: az_swiss.compare_methods(batches, **options))
    merged = []
    merging = cpu(
        lambda: merged.extend(az_swiss.merge(batches, method=name, **options) for name in METHODS)
    )
    every = cpu(lambda: [az_swiss.discrepancy(x, y) for x in merged[:4] for y in merged[:4]])
    pairs = len(merged) * (len(merged) - 1) / 2
    return {**taken, "merging": merging, "every": every / 16 * pairs}


def measure_certify(batches):
    import arviz_swiss as az_swiss

    rng = np.random.default_rng(0)
    densities = [Normal(centre) for centre in rng.normal(size=(batches, PARAMETERS))]
    precision = batches + 1e-4
    draws = [
        {"x": rng.normal(batches * one.centre / precision, precision**-0.5, (4, 200, PARAMETERS))}
        for one in densities
    ]
    merged = az_swiss.merge(draws, kind="inflated")
    return cost(lambda: az_swiss.certify(merged, densities, random_seed=1, progressbar=False))


def cost(call):
    """Return CPU seconds of a call, after one small one for imports, and its peak of memory."""
    import arviz_swiss as az_swiss

    az_swiss.report(az_swiss.merge(normal_batches(2, 2, 50, 1), kind="inflated"))
    seconds = cpu(call)
    tracemalloc.start()
    call()
    _, peak = tracemalloc.get_traced_memory()
    return {"cpu": seconds, "peak": peak}


def cpu(call):
    start = time.process_time()
    call()
    return time.process_time() - start


def run(what, *sizes):
    """Measure in a process of its own."""
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    command = [sys.executable, __file__, "--one", what, *map(str, sizes)]
    environment = {**os.environ, **threads}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def exponent(seconds):
    """Return the power with which the last cost grew from the first."""
    (small, first), *_, (large, last) = seconds.items()
    return np.log(last / first) / np.log(large / small)


def print_report():
    for sizes in REPORTS:
        found = run("report", *sizes)
        print(
            f"report {' x '.join(map(str, sizes)):>20}: {found['cpu']:6.2f} CPU s, "
            f"{found['ratio']:.1f} times less than by ArviZ one by one; peak "
            f"{found['peak'] / found['draws']:.2f} of the draws",
            flush=True,
        )


def print_plot():
    seconds = {batches: run("plot", batches)["cpu"] for batches in PLOTTED}
    print("plot_batches of " + ", ".join(f"{b} batches: {s:.2f} CPU s" for b, s in seconds.items()))


def print_compare():
    found = run("compare", *COMPARED)
    comparing = found["cpu"] - found["merging"]
    print(
        f"compare_methods without a reference, {' x '.join(map(str, COMPARED))}: "
        f"{found['cpu']:.1f} CPU s, {found['merging']:.1f} of them merging; all measures of all "
        f"pairs would take {found['every']:.1f} instead of {comparing:.1f}"
    )


def print_certify():
    found = {batches: run("certify", batches) for batches in CERTIFIED}
    for batches, cost in found.items():
        print(
            f"certify {batches:>5} batches: {cost['cpu']:6.2f} CPU s, {cost['peak'] / 1e6:.0f} MB"
        )
    power = exponent({batches: cost["cpu"] for batches, cost in found.items()})
    print(f"certify grows as the power {power:.2f} of the batches", flush=True)


PRINTERS = {
    "report": print_report,
    "plot": print_plot,
    "compare": print_compare,
    "certify": print_certify,
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["--one"]:
        measure = globals()[f"measure_{sys.argv[2]}"]
        print(json.dumps(measure(*map(int, sys.argv[3:]))))
    else:
        parser = argparse.ArgumentParser(description="What checking a merge costs.")
        parser.add_argument("parts", nargs="*", choices=[[], *PRINTERS], metavar="PART")
        for part in parser.parse_args().parts or PRINTERS:
            PRINTERS[part]()

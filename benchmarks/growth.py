"""Measure how the CPU time of `az_swiss.sample` grows with rows and with batches.

    python benchmarks/growth.py [--picture FILE]

A simulated logistic regression of 10 parameters; 4000 merged draws whatever the rows and batches.
Every run is a process of its own. What imports alone take is measured too, and taken off before the
exponents are fitted: CPU = constant x rows^exponent. Compilation caches are warm, which counts for
the whole runs that the picture shows beside (`pm.sample` with nutpie, 2 chains of 1000 + 1000).
"""

import argparse
import tempfile
import warnings
from pathlib import Path

import fresh
import numpy as np
from problems import PROBLEMS

NAME, DRAWS = "simulated", 4000
ROWS, BATCHES_OF_ROWS = (10_000, 30_000, 100_000, 300_000, 1_000_000), 16
BATCHES, ROWS_OF_BATCHES = (2, 4, 8, 16, 32, 64), 100_000
# More rows would take all rows at once an hour.
ROWS_WHOLE = (10_000, 30_000, 100_000)


def main(picture, whole):
    with tempfile.TemporaryDirectory() as folder:
        measure = Measure(folder)
        base = measure("imports", ROWS[0])
        print(f"imports alone: {base:.1f} CPU s")
        by_rows = {
            rows: measure("divided", rows, batches=BATCHES_OF_ROWS, draws=DRAWS) for rows in ROWS
        }
        by_batches = {
            batches: measure("divided", ROWS_OF_BATCHES, batches=batches, draws=DRAWS)
            for batches in BATCHES
        }
        by_rows_whole = {}
        if whole:
            measure("whole", 100, draws=10, tune=10)
            by_rows_whole = {rows: measure("whole", rows) for rows in ROWS_WHOLE}
    print_growth(f"rows, {BATCHES_OF_ROWS} batches", by_rows, base)
    print_growth(f"batches, {ROWS_OF_BATCHES} rows", by_batches, base)
    if by_rows_whole:
        print_growth("rows, all at once", by_rows_whole, base)
    if picture:
        draw(picture, by_rows, by_batches, by_rows_whole, base)


class Measure:
    """CPU seconds of a way of sampling some rows, in a new process."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def __call__(self, way, rows, **settings):
        data = fresh.write_data(PROBLEMS[NAME], rows, self.folder)
        run = fresh.run(way, NAME, data, self.folder / "caches", random_seed=0, **settings)
        return run.cpu


def exponent(seconds, base):
    """Return the slope of the line through the logarithms, what imports take taken off."""
    sizes, costs = np.array(list(seconds)), np.array(list(seconds.values())) - base
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(costs, 0.01)), 1)[0])


def print_growth(title, seconds, base):
    """Print a table of sizes and CPU seconds."""
    print(f"\nCPU seconds by {title}; without imports they grow as the power ", end="")
    print(f"{exponent(seconds, base):.2f}")
    for size, cost in seconds.items():
        print(f"{size:>10}{cost:10.1f}", flush=True)


def draw(path, by_rows, by_batches, by_rows_whole, base):
    """Draw CPU seconds against rows and against batches."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, seconds in zip(axes, (by_rows, by_batches), strict=True):
        text = f"az_swiss.sample, power {exponent(seconds, base):.2f}"
        axis.loglog(*zip(*seconds.items(), strict=True), "o-", label=text)
        axis.axhline(base, color="0.6", linestyle=":", label="imports alone")
    if by_rows_whole:
        text = f"pm.sample of all rows, power {exponent(by_rows_whole, base):.2f}"
        axes[0].loglog(*zip(*by_rows_whole.items(), strict=True), "s--", color="C1", label=text)
    axes[0].set(xlabel=f"rows, in {BATCHES_OF_ROWS} batches", ylabel="CPU seconds")
    axes[1].set(xlabel=f"batches of {ROWS_OF_BATCHES:,} rows in all")
    axes[1].set_xticks(list(by_batches), [str(batches) for batches in by_batches])
    axes[1].minorticks_off()
    for axis in axes:
        axis.legend(frameon=False, fontsize="small")
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Growth of CPU time with rows and batches.")
    parser.add_argument("--picture", metavar="FILE", help="where to draw it")
    parser.add_argument("--no-whole", action="store_true", help="leave out runs of all rows")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    main(arguments.picture, not arguments.no_whole)

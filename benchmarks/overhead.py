"""Measure what `az_swiss.sample` costs beyond sampling, with a model that costs nothing.

    python benchmarks/overhead.py [--repeats 3]

The mean and sd of 1000 normal values: `az_swiss.sample` of 8 batches, and one `pm.sample` with its
own defaults, each in a process of its own; compilation caches are empty ("cold"), then as that left
them ("warm"). Everything but the sampling of the batches is to take at most 3 CPU seconds more than
that one `pm.sample`.
"""

import argparse
import tempfile
import warnings

import fresh
from problems import PROBLEMS

NAME, BATCHES, LIMIT = "trivial", 8, 3.0


def main(repeats):
    problem = PROBLEMS[NAME]
    ways = {"pm.sample": ("default", {}), "az_swiss.sample": ("divided", {"batches": BATCHES})}
    with tempfile.TemporaryDirectory() as folder:
        data = fresh.write_data(problem, problem.rows, folder)
        found = fresh.repeat(ways, NAME, data, ("cold", "warm"), repeats, costs)
    print(f"{problem.title} of {problem.rows} rows, {BATCHES} batches; medians of {repeats}")
    print(f"{'':>24}{'CPU s':>8}{'wall s':>8}")
    for (state, way), cost in found.items():
        print(f"{f'{way}, {state}':>24}{cost['cpu']:8.1f}{cost['wall']:8.1f}")
    for state in ("cold", "warm"):
        divided = found[state, "az_swiss.sample"]
        sampling = divided["sampling"]
        more = divided["cpu"] - sampling - found[state, "pm.sample"]["cpu"]
        holds = "holds " if more <= LIMIT else "MISSED"
        print(
            f"  {holds}  {state}: without the sampling of the batches ({sampling:.1f} s) "
            f"{more:+.1f} CPU seconds against one pm.sample (at most {LIMIT:+.1f})"
        )


def costs(runs):
    """Return the seconds of each way, and those of them in which batches were sampled."""
    return {
        way: {
            "cpu": run.cpu,
            "wall": run.wall,
            "sampling": run.facts.get("cpu_seconds", {}).get("batches", 0.0),
        }
        for way, run in runs.items()
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What az_swiss.sample costs beyond sampling.")
    parser.add_argument("--repeats", type=int, default=3)
    warnings.simplefilter("ignore")
    main(parser.parse_args().repeats)

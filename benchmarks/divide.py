"""Measure what dividing saves: `az_swiss.sample` against `pm.sample` of all rows.

    python benchmarks/divide.py [flights] [all-flights] [student] --references FOLDER

Whole is `pm.sample` with nutpie, 2 chains of 1000 draws after 1000 of warm-up, on two cores;
divided is `az_swiss.sample` as it comes. Each run is a process of its own, with empty compilation
caches first ("cold") and then with what that left ("warm"). CPU and wall-clock seconds hold
everything: imports, compilation, sampling, merging, refining, certifying. Both are compared with a
reference (``references.py``) that is made once and kept in FOLDER. With ``--repeats 3`` figures are
medians.
"""

import compared
import fresh
import numpy as np
import references

COLUMNS = "{:>14}{:>8}{:>8}{:>6}{:>8}{:>8}{:>13}{:>8}{:>8}"
HEAD = ("", "CPU s", "wall s", "GB", "least", "median", "Mahalanobis", "chance", "shift")


def main(arguments):
    for name, problem, data, reference in compared.each_problem(arguments):
        found = measure(name, problem, data, arguments.repeats, reference)
        print(COLUMNS.format(*HEAD))
        for state, targets in problem.targets.items():
            print_state(state, found[state, "whole"], found[state, "divided"], targets)


def measure(name, problem, data, repeats, reference):
    """Return the figures of both ways in each state."""

    def judge(runs):
        figures = {way: figures_of(run, reference) for way, run in runs.items()}
        whole, divided = (references.effective_draws(runs[way]) for way in ("whole", "divided"))
        figures["divided"]["ratio"] = float((divided / whole).min())
        figures["divided"]["certified"] = runs["divided"].facts.get("verdict") == "certified"
        return figures

    ways = {"whole": ("whole", {}), "divided": ("divided", {})}
    return fresh.repeat(ways, name, data, tuple(problem.targets), repeats, judge)


def figures_of(run, reference):
    """Return cost, effective draws and accuracy of a run."""
    sizes = references.effective_draws(run)
    return {
        "cpu": run.cpu,
        "wall": run.wall,
        "gigabytes": run.gigabytes,
        "least": float(sizes.min()),
        "median": float(np.median(sizes)),
        **references.accuracy(run, reference),
        "chance": references.noise(run.draws, reference.covariance),
    }


def print_state(state, whole, divided, targets):
    """Print the rows of one state of the caches, and what must hold of them."""
    for way, figures in (("whole", whole), ("divided", divided)):
        print(
            COLUMNS.format(
                f"{way}, {state}",
                f"{figures['cpu']:.1f}",
                f"{figures['wall']:.1f}",
                f"{figures['gigabytes']:.1f}",
                f"{figures['least']:.0f}",
                f"{figures['median']:.0f}",
                f"{figures['mahalanobis']:.3f}",
                f"{figures['chance']:.3f}",
                f"{figures['shift']:.3f}",
            )
        )
    cpu, wall = (whole[what] / divided[what] for what in ("cpu", "wall"))
    distance, limit = divided["mahalanobis"], 2 * whole["chance"]
    checks = [
        (f"{cpu:.1f} times less CPU time (at least {targets[0]})", cpu >= targets[0]),
        (f"{wall:.1f} times less wall-clock time (at least {targets[1]})", wall >= targets[1]),
        (
            f"effective draws of every parameter {divided['ratio']:.2f} times the whole run's "
            "or more (at least 1)",
            divided["ratio"] >= 1,
        ),
        (
            f"Mahalanobis distance {distance:.3f} (at most {limit:.3f}, twice the whole run's "
            "chance)",
            distance <= limit,
        ),
        ("certified, every run", divided["certified"]),
    ]
    for text, holds in checks:
        print(f"  {'holds ' if holds else 'MISSED'}  {state}: {text}", flush=True)


if __name__ == "__main__":
    parser = compared.make_parser("What dividing saves.")
    parser.add_argument("--repeats", type=int, default=1)
    main(compared.parse(parser))

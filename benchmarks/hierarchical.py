"""Measure accuracy and cost of `az_swiss.sample` with effects of groups, against all rows at once.

    python benchmarks/hierarchical.py [CASE ...] --references FOLDER [--batches 5 10]
                                       [--divided] [--first]
    python benchmarks/hierarchical.py --growth [--batches 10] [--quick]

Whole is `pm.sample` with nutpie, 2 chains of 1000 draws after 1000 of warm-up; divided is
`az_swiss.sample(build, data, groups="site")` in some numbers of batches. Each run is a process of
its own with empty compilation caches; CPU and wall-clock seconds hold everything. Both are compared
with a long run of all rows, which is made once and kept in FOLDER. Shared parameters are compared
in unconstrained space, where ``chance`` is what two samples of as many effective draws would show;
of the effects of groups that is the root mean square of one over the root of the effective draws.
``--first`` samples the batches one by one too, which rounds must not cost more than. Figures of the
divided runs of several repeats are medians. ``--growth`` fits how CPU time grows with the number of
groups, and ``--quick`` takes few of them, to try it out.
"""

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import NamedTuple

import fresh
import numpy as np
import references
import xarray as xr
from growth import print_growth
from hierarchies import HIERARCHIES

import arviz_swiss as az_swiss
from arviz_swiss.data import statistics

CHAINS = 4
GROUPS, QUICK_GROUPS, ROWS = (100, 300, 1000, 3000, 10_000), (30, 60, 120), 20
COLUMNS = "{:>14}{:>8}{:>8}{:>9}{:>9}{:>9}{:>13}{:>8}{:>8}{:>8}{:>13}{:>9}{:>8}{:>14}"
HEAD = (
    "",
    "CPU s",
    "wall s",
    "shared",
    "least",
    "median",
    "Mahalanobis",
    "chance",
    "IAD",
    "chance",
    "sds",
    "effects",
    "chance",
    "their sds",
)


class Reference(NamedTuple):
    """Draws of shared parameters, (chain, draw, parameter), and moments of the effects."""

    shared: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    sizes: np.ndarray
    rhat: float

    def __str__(self):
        chains, draws, _ = self.shared.shape
        rows = self.shared.reshape(chains * draws, -1)
        error = references.noise(self.shared, np.cov(rows.T))
        return (
            f"a run of {chains} x {draws} draws, largest R-hat {self.rhat:.3f}; its own error "
            f"{error:.3f}, and {np.sqrt(np.mean(1 / self.sizes)):.3f} sds of the effects"
        )


def main(arguments):
    print("columns: effective draws least of shared parameters, least and median of effects;")
    print("ranges of the sds' ratios to the reference's; rms shift of effects in sds")
    for name in arguments.cases:
        problem = HIERARCHIES[name]
        size = problem.quick_size if arguments.quick else problem.size
        with tempfile.TemporaryDirectory() as work:
            data = fresh.write_data(problem, size, work)
            print(f"\n{name}: {problem.title}, {size[0]} groups x {size[1]} rows", flush=True)
            reference = load_reference(name, problem, size, data, arguments)
            print(f"reference: {reference}")
            print(COLUMNS.format(*HEAD))
            measure(name, problem, data, reference, arguments)


def load_reference(name, problem, size, data, arguments):
    """Return the reference of a problem, from the folder if it is there, else made and kept."""
    path = Path(arguments.references) / f"hierarchical-{name}-{size[0]}x{size[1]}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draws = arguments.reference_draws or problem.reference_draws
        settings = {"chains": CHAINS, "cores": arguments.cores, "draws": draws}
        with tempfile.TemporaryDirectory() as caches:
            run = fresh.run("reference", name, data, caches, random_seed=2013, **settings)
        np.savez(path, **reference_of(run, problem)._asdict())
    with np.load(path) as file:
        arrays = {field: file[field] for field in Reference._fields}
    return Reference(**arrays)._replace(rhat=float(arrays["rhat"]))


def reference_of(run, problem):
    shared, effects = split(run, problem)
    rhats = statistics.convergence(run.draws).rhat
    sizes = [statistics.effective_size(effects[..., j]) for j in range(effects.shape[-1])]
    mean, sd = effects.mean(axis=(0, 1)), effects.std(axis=(0, 1), ddof=1)
    return Reference(shared, mean, sd, np.array(sizes), float(rhats.max()))


def split(run, problem):
    """Return the draws of shared parameters in unconstrained space, and those of the effects."""
    columns = run.facts["columns"]
    ends = np.cumsum(list(columns.values()))[:-1]
    parts = dict(zip(columns, np.split(run.draws, ends, axis=-1), strict=True))
    effects = parts.pop(problem.effects)
    for name, places in problem.positive.items():
        where = slice(None) if places is None else list(places)
        parts[name] = parts[name].copy()
        parts[name][..., where] = np.log(parts[name][..., where])
    return np.concatenate(list(parts.values()), axis=-1), effects


def measure(name, problem, data, reference, arguments):
    """Print the whole run, and for each number of batches the divided one and what must hold."""

    def runs(label, way, copies=1, **settings):
        found = []
        for seed in range(arguments.repeats):
            with tempfile.TemporaryDirectory() as caches:
                run = fresh.run(way, name, data, caches, random_seed=seed, **settings)
            found.append(figures_of(run, problem, reference, copies))
        figures = medians(found)
        print_row(label, figures)
        return figures

    whole = None if arguments.divided else runs("whole", "whole", cores=arguments.cores)
    for batches in arguments.batches or problem.batches:
        settings = {"groups": "site", "batches": batches, "draws": problem.draws}
        divided = runs(f"{batches} batches", "divided", copies=batches, **settings)
        print(f"    certificate: {', '.join(divided['verdict'])}")
        if divided["stages"]:
            stages = (f"{stage} {cpu:.1f}" for stage, cpu in divided["stages"].items())
            print(f"    CPU s by stage: {', '.join(stages)}")
        first = None
        if arguments.first:
            settings = {"groups": "site", "batches": batches, "random_seed": 0}
            with tempfile.TemporaryDirectory() as caches:
                first = fresh.run("batches", name, data, caches, **settings).cpu
        print_checks(f"{batches} batches", problem, whole, divided, first)


def figures_of(run, problem, reference, copies):
    """Return cost, effective draws and accuracy of a run.

    The effects of a group are drawn with its own batch, and moved along with the shared parameters
    of all others: as many `copies` of the same draws as there are batches, which count once. Draws
    that were made anew are no copies.
    """
    shared, effects = split(run, problem)
    distances = az_swiss.discrepancy(as_dataset(shared), as_dataset(reference.shared))
    ratios = shared.std(axis=(0, 1), ddof=1) / reference.shared.std(axis=(0, 1), ddof=1)
    shifts = shared.mean(axis=(0, 1)) - reference.shared.mean(axis=(0, 1))
    sizes = references.effective_draws(run)
    own = sizes[-effects.shape[-1] :] / (1 if run.facts.get("redrawn") else copies)
    effect_shifts = (effects.mean(axis=(0, 1)) - reference.mean) / reference.sd
    effect_ratios = effects.std(axis=(0, 1), ddof=1) / reference.sd
    return {
        "cpu": run.cpu,
        "wall": run.wall,
        "shared": float(sizes[: shared.shape[-1]].min()),
        "least": float(own.min()),
        "median": float(np.median(own)),
        "mahalanobis": float(distances["mahalanobis"]),
        "mahalanobis_chance": float(distances["mahalanobis_floor"]),
        "iad": float(distances["iad"]),
        "iad_chance": float(distances["iad_floor"]),
        "shift": float(np.abs(shifts / reference.shared.std(axis=(0, 1))).max()),
        "sd_low": float(ratios.min()),
        "sd_high": float(ratios.max()),
        "sd_chance": sd_chance(shared, reference.shared),
        "effects": float(np.sqrt(np.mean(effect_shifts**2))),
        "effects_chance": float(np.sqrt(np.mean(1 / own))),
        "reference_chance": float(np.sqrt(np.mean(1 / reference.sizes))),
        "effect_sd": float(effect_ratios.mean()),
        "effect_sd_low": float(effect_ratios.min()),
        "effect_sd_high": float(effect_ratios.max()),
        "effect_sd_error": float(np.sqrt(np.mean((effect_ratios - 1) ** 2))),
        "verdict": run.facts.get("verdict", "none"),
        "stages": run.facts.get("cpu_seconds", {}),
    }


def sd_chance(shared, reference):
    """Return two standard errors of the ratio of sds, of the parameter where it is largest.

    Of a sample, that of the mean square over twice the square: long tails make it large.
    """
    squared_errors = 0.0
    for draws in (shared, reference):
        squares = (draws - draws.mean(axis=(0, 1))) ** 2
        sizes = [statistics.effective_size(squares[..., k]) for k in range(squares.shape[-1])]
        relative = squares.std(axis=(0, 1)) / squares.mean(axis=(0, 1))
        squared_errors = squared_errors + (relative / 2) ** 2 / np.array(sizes)
    return float(2 * np.sqrt(np.max(squared_errors)))


def as_dataset(draws):
    """Return draws with their axes named: merged effects may have more chains than draws."""
    return xr.Dataset({"theta": (("chain", "draw", "parameter"), draws)})


def medians(found):
    """Return the median of each number, all verdicts, and the last run's stages."""
    series = {name: [figures[name] for figures in found] for name in found[0]}
    verdicts, stages = series.pop("verdict"), series.pop("stages")
    figures = {name: float(np.median(values)) for name, values in series.items()}
    return figures | {"verdict": verdicts, "stages": stages[-1]}


def print_row(label, figures):
    effect_sds = f"{figures['effect_sd_low']:.2f}-{figures['effect_sd_high']:.2f}"
    print(
        COLUMNS.format(
            label,
            f"{figures['cpu']:.1f}",
            f"{figures['wall']:.1f}",
            *(f"{figures[name]:.0f}" for name in ("shared", "least", "median")),
            *(f"{figures[name]:.3f}" for name in ("mahalanobis", "mahalanobis_chance")),
            *(f"{figures[name]:.3f}" for name in ("iad", "iad_chance")),
            f"{figures['sd_low']:.2f}-{figures['sd_high']:.2f}",
            *(f"{figures[name]:.3f}" for name in ("effects", "effects_chance")),
            effect_sds,
        ),
        flush=True,
    )
    per_draw = (figures["cpu"] / figures[name] for name in ("shared", "least", "median"))
    text = ", ".join(f"{1000 * seconds:.1f}" for seconds in per_draw)
    print(
        f"    CPU ms an effective draw: {text}; sds of effects {figures['effect_sd']:.3f} on "
        f"average, rms deviation {figures['effect_sd_error']:.3f}"
    )


def print_checks(label, problem, whole, divided, first=None):
    """Print what must hold of a divided run; `first` are CPU seconds of sampling batches alone."""
    sd_error = max(1 - divided["sd_low"], divided["sd_high"] - 1)
    near = divided["mahalanobis"] <= 2 * divided["mahalanobis_chance"]
    alike = divided["iad"] <= 1.3 * divided["iad_chance"]
    limit = 2 * divided["effects_chance"]
    doubted = set(divided["verdict"]) == {"not certified"}
    effect_sds = (
        f"effects' sds off by {divided['effect_sd_error']:.3f}, rms (at most .05)",
        divided["effect_sd_error"] <= 0.05,
    )
    if problem.hard:
        checks = [
            (f"largest shift {divided['shift']:.3f} sds (at most .15)", divided["shift"] <= 0.15),
            effect_sds,
            (
                f"not certified, or right (sds off by {sd_error:.3f}, two standard errors "
                f"{divided['sd_chance']:.3f}, IAD {divided['iad'] / divided['iad_chance']:.2f} "
                "floors)",
                doubted or (near and alike and sd_error <= max(0.03, divided["sd_chance"])),
            ),
        ]
    else:
        checks = [
            (
                f"Mahalanobis {divided['mahalanobis'] / divided['mahalanobis_chance']:.2f} floors "
                "(at most 2)",
                near,
            ),
            (f"sds off by {sd_error:.3f} at most (at most .03)", sd_error <= 0.03),
            (f"IAD {divided['iad'] / divided['iad_chance']:.2f} floors (at most 1.3)", alike),
            (
                f"effects {divided['effects']:.3f} sds off, rms (at most {limit:.3f}, 2 over the "
                "root of their effective draws; the reference's own is "
                f"{divided['reference_chance']:.3f})",
                divided["effects"] <= limit,
            ),
            effect_sds,
        ]
    if problem.times and whole is not None:
        checks.append(cheaper(problem.times, whole, divided))
    if first is not None:
        rounds = divided["stages"]["refine"]
        text = f"rounds {rounds:.1f} CPU s, the first sampling of all batches {first:.1f}"
        checks.append((text, rounds <= first))
    for text, holds in checks:
        print(f"  {'holds ' if holds else 'MISSED'}  {label}: {text}", flush=True)


def cheaper(times, whole, divided):
    """Return what must hold of the CPU time of an effective draw, of whichever is dearest."""
    costs = [
        figures["cpu"] / min(figures["shared"], figures["least"]) for figures in (whole, divided)
    ]
    ratio = costs[0] / costs[1]
    return f"{ratio:.1f} times less CPU an effective draw (at least {times})", ratio >= times


def measure_growth(batches, quick):
    """Print how CPU time grows with the number of groups."""
    problem, name = HIERARCHIES["intercepts"], "intercepts"
    with tempfile.TemporaryDirectory() as folder:

        def seconds(way, count, **settings):
            data = fresh.write_data(problem, (count, ROWS), folder)
            return fresh.run(
                way, name, data, Path(folder) / "caches", random_seed=0, **settings
            ).cpu

        base = seconds("imports", 10)
        settings = {"groups": "site"} | ({"batches": batches} if batches else {})
        by_groups = {
            count: seconds("divided", count, **settings)
            for count in (QUICK_GROUPS if quick else GROUPS)
        }
    print(f"imports alone: {base:.1f} CPU s")
    many = f"{batches} batches" if batches else "batches by rule"
    print_growth(f"groups of {ROWS} rows, {many}", by_groups, base)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Effects of groups, divided and whole.")
    parser.add_argument("cases", nargs="*", default=[], metavar="case")
    parser.add_argument("--batches", type=int, nargs="+", help="other numbers than the case's own")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--references", metavar="FOLDER")
    parser.add_argument("--cores", type=int, default=2, help="of the runs of all rows")
    parser.add_argument("--quick", action="store_true", help="few groups, to try it out")
    parser.add_argument("--divided", action="store_true", help="without the run of all rows")
    parser.add_argument("--reference-draws", type=int, help="of a chain, where it is to be made")
    parser.add_argument("--first", action="store_true", help="also batches sampled alone, by NUTS")
    parser.add_argument("--growth", action="store_true", help="CPU time by number of groups")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(HIERARCHIES):
        parser.error(f"no case {', '.join(unknown)}. There are {', '.join(HIERARCHIES)}.")
    if not options.growth and not options.references:
        parser.error("--references FOLDER is where references are kept.")
    warnings.simplefilter("ignore")
    if options.growth:
        measure_growth((options.batches or [None])[0], options.quick)
    else:
        options.cases = options.cases or list(HIERARCHIES)
        main(options)

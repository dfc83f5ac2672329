"""Compare `az_swiss.sample` with what else one would take, on the same data.

    python benchmarks/rivals.py [flights] [all-flights] [student] --references FOLDER

Each way runs in a process of its own with empty compilation caches, imports and compilation
included. The pilot's row is a part of the one above it: what `az_swiss.sample` takes to the end of
its pilot, and the time to weigh draws of it as Laplace's are. Pathfinder and Laplace need
pymc-extras, and are left out where it is not installed.
"""

import time
from importlib.util import find_spec

import compared
import density
import fresh
import numpy as np
import references
import ways

import arviz_swiss as az_swiss

CONSENSUS = {"method": "consensus", "refine": False, "certify": False}
WAYS = {
    "pm.sample, all rows": ("whole", {}),
    "ADVI, full rank, minibatches": ("advi", {}),
    "Pathfinder, resampled": ("pathfinder", {}),
    "Laplace, weighted": ("laplace", {}),
    "consensus, as merged": ("divided", CONSENSUS),
    "az_swiss.sample": ("divided", {}),
}
NEED_EXTRAS = ("pathfinder", "laplace")
COLUMNS = "{:<30}{:>8}{:>8}{:>6}{:>11}{:>13}{:>7}{:>8}  {}"
HEAD = ("", "CPU s", "wall s", "GB", "effective", "Mahalanobis", "IAD", "k-hat", "")


def main(arguments):
    for name, problem, data, reference in compared.each_problem(arguments):
        print(COLUMNS.format(*HEAD))
        for number, title in enumerate(arguments.ways):
            way, settings = WAYS[title]
            if way in NEED_EXTRAS and find_spec("pymc_extras") is None:
                print(f"{title:<30} needs pymc-extras")
                continue
            caches = data.with_name(str(number))
            try:
                run = fresh.run(way, name, data, caches, random_seed=1, **settings)
            except RuntimeError as error:
                print(f"{title:<30} failed: {str(error).splitlines()[-1]}", flush=True)
                continue
            print_row(title, run, reference)
            if way == "divided" and not settings and "pilot" in run.facts:
                print_row("  its pilot alone, weighted", pilot_of(run, problem, data), reference)


def pilot_of(run, problem, data):
    """Return weighted draws of a run's pilot, at the cost of imports, pilot and weights."""
    started = time.process_time()
    with np.load(data) as file:
        arrays = dict(file)
    target = density.density_of(problem.build(arrays), problem.names, len(arrays["y"]))
    moments = {name: np.array(values) for name, values in run.facts["pilot"].items()}
    gaussian = density.Gaussian(moments["mean"], np.linalg.cholesky(moments["covariance"]))
    found = ways.weighed(target, gaussian, np.random.default_rng(1))
    weighing = time.process_time() - started
    cost = {
        "cpu": weighing + up_to_pilot(run.cpu, run.facts["cpu_seconds"]),
        "wall": weighing + up_to_pilot(run.wall, run.facts["seconds"]),
    }
    return run._replace(**cost, **found._asdict())


def up_to_pilot(seconds, stages):
    """Return the seconds of a run without those of the stages behind its pilot."""
    return seconds - sum(stages.values()) + stages["plan"] + stages["pilot"]


def print_row(title, run, reference):
    """Print cost and accuracy of a run."""
    accuracy = references.accuracy(run, reference)
    row = COLUMNS.format(
        title,
        f"{run.cpu:.1f}",
        f"{run.wall:.1f}",
        f"{run.gigabytes:.1f}",
        f"{references.effective_draws(run).min():.0f}",
        f"{accuracy['mahalanobis']:.3f}",
        f"{distance_of_densities(run, reference):.3f}",
        f"{run.facts['khat']:.2f}" if "khat" in run.facts else "",
        run.facts.get("verdict", ""),
    )
    print(row.rstrip(), flush=True)


def distance_of_densities(run, reference):
    """Return the mean integrated absolute distance of the marginal densities."""
    draws = run.draws.reshape(-1, run.draws.shape[-1])
    if run.log_weights is not None:
        rng = np.random.default_rng(0)
        draws = references.resample(rng, draws, np.exp(run.log_weights))
    found = az_swiss.discrepancy({"theta": draws[None]}, {"theta": reference.draws[None]})
    return float(found["iad"])


if __name__ == "__main__":
    parser = compared.make_parser("az_swiss.sample beside other ways.")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS), metavar="way")
    main(compared.parse(parser))

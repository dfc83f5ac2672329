"""Ways to sample a posterior, each run by ``fresh.py`` in a process of its own.

    python benchmarks/ways.py <way> <problem> <data.npz> <output.npz> <settings as JSON>

writes the draws, by (chain, draw, parameter), their log weights if they have any, and facts. What
a way needs is imported where it runs, as imports are part of its cost.
"""

import json
import sys
import warnings
from typing import NamedTuple

import numpy as np
from hierarchies import HIERARCHIES
from problems import PROBLEMS

DRAWS = 4000


class Found(NamedTuple):
    draws: np.ndarray
    facts: dict
    log_weights: np.ndarray | None = None


def whole(problem, data, random_seed, **settings):
    """All rows by NUTS, with nutpie: two chains of 1000 draws after as many of warm-up."""
    import pymc as pm

    arguments = {"nuts_sampler": "nutpie", "chains": 2, "cores": 2, "draws": 1000, "tune": 1000}
    with problem.build(data):
        found = pm.sample(**arguments | settings, random_seed=random_seed, progressbar=False)
    return Found(stack(found.posterior, problem.names), columns_of(found.posterior, problem.names))


def reference(problem, data, random_seed, **settings):
    """All rows in a long run by nutpie."""
    build = problem.build_reference or problem.build
    return whole(problem._replace(build=build), data, random_seed, **settings)


def default(problem, data, random_seed):
    """All rows with whatever PyMC's own defaults are."""
    import pymc as pm

    with problem.build(data):
        found = pm.sample(random_seed=random_seed, progressbar=False)
    return Found(stack(found.posterior, problem.names), {})


def divided(problem, data, random_seed, **settings):
    """Divided, merged, refined and certified by one call."""
    import arviz_swiss as az_swiss
    from arviz_swiss.data import containers

    merged = az_swiss.sample(
        problem.build, data, random_seed=random_seed, progressbar=False, **settings
    )
    groups = containers.read(merged).groups
    facts = facts_of(groups) | columns_of(groups["posterior"], problem.names)
    return Found(stack(groups["posterior"], problem.names), facts)


def batches(problem, data, random_seed, **settings):
    """Batches sampled with nutpie and a full warm-up, to be merged; the draws of the first."""
    import arviz_swiss as az_swiss

    arguments = {"kind": "fractionated", "nuts_sampler": "nutpie", "progressbar": False}
    found = az_swiss.sample_batches(
        problem.build, data, **arguments | settings, random_seed=random_seed
    )
    posterior = found[0]["posterior"]
    return Found(stack(posterior, problem.names), columns_of(posterior, problem.names))


def facts_of(groups):
    """Return the verdict of the certificate, the seconds of each stage, and the pilot's moments."""
    facts: dict = {"redrawn": "swiss_redrawn" in groups}
    if (certificate := groups.get("swiss_certificate")) is not None:
        facts["verdict"] = certificate.attrs["status"]
        if "khat" in certificate:
            facts["khat"] = float(certificate["khat"])
    if (run := groups.get("swiss_run")) is not None:
        for name in ("seconds", "cpu_seconds"):
            series = run[name].to_series()
            facts[name] = {str(stage): float(value) for stage, value in series.items()}
    if (pilot := groups.get("swiss_pilot")) is not None:
        facts["pilot"] = {name: pilot[name].values.tolist() for name in ("mean", "covariance")}
    return facts


def advi(problem, data, random_seed, steps=20_000, minibatch=1000):
    """Full-rank ADVI of minibatches, as PyMC has it: independent draws of the fit."""
    import pymc as pm

    # observed minibatches must have the dtype that PyMC would cast them to
    arrays = [pm.intX(array) if array.dtype.kind == "i" else array for array in data.values()]
    batches = pm.Minibatch(*arrays, batch_size=minibatch)
    with problem.build(dict(zip(data, batches, strict=True)), total_size=len(data["y"])):
        fit = pm.fit(steps, "fullrank_advi", random_seed=random_seed, progressbar=False)
    found = fit.sample(DRAWS, random_seed=random_seed)
    return Found(stack(found.posterior, problem.names), {})


def pathfinder(problem, data, random_seed):
    """Pathfinder of pymc-extras, resampled by its own Pareto-smoothed weights.

    Not its default "psis", which takes draws without replacement: all of them, if as many are asked
    as there are.
    """
    import pymc_extras as pmx

    with problem.build(data):
        found = pmx.fit_pathfinder(
            num_draws=DRAWS,
            importance_sampling="psir",
            random_seed=random_seed,
            progressbar=False,
        )
    draws = stack(found.posterior, problem.names)
    # a weight in place of repetitions
    rows, counts = np.unique(draws.reshape(-1, draws.shape[-1]), axis=0, return_counts=True)
    facts = {"khat": float(found["pathfinder"]["pareto_k"])}
    return Found(rows[None], facts, np.log(counts / counts.sum()))


def laplace(problem, data, random_seed):
    """Laplace of pymc-extras; draws of its Gaussian with Pareto-smoothed weights."""
    import density
    import pymc_extras as pmx

    model = problem.build(data)
    fit = pmx.fit_laplace(model=model, random_seed=random_seed, progressbar=False, draws=1).fit
    factor = np.linalg.cholesky(fit["covariance_matrix"].values)
    gaussian = density.Gaussian(fit["mean_vector"].values, factor)
    target = density.density_of(model, problem.names, len(data["y"]))
    return weighed(target, gaussian, np.random.default_rng(random_seed))


def weighed(target, gaussian, rng):
    """Return draws of a Gaussian with weights against the posterior."""
    from arviz_swiss.data.statistics import pareto_smoothed

    points, own = gaussian.points(rng.standard_normal((DRAWS, len(gaussian.mean))))
    log_weights, khat = pareto_smoothed(target.log(points) - own)
    return Found(target.parameters(points)[None], {"khat": khat}, log_weights)


def imports(problem, data, random_seed):
    """Nothing but imports, for what is left of the others' cost."""
    import pymc

    import arviz_swiss

    return Found(np.zeros((1, 1, 1)), {"versions": [pymc.__version__, arviz_swiss.__version__]})


def stack(posterior, names):
    """Return the draws of some variables by (chain, draw, parameter), groups in order."""
    # of a merge, groups stand batch by batch
    ordered = (posterior[name].transpose("chain", "draw", ...) for name in names)
    arrays = [np.asarray(each.sortby([d for d in each.dims if d == "site"])) for each in ordered]
    return np.concatenate([array.reshape(*array.shape[:2], -1) for array in arrays], axis=-1)


def columns_of(posterior, names):
    """Return how many columns of the stacked draws each variable has."""
    return {"columns": {name: int(posterior[name][0, 0].size) for name in names}}


WAYS = {
    way.__name__: way
    for way in (whole, reference, default, divided, batches, advi, pathfinder, laplace, imports)
}


def main(way, problem, data, output, settings):
    with np.load(data) as file:
        arrays = dict(file)
    found = WAYS[way]((PROBLEMS | HIERARCHIES)[problem], arrays, **json.loads(settings))
    weights = {} if found.log_weights is None else {"log_weights": found.log_weights}
    np.savez(output, draws=found.draws, facts=json.dumps(found.facts), **weights)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])

"""Draw how rounds over batches with groups come to the posterior of all rows.

Run ``python docs/rounds.py``, some minutes: it writes docs/_static/rounds.png and prints the
distances. A logistic regression with effects of 200 groups, of 50 rows each, is sampled in 10
batches: by `sample`, three times, and by `refine` from the merge of batches that NUTS sampled each
on its own. Both are compared with a long run of all rows, in the space of the merge.
"""

import logging
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm

import arviz_swiss as az_swiss
from arviz_swiss.base.effective import effective_sizes
from arviz_swiss.data import flatten

GROUPS, ROWS, BATCHES = 200, 50, 10
SHARED = ["intercept", "slope", "tau"]
STATIC = Path(__file__).parent / "_static"


def simulate(random_seed=1):
    """Return rows of groups with effects of their own."""
    rng = np.random.default_rng(random_seed)
    number = np.repeat(np.arange(GROUPS), ROWS)
    x, effects = rng.normal(size=number.size), rng.normal(0, 0.8, size=GROUPS)
    chances = 1 / (1 + np.exp(-(0.5 + 0.7 * x + effects[number])))
    sites = [f"s{each:03d}" for each in number]
    return pd.DataFrame({"site": sites, "x": x, "y": rng.binomial(1, chances)})


def build(rows):
    """Return the model of some rows."""
    sites, index = np.unique(rows["site"].to_numpy(dtype=str), return_inverse=True)
    with pm.Model(coords={"site": sites}) as model:
        intercept, slope = pm.Normal("intercept", 0, 2), pm.Normal("slope", 0, 2)
        effect = pm.Normal("effect", 0, pm.HalfNormal("tau", 1), dims="site")
        logit = intercept + slope * rows["x"].to_numpy() + effect[index]
        pm.Bernoulli("y", logit_p=logit, observed=rows["y"].to_numpy())
    return model


def sample_whole(data):
    """Return mean, precision and noise of a long run of all rows; tau is on the log scale."""
    settings = {"draws": 3000, "chains": 4, "cores": 1, "nuts_sampler": "nutpie"}
    with build(data):
        whole = pm.sample(random_seed=1, progressbar=False, **settings)
    draws = flatten(whole, var_names=SHARED).transpose("chain", "draw", "parameter").values.copy()
    draws[..., 2] = np.log(draws[..., 2])
    rows = draws.reshape(-1, len(SHARED))
    precision = np.linalg.inv(np.cov(rows.T))
    white = (draws - rows.mean(axis=0)) @ np.linalg.cholesky(precision)
    return rows.mean(axis=0), precision, np.sqrt(np.sum(1 / effective_sizes(white)))


def distances(merged, mean, precision):
    """Return the Mahalanobis distance of the pooled mean after each round."""
    means = merged["swiss_transform"]["round_mean"].sel(parameter=SHARED)
    away = means.transpose("round", "parameter").values - mean
    return np.sqrt(np.sum(away * (away @ precision), axis=1))


def main():
    logging.getLogger("pymc").setLevel(logging.ERROR)
    data = simulate()
    *reference, noise = sample_whole(data)
    print(f"noise of the run of all rows: {noise:.3f}")
    quiet = {"batches": BATCHES, "groups": "site", "progressbar": False}
    lines = []
    for random_seed in range(1, 4):
        merged = az_swiss.sample(build, data, certify=False, random_seed=random_seed, **quiet)
        lines.append(("from the pilot (sample)", "#0072B2", merged))
    short = {"kind": "fractionated", "chains": 2, "draws": 200, "tune": 300}
    idatas = az_swiss.sample_batches(build, data, random_seed=1, **short, **quiet)
    merged = az_swiss.merge(idatas, model=build(data))
    merged = az_swiss.refine(merged, build=build, data=data, random_seed=1, progressbar=False)
    lines.append(("from the merge (refine)", "#D55E00", merged))
    draw([(label, color, distances(each, *reference)) for label, color, each in lines], noise)


def draw(lines, noise):
    """Print the distances by round and write the picture."""
    figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
    axes.axhspan(1e-3, noise, color="0.9", linewidth=0, label="noise of the run of all rows")
    for label, color, values in lines:
        print(f"{label}: {' '.join(f'{value:.3f}' for value in values)}")
        known = axes.get_legend_handles_labels()[1]
        axes.plot(values, "o-", color=color, label="" if label in known else label, markersize=4)
    axes.set(yscale="log", xlabel="round", ylabel="distance from all rows (sds)")
    axes.set_ylim(noise / 5, None)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
    STATIC.mkdir(exist_ok=True)
    figure.savefig(STATIC / "rounds.png", dpi=150)


if __name__ == "__main__":
    main()

"""Draw the pictures of the README, the landing page and docs/plots.md into docs/_static.

Run ``python docs/pictures.py``.
"""

import warnings
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np

import arviz_swiss as az_swiss

STATIC = Path(__file__).parent / "_static"


def three_batches(random_seed=4):
    """Return draws of three inflated sub-posteriors of two parameters."""
    rng = np.random.default_rng(random_seed)
    batches = {}
    for name, centre, sds, correlation in (
        ("batch 1", (-1.9, 0.2), (1.2, 0.6), 0.5),
        ("batch 2", (1.5, 1.3), (0.7, 0.9), -0.2),
        ("batch 3", (0.9, -1.4), (0.9, 0.5), 0.75),
    ):
        covariance = np.outer(sds, sds) * np.array([[1, correlation], [correlation, 1]])
        draws = rng.multivariate_normal(centre, covariance, size=(4, 250))
        batches[name] = {"intercept": draws[..., 0], "slope": draws[..., 1]}
    return batches


def twenty_batches(random_seed=1):
    """Return draws of twenty inflated sub-posteriors, of which batch b7 has gone wrong."""
    rng = np.random.default_rng(random_seed)
    batches = {}
    for number in range(20):
        centre = np.sqrt(20) * rng.normal(size=3)
        draws = rng.normal(size=(4, 250, 3)) * rng.uniform(0.8, 1.25, size=3) + centre
        if number == 7:
            draws[..., 1] += 45
        batches[f"b{number}"] = {"beta": draws[..., :2], "sigma": np.exp(0.1 * draws[..., 2])}
    return batches


def skewed_batches(random_seed=0):
    """Return draws of ten sub-posteriors with gamma marginals, and of the full posterior."""
    rng = np.random.default_rng(random_seed)
    made = [{"beta": rng.gamma(4, size=(4, 500, 3)) + rng.normal(size=3)} for _ in range(11)]
    return made[:10], {"beta": made[10]["beta"] - made[10]["beta"].mean(axis=(0, 1)) + 4}


def log_rates(random_seed=1):
    """Return a merge of eight skewed batches, refined and certified, and certified as it is."""
    rng = np.random.default_rng(random_seed)
    counts = np.array([2.0, 3.0, 5.0])
    densities = [LogRates(counts, rng.gamma(counts)) for _ in range(8)]
    draws = [
        {"u": np.log(rng.gamma(8 * counts, size=(2, 500, 3)) / (8 * one.exposures))}
        for one in densities
    ]
    merged = az_swiss.merge(draws, kind="inflated")
    options = {"random_seed": 0, "progressbar": False}
    refined = az_swiss.refine(merged, densities, **options)
    return refined, az_swiss.certify(merged, densities, **options)


class LogRates:
    """Counts with a flat prior of the log rates."""

    def __init__(self, counts, exposures):
        self.counts, self.exposures = counts, exposures

    def log_prior(self, x):
        return np.zeros(len(x))

    def grad_log_prior(self, x):
        return np.zeros_like(x)

    def log_likelihood(self, x):
        return x @ self.counts - np.exp(x) @ self.exposures

    def grad_log_likelihood(self, x):
        return self.counts - np.exp(x) * self.exposures


def save(collection, name):
    """Write the figure of a PlotCollection."""
    STATIC.mkdir(exist_ok=True)
    collection.savefig(STATIC / name, dpi=150)
    plt.close("all")


def main():
    warnings.simplefilter("ignore", az_swiss.MergeWarning)
    merged = az_swiss.merge(three_batches(), kind="inflated")
    # ArviZ's own probability is another on each stack.
    wide = {"figsize": (11, 3.9)}
    save(az_swiss.plot_maps(merged, ci_prob=0.9, figure_kwargs=wide), "swiss.png")
    high = {"figsize": (4.0, 10.5)}  # for phones
    below = az_swiss.plot_maps(merged, ci_prob=0.9, col_wrap=1, figure_kwargs=high)
    save(below, "swiss_narrow.png")
    merged = az_swiss.merge(twenty_batches(), transforms={"sigma": "log"}, kind="inflated")
    save(az_swiss.plot_batches(merged, var_names="beta"), "plot_batches.png")
    save(az_swiss.plot_shift(merged, ci_prob=0.94), "plot_shift.png")
    save(az_swiss.plot_agreement(merged, ci_prob=0.94), "plot_agreement.png")
    batches, reference = skewed_batches()
    table = az_swiss.compare_methods(batches, reference, random_seed=0, kind="inflated")
    save(az_swiss.plot_compare_methods(table), "plot_compare_methods.png")
    refined, certified = log_rates()
    save(az_swiss.plot_refine(refined, ci_prob=0.94), "plot_refine.png")
    save(az_swiss.plot_certificate(certified), "plot_certificate.png")


if __name__ == "__main__":
    main()

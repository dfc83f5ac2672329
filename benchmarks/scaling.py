"""Merge quality and time as the number of parameters grows: section 4.2 of the paper.

    python benchmarks/scaling.py [largest number of parameters]

Ten Gaussian sub-posteriors with covariances V_b from an inverse Wishart distribution with 5 d
degrees of freedom and scale I. As written in the paper their means come from N(0, I), whatever the
V_b: V_b is about I / (4 d), so at d = 80 batch means lie 18 of their own sds from the centre. The
estimated pooled mean then inherits the error of the estimated precisions, multiplied by that
distance, and no method that pools by precisions can locate the posterior. The second table draws
means from N(0, V_b), the sub-posteriors' own scale, as batches of one data set would have them.
"""

import sys
import time
import warnings

import numpy as np
from scipy.stats import invwishart

import arviz_swiss as az_swiss

BATCHES, DRAWS = 10, 5000
METHODS = ("swiss", "consensus", "recentre", "barycenter", "semiparametric")


def sub_posteriors(rng, size, own_scale):
    """Return means and covariances of the fractionated sub-posteriors."""
    covariances = invwishart(5 * size, np.eye(size)).rvs(BATCHES, random_state=rng)
    covariances = covariances.reshape(BATCHES, size, size)
    means = rng.standard_normal((BATCHES, size))
    if own_scale:
        means = [np.linalg.cholesky(v) @ z for v, z in zip(covariances, means, strict=True)]
    return np.array(means), covariances


def normal(rng, mean, covariance):
    """Return draws as one batch."""
    noise = rng.standard_normal((1, DRAWS, len(mean)))
    return {"theta": mean + noise @ np.linalg.cholesky(covariance).T}


def experiment(size, own_scale, seed=0):
    """Return the table of all methods, and how far batch means lie from the centre in batch sds."""
    rng = np.random.default_rng(seed)
    means, covariances = sub_posteriors(rng, size, own_scale)
    precisions = np.linalg.inv(covariances)
    covariance = np.linalg.inv(precisions.sum(axis=0))
    mean = covariance @ np.einsum("bij,bj->i", precisions, means)
    pairs = list(zip(means, covariances, strict=True))
    table = az_swiss.compare_methods(
        [normal(rng, m, v / BATCHES) for m, v in pairs],
        normal(rng, mean, covariance),
        METHODS,
        [normal(rng, m, v) for m, v in pairs],
        random_seed=seed,
    )
    spreads = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    return table, float(np.sqrt(np.mean(((means - mean) / spreads) ** 2)))


def main(largest):
    warnings.simplefilter("ignore", az_swiss.MergeWarning)
    sizes = [size for size in (5, 10, 20, 40, 80) if size <= largest]
    for own_scale, title in (
        (False, "as written: means from N(0, I)"),
        (True, "means from N(0, V_b)"),
    ):
        print(f"\n{title}\n{BATCHES} batches, {DRAWS} draws each")
        print(f"{'':8}{'apart':>7}{'floor':>8}" + "".join(f"{name:>24}" for name in METHODS))
        print(
            f"{'d':>3}{'':5}{'in sds':>7}{'iad':>8}"
            + f"{'iad':>8}{'mah':>8}{'s':>8}" * len(METHODS)
        )
        for size in sizes:
            table, apart = experiment(size, own_scale)
            row = f"{size:3}{'':5}{apart:7.1f}{table.loc['swiss', 'iad_floor']:8.3f}"
            for _, one in table.iterrows():
                row += f"{one['iad']:8.3f}{one['mahalanobis']:8.2f}{one['seconds']:8.2f}"
            print(row)


if __name__ == "__main__":
    start = time.process_time()
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 80)
    print(f"\n{time.process_time() - start:.0f} s of processor time")

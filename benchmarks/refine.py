"""Measure `refine` and `certify`: accuracy on the paper's simulation, points, and cost.

Run one part with ``python benchmarks/refine.py accuracy`` (or ``points``, ``cost``), all without an
argument. The part ``reference`` needs a folder of reference draws, see ``regressions.py``: give it
as ``--folder``, or in the variable REFERENCE_POSTERIORS. CPU time of this process and its children;
set OMP_NUM_THREADS=1.
"""

import argparse
import os
import time
import warnings

import numpy as np
from regressions import REGRESSIONS, Regression, load
from scipy.special import digamma, expit, polygamma

import arviz_swiss as az_swiss
from arviz_swiss.base import gaussian, weights
from arviz_swiss.base.effective import effective_sizes
from arviz_swiss.merging.merged import open_merged

FREQUENCIES = np.array([1, 0.02, 0.03, 0.05, 0.001])
TRUTH = np.array([-3, 1.2, -0.5, 0.8, 3])


class Logistic:
    """The density of a logistic regression, of rows that may count several times."""

    def __init__(self, design, successes, trials, sd):
        self.design, self.successes, self.trials, self.sd = design, successes, trials, sd

    def log_prior(self, x):
        return -0.5 * np.sum((x / self.sd) ** 2, axis=1)

    def grad_log_prior(self, x):
        return -x / self.sd**2

    def log_likelihood(self, x):
        logits = x @ self.design.T
        return logits @ self.successes - np.logaddexp(0, logits) @ self.trials

    def grad_log_likelihood(self, x):
        return (self.successes - self.trials * expit(x @ self.design.T)) @ self.design


class LogRates:
    """Counts of events with a flat prior of the log rates."""

    def __init__(self, counts, exposures):
        self.counts, self.exposures = counts, exposures

    def grad_log_likelihood(self, x):
        return self.counts - np.exp(x) * self.exposures


def hmc(rng, density, power, size, chains=100, draws=20, warmup=60, leaps=8, start=None):
    """Return (chain, draw, parameter) draws of prior times likelihood to a power."""

    def value(x):
        return density.log_prior(x) + power * density.log_likelihood(x)

    def gradient(x):
        return density.grad_log_prior(x) + power * density.grad_log_likelihood(x)

    mode = np.zeros(size) if start is None else start
    for _ in range(30):
        moves = 1e-4 * np.eye(size)
        hessian = (gradient(mode + moves) - gradient(mode - moves)) / 2e-4
        step = np.linalg.solve(hessian, gradient(mode[None])[0])
        mode = mode - step * min(1.0, 3.0 / np.abs(step).max())
    factor = np.linalg.cholesky(np.linalg.inv(-(hessian + hessian.T) / 2))
    x = mode + rng.standard_normal((chains, size)) @ factor.T
    length, kept = size**-0.25, []
    for iteration in range(warmup + draws):
        if iteration in (warmup // 3, 2 * warmup // 3):
            factor = np.linalg.cholesky(np.cov(np.concatenate(kept[-warmup // 6 :]).T))
        momentum = rng.standard_normal((chains, size))
        before = value(x) - 0.5 * np.sum(momentum**2, axis=1)
        step = length * rng.uniform(0.6, 1.0)
        at, momentum = x, momentum + 0.5 * step * gradient(x) @ factor
        for leap in range(leaps):
            at = at + step * momentum @ factor.T
            momentum += (step if leap < leaps - 1 else 0.5 * step) * gradient(at) @ factor
        after = value(at) - 0.5 * np.sum(momentum**2, axis=1)
        accepted = np.log(rng.random(chains)) < after - before
        x = np.where(accepted[:, None], at, x)
        if iteration < warmup:
            length *= np.exp(0.3 * (accepted.mean() - 0.8))
        kept.append(x)
    return np.stack(kept[warmup:], axis=1)


def accuracy():
    """Print distances to the full posterior, before and after, on two logistic regressions."""
    print("distance to a long run on all the data: Mahalanobis, IAD (noise floor), k-hat")
    rng = np.random.default_rng(1)
    design = (rng.random((100_000, 5)) < FREQUENCIES).astype(float)
    outcomes = (rng.random(100_000) < expit(design @ TRUTH)).astype(float)
    whole = counted(design, outcomes)
    reference = {"theta": hmc(rng, whole, 1, 5, chains=400, draws=100).reshape(4, -1, 5)}
    for partition in range(5):
        parts = np.array_split(rng.permutation(len(design)), 25)
        densities = [counted(design[part], outcomes[part]) for part in parts]
        draws = [hmc(rng, one, 25, 5).reshape(4, -1, 5) for one in densities]
        compare(f"the paper's simulation, partition {partition}", draws, densities, reference)

    for seed in range(3):
        rng = np.random.default_rng(seed)
        design = rng.standard_normal((1000, 25))
        design[:, 0] = 1
        outcomes = (rng.random(1000) < expit(design @ rng.normal(0, 0.7, 25))).astype(float)
        whole = Logistic(design, outcomes, np.ones(1000), 1.0)
        run = hmc(rng, whole, 1, 25, chains=200, draws=150, leaps=10)
        reference = {"theta": run.reshape(4, -1, 25)}
        parts = np.array_split(np.arange(1000), 5)
        densities = [Logistic(design[p], outcomes[p], np.ones(200), 1.0) for p in parts]
        draws = [hmc(rng, one, 5, 25, leaps=10).reshape(4, -1, 25) for one in densities]
        compare(f"1,000 x 25 in 5 batches, data {seed}", draws, densities, reference)


def counted(design, outcomes):
    """Return a density that sees each distinct row once, with its counts."""
    rows, which = np.unique(design, axis=0, return_inverse=True)
    which = which.ravel()
    return Logistic(rows, np.bincount(which, weights=outcomes), np.bincount(which), 10.0)


def compare(name, draws, densities, reference):
    """Print one line for the merge, and one for each number of rounds."""
    merged = az_swiss.merge([{"theta": one} for one in draws], kind="inflated")
    for rounds in (0, 1, 2, 5):
        result = merged
        if rounds:
            options = {"rounds": rounds, "random_seed": 1, "progressbar": False}
            result = az_swiss.refine(merged, densities, **options)
        measured = az_swiss.discrepancy(result, reference)
        certified = az_swiss.certify(result, densities, random_seed=1, progressbar=False)
        done = result["swiss_transform"].sizes.get("round", 1) - 1
        print(
            f"{name}, {done} rounds: {float(measured['mahalanobis']):.3f} "
            f"({float(measured['mahalanobis_floor']):.3f}), {float(measured['iad']):.4f} "
            f"({float(measured['iad_floor']):.4f}), "
            f"{float(certified['swiss_certificate']['khat']):.2f}",
            flush=True,
        )


def points():
    """Print the errors that remain after five rounds, by where the gradients are taken."""
    print("mean error (Mahalanobis) and largest relative error of an sd after five rounds, 200")
    print("points: from N(mu, V) in antithetic pairs, or merged draws; means over 20 data sets")
    for size, counts, batches in ((5, 2, 4), (5, 5, 4), (10, 5, 4), (30, 5, 10), (60, 5, 4)):
        errors = {name: [] for name in ("normal", "draws")}
        for seed in range(20):
            rng = np.random.default_rng(seed)
            densities = [
                LogRates(np.full(size, counts), rng.gamma(counts, size=size))
                for _ in range(batches)
            ]
            drawn = [
                np.log(rng.gamma(batches * counts, size=(2000, size)) / (batches * d.exposures))
                for d in densities
            ]
            merged = az_swiss.merge(
                [{"u": one.reshape(4, -1, size)} for one in drawn], kind="inflated"
            )
            rows = merged["posterior"]["u"].values.reshape(-1, size)
            start = gaussian.gaussian(rows.mean(axis=0), np.cov(rows.T))
            total = sum(one.exposures for one in densities)
            mean = digamma(batches * counts) - np.log(total)
            sd = np.sqrt(polygamma(1, batches * counts))
            for name in errors:
                found = iterate(name, rng, rows, start, densities)
                spread = np.sqrt(np.diag(found.covariance)) / sd
                errors[name].append(
                    (np.linalg.norm((found.mean - mean) / sd), np.abs(spread - 1).max())
                )
        shown = "; ".join(
            "{} {:.3f} {:.3f}".format(name, *np.mean(e, axis=0)) for name, e in errors.items()
        )
        print(f"{size} log rates of {counts * batches} events, {batches} batches: {shown}")


def iterate(name, rng, rows, start, densities, rounds=5, count=200):
    """Return the moments after some rounds at points of one of two kinds."""
    moments, size = start, rows.shape[1]
    for _ in range(rounds):
        if name == "normal":
            half = rng.standard_normal((count // 2, size))
            half = half @ np.linalg.cholesky(moments.covariance).T
            at = moments.mean + np.concatenate([half, -half])
        else:
            chosen = rows[weights.spread_evenly(len(rows), count, rng)]
            at = (chosen - start.mean) @ gaussian.map_between(start, moments).T + moments.mean
        scores = sum(one.grad_log_likelihood(at) for one in densities)
        moments = gaussian.gradient_round(at, scores, moments).moments
    return moments


def reference(folder):
    """Print errors of means and sds before and after refine, against the draws in a folder."""
    print("largest error of a mean in reference sds and of an sd in %, before and after refine;")
    print("errors of the reference draws; that of the last step of refine; the verdict after it")
    for name, model, batches in REGRESSIONS:
        design, outcomes, priors, expected = load(folder, name, model)
        rng = np.random.default_rng(1)
        parts = np.array_split(rng.permutation(len(design)), batches)
        densities = [Regression(design[part], outcomes[part], **priors) for part in parts]
        size = design.shape[1] + 1
        draws = []
        for one in densities:
            options = {"draws": 40, "leaps": 10, "start": one.start()}
            x = hmc(rng, one, batches, size, **options).reshape(4, -1, size)
            draws.append({"beta": x[..., :-1], "sigma": np.exp(x[..., -1])})
        merged = az_swiss.merge(draws, transforms={"sigma": "log"}, kind="inflated")
        refined = az_swiss.refine(merged, densities, random_seed=1, progressbar=False)
        certified = az_swiss.certify(refined, densities, random_seed=1, progressbar=False)
        before, after = (errors(one["posterior"], expected) for one in (merged, refined))
        last = float(refined["swiss_transform"]["step_error"][-1])
        known = np.max(1 / effective_sizes(columns(expected))) ** 0.5
        print(
            f"{name}, {batches} batches: means {before[0]:.3f} -> {after[0]:.3f}, "
            f"sds {100 * before[1]:.1f}% -> {100 * after[1]:.1f}%; reference {known:.3f} and "
            f"{100 * known / 2**0.5:.1f}%; {last:.3f}; "
            f"{open_merged(certified, 'posterior').certificate.describe()}",
            flush=True,
        )


def columns(draws):
    """Return coefficients and sigma as a (chain, draw, parameter) array."""
    return np.concatenate([draws["beta"], np.asarray(draws["sigma"])[..., None]], axis=-1)


def errors(found, expected):
    """Return the largest error of a mean, in sds, and the largest relative error of an sd."""
    x, y = (columns(draws).reshape(-1, draws["beta"].shape[-1] + 1) for draws in (found, expected))
    sd = y.std(axis=0)
    means, sds = (x.mean(axis=0) - y.mean(axis=0)) / sd, x.std(axis=0) / sd - 1
    return np.abs(means).max(), np.abs(sds).max()


def cost(rows=100_000, size=28, batches=20):
    """Print the CPU time of sampling all batches, and of refine and certify with PyMC models."""
    import pymc as pm

    rng = np.random.default_rng(0)
    design = rng.standard_normal((rows, size))
    design[:, 0] = 1
    truth = rng.normal(0, 0.3, size)
    outcomes = (rng.random(rows) < expit(design @ truth)).astype(int)

    def build(batch):
        with pm.Model() as model:
            slopes = pm.Normal("slopes", 0, 1, shape=size)
            logits = pm.Data("X", batch["X"]) @ slopes
            pm.Bernoulli("y", logit_p=logits, observed=pm.Data("y_data", batch["y"]))
        return model

    data = {"X": design, "y": outcomes}
    start = cpu()
    idatas = az_swiss.sample_batches(
        build, data, batches=batches, random_seed=1, nuts_sampler="nutpie", progressbar=False
    )
    sampling = cpu() - start
    parts = az_swiss.partition(data, batches, random_seed=1)
    models = [build({"X": design[part], "y": outcomes[part]}) for part in parts]
    merged = az_swiss.merge(idatas, model=models[0])
    start = cpu()
    refined = az_swiss.refine(merged, models, random_seed=1, progressbar=False)
    refining = cpu() - start
    start = cpu()
    certified = az_swiss.certify(refined, models, random_seed=1, progressbar=False)
    certifying = cpu() - start
    done = refined["swiss_transform"].sizes["round"] - 1
    print(f"{rows} x {size} in {batches} batches: sampling {sampling:.1f} s of CPU time,")
    print(f"refine {refining:.1f} s ({done} rounds), certify {certifying:.1f} s, together")
    print(f"{100 * (refining + certifying) / sampling:.1f}% (target: under 15%)")
    print(open_merged(certified, "posterior").certificate.describe())


def cpu() -> float:
    """Return CPU seconds of this process and its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["accuracy", "points", "cost"])
    parser.add_argument("--folder", default=os.environ.get("REFERENCE_POSTERIORS"))
    arguments = parser.parse_args()
    parts = {"accuracy": accuracy, "points": points, "cost": cost}
    parts["reference"] = lambda: reference(arguments.folder)
    if unknown := set(arguments.parts) - set(parts):
        parser.error(f"no part {', '.join(unknown)}. There are {', '.join(parts)}.")
    if "reference" in arguments.parts and not arguments.folder:
        parser.error("the part reference needs --folder or the variable REFERENCE_POSTERIORS")
    warnings.simplefilter("ignore", az_swiss.MergeWarning)
    started = time.time()
    for part in arguments.parts:
        parts[part]()
    print(f"{time.time() - started:.0f} s")

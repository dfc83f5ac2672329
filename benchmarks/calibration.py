"""Measure how often the diagnostics speak up, rightly and wrongly.

A well-specified logistic regression: 20 batches of 500 rows, 5 parameters, inflated sub-posteriors.
Prints the figures of docs/trust.md: false alarms over random partitions, and how often sorted,
drifting and corrupted batches are found: ``python benchmarks/calibration.py [partitions]``.

Sub-posteriors are sampled exactly, skewness and all, by Metropolis steps for all batches and chains
at once: independent proposals from a t-distribution around the Laplace approximation, or a random
walk where data are separated.
"""

import sys
import time
import warnings

import numpy as np

import arviz_swiss as az_swiss
from arviz_swiss.data import containers

BATCHES, ROWS, TRUTH = 20, 500, np.array([-0.5, 1.0, -0.7, 0.3, 0.0])
CHAINS, DRAWS = 4, 250
DEGREES = 5
THIN = 20
# What the report says of the bias that a merge of so many batches of so few rows has.
ERROR = "expected error"
DISORDER = {"disagree", "disagrees", "decides alone"}


def main(partitions=200):
    """Print all figures; sorted, drifting and corrupted batches a tenth as often."""
    warnings.simplefilter("ignore", az_swiss.MergeWarning)
    start = time.process_time()
    print_false_alarms(partitions)
    repeats = max(partitions // 10, 1)
    print_disorder(repeats)
    print_corruption(repeats)
    print(f"{time.process_time() - start:.0f} CPU seconds")


def print_false_alarms(repeats):
    """Random partitions: how often is something said without reason."""
    rng = np.random.default_rng(0)
    found = [judge(random_partition(rng)) for _ in range(repeats)]
    pvalues = np.array([one.q_pvalue for one in found])
    print(f"{repeats} random partitions:")
    print(f"  p-value of Q below .05   {100 * np.mean(pvalues < 0.05):5.1f}%  (target 2 to 8)")
    print(f"  p-value of Q below .001  {100 * np.mean(pvalues < 0.001):5.1f}%")
    told = 100 * np.mean([ERROR in one.flags for one in found])
    others = 100 * np.mean([set(one.flags) - {ERROR} != set() for one in found])
    print(f"  the merge's own error    {told:5.1f}%  (it is there: B / sqrt(N) is 0.2)")
    print(f"  any other finding        {others:5.1f}%")


def print_disorder(repeats):
    """Rows in an order that matters: how often is disagreement found."""
    for name, make, target in (
        ("rows sorted by response, prior sd 2.5", lambda r: by_response(r, 2.5), "at least 80"),
        ("rows sorted by response, prior sd 10", lambda r: by_response(r, 10.0), "at least 80"),
        ("intercept drifts by one sd", drifting, "100"),
    ):
        rng = np.random.default_rng(0)
        flags = [set(judge(make(rng)).flags) for _ in range(repeats)]
        found = np.mean([bool(one & DISORDER) for one in flags])
        print(f"{repeats} times {name}: found {100 * found:.0f}%  (target {target})")


def print_corruption(repeats):
    """One batch spoilt: how often is it named, and no other."""
    for name, corrupt in CORRUPTIONS.items():
        rng = np.random.default_rng(0)
        results = [judge(corrupted(rng, corrupt)).named for _ in range(repeats)]
        only = np.mean([named == ["b7"] for named in results])
        among = np.mean(["b7" in named for named in results])
        text = f"named {100 * among:.0f}%, and only it {100 * only:.0f}%"
        print(f"{repeats} times one batch {name}: {text}")


class Judged:
    """What the report says of one set of batches."""

    def __init__(self, q_pvalue, report):
        self.q_pvalue = q_pvalue
        self.flags = [finding.flag for finding in report.findings]
        self.named = sorted({label for finding in report.findings for label in finding.batches})


def judge(batches):
    """Merge, and return the p-value of Q and what the report names."""
    merged = az_swiss.merge(batches, kind="inflated")
    diagnostics = containers.read(merged).groups["swiss_diagnostics"]
    return Judged(float(diagnostics["q_pvalue"]), az_swiss.report(merged))


def random_partition(rng):
    """Return sub-posteriors of a random partition of always the same rows."""
    design, response = simulate(np.random.default_rng(1), TRUTH[0])
    order = rng.permutation(len(design))
    return sample(rng, design[order], response[order], 2.5)


def by_response(rng, prior_sd):
    """Return sub-posteriors of rows sorted by response: all but one batch hold one value only."""
    design, response = simulate(rng, TRUTH[0])
    order = np.argsort(response, kind="stable")
    return sample(rng, design[order], response[order], prior_sd, walk=True)


def drifting(rng):
    """Return sub-posteriors of rows whose intercept drifts by one sd of the linear predictor."""
    spread = np.linalg.norm(TRUTH[1:])
    design, response = simulate(rng, TRUTH[0] + spread * np.linspace(-0.5, 0.5, BATCHES * ROWS))
    return sample(rng, design, response, 2.5)


def corrupted(rng, corrupt):
    """Return sub-posteriors of which one was spoilt."""
    batches = random_partition(rng)
    batches["b7"] = {"beta": corrupt(batches["b7"]["beta"])}
    return batches


def shifted(draws):
    """Shift by ten sds of what a batch mean scatters."""
    return draws + 10 * np.sqrt(BATCHES) * draws.std(axis=(0, 1))


def shifted_little(draws):
    """Shift by ten sds of the sub-posterior, about two of what a batch mean scatters."""
    return draws + 10 * draws.std(axis=(0, 1))


def stuck(draws):
    """Shrink the draws to a point, but for rounding."""
    return draws[0, 0] + 1e-4 * (draws - draws[0, 0])


def unconverged(draws):
    """Move one chain away from the others."""
    moved = draws.copy()
    moved[0] += 10 * draws.std(axis=(0, 1))
    return moved


CORRUPTIONS = {
    "shifted by 10 sds of a batch mean": shifted,
    "shifted by 10 sds of its sub-posterior": shifted_little,
    "stuck": stuck,
    "with one chain elsewhere": unconverged,
}


def simulate(rng, intercept):
    """Return a design matrix and responses."""
    design = rng.standard_normal((BATCHES * ROWS, TRUTH.size))
    design[:, 0] = 1.0
    predictor = design[:, 1:] @ TRUTH[1:] + intercept
    return design, (rng.random(len(design)) < 1 / (1 + np.exp(-predictor))).astype(float)


def sample(rng, design, response, prior_sd, walk=False):
    """Return draws of every batch's inflated sub-posterior, rows split in their order."""
    design = design.reshape(BATCHES, ROWS, -1)
    signs = 2 * response.reshape(BATCHES, ROWS) - 1
    mode, factor = laplace(design, signs, prior_sd)
    draw = random_walk if walk else independence
    draws = draw(rng, mode, factor, lambda theta: log_density(theta, design, signs, prior_sd))
    return {f"b{b}": {"beta": draws[b]} for b in range(BATCHES)}


def independence(rng, mode, factor, log_target):
    """Return draws by proposals from a t-distribution around the mode."""
    size = (BATCHES, CHAINS * DRAWS, TRUTH.size)
    normal = rng.standard_normal(size)
    tail = np.sqrt(DEGREES / rng.chisquare(DEGREES, size[:2]))
    proposals = mode[:, None] + (normal * tail[..., None]) @ np.swapaxes(factor, 1, 2)
    distance = np.sum(normal**2, axis=-1) * tail**2
    log_proposal = -0.5 * (DEGREES + TRUTH.size) * np.log1p(distance / DEGREES)
    log_weight = log_target(proposals) - log_proposal
    keep = metropolis(rng, log_weight.reshape(BATCHES, CHAINS, DRAWS))
    proposals = proposals.reshape(BATCHES, CHAINS, DRAWS, -1)
    return np.take_along_axis(proposals, keep[..., None], axis=2)


def random_walk(rng, mode, factor, log_target):
    """Return draws by a random walk, which also reaches the long tails of separated data."""
    step = 2.4 / np.sqrt(TRUTH.size) * np.swapaxes(factor, 1, 2)
    state = mode[:, None] + rng.standard_normal((BATCHES, CHAINS, TRUTH.size)) @ step
    density = log_target(state)
    draws = np.empty((BATCHES, CHAINS, DRAWS, TRUTH.size))
    for iteration in range(-DRAWS // 2 * THIN, DRAWS * THIN):
        moved = state + rng.standard_normal(state.shape) @ step
        proposed = log_target(moved)
        accepted = np.log(rng.random(density.shape)) < proposed - density
        state = np.where(accepted[..., None], moved, state)
        density = np.where(accepted, proposed, density)
        if iteration >= 0:
            draws[:, :, iteration // THIN] = state
    return draws


def log_density(theta, design, signs, prior_sd):
    """Return the log density of (batch, draw, parameter) values."""
    margins = signs[:, None] * (theta @ np.swapaxes(design, 1, 2))
    # What np.logaddexp(0, -margins) gives, in half the time.
    loss = np.log1p(np.exp(-np.abs(margins))) - np.minimum(margins, 0.0)
    likelihood = -loss.sum(axis=-1)
    return BATCHES * likelihood - 0.5 * np.sum(theta**2, axis=-1) / prior_sd**2


def laplace(design, signs, prior_sd):
    """Return every batch's mode and the Cholesky factor of its covariance there."""
    theta = np.zeros((len(design), design.shape[-1]))
    identity = np.eye(design.shape[-1]) / prior_sd**2
    for _ in range(50):
        fitted = 1 / (1 + np.exp(signs * np.einsum("bnd,bd->bn", design, theta)))
        gradient = BATCHES * np.einsum("bn,bnd->bd", signs * fitted, design) - theta / prior_sd**2
        weights = BATCHES * fitted * (1 - fitted)
        hessian = np.einsum("bn,bnd,bne->bde", weights, design, design, optimize=True) + identity
        theta = theta + np.linalg.solve(hessian, gradient[..., None])[..., 0]
    return theta, np.linalg.cholesky(np.linalg.inv(hessian))


def metropolis(rng, log_weight):
    """Return which proposal each chain holds at each step, of an independence sampler."""
    log_uniform = np.log(rng.random(log_weight.shape))
    keep = np.zeros(log_weight.shape, dtype=int)
    current = log_weight[..., 0].copy()
    for step in range(1, log_weight.shape[-1]):
        accepted = log_uniform[..., step] < log_weight[..., step] - current
        current = np.where(accepted, log_weight[..., step], current)
        keep[..., step] = np.where(accepted, step, keep[..., step - 1])
    return keep


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))

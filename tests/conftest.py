"""Set-up shared by all tests."""

import os
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import pytest
from scipy.special import expit

# Before anything imports matplotlib, and inherited by the subprocesses that tests start.
os.environ["MPLBACKEND"] = "Agg"

STACKS = ("ArviZ 0.x", "ArviZ 1.x")
OTHER_STACK = STACKS[version("arviz").startswith("0.")]


def fail_skip_of_this_stack(report):
    """Turn a skip into a failure in CI, unless its reason names the other stack.

    So every test runs on at least one stack, and no test disappears because a package is missing.
    """
    if not os.environ.get("CI") or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if OTHER_STACK not in reason:
        report.outcome = "failed"
        report.longrepr = (
            f"{report.nodeid}: {reason}\nIn CI a test may only be skipped here when its reason "
            f'says that it belongs to the other stack: write "... {OTHER_STACK} ..." in it.'
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    fail_skip_of_this_stack(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    report = yield
    fail_skip_of_this_stack(report)
    return report


def pytest_collection_modifyitems(items):
    """Run tests of real signals and clusters a second time if they fail.

    On a busy machine the operating system or Dask may lose a message, once in many hundred runs.
    What is wrong with our code fails twice.
    """
    for item in items:
        module = getattr(item, "module", None)  # which notebooks and doctests lack
        if {"signal", "distributed"} & getattr(module, "__dict__", {}).keys():
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="session")
def to_container():
    """Return a function that makes the installed ArviZ's container from dicts or Datasets."""
    from arviz_swiss.data import containers

    def make(posterior, **groups):
        read = {"posterior": containers.read(posterior).groups["posterior"]}
        read |= {name: containers.read(data, name).groups[name] for name, data in groups.items()}
        return containers.build(read)

    return make


@pytest.fixture(scope="session")
def exact_draws():
    """Return a function that makes (chain, draw, parameter) draws with exactly these moments."""

    def make(rng, mean, covariance, chains=2, draws=200):
        raw = rng.standard_normal((chains * draws, len(mean)))
        raw -= raw.mean(axis=0)
        white = np.linalg.solve(
            np.linalg.cholesky(np.cov(raw.T, ddof=1).reshape(len(mean), -1)), raw.T
        )
        values = white.T @ np.linalg.cholesky(covariance).T + mean
        return values.reshape(chains, draws, len(mean))

    return make


@pytest.fixture(scope="session")
def random_covariance():
    """Return a function that makes a random well-conditioned covariance matrix."""

    def make(rng, size):
        factor = np.eye(size) + 0.4 * rng.standard_normal((size, size)) / np.sqrt(size)
        return factor @ factor.T

    return make


@pytest.fixture(scope="session")
def random_batches(exact_draws, random_covariance):
    """Return a function that makes one dict of draws a batch, all of one vector `theta`."""

    def make(rng, batches=4, size=3, chains=2, draws=200, spread=0.1):
        return [
            {
                "theta": exact_draws(
                    rng,
                    spread * rng.standard_normal(size),
                    random_covariance(rng, size),
                    chains,
                    draws,
                )
            }
            for _ in range(batches)
        ]

    return make


class LogisticRegression:
    """The density of a batch of a logistic regression, of rows that may count several times."""

    def __init__(self, design, successes, trials, sd):
        self.design, self.successes, self.trials = design, successes, trials
        self.sd = sd

    def log_prior(self, x):
        return -0.5 * np.sum((x / self.sd) ** 2, axis=1)

    def grad_log_prior(self, x):
        return -x / self.sd**2

    def log_likelihood(self, x):
        logits = x @ self.design.T
        return logits @ self.successes - np.logaddexp(0, logits) @ self.trials

    def grad_log_likelihood(self, x):
        return (self.successes - self.trials * expit(x @ self.design.T)) @ self.design


@pytest.fixture(scope="session")
def logistic_regression():
    """Return the class of logistic densities."""
    return LogisticRegression


def _newton(gradient, size, steps=30):
    """Return a mode and the covariance there, by finite differences of the gradient."""
    mode = np.zeros(size)
    for _ in range(steps):
        moves = 1e-4 * np.eye(size)
        hessian = (gradient(mode + moves) - gradient(mode - moves)) / 2e-4
        step = np.linalg.solve(hessian, gradient(mode[None])[0])
        mode = mode - step * min(1.0, 3.0 / np.abs(step).max())
    return mode, np.linalg.inv(-(hessian + hessian.T) / 2)


@pytest.fixture(scope="session")
def sample_density():
    """Return a function that draws from a smooth density by Hamiltonian Monte Carlo.

    Many chains run side by side in NumPy: (chains, draws, parameters).
    """

    def sample(rng, log_density, gradient, size, chains=100, draws=20, warmup=60, leaps=8):
        mode, covariance = _newton(gradient, size)
        factor = np.linalg.cholesky(covariance)
        x = mode + rng.standard_normal((chains, size)) @ factor.T
        length, kept = 1.0 / size**0.25, []
        for iteration in range(warmup + draws):
            if iteration in (warmup // 3, 2 * warmup // 3):
                recent = np.concatenate(kept[-warmup // 6 :])
                factor = np.linalg.cholesky(np.cov(recent.T).reshape(size, size))
            momentum = rng.standard_normal((chains, size))
            before = log_density(x) - 0.5 * np.sum(momentum**2, axis=1)
            step = length * rng.uniform(0.6, 1.0)
            at, momentum = x, momentum + 0.5 * step * gradient(x) @ factor
            for leap in range(leaps):
                at = at + step * momentum @ factor.T
                momentum += (step if leap < leaps - 1 else 0.5 * step) * gradient(at) @ factor
            after = log_density(at) - 0.5 * np.sum(momentum**2, axis=1)
            accepted = np.log(rng.random(chains)) < after - before
            x = np.where(accepted[:, None], at, x)
            if iteration < warmup:
                length *= np.exp(0.3 * (accepted.mean() - 0.8))
            kept.append(x)
        return np.stack(kept[warmup:], axis=1)

    return sample


@pytest.fixture(scope="session")
def sample_batch(sample_density):
    """Return a function that draws from a batch's prior and likelihood, each to a power."""

    def sample(rng, density, size, power=1.0, prior_power=1.0, **options):
        return sample_density(
            rng,
            lambda x: prior_power * density.log_prior(x) + power * density.log_likelihood(x),
            lambda x: (
                prior_power * density.grad_log_prior(x) + power * density.grad_log_likelihood(x)
            ),
            size,
            **options,
        )

    return sample


@pytest.fixture(scope="session")
def cpu_seconds():
    """Return a function that runs code on one thread and returns the numbers that it prints."""

    def run(code):
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        result = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env={**os.environ, **threads},
            capture_output=True,
            text=True,
            check=True,
        )
        return [float(number) for number in result.stdout.split()]

    return run

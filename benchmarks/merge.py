"""Time `merge` against the least work that any merge by affine maps must do.

Run with ``make bench``: one BLAS thread, CPU time, the best of several runs. The bare bound is one
syrk a batch (the covariance) and one GEMM a batch (the map), on contiguous arrays, into one new
array for all chains, as a merge must. The whole `merge` reads in-memory containers, checks the
draws, computes moments, maps and diagnostics, moves the draws and packs a new container.

The ratio is of CPU time in the program itself. With the time in the kernel it is printed beside:
nearly all of that is handing out fresh memory, up to 3 s for 800 MB or .1 s, as it happens, on a
virtual machine that gives freed memory back to its host.
"""

import resource
import tracemalloc
import warnings
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas

import arviz_swiss as az_swiss
from arviz_swiss.data import containers, flatten, unflatten

SIZES = [(10, 5000, 80), (20, 40000, 28), (100, 10000, 100), (10, 2000, 500)]
TARGETS = [1.6, 1.6, 1.3, 3.5]
CHAINS = 4


def main():
    """Print all tables."""
    warnings.simplefilter("ignore", az_swiss.MergeWarning)
    head = ("batches x draws x parameters", "bound", "merge", "ratio", "target", "with kernel")
    print("{:>30} {:>8} {:>8} {:>6} {:>7} {:>12}".format(*head))
    for size, target in zip(SIZES, TARGETS, strict=True):
        bound, whole = time_merge(*size)
        name = " x ".join(str(number) for number in size)
        seconds = f"{bound.user:7.3f}s {whole.user:7.3f}s {whole.user / bound.user:6.2f}"
        print(f"{name:>30} {seconds} {target:7.1f} {whole.all / bound.all:12.2f}")
    flat, back = time_flatten()
    print(f"flatten 50 variables, 200 parameters, 4 x 1000 draws: {1e3 * flat:.1f} ms (target 60)")
    print(f"unflatten: {1e3 * back:.1f} ms (target 10)")
    print(f"peak extra memory over output plus one batch: {memory_ratio():.2f} (target 1)")
    time_numpyro()


def make_batches(batches, draws, parameters, seed=0):
    """Return in-memory containers with a vector and two scalars, as a regression has."""
    rng = np.random.default_rng(seed)
    mix = np.eye(parameters) + 0.3 * rng.normal(size=(parameters, parameters)) / parameters**0.5
    made = []
    for _ in range(batches):
        values = rng.normal(size=(CHAINS, draws // CHAINS, parameters)) @ mix
        values += rng.normal(size=parameters) * 0.3
        split = {"beta": values[..., 2:].copy(), "intercept": values[..., 0].copy()}
        split["scale"] = values[..., 1].copy()
        groups = containers.read(split).groups
        made.append(containers.build(groups))
    return made


def time_merge(batches, draws, parameters):
    """Return CPU seconds of the bare bound and of the whole merge."""
    idatas = make_batches(batches, draws, parameters)
    arrays = [flatten(idata).values.reshape(-1, parameters) for idata in idatas]
    maps = np.random.default_rng(0).normal(size=(parameters, parameters))

    def bare():
        for array, moved in zip(arrays, np.empty((batches, *arrays[0].shape)), strict=True):
            blas.dsyrk(1.0, array.T)
            np.matmul(array, maps.T, out=moved)

    functions = (bare, lambda: az_swiss.merge(idatas, kind="inflated"))
    repeats, calls = (6, 1) if batches * draws * parameters > 5e7 else (20, 2)
    times = [[cpu(function, calls) for function in functions] for _ in range(repeats)]
    return tuple(Seconds(*np.min(column, axis=0)) for column in zip(*times, strict=True))


def time_flatten():
    """Return CPU seconds to flatten and to unflatten 50 variables with 200 parameters."""
    rng = np.random.default_rng(0)
    data = {f"v{i}": rng.normal(size=(4, 1000, *((7,) if i % 2 else ()))) for i in range(50)}
    dataset = containers.read(data).groups["posterior"]
    flat = flatten(dataset)
    assert flat.sizes["parameter"] == 200
    return (
        min(cpu(lambda: flatten(dataset)).all for _ in range(5)),
        min(cpu(lambda: unflatten(flat, like=dataset)).all for _ in range(5)),
    )


def memory_ratio(batches=10, draws=20000, parameters=50):
    """Return the peak of memory that `merge` allocates over its output plus one batch."""
    idatas = make_batches(batches, draws, parameters)
    tracemalloc.start()
    merged = az_swiss.merge(idatas, kind="inflated")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    output = sum(dataset.nbytes for dataset in containers.read(merged).groups.values())
    return peak / (output + output / batches)


def time_numpyro():
    """Print CPU seconds of our consensus and of numpyro's, jitted, in double precision."""
    try:
        import jax
        from numpyro.infer.hmc_util import consensus
    except ImportError:
        print("numpyro is not installed: no comparison with its consensus")
        return
    jax.config.update("jax_enable_x64", True)
    jitted = jax.jit(consensus)
    for size in SIZES[:3]:
        idatas = make_batches(*size)
        arrays = [jax.numpy.asarray(flatten(idata).values.reshape(-1, size[2])) for idata in idatas]
        functions = (
            lambda arrays=arrays: jax.block_until_ready(jitted(arrays)),
            partial(az_swiss.merge, idatas, kind="fractionated", method="consensus"),
        )
        difference = np.abs(functions[0]() - flatten(functions[1]()).values.reshape(-1, size[2]))
        assert difference.max() < 1e-10
        times = [[cpu(function, 1) for function in functions] for _ in range(5)]
        theirs, ours = np.min([[each.all for each in pair] for pair in times], axis=0)
        name = " x ".join(str(number) for number in size)
        print(f"{name}: numpyro {theirs:.3f}s, consensus {ours:.3f}s, ratio {theirs / ours:.2f}")


class Seconds(NamedTuple):
    """CPU seconds in the program, and those in the kernel added."""

    user: float
    all: float


def cpu(function, calls: int = 10) -> Seconds:
    """Return the CPU seconds of one call; several calls, because the kernel counts in ticks."""
    start = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(calls):
        function()
    end = resource.getrusage(resource.RUSAGE_SELF)
    user, system = end.ru_utime - start.ru_utime, end.ru_stime - start.ru_stime
    return Seconds(user / calls, (user + system) / calls)


if __name__ == "__main__":
    main()

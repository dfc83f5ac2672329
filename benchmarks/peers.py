"""What NumPyro's merges do with input that is easily passed to them: the README's lines about them.

Run ``python benchmarks/peers.py`` after ``pip install numpyro``, which no extra brings.
"""

import sys

import numpy as np

try:
    import jax
    import numpyro
    from numpyro.infer.hmc_util import consensus, parametric, parametric_draws
except ImportError:
    sys.exit("NumPyro is not installed: pip install numpyro")

BATCHES = 4


def main():
    """Print the answers to a chain axis, to too few draws, and to a scale near zero."""
    rng, key = np.random.default_rng(0), jax.random.PRNGKey(0)
    print(f"NumPyro {numpyro.__version__}")

    chains = [{"x": rng.standard_normal((4, 500))} for _ in range(BATCHES)]
    mean, _ = parametric(chains)
    print(f"4 chains x 500 draws of one parameter: taken for {mean.size} parameters")

    few = [{"x": rng.standard_normal((30, 50))} for _ in range(BATCHES)]
    found = np.asarray(consensus(few, num_draws=1000, rng_key=key)["x"]).var(axis=0).max()
    print(f"30 draws of 50 parameters: variance at most {found:.0e}, {1 / BATCHES} is right")

    scale = [{"s": np.abs(rng.standard_normal((500, 2)))} for _ in range(BATCHES)]
    least = float(np.min(parametric_draws(scale, 1000, rng_key=key)["s"]))
    print(f"a positive scale, Gaussian product: least draw {least:.2f}")


if __name__ == "__main__":
    main()

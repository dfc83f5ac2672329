"""Fits of CmdStanPy, read from files as CmdStan writes them, are merged as they are."""

import numpy as np
import pytest

from arviz_swiss import merge

HEADER = """# stan_version_major = 2
# stan_version_minor = 36
# stan_version_patch = 0
# model = batch_model
# method = sample (Default)
#   sample
#     num_samples = 200
#     num_warmup = 100
#     save_warmup = false (Default)
#     thin = 1 (Default)
#     adapt
#       engaged = true (Default)
#     algorithm = hmc (Default)
#       hmc
#         engine = nuts (Default)
#           nuts
#             max_depth = 10 (Default)
#         metric = diag_e (Default)
# id = {chain}
# data
#   file = batch.json
# random
#   seed = 1
# output
#   file = batch.csv
lp__,accept_stat__,stepsize__,treedepth__,n_leapfrog__,divergent__,energy__,beta.1,beta.2
# Adaptation terminated
# Step size = 0.9
# Diagonal elements of inverse mass matrix:
# 1, 1
"""
FOOTER = """#
#  Elapsed Time: 0.1 seconds (Warm-up)
#                0.1 seconds (Sampling)
#                0.2 seconds (Total)
#
"""


def write_chain(path, chain, beta):
    others = np.tile([-1.0, 0.9, 0.9, 2, 3, 0, 1.0], (len(beta), 1))
    with path.open("w") as file:
        file.write(HEADER.format(chain=chain))
        np.savetxt(file, np.column_stack([others, beta]), delimiter=",", fmt="%.17g")
        file.write(FOOTER)
    return str(path)


def test_fits_are_merged_as_their_draws_are(tmp_path):
    cmdstanpy = pytest.importorskip("cmdstanpy")
    rng = np.random.default_rng(0)
    draws, fits = [], []
    for label in ("north", "south"):
        beta = rng.normal(size=(2, 200, 2))
        paths = [
            write_chain(tmp_path / f"{label}_{chain}.csv", chain, beta[chain - 1])
            for chain in (1, 2)
        ]
        draws.append({"beta": beta})
        fits.append(cmdstanpy.from_csv(paths))
    merged, expected = (
        merge(each, kind="inflated", powers=2)["posterior"]["beta"] for each in (fits, draws)
    )
    np.testing.assert_allclose(merged.values, expected.values, rtol=1e-9)

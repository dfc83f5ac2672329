"""Batches of two runs are refused: their rows would be counted twice or not at all."""

import json

import numpy as np
import pytest
import xarray as xr

from arviz_swiss import merge
from arviz_swiss.data import containers
from arviz_swiss.data.schema import PARTITION, SETTINGS
from arviz_swiss.data.schema import RANDOM_SEED as SEED

LENGTH = 2000


def exact(mean, sd, seed):
    """Return draws whose mean and variance are exactly those asked for."""
    draws = np.random.default_rng(seed).normal(size=(2, LENGTH // 2))
    draws = (draws - draws.mean()) / draws.std(ddof=1)
    return mean + sd * draws


def batch(mean, sd, seed, **attrs):
    posterior = xr.Dataset(
        {"mu": (("chain", "draw"), exact(mean, sd, seed))},
        attrs={"swiss_batch": f"b{seed}", **attrs},
    )
    groups = {"posterior": posterior}
    return containers.build(groups, containers.native_kind())


def settings(**changes):
    return json.dumps({"data": "d0", "draws": 5, "build source code": "s0", **changes})


def test_batches_of_one_run_are_merged():
    same = {SEED: "5", PARTITION: "aa", SETTINGS: settings()}
    other_draws = {**same, SETTINGS: settings(draws=9)}
    merged = merge([batch(0, 1, 0, **same), batch(1, 1, 1, **other_draws)], kind="inflated")
    np.testing.assert_allclose(merged.posterior["mu"].mean(), 0.5)
    assert merged.posterior.attrs[PARTITION] == "aa"
    assert SETTINGS not in merged.posterior.attrs


def test_batches_that_record_nothing_pass():
    recorded = {SEED: "5", PARTITION: "aa", SETTINGS: settings()}
    merge([batch(0, 1, 0), batch(1, 1, 1, **recorded), batch(1, 1, 2)], kind="inflated")
    merge([batch(0, 1, 0, **recorded), batch(1, 1, 1, **{SETTINGS: "{"})], kind="inflated")


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {PARTITION: "bb", SEED: "7"},
            r'batch 1 \("b1"\) and batch 2 \("b2"\) are of two partitions of the data '
            r"\(swiss_random_seed 5 and 7\).*one call of sample_batches.*attribute swiss_partition",
        ),
        ({SETTINGS: settings(data="d1")}, r'batch 1 \("b1"\) and batch 2 .* different data'),
        (
            {SETTINGS: settings(**{"build source code": "s1"})},
            r"are of two models: source code of build differ.*attribute swiss_settings",
        ),
    ],
)
def test_batches_of_two_runs_are_refused(changes, message):
    attrs = {SEED: "5", PARTITION: "aa", SETTINGS: settings()}
    batches = [batch(0, 1, 0), batch(0, 1, 1, **attrs), batch(1, 1, 2, **{**attrs, **changes})]
    with pytest.raises(ValueError, match=message):
        merge(batches, kind="inflated")
    merge(batches, kind="inflated", drop="b2")


def test_files_of_two_runs_are_refused(tmp_path):
    paths = []
    for position in range(2):
        one = batch(0, 1, position, **{SEED: str(position), PARTITION: f"p{position}"})
        paths.append(tmp_path / f"b{position}.nc")
        one.to_netcdf(paths[-1])
    with pytest.raises(ValueError, match=r"are of two partitions .*swiss_random_seed 0 and 1"):
        merge(paths, kind="inflated")


@pytest.mark.parametrize("same_seed", [False, True])
def test_the_advice_for_batches_of_different_data(same_seed):
    """Prior N(0, 2), two data sets of known likelihood: the product of both, exactly."""
    prior, likelihoods = (0.0, 1 / 4), [(1.0, 3.0), (0.5, 5.0)]
    batches = []
    for position, (mean, precision) in enumerate(likelihoods):
        own = precision + prior[1]
        attrs = {SEED: str(position), PARTITION: f"p{position}"}
        if same_seed:
            attrs |= {SEED: "1", "swiss_batch": "b0"}
        batches.append(batch(mean * precision / own, own**-0.5, position, **attrs))
    given = {"prior": xr.Dataset({"mu": (("chain", "draw"), exact(0, 2, 9))})}
    given = containers.build(given, containers.native_kind())
    with pytest.raises(ValueError, match=r"delete the attribute swiss_partition"):
        merge(batches, kind="full_prior", prior=given)
    for one in batches:
        del one["posterior"].attrs[PARTITION]
    merged = merge(batches, kind="full_prior", prior=given)
    total = prior[1] + sum(precision for _, precision in likelihoods)
    mean = sum(mean * precision for mean, precision in likelihoods) / total
    np.testing.assert_allclose(merged.posterior["mu"].mean(), mean, atol=1e-10)
    np.testing.assert_allclose(merged.posterior["mu"].values.var(ddof=1), 1 / total, rtol=2e-3)

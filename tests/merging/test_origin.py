"""Batches of two runs, or given twice, are refused: their rows would count twice or not at all."""

import json

import numpy as np
import pytest
import xarray as xr

import arviz_swiss as az_swiss
from arviz_swiss import merge
from arviz_swiss.data import containers
from arviz_swiss.data.schema import PARTITION, SETTINGS
from arviz_swiss.data.schema import RANDOM_SEED as SEED
from arviz_swiss.merging.origin import differing, join_observed, summarise_observed, summary

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
    return containers.build(groups)


def settings(**changes):
    return json.dumps({"data": "d0", "draws": 5, "build density": "s0", **changes})


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
            {SETTINGS: settings(**{"build density": "s1"})},
            r"are of two models: their density differ.*attribute swiss_settings",
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
    given = containers.build(given)
    with pytest.raises(ValueError, match=r"delete the attribute swiss_partition"):
        merge(batches, kind="full_prior", prior=given)
    for one in batches:
        del one["posterior"].attrs[PARTITION]
    merged = merge(batches, kind="full_prior", prior=given)
    total = prior[1] + sum(precision for _, precision in likelihoods)
    mean = sum(mean * precision for mean, precision in likelihoods) / total
    np.testing.assert_allclose(merged.posterior["mu"].mean(), mean, atol=1e-10)
    np.testing.assert_allclose(merged.posterior["mu"].values.var(ddof=1), 1 / total, rtol=2e-3)


@pytest.fixture
def batches(random_batches, to_container):
    drawn = random_batches(np.random.default_rng(0), batches=4)
    return [to_container(batch) for batch in drawn]


def test_one_object_for_all_batches(batches):
    message = r'batch 0 \("b0"\) and batch 1 \("b1"\) have the same draws.*Give each batch once'
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(batches[:1] * 4, kind="inflated")


def test_copies_are_found_among_others_and_named(random_batches):
    drawn = random_batches(np.random.default_rng(1), batches=12)
    labelled = {f"site {position}": batch for position, batch in enumerate(drawn)}
    labelled["site 7"] = {"theta": drawn[3]["theta"].copy()}
    message = r'batch 3 \("site 3"\) and batch 7 \("site 7"\) have the same draws'
    for options in ({}, {"transforms": {"theta": None}}, {"method": "consensus"}):
        with pytest.raises(ValueError, match=message):
            az_swiss.merge(labelled, kind="inflated", **options)


def test_copied_files_are_found(batches, tmp_path):
    paths = [tmp_path / f"part{position}.nc" for position in range(3)]
    for path, batch in zip(paths, (batches[0], batches[1], batches[0]), strict=True):
        batch.to_netcdf(path)
    message = r'batch 0 \("part0"\), file .*part0.nc and batch 2 \("part2"\), file .*part2.nc have'
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(paths, kind="inflated")


def test_each_batch_once_is_the_remedy(random_batches):
    """Same moments are no reason to refuse, only the same draws are."""
    drawn = random_batches(np.random.default_rng(2), batches=2, spread=0.0)
    mirrored = [{"theta": 2 * b["theta"].mean((0, 1)) - b["theta"]} for b in drawn]
    with pytest.raises(ValueError, match="have the same draws"):
        az_swiss.merge([*drawn, *drawn], kind="inflated")
    once = az_swiss.merge(drawn, kind="inflated")["swiss_transform"]
    both = az_swiss.merge([*drawn, *mirrored], kind="inflated")["swiss_transform"]
    precision = np.mean([np.linalg.inv(np.cov(b["theta"].reshape(-1, 3).T)) for b in drawn], axis=0)
    for maps in (once, both):
        np.testing.assert_allclose(maps["pooled_covariance"], np.linalg.inv(precision), rtol=1e-9)


def recorded(rng, label, seed):
    attrs = {"swiss_batch": label, "swiss_random_seed": seed, "swiss_kind": "inflated"}
    attrs["swiss_partition"] = "aa"
    return xr.Dataset({"x": (("chain", "draw"), rng.standard_normal((2, 500)))}, attrs=attrs)


def test_one_batch_of_one_partition_sampled_twice():
    rng = np.random.default_rng(3)
    twice = [recorded(rng, label, "11") for label in ("b0", "b1", "b0")]
    message = r'batch 0 .*and batch 2 .*are both batch "b0" of the partition by seed 11'
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(twice)
    assert az_swiss.merge(twice[:2])["posterior"].sizes["chain"] == 4


def test_a_copy_can_be_dropped(random_batches):
    drawn = random_batches(np.random.default_rng(4), batches=3)
    merged = az_swiss.merge([*drawn, drawn[2]], kind="inflated", drop=3)
    expected = az_swiss.merge(drawn, kind="inflated")
    np.testing.assert_allclose(merged["posterior"]["theta"], expected["posterior"]["theta"])


@pytest.mark.parametrize(
    "copied", [lambda x: x.astype(np.float32), lambda x: x[::-1].copy()], ids=["float32", "chains"]
)
def test_a_changed_copy_is_found(copied, random_batches):
    drawn = random_batches(np.random.default_rng(5), batches=3)
    again = {"theta": copied(drawn[1]["theta"])}
    with pytest.raises(ValueError, match=r"batch 1 .*and batch 3 .*have the same draws"):
        az_swiss.merge([*drawn, again], kind="inflated")


def test_counts_means_and_sds_are_those_of_what_is_there():
    values = np.array([[1.0, 2.0], [np.nan, 6.0]])
    assert summary(values) == [3.0, 3.0, np.std([1, 2, 6])]
    assert summary(np.ma.masked_less(np.array([1, -9, 3]), 0)) == [2.0, 2.0, 1.0]
    assert summary(np.array([True, False])) == [2.0, 0.5, 0.5]
    assert summary(np.array([np.nan])) == [0.0, 0.0, 0.0]


def test_only_what_all_batches_have_is_summarised():
    first = xr.Dataset(
        {"y": ("row", [1, 2]), "z": ("row", [1.0, 1.0]), "name": ("row", ["a", "b"])}
    )
    second = xr.Dataset({"y": ("row", [4, 6, 8]), "name": ("row", ["a", "b", "c"])})
    found = join_observed([summarise_observed(first), summarise_observed(second)])
    assert found["observed_variable"].values.tolist() == ["y"]
    assert found.sel(statistic="count").values.ravel().tolist() == [2, 3]
    assert found.sel(statistic="mean").values.ravel().tolist() == [1.5, 6.0]
    assert join_observed([summarise_observed(first), summarise_observed(None)]) is None
    names = [summarise_observed(each[["name"]]) for each in (first, second)]
    assert join_observed(names) is None


def test_what_is_unknown_of_one_function_does_not_differ():
    before, now = {"density": None, "sd": "1f", "old": "3"}, {"density": "a7", "sd": "2e"}
    assert differing(before, now) == ["sd", "old"]
    assert differing(now, now) == []

"""One batch given twice counts its rows twice."""

import numpy as np
import pytest
import xarray as xr

import arviz_swiss as az_swiss


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

"""Variables of one batch alone, where batches are planned apart, or written one at a time."""

import dask
import dask.array
import numpy as np
import pytest
import xarray as xr
from merged_groups import groups_of
from parts import assert_alike, in_parts

import arviz_swiss as az_swiss

pytestmark = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
LABELS = {
    "north": ["clinic A", "clinic B"],
    "east": ["ward 1", "ward 2", "ward 3"],
    "south": ["hospice"],
}


def batch_of(seed, groups, labelled):
    """Return draws of effects that follow a shared mean, and a shared scale."""
    rng = np.random.default_rng(seed)
    mu = rng.normal(size=(2, 150))
    effects = 0.5 * mu[..., None] + rng.normal(size=(2, 150, len(groups)))
    data = {
        "mu": (("chain", "draw"), mu),
        "tau": (("chain", "draw"), rng.gamma(9, size=(2, 150))),
        "z": (("chain", "draw", "site"), effects),
    }
    coords = {"site": groups} if labelled else {}
    return xr.Dataset(data, coords=coords, attrs={"swiss_local": "z"})


def batches_of(labelled=True):
    return {
        label: batch_of(seed, groups, labelled)
        for seed, (label, groups) in enumerate(LABELS.items())
    }


@pytest.mark.parametrize("transforms", [{"tau": "log"}, {"z": ("interval", -30, 30)}])
@pytest.mark.parametrize("labelled", [False, True])
def test_parts_have_the_local_variables_of_their_batch(transforms, labelled, tmp_path):
    batches, options = batches_of(labelled), {"kind": "fractionated", "transforms": transforms}
    merged = groups_of(az_swiss.merge(batches, **options))
    _, parts = in_parts(batches, tmp_path, **options)
    whole, owners = merged["posterior"], merged["swiss_local"]["batch_site"]
    for label, part in parts.items():
        own = whole.isel(chain=whole["batch"].values == label)
        own = own.sel(site=owners["site"].values[owners.values == label])
        posterior = groups_of(part)["posterior"]
        for name in ("mu", "tau", "z"):
            np.testing.assert_allclose(posterior[name], own[name].values, rtol=1e-12, atol=1e-12)
        assert posterior.attrs["swiss_local"] == "z"
    back = groups_of(az_swiss.subposteriors(parts["east"])["east"])["posterior"]
    np.testing.assert_allclose(back["z"], batches["east"]["z"], rtol=1e-9, atol=1e-9)


def test_labels_of_groups_do_not_travel(tmp_path):
    in_parts(batches_of(), tmp_path, kind="fractionated")
    files = list(tmp_path.iterdir())
    assert len(files) == 4
    for path in files:
        content = path.read_bytes()
        assert not any(site.encode() in content for own in LABELS.values() for site in own)


def test_a_kind_that_only_the_plan_knows():
    batches = batches_of()
    _, parts = in_parts(batches, planned={"kind": "fractionated"})
    merged = groups_of(az_swiss.merge(batches, kind="fractionated"))["posterior"]
    own = merged.isel(chain=slice(2, 4)).sel(site=LABELS["east"])
    np.testing.assert_allclose(groups_of(parts["east"])["posterior"]["z"], own["z"], rtol=1e-12)


def test_inflated_batches_leave_local_variables_out():
    told = {n: az_swiss.moments(own, kind="inflated") for n, own in batches_of().items()}
    with pytest.warns(az_swiss.MergeWarning, match=r"left out of the merge: z \(batch-local"):
        plan = az_swiss.plan(told)
    assert "z" not in plan.apply(batches_of()["east"])["posterior"]


def test_local_variables_are_written_batch_by_batch(tmp_path):
    batches, options = batches_of(), {"kind": "fractionated", "transforms": {"tau": "log"}}
    stored = groups_of(az_swiss.merge(batches, into=tmp_path / "merged.zarr", **options))
    merged = groups_of(az_swiss.merge(batches, **options))
    assert set(stored) == set(merged)
    for name in ("posterior", "swiss_local"):
        assert_alike(stored[name].load(), merged[name])


def test_every_batch_is_read_as_often_however_many_there_are(tmp_path):
    reads = []

    def lazy(label, array):
        def read():
            reads.append(label)
            return array

        return dask.array.from_delayed(dask.delayed(read, pure=False)(), array.shape, array.dtype)

    def batch_with(label, seed):
        made = batch_of(seed, [f"{label} {k}" for k in range(3)], labelled=True)
        return made.assign(z=made["z"].copy(data=lazy(label, made["z"].values)))

    counts = []
    for count in (3, 9):
        batches = {f"b{k}": batch_with(f"b{k}", k) for k in range(count)}
        reads.clear()
        target = tmp_path / f"{count}.zarr"
        stored = groups_of(az_swiss.merge(batches, into=target, kind="fractionated"))
        counts.append({reads.count(label) for label in batches})
    assert counts[0] == counts[1]
    assert len(counts[0]) == 1
    merged = groups_of(az_swiss.merge(batches, kind="fractionated"))
    assert_alike(stored["posterior"].load(), merged["posterior"])

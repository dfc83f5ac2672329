"""The batches as they were given: read, labelled, closed again."""

import numpy as np
import pytest
import xarray as xr
from merged_groups import group, groups_of, labelled

import arviz_swiss as az_swiss

pytestmark = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")


def test_lazy_objects_are_not_loaded(tmp_path):
    rng = np.random.default_rng(0)
    opened = []
    for position in range(2):
        path = tmp_path / f"{position}.nc"
        dataset = xr.Dataset({"x": (("chain", "draw"), rng.normal(size=(2, 100)))})
        dataset.to_netcdf(path, engine="h5netcdf")
        opened.append(xr.open_dataset(path, engine="h5netcdf"))
    az_swiss.merge(opened, kind="inflated")
    assert not any(one["x"].variable._in_memory for one in opened)
    for one in opened:
        one.close()


def test_labels_come_from_the_mapping_then_the_attributes(random_batches):
    batches = random_batches(np.random.default_rng(0), batches=2)
    named = group(az_swiss.merge({"north": batches[0], 7: batches[1]}, kind="inflated"))
    assert named["batch"].values.tolist() == ["north", "north", "7", "7"]
    said = [
        labelled(batch["theta"], ["a", "b", "c"]).assign_attrs(swiss_batch=label)
        for batch, label in zip(batches, ["x", "y"], strict=True)
    ]
    assert group(az_swiss.merge(said, kind="inflated"))["batch"].values.tolist() == [
        "x",
        "x",
        "y",
        "y",
    ]


def test_other_group(random_batches):
    batches = [{"prior": batch} for batch in random_batches(np.random.default_rng(0))]
    merged = az_swiss.merge(batches, group="prior", kind="inflated")
    assert "prior" in groups_of(merged)
    assert "posterior" not in groups_of(merged)

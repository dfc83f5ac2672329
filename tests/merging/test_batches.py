"""The batches as they were given: read, labelled, closed again."""

import numpy as np
import pytest
import xarray as xr
from merged_groups import group, groups_of, labelled

import arviz_swiss as az_swiss
from arviz_swiss.data import containers
from arviz_swiss.merging.batches import is_missing_values, load_arrays, opened, prior_batches
from arviz_swiss.merging.match import match

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


def draws(seed=0, **attrs):
    values = np.random.default_rng(seed).standard_normal((2, 50))
    return xr.Dataset({"x": (("chain", "draw"), values)}, attrs=attrs)


def test_a_batch_is_called_by_position_label_and_file(tmp_path):
    path = tmp_path / "north.nc"
    draws().to_netcdf(path, engine="h5netcdf")
    with opened([path], "posterior") as ((batch,), _):
        assert str(batch) == f'batch 0 ("north"), file {path}'
        assert batch.sizes == (2, 50)
    (prior,) = prior_batches([batch], draws())
    assert str(prior) == "prior"


def test_files_are_closed_after(tmp_path):
    path = tmp_path / "b.nc"
    draws().to_netcdf(path, engine="h5netcdf")
    with opened({"b": path}, "posterior") as ((batch,), _):
        assert not batch.draws["x"].variable._in_memory
        layout = match([batch]).layout
        np.testing.assert_array_equal(load_arrays(batch, layout)["x"], draws()["x"])
    draws(1).to_netcdf(path, engine="h5netcdf")


def test_each_batchs_own_prior_unless_one_is_given():
    groups = {"posterior": draws(), "prior": draws(1)}
    with opened([containers.build(groups)] * 2, "posterior") as (
        both,
        _,
    ):
        assert [own.group for own in prior_batches(both, None)] == ["prior"] * 2
        (given,) = prior_batches(both, draws(2))
    np.testing.assert_array_equal(given.draws["x"], draws(2)["x"])


@pytest.mark.parametrize(
    ("idatas", "error", "message"),
    [
        ([], ValueError, "merge needs at least one batch"),
        (draws(), TypeError, "got one Dataset. Put the batches in a list"),
        (3, TypeError, "takes a list, or a mapping of label to batch, got int"),
        ({"x": np.ones((2, 50))}, TypeError, "one dict of arrays, which is one batch"),
        ({1: draws(), "1": draws()}, ValueError, "labels must differ as text"),
        ([xr.DataTree(children={"posterior": xr.DataTree()})], ValueError, "holds no variables"),
    ],
)
def test_what_cannot_be_batches(idatas, error, message):
    with pytest.raises(error, match=message), opened(idatas, "posterior"):
        pass


def test_missing_values_are_told_by_name_and_dimension():
    missing = draws().rename(x="y_unobserved").expand_dims(y_unobserved_dim_0=3, axis=2)
    with opened([missing, draws().rename(x="z_unobserved")], "posterior") as (batches, _):
        assert is_missing_values(batches, "y_unobserved")
        assert not is_missing_values(batches, "z_unobserved")

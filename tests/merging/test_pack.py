"""What is in a merged object."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from merged_groups import group, groups_of, labelled

import arviz_swiss as az_swiss
from arviz_swiss.data import schema

pytestmark = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")


def test_output_groups(to_container, random_batches):
    batches = []
    for k, batch in enumerate(random_batches(np.random.default_rng(0))):
        posterior = labelled(batch["theta"], ["a", "b", "c"])
        posterior["beta"].attrs["unit"] = "m"
        posterior = posterior.assign_attrs(swiss_power=4.0, inference_library="pymc")
        stats = {
            "lp": np.ones((2, 200)),
            "energy": np.ones((2, 200)),
            "diverging": np.zeros((2, 200)),
        }
        observed = xr.Dataset({"y": ("row", np.arange(3.0))}, coords={"row": np.arange(3) + 3 * k})
        default = xr.Dataset({"x": ("i", np.arange(3.0) + k)}, coords={"i": np.arange(3)})
        likelihood = {"y": np.ones((2, 200, 3))}
        batches.append(
            to_container(
                posterior,
                sample_stats=stats,
                observed_data=observed,
                constant_data=default,
                log_likelihood=likelihood,
            )
        )
    merged = az_swiss.merge(batches)
    assert type(merged) is type(batches[0])
    groups = groups_of(merged)
    assert "log_likelihood" not in groups
    assert list(groups["sample_stats"].data_vars) == ["diverging"]
    assert groups["sample_stats"].sizes == {"chain": 8, "draw": 200}
    assert groups["observed_data"]["row"].values.tolist() == list(range(12))
    assert "constant_data" not in groups
    posterior = groups["posterior"]
    assert posterior.attrs["swiss_left_out"] == "constant_data/x, log_likelihood"
    assert posterior["term"].values.tolist() == ["a", "b", "c"]
    assert posterior["beta"].attrs == {"unit": "m"}
    assert "batch" not in posterior.indexes
    assert posterior.attrs["inference_library"] == "pymc"
    assert posterior.attrs["swiss_method"] == "swiss"
    assert "swiss_power" not in posterior.attrs
    assert set(groups["swiss_transform"].data_vars) >= {
        "mean",
        "covariance",
        "scale",
        "power",
        "prior_power",
        "pooled_mean",
        "pooled_covariance",
    }


def test_times_as_coordinates_survive_files(tmp_path):
    rng = np.random.default_rng(0)
    times = pd.date_range("2026-01-01", periods=3)
    batches = [
        xr.Dataset({"x": (("chain", "draw", "t"), rng.normal(size=(2, 100, 3)))}, {"t": times})
        for _ in range(2)
    ]
    merged = az_swiss.merge(batches, kind="inflated")
    tree = xr.DataTree.from_dict({f"/{k}": v for k, v in groups_of(merged).items()})
    path = tmp_path / "merged.nc"
    tree.to_netcdf(path, engine="h5netcdf")
    back = az_swiss.subposteriors(path)
    np.testing.assert_allclose(group(back["b1"])["x"], batches[1]["x"], rtol=1e-9)
    assert len(az_swiss.summary(path)) == 2


def test_every_variable_says_what_it_is(random_batches):
    groups = groups_of(az_swiss.merge(random_batches(np.random.default_rng(0)), kind="inflated"))
    for name in (schema.TRANSFORM, schema.DIAGNOSTICS):
        for variable, array in groups[name].data_vars.items():
            assert array.attrs["description"] == schema.VARIABLES[name][variable]


def test_attributes_of_the_first_batch_stay_and_those_of_a_batch_go(random_batches):
    batches = [
        labelled(batch["theta"], "abc").assign_attrs(
            {schema.BATCH: label, schema.SIZE: 10, "library": "own", "flag": True, "no": None}
        )
        for label, batch in zip("pqrs", random_batches(np.random.default_rng(0)), strict=True)
    ]
    attrs = group(az_swiss.merge(batches, kind="inflated", drop="q")).attrs
    assert attrs["library"] == "own"
    assert attrs["flag"] == 1
    assert "no" not in attrs
    assert not set(schema.BATCH_ATTRS) & set(attrs)
    assert attrs[schema.METHOD] == "swiss"
    assert attrs[schema.DROPPED] == "q"
    assert schema.LEFT_OUT not in attrs


def test_sizes_are_recorded_or_counted(random_batches, to_container):
    rows = random_batches(np.random.default_rng(0), batches=2)
    recorded = [labelled(b["theta"], "abc").assign_attrs({schema.SIZE: 7}) for b in rows]
    maps = group(az_swiss.merge(recorded, kind="inflated"), schema.TRANSFORM)
    assert maps["size"].values.tolist() == [7, 7]
    observed = [
        to_container(labelled(b["theta"], "abc"), observed_data={"y": np.arange(3.0)}) for b in rows
    ]
    maps = group(az_swiss.merge(observed, kind="inflated"), schema.TRANSFORM)
    assert maps["size"].values.tolist() == [3, 3]
    assert maps["observed_summary"].sel(statistic="mean").values.tolist() == [[1.0], [1.0]]

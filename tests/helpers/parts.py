"""Moments, plan and parts of batches, and how they compare with a merge."""

import json

import numpy as np
import xarray as xr
from merged_groups import groups_of

import arviz_swiss as az_swiss
from arviz_swiss.data import schema

WITH_DRAWS = ("posterior", "unconstrained_posterior", "sample_stats")
OF_MERGE = (schema.TRANSFORM, schema.DIAGNOSTICS)


def in_parts(batches, folder=None, applied=None, powers=None, planned=None, **options):
    """Return what moments, plan and apply make of batches by label, through files if in a folder.

    `options` go to moments, `planned` to plan, `applied` to apply.
    """
    told = {}
    for position, (label, batch) in enumerate(batches.items()):
        power = None if powers is None else powers[position]
        told[label] = az_swiss.moments(batch, power=power, **options)
        if folder is not None:
            told[label] = told[label].save(folder / f"m{position}.nc")
    plan = az_swiss.plan(told, **(planned or {}))
    if folder is not None:
        plan = az_swiss.plan(plan.save(folder / "plan.nc"))
    return plan, {n: plan.apply(batches[n], **(applied or {})) for n in plan.labels}


def assert_alike(part, whole, tolerance=1e-12):
    """Refuse Datasets that differ in anything but the last digits."""
    assert set(part.variables) == set(whole.variables)
    assert set(part.coords) == set(whole.coords)
    for name, expected in whole.variables.items():
        present = part.variables[name]
        assert present.dims == expected.dims, name
        if expected.dtype.kind in "fc":
            assert present.dtype == expected.dtype, name
            size = np.abs(expected.values[np.isfinite(expected.values)]).max(initial=0.0)
            np.testing.assert_allclose(
                present.values, expected.values, rtol=tolerance, atol=tolerance * size, err_msg=name
            )
        else:
            np.testing.assert_array_equal(present.values, expected.values, err_msg=name)


def assert_parts_of(parts, merged):
    """Refuse parts that are not those of a merge: draws, statistics, maps, diagnostics, words."""
    whole = groups_of(merged)
    assert list(parts) == whole[schema.TRANSFORM]["batch"].values.tolist()
    for label, part in parts.items():
        groups = groups_of(part)
        present = {name for name in (*WITH_DRAWS, *OF_MERGE) if name in whole}
        assert set(groups) == present
        for name in present & set(WITH_DRAWS):
            own = whole[name].isel(chain=whole[name]["batch"].values == label)
            assert_alike(groups[name], own)
        for name in OF_MERGE:
            assert_alike(groups[name], whole[name])
        assert groups[schema.TRANSFORM].attrs == whole[schema.TRANSFORM].attrs
        assert said_by(groups["posterior"]) == said_by(whole["posterior"])


def said_by(posterior: xr.Dataset):
    """Return the attributes of a group and its variables, but for what is left out of it."""
    attrs = {k: v for k, v in posterior.attrs.items() if k not in (schema.LEFT_OUT, schema.LOCAL)}
    if schema.TRANSFORMS in attrs:
        attrs[schema.TRANSFORMS] = json.loads(attrs[schema.TRANSFORMS])
    return attrs, {name: array.attrs for name, array in posterior.data_vars.items()}

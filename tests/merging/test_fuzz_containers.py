"""Random containers: `merge` gives the pooled moments or a clear error, and changes no input."""

import copy
import warnings

import fuzz_oracle as oracle
import numpy as np
import pytest
import xarray as xr
from container_cases import SAMPLE, Fault, Variable, batches, posterior, with_fault, words_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import arviz_swiss as az_swiss
from arviz_swiss.data import containers

LIMITED = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def contents(obj):
    """Return a deep copy of what an object holds, comparable by `same`."""
    if containers.is_container(obj):
        groups = containers.read(obj).groups
        return {name: dataset.copy(deep=True) for name, dataset in groups.items()}
    return copy.deepcopy(obj)


def same(obj, before):
    if containers.is_container(obj):
        groups = containers.read(obj).groups
        assert list(groups) == list(before)
        for name, dataset in groups.items():
            xr.testing.assert_identical(dataset, before[name])
            assert [v.dims for v in dataset.variables.values()] == [
                v.dims for v in before[name].variables.values()
            ]
    elif isinstance(obj, dict):
        assert list(obj) == list(before)
        for name, values in obj.items():
            np.testing.assert_array_equal(values, before[name])


def elements(obj):
    """Return (chain, draw) values by variable and label; by place where nothing is labelled."""
    if isinstance(obj, dict):
        return {
            (name, *place): values[(..., *place)]
            for name, values in obj.items()
            for place in np.ndindex(*values.shape[2:])
        }
    dataset = containers.read(obj).groups["posterior"] if containers.is_container(obj) else obj
    found = {}
    for name, array in dataset.data_vars.items():
        own = sorted(dim for dim in array.dims if dim not in SAMPLE)
        labels = [dataset.get_index(dim).tolist() for dim in own]
        values = array.transpose(*SAMPLE, *own).values
        for place in np.ndindex(*values.shape[2:]):
            key = (name, *(label[k] for label, k in zip(labels, place, strict=True)))
            found[key] = values[(..., *place)]
    return found


def matrix(found, keys):
    """Return the draws of these elements, one row each draw."""
    return np.stack([found[key].astype(float).ravel() for key in keys], axis=-1)


def places_of(record, draws, found):
    """Return the merged elements in the record's order, known by their draws, not their names."""
    flat = az_swiss.data.flatten(draws).sel(parameter=record["parameter"].values)
    keys = []
    for column in np.moveaxis(flat.transpose(*SAMPLE, "parameter").values, -1, 0):
        (same_draws,) = [key for key, own in found.items() if np.array_equal(own, column)]
        keys.append(same_draws)
    return keys


def coarsest(dataset):
    """Return the rounding error of the coarsest variable."""
    return max(float(np.finfo(array.dtype).eps) for array in dataset.data_vars.values())


def check_moments(merged, objects):
    """Pooled moments are those of the batches, by label; each batch's draws are moved to them."""
    groups = containers.read(merged).groups
    record, draws = groups["swiss_transform"], groups["posterior"]
    count = len(objects)
    assert record["batch"].size == count == np.unique(draws["batch"]).size
    batches = [elements(obj) for obj in objects]
    shared = {key for key in batches[0] if all(key in batch for batch in batches)}
    found = elements(draws)
    if isinstance(objects[0], dict):  # the merged variables have dimensions, the arrays had none
        found = elements({name: array.values for name, array in draws.data_vars.items()})
    assert set(found) == shared
    keys = places_of(record, draws, found)
    rows = [matrix(batch, keys) for batch in batches]
    pooled = oracle.pool(rows, "inflated", np.full(count, count), np.ones(count), range(count))
    units = np.sqrt(np.diag(pooled.covariance))
    near = 1e-9 * max(np.linalg.cond(np.corrcoef(own.T).reshape(len(keys), -1)) for own in rows)

    difference = record["pooled_covariance"].values - pooled.covariance
    assert np.abs((record["pooled_mean"].values - pooled.mean) / units).max() < near
    assert np.abs(difference / np.outer(units, units)).max() < near
    near += 50 * coarsest(draws) * (1 + np.abs(pooled.mean) / units).max()
    for position, label in enumerate(record["batch"].values):
        here = {key: own[draws["batch"].values == label] for key, own in found.items()}
        moved = oracle.moved(rows[position], pooled, position, "swiss")
        chains = here[keys[0]].shape[0]
        moved = moved.reshape(chains, -1, len(keys))[:, : draws.sizes["draw"]]
        assert np.abs((matrix(here, keys) - moved.reshape(-1, len(keys))) / units).max() < near


@LIMITED
@given(batches())
def test_merge_gives_the_pooled_moments_or_a_clear_error(case):
    check(case)


def check(case):
    """Merge, and look at the moments or the error, and at the inputs."""
    objects, found = case
    before = [contents(obj) for obj in objects]
    merged = message = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        try:
            merged = az_swiss.merge(objects, kind="inflated")
        except (ValueError, TypeError) as error:
            message = str(error)
    for obj, untouched in zip(objects, before, strict=True):
        same(obj, untouched)
    if merged is None:
        assert found, f"no fault, but: {message}"
        assert "batch" in message
        if len(found) == 1:
            assert all(word in message for word in found[0].words), message
    else:
        check_moments(merged, objects)


@pytest.mark.parametrize(
    "what",
    [
        "missing",
        "nan",
        "infinite",
        "constant",
        "integer",
        "boolean",
        "text",
        "complex",
        "object",
        "renamed dimension",
        "named batch",
        "no sample dimension",
        "extra",
        "no variables",
        "one draw",
        "no draws",
        "no chain",
    ],
)
@settings(LIMITED, max_examples=10)
@given(batch=st.integers(0, 2), seed=st.integers(0, 2**32))
def test_every_fault_is_refused_by_name(what, batch, seed):
    rng = np.random.default_rng(seed)
    variables = [Variable("mu", (), float), Variable("beta", ("g", "h"), float)]
    template = {"g": 2, "h": 2}, {"g": np.array(["r", "s"])}, variables
    sets = [posterior(rng, template, 2, 30) for _ in range(3)]
    fault = Fault(what, batch, "beta", words_of(what, batch, "beta"))
    sets[batch] = with_fault(sets[batch], fault, rng)
    with pytest.raises((ValueError, TypeError)) as caught:
        az_swiss.merge(sets, kind="inflated")
    assert all(word in str(caught.value) for word in fault.words)


def reversed_elements(objects):
    """Merge, and put the elements under one another's labels."""
    groups = dict(containers.read(az_swiss.merge(objects, kind="inflated")).groups)
    posterior = groups["posterior"]
    groups["posterior"] = posterior.assign(
        beta=posterior["beta"].copy(data=posterior["beta"][..., ::-1])
    )
    return containers.build(groups)


WRONG_MERGES = {
    "elements under other labels": reversed_elements,
    "another kind": lambda objects: az_swiss.merge(objects, kind="fractionated"),
    "a batch is missing": lambda objects: az_swiss.merge(objects[:-1], kind="inflated"),
    "another method": lambda objects: az_swiss.merge(objects, kind="inflated", method="recentre"),
}


@pytest.mark.parametrize("same_sizes", [True, False])
@pytest.mark.parametrize("wrong", [pytest.param(f, id=name) for name, f in WRONG_MERGES.items()])
@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_the_check_sees_a_wrong_merge(wrong, same_sizes):
    rng = np.random.default_rng(0)
    template = {"g": 3}, {"g": np.array(["r", "s", "t"])}, [Variable("beta", ("g",), float)]
    objects = [posterior(rng, template, 2, 30 if same_sizes else 30 + b) for b in range(3)]
    check_moments(az_swiss.merge(objects, kind="inflated"), objects)
    with pytest.raises(AssertionError):
        check_moments(wrong(objects), objects)

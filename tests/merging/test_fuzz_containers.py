"""Random containers: `merge` gives the pooled moments or a clear error, and changes no input."""

import copy
import warnings
from typing import Any, NamedTuple

import fuzz_oracle as oracle
import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import arviz_swiss as az_swiss
from arviz_swiss.data import containers

SAMPLE = ("chain", "draw")
NAMES = ("mu", "beta", "a b", "µ", "x[0]", "Sigma_1", "b0", "p.q", "posterior")
LABELS = {
    "str": lambda size: np.array(["r", "s", "t", "u"])[:size],
    "int": lambda size: np.arange(size) * 3 - 2,
    "float": lambda size: np.arange(size) / 4 - 0.25,
    "datetime": lambda size: np.datetime64("2020-02-27", "ns") + np.arange(size) * 86400 * 10**9,
    "timedelta": lambda size: np.arange(size) * np.timedelta64(10**9, "ns"),
    "object": lambda size: np.array(["r", 1, 2.5, "1"], dtype=object)[:size],
    "bool": lambda size: np.arange(size) > 0 if size < 3 else np.arange(size),
}
LIMITED = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class Variable(NamedTuple):
    """A variable that all batches have."""

    name: str
    dims: tuple[str, ...]
    dtype: Any


class Fault(NamedTuple):
    """What is wrong with one batch, and words that the error must have."""

    what: str
    batch: int
    variable: str
    words: tuple[str, ...]


BATCH_FAULTS = ("no group", "no variables", "one draw", "no draws", "no chain", "not a batch")
VARIABLE_FAULTS = (
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
    "repeated label",
    "named batch",
    "copied",
    "no sample dimension",
    "extra",
)


# Other variables have the dimension too, and may be the ones that are named.
SHARED_FAULTS = ("renamed dimension", "repeated label", "named batch")


@st.composite
def templates(draw):
    """Draw what all batches have in common: dimensions, coordinates, variables."""
    sizes = {dim: draw(st.integers(1, 3)) for dim in ("g", "h")}
    coords = {}
    for dim, size in sizes.items():
        kind = draw(st.sampled_from([None, *LABELS]))
        if kind:
            coords[dim] = LABELS[kind](size)
    if draw(st.booleans()):
        coords["height"] = ("g", np.arange(sizes["g"]) * 1.5)
    if draw(st.booleans()):
        coords["scenario"] = "dry"
    variables = [
        Variable(
            name,
            tuple(draw(st.lists(st.sampled_from(["g", "h"]), max_size=2, unique=True))),
            draw(st.sampled_from([np.float64, np.float64, np.float32, np.float16, ">f8"])),
        )
        for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    ]
    return sizes, coords, variables


def words_of(what, batch, variable):
    """Return what an error about a fault must name."""
    if what in ("extra", "copied"):
        variable = "extra"
    return (f"batch {batch}", variable) if what in VARIABLE_FAULTS else (f"batch {batch}",)


@st.composite
def faults(draw, count, variables):
    """Draw up to two faults, most often none."""
    found = []
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 1, 2]))):
        batch = draw(st.integers(0, count - 1))
        variable = draw(st.sampled_from(variables)).name
        what = draw(st.sampled_from(BATCH_FAULTS + VARIABLE_FAULTS))
        words = words_of(what, batch, variable)
        if what in SHARED_FAULTS:
            words = ("batch",)
        elif len(variables) == 1:
            words = words[:1]  # without its only variable a batch has none to name
        found.append(Fault(what, batch, variable, words))
    return found


def posterior(rng, template, chains, length):
    """Return one batch's draws, dimensions and elements in an order of their own."""
    sizes, coords, variables = template
    data = {}
    for one in variables:
        shape = (chains, length, *(sizes[dim] for dim in one.dims))
        values = rng.normal(rng.normal(), rng.uniform(0.5, 2), size=shape).astype(one.dtype)
        array = xr.Variable((*SAMPLE, *one.dims), values)
        data[one.name] = array.transpose(*rng.permutation(array.dims).tolist())
    used = {dim for one in variables for dim in one.dims}
    own = {
        name: coord
        for name, coord in coords.items()
        if name in used or name == "scenario" or (name == "height" and "g" in used)
    }
    dataset = xr.Dataset(data, coords=own)
    places = {dim: rng.permutation(sizes[dim]) for dim in used if dim in own}
    return dataset.isel(places)


def with_fault(dataset, fault, rng):
    """Return the dataset with one thing wrong; None where it cannot be."""
    name, what = fault.variable, fault.what
    if name not in dataset:
        return dataset
    array = dataset[name]
    own = [dim for dim in array.dims if dim not in SAMPLE]
    if what == "missing":
        return dataset.drop_vars(name)
    if what == "extra":
        return dataset.assign(extra=array.rename("extra") + 1)
    if what in ("nan", "infinite"):
        values = array.values.copy()
        if values.size:
            values.flat[rng.integers(values.size)] = np.nan if what == "nan" else np.inf
        return dataset.assign({name: array.copy(data=values)})
    if what == "constant":
        return dataset.assign({name: array.copy(data=np.full_like(array.values, 1.5))})
    if what in ("integer", "boolean", "text", "complex", "object"):
        dtype = {"integer": int, "boolean": bool, "text": str, "complex": complex}
        return dataset.assign({name: array.astype(dtype.get(what, object))})
    if what == "renamed dimension" and own:
        return dataset.assign({name: array.drop_vars(own, errors="ignore").rename({own[0]: "z"})})
    if what == "repeated label" and own:
        return dataset.assign_coords({own[0]: np.zeros(dataset.sizes[own[0]])})
    if what == "named batch" and own:
        return dataset.rename({own[0]: "batch"})
    if what == "copied":
        return dataset.assign(extra=2 * array.astype(float))
    if what == "no sample dimension":
        return dataset.assign({name: array.isel(draw=0, drop=True, missing_dims="ignore")})
    if what == "no variables":
        return dataset.drop_vars(list(dataset.data_vars))
    if what == "one draw":
        return dataset.isel(draw=slice(1), chain=slice(1), missing_dims="ignore")
    if what == "no draws":
        return dataset.isel(draw=slice(0), missing_dims="ignore")
    if what == "no chain":
        return dataset.isel(chain=0, missing_dims="ignore")
    return dataset


def extra_groups(rng, dataset, names):
    """Return groups beside the posterior that a batch may have."""
    sizes = [dataset.sizes.get(dim, 1) for dim in SAMPLE]
    made = {
        "sample_stats": xr.Dataset(
            {"diverging": (SAMPLE, rng.random(sizes) < 0.1), "lp": (SAMPLE, rng.normal(size=sizes))}
        ),
        "observed_data": xr.Dataset({"y": ("row", rng.normal(size=4))}),
        "log_likelihood": xr.Dataset({"y": ((*SAMPLE, "row"), rng.normal(size=(*sizes, 4)))}),
        "notes": xr.Dataset({"text": ((), "none")}),
    }
    return {name: made[name] for name in names}


def packed(dataset, form, groups):
    """Return a batch in one of the forms that `merge` takes."""
    if form == "Dataset":
        return dataset
    if form == "dict":
        # arrays have no names of dimensions: all batches need one order
        ordered = dataset.transpose(*SAMPLE, "g", "h", ..., missing_dims="ignore")
        return {name: array.values.copy() for name, array in ordered.data_vars.items()}
    kind = "DataTree" if form == "tree" else containers.native_kind()
    return containers.build({"posterior": dataset, **groups}, kind)


@st.composite
def batches(draw):
    """Draw batches of which some may be at fault, and the faults."""
    template = draw(templates())
    count = draw(st.integers(1, 4))
    found = draw(faults(count, template[2]))
    form = draw(st.sampled_from(["Dataset", "dict", "native", "tree"]))
    chains, length = draw(st.integers(1, 3)), draw(st.integers(25, 40))
    same_sizes = draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    beside = draw(
        st.lists(
            st.sampled_from(["sample_stats", "observed_data", "log_likelihood", "notes"]),
            unique=True,
        )
    )
    objects = []
    for position in range(count):
        own_chains = chains if same_sizes else int(rng.integers(1, 4))
        own_length = length if same_sizes else int(rng.integers(25, 40))
        dataset = posterior(rng, template, own_chains, own_length)
        mine = [fault for fault in found if fault.batch == position]
        for fault in mine:
            dataset = with_fault(dataset, fault, rng)
        groups = extra_groups(rng, dataset, beside if rng.random() < 0.8 else beside[:1])
        made = packed(dataset, form, groups)
        if any(fault.what == "not a batch" for fault in mine):
            made = [None, 3, "no such file.nc", np.zeros((2, 40)), [], {}, b"x", object()][
                rng.integers(8)
            ]
        if any(fault.what == "no group" for fault in mine) and form in ("native", "tree"):
            kind = "DataTree" if form == "tree" else containers.native_kind()
            made = containers.build({"prior": dataset}, kind)
        objects.append(made)
    return objects, found


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
    return containers.build(groups, containers.native_kind())


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

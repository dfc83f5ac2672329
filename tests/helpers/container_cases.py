"""Random batches in every container, and faults that they may have, for test_fuzz_containers."""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from hypothesis import strategies as st

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
    kind = "DataTree" if form == "tree" else containers.native_container()
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
            kind = "DataTree" if form == "tree" else containers.native_container()
            made = containers.build({"prior": dataset}, kind)
        objects.append(made)
    return objects, found

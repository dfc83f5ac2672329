"""Read and build the containers of ArviZ: the only module that knows InferenceData from DataTree.

Everything else sees *groups*, a plain dict of group name to `xarray.Dataset`.
"""

import contextlib
import functools
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Number
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import xarray as xr

from arviz_swiss.data import schema

SAMPLE_DIMS = ("chain", "draw")

DRAWS = (
    "an InferenceData or DataTree, a Dataset, a dict of (chain, draw, ...) arrays, or the path of "
    "a complete netCDF or zarr file"
)

# What a dict of groups may hold beside them, as ArviZ's from_dict takes it.
NO_GROUPS = ("coords", "dims", "pred_coords", "pred_dims", "attrs")

# Groups whose arrays are draws, in every ArviZ.
PLAIN_GROUPS = ("posterior", "prior")

NO_CHAIN_AXIS = "Draws without a chain axis need one: x[None] makes them one chain"
# Nobody samples fewer draws in ten times as many chains: parameters were taken for draws.
FEWEST_DRAWS = 10

# Files that are open at a time where memory counts more than time.
FEW_FILES = 8

Groups = dict[str, xr.Dataset]


class Refused(ValueError):
    """What a reader refuses, with a remedy of its own."""


class InferenceData(Protocol):
    """ArviZ 0.x's container, by what is asked of it; ArviZ 1.x has xarray's DataTree."""

    attrs: dict[Any, Any]

    def groups(self) -> list[str]:
        """Return the names of the groups."""
        ...

    def __getitem__(self, key: str) -> xr.Dataset: ...

    def to_netcdf(self, filename: Any) -> Any:
        """Save all groups in one file."""
        ...


# What merge and all functions on merged objects return.
Container: TypeAlias = InferenceData | xr.DataTree


class Contents(NamedTuple):
    """What was read from one object: its groups, and the container it asks back (or None)."""

    groups: Groups
    container: str | None


@functools.cache
def native_container() -> str:
    """Return the container that the installed ArviZ makes: "InferenceData" or "DataTree"."""
    # not by importing it, which imports all its plots
    is_first = importlib.metadata.version("arviz").startswith("0.")
    return "InferenceData" if is_first else "DataTree"


def _rc_params() -> Any:
    """Return the settings of ArviZ, which its users change in `arviz.rcParams`."""
    if native_container() == "InferenceData":
        from arviz import rcParams
    else:
        from arviz_base import rcParams
    return rcParams


def rc_param(name: str) -> Any:
    """Return a setting of ArviZ."""
    return _rc_params()[name]


def is_inference_data(obj: Any) -> bool:
    """Tell an ArviZ 0.x InferenceData; in ArviZ 1.x that name is an alias of DataTree."""
    return type(obj).__name__ == "InferenceData" and not isinstance(obj, xr.DataTree)


def is_container(obj: Any) -> bool:
    """Tell whether `obj` is one InferenceData, DataTree or Dataset."""
    return is_inference_data(obj) or isinstance(obj, xr.DataTree | xr.Dataset)


def read(obj: Any, group: str = "posterior") -> Contents:
    """Return the groups of a container, path or fit; a Dataset or dict of arrays is `group`."""
    if not isinstance(group, str):
        raise Refused(f"group must be the name of a group, got {group!r}.")
    if is_inference_data(obj):
        return Contents({name: obj[name] for name in obj.groups()}, "InferenceData")
    if isinstance(obj, xr.DataTree):
        return Contents(_datatree_groups(obj, group), "DataTree")
    if isinstance(obj, xr.Dataset):
        return Contents({group: obj}, None)
    if isinstance(obj, str | os.PathLike):
        return Contents(open_file(os.fspath(obj), group), None)
    return Contents(_convert(obj, group), None)


def build(
    groups: Groups, container: str | None = None, attrs: Mapping[str, Any] | None = None
) -> Container:
    """Return a new "InferenceData" or "DataTree", or what ArviZ makes, that holds `groups`."""
    attrs = dict(attrs or {})
    if (container or native_container()) == "InferenceData":
        import arviz

        return arviz.InferenceData(attrs=attrs, **groups)
    root = xr.Dataset(attrs=attrs)
    return xr.DataTree.from_dict({"/": root, **{f"/{k}": v for k, v in groups.items()}})


def root_attrs(obj: Any) -> dict[str, Any]:
    """Return the attributes of a container as a whole; of anything else, none."""
    is_whole = is_inference_data(obj) or isinstance(obj, xr.DataTree)
    return dict(obj.attrs) if is_whole else {}


@contextlib.contextmanager
def few_open_files() -> Iterator[None]:
    """Have xarray keep few files open at a time, each of which takes most of a MB; reopen others.

    Groups that were opened lazily may be used as if all files were open.
    """
    with xr.set_options(file_cache_maxsize=FEW_FILES):
        yield


def close(groups: Groups) -> None:
    """Release the files that lazily opened groups hold."""
    for dataset in groups.values():
        dataset.close()


def check_group(
    groups: Mapping[str, xr.Dataset],
    group: str,
    name: str,
    sample_dims: Sequence[str] = SAMPLE_DIMS,
) -> None:
    """Refuse an object, called `name`, without draws in this group."""
    if group not in groups:
        present = ", ".join(groups) or "none"
        if sent := [what for key, what in schema.SENT.items() if key in groups]:
            raise ValueError(
                f"{name} holds {sent[0]}, no draws. Pass the draws; moments are for plan, and a "
                "plan is for apply."
            )
        raise ValueError(f'{name} has no group "{group}"; its groups are: {present}.')
    dataset = groups[group]
    if not dataset.data_vars:
        raise ValueError(f'{name}: group "{group}" holds no variables.')
    if missing := [dim for dim in sample_dims if dim not in dataset.dims]:
        raise ValueError(
            f'{name}: group "{group}" has no dimension {" or ".join(missing)}, its dimensions are '
            f"{tuple(dataset.dims)}. Draws need dimensions ({', '.join(sample_dims)}, ...)."
        )


def safe_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes in the forms that netCDF and zarr both keep, without those of none.

    A list of one becomes its element; None, dicts and empty or mixed lists have no faithful form.
    """
    return {name: safe for name, value in attrs.items() if (safe := _safe_attr(value)) is not None}


def _safe_attr(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, bool | int):
        return int(value) if abs(value) < 2**63 else None
    if isinstance(value, str | float):
        return value
    if isinstance(value, list | tuple) and value:
        values = [_safe_attr(element) for element in value]
        if any(all(isinstance(v, sort) for v in values) for sort in (str, int | float)):
            return values[0] if len(values) == 1 else values
    return None


def check_axes(arrays: Mapping[str, Any]) -> None:
    """Refuse arrays whose first two axes cannot be chains and draws, and names no file can hold.

    Dimensions of arrays have no names, so nothing else tells a matrix of draws by parameters.
    """
    check_names(arrays)
    for name, array in arrays.items():
        if not hasattr(array, "__array__") and not isinstance(array, list | tuple | Number):
            continue
        shape = np.shape(array)
        if len(shape) < 2:
            raise Refused(
                f"variable {name}: shape {shape}, but the first two axes are chains and draws. "
                f"{NO_CHAIN_AXIS}."
            )
        if shape[0] > shape[1]:
            raise Refused(
                f"variable {name}: shape {shape}, which would be {shape[0]} chains of {shape[1]} "
                f"draws. {NO_CHAIN_AXIS}. If there really are more chains than draws, name the "
                f'axes: xarray.Dataset({{"{name}": (("chain", "draw", ...), x)}}).'
            )


def check_sizes(name: str, chains: int, draws: int) -> None:
    """Refuse draws, called `name`, in ten times as many chains, which cannot be meant."""
    if draws < FEWEST_DRAWS and chains >= FEWEST_DRAWS * max(draws, 1):
        raise ValueError(
            f"{name} has {chains} chains of {draws} draws. {NO_CHAIN_AXIS}. If there really are so "
            "many chains, join some of them."
        )


def check_names(names: Iterable[Any]) -> None:
    """Refuse names that neither a DataTree nor a file can hold."""
    if slashed := [str(name) for name in names if "/" in str(name)]:
        renamed = re.sub(r"\s*/\s*", "_", slashed[0])
        raise Refused(
            f'variable {slashed[0]}: a DataTree or a file cannot hold a name with "/". Rename it, '
            f'to "{renamed}" say, or leave it out.'
        )


def _datatree_groups(tree: xr.DataTree, group: str) -> Groups:
    # not inherit=True, which gives every group the labels of dimensions that it does not have
    groups = {
        name: _inherit(node.to_dataset(inherit=False), tree.coords)
        for name, node in tree.children.items()
    }
    if not groups and tree.data_vars:
        return {group: tree.to_dataset()}
    return groups


def _inherit(dataset: xr.Dataset, coords: xr.Coordinates) -> xr.Dataset:
    """Return a group with the root's coordinates along its dimensions, where it has none."""
    along = {
        name: coord
        for name, coord in coords.items()
        if name not in dataset.coords and coord.dims and set(coord.dims) <= set(dataset.dims)
    }
    return dataset.assign_coords(along) if along else dataset


def open_file(path: str, group: str) -> Groups:
    """Open a netCDF or zarr file lazily and uncached, so that a batch is in memory only in use."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"no file or folder {path!r}")
    opened = xr.open_groups(path, engine=_engine(path), cache=False)
    root = opened.pop("/", xr.Dataset())
    groups = {name.strip("/"): _inherit(dataset, root.coords) for name, dataset in opened.items()}
    return groups or ({group: root} if root.data_vars else {})


def open_group(path: str, name: str) -> xr.Dataset:
    """Open one group of a file as `open_file` opens all, but for coordinates of the root."""
    return xr.open_dataset(path, group=name, engine=_engine(path), cache=False)


def _engine(path: str) -> str:
    """Return what xarray opens a file with."""
    netcdf = "h5netcdf" if importlib.util.find_spec("h5netcdf") else "netcdf4"
    return "zarr" if os.path.isdir(path) or path.endswith((".zarr", ".zip")) else netcdf


def _convert(obj: Any, group: str) -> Groups:
    if obj is None or isinstance(obj, list | tuple | set | bytes | Number):
        raise Refused(f"got {brief_type(obj)}. Pass {DRAWS}.")
    import arviz

    is_mapping = isinstance(obj, Mapping)
    is_grouped = is_mapping and obj and all(isinstance(v, Mapping) for v in obj.values())
    options = {name: obj[name] for name in NO_GROUPS if is_grouped and name in obj}
    by_group = {k: v for k, v in obj.items() if k not in options} if is_grouped else {group: obj}
    for name, arrays in by_group.items():
        if not str(name).endswith(("data", "_attrs")):
            check_axes(arrays if isinstance(arrays, Mapping) else {"x": arrays})
    if not is_grouped and is_mapping and (dataset := _from_arrays(obj, group)) is not None:
        return {group: dataset}
    is_old = native_container() == "InferenceData"
    # ArviZ 1.x converts samplers' fits by functions named after the library only.
    from_library = getattr(arviz, f"from_{type(obj).__module__.partition('.')[0]}", None)
    if is_mapping:
        # not every ArviZ takes lists for arrays
        arrays = {
            name: {k: np.asarray(v) if isinstance(v, list | tuple) else v for k, v in own.items()}
            for name, own in by_group.items()
        }
        if is_old:
            converted = arviz.from_dict(**arrays, **options)
        else:
            converted = arviz.from_dict(arrays, **options)
    elif is_old:
        converted = arviz.convert_to_inference_data(obj, group=group)
    elif from_library:
        converted = from_library(obj)
    else:
        converted = arviz.convert_to_datatree(obj, group=group)
    return read(converted, group).groups


def _from_arrays(arrays: Mapping[str, Any], group: str) -> xr.Dataset | None:
    """Return plain arrays as ArviZ converts them, in a tenth of its time; None for anything else.

    What ArviZ warns of, names otherwise by its settings, or calls by names of others is left to it.
    """
    values = arrays.values()
    dims = {
        name: [f"{name}_dim_{axis}" for axis in range(np.ndim(array) - 2)]
        for name, array in arrays.items()
    }
    taken = {"log_likelihood", *SAMPLE_DIMS, *(dim for own in dims.values() for dim in own)}
    is_plain = (
        group in PLAIN_GROUPS
        and all(type(array) is np.ndarray and array.dtype.kind in "fiub" for array in values)
        and len({array.shape[:2] for array in values}) == 1
        and all(isinstance(name, str) and name not in taken for name in arrays)
    )
    if not is_plain or tuple(_sample_dims()) != SAMPLE_DIMS:
        return None
    data = {name: ((*SAMPLE_DIMS, *dims[name]), array) for name, array in arrays.items()}
    sizes = {
        dim: n for own, array in data.values() for dim, n in zip(own, array.shape, strict=True)
    }
    sizes = {
        dim: length
        for own, array in data.values()
        for dim, length in zip(own, array.shape, strict=True)
    }
    return xr.Dataset(data, _counted(tuple(sizes.items()), int(rc_param("data.index_origin"))))


@functools.lru_cache(maxsize=8)
def _counted(sizes: tuple[tuple[str, int], ...], origin: int) -> xr.Coordinates:
    """Return coordinates that count, made once for all batches of these sizes."""
    return xr.Coordinates({dim: np.arange(origin, origin + length) for dim, length in sizes})


def _sample_dims() -> Sequence[str]:
    """Return ArviZ's names of the dimensions of draws, which a setting of ArviZ 1.x changes."""
    return _rc_params().get("data.sample_dims", SAMPLE_DIMS)


def brief_type(obj: Any) -> str:
    """Return what an error calls an object that it does not take."""
    return "None" if obj is None else type(obj).__name__


@contextlib.contextmanager
def reading(what: str, wanted: str = DRAWS) -> Iterator[None]:
    """Turn whatever a reader raises into one error: which object could not be read, what can be."""
    try:
        yield
    except MemoryError:
        raise
    except Refused as error:
        raise ValueError(f"{what} could not be read: {error}") from error
    except Exception as error:
        raise ValueError(f"{what} could not be read: {error}. Pass {wanted}.") from error

"""Read and build the containers of ArviZ: the only module that knows InferenceData from DataTree.

Everything else sees *groups*, a plain dict of group name to `xarray.Dataset`.
"""

import contextlib
import importlib.util
import os
import re
from collections.abc import Iterable, Mapping
from numbers import Number
from typing import Any, NamedTuple, Protocol

import numpy as np
import xarray as xr

from arviz_swiss.data.axes import Refused, check_axes

SAMPLE_DIMS = ("chain", "draw")
FILTERS = (None, "like", "regex")

DRAWS = (
    "an InferenceData or DataTree, a Dataset, a dict of (chain, draw, ...) arrays, or the path of "
    "a complete netCDF or zarr file"
)

# What a dict of groups may hold beside them, as ArviZ's from_dict takes it.
NO_GROUPS = ("coords", "dims", "pred_coords", "pred_dims", "attrs")

Groups = dict[str, xr.Dataset]


class InferenceData(Protocol):
    """ArviZ 0.x's container, by what is asked of it; ArviZ 1.x has xarray's DataTree."""

    attrs: dict[Any, Any]

    def groups(self) -> list[str]:
        """Return the names of the groups."""
        ...

    def __getitem__(self, key: str) -> xr.Dataset: ...


# What merge and all functions on merged objects return.
Container = InferenceData | xr.DataTree


class Contents(NamedTuple):
    """What was read from one object: its groups, and the container kind it asks back (or None)."""

    groups: Groups
    kind: str | None


def native_kind() -> str:
    """Return the container that the installed ArviZ makes: "InferenceData" or "DataTree"."""
    import arviz

    return "InferenceData" if hasattr(arviz, "convert_to_inference_data") else "DataTree"


def rc_param(name: str) -> Any:
    """Return a setting of ArviZ, which its users change in `arviz.rcParams`."""
    import arviz

    return arviz.rcParams[name]


def is_inference_data(obj: Any) -> bool:
    """Tell an ArviZ 0.x InferenceData; in ArviZ 1.x that name is an alias of DataTree."""
    return type(obj).__name__ == "InferenceData" and not isinstance(obj, xr.DataTree)


def is_container(obj: Any) -> bool:
    """Tell whether `obj` is one InferenceData, DataTree or Dataset."""
    return is_inference_data(obj) or isinstance(obj, xr.DataTree | xr.Dataset)


def read(obj: Any, group: str = "posterior") -> Contents:
    """Return the groups of an object: a container, a path, or what ArviZ's converter takes.

    Parameters
    ----------
    obj : InferenceData, DataTree, Dataset, path, dict of arrays, or a sampler's fit
    group : str, default "posterior"
        The group that a Dataset or a dict of arrays stands for.
    """
    if not isinstance(group, str):
        raise Refused(f"group must be the name of a group, got {group!r}.")
    if is_inference_data(obj):
        return Contents({name: obj[name] for name in obj.groups()}, "InferenceData")
    if isinstance(obj, xr.DataTree):
        return Contents(_datatree_groups(obj, group), "DataTree")
    if isinstance(obj, xr.Dataset):
        return Contents({group: obj}, None)
    if isinstance(obj, str | os.PathLike):
        return Contents(_open_file(os.fspath(obj), group), None)
    return Contents(_convert(obj, group), None)


def build(groups: Groups, kind: str, attrs: Mapping[str, Any] | None = None) -> Any:
    """Return a new container of the given kind that holds `groups`."""
    attrs = dict(attrs or {})
    if kind == "InferenceData":
        import arviz

        return arviz.InferenceData(attrs=attrs, **groups)
    root = xr.Dataset(attrs=attrs)
    return xr.DataTree.from_dict({"/": root, **{f"/{k}": v for k, v in groups.items()}})


def root_attrs(obj: Any) -> dict[str, Any]:
    """Return the attributes of a container as a whole; of anything else, none."""
    is_whole = is_inference_data(obj) or isinstance(obj, xr.DataTree)
    return dict(obj.attrs) if is_whole else {}


def close(groups: Groups) -> None:
    """Release the files that lazily opened groups hold."""
    for dataset in groups.values():
        dataset.close()


def check_group(groups: Groups, group: str, name: str) -> None:
    """Refuse an object, called `name`, without draws in this group."""
    if group not in groups:
        found = ", ".join(groups) or "none"
        raise ValueError(f'{name} has no group "{group}"; its groups are: {found}.')
    dataset = groups[group]
    if not dataset.data_vars:
        raise ValueError(f'{name}: group "{group}" holds no variables.')
    missing = [dim for dim in SAMPLE_DIMS if dim not in dataset.dims]
    if missing:
        raise ValueError(
            f'{name}: group "{group}" has no dimension {" or ".join(missing)}, its dimensions are '
            f"{tuple(dataset.dims)}. Draws need dimensions (chain, draw, ...)."
        )


def checked_names(var_names: Any, filter_vars: Any = None) -> str | list[str] | None:
    """Return `var_names` as ArviZ takes it; refuse what neither names nor selects variables."""
    if filter_vars not in FILTERS:
        raise ValueError(f'filter_vars must be None, "like" or "regex", got {filter_vars!r}.')
    if isinstance(var_names, Iterable) and not isinstance(var_names, str | bytes | Mapping):
        var_names = list(var_names)
    names = var_names if isinstance(var_names, list) else [var_names]
    if var_names is not None and not all(isinstance(name, str) for name in names):
        raise TypeError(f"var_names must be a name or a list of names, got {var_names!r}.")
    if filter_vars == "regex" and var_names is not None:
        for name in names:
            try:
                re.compile(name.removeprefix("~"))
            except re.error as error:
                raise ValueError(
                    f"var_names={name!r} is no regular expression: {error}."
                ) from error
    return var_names


def select_names(
    dataset: xr.Dataset, var_names=None, filter_vars=None, where: str = ""
) -> list[str]:
    """Return the names that `var_names` and `filter_vars` select, in the dataset's order.

    ValueError, which begins with `where`, if they select none.
    """
    var_names = checked_names(var_names, filter_vars)
    if var_names is None:
        return list(dataset.data_vars)
    import arviz

    one_draw = dataset.isel({dim: [0] for dim in SAMPLE_DIMS if dim in dataset.dims})
    # ArviZ 1.x writes to the attributes, which a selection shares with the user's object.
    one_draw.attrs = {}
    options = {"filter_vars": filter_vars, "combined": False, "keep_dataset": True}
    try:
        selected = set(arviz.extract(one_draw, var_names=var_names, **options).data_vars)
    except KeyError:
        selected = set()
    if not selected:
        found = ", ".join(dataset.data_vars)
        asked = [var_names] if isinstance(var_names, str) else var_names
        missing = [name for name in asked if name.removeprefix("~") not in dataset.data_vars]
        which = f": no {', '.join(missing)}" if missing and not filter_vars else " selects nothing"
        raise ValueError(f"{where}var_names={var_names!r}{which}; the variables are {found}.")
    return [name for name in dataset.data_vars if name in selected]


def summary(dataset: xr.Dataset) -> Any:
    """Return ArviZ's summary table of draws, not rounded."""
    import arviz

    # A constant has no R-hat.
    with np.errstate(divide="ignore", invalid="ignore"):
        return arviz.summary(_with_dims_of_their_own(dataset), round_to="none")


def _with_dims_of_their_own(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset with no dimension shared by two variables, chain and draw aside.

    ArviZ 1.x lays out all variables' values in one common order of dimensions, but labels them in
    each variable's own: where the orders differ, rows carry the values of other elements.
    """
    arrays = {}
    for number, (name, array) in enumerate(dataset.data_vars.items()):
        dims = [dim for dim in array.dims if dim not in SAMPLE_DIMS]
        kept = array.reset_coords([c for c in array.coords if c not in array.dims], drop=True)
        arrays[name] = kept.rename({d: f"swiss_{number}_{axis}" for axis, d in enumerate(dims)})
    return xr.Dataset(arrays)


def convergence(draws: np.ndarray) -> tuple[float, float, float]:
    """Return ArviZ's R-hat, bulk and tail effective sample sizes of one (chain, draw) array."""
    import arviz

    if draws.shape[1] < 4:
        return np.nan, np.nan, np.nan
    if len(draws) == 1 and draws.shape[1] >= 8:
        # ArviZ compares no single chain with itself, though it halves chains where there are two
        half = draws.shape[1] // 2
        rhat = arviz.rhat(draws[0, : 2 * half].reshape(2, half))
    else:
        rhat = arviz.rhat(draws)
    bulk = arviz.ess(draws, method="bulk")
    tail = arviz.ess(draws, method="tail", prob=(0.05, 0.95))
    return float(rhat), float(bulk), float(tail)


def labeller() -> Any:
    """Return ArviZ's default labeller."""
    import arviz

    return arviz.labels.BaseLabeller()


def effective_size(draws: np.ndarray) -> float:
    """Return ArviZ's effective sample size for the mean of one (chain, draw) array."""
    import arviz

    return float(arviz.ess(draws, method="mean"))


def pareto_smoothed(log_ratios: np.ndarray) -> tuple[np.ndarray, float]:
    """Return ArviZ's Pareto-smoothed log weights, which sum to one, and k-hat.

    Parameters
    ----------
    log_ratios : (draws,) array
        Large where a draw should count much.

    Returns
    -------
    tuple of (draws,) array and float
        k-hat is 0 where all ratios that are not zero are equal, since there is no tail to fit; it
        is infinite, and the weights are equal, where all ratios are zero.
    """
    import arviz

    finite = np.isfinite(log_ratios)
    if not finite.any():
        return np.full(log_ratios.size, -np.log(log_ratios.size)), np.inf
    if np.ptp(log_ratios[finite]) < 1e-6:
        return np.where(finite, -np.log(finite.sum()), -np.inf), 0.0
    # weights that are nearly equal give ArviZ's fit of the tail zeros to divide by
    with np.errstate(divide="ignore", invalid="ignore"):
        if hasattr(arviz, "psislw"):
            log_weights, khat = arviz.psislw(log_ratios)
        else:
            from arviz_stats.base import array_stats

            # ArviZ 1.x takes the negative of what it smooths, as leave-one-out gives it
            log_weights, khat = array_stats.psislw(-log_ratios)
    return np.asarray(log_weights, float), float(khat)


def kde(draws: np.ndarray, **options: Any) -> tuple[np.ndarray, np.ndarray, float]:
    """Return grid, density and bandwidth of ArviZ's kernel density estimate of one parameter."""
    import arviz

    if _takes_groups_apart(arviz):
        return arviz.kde(draws, bw_return=True, **options)
    from arviz_stats.base import array_stats

    grid, density, bandwidth = array_stats.kde(draws, **options)
    return grid, density, float(bandwidth)


def safe_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes in the forms that netCDF and zarr both keep.

    Text, numbers and flat lists of two or more of one sort stay; a list of one becomes its element;
    booleans become integers; anything else (None, dicts, empty or mixed lists, integers of more
    than 64 bits) has no faithful form and is left out.
    """
    return {name: safe for name, value in attrs.items() if (safe := _safe_attr(value)) is not None}


def _safe_attr(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value if abs(value) < 2**63 else None
    if isinstance(value, str | float):
        return value
    if isinstance(value, list | tuple):
        values = [_safe_attr(one) for one in value]
        if not any(all(isinstance(v, kind) for v in values) for kind in (str, int | float)):
            return None
        return (values or [None])[0] if len(values) < 2 else values
    return None


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


def _open_file(path: str, group: str) -> Groups:
    """Open a netCDF or zarr file lazily and uncached, so that a batch is in memory only in use."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"no file or folder {path!r}")
    engine = "zarr" if os.path.isdir(path) or path.endswith((".zarr", ".zip")) else _netcdf_engine()
    opened = xr.open_groups(path, engine=engine, cache=False)
    root = opened.pop("/", xr.Dataset())
    groups = {name.strip("/"): _inherit(dataset, root.coords) for name, dataset in opened.items()}
    return groups or ({group: root} if root.data_vars else {})


def _netcdf_engine() -> str:
    return "h5netcdf" if importlib.util.find_spec("h5netcdf") else "netcdf4"


def _convert(obj: Any, group: str) -> Groups:
    if obj is None or isinstance(obj, list | tuple | set | bytes | Number):
        raise Refused(f"got {brief_type(obj)}. Pass {DRAWS}.")
    import arviz

    is_grouped = isinstance(obj, Mapping) and obj
    is_grouped = is_grouped and all(isinstance(v, Mapping) for v in obj.values())
    options = {name: obj[name] for name in NO_GROUPS if is_grouped and name in obj}
    by_group = {k: v for k, v in obj.items() if k not in options} if is_grouped else {group: obj}
    for name, arrays in by_group.items():
        if not str(name).endswith(("data", "_attrs")):
            check_axes(arrays if isinstance(arrays, Mapping) else {"x": arrays})
    if isinstance(obj, Mapping):
        by_group = {name: _as_arrays(arrays) for name, arrays in by_group.items()}
        converted = (
            arviz.from_dict(**by_group, **options)
            if _takes_groups_apart(arviz)
            else arviz.from_dict(by_group, **options)
        )
    elif _takes_groups_apart(arviz):
        converted = arviz.convert_to_inference_data(obj, group=group)
    else:
        # ArviZ 1.x converts samplers' fits by functions named after the library only.
        library = type(obj).__module__.partition(".")[0]
        from_library = getattr(arviz, f"from_{library}", None)
        converted = (
            from_library(obj) if from_library else arviz.convert_to_datatree(obj, group=group)
        )
    return read(converted, group).groups


def _as_arrays(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return a group with lists as arrays, which not every ArviZ takes lists for."""
    return {
        name: np.asarray(values) if isinstance(values, list | tuple) else values
        for name, values in group.items()
    }


def brief_type(obj: Any) -> str:
    """Return what an error calls an object that it does not take."""
    return "None" if obj is None else type(obj).__name__


def _takes_groups_apart(arviz) -> bool:
    return hasattr(arviz, "convert_to_inference_data")


@contextlib.contextmanager
def reading(what: str, wanted: str = DRAWS):
    """Turn whatever a reader raises into one error: which object could not be read, what can be."""
    try:
        yield
    except MemoryError:
        raise
    except Refused as error:
        raise ValueError(f"{what} could not be read: {error}") from error
    except Exception as error:
        raise ValueError(f"{what} could not be read: {error}. Pass {wanted}.") from error

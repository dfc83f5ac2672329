"""Named variables to vectors along `parameter`, and back.

Labels are ArviZ's own (``beta[a]``, ``m[3, z]``). Draws are moved in blocks of rows that stay in
the processor's cache: xarray's stacking takes 30 times longer and cannot be undone.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from arviz_swiss.base.linalg import NARROW, SMALL_PRODUCT, AffineMap, add_product
from arviz_swiss.data import containers
from arviz_swiss.data.containers import SAMPLE_DIMS
from arviz_swiss.data.messages import brief
from arviz_swiss.data.selection import select_names

BLOCK_BYTES = 2**19
MOST_ROWS = 4096
# Products of so many columns go straight to a variable's array; narrower ones are made together.
WIDE = 16


class Variable(NamedTuple):
    """Where one named variable lies in the vector of parameters."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    columns: slice

    @property
    def size(self) -> int:
        """Number of parameters in the variable."""
        return self.columns.stop - self.columns.start


def place(name: str, dims: tuple[str, ...], shape: tuple[int, ...], start: int) -> Variable:
    """Return a variable whose parameters begin at `start`."""
    return Variable(name, dims, shape, slice(start, start + math.prod(shape)))


class Layout(NamedTuple):
    """The order of named variables along `parameter`, with their coordinates."""

    variables: tuple[Variable, ...]
    coords: dict[str, xr.DataArray]

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.variables[-1].columns.stop if self.variables else 0

    @property
    def names(self) -> list[str]:
        """Names of the variables, in order."""
        return [variable.name for variable in self.variables]

    def labels(self, labeller: Any = None) -> list[str]:
        """Return the label of every parameter, ArviZ's own unless by another labeller."""
        labels = []
        for name, dims, shape, _ in self.variables:
            axes = [
                list(self.coords[dim].values) if dim in self.coords else list(range(length))
                for dim, length in zip(dims, shape, strict=True)
            ]
            if labeller is None:
                labels += _own_labels(name, axes)
                continue
            for values, at in zip(itertools.product(*axes), np.ndindex(shape), strict=True):
                by_dim, positions = (dict(zip(dims, each, strict=True)) for each in (values, at))
                labels.append(labeller.make_label_flat(name, by_dim, positions))
        return labels

    def owners(self) -> list[str]:
        """Return the variable that every parameter belongs to."""
        return [variable.name for variable in self.variables for _ in range(variable.size)]


def _own_labels(name: str, axes: Sequence[Sequence[Any]]) -> list[str]:
    """Return the labels that ArviZ's BaseLabeller gives, in a fraction of its time."""
    texts = [[f"{value}" for value in axis] for axis in axes]
    elements = (", ".join(values) for values in itertools.product(*texts))
    return [f"{name}[{element}]" if element else name for element in elements]


def layout_of(
    dataset: xr.Dataset, names: Sequence[str], sample_dims: Sequence[str] = SAMPLE_DIMS
) -> Layout:
    """Return the layout of the named variables, draws' dimensions left aside."""
    variables: list[Variable] = []
    for name in names:
        array = dataset.variables[name]
        dims = tuple(dim for dim in array.dims if dim not in sample_dims)
        start = variables[-1].columns.stop if variables else 0
        variables.append(place(name, dims, tuple(array.sizes[dim] for dim in dims), start))
    dims_used = {dim for variable in variables for dim in variable.dims}
    known = {name: dataset.variables[name] for name in dataset.coords}
    coords = {
        name: xr.DataArray(coord, name=name)
        for name, coord in known.items()
        if coord.dims and set(coord.dims) <= dims_used
    }
    return Layout(tuple(variables), coords)


def with_times_as_stored(layout: Layout) -> Layout:
    """Return the layout with times in nanoseconds, as they come back from a file.

    Labels are made of them, and a merged object that was saved must find its parameters again.
    """
    coords = dict(layout.coords)
    for name, coord in coords.items():
        if coord.dtype.kind in "mM":
            stored = coord.values.astype(f"{coord.dtype.kind}8[ns]")
            if (stored.astype(coord.dtype) == coord.values).all():  # nanoseconds end in 2262
                coords[name] = coord.copy(data=stored)
    return layout._replace(coords=coords)


def sample_arrays(
    dataset: xr.Dataset,
    layout: Layout,
    indexers: Mapping[str, np.ndarray] | None = None,
    sample_dims: Sequence[str] = SAMPLE_DIMS,
) -> list[np.ndarray]:
    """Return each variable's (chain, draw, ...) array, elements in the order of the indexers."""
    # Dataset.variables: selecting DataArrays would cost more than the arithmetic of small batches.
    arrays = []
    for variable in layout.variables:
        stored = dataset.variables[variable.name]
        if not getattr(stored, "_in_memory", False):
            stored = stored.copy(deep=False)  # else the user's object would keep a file's values
        dims = (*sample_dims, *variable.dims)
        if stored.dims != dims:
            stored = stored.transpose(*dims)
        used = {dim: order for dim, order in (indexers or {}).items() if dim in variable.dims}
        arrays.append(stored.isel(used).values if used else stored.values)
    return arrays


def as_rows(
    arrays: Sequence[np.ndarray], layout: Layout, draws: int | None = None
) -> list[np.ndarray]:
    """Return the arrays as (rows, parameters) matrices, chains end to end.

    Only so many first draws of each chain are kept, if given.
    """
    return [
        array[:, :draws].reshape(math.prod(array[:, :draws].shape[:2]), variable.size)
        for array, variable in zip(arrays, layout.variables, strict=True)
    ]


def row_blocks(rows: int, columns: int) -> list[slice]:
    """Return slices that cut `rows` into blocks of a size that stays in the cache."""
    length = min(max(BLOCK_BYTES // (8 * max(columns, 1)), 128), MOST_ROWS)
    if columns <= NARROW:
        length = min(length, SMALL_PRODUCT // max(columns, 1) ** 2)
    return [slice(start, min(start + length, rows)) for start in range(0, rows, length)]


def gather(
    matrices: Sequence[np.ndarray], layout: Layout, block: slice, centres: np.ndarray, out
) -> np.ndarray:
    """Write one block of rows, minus `centres` (one a row, end to end), into the first of `out`."""
    rows = out[: block.stop - block.start]
    for matrix, (*_, own) in zip(matrices, layout.variables, strict=True):
        rows[:, own] = matrix[block]
    # One long loop; subtracting a vector from every row would start a short one for each.
    flat = rows.reshape(-1)
    flat -= centres[: flat.size]
    return rows


def move(
    matrices: Sequence[np.ndarray], layout: Layout, affine: AffineMap, out: Sequence[np.ndarray]
) -> None:
    """Map all rows, block by block, into the matrices of `out`."""
    # By contiguous columns a narrow product takes a third of the time that transposed ones take.
    scale = np.ascontiguousarray(np.column_stack([affine.scale, affine.target]).T)
    wide, narrow = list[tuple[np.ndarray, slice]](), list[tuple[np.ndarray, slice]]()
    for matrix, (*_, own) in zip(out, layout.variables, strict=True):
        is_wide = matrix.shape[1] >= WIDE and matrix.dtype == scale.dtype
        (wide if is_wide else narrow).append((matrix, own))
    apart = [(matrix, np.ascontiguousarray(scale[:, own])) for matrix, own in wide]
    together = np.hstack([scale[:, :0], *(scale[:, own] for _, own in narrow)])
    for block, rows in centred_blocks(matrices, layout, affine.source):
        for matrix, columns in apart:
            np.matmul(rows, columns, out=matrix[block])
        moved, start = rows @ together, 0
        for matrix, _ in narrow:
            matrix[block] = moved[:, start : start + matrix.shape[1]]
            start += matrix.shape[1]


def add_moved(
    matrices: Sequence[np.ndarray], layout: Layout, affine: AffineMap, total: np.ndarray
) -> None:
    """Map all rows, block by block, and add them to those of `total`, (rows, parameters)."""
    scale = np.column_stack([affine.scale, affine.target])
    for block, rows in centred_blocks(matrices, layout, affine.source):
        add_product(rows, scale, total[block])


def centred_blocks(
    matrices: Sequence[np.ndarray], layout: Layout, source: np.ndarray
) -> Iterator[tuple[slice, np.ndarray]]:
    """Give blocks of rows minus `source`, with a column of ones for sums and targets at the end.

    All blocks are in the same memory, one after another.
    """
    blocks = row_blocks(matrices[0].shape[0], layout.size + 1)
    buffer = np.ones((blocks[0].stop, layout.size + 1))
    centres = np.tile(np.append(source, 0.0), len(buffer))
    for block in blocks:
        yield block, gather(matrices, layout, block, centres, buffer)


def gather_all(matrices: Sequence[np.ndarray], layout: Layout) -> np.ndarray:
    """Return all rows as one contiguous (rows, parameters) array."""
    out = np.empty((matrices[0].shape[0], layout.size))
    for matrix, variable in zip(matrices, layout.variables, strict=True):
        out[:, variable.columns] = matrix
    return out


def flatten(
    data: Any,
    *,
    group: str = "posterior",
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    sample_dims: str | Sequence[str] | None = None,
) -> xr.DataArray:
    """Stack named variables into one array along a `parameter` coordinate.

    Parameters
    ----------
    data : InferenceData, DataTree, Dataset, or anything `merge` takes as one batch
    group : str, default "posterior"
    var_names : str or sequence of str, optional
        Variables to take, as in ArviZ (``"~name"`` leaves one out).
    filter_vars : {None, "like", "regex"}, optional
        How to read `var_names`, as in ArviZ.
    sample_dims : str or sequence of str, optional
        Dimensions of the draws, ``("chain", "draw")`` when absent.

    Returns
    -------
    DataArray
        Dimensions (chain, draw, parameter), or those of `sample_dims` and `parameter`. The
        coordinate `parameter` holds ArviZ's labels, the coordinate `variable` the variable that
        each parameter belongs to.

    Raises
    ------
    ValueError
        When `data` cannot be read as draws, or has no such group or variable.

    See Also
    --------
    unflatten : the inverse

    Examples
    --------
    >>> import numpy as np
    >>> from arviz_swiss.data import flatten
    >>> flat = flatten({"mu": np.zeros((4, 100)), "beta": np.ones((4, 100, 2))})
    >>> flat.parameter.values.tolist()
    ['mu', 'beta[0]', 'beta[1]']
    """
    dataset, dims = _read_draws(data, "data", group, sample_dims)
    layout = layout_of(dataset, select_names(dataset, var_names, filter_vars), dims)
    shape = [dataset.sizes[dim] for dim in dims]
    values = np.empty((*shape, layout.size))
    arrays = sample_arrays(dataset, layout, sample_dims=dims)
    for array, variable in zip(arrays, layout.variables, strict=True):
        values[..., variable.columns] = array.reshape(*shape, variable.size)
    return xr.DataArray(
        values,
        dims=(*dims, "parameter"),
        coords={dim: dataset[dim] for dim in dims if dim in dataset.coords}
        | {"parameter": layout.labels(), "variable": ("parameter", layout.owners())},
    )


def _read_draws(
    data: Any, argument: str, group: str, sample_dims: str | Sequence[str] | None
) -> tuple[xr.Dataset, tuple[str, ...]]:
    """Return the group of draws that an argument holds, and the dimensions of draws."""
    given = SAMPLE_DIMS if sample_dims is None else sample_dims
    dims = (given,) if isinstance(given, str) else tuple(given)
    with containers.reading(argument):
        groups = containers.read(data, group).groups
    containers.check_group(groups, group, argument, dims)
    return groups[group], dims


def unflatten(
    flat: xr.DataArray,
    like: Any,
    *,
    group: str = "posterior",
    sample_dims: str | Sequence[str] | None = None,
) -> xr.Dataset:
    """Split an array along `parameter` back into named variables.

    Parameters
    ----------
    flat : DataArray
        As `flatten` returns it; the draws may differ in number, and the parameters in order.
    like : InferenceData, DataTree or Dataset
        Gives the variables' dimensions and coordinates.
    group : str, default "posterior"
    sample_dims : str or sequence of str, optional
        Dimensions of the draws, ``("chain", "draw")`` when absent.

    Returns
    -------
    Dataset

    Raises
    ------
    TypeError
        When `flat` is not what `flatten` returned.
    ValueError
        When `like` lacks its variables, or it does not hold every element once.

    Examples
    --------
    >>> import numpy as np
    >>> from arviz_swiss.data import flatten, unflatten
    >>> data = {"mu": np.zeros((4, 100)), "beta": np.ones((4, 100, 2))}
    >>> unflatten(flatten(data), like=data)["beta"].dims
    ('chain', 'draw', 'beta_dim_0')
    """
    dataset, dims = _read_draws(like, "like", group, sample_dims)
    if not isinstance(flat, xr.DataArray) or "parameter" not in flat.dims:
        raise TypeError(f"flat must be what flatten returned, got {containers.brief_type(flat)}.")
    named = set(flat["variable"].values.tolist())
    if unknown := sorted(named - set(dataset.data_vars)):
        raise ValueError(f"like has no variable {', '.join(unknown)}, which flat has.")
    layout = layout_of(dataset, [name for name in dataset.data_vars if name in named], dims)
    wanted, labels = layout.labels(), flat["parameter"].values.tolist()
    positions = positions_of(wanted, labels)
    if positions is None:
        known, present = dict.fromkeys(wanted), dict.fromkeys(labels)
        missing = [label for label in known if label not in present]
        extra = [label for label in present if label not in known]
        raise ValueError(
            "flat does not hold every parameter of its variables once. "
            f"Missing: {brief(missing, 8) or 'none'}; not in like: {brief(extra, 8) or 'none'}. "
            "Select after unflatten instead of before."
        )
    if labels != wanted:
        flat = flat.isel(parameter=positions)
    values = flat.transpose(*dims, "parameter").values
    arrays = {
        variable.name: values[..., variable.columns]
        .reshape(*values.shape[:-1], *variable.shape)
        .astype(dataset.variables[variable.name].dtype, copy=False)
        for variable in layout.variables
    }
    coords = {dim: flat[dim] for dim in dims if dim in flat.coords}
    return dataset_from(arrays, layout, coords, dims)


def positions_of(
    wanted: Sequence[Any] | pd.Index, labels: Sequence[Any] | pd.Index
) -> np.ndarray | None:
    """Return where each wanted label is; None unless the labels are the wanted ones, each once."""
    expected, present = pd.Index(wanted), pd.Index(labels)
    if expected.equals(present):
        return np.arange(len(present))
    if len(expected) != len(present) or not (expected.is_unique and present.is_unique):
        return None
    positions = present.get_indexer(expected)
    return None if (positions < 0).any() else positions


def dataset_from(
    arrays: Mapping[str, np.ndarray],
    layout: Layout,
    coords: Mapping[str, Any],
    sample_dims: Sequence[str] = SAMPLE_DIMS,
) -> xr.Dataset:
    """Return named arrays, draws first, as a Dataset with the layout's coordinates."""
    data = {
        variable.name: ((*sample_dims, *variable.dims), arrays[variable.name])
        for variable in layout.variables
        if variable.name in arrays
    }
    used = {dim for dims, _ in data.values() for dim in dims}
    own = {
        name: (coord.dims, coord.variable, containers.safe_attrs(coord.attrs))
        if coord.attrs
        else coord
        for name, coord in layout.coords.items()
        if set(coord.dims) <= used
    }
    return xr.Dataset(data, coords={**own, **coords})

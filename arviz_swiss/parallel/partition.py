"""Split the rows of a table into batches: shuffled, by whole groups, stratified."""

import contextlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from arviz_swiss.base.seeds import generator
from arviz_swiss.parallel import frames
from arviz_swiss.parallel.assigning import assign, check_filled, row_numbers
from arviz_swiss.parallel.batch_rows import BatchRows, Split, load_rows
from arviz_swiss.parallel.dealing import deal_groups, deal_rows, group_strata, pack_groups
from arviz_swiss.parallel.tables import Table, opened_table


def partition(
    data_or_n: Any,
    batches: int,
    *,
    groups: Any = None,
    stratify: Any = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> list[np.ndarray]:
    """Assign every row to one of `batches` batches at random.

    Rows are shuffled before they are dealt out, because a table sorted by time, site or outcome
    gives sub-posteriors that disagree and a merge that means nothing.

    Parameters
    ----------
    data_or_n : int, array, DataFrame, dict of arrays, xarray Dataset, or path
        The data, or the number of rows. Rows run along the first axis of arrays, and along the one
        dimension that all variables of a Dataset share. DataFrames are those of pandas, polars, and
        whatever else narwhals reads, and pyarrow's Tables. A path, a pattern or a list of them are
        Parquet files; these, Dask DataFrames, LazyFrames of polars and Datasets of pyarrow are read
        block by block, and labels must then be names of columns.
    batches : int
        Number of batches.
    groups : array-like or hashable, optional
        One label per row, or the name of a column of `data_or_n`, or of its index. Rows with the
        same label stay in the same batch, and batch sizes are balanced as well as whole groups
        allow.
    stratify : array-like or hashable, optional
        The same. Every label is spread evenly: the number of its rows differs by at most one
        between batches. Together with `groups` the label must be constant within each group, and it
        is the number of groups that differs by at most one.
    random_seed : int or numpy.random.Generator, optional
        Seed of the shuffle. The same seed gives the same batches.
    progressbar : bool, default True
        Where labels are read block by block, show progress in a terminal or a notebook: a bar over
        the rows, where it takes more than a second.

    Returns
    -------
    list of ndarray of int
        One array of row numbers per batch, each sorted in increasing order, none empty. Every row
        is in exactly one of them. Without `groups` the sizes differ by at most one; but rows that
        are read block by block go to batches independently of one another, however they are sorted,
        so that sizes vary by about their square root, unless rows are stratified.

    Raises
    ------
    ValueError
        If a batch would be empty (more batches than rows or groups), if labels are missing or have
        the wrong length, or if `stratify` varies within a group.
    TypeError
        If `data_or_n` has no rows to count, or `batches` is not an integer.

    See Also
    --------
    take : Select the rows of one batch.

    Examples
    --------
    >>> import numpy as np
    >>> from arviz_swiss.parallel.partition import partition
    >>> [index.size for index in partition(10, 3, random_seed=0)]
    [3, 3, 4]

    Two of ten rows have the rare feature; each batch gets one of them.

    >>> rare = np.array([1, 1, 0, 0, 0, 0, 0, 0, 0, 0])
    >>> [int(rare[index].sum()) for index in partition(10, 2, stratify=rare, random_seed=0)]
    [1, 1]

    Whole groups:

    >>> school = np.array(["a", "a", "b", "b", "b", "c"])
    >>> sorted("".join(school[index]) for index in partition(6, 2, groups=school))
    ['aac', 'bbb']
    """
    with opened_table(data_or_n, show=progressbar) as table:
        if isinstance(table, Table):
            return _partition_table(table, batches, groups, stratify, random_seed)
    n_rows = row_count(data_or_n)
    batches = check_batches(batches, n_rows)
    rng = generator(random_seed)
    strata = np.zeros(n_rows, dtype=np.intp)
    if stratify is not None:
        strata = _codes(data_or_n, stratify, "stratify", n_rows)
    if groups is None:
        owner = deal_rows(strata, batches, rng)
    else:
        codes = _codes(data_or_n, groups, "groups", n_rows)
        n_groups = codes.max() + 1
        if n_groups < batches:
            raise ValueError(
                f"{batches} batches of only {n_groups} groups would leave a batch empty. Pass "
                f"batches={n_groups} or fewer, or finer groups."
            )
        sizes = np.bincount(codes)
        if stratify is None:
            owner = pack_groups(sizes, batches, rng)[codes]
        else:
            owner = deal_groups(group_strata(codes, strata), sizes, batches, rng)[codes]
    return _members(owner, batches)


def _partition_table(
    table: Table, batches: int, groups: Any, stratify: Any, random_seed: Any
) -> list[np.ndarray]:
    batches = check_batches(batches, table.rows)
    assignment = assign(table, batches, groups, stratify, random_seed)
    indices = row_numbers(table, assignment, batches)
    check_filled(np.array([index.size for index in indices]))
    return indices


def group_count(data_or_n: Any, groups: Any) -> int:
    """Return how many groups the rows belong to, by labels of `partition`."""
    if isinstance(data_or_n, Table):
        return len(data_or_n.groups(groups).sizes)
    return int(_codes(data_or_n, groups, "groups", row_count(data_or_n)).max()) + 1


def take(data: Any, index: Any) -> Any:
    """Select rows of any of the data types that `partition` takes; lists become arrays."""
    if isinstance(data, int | np.integer):
        raise TypeError(f"the data are needed, got only their number of rows, {data}.")
    if isinstance(index, BatchRows):
        return index.load()
    row_count(data)
    index = np.asarray(index)
    if is_dataset(data):
        return data.isel({_row_dimension(data): index})
    if isinstance(data, Mapping):
        return {name: take(values, index) for name, values in data.items()}
    if frames.is_frame(data):
        return frames.take_rows(data, index)
    if hasattr(data, "iloc"):
        return data.iloc[index]
    if hasattr(data, "isel"):
        return data.isel({data.dims[0]: index})
    if hasattr(data, "shape"):
        return data[index]
    return np.asarray(data)[index]


def take_together(data: Any, indices: Sequence[Any], most: int | None = None) -> Any:
    """Select the rows of several batches, in the order of the data where they are in memory.

    Of batches in files no more than `most` rows each.
    """
    if isinstance(data, Split):
        return load_rows(list(indices), most)
    return take(data, np.sort(np.concatenate(list(indices))))


class RowsHere(NamedTuple):
    """Rows of data in this process, which nobody has copied yet."""

    data: Any
    index: Any

    def load(self) -> Any:
        """Select the rows."""
        return take(self.data, self.index)


def packed(data: Any, index: Any, *, stays_here: bool = False) -> Any:
    """Return what a worker needs to have the rows of a batch: themselves, or where they are.

    A task that `stays_here`, in this process, waits without a copy of its rows.
    """
    if isinstance(index, BatchRows):
        return index
    return RowsHere(data, index) if stays_here else take(data, index)


def unpacked(rows: Any) -> Any:
    """Return the rows of a batch in the worker that has got them, or where they are."""
    return rows.load() if isinstance(rows, BatchRows | RowsHere) else rows


def row_count(data_or_n: Any) -> int:
    """Count the rows of the data types that `partition` takes; an int is its own count."""
    if isinstance(data_or_n, int | np.integer) and not isinstance(data_or_n, bool):
        return int(data_or_n)
    if isinstance(data_or_n, Table | Split):
        return data_or_n.rows
    if is_dataset(data_or_n):
        return int(data_or_n.sizes[_row_dimension(data_or_n)])
    if isinstance(data_or_n, Mapping):
        return _common_length(data_or_n)
    shape = data_or_n.shape if hasattr(data_or_n, "shape") else None
    if isinstance(data_or_n, list) and any(getattr(entry, "ndim", 0) for entry in data_or_n):
        raise TypeError(
            "A list of arrays may hold rows or columns. Pass columns as a dict of arrays, and rows "
            "as one array."
        )
    if shape is None and isinstance(data_or_n, list):
        with contextlib.suppress(ValueError):  # of arrays of unequal shapes, which are no rows
            shape = np.shape(data_or_n)
    if not shape:
        raise TypeError(
            f"Cannot count the rows of {type(data_or_n).__name__!r}. Pass the number of rows, an "
            "array, a DataFrame, a dict of arrays, an xarray Dataset, or paths of Parquet files."
        )
    return int(shape[0])


def is_dataset(data: Any) -> bool:
    """Tell an xarray Dataset."""
    return hasattr(data, "data_vars")


def _row_dimension(dataset: Any) -> Hashable:
    """Name the one dimension that all variables of an xarray Dataset share."""
    dims = [set(variable.dims) for variable in dataset.data_vars.values()]
    shared = set.intersection(*dims) if dims else set()
    if len(shared) != 1:
        names = ", ".join(sorted(map(repr, shared))) or "none"
        raise ValueError(
            "Expected exactly one dimension common to all variables of the Dataset, which is then "
            f"the dimension of the rows; found {names}. Pass the number of rows to partition and "
            "select with Dataset.isel, or a Dataset with only the variables that have rows."
        )
    return shared.pop()


def _common_length(data: Mapping) -> int:
    lengths = {}
    for name, values in data.items():
        try:
            lengths[name] = row_count(values if _has_length(values) else None)
        except TypeError:
            raise TypeError(
                f"Entry {name!r} of the data has no rows (got {type(values).__name__!r}). Pass "
                "only arrays with one entry per row; keep constants in the function that builds "
                "the model."
            ) from None
    if len(set(lengths.values())) != 1:
        raise ValueError(
            f"The arrays of the data must have the same number of rows; got {lengths or 'none'}."
        )
    return next(iter(lengths.values()))


def _has_length(values: Any) -> bool:
    return isinstance(values, list) or np.ndim(values) > 0


def check_batches(batches: Any, n_rows: int | None) -> int:
    """Return the number of batches; refuse what is none, or leaves batches of the rows empty."""
    if not isinstance(batches, int | np.integer) or isinstance(batches, bool):
        raise TypeError(f"batches must be an integer, got {batches!r}.")
    if batches < 1:
        raise ValueError(f"batches must be at least 1, got {batches}.")
    if n_rows is None:
        return int(batches)
    if n_rows < 1:
        raise ValueError(f"the data has no rows to divide, got {n_rows}.")
    if batches > n_rows:
        raise ValueError(
            f"{batches} batches of only {n_rows} rows would leave a batch empty. Pass "
            f"batches={max(n_rows, 1)} or fewer."
        )
    return int(batches)


def _codes(data: Any, labels: Any, argument: str, n_rows: int) -> np.ndarray:
    """Replace the distinct labels of the rows by the numbers 0, 1, 2, ..."""
    values = column(data, labels, argument)
    if values.shape != (n_rows,):
        raise ValueError(
            f"{argument} must have one label per row: expected shape ({n_rows},), got "
            f"{values.shape}."
        )
    missing = is_missing(values)
    if missing.any():
        raise ValueError(
            f"{argument} has {np.count_nonzero(missing)} missing labels, the first in row "
            f"{np.argmax(missing)}. Give those rows a label, or drop them."
        )
    if values.dtype == object:
        numbers = {label: number for number, label in enumerate(dict.fromkeys(values.tolist()))}
        return np.array([numbers[label] for label in values.tolist()], dtype=np.intp)
    return np.unique(values, return_inverse=True)[1]


def is_missing(values: np.ndarray) -> np.ndarray:
    """Tell which labels are None, NaN or NaT."""
    if values.dtype == object:
        return np.array([v is None or not _equals_itself(v) for v in values.tolist()], dtype=bool)
    return values != values


def _equals_itself(label: Any) -> bool:
    try:
        return bool(label == label)
    except (TypeError, ValueError):  # pandas.NA == pandas.NA is neither true nor false
        return False


def column(data: Any, labels: Any, argument: str) -> np.ndarray:
    """Labels as an array; a name is looked up among the columns of the data, then its index."""
    if not isinstance(labels, tuple) and (np.ndim(labels) or not isinstance(labels, Hashable)):
        return np.asarray(labels)
    if _has_column(data, labels):
        if frames.is_frame(data):
            return frames.column_array(data, str(labels))
        return np.asarray(data[labels])
    if isinstance(labels, tuple):
        return np.asarray(labels)
    if labels in index_names(data):
        return np.asarray(data.index.get_level_values(labels))
    names = ", ".join(str(name) for name in _columns(data))
    raise ValueError(
        f"{argument}={labels!r} is not a column of the data ({type(data).__name__}"
        f"{f' with {names}' if names else ''}). Pass the name of a column, or an array with one "
        "label per row."
    )


def index_names(data: Any) -> list[Hashable]:
    """Return the names of the index of what pandas has made."""
    names = data.index.names if isinstance(data, pd.DataFrame | pd.Series) else ()
    return [name for name in names if name is not None]


def _has_column(data: Any, name: Hashable) -> bool:
    """Tell whether a name selects a column; of plain arrays it would select a row."""
    try:
        return name in _columns(data)
    except TypeError:  # a tuple of labels that cannot be a name
        return False


def _columns(data: Any) -> Any:
    if isinstance(data, np.ndarray):
        return data.dtype.names or ()
    if isinstance(data, Mapping) or is_dataset(data):
        return data
    if frames.is_frame(data):
        return frames.column_names(data)
    return getattr(data, "columns", getattr(data, "coords", ()))


def _members(owner: np.ndarray, batches: int) -> list[np.ndarray]:
    """Sorted row numbers of each batch."""
    order = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner, minlength=batches))[:-1]
    return np.split(order, ends)

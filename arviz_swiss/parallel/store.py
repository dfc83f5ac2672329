"""Keep finished batches in a folder: written whole or not at all, and read back only if whole."""

import contextlib
import datetime
import errno
import hashlib
import json
import numbers
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import xarray as xr

from arviz_swiss.data import containers, schema
from arviz_swiss.data.messages import MergeWarning
from arviz_swiss.data.temporaries import temporary_name
from arviz_swiss.parallel import frames

SETTINGS = "settings.json"
# Bytes of an array that are hashed at once.
BYTES_HASHED = 2**24
# Attribute of a result that tells the run it is of.
RUN = "swiss_result_of"

# What file systems without hard links say: exFAT, and many that are mounted over a network.
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL)

# Values whose text says all about them; that of arrays is abbreviated.
PRINTED = (str, bytes, numbers.Number, np.generic, datetime.date, datetime.timedelta, type(None))
# Kinds of arrays that hold numbers as pandas calls them.
NUMBERS = {"boolean": "b", "floating": "f", "integer": "iu"}


def fingerprint(data: Any) -> str:
    """Return a short text that differs whenever the values, names or types of the data differ.

    The data may be arrays, tables, Datasets, dicts or lists of these, or whatever can be pickled.
    """
    return joblib.hash(_plain(data))[:16]


def _plain(data: Any) -> Any:
    """Return nested lists of text, arrays by their hash, one at a time.

    By itself joblib.hash tells apart equal values that lie otherwise in memory, or of which one
    object stands in two places, and orders keys of several types by a hash of the process.
    """
    if isinstance(data, str):
        return data
    if isinstance(data, PRINTED):
        return [type(data).__name__, repr(data)]
    if isinstance(data, xr.Dataset | xr.DataArray):
        return _plain(data.to_dict(data="array"))
    if isinstance(data, Mapping):
        return ["mapping", *([_plain(k), _plain(data[k])] for k in sorted(data, key=repr))]
    if isinstance(data, set | frozenset):
        return ["set", *sorted(map(fingerprint, data))]
    if hasattr(data, "iloc"):
        columns = data.items() if data.ndim == 2 else [(data.name, data)]
        named = [[_plain(name), _plain_column(column)] for name, column in columns]
        return ["table", named, _plain(data.index)]
    if frames.is_frame(data):
        columns = zip(frames.column_names(data), frames.column_arrays(data), strict=True)
        return ["table", [[_plain(name), _plain(column)] for name, column in columns]]
    if isinstance(data, pd.RangeIndex):
        return ["array", _digest(data)]
    if isinstance(data, pd.Index):
        return _plain(data.to_numpy())
    if hasattr(data, "__dask_graph__"):
        return _plain(np.asarray(data))
    if isinstance(data, np.ma.MaskedArray):
        return ["masked", _plain(np.ma.getmaskarray(data)), _plain(data.filled())]
    if isinstance(data, np.ndarray) and not data.dtype.hasobject:
        return ["array", _digest(data)]
    if isinstance(data, np.ndarray):
        return ["array of objects", list(data.shape), _plain_entries(data.ravel())]
    if isinstance(data, list | tuple):
        return [type(data).__name__, len(data), _plain_entries(data)]
    return ["object", joblib.hash(data)]


def _digest(values: np.ndarray | pd.RangeIndex) -> str:
    """Return a hash of an array's type, shape and values, a few rows of which are copied at once.

    It is the same however the values lie in memory.
    """
    digest = hashlib.blake2b(repr((values.dtype, values.shape)).encode(), digest_size=16)
    if not values.shape:
        digest.update(np.ascontiguousarray(values).view(np.uint8).data)
    elif values.size:
        rows = max(BYTES_HASHED * len(values) // values.nbytes, 1)
        for start in range(0, len(values), rows):
            block = np.ascontiguousarray(values[start : start + rows])
            digest.update(block.view(np.uint8).data)
    return digest.hexdigest()


def _plain_column(column: Any) -> Any:
    """Return one column of a table; the codes of categories, which models may use, are its own."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        categories = _plain(dtype.categories.to_numpy())
        return ["categories", dtype.ordered, categories, _plain(column.cat.codes.to_numpy())]
    if isinstance(dtype, pd.DatetimeTZDtype):
        return [str(dtype), _plain(column.dt.tz_convert(None).to_numpy())]
    return _plain(column.to_numpy())


def _plain_entries(entries: Any) -> Any:
    """Return many objects, at once where all are of one common type."""
    kind = pd.api.types.infer_dtype(entries, skipna=False)
    if kind in NUMBERS:
        array = np.array([*entries])
        if array.dtype.kind in NUMBERS[kind]:  # not integers that are too large for one
            return _plain(array)
    if pd.api.types.infer_dtype(entries, skipna=True) == "string":
        texts = np.array(entries, dtype=object)
        missing = pd.isna(texts)
        return [_plain(missing), _plain(pd.util.hash_array(np.where(missing, "", texts)))]
    return [*map(_plain, entries)]


def read_settings(folder: Path) -> dict[str, Any] | None:
    """Return the settings that a folder was made with, or None if it holds no batches yet."""
    path = folder / SETTINGS
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        # settings come before batches, so that another process may have written both meanwhile
        if any(folder.glob("b*.nc")) and not path.exists():
            raise ValueError(
                f"folder {folder} holds batches but no {SETTINGS} that says how they were made. "
                "Pass another folder, or empty this one."
            ) from None
        return None
    except ValueError as error:
        raise _not_settings(path, str(error)) from error
    if not isinstance(settings, dict):
        raise _not_settings(path, f"it holds a {type(settings).__name__}, expected an object")
    if type(seed := settings.get("random_seed")) is not int or seed < 0:
        raise _not_settings(path, f"its random_seed is {seed!r}, expected an integer")
    return settings


def _not_settings(path: Path, reason: str) -> ValueError:
    return ValueError(
        f"{path} cannot be read as the settings of a folder: {reason}. Pass another folder, or "
        "empty this one."
    )


def require_same(recorded: Mapping[str, Any], settings: Mapping[str, Any], folder: Path) -> None:
    """Refuse a folder whose batches were made with other settings; both are flat."""
    now = json.loads(json.dumps(settings))
    if "partition" in now and "partition" not in recorded:
        raise ValueError(
            f"folder {folder} was made by an earlier version of arviz_swiss, which did not record "
            "the partition, so that it cannot be resumed. Pass another folder to begin anew."
        )
    names = [name for name in {**recorded, **now} if recorded.get(name) != now.get(name)]
    if names:
        changes = ", ".join(f"{name}: {recorded.get(name)} → {now.get(name)}" for name in names)
        raise ValueError(
            f"folder {folder} was made with other settings: {changes}. Pass the same settings to "
            "resume it, or another folder to begin anew."
        )


def create_settings(folder: Path, settings: Mapping[str, Any]) -> bool:
    """Make the folder if need be and record the settings in it, unless it has settings already.

    Returns whether these are now the folder's settings: of several processes at once, one alone
    gets True, and the others read what it wrote, whole. Settings are flat, of text, numbers and
    None, with a `random_seed`.
    """
    text = json.dumps(settings, indent=2) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_whole(folder / SETTINGS, text.encode(), replace=False)
    except OSError as error:
        if isinstance(error, FileExistsError) and (folder / SETTINGS).exists():
            return False
        raise OSError(
            error.errno,
            f"folder {folder} cannot be written to: {error.strerror}. Pass another folder",
        ) from error
    return True


def write_batch(folder: Path, label: str, idata: Any) -> None:
    """Write one batch, so that its file is either complete or not there."""
    groups = containers.read(idata).groups
    _write_groups(_path(folder, label), groups, {}, f"batch {label} was sampled")


def write_result(
    folder: Path, name: str, groups: containers.Groups, attrs: Mapping[str, Any]
) -> None:
    """Write what a stage has made of a run, whole or not at all; `attrs` tell the run."""
    _write_groups(
        _path(folder, name),
        groups,
        {RUN: json.dumps(attrs)},
        f"stage {name} was done",
        ". Mend the cause and run the same call again, or pass another folder",
    )


def _write_groups(
    path: Path, groups: containers.Groups, attrs: Mapping[str, str], done: str, remedy: str = ""
) -> None:
    """Write a file of groups. Nothing is left behind if the disk is full.

    `done` says in an error what is lost, `remedy` what to do.
    """
    tree = xr.DataTree.from_dict({f"/{name}": dataset for name, dataset in groups.items()})
    tree.attrs = dict(attrs)
    # HDF5 crashes the whole process when the disk fills up under it, so it never sees the disk.
    with _no_cluster_locks():
        content = tree.to_netcdf(engine="h5netcdf")
    try:
        # released here: a view that a traceback keeps can outlive the memory that it shows
        with content:
            _write_whole(path, content)
    except OSError as error:
        raise OSError(
            error.errno,
            f"{done} but could not be saved in {path.parent}: {error.strerror}{remedy}",
        ) from error


def read_result(folder: Path, name: str, attrs: Mapping[str, Any]) -> containers.Groups | None:
    """Read what a stage has made of this run into memory; None if it is not there or another."""
    path = _path(folder, name)
    if not path.exists():
        return None
    try:
        with xr.open_datatree(path, engine="h5netcdf") as tree:
            if tree.attrs.get(RUN) != json.dumps(attrs):
                return None
            return {str(k): node.to_dataset().load() for k, node in tree.children.items()}
    except Exception:  # a damaged file is made anew
        return None


def read_batch(folder: Path, label: str, attrs: Mapping[str, Any] | None = None) -> Any | None:
    """Read one batch into memory, or return None if it is not there or not whole.

    `attrs` are attributes that its posterior must have: they tell the run that it belongs to. A
    file of another run or batch is refused, and left alone.
    """
    path = _path(folder, label)
    if not path.exists():
        return None
    try:
        groups = containers.read(path).groups
        loaded = {name: dataset.load() for name, dataset in groups.items()}
        containers.close(groups)
        recorded = loaded["posterior"].attrs
        held = recorded[schema.BATCH]
    except Exception as error:
        warnings.warn(
            f"batch {label}: {path} cannot be read to its end ({error}); it is sampled again.",
            MergeWarning,
            stacklevel=3,
        )
        return None
    if held != label:
        raise ValueError(
            f"{path} holds batch {held}, not {label}. Move the file away and run the same call "
            "again to have the batch sampled."
        )
    if names := [name for name, value in (attrs or {}).items() if recorded.get(name) != value]:
        raise ValueError(
            f"{path} is of another run than {SETTINGS} beside it: {', '.join(names)} differ. "
            "Batches of two partitions cannot be merged. Move the file away and run the same call "
            "again to have the batch sampled, or pass another folder."
        )
    return containers.build(loaded)


def _no_cluster_locks() -> contextlib.AbstractContextManager:
    """Keep xarray from asking an active Dask cluster for a lock, which memory cannot have."""
    dask = sys.modules.get("dask")
    return contextlib.nullcontext() if dask is None else dask.config.set(scheduler="synchronous")


def _path(folder: Path, label: str) -> Path:
    return folder / f"{label}.nc"


def _write_whole(path: Path, content: bytes | memoryview, replace: bool = True) -> None:
    """Write to a temporary name that no reader looks at, and rename once all is on the disk."""
    temporary = temporary_name(path)
    try:
        _write_new(temporary, content)
        if replace:
            os.replace(temporary, path)
        else:
            _link(temporary, path, content)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    _sync_folder(path.parent)


def _write_new(path: Path, content: bytes | memoryview) -> None:
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _link(temporary: Path, path: Path, content: bytes | memoryview) -> None:
    """Give a file its name unless the name is taken, which a rename would not notice."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        # what a process that is killed here leaves behind is no JSON, and is refused
        _write_new(path, content)


def _sync_folder(folder: Path) -> None:
    """Put the new name itself on the disk, where the system lets folders be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

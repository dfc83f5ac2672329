"""Files of groups that are written whole or not at all, and say what they are."""

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import Groups
from arviz_swiss.data.temporaries import clean, temporary_name

# What a file is, by the group that tells it.
HOLDS = {**schema.SENT, schema.POSTERIOR: "draws"}


def write_groups(
    path: str | os.PathLike, groups: Groups, attrs: Mapping[str, Any] | None = None
) -> None:
    """Write a netCDF file of groups; under its name it is there complete, or not at all."""
    tree = xr.DataTree.from_dict({f"/{name}": dataset for name, dataset in groups.items()})
    tree.attrs = containers.safe_attrs(attrs or {})
    # HDF5 crashes the whole process when the disk fills up under it, so it never sees the disk.
    with _no_cluster_locks():
        content = tree.to_netcdf(engine="h5netcdf")
    # released here: a view that a traceback keeps can outlive the memory that it shows
    with content:
        write_bytes(path, content)


def write_bytes(path: str | os.PathLike, content: bytes | memoryview) -> None:
    """Write a file; under its name it is there complete, or not at all."""
    target = Path(path)
    clean(target.parent, target.name)
    temporary = temporary_name(target)
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise OSError(error.errno, f"{target} could not be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _no_cluster_locks() -> contextlib.AbstractContextManager:
    """Keep xarray from asking an active Dask cluster for a lock, which memory cannot have."""
    dask = sys.modules.get("dask")
    return contextlib.nullcontext() if dask is None else dask.config.set(scheduler="synchronous")


def holds(path: Any, group: str) -> bool:
    """Tell a file that can be read and has this group."""
    if not isinstance(path, str | os.PathLike) or not os.path.exists(path):
        return False
    try:
        groups = containers.read(path).groups
    except Exception:  # whoever reads it next says what is wrong with it
        return False
    containers.close(groups)
    return group in groups


def read_groups(path: str | os.PathLike, main: str, wanted: str) -> Groups:
    """Read a file of groups into memory, of which `main` must be one.

    `wanted` is what an error asks for instead.
    """
    name = os.fspath(path)
    with containers.reading(f"file {name}", wanted):
        groups = containers.read(path).groups
        loaded = {key: dataset.load() for key, dataset in groups.items()}
        containers.close(groups)
    if main not in loaded:
        known = (schema.PLAN, schema.MOMENTS, schema.POSTERIOR)
        held = next((HOLDS[key] for key in known if key in loaded), ", ".join(loaded) or "nothing")
        raise ValueError(f"file {name} holds {held}, not {HOLDS[main]}. Pass {wanted}.")
    return loaded

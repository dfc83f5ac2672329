"""The groups of a file, each opened when it is asked for: opening takes longer than reading."""

from collections.abc import Iterator, Mapping

import h5py
import xarray as xr

from arviz_swiss.data import containers
from arviz_swiss.data.containers import Groups


class FileGroups(Mapping[str, xr.Dataset]):
    """The groups of a netCDF or zarr file, whose draws are `group`; errors call it `name`.

    Those of a zarr file are opened all at once.
    """

    def __init__(self, path: str, group: str, name: str):
        self._path, self._name = path, name
        self._opened: Groups = {}
        with containers.reading(name):
            self._names = _names(path)
            if not self._names:
                self._opened = containers.open_file(path, group)
                self._names = list(self._opened)

    def __getitem__(self, key: str) -> xr.Dataset:
        if key not in self._names:
            raise KeyError(key)
        if key not in self._opened:
            with containers.reading(self._name):
                self._opened[key] = containers.open_group(self._path, key)
        return self._opened[key]

    def __contains__(self, key: object) -> bool:
        return key in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def close(self) -> None:
        """Release the file."""
        containers.close(self._opened)


def _names(path: str) -> list[str]:
    """Return the names of an HDF5 file's groups; none of any other file, or one without groups.

    Where variables stand beside the groups, whose coordinates they may be, none either.
    """
    try:
        with h5py.File(path, "r") as file:
            kinds = {name: isinstance(member, h5py.Group) for name, member in file.items()}
    except OSError:
        return []
    return list(kinds) if all(kinds.values()) else []

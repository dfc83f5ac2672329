"""Files that commands are given: checked before any work, and written whole."""

import importlib
import io
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# How names of netCDF files end.
NETCDF = (".nc", ".nc4", ".cdf", ".netcdf", ".h5", ".hdf5")


def check_inputs(*paths: str | None) -> None:
    """Refuse what is no file before anything is read; None is a file that was not given."""
    for path in paths:
        if path is None:
            continue
        if not os.path.exists(path):
            is_pattern = any(sign in path for sign in "*?[")
            raise ValueError(f"no file {'matches' if is_pattern else 'named'} {path!r}.")
        if os.path.isdir(path):
            from arviz_swiss.data import stores

            if not stores.is_store(path):
                raise ValueError(f"{path!r} is a folder and no zarr store: name the files in it.")


def check_netcdf(path: Path, overwrite: bool, inputs: Sequence[str] = ()) -> None:
    """Refuse a netCDF file that cannot or shall not be written, before any work is done for it."""
    check_output(path, overwrite, inputs)
    if path.suffix not in NETCDF:
        raise ValueError(
            f"output {str(path)!r} would be netCDF: let its name end in .nc; merge --into writes "
            "zarr."
        )


def check_output(path: Path, overwrite: bool, inputs: Sequence[str] = ()) -> None:
    """Refuse a file that cannot or shall not be written, before any work is done for it."""
    if path.exists() and not path.is_file():
        raise ValueError(f"output {str(path)!r} is a folder or device: name a file.")
    _check_place(path, overwrite, inputs)


def check_page(path: Path, overwrite: bool, inputs: Sequence[str] = ()) -> None:
    """Refuse an HTML file that cannot or shall not be written, before any work is done for it."""
    check_output(path, overwrite, inputs)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"output {str(path)!r} would be HTML: let its name end in .html.")


def check_store(path: Path, overwrite: bool, inputs: Sequence[str] = ()) -> None:
    """Refuse a zarr store that cannot or shall not be written, before any work is done for it."""
    from arviz_swiss.data import stores

    if path.suffix != ".zarr":
        raise ValueError(f"output {str(path)!r} would be zarr: let its name end in .zarr.")
    stores.check_replaceable(path, inputs)
    _check_place(path, overwrite, inputs)


def _check_place(path: Path, overwrite: bool, inputs: Sequence[str]) -> None:
    if path.exists() and any(path.samefile(other) for other in inputs):
        raise ValueError(f"output {str(path)!r} is one of the inputs.")
    if path.exists() and not overwrite:
        raise ValueError(f"output {str(path)!r} exists: name another, or pass --overwrite.")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {str(path.parent)!r} for the output: make it first.")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ValueError(
            f"folder {str(path.parent)!r} of the output cannot be written to: {error.strerror}."
        ) from error


def save(merged: Any, path: Path) -> None:
    """Write a merged object as netCDF, whole or not at all."""
    from arviz_swiss.data import containers, files

    files.write_groups(path, containers.read(merged).groups, containers.root_attrs(merged))


def save_picture(figure: Any, path: Path) -> None:
    """Write a figure in the format that the file's name ends in, whole or not at all."""
    from arviz_swiss.data import files

    picture = io.BytesIO()
    figure.savefig(picture, format=path.suffix[1:] or None, dpi=150, bbox_inches="tight")
    files.write_bytes(path, picture.getvalue())


def load_function(text: str) -> Callable:
    """Return the function that MODULE:NAME stands for; modules of the current folder count."""
    module_name, _, name = text.partition(":")
    if not (module_name and name) or module_name.endswith(".py"):
        raise ValueError(f"{text!r} is no MODULE:NAME, such as models:density for models.py.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ValueError(
            f"{text!r}: no module {error.name}, neither in this folder nor installed."
        ) from error
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"{text!r}: importing {module_name} raised {type(error).__name__}: {error}"
        ) from error
    if not hasattr(module, name):
        raise ValueError(f"{text!r}: module {module_name} has no {name}.")
    function = getattr(module, name)
    if not callable(function):
        raise ValueError(f"{text!r} is a {type(function).__name__} and no function.")
    return function


def call_function(function: Callable, name: str, *arguments: str) -> Any:
    """Return what a function of the user returns; sys.exit() in it is an error like any other."""
    try:
        return function(*arguments)
    except (Exception, SystemExit) as error:
        said = ", ".join(f'"{argument}"' for argument in arguments)
        text = f"{name}({said}) raised {type(error).__name__}: {error}"
        raise ValueError(text.removesuffix(": ")) from error

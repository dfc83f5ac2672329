"""Zarr stores of merged objects: which may be replaced, and how they are written whole."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from arviz_swiss.data import schema, temporaries

# One of these is in every zarr store.
ZARR = (".zgroup", "zarr.json")


def is_store(path: str | os.PathLike) -> bool:
    """Tell a folder that is a zarr store."""
    return any(os.path.exists(os.path.join(path, name)) for name in ZARR)


def check_replaceable(target: Path, inputs: Iterable[str | os.PathLike] = ()) -> None:
    """Refuse to replace what is no merged object, or is read at the same time."""
    if not target.exists():
        return
    place = target.resolve()
    for other in inputs:
        if place in (source := Path(other).resolve(), *source.parents):
            raise ValueError(f"{target} is one of the inputs: choose another name.")
    if not is_store(target):
        raise ValueError(f"{target} is there and no zarr store: choose another name.")
    if not (target / schema.TRANSFORM).is_dir():
        raise ValueError(
            f"{target} is a zarr store, but of no merged object (it has no group "
            f"{schema.TRANSFORM}): choose another name, or remove it yourself."
        )


@contextlib.contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """Give a folder to write to, which takes the target's place once all is written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = temporaries.temporary_name(target)
    try:
        yield unfinished
        _swap(unfinished, target)
    finally:
        temporaries.remove(unfinished)


def _swap(new: Path, target: Path) -> None:
    """Put a folder in the place of another, which is back there if that fails."""
    before = temporaries.temporary_name(target, "old")
    with contextlib.suppress(FileNotFoundError):
        os.replace(target, before)
    try:
        os.replace(new, target)
    except BaseException:
        if before.exists():
            os.replace(before, target)
        raise
    temporaries.remove(before)

"""Write a merged object into a zarr store, one batch in memory at a time."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.base.linalg import AffineMap
from arviz_swiss.data import schema, stores, temporaries
from arviz_swiss.data.containers import Groups
from arviz_swiss.data.progress import Bar
from arviz_swiss.merging import combine
from arviz_swiss.merging.batches import Batch
from arviz_swiss.merging.local_draws import pack_moves
from arviz_swiss.merging.other_groups import find_beside, pack_part
from arviz_swiss.merging.shared_steps import Flat, Summary
from arviz_swiss.methods.registry import METHODS, Method

# Coordinates of the chains, which are written once all chains are there.
OF_CHAINS = ("chain", "batch")
# zarr's second format, which every reader of today knows, also for text of a fixed length.
FORMAT = 2


def check_into(into: Any, overwrite: bool, recipe: Method) -> Path:
    """Return where to write; refuse what cannot be written, before anything is read."""
    if not isinstance(into, str | os.PathLike):
        raise TypeError(f"into must be the path of a zarr store, got {type(into).__name__}.")
    target = Path(into)
    if target.suffix != ".zarr":
        raise ValueError(
            f"into={os.fspath(into)!r}: a merge is written batch by batch into a zarr store, so "
            f'its name must end in .zarr: into="{target.stem or "merged"}.zarr". For one netCDF '
            "file merge without into= and save the result, or save what the store holds."
        )
    if recipe.makes != "maps":
        known = ", ".join(f'"{name}"' for name, each in METHODS.items() if each.makes == "maps")
        raise ValueError(
            f'method "{recipe.name}" makes new draws, no more than one batch has, from those of '
            f"all batches: merge without into= and save the result. into= is for {known}."
        )
    _require_zarr()
    # the folder that a link stands for is replaced, not the link
    target = target.resolve()
    temporaries.clean(target.parent, target.name)
    stores.check_replaceable(target)
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} is there already: pass overwrite=True, or another name.")
    return target


def check_no_input(target: Path, batches: Sequence[Batch]) -> None:
    """Refuse to replace a store that the batches are read from."""
    sources = (batch.file or batch.draws.encoding.get("source") for batch in batches)
    stores.check_replaceable(target, [source for source in sources if source])


def _require_zarr() -> Any:
    try:
        import zarr
    except ModuleNotFoundError as error:
        raise ImportError("into= needs zarr, which is not installed: pip install zarr") from error
    return zarr


def write_into(
    target: Path,
    flat: Flat,
    summary: Summary,
    maps: Sequence[AffineMap],
    attrs: dict[str, Any],
    settled: Groups,
    bar: Bar,
) -> None:
    """Move one batch after the other and write its chains; the store is there whole or not at all.

    `settled` are the groups that say what was done to each batch.
    """
    batches, frame = flat.matched.batches, flat.frame
    length = combine.kept_length(batches)
    dtypes = combine.dtypes_of(batches, frame.layout.names)
    beside = find_beside(flat, summary.moments, length, attrs)
    if beside.moves is not None:
        beside = beside._replace(moves=beside.moves._replace(residuals={}))
    chains = sum(batch.sizes[0] for batch in batches)
    with stores.written_whole(target) as store:
        start = 0
        for batch, affine in zip(batches, maps, strict=True):
            draws = combine.move_batches([batch], frame, [affine], length, dtypes, start)
            part = pack_part(flat, summary.moments, beside, draws, [batch])
            for name, dataset in part.items():
                _write_part(store, name, dataset, start, chains)
            start += batch.sizes[0]
            bar()
        labels = np.array([batch.label for batch in batches for _ in range(batch.sizes[0])])
        coords = {"chain": np.arange(chains), "batch": ("chain", labels)}
        for name in part:
            _write_whole(store, name, xr.Dataset(coords=coords).assign_attrs(part[name].attrs))
        rest = dict(beside.data)
        if beside.moves is not None:
            rest[schema.LOCAL_MAPS] = pack_moves(beside.moves, batches, frame)
        for name, dataset in {**rest, **settled}.items():
            _write_whole(store, name, dataset)
        _require_zarr().consolidate_metadata(os.fspath(store), zarr_format=FORMAT)


def _write_whole(store: Path, group: str, dataset: xr.Dataset) -> None:
    # what was read from a file carries how it was stored there
    plain = dataset.drop_encoding()
    plain.to_zarr(store, group=group, mode="a", consolidated=False, zarr_format=FORMAT)


def _write_part(store: Path, group: str, dataset: xr.Dataset, start: int, chains: int) -> None:
    """Write the chains of one batch, from number `start` on; the first makes room for all."""
    kept = dataset.drop_vars([name for name in OF_CHAINS if name in dataset.coords])
    if start == 0:
        encoding = {
            name: {"chunks": (1, *array.shape[1:])} for name, array in kept.data_vars.items()
        }
        kept.drop_encoding().to_zarr(
            store,
            group=group,
            mode="a",
            consolidated=False,
            zarr_format=FORMAT,
            encoding=encoding,
        )
    stored = _require_zarr().open_group(os.fspath(store), path=group, mode="r+")
    for name, array in kept.data_vars.items():
        if start == 0:
            stored[name].resize((chains, *array.shape[1:]))
        else:
            stored[name][start : start + array.shape[0]] = array.values

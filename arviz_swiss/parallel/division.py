"""How the rows of a run were divided: what its batches record, and the same division once more."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arviz_swiss.data import schema
from arviz_swiss.parallel.batch_rows import Split
from arviz_swiss.parallel.partition import check_batches, partition
from arviz_swiss.parallel.splitting import split
from arviz_swiss.parallel.store import fingerprint
from arviz_swiss.parallel.tables import Table


def fingerprint_rows(indices: Sequence[np.ndarray]) -> str:
    """Return a short text that differs whenever the row numbers of a batch differ."""
    return fingerprint([np.asarray(index) for index in indices])


def fingerprint_data(data: Any) -> str:
    """Return a short text by which data are known again: all that they hold counts."""
    return data.fingerprint if isinstance(data, Table | Split) else fingerprint(data)


def fingerprint_division(data: Any, indices: Sequence[Any]) -> str:
    """Return a short text that differs whenever the rows of a batch differ."""
    return data.division if isinstance(data, Split) else fingerprint_rows(indices)


def divide(
    data: Any, batches: int, *, groups: Any = None, stratify: Any = None, random_seed: int
) -> tuple[Any, list[Any]]:
    """Return the data, and what `take` selects the rows of each batch by.

    A table that is not in memory is split into files, which stand for it from then on.
    """
    if isinstance(data, Table):
        check_batches(batches, None)
        data = split(data, batches, groups=groups, stratify=stratify, random_seed=random_seed)
        return data, list(data.batches)
    labels = {"groups": groups, "stratify": stratify}
    return data, partition(data, batches, **labels, random_seed=random_seed)


def division_attrs(
    data: Any,
    indices: Sequence[Any],
    random_seed: int,
    groups: Any = None,
    stratify: Any = None,
    shared: Sequence[str] = (),
) -> dict[str, str]:
    """Return the attributes by which batches tell how `divide_again` finds their rows.

    `shared` are the columns of the data that `share_levels` has changed. Of labels only names of
    columns are recorded: arrays can be as long as the data.
    """
    # as text: files and xarray's attributes may cut integers of 64 bits
    attrs = {schema.RANDOM_SEED: str(random_seed), schema.DATA: fingerprint_data(data)}
    if len(indices) > 1:
        attrs[schema.PARTITION] = fingerprint_division(data, indices)
    if shared:
        attrs[schema.SHARED] = json.dumps(list(shared))
    columns = {schema.GROUPS_BY: groups, schema.STRATIFY_BY: stratify}
    return attrs | {name: str(c) for name, c in columns.items() if isinstance(c, str)}


def divide_again(
    data: Any, attrs: Mapping[str, Any], batches: int, groups: Any = None, stratify: Any = None
) -> list[Any]:
    """Return the rows of each batch, as they were sampled; refuse other data and other labels.

    `attrs` are what `division_attrs` recorded; labels that were no names of columns must be given.
    """
    if schema.RANDOM_SEED not in attrs:
        raise ValueError(
            "the batches record no seed by which their rows could be found again (attribute "
            f"{schema.RANDOM_SEED}): sample_batches did not make them. Leave out build= and data=, "
            "and pass one density for each batch, of the rows that it was sampled with."
        )
    if schema.DATA in attrs and attrs[schema.DATA] != fingerprint_data(data):
        raise ValueError(
            "the data differ from those that sample_batches divided: in values, order of rows, "
            "names, types or index. Pass the same data. If they differ in nothing that matters, "
            "leave out build= and data=, and pass one density for each batch."
        )
    data, indices = divide(
        data,
        batches,
        groups=attrs.get(schema.GROUPS_BY) if groups is None else groups,
        stratify=attrs.get(schema.STRATIFY_BY) if stratify is None else stratify,
        random_seed=int(attrs[schema.RANDOM_SEED]),
    )
    division = fingerprint_division(data, indices)
    if schema.PARTITION in attrs and attrs[schema.PARTITION] != division:
        raise ValueError(
            f"the seed {attrs[schema.RANDOM_SEED]} divides the rows into {batches} batches "
            "otherwise than they were sampled: the data or the seed differ, or groups= and "
            "stratify=, or some batches are missing. Merge all of them, and pass the data, groups= "
            "and stratify= of sample_batches: labels that it got as an array, not as the name of a "
            "column, are not recorded."
        )
    return indices

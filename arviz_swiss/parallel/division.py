"""How the rows of a run were divided: what its batches record, and the same division once more."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arviz_swiss.data import schema
from arviz_swiss.parallel.partition import partition
from arviz_swiss.parallel.store import fingerprint


def fingerprint_rows(indices: Sequence[np.ndarray]) -> str:
    """Return a short text that differs whenever the row numbers of a batch differ."""
    return fingerprint(np.concatenate([np.append(len(index), index) for index in indices]))


def division_attrs(
    data: Any,
    indices: Sequence[np.ndarray],
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
    attrs = {schema.RANDOM_SEED: str(random_seed), schema.DATA: fingerprint(data)}
    if len(indices) > 1:
        attrs[schema.PARTITION] = fingerprint_rows(indices)
    if shared:
        attrs[schema.SHARED] = json.dumps(list(shared))
    columns = {schema.GROUPS_BY: groups, schema.STRATIFY_BY: stratify}
    return attrs | {name: str(c) for name, c in columns.items() if isinstance(c, str)}


def divide_again(
    data: Any, attrs: Mapping[str, Any], batches: int, groups: Any = None, stratify: Any = None
) -> list[np.ndarray]:
    """Return the rows of each batch, as they were sampled; refuse other data and other labels.

    `attrs` are what `division_attrs` recorded; labels that were no names of columns must be given.
    """
    if schema.RANDOM_SEED not in attrs:
        raise ValueError(
            "the batches record no seed by which their rows could be found again (attribute "
            f"{schema.RANDOM_SEED}): sample_batches did not make them. Leave out build= and data=, "
            "and pass one density for each batch, of the rows that it was sampled with."
        )
    if schema.DATA in attrs and attrs[schema.DATA] != fingerprint(data):
        raise ValueError(
            "the data differ from those that sample_batches divided: in values, order of rows, "
            "names, types or index. Pass the same data. If they differ in nothing that matters, "
            "leave out build= and data=, and pass one density for each batch."
        )
    indices = partition(
        data,
        batches,
        groups=attrs.get(schema.GROUPS_BY) if groups is None else groups,
        stratify=attrs.get(schema.STRATIFY_BY) if stratify is None else stratify,
        random_seed=int(attrs[schema.RANDOM_SEED]),
    )
    if schema.PARTITION in attrs and attrs[schema.PARTITION] != fingerprint_rows(indices):
        raise ValueError(
            f"the seed {attrs[schema.RANDOM_SEED]} divides the rows into {batches} batches "
            "otherwise than they were sampled: the data or the seed differ, or groups= and "
            "stratify=, or some batches are missing. Merge all of them, and pass the data, groups= "
            "and stratify= of sample_batches: labels that it got as an array, not as the name of a "
            "column, are not recorded."
        )
    return indices

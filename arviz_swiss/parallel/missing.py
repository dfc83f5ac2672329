"""Where the rows of a batch have no values: the likeliest reason why it cannot be sampled."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from arviz_swiss.parallel.frames import column_array, column_names, is_frame
from arviz_swiss.parallel.partition import is_dataset


def describe_missing(rows: Any) -> str:
    """Return in words which columns of some rows have missing values; nothing if none has."""
    counts = {name: _count(values) for name, values in _columns(rows)}
    found = [f"{name} ({count})" for name, count in counts.items() if count]
    if not found:
        return ""
    return (
        f"its rows have missing values in {', '.join(found)}: leave such rows out, or fill them in"
    )


def _columns(rows: Any) -> Iterator[tuple[str, np.ndarray]]:
    if is_frame(rows):
        yield from ((name, column_array(rows, name)) for name in column_names(rows))
    elif is_dataset(rows):
        yield from ((str(name), array.values) for name, array in rows.data_vars.items())
    elif isinstance(rows, Mapping):
        yield from ((str(name), np.asarray(values)) for name, values in rows.items())
    elif hasattr(rows, "columns"):
        yield from ((str(name), rows[name].to_numpy()) for name in rows.columns)
    else:
        values = np.asarray(rows)
        if values.ndim == 2:
            yield from ((f"column {at}", values[:, at]) for at in range(values.shape[1]))
        else:
            yield "the data", values


def _count(values: np.ndarray) -> int:
    """Return in how many rows there is a missing value."""
    missing = np.asarray(pd.isna(values))
    return int(missing.reshape(len(missing), -1).any(axis=1).sum())

"""Files of what `moments` and `plan` return: their format, and whether a file keeps to it."""

import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arviz_swiss.data import files, schema
from arviz_swiss.data.containers import Groups

# Raised whenever a file of one version could be misread by another.
VERSION = 1
# What errors call a file, and how it is made.
WRITTEN_BY = {schema.MOMENTS: "moments(...).save", schema.PLAN: "plan(...).save"}
MADE_AGAIN = {
    schema.MOMENTS: "Take moments of the draws again",
    schema.PLAN: "Plan again from the moments of all batches",
}


def write(path: str | os.PathLike, groups: Groups, main: str, record: Mapping[str, Any]) -> Path:
    """Write groups, of which `main` says what the file is and holds the record, as text."""
    attrs = {schema.FORMAT: VERSION, schema.RECORD: json.dumps(record)}
    try:
        files.write_groups(path, {**groups, main: groups[main].assign_attrs(attrs)})
    except (TypeError, ValueError) as error:
        raise ValueError(f"file {os.fspath(path)} could not be written: {error}.") from error
    return Path(path)


def read(
    path: str | os.PathLike,
    main: str,
    wanted: str,
    variables: Mapping[str, Sequence[str]],
    keys: Sequence[str],
) -> tuple[Groups, dict[str, Any]]:
    """Read groups and record; refuse a file that is damaged, of another type or version.

    `variables` by group and `keys` of the record must be there.
    """
    groups, name = files.read_groups(path, main, wanted), os.fspath(path)
    attrs = groups[main].attrs
    version = attrs.get(schema.FORMAT)
    if version != VERSION:
        is_later = isinstance(version, int | np.integer) and version > VERSION
        remedy = "Update arviz_swiss" if is_later else f"Write it again with {WRITTEN_BY[main]}"
        raise ValueError(
            f"file {name} has format {version}, but this version of arviz_swiss reads format "
            f"{VERSION}. {remedy}."
        )
    try:
        record = json.loads(attrs[schema.RECORD])
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(name, main, f"its attribute {schema.RECORD} cannot be read") from error
    if not isinstance(record, dict):
        raise damaged(name, main, f"its attribute {schema.RECORD} holds no names")
    if fault := _fault(groups, record, variables, keys):
        raise damaged(name, main, fault)
    groups[main].attrs = {}
    return groups, record


def _fault(
    groups: Groups, record: Mapping, variables: Mapping[str, Sequence[str]], keys: Sequence[str]
) -> str:
    """Say what is wrong with the content of a file, if anything is."""
    wanted = (schema.VARIABLES_OF_DRAWS, schema.VARIABLES_OF_MERGE, *variables)
    missing = [group for group in wanted if group not in groups]
    missing += [key for key in keys if key not in record]
    for group, names in variables.items():
        missing += [n for n in names if group in groups and n not in groups[group].variables]
    if missing:
        return f"it has no {', '.join(missing)}"
    for group, names in variables.items():
        for each in names:
            values = groups[group].variables[each].values
            if each != "rhat" and values.dtype.kind == "f" and not np.isfinite(values).all():
                return f"its {each} is not finite"
            if each == "draws" and not (values > 0).all():
                return f"its number of draws is {values.min()}"
    return ""


def refuse_arguments(
    path: str | os.PathLike, main: str, function: Callable, given: Mapping[str, Any]
) -> None:
    """Refuse arguments other than their defaults, which a file that is opened would not heed."""
    parameters = inspect.signature(function).parameters

    def is_default(name: str, value: Any) -> bool:
        default = parameters[name].default if name in parameters else inspect.Parameter.empty
        return value is default or (isinstance(value, str) and value == default)

    if names := [f"{name}=" for name, value in given.items() if not is_default(name, value)]:
        raise ValueError(
            f"file {os.fspath(path)} holds {files.HOLDS[main]}, made already, which "
            f"{', '.join(names)} cannot change. {MADE_AGAIN[main]}."
        )


def damaged(name: str, main: str, why: str) -> ValueError:
    """Return the error about a file that is not whole."""
    return ValueError(f"file {name} is damaged: {why}. Write it again with {WRITTEN_BY[main]}.")

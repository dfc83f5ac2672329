"""Which run a batch comes from, by the attributes that sampling left: partition, data and model."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from arviz_swiss.data import schema
from arviz_swiss.merging.batches import Batch

# Attributes of the draws. The settings are JSON, and in the batches of a folder alone.
# Begins the names of settings that say what the user's function is.
BUILD = "build "


def check_one_run(batches: Sequence[Batch]) -> None:
    """Refuse batches of two partitions, of different data, or of two models.

    Parameters
    ----------
    batches : sequence of Batch
        Those without the attributes pass: nothing is known about them.

    Raises
    ------
    ValueError
        Naming the first two batches that do not belong together.
    """
    first: dict[str, Batch] = {}
    for batch in batches:
        if schema.PARTITION in batch.attrs:
            other = first.setdefault(schema.PARTITION, batch)
            if batch.attrs[schema.PARTITION] != other.attrs[schema.PARTITION]:
                seeds = " and ".join(
                    str(each.attrs.get(schema.RANDOM_SEED)) for each in (other, batch)
                )
                raise _two_runs(
                    other,
                    batch,
                    schema.PARTITION,
                    f"of two partitions of the data ({schema.RANDOM_SEED} {seeds}): rows would be "
                    "counted twice or not at all",
                )
        if settings := _settings(batch):
            other = first.setdefault(schema.SETTINGS, batch)
            before = _settings(other)
            if before.get("data") != settings.get("data"):
                raise _two_runs(other, batch, schema.SETTINGS, "of different data")
            if names := differing(_build(before), _build(settings)):
                raise _two_runs(
                    other,
                    batch,
                    schema.SETTINGS,
                    f"of two models: {', '.join(names)} of build differ",
                )


def differing(before: Mapping[str, str | None], now: Mapping[str, str | None]) -> list[str]:
    """Name what differs between two functions as `functions.identify` tells.

    Parameters
    ----------
    before, now : mapping

    Returns
    -------
    list of str
        Without what cannot be told of one of them.

    Examples
    --------
    >>> from arviz_swiss.merging.origin import differing
    >>> differing({"source code": None, "sd": "1f"}, {"source code": "a7", "sd": "2e"})
    ['sd']
    """
    unknown = object()
    return [
        name
        for name in {**before, **now}
        if None not in (before.get(name, unknown), now.get(name, unknown))
        and before.get(name) != now.get(name)
    ]


def _settings(batch: Batch) -> dict[str, Any]:
    try:
        settings = json.loads(batch.attrs.get(schema.SETTINGS, "{}"))
    except (TypeError, ValueError):
        return {}
    return settings if isinstance(settings, dict) else {}


def _build(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {k.removeprefix(BUILD): v for k, v in settings.items() if k.startswith(BUILD)}


def _two_runs(one: Batch, other: Batch, attr: str, difference: str) -> ValueError:
    return ValueError(
        f"{one} and {other} are {difference}. Merge the batches of one call of sample_batches. If "
        'they are of different data, each sampled with the whole prior (kind="full_prior"), or '
        f"differ in nothing that matters, delete the attribute {attr} of their posterior."
    )

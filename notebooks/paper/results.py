"""What all experiments share: settings, a store that resumes, tables and pages."""

import functools
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm import tqdm

import arviz_swiss as az_swiss

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "results"

MEASURES = {"mahalanobis": "Mah", "skew": "Skew", "iad": "IAD"}
FLOOR = "noise floor"


def quick() -> bool:
    """Tell whether the environment asks for the quick setting: ``QUICK=1``."""
    return os.environ.get("QUICK", "0").lower() not in ("", "0", "no", "false")


def fewer_partitions() -> int | None:
    """Return how many partitions the environment asks for instead of a setting's: ``PARTITIONS=1``.

    For experiments that take hours.
    """
    said = os.environ.get("PARTITIONS")
    if not said:
        return None
    if not said.isdecimal() or int(said) == 0:
        raise ValueError(f"PARTITIONS={said}: give a whole number from 1 on.")
    return int(said)


def store_folder() -> Path:
    """Return where finished units are kept: ``PAPER_STORE``, or .paper beside the Makefile."""
    return Path(os.environ.get("PAPER_STORE", ROOT / ".paper"))


class Store(NamedTuple):
    """A folder with one JSON file for each finished unit of work."""

    folder: Path

    def path(self, unit: Mapping[str, Any]) -> Path:
        """Return the file of this unit, named after it."""
        name = "-".join(f"{key}={value}" for key, value in unit.items())
        return self.folder / f"{name}.json"

    def read(self, unit: Mapping[str, Any]) -> list[dict] | None:
        """Return the unit's rows, or None if it has not been finished."""
        try:
            return json.loads(self.path(unit).read_text())
        except FileNotFoundError:
            return None

    def write(self, unit: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep the unit's rows. A unit is there in full or not at all, also if we are killed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(unit)
        unfinished = path.with_suffix(f".{os.getpid()}.tmp")
        unfinished.write_text(json.dumps(list(rows), default=_plain))
        unfinished.replace(path)


def open_store(experiment: str, setting: NamedTuple) -> Store:
    """Return the store of this experiment in this setting; another setting has another one.

    So has other code: a table never mixes what two versions of the package, or of the experiments,
    have computed.
    """
    return Store(store_folder() / f"{experiment}-{_digest(setting._asdict(), _code(experiment))}")


def draws_folder(experiment: str, setting: NamedTuple, name: str) -> Path:
    """Return a folder for draws that `sample_batches` keeps, which checks by itself what is there.

    They took long, and depend neither on how they are merged nor on how many partitions there are:
    other code uses them again.
    """
    said = {key: value for key, value in setting._asdict().items() if "partitions" not in key}
    folder = store_folder() / "draws" / f"{experiment}-{_digest(said)}" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _digest(*parts: Any) -> str:
    said = json.dumps([*parts, sys.version_info[:2]], default=str)
    return hashlib.sha256(said.encode()).hexdigest()[:10]


@functools.cache
def _code(experiment: str) -> str:
    own = ["results", "methods", "samplers", experiment]
    files = [Path(__file__).with_name(f"{name}.py") for name in own]
    files += sorted(Path(az_swiss.__file__).parent.rglob("*.py"))
    files = [path for path in files if path.exists()]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def collect(
    store: Store,
    units: Iterable[Mapping[str, Any]],
    run: Callable[..., list[dict]],
    progressbar: bool = True,
) -> pd.DataFrame:
    """Run the units that the store does not have yet, and return the rows of all.

    Parameters
    ----------
    store : Store
    units : iterable of mapping
        The arguments of `run`, which also name the unit.
    run : callable
        ``run(**unit)`` returns the rows of one unit.
    progressbar : bool, default True

    Returns
    -------
    DataFrame
        A column for each key of the units and of the rows.
    """
    units = list(units)
    rows = []
    for unit in tqdm(units, desc=store.folder.name.rpartition("-")[0], disable=not progressbar):
        found = store.read(unit)
        if found is None:
            found = run(**unit)
            store.write(unit, found)
        rows += [{**unit, **row} for row in found]
    return pd.DataFrame(rows)


def number(value: float) -> str:
    """Write a figure with two decimals, small ones with three."""
    if not np.isfinite(value):
        return "-"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) >= 0.0995 else f"{value:.3f}"


def mean_and_error(values: Sequence[float]) -> str:
    """Write the mean with its standard error in brackets, ``0.46 (0.30)``.

    One value alone has no standard error; values that are not there do not count.
    """
    values = np.asarray(values, dtype=float)
    values = values[np.isfinite(values)]
    if values.size < 2:
        return number(values[0]) if values.size else "-"
    error = values.std(ddof=1) / np.sqrt(values.size)
    return f"{number(values.mean())} ({number(error) if error >= 0.0005 else '<0.001'})"


def mean_of(partitions: int) -> str:
    """Say what the figures of a table are."""
    if partitions == 1:
        return "one random partition, so without standard errors"
    return f"mean over {partitions} random partitions with its standard error in brackets"


def comparison(
    rows: pd.DataFrame,
    names: Mapping[str, str],
    paper: Mapping[str, Sequence[str]] | None = None,
    measures: Mapping[str, str] = MEASURES,
) -> pd.DataFrame:
    """Return the table: a row an algorithm, our figures beside the paper's.

    Parameters
    ----------
    rows : DataFrame
        A row for each method and repetition, with a column `method`, the measures, and
        ``<measure>_floor`` where a noise floor is known.
    names : mapping of method to what the table calls it
        Its order is the table's.
    paper : mapping of method to the paper's figures, in the order of `measures`, optional
    measures : mapping of column to heading
    """
    table = {}
    for method, name in names.items():
        mine = rows[rows["method"] == method]
        if not len(mine):
            continue
        table[name] = {}
        for place, (column, heading) in enumerate(measures.items()):
            table[name][heading] = mean_and_error(mine[column])
            if paper:
                figures = paper.get(method)
                table[name][f"{heading}, paper"] = figures[place] if figures else ""
    first = rows[rows["method"] == next(iter(names))]
    floors = {
        heading: number(first[f"{column}_floor"].mean())
        for column, heading in measures.items()
        if f"{column}_floor" in rows
    }
    if floors:
        table[FLOOR] = floors
    frame = pd.DataFrame.from_dict(table, orient="index").fillna("")
    frame.index.name = "Algorithm"
    return frame


def markdown(table: pd.DataFrame) -> str:
    """Write a table of strings as Markdown, the index first, figures to the right."""
    head = [table.index.name or "", *map(str, table.columns)]
    rule = [":---", *("---:" for _ in table.columns)]
    body = [
        [str(label), *map(str, row)] for label, row in zip(table.index, table.values, strict=True)
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *body])


def text(paragraph: str) -> str:
    """Return a paragraph written over several indented lines as one line."""
    return " ".join(paragraph.split())


def page_name(experiment: str, is_quick: bool) -> str:
    """Return the name of the experiment's page; the quick setting never replaces the full one."""
    return f"{experiment}_quick" if is_quick else experiment


def write_page(
    experiment: str,
    is_quick: bool,
    *,
    title: str,
    setting: str,
    parts: Sequence[str],
    folder: Path | None = None,
) -> Path:
    """Write an experiment's page for the documentation.

    Parameters
    ----------
    experiment : str
    is_quick : bool
    title : str
    setting : str
        One paragraph that says what was run.
    parts : sequence of str
        Markdown: text, tables, pictures.
    folder : Path, optional
        docs/results when absent.
    """
    folder = PAGES if folder is None else folder
    folder.mkdir(parents=True, exist_ok=True)
    command = f"make paper EXPERIMENTS={experiment}" + (" QUICK=1" if is_quick else "")
    if fewer_partitions():
        command += f" PARTITIONS={fewer_partitions()}"
    heading = f"# {title}" + (" (quick setting)" if is_quick else "")
    parts = [part for part in parts if part]
    printed = f"Printed by `{command}`. {text(setting)}"
    path = folder / f"{page_name(experiment, is_quick)}.md"
    path.write_text("\n\n".join([heading, printed, *parts]) + "\n")
    return path


def save_figure(figure: Any, experiment: str, is_quick: bool, folder: Path | None = None) -> str:
    """Save a picture beside the page, and return its file name."""
    folder = PAGES if folder is None else folder
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{page_name(experiment, is_quick)}.png"
    figure.savefig(folder / name, dpi=120, bbox_inches="tight")
    return name


def picture(file_name: str, caption: str) -> str:
    """Write a picture with its caption in MyST."""
    caption = text(caption)
    return f":::{{figure}} {file_name}\n:alt: {caption}\n\n{caption}\n:::"


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot store a {type(value).__name__}")

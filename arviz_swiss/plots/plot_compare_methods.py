"""plot_compare_methods(): how far each method's merge is from the full posterior."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from arviz_swiss.data.messages import brief
from arviz_swiss.plots import style

FLOOR = "_floor"
TAKES = "plot_compare_methods takes the table that compare_methods returns"
# A linear axis cannot show values that differ by more.
LOG_RANGE = 20.0


def plot_compare_methods(
    table: pd.DataFrame,
    *,
    measures: str | Sequence[str] | None = None,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> np.ndarray:
    """Draw the table of `compare_methods`: methods by measures, with what chance alone would give.

    Parameters
    ----------
    table : DataFrame
        As `compare_methods` returned it, with a reference or without.
    measures : str or sequence of str, optional
        Which measures, all when absent.
    axes : sequence of matplotlib Axes, optional
        One for each measure. Without them a figure is made, with a legend above the panels.
    figsize : tuple, optional

    Returns
    -------
    array of matplotlib Axes
        One for each measure, methods from top to bottom as in the table. A dot inside the grey bar
        is no further from the reference than two samples of the full posterior from each other. The
        axis is logarithmic where values differ by more than a factor of 20. Without a reference,
        one panel with each method's distances from the others.

    Raises
    ------
    TypeError, ValueError
        When `table` is no such table, or does not hold one of `measures`.

    See Also
    --------
    discrepancy : the measures

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> rng = np.random.default_rng(0)
    >>> batches = [{"mu": rng.normal(size=(2, 500))} for _ in range(4)]
    >>> full = {"mu": rng.normal(size=(2, 500))}
    >>> names = ["swiss", "consensus"]
    >>> table = az_swiss.compare_methods(batches, full, methods=names, kind="inflated")
    >>> axes = az_swiss.plot_compare_methods(table, measures="iad")
    >>> axes[0].get_title()
    'iad'
    """
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"{TAKES}, got {type(table).__name__}.")
    if table.empty:
        raise ValueError(f"{TAKES}, got an empty one.")
    methods = [str(name) for name in table.index]
    wanted = _wanted(table, measures)
    panel = (2.4 if wanted else 4.0, 0.28 * len(methods) + 0.7)
    axes, is_new = style.make_axes(
        len(wanted) or 1, axes, figsize, columns=5, panel=panel, sharey=True
    )
    for ax, name in zip(axes, wanted, strict=False):
        _draw(ax, table[name].to_numpy(), table[f"{name}{FLOOR}"].to_numpy())
        style.set_title(ax, name)
    if not wanted:
        _draw_between(axes[0], table[methods])
    for ax in axes:
        ax.set_yticks(range(len(methods)), methods)
        ax.set_ylim(len(methods) - 0.5, -0.5)
        ax.spines[["top", "right"]].set_visible(False)
    if is_new and wanted:
        style.legend_above(axes[0].figure, axes[0].get_legend_handles_labels()[0])
    return axes


def _wanted(table: pd.DataFrame, measures: str | Sequence[str] | None) -> list[str]:
    """Return the measures to draw; none if the table is one of distances between methods."""
    known = [name for name in table if f"{name}{FLOOR}" in table]
    if not known and not set(map(str, table.index)) <= set(table):
        raise ValueError(f"{TAKES}, got one with the columns {brief([str(c) for c in table])}.")
    if not known and measures is not None:
        raise ValueError(
            "the table holds one distance between methods, chosen by compare_methods(measure=...): "
            "to draw several measures, give compare_methods a reference."
        )
    wanted = [measures] if isinstance(measures, str) else list(measures or known)
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(f"no measure {', '.join(unknown)}; the table has {', '.join(known)}.")
    return wanted


def _draw(ax, values: np.ndarray, floors: np.ndarray) -> None:
    rows = np.arange(len(values))
    positive = np.concatenate([values, floors])
    positive = positive[np.isfinite(positive) & (positive > 0)]
    left = 0.0
    if positive.size and positive.max() > LOG_RANGE * positive.min():
        ax.set_xscale("log")
        left = positive.min() / 2
    ax.hlines(rows, left, floors, color=style.GREY, linewidth=8, label="noise floor")
    ax.plot(values, rows, "o", color=style.BLUE, markersize=5, label="merged")
    ax.set_xlim(left=left)


def _draw_between(ax, table: pd.DataFrame) -> None:
    distances = table.to_numpy(copy=True)
    np.fill_diagonal(distances, np.nan)
    for row, values in enumerate(distances):
        others = values[np.isfinite(values)]
        ax.plot(others, np.full(others.size, row), "o", color=style.BLUE, markersize=5, alpha=0.5)
    ax.set_xlim(left=0)
    style.set_title(ax, "distance from each other method")

"""What all plots share: colours, axes, labels, and how thin lines get when there are many."""

import textwrap
import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from arviz_swiss.data import containers
from arviz_swiss.data.layout import Layout

# Okabe and Ito's palette, which people with any colour vision can tell apart.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#BBBBBB"
CYCLE = (BLUE, ORANGE, GREEN, VERMILLION, SKY, PURPLE)

MOST_PANELS = 40
MOST_TICKS = 30
TITLE_WIDTH = 26


def limit_panels(labels: np.ndarray) -> int:
    """Return how many panels to draw, and warn when not all."""
    if len(labels) > MOST_PANELS:
        warnings.warn(
            f"drawing the first {MOST_PANELS} of {len(labels)} parameters: choose with var_names.",
            UserWarning,
            stacklevel=3,
        )
    return min(len(labels), MOST_PANELS)


def make_axes(
    count: int,
    axes: Any,
    figsize: Any,
    *,
    columns: int = 4,
    together: int = 1,
    panel: tuple[float, float],
    **options,
) -> tuple[np.ndarray, bool]:
    """Return so many axes, those `together` in one row, and whether they are new."""
    if axes is not None:
        given = np.ravel(np.asarray(axes, dtype=object))
        if len(given) != count:
            raise ValueError(f"{len(given)} axes for {count} panels: pass one for each.")
        return given, False
    from matplotlib import pyplot

    rows = -(-count // columns)
    columns = together * -(-count // (rows * together))
    size = figsize or (panel[0] * columns, panel[1] * rows + 0.5)
    _, made = pyplot.subplots(
        rows, columns, figsize=size, layout="constrained", squeeze=False, **options
    )
    for unused in made.ravel()[count:]:
        unused.remove()
    return made.ravel()[:count], True


def legend_above(figure: Any, handles: list, labels: list[str] | None = None) -> Any:
    """Put a legend above all panels, in as many rows as it needs, and return it."""
    labels = labels or [handle.get_label() for handle in handles]
    for columns in range(len(handles), 0, -1):
        legend = figure.legend(handles, labels, loc="outside upper center", ncols=columns)
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return legend
        legend.remove()
    return None


def set_title(ax: Any, text: str) -> None:
    """Put a title above a panel, in as many lines as it needs."""
    ax.set_title(textwrap.fill(text, TITLE_WIDTH), fontsize="medium")


def checked_ci_prob(ci_prob: float | None) -> float:
    """Return a probability, ArviZ's when None; refuse what is none, such as a percentage."""
    if ci_prob is None:
        return float(containers.rc_param("stats.ci_prob"))
    if not isinstance(ci_prob, Real) or not 0 < ci_prob < 1:
        raise ValueError(f"ci_prob must be between 0 and 1, such as 0.94, got {ci_prob!r}.")
    return float(ci_prob)


def element_labels(layout: Layout, labeller: Any, transformed: Sequence[str]) -> np.ndarray:
    """Return a label an element of the layout, which says where it is drawn unconstrained."""
    return np.array(
        [
            label + (" (unconstrained)" if variable in transformed else "")
            for label, variable in zip(layout.labels(labeller), layout.owners(), strict=True)
        ]
    )


def faintness(count: int) -> float:
    """Return the opacity at which so many overlapping lines stay legible."""
    return float(np.clip(2.0 / np.sqrt(count), 0.15, 0.9))


def some_ticks(count: int, first: Sequence[int]) -> list[int]:
    """Return as many positions as there is room to label, those in `first` before others."""
    if count <= MOST_TICKS:
        return list(range(count))
    gap = -(-count // MOST_TICKS)
    ticks: list[int] = []
    for position in [*first, *range(0, count, 2 * gap)]:
        if all(abs(position - tick) >= gap for tick in ticks):
            ticks.append(position)
    return sorted(ticks)

"""plot_compare_methods(): how far each method's merge is from the full posterior."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from arviz_swiss.data.messages import brief
from arviz_swiss.plots import drawing

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

FLOOR = "_floor"
TAKES = "plot_compare_methods takes the table that compare_methods returns"
BETWEEN = "distance from each other method"
VISUALS = ("floor", "distance", "title", "legend")
# A linear axis cannot show values that differ by more.
LOG_RANGE = 20.0


def plot_compare_methods(
    table: pd.DataFrame,
    *,
    measures: str | Sequence[str] | None = None,
    plot_collection: "PlotCollection | None" = None,
    backend: str | None = None,
    aes_by_visuals: Mapping[str, Sequence[str]] | None = None,
    visuals: Mapping[str, Mapping[str, Any] | bool] | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    """Draw the table of `compare_methods`: methods by measures, with what chance alone would give.

    Parameters
    ----------
    table : DataFrame
        As `compare_methods` returned it, with a reference or without.
    measures : str or sequence of str, optional
        Which measures, all when absent.
    plot_collection : PlotCollection, optional
        Where to draw; without it a new one is made, with a legend.
    backend : {"matplotlib", "plotly", "bokeh", "none"}, optional
        ArviZ's ``rcParams["plot.backend"]`` when absent.
    aes_by_visuals : mapping of visual to aesthetics, optional
        "distance" follows all aesthetics that `pc_kwargs` map to its dimensions ``measure`` and
        ``method``, such as ``aes={"color": ["method"]}``; others follow none.
    visuals : mapping of visual to mapping or False, optional
        Keywords of single visuals, or False to leave them out: "floor", "distance", "title",
        "legend".
    **pc_kwargs
        To ``PlotCollection.wrap``, with ``rows=`` to ``PlotCollection.grid``. Facets are along
        ``measure``.

    Returns
    -------
    PlotCollection
        One panel for each measure, methods from top to bottom as in the table. A dot inside the
        grey bar is no further from the reference than two samples of the full posterior from each
        other. Where values differ by more than a factor of 20, their logarithms to the base of 10
        are drawn, with the values at the ticks. Without a reference, one panel with each method's
        distances from the others.

    Raises
    ------
    TypeError, ValueError
        When `table` is no such table, or does not hold one of `measures`.
    ModuleNotFoundError
        When the backend is not installed; it names the extra to install.

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
    >>> pc = az_swiss.plot_compare_methods(table, measures="iad", backend="none")
    >>> pc.viz["plot"]["measure"].values.tolist()
    ['iad']
    """
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"{TAKES}, got {type(table).__name__}.")
    if table.empty:
        raise ValueError(f"{TAKES}, got an empty one.")
    wanted = _wanted(table, measures)
    data = _values(table, wanted) if wanted else _between(table)
    methods = data["method"].values.tolist()
    made = drawing.begin(
        data[["value"]],
        ["measure"],
        names=VISUALS,
        panel=(2.4 if wanted else 4.0, 0.28 * len(methods) + 0.7),
        columns=5,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        aes_by_visuals={"floor": (), **(aes_by_visuals or {})},
        pc_kwargs=pc_kwargs,
        sharey=True,
    )
    _draw(made, data)
    made.each("yticks", list(range(len(methods)))[::-1], methods)
    made.each("ylim", (-0.5, len(methods) - 0.5))
    names = data["measure"].values.tolist()
    made.add("title", drawing.title, drawing.texts(dict(zip(names, names, strict=True)), "measure"))
    if wanted:
        made.legend(
            {
                "noise floor": {"color": drawing.GREY, "width": 8.0},
                "merged": {"color": drawing.BLUE},
            }
        )
    return made.collection


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


def _values(table: pd.DataFrame, wanted: Sequence[str]) -> xr.Dataset:
    """Return measures and their floors, and whether to draw logarithms."""
    both = ("measure", "method")
    values = table[list(wanted)].to_numpy(dtype=float).T
    floors = table[[f"{name}{FLOOR}" for name in wanted]].to_numpy(dtype=float).T
    is_log = [_differ(np.concatenate(pair)) for pair in zip(values, floors, strict=True)]
    return xr.Dataset(
        {"value": (both, values), "floor": (both, floors), "is_log": ("measure", is_log)},
        {"measure": list(wanted), "method": [str(name) for name in table.index]},
    )


def _differ(values: np.ndarray) -> bool:
    positive = values[np.isfinite(values) & (values > 0)]
    return bool(positive.size) and bool(positive.max() > LOG_RANGE * positive.min())


def _between(table: pd.DataFrame) -> xr.Dataset:
    """Return each method's distances from the others, in one panel."""
    methods = [str(name) for name in table.index]
    distances = table[methods].to_numpy(dtype=float, copy=True)
    np.fill_diagonal(distances, np.nan)
    return xr.Dataset(
        {
            "value": (("measure", "method", "other"), distances[None]),
            "is_log": ("measure", [False]),
        },
        {"measure": [BETWEEN], "method": methods},
    )


def _draw(made: drawing.Drawing, data: xr.Dataset) -> None:
    """Draw the floors as bars from the left edge, and the values as dots on top."""
    columns = data.drop_vars("is_log")
    drawn = xr.where(data["is_log"], np.log10(columns.where(columns > 0)), columns)
    # the first method is on top
    rows = xr.DataArray(np.arange(data.sizes["method"])[::-1], {"method": data["method"].values})
    if "floor" in drawn:
        bars = drawing.bars(_arrange(made, drawn, data["is_log"]), drawn["floor"], rows)
        made.add("floor", drawing.lines, bars, color=drawing.GREY, width=8.0)
    else:
        _arrange(made, drawn, data["is_log"])
    alpha = 1.0 if "floor" in drawn else 0.5
    dots = drawing.along(drawn["value"], rows)
    made.add("distance", drawing.scatter, dots, color=drawing.BLUE, size=25.0, alpha=alpha)


def _arrange(made: drawing.Drawing, drawn: xr.Dataset, is_log: xr.DataArray) -> xr.DataArray:
    """Set limits and ticks of each panel, and return where its left edge is."""
    edges = xr.zeros_like(is_log, dtype=float)
    for at, measure in enumerate(drawn["measure"].values):
        own = drawn.isel(measure=at).to_array()
        high = float(own.max())
        left = float(own.min()) - np.log10(2) if is_log[at] else 0.0
        right = high + 0.05 * (high - left) if high > left else left + 1.0
        edges[at] = left
        made.each("xlim", (left, right), facet={"measure": measure})
        if is_log[at]:
            made.each("xticks", *drawing.log_ticks(left, right), facet={"measure": measure})
    return edges

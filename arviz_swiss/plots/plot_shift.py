"""plot_shift(): the batches' means and intervals around the merged ones."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from scipy.stats import norm

from arviz_swiss.checking.evidence import Finding
from arviz_swiss.checking.findings import find_all, named_batches
from arviz_swiss.checking.report import Report, check_report
from arviz_swiss.data.containers import Container
from arviz_swiss.merging.merged import Merged, open_merged
from arviz_swiss.plots import drawing

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

VISUALS = (
    "merged_interval",
    "merged_mean",
    "scatter",
    "interval",
    "mean",
    "doubted_interval",
    "doubted",
    "title",
    "caption",
    "legend",
)


def plot_shift(
    dt: Container | str | PathLike[str],
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    group: str = "posterior",
    coords: Mapping[str, Any] | None = None,
    ci_prob: float | None = None,
    report: Report | None = None,
    plot_collection: "PlotCollection | None" = None,
    backend: str | None = None,
    labeller: Any = None,
    aes_by_visuals: Mapping[str, Sequence[str]] | None = None,
    visuals: Mapping[str, Mapping[str, Any] | bool] | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    """Draw every batch's mean and interval around the merged one, batches in their order.

    Batches in doubt are marked with a cross: those that means and covariances give away (they
    disagree, are stuck, wide, or decide alone), and with ``report=``, which looks at the draws, all
    that it names. The grey bars say how far a random partition scatters the means: a trend from top
    to bottom or dots beyond the bars are signs of sorted data.

    Parameters
    ----------
    dt : InferenceData, DataTree, or path
        As `merge` returned it, with any method, or its file.
    var_names, filter_vars, coords
        What to draw, as in ArviZ. Without them, of more than 12 parameters the 12 whose batches lie
        furthest beyond chance; the title says so. Of a variable that was merged with another number
        of elements, such as a simplex, `coords` keep all.
    group : str, default "posterior"
    ci_prob : float, optional
        Probability of the intervals, which are those of Gaussians in the space of the merge;
        ArviZ's ``rcParams["stats.ci_prob"]`` when absent.
    report : Report, optional
        What ``report(merged)`` returned.
    plot_collection : PlotCollection, optional
        Where to draw; without it a new one is made, with a legend.
    backend : {"matplotlib", "plotly", "bokeh", "none"}, optional
        ArviZ's ``rcParams["plot.backend"]`` when absent.
    labeller : ArviZ labeller, optional
    aes_by_visuals : mapping of visual to aesthetics, optional
        Dots and intervals of batches follow all aesthetics that `pc_kwargs` map to their dimensions
        ``parameter`` and ``batch``, such as ``aes={"color": ["batch"]}``; others follow none.
    visuals : mapping of visual to mapping or False, optional
        Keywords of single visuals, or False to leave them out: "merged_interval", "merged_mean",
        "scatter", "interval", "mean", "doubted_interval", "doubted", "title", "caption", "legend".
    **pc_kwargs
        To ``PlotCollection.wrap``, with ``rows=`` to ``PlotCollection.grid``. Facets are along
        ``parameter``.

    Returns
    -------
    PlotCollection

    Raises
    ------
    TypeError, ValueError
        When `dt` or `report` is not what those functions return, `ci_prob` is no probability, or
        the selection names what is not there.
    ModuleNotFoundError
        When the backend is not installed; it names the extra to install.

    See Also
    --------
    plot_agreement : one number a batch, against its distribution
    plot_batches : the batches' densities

    Notes
    -----
    Under a random partition of a well-specified model the mean of batch b scatters around the
    merged one with variance :math:`p_b V_b - V`: the intervals of inflated batches, of variance
    :math:`V_b`, need not overlap.

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> rng = np.random.default_rng(0)
    >>> batches = [{"mu": rng.normal(mean, 1, size=(4, 500))} for mean in (-1, 1)]
    >>> pc = az_swiss.plot_shift(az_swiss.merge(batches, kind="inflated"), backend="none")
    >>> pc.viz["plot"]["parameter"].values.tolist()
    ['mu']
    """
    width = norm.isf((1 - drawing.checked_ci_prob(ci_prob)) / 2)
    opened = open_merged(dt, group)
    positions = opened.positions(var_names, filter_vars, coords)
    beyond = drawing.beyond_chance(opened)[positions]
    is_selected = var_names is not None or coords is not None
    why = "those whose batches lie furthest beyond chance"
    shown, caption = drawing.choose(positions, beyond, why, is_selected)
    doubted = _doubted(opened, report)
    data = _intervals(opened, shown, width)
    made = drawing.begin(
        data[["mean"]],
        ["parameter"],
        names=VISUALS,
        panel=(2.6, drawing.forest_height(len(opened.labels))),
        columns=4,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        aes_by_visuals={"scatter": (), **(aes_by_visuals or {})},
        pc_kwargs=pc_kwargs,
        sharey=True,
    )
    _draw(made, data, np.isin(np.arange(len(opened.labels)), doubted))
    labels = drawing.element_labels(opened.layout, labeller, opened.transformed)[opened.free]
    titles = dict(zip(opened.parameters[shown], labels[shown], strict=True))
    made.add("title", drawing.title, drawing.texts(titles, "parameter"))
    _label_batches(made, opened.labels, doubted)
    made.caption(caption)
    made.legend(_entries(bool(doubted)))
    return made.collection


def _doubted(merged: Merged, report: Report | None) -> list[int]:
    """Return the batches in doubt, the worst first; without a report, by moments alone."""
    if report is None:
        findings: Sequence[Finding] = find_all(merged, merged.diagnostics)
    else:
        findings = check_report(report, merged).findings
    return [merged.labels.index(label) for label in named_batches(findings)]


def _intervals(merged: Merged, shown: np.ndarray, width: float) -> xr.Dataset:
    """Return means and half-widths of intervals, of the batches and of the merged posterior."""
    maps, present = merged.maps, merged.present_moments
    variances = np.diagonal(maps["covariance"].values, axis1=1, axis2=2)
    both = ("parameter", "batch")
    return xr.Dataset(
        {
            "mean": (both, maps["mean"].values.T[shown]),
            "half": (both, width * np.sqrt(variances.T[shown])),
            "scatter": (both, width * drawing.chance_scatter(merged).T[shown]),
            "merged_mean": ("parameter", present.mean[shown]),
            "merged_half": ("parameter", width * np.sqrt(np.diag(present.covariance)[shown])),
            # the first batch is on top
            "row": ("batch", np.arange(len(merged.labels))[::-1]),
        },
        {"parameter": merged.parameters[shown], "batch": merged.labels},
    )


def _draw(made: drawing.Drawing, data: xr.Dataset, is_doubted: np.ndarray) -> None:
    """Draw the merged interval, how far chance scatters the means, and the batches."""
    thick, size = (1.0, 6.0) if data.sizes["batch"] > drawing.MOST_TICKS else (2.0, 20.0)
    ends = xr.DataArray([-1.0, 1.0], {"bound": ["low", "high"]}, "bound")
    interval = data["merged_mean"] + data["merged_half"] * ends
    made.add("merged_interval", drawing.upright_band, interval, color=drawing.SKY, alpha=0.35)
    bars = _around(data["merged_mean"], data["scatter"], data["row"])
    made.add("scatter", drawing.lines, bars, color=drawing.GREY, width=thick / 2)
    made.add("merged_mean", drawing.upright, data["merged_mean"], color=drawing.BLACK, width=0.8)
    cross = 2 * size + 30
    for chosen, bar, dot, colour, marker, area in (
        (~is_doubted, "interval", "mean", drawing.BLUE, drawing.DOT, size),
        (is_doubted, "doubted_interval", "doubted", drawing.VERMILLION, drawing.CROSS, cross),
    ):
        own = data.isel(batch=np.flatnonzero(chosen))
        bars = _around(own["mean"], own["half"], own["row"])
        made.add(bar, drawing.lines, bars, color=colour, width=thick)
        dots = drawing.along(own["mean"], own["row"])
        made.add(dot, drawing.scatter, dots, color=colour, marker=marker, size=area)


def _around(centre: xr.DataArray, half: xr.DataArray, row: xr.DataArray) -> xr.DataArray:
    return drawing.bars(centre - half, centre + half, row)


def _label_batches(made: drawing.Drawing, labels: Sequence[str], doubted: Sequence[int]) -> None:
    last = len(labels) - 1
    ticks = drawing.some_ticks(len(labels), doubted)
    made.each("yticks", [last - tick for tick in ticks], [labels[tick] for tick in ticks])
    made.each("ylim", (-0.5, last + 0.5))


def _entries(with_doubted: bool) -> dict[str, dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = {
        "merged": {"color": drawing.SKY, "width": 6.0},
        "expected scatter of means": {"color": drawing.GREY},
        "batches": {"color": drawing.BLUE},
    }
    return entries | ({"in doubt": {"color": drawing.VERMILLION}} if with_doubted else {})

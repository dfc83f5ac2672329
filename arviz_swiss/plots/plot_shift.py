"""plot_shift(): the batches' means and intervals around the merged ones."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
from scipy.stats import norm

from arviz_swiss.checking.evidence import Finding
from arviz_swiss.checking.findings import find_all, named_batches
from arviz_swiss.checking.report import Report, check_report
from arviz_swiss.data.containers import Container
from arviz_swiss.merging.merged import Merged, open_merged
from arviz_swiss.plots import style


def plot_shift(
    merged: Container | str | PathLike[str],
    *,
    report: Report | None = None,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    coords: Mapping[str, Any] | None = None,
    group: str = "posterior",
    ci_prob: float | None = None,
    labeller: Any = None,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> np.ndarray:
    """Draw every batch's mean and interval around the merged one, batches in their order.

    Batches in doubt are marked with a cross: those that means and covariances give away (they
    disagree, are stuck, wide, or decide alone), and with ``report=``, which looks at the draws, all
    that it names. The grey bars say how far a random partition scatters the means: a trend from top
    to bottom or dots beyond the bars are signs of sorted data.

    Parameters
    ----------
    merged : InferenceData, DataTree, or path
        As `merge` returned it, with any method, or its file.
    report : Report, optional
        What ``report(merged)`` returned.
    var_names, filter_vars, coords
        What to draw, as in ArviZ. The first 40 parameters when there are more. Of a variable that
        was merged with another number of elements, such as a simplex, `coords` keep all.
    group : str, default "posterior"
    ci_prob : float, optional
        Probability of the intervals, which are those of Gaussians in the space of the merge;
        ArviZ's ``rcParams["stats.ci_prob"]`` when absent.
    labeller : ArviZ labeller, optional
    axes : sequence of matplotlib Axes, optional
        One for each parameter. Without them a figure is made, with a legend above the panels.
    figsize : tuple, optional

    Returns
    -------
    array of matplotlib Axes

    Raises
    ------
    TypeError, ValueError
        When `merged` or `report` is not what those functions return, `ci_prob` is no probability,
        or the selection names what is not there.

    See Also
    --------
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
    >>> axes = az_swiss.plot_shift(az_swiss.merge(batches, kind="inflated"))
    >>> [tick.get_text() for tick in axes[0].get_yticklabels()]
    ['b0', 'b1']
    """
    width = norm.isf((1 - style.checked_ci_prob(ci_prob)) / 2)
    opened = open_merged(merged, group)
    positions = opened.positions(var_names, filter_vars, coords)
    labels = style.element_labels(opened.layout, labeller, opened.transformed)[opened.free]
    count = style.limit_panels(labels[positions])
    batches, doubted = opened.labels, _doubted(opened, report)
    ticks = style.some_ticks(len(batches), doubted)
    height = float(np.clip(0.2 * len(batches), 1.5, 8.0))
    axes, is_new = style.make_axes(count, axes, figsize, panel=(2.6, height + 0.6), sharey=True)
    for ax, position in zip(axes, positions, strict=False):
        _draw(ax, opened, position, width, doubted)
        style.set_title(ax, labels[position])
        ax.spines[["left", "top", "right"]].set_visible(False)
        ax.tick_params(axis="y", length=0)
        ax.set_yticks(ticks, [batches[tick] for tick in ticks], fontsize="small")
        ax.set_ylim(len(batches) - 0.5, -0.5)
        for tick, text in zip(ticks, ax.get_yticklabels(), strict=False):
            text.set_color(style.VERMILLION if tick in doubted else style.BLACK)
    if is_new:
        style.legend_above(axes[0].figure, axes[0].get_legend_handles_labels()[0])
    return axes


def _doubted(merged: Merged, report: Report | None) -> list[int]:
    """Return the batches in doubt, the worst first; without a report, by moments alone."""
    if report is None:
        findings: Sequence[Finding] = find_all(merged, merged.diagnostics)
    else:
        findings = check_report(report, merged).findings
    return [merged.labels.index(label) for label in named_batches(findings)]


def _draw(ax: Any, merged: Merged, at: int, width: float, doubted: Sequence[int]) -> None:
    """Draw one parameter: the merged interval, how far chance scatters the means, the batches."""
    maps, present = merged.maps, merged.present_moments
    means, variances = maps["mean"].values[:, at], maps["covariance"].values[:, at, at]
    centre, merged_half = present.mean[at], width * np.sqrt(present.covariance[at, at])
    chance = maps["power"].values * variances - maps["pooled_covariance"].values[at, at]
    scatter = width * np.sqrt(np.maximum(chance, 0.0) * float(maps["stands_for"]))
    halves = width * np.sqrt(variances)
    rows = np.arange(means.size)
    thick, size = (1.0, 2.0) if rows.size > style.MOST_TICKS else (2.0, 4.0)
    span = {"color": style.SKY, "alpha": 0.35, "linewidth": 0, "label": "merged"}
    ax.axvspan(centre - merged_half, centre + merged_half, **span)
    ax.axvline(centre, color=style.BLACK, linewidth=0.8)
    bars = {"color": style.GREY, "linewidth": thick / 2, "label": "expected scatter of means"}
    ax.hlines(rows, centre - scatter, centre + scatter, **bars)
    is_doubted = np.isin(rows, doubted)
    for is_marked, colour, marker, markersize, label in (
        (~is_doubted, style.BLUE, "o", size, "batches"),
        (is_doubted, style.VERMILLION, "X", size + 3, "in doubt"),
    ):
        if is_marked.any():
            mean, half, row = means[is_marked], halves[is_marked], rows[is_marked]
            ax.hlines(row, mean - half, mean + half, color=colour, linewidth=thick)
            ax.plot(mean, row, marker, color=colour, markersize=markersize, label=label)

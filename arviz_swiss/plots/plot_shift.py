"""plot_shift(): the batches' means and intervals around the merged ones."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.stats import norm

from arviz_swiss.base.gaussian import Gaussian
from arviz_swiss.checking.findings import find_all
from arviz_swiss.merging.merged import Merged, open_merged
from arviz_swiss.plots import style


class Forest(NamedTuple):
    """One panel: the batches' means and half-widths, and how far chance scatters the means."""

    mean: np.ndarray
    half: np.ndarray
    scatter: np.ndarray
    merged_mean: float
    merged_half: float


def plot_shift(
    merged: Any,
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    coords: Mapping[str, Any] | None = None,
    group: str = "posterior",
    prob: float = 0.94,
    labeller: Any = None,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> np.ndarray:
    """Draw every batch's mean and interval around the merged one, batches in their order.

    Batches that `report` names are marked with a cross: those that means and covariances give away
    (they disagree, are stuck, wide, or decide alone), and if `merged` comes from `diagnose`, which
    looks at the draws, all of them. The grey bars say how far a random partition scatters the
    means: a trend from top to bottom or dots beyond the bars are signs of sorted data.

    Parameters
    ----------
    merged : InferenceData or DataTree
        As `merge` returned it, with any method, or `diagnose`.
    var_names, filter_vars, coords
        What to draw, as in ArviZ. The first 40 parameters when there are more. Of a variable that
        was merged with another number of elements, such as a simplex, `coords` keep all.
    group : str, default "posterior"
    prob : float, default 0.94
        Probability of the intervals, which are those of Gaussians in the space of the merge.
    labeller : ArviZ labeller, optional
    axes : sequence of matplotlib Axes, optional
        One for each parameter. Without them a figure is made, with a legend above the panels.
    figsize : tuple, optional

    Returns
    -------
    array of matplotlib Axes

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
    style.check_prob(prob)
    opened = open_merged(merged, group)
    positions = opened.positions(var_names, filter_vars, coords)
    labels = parameter_labels(opened, labeller)[positions]
    count = style.limit_panels(labels)
    batches = opened.labels
    height = float(np.clip(0.2 * len(batches), 1.5, 8.0))
    axes, is_new = style.make_axes(count, axes, figsize, panel=(2.6, height + 0.6), sharey=True)
    named = [label for finding in find_all(opened) for label in finding.batches]
    odd = [batches.index(label) for label in dict.fromkeys(named)]
    width = norm.isf((1 - prob) / 2)
    for ax, position, label in zip(axes, positions, labels, strict=False):
        _draw(ax, _forest(opened.maps, opened.present_moments, position, width), odd)
        style.set_title(ax, label)
        ax.spines[["left", "top", "right"]].set_visible(False)
        ax.tick_params(axis="y", length=0)
    _label_batches(axes, batches, odd)
    if is_new:
        style.legend_above(axes[0].figure, axes[0].get_legend_handles_labels()[0])
    return axes


def _forest(maps: xr.Dataset, present: Gaussian, position: int, width: float) -> Forest:
    variance = maps["covariance"].values[:, position, position]
    pooled = float(maps["pooled_covariance"].values[position, position])
    scatter = maps["power"].values * variance - pooled
    return Forest(
        maps["mean"].values[:, position],
        width * np.sqrt(variance),
        width * np.sqrt(np.maximum(scatter, 0.0) * float(maps["stands_for"])),
        float(present.mean[position]),
        width * float(np.sqrt(present.covariance[position, position])),
    )


def _draw(ax, forest: Forest, odd: Sequence[int]) -> None:
    rows = np.arange(forest.mean.size)
    doubted = np.isin(rows, odd)
    dense = rows.size > style.MOST_TICKS
    thick, size = (1.0, 2.0) if dense else (2.0, 4.0)
    low, high = forest.merged_mean - forest.merged_half, forest.merged_mean + forest.merged_half
    ax.axvspan(low, high, color=style.SKY, alpha=0.35, linewidth=0, label="merged")
    ax.axvline(forest.merged_mean, color=style.BLACK, linewidth=0.8)
    ax.hlines(
        rows,
        forest.merged_mean - forest.scatter,
        forest.merged_mean + forest.scatter,
        color=style.GREY,
        linewidth=thick / 2,
        label="expected scatter of means",
    )
    kinds = ((~doubted, style.BLUE, "o", "batches"), (doubted, style.VERMILLION, "X", "in doubt"))
    for chosen, colour, marker, label in kinds:
        if not chosen.any():
            continue
        mean, half = forest.mean[chosen], forest.half[chosen]
        ax.hlines(rows[chosen], mean - half, mean + half, color=colour, linewidth=thick)
        big = size if marker == "o" else size + 3
        ax.plot(mean, rows[chosen], marker, color=colour, markersize=big, label=label)


def _label_batches(axes: np.ndarray, batches: list[str], odd: Sequence[int]) -> None:
    """Label the batches: all where there is room, else some, and first of all those in doubt."""
    ticks = style.some_ticks(len(batches), odd)
    for ax in axes:
        ax.set_yticks(ticks, [batches[tick] for tick in ticks], fontsize="small")
        ax.set_ylim(len(batches) - 0.5, -0.5)
        for tick, text in zip(ticks, ax.get_yticklabels(), strict=False):
            text.set_color(style.VERMILLION if tick in odd else style.BLACK)


def parameter_labels(merged: Merged, labeller: Any) -> np.ndarray:
    """Return the labels along `parameter`, which say where a variable was merged transformed."""
    shown = dict(zip(merged.layout.labels(), merged.layout.labels(labeller), strict=True))
    return np.array(
        [
            shown[label] + (" (unconstrained)" if variable in merged.transformed else "")
            for label, variable in zip(merged.parameters, merged.variables, strict=True)
        ]
    )

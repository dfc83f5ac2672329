"""plot_batches(): the sub-posteriors before and after the merge."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss import containers
from arviz_swiss.flatten import as_rows, gather_all, layout_of, sample_arrays
from arviz_swiss.merged import merged_names
from arviz_swiss.plots import style
from arviz_swiss.selection import selected
from arviz_swiss.undo import subposteriors

KINDS = ("batches", "batches, mapped", "merged", "reference")


def plot_batches(
    merged: Any,
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    coords: Mapping[str, Any] | None = None,
    group: str = "posterior",
    reference: Any = None,
    transforms: Mapping[str, Any] | None = None,
    labeller: Any = None,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> np.ndarray:
    """Draw every batch's marginal densities before the merge and after it, and the merged one.

    Each parameter has two panels: the batches as they were sampled, and as they were mapped. The
    merged density is on top in both.

    Parameters
    ----------
    merged : InferenceData or DataTree
        As `merge` returned it with a method that moves draws.
    var_names, filter_vars, coords
        What to draw, as in ArviZ. The first 40 parameters when there are more.
    group : str, default "posterior"
    reference : InferenceData, DataTree or Dataset, optional
        A posterior of all data, whose density is drawn too.
    transforms : mapping of variable to transform, optional
        Your own transform objects, if you merged with any.
    labeller : ArviZ labeller, optional
    axes : array of matplotlib Axes, optional
        Two for each parameter. Without them a figure is made, with a legend above the panels.
    figsize : tuple, optional

    Returns
    -------
    array of matplotlib Axes
        A row for each parameter, of two panels: before, mapped.

    See Also
    --------
    plot_shift : the batches' means, in the order of the batches

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> rng = np.random.default_rng(0)
    >>> batches = [{"mu": rng.normal(mean, 1, size=(4, 500))} for mean in (-1, 1)]
    >>> axes = az_swiss.plot_batches(az_swiss.merge(batches))
    >>> [ax.get_title() for ax in axes[0]]
    ['mu', 'mu, mapped']
    """
    chosen = selected(
        _merged_only(containers.read(merged, group).groups, group), var_names, filter_vars, coords
    )
    names = list(chosen.data_vars)
    before = [
        selected(containers.read(one, group).groups[group][names], coords=coords)
        for one in subposteriors(merged, group=group, transforms=transforms).values()
    ]
    owners = chosen["batch"].values.astype(str)
    after = [chosen.isel(chain=owners == label) for label in dict.fromkeys(owners)]
    labels = layout_of(chosen, names).labels(labeller)
    count = style.limit_panels(labels)
    axes, is_new = style.make_axes(2 * count, axes, figsize, together=2, panel=(2.6, 2.0))
    axes = axes.reshape(count, 2)
    thin = {"alpha": style.faintness(len(before)), "linewidth": 0.8}
    _draw(axes[:, 0], before, color=style.BLUE, label="batches", **thin)
    _draw(axes[:, 1], after, color=style.ORANGE, label="batches, mapped", **thin)
    for column in axes.T:
        _draw(column, [chosen], color=style.BLACK, label="merged", linewidth=1.6)
        if reference is not None:
            full = containers.read(reference, group).groups[group][names]
            line = {"color": style.GREEN, "linewidth": 1.6, "linestyle": "--"}
            _draw(column, [selected(full, coords=coords)], label="reference", **line)
    for pair, label in zip(axes, labels, strict=False):
        _finish(pair, label)
    if is_new:
        style.legend_above(axes.ravel(), _handles(axes[0]))
    return axes


def _finish(pair: np.ndarray, label: str) -> None:
    for ax, title in zip(pair, (label, f"{label}, mapped"), strict=True):
        ax.set_title(title, fontsize="medium")
        ax.set_yticks([])
        ax.set_ylim(bottom=0)
        ax.spines[["left", "top", "right"]].set_visible(False)


def _merged_only(groups: containers.Groups, group: str) -> xr.Dataset:
    """Return the variables that were merged; not those computed from them."""
    if "swiss_transform" not in groups:
        return groups[group]
    return groups[group][merged_names(groups)]


def _draw(axes: np.ndarray, datasets: Sequence[xr.Dataset], label: str, **line) -> None:
    """Draw one density a dataset and parameter; the first of them carries the label."""
    for position, dataset in enumerate(datasets):
        layout = layout_of(dataset, list(dataset.data_vars))
        rows = gather_all(as_rows(sample_arrays(dataset, layout), layout), layout)
        for ax, column in zip(axes, np.ascontiguousarray(rows.T), strict=False):
            if np.ptp(column) > 0:
                grid, density, _ = containers.kde(column)
                ax.plot(grid, density, label=label if position == 0 else None, **line)


def _handles(pair: np.ndarray) -> list:
    """Return one legend line for each kind of density, dark enough to be told apart."""
    from matplotlib.lines import Line2D

    lines = {line.get_label(): line for ax in pair for line in ax.lines}
    return [
        Line2D([], [], color=lines[kind].get_color(), ls=lines[kind].get_linestyle(), label=kind)
        for kind in KINDS
        if kind in lines
    ]

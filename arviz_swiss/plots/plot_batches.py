"""plot_batches(): the sub-posteriors before and after the merge."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.base.density import curves
from arviz_swiss.checking.discrepancy import check_finite, match_parameters
from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import Container
from arviz_swiss.data.layout import as_rows, gather_all, layout_of, sample_arrays
from arviz_swiss.data.selection import selected
from arviz_swiss.merging.merged import open_merged
from arviz_swiss.merging.subposteriors import subposteriors
from arviz_swiss.plots import style

# In which of a parameter's two panels each series of densities is drawn, and how.
PANELS = {"batches": [0], "batches, mapped": [1], "merged": [0, 1], "reference": [0, 1]}
LINES: dict[str, dict[str, Any]] = {
    "batches": {"color": style.BLUE, "linewidth": 0.8},
    "batches, mapped": {"color": style.ORANGE, "linewidth": 0.8},
    "merged": {"color": style.BLACK, "linewidth": 1.6},
    "reference": {"color": style.GREEN, "linewidth": 1.6, "linestyle": "--"},
}


def plot_batches(
    merged: Container | str | PathLike[str],
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    coords: Mapping[str, Any] | None = None,
    group: str = "posterior",
    reference: Any = None,
    transforms: Mapping[str, Any] | None = None,
    model: Any = None,
    labeller: Any = None,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> np.ndarray:
    """Draw every batch's marginal densities before the merge and after it, and the merged one.

    Each parameter has two panels: the batches as they were sampled, and as they were mapped. The
    merged density is on top in both.

    Parameters
    ----------
    merged : InferenceData, DataTree, or path
        As `merge` returned it with a method that moves draws, or its file.
    var_names, filter_vars, coords
        What to draw, as in ArviZ. The first 40 parameters when there are more.
    group : str, default "posterior"
    reference : InferenceData, DataTree or Dataset, optional
        A posterior of all data, whose density is drawn too; matched by label.
    transforms : mapping of variable to transform, optional
        Your own transform objects, if you merged with any.
    model : pymc.Model, optional
        The model that you merged with, if any. Without it, variables that were merged in its
        unconstrained space are drawn there.
    labeller : ArviZ labeller, optional
    axes : array of matplotlib Axes, optional
        Two for each parameter. Without them a figure is made, with a legend above the panels.
    figsize : tuple, optional

    Returns
    -------
    array of matplotlib Axes
        A row for each parameter, of two panels: before, mapped.

    Raises
    ------
    TypeError, ValueError
        When `merged` is not what `merge` returned or its draws were newly made, or `reference` or
        the selection does not match it.

    See Also
    --------
    plot_shift : the batches' means, in the order of the batches

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> rng = np.random.default_rng(0)
    >>> batches = [{"mu": rng.normal(mean, 1, size=(4, 500))} for mean in (-1, 1)]
    >>> axes = az_swiss.plot_batches(az_swiss.merge(batches, kind="inflated"))
    >>> [ax.get_title() for ax in axes[0]]
    ['mu', 'mu, mapped']
    """
    opened = open_merged(merged, group)
    opened.require_moved("there are no moved draws to move back. Keep the batches themselves.")
    # Only the model leads back from its unconstrained space.
    is_in_space = opened.attrs.get(schema.SPACE) == "model" and model is None
    transformed = opened.transformed if is_in_space else []
    if is_in_space:
        draws = opened.select(var_names, filter_vars, coords)
        present = draws["batch"].values.astype(str)
        kept = [at for at, label in enumerate(opened.labels) if label in present]
        batches = [opened.images_before(position) for position in kept]
    else:
        draws = selected(opened.draws[opened.names], var_names, filter_vars, coords)
        undone = subposteriors(merged, group=group, transforms=transforms, model=model)
        batches = [containers.read(batch, group).groups[group] for batch in undone.values()]
    series = _series(draws, batches)
    if reference is not None:
        series["reference"] = [_reference(draws, reference, group, transformed)]
    varying = np.ptp(series["merged"][0], axis=0) > 0
    if not varying.any():
        raise ValueError(f"var_names={var_names!r}: only constants are selected.")
    layout = layout_of(draws, list(draws.data_vars))
    labels = style.element_labels(layout, labeller, transformed)[varying]
    count = style.limit_panels(labels)
    axes, is_new = style.make_axes(2 * count, axes, figsize, together=2, panel=(2.6, 2.0))
    axes = axes.reshape(count, 2)
    for name, samples in series.items():
        alpha = style.faintness(len(batches)) if len(samples) > 1 else 1.0
        for panel in PANELS[name]:
            _draw(axes[:, panel], [rows[:, varying] for rows in samples], name, alpha)
    for pair, label in zip(axes, labels, strict=False):
        for ax, title in zip(pair, (label, f"{label}, mapped"), strict=True):
            style.set_title(ax, title)
            ax.set_yticks([])
            ax.set_ylim(bottom=0)
            ax.spines[["left", "top", "right"]].set_visible(False)
    if is_new:
        from matplotlib.lines import Line2D

        handles = [Line2D([], [], label=name, **LINES[name]) for name in series]
        style.legend_above(axes[0, 0].figure, handles)
    return axes


def _series(draws: xr.Dataset, batches: Sequence[xr.Dataset]) -> dict[str, list[np.ndarray]]:
    """Return the (rows, parameters) arrays whose densities are drawn, by their name."""
    merged = _flat(draws, draws)
    owners = np.repeat(draws["batch"].values.astype(str), draws.sizes["draw"])
    return {
        "batches": [_flat(batch, draws) for batch in batches],
        "batches, mapped": [merged[owners == label] for label in dict.fromkeys(owners)],
        "merged": [merged],
    }


def _reference(
    draws: xr.Dataset, reference: Any, group: str, transformed: Sequence[str]
) -> np.ndarray:
    """Return the reference's draws of the same elements, matched by label."""
    if moved := [name for name in draws.data_vars if name in transformed]:
        raise ValueError(
            f"{', '.join(moved)}: merged in a model's unconstrained space, where the reference is "
            "not. Pass the model as model= to draw both on their own scale."
        )
    _, sample = match_parameters(draws, reference, group=group)
    check_finite(sample)
    return sample.rows


def _flat(dataset: xr.Dataset, like: xr.Dataset) -> np.ndarray:
    """Return draws of the elements that `like` has, as one (rows, parameters) array."""
    layout = layout_of(like, list(like.data_vars))
    dims = [dim for dim in like.dims if dim not in containers.SAMPLE_DIMS and dim in dataset.dims]
    labels = {dim: like[dim].values for dim in dims if dim in dataset.coords}
    arrays = sample_arrays(dataset[layout.names].sel(labels), layout)
    return gather_all(as_rows(arrays, layout), layout)


def _draw(axes: np.ndarray, samples: Sequence[np.ndarray], name: str, alpha: float) -> None:
    """Draw one density a sample and parameter; the first of them carries the label."""
    for position, rows in enumerate(samples):
        densities = curves(np.sort(rows[:, : axes.size].T, axis=1))
        label = name if position == 0 else None
        for at, (grid, values) in enumerate(zip(densities.grids, densities.values, strict=True)):
            if densities.bandwidth[at] > 0:
                axes[at].plot(grid, values, label=label, alpha=alpha, **LINES[name])

"""plot_maps(): the three steps of the merge, for two parameters."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from scipy.stats import chi2

from arviz_swiss.data.containers import Container
from arviz_swiss.merging.merged import Merged, open_merged
from arviz_swiss.plots import drawing

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

TITLES = {
    "sampled": "sub-posteriors",
    "scaled": "centred and scaled",
    "shifted": "shifted: merged",
}
VISUALS = (
    "draws",
    "unscaled",
    "ellipse",
    "merged",
    "title",
    "xlabel",
    "ylabel",
    "caption",
    "legend",
)
MOST_POINTS = 2000
ANGLES = np.linspace(0, 2 * np.pi, 121)


def plot_maps(
    dt: Container | str | PathLike[str],
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    group: str = "posterior",
    coords: Mapping[str, Any] | None = None,
    ci_prob: float | None = None,
    plot_collection: "PlotCollection | None" = None,
    backend: str | None = None,
    labeller: Any = None,
    aes_by_visuals: Mapping[str, Sequence[str]] | None = None,
    visuals: Mapping[str, Mapping[str, Any] | bool] | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    """Draw what the merge does to two parameters: the batches, centred and scaled, and shifted.

    Figure 1 of the paper, for any merge by maps: every batch an ellipse and some of its draws, the
    merged posterior in black. In the middle panel the dashed ellipses are centred but not scaled.

    Parameters
    ----------
    dt : InferenceData, DataTree, or path
        As `merge` returned it with a method that moves draws, or its file.
    var_names, filter_vars, coords
        What to draw, as in ArviZ: the first two parameters that they select. Without them, of more
        than two the two whose batches lie furthest beyond chance; the title says so. Of a variable
        that was merged with another number of elements, such as a simplex, `coords` keep all.
    group : str, default "posterior"
    ci_prob : float, optional
        Probability inside the ellipses, which are those of Gaussians in the space of the merge;
        ArviZ's ``rcParams["stats.ci_prob"]`` when absent.
    plot_collection : PlotCollection, optional
        Where to draw; without it a new one is made, with a legend.
    backend : {"matplotlib", "plotly", "bokeh", "none"}, optional
        ArviZ's ``rcParams["plot.backend"]`` when absent.
    labeller : ArviZ labeller, optional
    aes_by_visuals : mapping of visual to aesthetics, optional
        "draws", "ellipse" and "unscaled" follow all aesthetics that are mapped to their dimensions
        ``stage`` and ``batch``: of up to six batches each has its colour.
    visuals : mapping of visual to mapping or False, optional
        Keywords of single visuals, or False to leave them out: "draws", "unscaled", "ellipse",
        "merged", "title", "xlabel", "ylabel", "caption", "legend".
    **pc_kwargs
        To ``PlotCollection.wrap``, with ``rows=`` to ``PlotCollection.grid``. Facets are along
        ``stage``: "sampled", "scaled" and "shifted".

    Returns
    -------
    PlotCollection

    Raises
    ------
    ValueError
        When fewer than two parameters are selected, the draws were newly made, or `ci_prob` is no
        probability.
    ModuleNotFoundError
        When the backend is not installed; it names the extra to install.

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> rng = np.random.default_rng(0)
    >>> batches = [{"beta": rng.normal(size=(4, 500, 2))} for _ in range(3)]
    >>> pc = az_swiss.plot_maps(az_swiss.merge(batches, kind="inflated"), backend="none")
    >>> pc.viz["plot"]["stage"].values.tolist()
    ['sampled', 'scaled', 'shifted']
    """
    radius = float(np.sqrt(chi2.isf(1 - drawing.checked_ci_prob(ci_prob), 2)))
    opened = open_merged(dt, group)
    opened.require_moved('plot_maps needs method="swiss" or another that moves draws.')
    pair, caption = _pair(opened, var_names, filter_vars, coords)
    data = _outlines(opened, pair, radius)
    few = len(opened.labels) <= len(drawing.CYCLE)
    if few and "aes" not in pc_kwargs:
        cycle = list(drawing.CYCLE[: len(opened.labels)])
        pc_kwargs = {"aes": {"color": ["batch"]}, "color": cycle, **pc_kwargs}
    made = drawing.begin(
        data[["ellipse"]],
        ["stage"],
        names=VISUALS,
        panel=(3.4, 3.2),
        columns=3,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        aes_by_visuals=aes_by_visuals,
        pc_kwargs=pc_kwargs,
    )
    _draw(made, data, _clouds(opened, pair), few)
    labels = drawing.element_labels(opened.layout, labeller, opened.transformed)[opened.free][pair]
    made.add("title", drawing.title, drawing.texts(TITLES, "stage"))
    made.add("xlabel", drawing.x_label, drawing.texts(dict.fromkeys(TITLES, labels[0]), "stage"))
    made.add("ylabel", drawing.y_label, drawing.texts(dict.fromkeys(TITLES, labels[1]), "stage"))
    made.caption(caption)
    made.legend(_entries(opened.labels, few))
    return made.collection


def _pair(merged: Merged, var_names: Any, filter_vars: Any, coords: Any) -> drawing.Choice:
    positions = merged.positions(var_names, filter_vars, coords)
    if positions.size < 2:
        raise ValueError("plot_maps draws two parameters, but only one is selected.")
    if var_names is not None or coords is not None:
        return drawing.Choice(positions[:2], "")
    why = "those whose batches lie furthest beyond chance"
    return drawing.choose(positions, drawing.beyond_chance(merged), why, False, most=2)


def _outlines(merged: Merged, pair: np.ndarray, radius: float) -> xr.Dataset:
    """Return the ellipses of each batch in every stage, of unscaled ones, and of the merged."""
    block, nowhere = np.ix_(pair, pair), np.zeros(2)
    own, unscaled = [], []
    for position, moments in enumerate(merged.batch_moments):
        scale, _, target = merged.map_of(position)
        covariance = moments.covariance
        scaled = (scale @ covariance @ scale.T)[block]
        raw = _ellipse(moments.mean[pair], covariance[block], radius)
        steps = [_ellipse(centre, scaled, radius) for centre in (nowhere, target[pair])]
        own.append([raw, *steps])
        unscaled.append(_ellipse(nowhere, covariance[block], radius))
    present = merged.present_moments
    mean, covariance = present.mean[pair], present.covariance[block]
    whole = [_ellipse(centre, covariance, radius) for centre in (mean, nowhere, mean)]
    path = ("point", "plot_axis")
    return xr.Dataset(
        {
            "ellipse": (("stage", "batch", *path), np.swapaxes(np.array(own), 0, 1)),
            "unscaled": (("batch", *path), np.array(unscaled)),
            "merged": (("stage", *path), np.array(whole)),
        },
        {"stage": list(TITLES), "batch": merged.labels, "plot_axis": ["x", "y"]},
    )


def _ellipse(mean: np.ndarray, covariance: np.ndarray, radius: float) -> np.ndarray:
    circle = radius * np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
    return mean + circle @ np.linalg.cholesky(covariance).T


def _clouds(merged: Merged, pair: np.ndarray) -> xr.DataArray:
    """Return some of each batch's draws in every stage."""
    most = max(1, MOST_POINTS // len(merged.labels))
    clouds = []
    for position in range(len(merged.labels)):
        raw = _some(merged.before(position)[..., pair], most)
        moved = _some(merged.after(position)[..., pair], most)
        clouds.append([raw, moved - merged.map_of(position).target[pair], moved])
    # batches may have more draws than others
    longest = max(len(raw) for raw, *_ in clouds)
    values = np.full((len(TITLES), len(clouds), longest, 2), np.nan)
    for position, steps in enumerate(clouds):
        for stage, rows in enumerate(steps):
            values[stage, position, : len(rows)] = rows
    coords = {"stage": list(TITLES), "batch": merged.labels, "plot_axis": ["x", "y"]}
    return xr.DataArray(values, coords, ("stage", "batch", "point", "plot_axis"))


def _some(draws: np.ndarray, most: int) -> np.ndarray:
    rows = draws.reshape(-1, draws.shape[-1])
    return rows[:: -(-len(rows) // most)]


def _draw(made: drawing.Drawing, data: xr.Dataset, clouds: xr.DataArray, few: bool) -> None:
    width, alpha = (1.4, 1.0) if few else (0.8, 0.4)
    line = {"color": drawing.BLUE, "alpha": alpha}
    made.add("draws", drawing.scatter, clouds, color=drawing.BLUE, size=3.0, alpha=0.25, width=0)
    unscaled = data["unscaled"].expand_dims(stage=["scaled"])
    look = {**line, "width": width / 2, "linestyle": drawing.DASHED}
    made.add("unscaled", drawing.lines, unscaled, **look)
    made.add("ellipse", drawing.lines, data["ellipse"], **line, width=width)
    made.add("merged", drawing.lines, data["merged"], color=drawing.BLACK, width=2.0)


def _entries(labels: Sequence[str], few: bool) -> dict[str, dict[str, Any]]:
    entries = dict(zip(labels, drawing.CYCLE, strict=False))
    if not few:
        entries = {f"{len(labels)} batches": drawing.BLUE}
    return {
        label: {"color": colour} for label, colour in [*entries.items(), ("merged", drawing.BLACK)]
    }

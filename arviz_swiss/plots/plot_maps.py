"""plot_maps(): the three steps of the merge, for two parameters."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2

from arviz_swiss.data.containers import Container
from arviz_swiss.merging.merged import Merged, open_merged
from arviz_swiss.plots import style

TITLES = ("sub-posteriors", "centred and scaled", "shifted: merged")
MOST_POINTS = 2000


class Cloud(NamedTuple):
    """One batch in one panel: some points, and the mean and covariance of all."""

    points: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


def plot_maps(
    merged: Container | str | PathLike[str],
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    coords: Mapping[str, Any] | None = None,
    group: str = "posterior",
    ci_prob: float | None = None,
    labeller: Any = None,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> np.ndarray:
    """Draw what the merge does to two parameters: the batches, centred and scaled, and shifted.

    Figure 1 of the paper, for any merge by maps: every batch an ellipse and some of its draws, the
    merged posterior in black. In the middle panel the dashed ellipses are centred but not scaled.

    Parameters
    ----------
    merged : InferenceData, DataTree, or path
        As `merge` returned it with a method that moves draws, or its file.
    var_names, filter_vars, coords
        What to draw, as in ArviZ: the first two parameters that they select. Of a variable that was
        merged with another number of elements, such as a simplex, `coords` keep all.
    group : str, default "posterior"
    ci_prob : float, optional
        Probability inside the ellipses, which are those of Gaussians in the space of the merge;
        ArviZ's ``rcParams["stats.ci_prob"]`` when absent.
    labeller : ArviZ labeller, optional
    axes : sequence of three matplotlib Axes, optional
        Without them a figure is made, with a legend above the panels.
    figsize : tuple, optional

    Returns
    -------
    array of three matplotlib Axes

    Raises
    ------
    ValueError
        When fewer than two parameters are selected, the draws were newly made, or `ci_prob` is no
        probability.

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> rng = np.random.default_rng(0)
    >>> batches = [{"beta": rng.normal(size=(4, 500, 2))} for _ in range(3)]
    >>> axes = az_swiss.plot_maps(az_swiss.merge(batches, kind="inflated"))
    >>> [ax.get_title() for ax in axes]
    ['sub-posteriors', 'centred and scaled', 'shifted: merged']
    """
    radius = float(np.sqrt(chi2.isf(1 - style.checked_ci_prob(ci_prob), 2)))
    opened = open_merged(merged, group)
    opened.require_moved('plot_maps needs method="swiss" or another that moves draws.')
    pair = opened.positions(var_names, filter_vars, coords)[:2]
    if pair.size < 2:
        raise ValueError("plot_maps draws two parameters, but only one is selected.")
    axes, is_new = style.make_axes(3, axes, figsize, panel=(3.4, 3.2))
    _draw_batches(axes, _clouds(opened, pair), opened.labels, radius)
    labels = style.element_labels(opened.layout, labeller, opened.transformed)[opened.free][pair]
    mean, covariance = opened.present_moments.mean[pair], opened.present_moments.covariance
    for ax, title, centre in zip(axes, TITLES, (mean, np.zeros(2), mean), strict=True):
        outline = _ellipse(centre, covariance[np.ix_(pair, pair)], radius)
        ax.plot(*outline, color=style.BLACK, linewidth=2.0, label="merged")
        ax.set_title(title, fontsize="medium")
        ax.set_xlabel(labels[0])
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel(labels[1])
    if is_new:
        _legend(axes, opened.labels)
    return axes


def _clouds(merged: Merged, pair: np.ndarray) -> list[list[Cloud]]:
    """Return each batch raw, centred and scaled, and shifted; and, last, centred but not scaled."""
    most = max(1, MOST_POINTS // len(merged.labels))
    block = np.ix_(pair, pair)
    clouds = []
    for position, moments in enumerate(merged.batch_moments):
        scale, _, target = merged.map_of(position)
        covariance, mean, target = moments.covariance, moments.mean[pair], target[pair]
        scaled = (scale @ covariance @ scale.T)[block]
        raw = _some(merged.before(position)[..., pair], most)
        moved = _some(merged.after(position)[..., pair], most)
        nowhere = np.zeros(2)
        clouds.append(
            [
                Cloud(raw, mean, covariance[block]),
                Cloud(moved - target, nowhere, scaled),
                Cloud(moved, target, scaled),
                Cloud(raw - mean, nowhere, covariance[block]),
            ]
        )
    return clouds


def _some(draws: np.ndarray, most: int) -> np.ndarray:
    rows = draws.reshape(-1, draws.shape[-1])
    return rows[:: -(-len(rows) // most)]


def _ellipse(mean: np.ndarray, covariance: np.ndarray, radius: float) -> np.ndarray:
    angle = np.linspace(0, 2 * np.pi, 121)
    circle = radius * np.array([np.cos(angle), np.sin(angle)])
    return mean[:, None] + np.linalg.cholesky(covariance) @ circle


def _draw_batches(
    axes: np.ndarray, clouds: Sequence[Sequence[Cloud]], labels: Sequence[str], radius: float
) -> None:
    few = len(labels) <= len(style.CYCLE)
    colours = style.CYCLE[: len(labels)] if few else [style.BLUE] * len(labels)
    width, alpha = (1.4, 1.0) if few else (0.8, style.faintness(len(labels)))
    for (*stages, unscaled), label, colour in zip(clouds, labels, colours, strict=True):
        line = {"color": colour, "alpha": alpha}
        for ax, cloud in zip(axes, stages, strict=True):
            ax.plot(*cloud.points.T, ".", color=colour, markersize=1.5, alpha=0.25, zorder=0)
            outline = _ellipse(cloud.mean, cloud.covariance, radius)
            ax.plot(*outline, label=label, linewidth=width, **line)
        outline = _ellipse(unscaled.mean, unscaled.covariance, radius)
        axes[1].plot(*outline, linewidth=width / 2, linestyle="--", **line)


def _legend(axes: np.ndarray, batches: Sequence[str]) -> None:
    handles, names = axes[0].get_legend_handles_labels()
    if len(batches) > len(style.CYCLE):
        handles, names = [handles[0], handles[-1]], [f"{len(batches)} batches", names[-1]]
    for handle in style.legend_above(axes[0].figure, handles, names).legend_handles:
        handle.set_alpha(1.0)

"""plot_batches(): the sub-posteriors before and after the merge."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

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
from arviz_swiss.plots import drawing

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

SAMPLED, MAPPED = "sampled", "mapped"
COLOURS = {
    SAMPLED: drawing.BLUE,
    MAPPED: drawing.ORANGE,
    "merged": drawing.BLACK,
    "reference": drawing.GREEN,
}
VISUALS = (SAMPLED, MAPPED, "merged", "reference", "title", "caption", "legend")
# More points than a panel has pixels.
GRID = 512
# By which shapes are compared.
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


class Samples(NamedTuple):
    """Draws whose densities are drawn, each (rows, parameters), and labels of both."""

    sampled: list[np.ndarray]
    mapped: list[np.ndarray]
    merged: np.ndarray
    reference: np.ndarray | None
    parameters: np.ndarray
    titles: np.ndarray
    batches: list[str]


def plot_batches(
    dt: Container | str | PathLike[str],
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    group: str = "posterior",
    coords: Mapping[str, Any] | None = None,
    reference: Any = None,
    transforms: Mapping[str, Any] | None = None,
    model: Any = None,
    plot_collection: "PlotCollection | None" = None,
    backend: str | None = None,
    labeller: Any = None,
    aes_by_visuals: Mapping[str, Sequence[str]] | None = None,
    visuals: Mapping[str, Mapping[str, Any] | bool] | None = None,
    stats: Mapping[str, Mapping[str, Any]] | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    """Draw every batch's marginal densities before the merge and after it, and the merged one.

    Each parameter has two panels: the batches as they were sampled, and as they were mapped. The
    merged density is on top in both. Mapped batches that do not lie on one another differ in shape,
    which no map by means and covariances mends.

    Parameters
    ----------
    dt : InferenceData, DataTree, or path
        As `merge` returned it with a method that moves draws, or its file.
    var_names, filter_vars, coords
        What to draw, as in ArviZ. Without them, of more than 12 parameters the 12 whose mapped
        batches differ most in shape; the title says so.
    group : str, default "posterior"
    reference : InferenceData, DataTree or Dataset, optional
        A posterior of all data, whose density is drawn too; matched by label.
    transforms : mapping of variable to transform, optional
        Your own transform objects, if you merged with any.
    model : pymc.Model, optional
        The model that you merged with, if any. Without it, variables that were merged in its
        unconstrained space are drawn there.
    plot_collection : PlotCollection, optional
        Where to draw; without it a new one is made, with a legend.
    backend : {"matplotlib", "plotly", "bokeh", "none"}, optional
        ArviZ's ``rcParams["plot.backend"]`` when absent.
    labeller : ArviZ labeller, optional
    aes_by_visuals : mapping of visual to aesthetics, optional
        "sampled" and "mapped" follow all aesthetics that `pc_kwargs` map to their dimensions
        ``parameter``, ``stage`` and ``batch``, such as ``aes={"color": ["batch"]}``; others follow
        none.
    visuals : mapping of visual to mapping or False, optional
        Keywords of single visuals, or False to leave them out: "sampled", "mapped", "merged",
        "reference", "title", "caption", "legend".
    stats : mapping, optional
        ``{"density": {"grid_len": 1024}}`` draws curves through so many points, 512 when absent.
    **pc_kwargs
        To ``PlotCollection.wrap``, with ``rows=`` to ``PlotCollection.grid``. Facets are along
        ``parameter`` and ``stage``, which is "sampled" or "mapped".

    Returns
    -------
    PlotCollection

    Raises
    ------
    TypeError, ValueError
        When `dt` is not what `merge` returned or its draws were newly made, or `reference` or the
        selection does not match it.
    ModuleNotFoundError
        When the backend is not installed; it names the extra to install.

    See Also
    --------
    plot_shift : the batches' means, in the order of the batches

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> rng = np.random.default_rng(0)
    >>> batches = [{"mu": rng.normal(mean, 1, size=(4, 500))} for mean in (-1, 1)]
    >>> pc = az_swiss.plot_batches(az_swiss.merge(batches, kind="inflated"), backend="none")
    >>> pc.viz["plot"].sizes
    Frozen({'parameter': 1, 'stage': 2})
    """
    points = _grid_len(stats)
    opened = open_merged(dt, group)
    opened.require_moved("there are no moved draws to move back. Keep the batches themselves.")
    # Only the model leads back from its unconstrained space.
    is_in_space = opened.attrs.get(schema.SPACE) == "model" and model is None
    transformed = opened.transformed if is_in_space else []
    if is_in_space:
        draws = opened.select(var_names, filter_vars, coords)
        present = draws["batch"].values.astype(str)
        kept = [at for at, label in enumerate(opened.labels) if label in present]
        batches = {opened.labels[position]: opened.images_before(position) for position in kept}
    else:
        opened.check_names(var_names, filter_vars)
        draws = selected(opened.draws[opened.names], var_names, filter_vars, coords)
        undone = subposteriors(dt, group=group, transforms=transforms, model=model)
        batches = {k: containers.read(b, group).groups[group] for k, b in undone.items()}
    matched = None if reference is None else _reference(draws, reference, group, transformed)
    samples = _samples(draws, batches, matched, transformed, labeller)
    varying = np.flatnonzero(np.ptp(samples.merged, axis=0) > 0)
    if not varying.size:
        raise ValueError(f"var_names={var_names!r}: only constants are selected.")
    is_selected = var_names is not None or coords is not None
    why = "those whose mapped batches differ most in shape"
    shapes = _shape_differences([rows[:, varying] for rows in samples.mapped])
    shown, caption = drawing.choose(varying, shapes, why, is_selected, panels=2)
    data = _batch_curves(samples, shown, points)
    made = drawing.begin(
        data[["density"]],
        ["parameter", "stage"],
        names=VISUALS,
        panel=(2.6, 2.0),
        columns=4,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        aes_by_visuals=aes_by_visuals,
        pc_kwargs=pc_kwargs,
    )
    _draw(made, samples, shown, data)
    made.caption(caption)
    made.legend(_entries(reference is not None))
    return made.collection


def _grid_len(stats: Mapping[str, Mapping[str, Any]] | None) -> int:
    if unknown := set(stats or {}) - {"density"}:
        raise ValueError(f"stats has no {', '.join(sorted(unknown))}; it has density.")
    density = dict((stats or {}).get("density", {}))
    points = int(density.pop("grid_len", GRID))
    if density or points < 2:
        raise ValueError(f'stats["density"] takes grid_len, 2 or more, got {stats!r}.')
    return points


def _samples(
    draws: xr.Dataset,
    batches: Mapping[str, xr.Dataset],
    reference: np.ndarray | None,
    transformed: Sequence[str],
    labeller: Any,
) -> Samples:
    """Return the draws whose densities are drawn."""
    merged = _flat(draws, draws)
    owners = np.repeat(draws["batch"].values.astype(str), draws.sizes["draw"])
    layout = layout_of(draws, list(draws.data_vars))
    return Samples(
        sampled=[_flat(batch, draws) for batch in batches.values()],
        mapped=[merged[owners == label] for label in batches],
        merged=merged,
        reference=reference,
        parameters=np.array(layout.labels()),
        titles=drawing.element_labels(layout, labeller, transformed),
        batches=list(batches),
    )


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


def _shape_differences(mapped: Sequence[np.ndarray]) -> np.ndarray:
    """Return how far quantiles of the mapped batches are from the median batch's, in sds."""
    quantiles = np.array([np.quantile(rows, QUANTILES, axis=0) for rows in mapped])
    sds = np.std(np.concatenate(mapped), axis=0)
    return np.abs(quantiles - np.median(quantiles, axis=0)).max(axis=(0, 1)) / sds


def _batch_curves(samples: Samples, shown: np.ndarray, points: int) -> xr.Dataset:
    """Return the batches' densities, by stage on one grid for all of a parameter's batches."""
    stages = {SAMPLED: samples.sampled, MAPPED: samples.mapped}
    shape = (shown.size, len(stages), len(samples.batches), points)
    heights, grids = np.full(shape, np.nan), np.empty((*shape[:2], points))
    for at, batches in enumerate(stages.values()):
        every = [curves(np.sort(rows[:, shown].T, axis=1)) for rows in batches]
        low = np.min([own.low for own in every], axis=0)
        high = np.max([own.high for own in every], axis=0)
        grids[:, at] = np.linspace(low, high, points, axis=1)
        for position, own in enumerate(every):
            for parameter in np.flatnonzero(own.bandwidth > 0):
                heights[parameter, at, position] = np.interp(
                    grids[parameter, at],
                    own.grids[parameter],
                    own.values[parameter],
                    left=np.nan,
                    right=np.nan,
                )
    facets = ("parameter", "stage")
    return xr.Dataset(
        {"density": ((*facets, "batch", "point"), heights), "grid": ((*facets, "point"), grids)},
        {
            "parameter": samples.parameters[shown],
            "stage": list(stages),
            "batch": samples.batches,
        },
    )


def _whole_curve(rows: np.ndarray, like: xr.Dataset) -> xr.DataArray:
    """Return the density of draws on its own grid, in both panels of each parameter."""
    own = curves(np.sort(rows.T, axis=1))
    x, y = (
        xr.DataArray(values, {"parameter": like["parameter"].values}, ("parameter", "point"))
        for values in (own.grids, own.values)
    )
    return drawing.along(x, y).expand_dims(stage=like["stage"].values)


def _draw(made: drawing.Drawing, samples: Samples, shown: np.ndarray, data: xr.Dataset) -> None:
    alpha = drawing.faintness(data.sizes["batch"])
    for stage in (SAMPLED, MAPPED):
        own = data.sel(stage=[stage])
        look = {"alpha": alpha, "width": 0.8, "color": COLOURS[stage]}
        made.add(stage, drawing.curves, own["density"], grid=own["grid"], **look)
    merged = _whole_curve(samples.merged[:, shown], data)
    made.add("merged", drawing.lines, merged, color=COLOURS["merged"], width=1.6)
    if samples.reference is not None:
        reference = _whole_curve(samples.reference[:, shown], data)
        look = {"color": COLOURS["reference"], "width": 1.6, "linestyle": drawing.DASHED}
        made.add("reference", drawing.lines, reference, **look)
    titles = [[title, f"{title}, mapped"] for title in samples.titles[shown]]
    coords = {dim: data[dim].values for dim in ("parameter", "stage")}
    texts = xr.DataArray(np.array(titles, dtype=object), coords, ("parameter", "stage"))
    made.add("title", drawing.title, texts)
    made.each("remove_axis")


def _entries(has_reference: bool) -> dict[str, dict[str, Any]]:
    names = {SAMPLED: "batches", MAPPED: "batches, mapped", "merged": "merged"}
    entries: dict[str, dict[str, Any]] = {
        label: {"color": COLOURS[name]} for name, label in names.items()
    }
    if has_reference:
        entries["reference"] = {"color": COLOURS["reference"], "linestyle": drawing.DASHED}
    return entries

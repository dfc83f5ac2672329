"""plot_certificate(): the weights of the draws, their tail, and what they would move."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from arviz_swiss.correcting.certificate import NOTABLE
from arviz_swiss.data.containers import Container
from arviz_swiss.data.layout import layout_of
from arviz_swiss.data.selection import selected
from arviz_swiss.merging.merged import Merged, open_merged
from arviz_swiss.merging.records import GOOD_KHAT, USABLE_KHAT, Certificate
from arviz_swiss.plots import drawing

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

WEIGHTS, TAIL, BATCHES, SHIFT = "weights", "tail", "batches", "shift"
VISUALS = (
    "histogram",
    "equal",
    "largest",
    "fit",
    "usable",
    "good",
    "khat",
    "bad_khat",
    "chance",
    "notable",
    "mean_shift",
    "sd_shift",
    "title",
    "xlabel",
    "ylabel",
    "caption",
    "legend",
)
BINS = 40
# Logarithms of weights that differ by less are equal, and are drawn on an axis of this length.
EQUAL, LEAST_SPAN = 1e-6, 0.02
# Rows of the panel of shifts: of all parameters, and of selected ones.
MOST_ROWS, MOST_SELECTED = 15, 25


def plot_certificate(
    dt: Container | str | PathLike[str],
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    group: str = "posterior",
    coords: Mapping[str, Any] | None = None,
    plot_collection: "PlotCollection | None" = None,
    backend: str | None = None,
    labeller: Any = None,
    aes_by_visuals: Mapping[str, Sequence[str]] | None = None,
    visuals: Mapping[str, Mapping[str, Any] | bool] | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    """Draw what a certificate rests on: weights, their Pareto tail, k-hats, and shifts by weights.

    Four panels, each for one question:

    - **weights**: are they nearly equal? A merge that is right has them around 1.
    - **tail**: do a few draws carry the posterior? The largest weights as they are, and by the
      Pareto distribution that was fitted to them: the flatter both fall, the larger k-hat.
    - **batches**: is it all batches, or one? k-hat of each batch's draws by themselves.
    - **shift**: what would the weights change? Within the dashed lines it does not matter, within
      the band it may be chance; beyond both, refine again or `resample`.

    Parameters
    ----------
    dt : InferenceData, DataTree, or path
        As `certify` or `sample` returned it, or its file.
    var_names, filter_vars, coords
        Which parameters' shifts to draw, as in ArviZ; others are of all parameters. Without them,
        of more than 15 parameters the 15 that are shifted most; the title says so. With them, 25.
    group : str, default "posterior"
    plot_collection : PlotCollection, optional
        Where to draw; without it a new one is made, with a legend.
    backend : {"matplotlib", "plotly", "bokeh", "none"}, optional
        ArviZ's ``rcParams["plot.backend"]`` when absent.
    labeller : ArviZ labeller, optional
    aes_by_visuals : mapping of visual to aesthetics, optional
        "khat" and "bad_khat" follow all aesthetics that `pc_kwargs` map to their dimensions
        ``panel`` and ``batch``, others none.
    visuals : mapping of visual to mapping or False, optional
        Keywords of single visuals, or False to leave them out: "histogram", "equal", "largest",
        "fit", "usable", "good", "khat", "bad_khat", "chance", "notable", "mean_shift", "sd_shift",
        "title", "xlabel", "ylabel", "caption", "legend".
    **pc_kwargs
        To ``PlotCollection.wrap``, with ``rows=`` to ``PlotCollection.grid``. Facets are along
        ``panel``: "weights", "tail", "batches" and "shift".

    Returns
    -------
    PlotCollection
        Of weights and shares of draws, the logarithms to the base of 10 are drawn, with the values
        at the ticks.

    Raises
    ------
    TypeError, ValueError
        When `dt` is not what `merge` returned or has no certificate, or the selection names what is
        not there.
    ModuleNotFoundError
        When the backend is not installed; it names the extra to install.

    See Also
    --------
    certify : the certificate
    plot_refine : what to look at next if it says no

    Notes
    -----
    The band of shifts is twice the root mean square of what chance gives a parameter, the stored
    ``mahalanobis_error`` over the square root of the number of parameters. It holds for means; sds
    vary by chance about .7 times as much.

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> class Half:
    ...     def __init__(self, centre):
    ...         self.centre = centre
    ...     def log_prior(self, x):
    ...         return np.zeros(len(x))
    ...     def grad_log_prior(self, x):
    ...         return np.zeros_like(x)
    ...     def log_likelihood(self, x):
    ...         return -0.5 * np.sum((x - self.centre) ** 2, axis=1)
    ...     def grad_log_likelihood(self, x):
    ...         return self.centre - x
    >>> rng = np.random.default_rng(0)
    >>> batches = [{"mu": rng.normal(mean, 0.5**0.5, size=(4, 500))} for mean in (-1, 1)]
    >>> merged = az_swiss.merge(batches, kind="inflated")
    >>> certified = az_swiss.certify(merged, [Half(-1), Half(1)], progressbar=False)
    >>> pc = az_swiss.plot_certificate(certified, backend="none")
    >>> pc.viz["plot"]["panel"].values.tolist()
    ['weights', 'tail', 'batches', 'shift']
    """
    opened = open_merged(dt, group)
    certificate = opened.certificate
    if certificate is None:
        raise ValueError(
            "plot_certificate draws a certificate, and this merge has none: "
            "pass what certify(merged, models) returned."
        )
    shifts, caption = _shifts(opened, certificate, labeller, (var_names, filter_vars, coords))
    panels = [WEIGHTS, TAIL, BATCHES, SHIFT]
    frame = xr.Dataset({"certificate": (("panel", "batch"), np.zeros((4, len(opened.labels))))})
    made = drawing.begin(
        frame.assign_coords(panel=panels, batch=opened.labels),
        ["panel"],
        names=VISUALS,
        panel=(4.6, 3.4),
        columns=2,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        aes_by_visuals=aes_by_visuals,
        pc_kwargs=pc_kwargs,
    )
    ratios = _log_ratios(certificate)
    _draw_weights(made, ratios)
    _draw_tail(made, ratios, _smoothed(certificate))
    _draw_khats(made, opened, certificate)
    _draw_shifts(made, shifts)
    alone = "k-hat of each batch alone"
    if opened.is_redrawn:
        alone = "no batch's own draws: made anew"
    elif not np.isfinite(certificate.dataset["batch_khat"]).any():
        alone += ": too few draws"
    titles = {
        WEIGHTS: f"weights of {ratios.size} draws",
        TAIL: f"largest weights: k-hat {certificate.khat:.2f}",
        BATCHES: alone,
        SHIFT: "shift by the weights",
    }
    x_labels = {WEIGHTS: "weight", TAIL: "weight", BATCHES: "batch", SHIFT: "sds"}
    y_labels = {WEIGHTS: "draws", TAIL: "share of draws above", BATCHES: "k-hat", SHIFT: ""}
    made.add("title", drawing.title, drawing.texts(titles, "panel"), text_width=40)
    made.add("xlabel", drawing.x_label, drawing.texts(x_labels, "panel"))
    made.add("ylabel", drawing.y_label, drawing.texts(y_labels, "panel"))
    verdict = certificate.describe()
    made.caption(f"{verdict[0].upper()}{verdict[1:]} {caption}".strip())
    made.legend(_entries())
    return made.collection


def _here(panel: str, *arrays: xr.DataArray) -> Any:
    """Return arrays in one panel."""
    placed = tuple(array.expand_dims(panel=[panel]) for array in arrays)
    return placed[0] if len(placed) == 1 else placed


def _log_ratios(certificate: Certificate) -> np.ndarray:
    """Return logarithms to the base of 10 of the ratios, whose mean is 1, in descending order.

    Draws outside of the full posterior have none.
    """
    ratios = certificate.dataset["log_ratio"].values.ravel() / np.log(10)
    return np.sort(ratios)[::-1]


def _smoothed(certificate: Certificate) -> np.ndarray:
    """Return the same of the Pareto-smoothed weights, which are equal to ratios below the tail."""
    dataset = certificate.dataset
    ratios, weights = (dataset[name].values.ravel() for name in ("log_ratio", "log_weight"))
    both = np.isfinite(ratios) & np.isfinite(weights)
    constant = np.median((ratios - weights)[both]) if both.any() else 0.0
    return np.sort((weights + constant) / np.log(10))[::-1]


def _draw_weights(made: drawing.Drawing, ratios: np.ndarray) -> None:
    finite = ratios[np.isfinite(ratios)]
    if not finite.size:
        return
    span = max(float(np.ptp(finite)), LEAST_SPAN)
    middle = (finite.max() + finite.min()) / 2
    edges = np.linspace(middle - span / 2, middle + span / 2, BINS + 1)
    counts, _ = np.histogram(finite, bins=edges)
    bars = xr.DataArray(
        np.array([counts, edges[:-1], edges[1:]], dtype=float),
        {"edge": ["height", "low", "high"]},
        ("edge", "bin"),
    )
    made.add("histogram", drawing.hist, _here(WEIGHTS, bars), color=drawing.BLUE, alpha=0.6)
    equal = _here(WEIGHTS, xr.DataArray(0.0))
    made.add("equal", drawing.upright, equal, color=drawing.BLACK, width=0.8)
    made.each("xticks", *drawing.log_ticks(edges[0], edges[-1]), facet={"panel": WEIGHTS})


def _draw_tail(made: drawing.Drawing, ratios: np.ndarray, smoothed: np.ndarray) -> None:
    """Draw the largest weights, as many as ArviZ fits a Pareto distribution to."""
    count = int(np.ceil(min(0.2 * ratios.size, 3 * np.sqrt(ratios.size))))
    shares = xr.DataArray(np.log10((np.arange(count) + 0.5) / ratios.size), dims="point")
    fit = drawing.along(xr.DataArray(smoothed[:count], dims="point"), shares)
    largest = drawing.along(xr.DataArray(ratios[:count], dims="point"), shares)
    largest = largest.where(np.isfinite(largest))
    made.add("fit", drawing.lines, _here(TAIL, fit), color=drawing.ORANGE, width=2.0)
    made.add("largest", drawing.scatter, _here(TAIL, largest), color=drawing.BLUE, size=8.0)
    low, high = float(largest.sel(plot_axis="x").min()), float(largest.sel(plot_axis="x").max())
    if np.isfinite(low):
        if high - low < EQUAL:
            low, high = low - LEAST_SPAN / 2, high + LEAST_SPAN / 2
            made.each("xlim", (low, high), facet={"panel": TAIL})
        made.each("xticks", *drawing.log_ticks(low, high), facet={"panel": TAIL})
    made.each(
        "yticks", *drawing.log_ticks(float(shares[0]), float(shares[-1])), facet={"panel": TAIL}
    )


def _draw_khats(made: drawing.Drawing, merged: Merged, certificate: Certificate) -> None:
    """Draw k-hat of each batch, and below which it is good, or good with weights."""
    khats = certificate.dataset["batch_khat"].rename(batch_label="batch").drop_attrs()
    khats = khats.where(np.isfinite(khats)).reindex(batch=merged.labels)
    x = xr.DataArray(np.arange(khats.size, dtype=float), {"batch": khats["batch"].values})
    dots = _here(BATCHES, drawing.along(x, khats))
    size = 8.0 if khats.size > drawing.MOST_TICKS else 25.0
    is_bad = khats.values > USABLE_KHAT
    for visual, chosen, look in (
        ("khat", ~is_bad, {"color": drawing.BLUE, "size": size}),
        (
            "bad_khat",
            is_bad,
            {"color": drawing.VERMILLION, "size": 2 * size + 40, "marker": drawing.CROSS},
        ),
    ):
        made.add(visual, drawing.scatter, dots.isel(batch=np.flatnonzero(chosen)), **look)
    for visual, limit, style in (
        ("usable", USABLE_KHAT, drawing.DASHED),
        ("good", GOOD_KHAT, drawing.DOTTED),
    ):
        line = _here(BATCHES, xr.DataArray(limit))
        made.add(visual, drawing.across, line, color=drawing.GREY, linestyle=style)
    worst = [at for at in np.argsort(-khats.values).tolist() if is_bad[at]]
    made.label_batches(merged.labels, worst, {"panel": BATCHES})
    low, high = np.fmin(0.0, khats.min()), np.fmax(USABLE_KHAT, khats.max())
    made.each("ylim", (float(low) - 0.05, float(high) + 0.1), facet={"panel": BATCHES})


def _shifts(
    merged: Merged, certificate: Certificate, labeller: Any, selection: tuple[Any, Any, Any]
) -> tuple[xr.Dataset, str]:
    """Return the shifts to draw, with their titles, and a caption if these are not all."""
    var_names, filter_vars, coords = selection
    merged.check_names(var_names, filter_vars)
    draws = merged.draws[merged.names]
    chosen = selected(draws, var_names, filter_vars, coords)
    wanted = set(layout_of(chosen, [str(name) for name in chosen.data_vars]).labels())
    dataset = certificate.dataset
    parameters = dataset["parameter"].values.astype(str)
    is_free = dataset["sd"].values > 0
    positions = np.flatnonzero(is_free & np.isin(parameters, list(wanted)))
    if not positions.size:
        raise ValueError(f"var_names={var_names!r}: only constants are selected.")
    moved = np.fmax(np.abs(dataset["mean_shift"].values), np.abs(dataset["sd_shift"].values))
    is_selected = var_names is not None or coords is not None
    why = "those that the weights shift most"
    most = MOST_SELECTED if is_selected else MOST_ROWS
    shown, caption = drawing.choose(positions, moved[positions], why, False, most=most)
    layout = layout_of(draws, merged.names)
    titles = dict(zip(layout.labels(), layout.labels(labeller), strict=True))
    chance = 2 * float(dataset["mahalanobis_error"]) / np.sqrt(merged.free.size)
    kept = dataset[["mean_shift", "sd_shift"]].isel(parameter=shown).drop_attrs()
    return kept.assign(
        title=("parameter", [titles.get(label, label) for label in parameters[shown]]),
        chance=("bound", [-chance, chance]),
    ), f"Shifts of {caption}" if caption else ""


def _draw_shifts(made: drawing.Drawing, shifts: xr.Dataset) -> None:
    count = shifts.sizes["parameter"]
    # the first parameter is on top
    rows = xr.DataArray(np.arange(count)[::-1].astype(float), dims="parameter")
    band = _here(SHIFT, shifts["chance"])
    made.add("chance", drawing.upright_band, band, color=drawing.SKY, alpha=0.35)
    ends = xr.DataArray([-NOTABLE, NOTABLE], dims="side")
    bottom, top = xr.DataArray(-0.5), xr.DataArray(count - 0.5)
    lines = _here(SHIFT, drawing.poles(ends, bottom, top))
    made.add("notable", drawing.lines, lines, color=drawing.GREY, linestyle=drawing.DASHED)
    for visual, colour in (("mean_shift", drawing.BLUE), ("sd_shift", drawing.ORANGE)):
        dots = _here(SHIFT, drawing.along(shifts[visual].drop_vars("parameter"), rows))
        made.add(visual, drawing.scatter, dots, color=colour, size=25.0)
    titles = shifts["title"].values.tolist()
    made.each("yticks", rows.values.tolist(), titles, facet={"panel": SHIFT})
    made.each("ylim", (-0.5, count - 0.5), facet={"panel": SHIFT})


def _entries() -> dict[str, dict[str, Any]]:
    return {
        "weights, k-hats, means": {"color": drawing.BLUE},
        "Pareto fit, sds": {"color": drawing.ORANGE},
        "chance": {"color": drawing.SKY, "width": 6.0},
        "limits": {"color": drawing.GREY, "linestyle": drawing.DASHED},
    }

"""What all plots share: colours, which parameters to show, and a thin layer over arviz-plots.

Every picture is facets along one or two dimensions, and visuals drawn into them one after another.
"""

import importlib
import importlib.util
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from arviz_swiss.data import containers
from arviz_swiss.data.layout import Layout
from arviz_swiss.merging.merged import Merged

# Okabe and Ito's palette, which people with any colour vision can tell apart.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#BBBBBB"
CYCLE = (BLUE, ORANGE, GREEN, VERMILLION, SKY, PURPLE)
# arviz-plots' names of line styles and markers, which every backend has its own word for.
DASHED, DOTTED = "C1", "C2"
DOT, CROSS = "C0", "C3"

# Shown of many parameters when nobody chose any; of those chosen, as many as ArviZ draws.
MOST_PARAMETERS = 12
# Panels of parameters that nobody chose, where there is room for fewer.
_room: ContextVar[int | None] = ContextVar("room", default=None)
MOST_TICKS, MOST_BESIDE = 30, 10
# Letters of a label that has others beside it.
SHORT = 6
FEWEST_DECADES, MOST_DECADES = 3, 6
ROUNDING = 1e-9
TITLE_WIDTH = 26
# What is drawn along these follows aesthetics.
FOLLOWING = {"batch", "method"}
DOTS_AN_INCH, LETTERS_AN_INCH = 100, 12
# What an entry of a legend below a panel of bokeh takes.
LEGEND_DOTS = 24

# The extras that bring each backend.
EXTRAS = {
    "matplotlib": "plots",
    "plotly": "plots,plotly",
    "bokeh": "plots,bokeh",
    "none": "plots",
}
# What the plotly backend of arviz-plots imports beside it.
NEEDS = {"plotly": ("plotly", "webcolors")}
# Backends whose text is HTML.
IN_HTML = ("plotly", "bokeh")


def checked_backend(backend: str | None, plot_collection: Any = None) -> str:
    """Return what to draw with; refuse what is not installed, and say how to install it."""
    if plot_collection is not None:
        return plot_collection.backend
    if backend is not None and backend not in EXTRAS:
        raise ValueError(f"backend must be one of {', '.join(EXTRAS)}, got {backend!r}.")
    if importlib.util.find_spec("arviz_plots") is None:
        raise _missing("arviz-plots", backend or "matplotlib")
    name = backend or str(containers.rc_param("plot.backend"))
    # with nothing to draw with, ArviZ's own choice is to draw nothing
    if name == "none" and backend is None and importlib.util.find_spec("matplotlib") is None:
        raise _missing("matplotlib", "matplotlib")
    for package in NEEDS.get(name, (name,) if name != "none" else ()):
        if importlib.util.find_spec(package) is None:
            raise _missing(package, name)
    return name


def _missing(package: str, backend: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(
        f"the plots draw with {package}, which is not installed: "
        f'pip install "arviz-swiss[{EXTRAS[backend]}]".',
        name=package.replace("-", "_"),
    )


class Choice(NamedTuple):
    """Positions of the parameters that are shown, and a caption if these are not all."""

    positions: np.ndarray
    caption: str


@contextmanager
def at_most(panels: int) -> Iterator[None]:
    """Have pictures show no more panels than these, of parameters that nobody chose."""
    token = _room.set(panels)
    try:
        yield
    finally:
        _room.reset(token)


def choose(
    positions: np.ndarray,
    scores: np.ndarray,
    why: str,
    is_selected: bool,
    *,
    panels: int = 1,
    most: int = MOST_PARAMETERS,
) -> Choice:
    """Return the parameters to show, in their order: of too many, those with the highest scores.

    `why` says what the scores are, `panels` how many each parameter takes. Selected ones are shown
    as long as ArviZ would.
    """
    limit = containers.rc_param("plot.max_subplots") or len(positions) * panels
    room = _room.get()
    if is_selected:
        most = int(limit) // panels
    elif room is not None:
        most = min(most, max(1, room // panels))
    if len(positions) <= most:
        return Choice(positions, "")
    scores = np.where(np.isfinite(scores), scores, -np.inf)
    kept = np.sort(np.argsort(-scores, kind="stable")[:most])
    caption = f"{most} of {len(positions)} parameters: {why}. Choose others with var_names."
    return Choice(positions[kept], caption)


def chance_scatter(merged: Merged) -> np.ndarray:
    """Return how far chance scatters the batches' means, in sds, (batch, parameter)."""
    maps = merged.maps
    variances = np.diagonal(maps["covariance"].values, axis1=1, axis2=2)
    chance = maps["power"].values[:, None] * variances
    chance = chance - np.diag(maps["pooled_covariance"].values)
    return np.sqrt(np.maximum(chance, 0.0) * float(maps["stands_for"]))


def forest_height(batches: int) -> float:
    """Return how many inches a panel takes with a row for each batch."""
    return float(np.clip(0.2 * batches, 1.5, 8.0)) + 0.6


def beyond_chance(merged: Merged) -> np.ndarray:
    """Return the largest distance of a batch from the merged mean over its scatter by chance."""
    away = np.abs(merged.maps["mean"].values - merged.maps["pooled_mean"].values)
    scatter = chance_scatter(merged)
    return np.divide(away, scatter, out=np.zeros_like(away), where=scatter > 0).max(axis=0)


@dataclass(frozen=True)
class Drawing:
    """A PlotCollection that visuals are drawn into, and what its user wants of each of them.

    `variable` is the one variable of the collection's data, which every visual's data go by.
    """

    collection: Any
    variable: str
    visuals: Mapping[str, Any]
    aes_by_visuals: Mapping[str, Any]
    is_new: bool

    def options(self, visual: str, default: bool = True) -> dict[str, Any] | None:
        """Return what the user passes to a visual; None if it is not to be drawn."""
        given = self.visuals.get(visual, default)
        if given is False:
            return None
        return {} if given is True or given is None else dict(given)

    def add(self, visual: str, function: Callable, data: xr.DataArray, /, **defaults: Any) -> None:
        """Draw one visual in every facet that its data have.

        What is drawn of batches or methods follows the aesthetics that are mapped to its
        dimensions, unless `aes_by_visuals` says otherwise.
        """
        options = self.options(visual)
        if options is None or not data.size:
            return
        known = self.collection.aes_set
        mapped = {
            name
            for name in known
            if FOLLOWING & set(data.dims) and set(self.collection.aes[name].dims) <= set(data.dims)
        }
        wanted = known & set(self.aes_by_visuals.get(visual, mapped) or ())
        defaults = {name: value for name, value in defaults.items() if name not in wanted}
        if "size" in defaults and self.collection.backend == "bokeh":
            # an area for other backends, a width for this one
            defaults["size"] **= 0.5
        self.collection.map(
            function,
            visual,
            data=self._in_all_facets(data).to_dataset(name=self.variable),
            ignore_aes=known - wanted,
            **{**defaults, **options},
        )

    def _in_all_facets(self, data: xr.DataArray) -> xr.DataArray:
        """Return data in all facets: NaN, which arviz-plots leaves alone, or no text, in others."""
        facets = self.collection.viz.coords
        for dim in self.collection.facet_dims - set(data.dims):
            data = data.expand_dims({dim: facets[dim].values})
        labels = {
            dim: facets[dim].values
            for dim in data.dims
            if dim in facets and not np.array_equal(facets[dim], data[dim])
        }
        if not labels:
            return data
        return data.reindex(labels, fill_value="" if data.dtype == object else np.nan)

    def legend(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        """Put a legend below all facets: labels, and the lines that stand for them."""
        options = self.options("legend", default=self.is_new)
        if options is None:
            return
        backend = self.collection.backend
        width, height = self._inches()
        defaults: dict[str, Any] = {}
        if backend == "matplotlib":
            columns = _legend_columns(entries, width)
            defaults = {"loc": "outside lower center", "ncols": columns}
        elif backend == "plotly":
            defaults = {
                "legend_orientation": "h",
                "legend_yanchor": "top",
                "legend_y": -0.8 / height,
            }
        elif backend == "bokeh":
            defaults = {"side": "below", "legend_target": (-1, 0), "label_text_font_size": "12px"}
            self._make_room(LEGEND_DOTS * (len(entries) + 1))
        kwargs = [{"width": 2.0, **lines} for lines in entries.values()]
        self.module.legend(
            self.collection, kwargs, list(entries), update_visuals=False, **{**defaults, **options}
        )

    def _make_room(self, dots: int) -> None:
        """Make the last row of bokeh's panels higher: a legend takes its room from all of them."""
        rows, plots = self._arrays("row_index"), self._arrays("plot")
        last = max(int(row.max()) for row in rows)
        for row, plot in zip(rows, plots, strict=True):
            for target in plot.values[row.values == last]:
                target.height += dots

    def caption(self, text: str) -> None:
        """Put a title above all facets, in as many lines as it needs."""
        options = self.options("caption", default=self.is_new)
        if options is None or not text:
            return
        joint = "<br>" if self.collection.backend in IN_HTML else "\n"
        text = joint.join(textwrap.wrap(text, int(LETTERS_AN_INCH * self._inches()[0])))
        _set_figure_title(self.collection, text, **{"size": 11, **options})

    def each(
        self, function: str, *args: Any, facet: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        """Call a function of the backend, by its name, on all panels or those of a facet."""
        for array in self._arrays("plot"):
            labels = {dim: label for dim, label in (facet or {}).items() if dim in array.dims}
            for target in array.sel(labels).values.ravel():
                getattr(self.module, function)(*args, target, **options)

    def label_batches(
        self, labels: Sequence[str], first: Sequence[int], facet: Mapping[str, Any]
    ) -> None:
        """Label positions along x, those in `first` before others, upright where they are long."""
        is_long = max(map(len, labels)) > SHORT
        ticks = some_ticks(len(labels), first, MOST_TICKS if is_long else MOST_BESIDE)
        options = {"rotation": 90} if is_long else {}
        shown = [labels[tick] for tick in ticks]
        self.each("xticks", ticks, shown, facet=facet, **options)
        self.each("xlim", (-0.5, len(labels) - 0.5), facet=facet)

    def _arrays(self, name: str) -> list[xr.DataArray]:
        """Return what the collection has of all panels: one array, or one a variable."""
        own = self.collection.viz[name]
        return list(own.data_vars.values()) if isinstance(own, xr.DataTree) else [own]

    @property
    def module(self) -> Any:
        """The backend of arviz-plots."""
        return importlib.import_module(f"arviz_plots.backend.{self.collection.backend}")

    def _inches(self) -> tuple[float, float]:
        """Return how wide and how high the figure is."""
        core = importlib.import_module(f"arviz_plots.backend.{self.collection.backend}.core")
        size, units = core.get_figsize(self.collection)
        unit = 1 if units == "inches" else DOTS_AN_INCH
        return size[0] / unit, size[1] / unit


def begin(
    data: xr.Dataset,
    facets: Sequence[str],
    *,
    names: Sequence[str],
    panel: tuple[float, float],
    columns: int,
    plot_collection: Any,
    backend: str | None,
    visuals: Mapping[str, Any] | None,
    aes_by_visuals: Mapping[str, Any] | None,
    pc_kwargs: Mapping[str, Any],
    **figure_kwargs: Any,
) -> Drawing:
    """Return the drawing of data with one variable, in panels of so many inches.

    `names` are the visuals; keywords that are not the user's go to the figure.
    """
    for argument, given in (("visuals", visuals), ("aes_by_visuals", aes_by_visuals)):
        if unknown := [name for name in given or () if name not in names]:
            raise ValueError(f"{argument} has no {', '.join(unknown)}; it has {', '.join(names)}.")
    name = checked_backend(backend, plot_collection)
    is_new = plot_collection is None
    if is_new:
        plot_collection = _collection(data, facets, panel, columns, name, pc_kwargs, figure_kwargs)
    variable = str(next(iter(data.data_vars)))
    return Drawing(plot_collection, variable, visuals or {}, aes_by_visuals or {}, is_new)


def _collection(
    data: xr.Dataset,
    facets: Sequence[str],
    panel: tuple[float, float],
    columns: int,
    backend: str,
    pc_kwargs: Mapping[str, Any],
    figure_kwargs: Mapping[str, Any],
) -> Any:
    from arviz_plots import PlotCollection

    options = {"cols": list(facets), **pc_kwargs}
    count = int(np.prod([data.sizes[dim] for dim in options["cols"] if dim in data.dims]))
    if "rows" in options:
        shape = (int(np.prod([data.sizes.get(dim, 1) for dim in options["rows"]])), count)
        make = PlotCollection.grid
    else:
        # as many in each row, in no more rows than needed
        rows = -(-count // columns)
        options.setdefault("col_wrap", len(facets) * -(-count // (rows * len(facets))))
        shape = (-(-count // options["col_wrap"]), min(count, options["col_wrap"]))
        make = PlotCollection.wrap
    figure = {**figure_kwargs, **(options.pop("figure_kwargs", None) or {})}
    if "figsize" not in figure:
        inches = np.array([panel[0] * shape[1], panel[1] * shape[0] + 0.6])
        is_inches = backend == "matplotlib"
        figure["figsize"] = tuple((inches if is_inches else DOTS_AN_INCH * inches).tolist())
        figure["figsize_units"] = "inches" if is_inches else "dots"
    if backend == "matplotlib":
        figure.setdefault("layout", "constrained")
    elif backend == "plotly" and shape[0] > 1:
        figure.setdefault("vertical_spacing", 0.9 / (panel[1] * shape[0]))
    return make(data, backend=backend, figure_kwargs=figure, **options)


def _legend_columns(labels: Any, inches: float) -> int:
    """Return how many labels fit side by side, by their longest."""
    each = 0.6 + 0.085 * max(len(label) for label in labels)
    return int(np.clip(inches // each, 1, len(labels)))


def _set_figure_title(collection: Any, text: str, **options: Any) -> None:
    if hasattr(collection, "add_title"):
        collection.add_title(text, **options)
        return
    # arviz-plots before 1.0 has no titles of figures
    figure, size = collection.viz["figure"].item(), options["size"]
    if collection.backend == "matplotlib":
        title = figure.suptitle(text, fontsize=size)
    elif collection.backend == "plotly":
        figure.update_layout(title={"text": text, "x": 0.5, "font_size": size})
        title = figure.layout.title
    elif collection.backend == "bokeh":
        from bokeh.layouts import column
        from bokeh.models import Div

        title = Div(text=text, styles={"font-size": f"{size}px"})
        collection.viz["figure"] = xr.DataArray(column(title, figure))
    else:
        title = {"function": "set_figure_title", "string": text, **options}
    collection.viz["figure_title"] = xr.DataArray(np.array(title, dtype=object))


def _backend_of(target: Any) -> Any:
    from arviz_plots.plot_collection import backend_from_object

    return backend_from_object(target)


def scatter(da: xr.DataArray, target: Any, **options: Any) -> Any:
    """Draw a dot for each x and y along `plot_axis`."""
    x, y = (da.sel(plot_axis=axis).values.ravel() for axis in ("x", "y"))
    return _backend_of(target).scatter(x, y, target, **options)


def lines(da: xr.DataArray, target: Any, **options: Any) -> Any:
    """Draw a line through the x and y of each sequence of points, all of them as one visual.

    A NaN ends a line in every backend, and one visual takes a hundredth of the time of many.
    """
    paths = da.transpose(..., "point", "plot_axis").values
    paths = paths.reshape(-1, *paths.shape[-2:])
    apart = np.concatenate([paths, np.full_like(paths[:, :1], np.nan)], axis=1)
    x, y = apart.reshape(-1, 2)[:-1].T
    return _backend_of(target).line(x, y, target, **options)


def curves(da: xr.DataArray, target: Any, grid: xr.DataArray, **options: Any) -> Any:
    """Draw curves of one grid, of which overlapping ones add up where lines do not."""
    heights = da.transpose(..., "point").values.reshape(-1, da.sizes["point"])
    return _backend_of(target).multiple_lines(np.asarray(grid), heights.T, target, **options)


def across(da: xr.DataArray, target: Any, **options: Any) -> Any:
    """Draw a horizontal line at each value, through the whole panel.

    plotly draws none into an empty panel: draw it after others.
    """
    return _backend_of(target).hline(da.item(), target, **options)


def upright(da: xr.DataArray, target: Any, **options: Any) -> Any:
    """Draw a vertical line at each value, through the whole panel, likewise after others."""
    return _backend_of(target).vline(da.item(), target, **options)


def upright_band(da: xr.DataArray, target: Any, **options: Any) -> Any:
    """Fill between two values along `bound`, through the whole panel."""
    return _backend_of(target).vspan(*da.values.tolist(), target, **options)


def band_across(da: xr.DataArray, target: Any, **options: Any) -> Any:
    """Fill between two values along `bound`, through the whole panel."""
    return _backend_of(target).hspan(*da.values.tolist(), target, **options)


def fill(da: xr.DataArray, target: Any, **options: Any) -> Any:
    """Fill between `low` and `high` along `edge`, at `x`."""
    x, low, high = (da.sel(edge=edge).values for edge in ("x", "low", "high"))
    return _backend_of(target).fill_between_y(x, low, high, target, **options)


def hist(da: xr.DataArray, target: Any, **options: Any) -> Any:
    """Draw bars of a `height`, from `low` to `high` along `edge`."""
    height, low, high = (da.sel(edge=edge).values for edge in ("height", "low", "high"))
    return _backend_of(target).hist(height, low, high, target, **options)


def title(da: xr.DataArray, target: Any, **options: Any) -> Any:
    """Put the text above a panel, in as many lines as it needs."""
    text = textwrap.fill(str(da.item()), options.pop("text_width", TITLE_WIDTH))
    return _backend_of(target).title(text, target, **options)


def x_label(da: xr.DataArray, target: Any, **options: Any) -> Any:
    """Put the text below a panel."""
    return _backend_of(target).xlabel(str(da.item()), target, **options)


def y_label(da: xr.DataArray, target: Any, **options: Any) -> Any:
    """Put the text beside a panel."""
    return _backend_of(target).ylabel(str(da.item()), target, **options)


def texts(values: Mapping[str, str], dim: str) -> xr.DataArray:
    """Return texts by their facet along `dim`, for titles and labels."""
    return xr.DataArray(np.array(list(values.values()), dtype=object), {dim: list(values)}, (dim,))


def along(x: xr.DataArray, y: xr.DataArray) -> xr.DataArray:
    """Return x and y along `plot_axis`."""
    x, y = xr.broadcast(x, y)
    return xr.concat([x, y], "plot_axis").assign_coords(plot_axis=["x", "y"])


def bars(low: xr.DataArray, high: xr.DataArray, y: xr.DataArray) -> xr.DataArray:
    """Return horizontal lines, from the low `point` to the high."""
    return xr.concat([along(low, y), along(high, y)], "point")


def poles(x: xr.DataArray, low: xr.DataArray, high: xr.DataArray) -> xr.DataArray:
    """Return vertical lines, from the low `point` to the high."""
    return xr.concat([along(x, low), along(x, high)], "point")


def checked_ci_prob(ci_prob: float | None) -> float:
    """Return a probability, ArviZ's when None; refuse what is none, such as a percentage."""
    if ci_prob is None:
        return float(containers.rc_param("stats.ci_prob"))
    if not isinstance(ci_prob, Real) or not 0 < ci_prob < 1:
        raise ValueError(f"ci_prob must be between 0 and 1, such as 0.94, got {ci_prob!r}.")
    return float(ci_prob)


def element_labels(layout: Layout, labeller: Any, transformed: Sequence[str]) -> np.ndarray:
    """Return a label an element of the layout, which says where it is drawn unconstrained."""
    return np.array(
        [
            label + (" (unconstrained)" if variable in transformed else "")
            for label, variable in zip(layout.labels(labeller), layout.owners(), strict=True)
        ]
    )


def faintness(count: int) -> float:
    """Return the opacity at which so many overlapping lines stay legible."""
    return float(np.clip(2.0 / np.sqrt(count), 0.15, 0.9))


def some_ticks(count: int, first: Sequence[int], most: int = MOST_TICKS) -> list[int]:
    """Return as many positions as there is room to label, those in `first` before others."""
    if count <= most:
        return list(range(count))
    gap = -(-count // most)
    ticks: list[int] = []
    for position in [*first, *range(0, count, 2 * gap)]:
        if all(abs(position - tick) >= gap for tick in ticks):
            ticks.append(position)
    return sorted(ticks)


def log_ticks(low: float, high: float) -> tuple[list[float], list[str]]:
    """Return where to put ticks on an axis of logarithms to the base of 10, and their labels.

    Not all backends of arviz-plots have logarithmic axes.
    """
    decades = 10.0 ** np.arange(np.floor(low), np.ceil(high) + 1)
    values = np.empty(0)
    for choice in (decades, np.multiply.outer(decades, [1, 2, 5]).ravel(), _multiples(low, high)):
        if values.size < FEWEST_DECADES:
            logs = np.log10(choice)
            values = choice[(logs >= low - ROUNDING) & (logs <= high + ROUNDING)]
    values = values[:: max(1, -(-values.size // MOST_DECADES))]
    return np.log10(values).tolist(), [f"{value:.6g}" for value in values]


def _multiples(low: float, high: float) -> np.ndarray:
    """Return multiples of a round number between two logarithms: the largest that has enough."""
    first, last = 10.0**low, 10.0**high
    unit = 10.0 ** np.floor(np.log10(max(last - first, np.finfo(float).tiny)))
    multiples = np.empty(0)
    for step in (5 * unit, 2 * unit, unit, unit / 2, unit / 5):
        if multiples.size < FEWEST_DECADES:
            bounds = np.ceil(first / step - ROUNDING), np.floor(last / step + ROUNDING)
            multiples = step * np.arange(bounds[0], bounds[1] + 1)
    return multiples

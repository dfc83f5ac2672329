"""What was drawn, whichever backend drew it: data of visuals, texts, ticks."""

import numpy as np
import xarray as xr

BACKENDS = ("none", "matplotlib", "plotly", "bokeh")


def visual(pc, name, **facet):
    """Return one object of the backend, or an array of them."""
    (array,) = pc.viz[name].data_vars.values()
    chosen = array.sel({dim: label for dim, label in facet.items() if dim in array.dims})
    return chosen.item() if chosen.size == 1 else chosen.values


def xy(pc, name, **facet):
    """Return x and y of a line, of dots, or of many lines one after another with NaN between."""
    drawn = visual(pc, name, **facet)
    if pc.backend == "none":
        x, y = drawn["x"], drawn["y"]
        return _joined([(x, column) for column in y.T]) if np.ndim(y) == 2 else (x, y)
    if pc.backend == "plotly":
        x, y = np.asarray(drawn.x, dtype=float), np.asarray(drawn.y, dtype=float)
        return _joined(_apart(x, y)) if np.isnan(y[-1]) else (x, y)
    if pc.backend == "bokeh":
        data = drawn.data_source.data
        if "xs" in data:
            return _joined(zip(data["xs"], data["ys"], strict=True))
        x, y = np.asarray(data["x"]), np.asarray(data["y"])
        return _joined(zip(x, y, strict=True)) if y.ndim == 2 else (x, y)
    if hasattr(drawn, "get_xdata"):
        return np.asarray(drawn.get_xdata()), np.asarray(drawn.get_ydata())
    if hasattr(drawn, "get_segments"):
        # matplotlib leaves points out that are NaN
        return _joined([segment.T for segment in drawn.get_segments()])
    return tuple(np.ma.getdata(drawn.get_offsets()).T)


def lines(pc, name, **facet):
    """Return the single lines of a visual, each as (x, y) without NaN."""
    return list(_apart(*xy(pc, name, **facet)))


def _apart(x, y):
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    is_gap = np.isnan(x) | np.isnan(y)
    parts = np.split(np.arange(x.size), np.flatnonzero(np.diff(is_gap)) + 1)
    return [(x[part], y[part]) for part in parts if part.size and not is_gap[part[0]]]


def _joined(curves):
    x, y = [], []
    for grid, heights in curves:
        x += [*grid, np.nan]
        y += [*heights, np.nan]
    return np.array(x[:-1], dtype=float), np.array(y[:-1], dtype=float)


def text(pc, name, **facet):
    """Return the text of a title, in one line."""
    drawn = visual(pc, name, **facet) if facet or name in pc.viz.children else pc.viz[name].item()
    if pc.backend == "none":
        written = drawn["string"]
    else:
        written = drawn.get_text() if hasattr(drawn, "get_text") else drawn.text
    return written.replace("<br>", "\n").replace("\n", " ")


def titles(pc, dim):
    """Return the titles of all panels along a dimension."""
    return [text(pc, "title", **{dim: label}) for label in pc.viz["plot"][dim].values]


def caption(pc):
    """Return the title of the figure; nothing where there is none."""
    return text(pc, "figure_title") if "figure_title" in pc.viz.data_vars else ""


def ticks(pc, axis, **facet):
    """Return the labels at the ticks of an axis, "x" or "y"."""
    target = pc.viz["plot"].sel(facet).item()
    if pc.backend == "none":
        return [d for d in target if d["function"] == f"{axis}ticks"][-1]["labels"]
    if pc.backend == "plotly":
        select = target.figure.select_xaxes if axis == "x" else target.figure.select_yaxes
        return list(next(iter(select(row=target.row, col=target.col))).ticktext)
    if pc.backend == "bokeh":
        own = (target.xaxis if axis == "x" else target.yaxis)[0]
        return [own.major_label_overrides[place] for place in own.ticker.ticks]
    labels = target.get_xticklabels() if axis == "x" else target.get_yticklabels()
    return [label.get_text() for label in labels]


def panels(pc):
    """Return how many panels there are."""
    plot = pc.viz["plot"]
    arrays = plot.data_vars.values() if isinstance(plot, xr.DataTree) else [plot]
    return sum(array.size for array in arrays)

"""plot_refine(): where each round of refine moved the moments."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from scipy.stats import norm

from arviz_swiss.correcting.rounds import UNFINISHED
from arviz_swiss.data.containers import Container
from arviz_swiss.merging.merged import Merged, open_merged
from arviz_swiss.plots import drawing

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

# The panel of all parameters together, before those of single ones.
STEPS = "all parameters"
VISUALS = (
    "short",
    "noise",
    "step_error",
    "step",
    "interval",
    "path",
    "mean_error",
    "mean",
    "undone",
    "title",
    "xlabel",
    "ylabel",
    "caption",
    "legend",
)
# Steps below this are rounding.
LEAST = 1e-6


def plot_refine(
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
    """Draw where each round of `refine` moved the posterior's moments, with Monte Carlo errors.

    The first panel has the length of each round's step: rounds have settled where a step is no
    longer than its noise. Steps that stay long, or grow, ask for more rounds or points, or for
    fewer and larger batches. Every other panel has one parameter: its mean after each round, and
    its interval, by which one sees what the merge alone had wrong.

    Parameters
    ----------
    dt : InferenceData, DataTree, or path
        As `refine` or `sample` returned it, or its file.
    var_names, filter_vars, coords
        What to draw, as in ArviZ. Without them, of more than 11 parameters the 11 that moved most;
        the title says so. Of a variable that was merged with another number of elements, such as a
        simplex, `coords` keep all.
    group : str, default "posterior"
    ci_prob : float, optional
        Probability of the intervals, which are those of Gaussians in the space of the merge;
        ArviZ's ``rcParams["stats.ci_prob"]`` when absent.
    plot_collection : PlotCollection, optional
        Where to draw; without it a new one is made, with a legend.
    backend : {"matplotlib", "plotly", "bokeh", "none"}, optional
        ArviZ's ``rcParams["plot.backend"]`` when absent.
    labeller : ArviZ labeller, optional
    aes_by_visuals : mapping of visual to aesthetics, optional
        None of them follows aesthetics unless told to.
    visuals : mapping of visual to mapping or False, optional
        Keywords of single visuals, or False to leave them out: "short", "noise", "step_error",
        "step", "interval", "path", "mean_error", "mean", "undone", "title", "xlabel", "ylabel",
        "caption", "legend".
    **pc_kwargs
        To ``PlotCollection.wrap``, with ``rows=`` to ``PlotCollection.grid``. Facets are along
        ``panel``: "all parameters", and the labels of parameters.

    Returns
    -------
    PlotCollection
        Of steps, the logarithms to the base of 10 are drawn, with the values at the ticks.

    Raises
    ------
    TypeError, ValueError
        When `dt` is not what `merge` returned or was not refined, `ci_prob` is no probability, or
        the selection names what is not there.
    ModuleNotFoundError
        When the backend is not installed; it names the extra to install.

    See Also
    --------
    refine : the rounds
    plot_certificate : whether the result can be trusted

    Notes
    -----
    A step is the Mahalanobis length of the mean's move, and its error is the root mean square that
    noise alone gives it. No parameter's mean, in its sds, is moved further than the step, so the
    error bars of the means are bounds of their errors. Rounds that led away from the posterior, and
    were undone, are crosses.

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
    >>> refined = az_swiss.refine(merged, [Half(-1), Half(1)], progressbar=False)
    >>> pc = az_swiss.plot_refine(refined, backend="none")
    >>> pc.viz["plot"]["panel"].values.tolist()
    ['all parameters', 'mu']
    """
    width = norm.isf((1 - drawing.checked_ci_prob(ci_prob)) / 2)
    opened = open_merged(dt, group)
    if opened.maps.sizes.get("round", 1) < 2:
        raise ValueError(
            "plot_refine draws rounds of refine, and this merge has none: "
            "pass what refine(merged, models) returned."
        )
    positions = opened.positions(var_names, filter_vars, coords)
    is_selected = var_names is not None or coords is not None
    why, most = "those that refine moved most", drawing.MOST_PARAMETERS - 1
    moved = _moved(opened)[positions]
    shown, caption = drawing.choose(positions, moved, why, is_selected, most=most)
    steps, means = _steps(opened), _means(opened, shown, width)
    panels = [STEPS, *means["panel"].values.tolist()]
    rounds = opened.maps["round"].values
    made = drawing.begin(
        _frame(panels, rounds),
        ["panel"],
        names=VISUALS,
        panel=(2.8, 2.3),
        columns=4,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        aes_by_visuals=aes_by_visuals,
        pc_kwargs=pc_kwargs,
    )
    _draw_steps(made, steps)
    _draw_means(made, means)
    made.each("xticks", *_round_ticks(rounds))
    made.each("xlim", (-0.5, len(rounds) - 0.5))
    labels = drawing.element_labels(opened.layout, labeller, opened.transformed)[opened.free]
    titles = dict(zip(panels, [f"step, {STEPS}", *labels[shown]], strict=True))
    made.add("title", drawing.title, drawing.texts(titles, "panel"))
    made.add("xlabel", drawing.x_label, drawing.texts(dict.fromkeys(panels, "round"), "panel"))
    made.add("ylabel", drawing.y_label, drawing.texts({STEPS: "posterior sds"}, "panel"))
    made.caption(" ".join(filter(None, [opened.refinement.describe(), caption])))
    made.legend(_entries(bool((~steps["taken"]).any())))
    return made.collection


def _frame(panels: Sequence[str], rounds: np.ndarray) -> xr.Dataset:
    """Return data that have all facets, for the PlotCollection to begin with."""
    empty = np.zeros((len(panels), len(rounds)))
    return xr.Dataset({"refine": (("panel", "round"), empty)}, {"panel": panels, "round": rounds})


def _sds(merged: Merged) -> np.ndarray:
    """Return the sds after each round, (round, parameter)."""
    covariances = merged.maps["round_covariance"].transpose("round", ...).values
    return np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))


def _moved(merged: Merged) -> np.ndarray:
    """Return how far each parameter's mean or sd is from the merge's, in present sds."""
    means = merged.maps["round_mean"].transpose("round", "parameter").values
    sds = _sds(merged)
    return np.maximum(np.abs(means[-1] - means[0]) / sds[-1], np.abs(np.log(sds[-1] / sds[0])))


def _taken(merged: Merged) -> np.ndarray:
    maps = merged.maps
    if "taken" not in maps:
        return np.ones(maps.sizes["round"], dtype=bool)
    return maps["taken"].values.astype(bool)


def _steps(merged: Merged) -> xr.Dataset:
    """Return the length of each round's step and its error, without round 0, the merge."""
    maps = merged.maps
    rounds = {name: ("round", maps[name].values[1:]) for name in ("step", "step_error")}
    taken = ("round", _taken(merged)[1:])
    return xr.Dataset({**rounds, "taken": taken}, {"round": maps["round"].values[1:]})


def _means(merged: Merged, shown: np.ndarray, width: float) -> xr.Dataset:
    """Return means after each round, half-widths of intervals, and bounds of the means' errors."""
    maps, sds = merged.maps, _sds(merged)[:, shown]
    errors = np.nan_to_num(maps["step_error"].values)[:, None] * sds
    both = ("round", "panel")
    return xr.Dataset(
        {
            "mean": (both, maps["round_mean"].transpose("round", "parameter").values[:, shown]),
            "half": (both, width * sds),
            "error": (both, errors),
            "taken": ("round", _taken(merged)),
        },
        {"round": maps["round"].values, "panel": merged.parameters[shown]},
    )


def _draw_steps(made: drawing.Drawing, steps: xr.Dataset) -> None:
    """Draw logarithms of steps, of their errors, and of what is short."""
    lengths = np.maximum(steps["step"], LEAST)
    errors = np.maximum(steps["step_error"], LEAST)
    low, high = np.maximum(lengths - errors, lengths / 10), lengths + errors
    low, high, lengths, errors = (np.log10(x) for x in (low, high, lengths, errors))
    x = xr.DataArray(steps["round"].values.astype(float), {"round": steps["round"].values})
    here = {"panel": [STEPS]}
    noise = drawing.bars(x - 0.3, x + 0.3, errors).expand_dims(here)
    made.add("noise", drawing.lines, noise, color=drawing.ORANGE, width=2.0)
    poles = drawing.poles(x, low, high).expand_dims(here)
    made.add("step_error", drawing.lines, poles, color=drawing.BLUE, width=1.5)
    dots = drawing.along(x, lengths).expand_dims(here)
    _dots(made, "step", dots, steps["taken"].values)
    short = xr.DataArray(np.log10(UNFINISHED)).expand_dims(here)
    made.add("short", drawing.across, short, color=drawing.GREY, linestyle=drawing.DASHED)
    bottom = float(min(errors.min(), low.min(), np.log10(UNFINISHED)))
    top = float(max(high.max(), np.log10(UNFINISHED)))
    room = max(0.2, 0.06 * (top - bottom))
    bottom, top = bottom - room, top + room
    made.each("ylim", (bottom, top), facet={"panel": STEPS})
    made.each("yticks", *drawing.log_ticks(bottom, top), facet={"panel": STEPS})


def _draw_means(made: drawing.Drawing, means: xr.Dataset) -> None:
    """Draw means with their errors, and the posterior's intervals behind them."""
    x = xr.DataArray(means["round"].values.astype(float), {"round": means["round"].values})
    mean, half, error = (means[name] for name in ("mean", "half", "error"))
    intervals = drawing.poles(x, mean - half, mean + half)
    made.add("interval", drawing.lines, intervals, color=drawing.SKY, alpha=0.5, width=6.0)
    path = drawing.along(x, mean).rename(round="point").drop_vars("point")
    made.add("path", drawing.lines, path, color=drawing.GREY, width=1.0)
    poles = drawing.poles(x, mean - error, mean + error)
    made.add("mean_error", drawing.lines, poles, color=drawing.BLUE, width=1.5)
    _dots(made, "mean", drawing.along(x, mean), means["taken"].values)


def _dots(made: drawing.Drawing, visual: str, dots: xr.DataArray, taken: np.ndarray) -> None:
    own, undone = (dots.isel(round=np.flatnonzero(chosen)) for chosen in (taken, ~taken))
    made.add(visual, drawing.scatter, own, color=drawing.BLUE, size=25.0)
    look = {"color": drawing.VERMILLION, "marker": drawing.CROSS, "size": 50.0}
    made.add("undone", drawing.scatter, undone, **look)


def _round_ticks(rounds: np.ndarray) -> tuple[list[int], list[str]]:
    shown = rounds[:: -(-len(rounds) // 8)].tolist()
    return shown, ["merge" if number == 0 else str(number) for number in shown]


def _entries(with_undone: bool) -> dict[str, dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = {
        "mean or step": {"color": drawing.BLUE},
        "interval": {"color": drawing.SKY, "width": 6.0},
        "noise of a step": {"color": drawing.ORANGE},
        "short": {"color": drawing.GREY, "linestyle": drawing.DASHED},
    }
    return entries | ({"undone": {"color": drawing.VERMILLION}} if with_undone else {})

"""plot_agreement(): how far each batch is from the merged posterior, against what chance gives."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from scipy.stats import beta, chi2, rankdata

from arviz_swiss.base.heterogeneity import DISAGREE_ONE
from arviz_swiss.data.containers import Container
from arviz_swiss.merging.merged import Merged, open_merged
from arviz_swiss.plots import drawing

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

ORDER, AGAINST = "order", "distribution"
TITLES = {ORDER: "Q in the order of the batches", AGAINST: "Q against its distribution"}
VISUALS = (
    "chance",
    "envelope",
    "equal",
    "limit",
    "q",
    "disagreeing",
    "title",
    "xlabel",
    "ylabel",
    "caption",
    "legend",
)
# So many times beyond the limit, a batch leaves no room for the others on a linear axis.
FAR = 5.0


def plot_agreement(
    dt: Container | str | PathLike[str],
    *,
    group: str = "posterior",
    ci_prob: float | None = None,
    plot_collection: "PlotCollection | None" = None,
    backend: str | None = None,
    aes_by_visuals: Mapping[str, Sequence[str]] | None = None,
    visuals: Mapping[str, Mapping[str, Any] | bool] | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    r"""Draw how far each batch's mean is from the merged one, against the chi-squared distribution.

    Q of a batch is its squared distance from the merged mean, over all parameters. On the left it
    is in the order of the batches: a trend or a step is a sign of sorted data. On the right it is
    against the quantiles of its distribution under a random partition of a well-specified model:
    single crosses above are batches to look at, all dots above the band a model that does not fit
    or data that were not shuffled, all below it batches that share data.

    Parameters
    ----------
    dt : InferenceData, DataTree, or path
        As `merge` returned it, with any method, or its file.
    group : str, default "posterior"
    ci_prob : float, optional
        Probability of the bands, on the right of each ordered Q by itself; ArviZ's
        ``rcParams["stats.ci_prob"]`` when absent.
    plot_collection : PlotCollection, optional
        Where to draw; without it a new one is made, with a legend.
    backend : {"matplotlib", "plotly", "bokeh", "none"}, optional
        ArviZ's ``rcParams["plot.backend"]`` when absent.
    aes_by_visuals : mapping of visual to aesthetics, optional
        "q" and "disagreeing" follow all aesthetics that `pc_kwargs` map to their dimensions
        ``panel`` and ``batch``, others none.
    visuals : mapping of visual to mapping or False, optional
        Keywords of single visuals, or False to leave them out: "chance", "envelope", "equal",
        "limit", "q", "disagreeing", "title", "xlabel", "ylabel", "caption", "legend".
    **pc_kwargs
        To ``PlotCollection.wrap``, with ``rows=`` to ``PlotCollection.grid``. Facets are along
        ``panel``: "order" and "distribution".

    Returns
    -------
    PlotCollection
        Where a batch is more than five times beyond the limit, logarithms to the base of 10 are
        drawn, with the values at the ticks.

    Raises
    ------
    TypeError, ValueError
        When `dt` is not what `merge` returned, or `ci_prob` is no probability.
    ModuleNotFoundError
        When the backend is not installed; it names the extra to install.

    See Also
    --------
    plot_shift : the same parameter by parameter
    report : what speaks against the merge, in words

    Notes
    -----
    :math:`Q_b = (\mu_b - \mu)' (p_b V_b - V)^{-1} (\mu_b - \mu)` is chi-squared with as many
    degrees of freedom as there are parameters; the values drawn allow for the bias of few draws, as
    the p-values of `report` do. Beyond the dashed line, a p-value of .01 over the number of
    batches, `report` calls a batch disagreeing.

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> rng = np.random.default_rng(0)
    >>> batches = [{"mu": rng.normal(mean, 1, size=(4, 500))} for mean in (-1, 0, 1)]
    >>> pc = az_swiss.plot_agreement(az_swiss.merge(batches, kind="inflated"), backend="none")
    >>> pc.viz["plot"]["panel"].values.tolist()
    ['order', 'distribution']
    """
    share = (1 - drawing.checked_ci_prob(ci_prob)) / 2
    opened = open_merged(dt, group)
    degrees = opened.free.size
    data = _ranked(opened, degrees, share)
    limit = float(chi2.isf(DISAGREE_ONE / data.sizes["batch"], degrees))
    is_beyond = data["q"].values > limit
    is_log = bool(data["q"].max() > FAR * limit)
    made = drawing.begin(
        data[["q"]].expand_dims(panel=list(TITLES)),
        ["panel"],
        names=VISUALS,
        panel=(4.4, 3.4),
        columns=2,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        aes_by_visuals=aes_by_visuals,
        pc_kwargs=pc_kwargs,
    )
    _draw(made, data, limit, is_beyond, is_log)
    _arrange(made, data, limit, is_beyond, is_log)
    quantile = f"quantile of chi-squared, {degrees} degrees of freedom"
    made.add("title", drawing.title, drawing.texts(TITLES, "panel"), text_width=40)
    made.add("xlabel", drawing.x_label, drawing.texts({ORDER: "batch", AGAINST: quantile}, "panel"))
    made.add("ylabel", drawing.y_label, drawing.texts(dict.fromkeys(TITLES, "Q"), "panel"))
    made.caption(_overall(opened))
    made.legend(_entries(bool(is_beyond.any())))
    return made.collection


def _ranked(merged: Merged, degrees: int, share: float) -> xr.Dataset:
    """Return Q of each batch, the quantile of its rank, and where chance puts that rank.

    Where a batch alone knows a direction, its Q has fewer degrees of freedom: the value with the
    same p-value stands for it.
    """
    diagnostics = merged.diagnostics
    pvalues = diagnostics["batch_q_pvalue"].values
    fair = (1 - diagnostics["precision_bias"].values) ** 2 / float(merged.maps["stands_for"])
    # beyond what numbers can hold there is no such value
    q = np.where(pvalues > 0, chi2.isf(pvalues, degrees), fair * diagnostics["batch_q"].values)
    count = len(merged.labels)
    ranks = rankdata(q, method="ordinal")
    low, high = (
        chi2.ppf(beta.ppf(tail, ranks, count + 1 - ranks), degrees) for tail in (share, 1 - share)
    )
    columns = {
        "q": q,
        "quantile": chi2.ppf((ranks - 0.5) / count, degrees),
        "low": low,
        "high": high,
        "position": np.arange(count),
    }
    dataset = xr.Dataset({k: ("batch", v) for k, v in columns.items()}, {"batch": merged.labels})
    return dataset.assign(band=("bound", chi2.ppf([share, 1 - share], degrees)))


def _scaled(values: Any, is_log: bool) -> Any:
    return np.log10(np.maximum(values, np.finfo(float).tiny)) if is_log else values


def _draw(
    made: drawing.Drawing, data: xr.Dataset, limit: float, is_beyond: np.ndarray, is_log: bool
) -> None:
    band = _scaled(data["band"], is_log).expand_dims(panel=[ORDER])
    look = {"color": drawing.SKY, "alpha": 0.35}
    made.add("chance", drawing.band_across, band, **look)
    ordered = _scaled(data.drop_vars("band").sortby("quantile"), is_log)
    edges = ordered[["quantile", "low", "high"]].rename(quantile="x").to_array("edge")
    # a band is no visual of batches
    edges = edges.rename(batch="point").drop_vars("point").expand_dims(panel=[AGAINST])
    made.add("envelope", drawing.fill, edges, **look)
    ends = xr.DataArray(ordered["quantile"].values[[0, -1]], dims="point")
    line = drawing.along(ends, ends).expand_dims(panel=[AGAINST])
    made.add("equal", drawing.lines, line, color=drawing.BLACK, width=0.8)
    x = xr.concat([data["position"], _scaled(data["quantile"], is_log)], "panel")
    dots = drawing.along(x.assign_coords(panel=list(TITLES)), _scaled(data["q"], is_log))
    size = 8.0 if data.sizes["batch"] > drawing.MOST_TICKS else 25.0
    for visual, chosen, colour, marker, area in (
        ("q", ~is_beyond, drawing.BLUE, drawing.DOT, size),
        ("disagreeing", is_beyond, drawing.VERMILLION, drawing.CROSS, 2 * size + 40),
    ):
        own = dots.isel(batch=np.flatnonzero(chosen))
        made.add(visual, drawing.scatter, own, color=colour, marker=marker, size=area)
    limits = xr.DataArray([_scaled(limit, is_log)] * len(TITLES), {"panel": list(TITLES)})
    made.add("limit", drawing.across, limits, color=drawing.GREY, linestyle=drawing.DASHED)


def _arrange(
    made: drawing.Drawing, data: xr.Dataset, limit: float, is_beyond: np.ndarray, is_log: bool
) -> None:
    """Set ticks and limits: the least values, which logarithms spread out, need not be seen."""
    labels = data["batch"].values.tolist()
    worst = [at for at in np.argsort(-data["q"].values).tolist() if is_beyond[at]]
    made.label_batches(labels, worst, {"panel": ORDER})
    highest = max(float(data["q"].max()), limit, float(data["high"].max()))
    if not is_log:
        made.each("ylim", (0.0, 1.05 * highest))
        return
    low, high = np.log10(float(data["low"].min()) / 2), np.log10(highest) + 0.3
    made.each("ylim", (low, high))
    made.each("yticks", *drawing.log_ticks(low, high))
    first, last = np.log10(float(data["quantile"].min())), np.log10(float(data["quantile"].max()))
    made.each("xticks", *drawing.log_ticks(first, last), facet={"panel": AGAINST})


def _overall(merged: Merged) -> str:
    """Return what Q of all batches says."""
    q, degrees, pvalue = (
        float(merged.diagnostics[name]) for name in ("q_fair", "q_df", "q_pvalue")
    )
    return f"All batches: Q = {q:.4g} where chance gives about {degrees:.0f} (p = {pvalue:.2g})."


def _entries(with_disagreeing: bool) -> dict[str, dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = {
        "chance": {"color": drawing.SKY, "width": 6.0},
        "beyond this a batch disagrees": {"color": drawing.GREY, "linestyle": drawing.DASHED},
        "batches": {"color": drawing.BLUE},
    }
    return entries | ({"disagreeing": {"color": drawing.VERMILLION}} if with_disagreeing else {})

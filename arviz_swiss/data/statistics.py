"""Statistics of whichever ArviZ is installed, of arrays and Datasets of draws."""

from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.base.convergence import Convergence
from arviz_swiss.base.convergence import convergence as ranked_convergence
from arviz_swiss.data.containers import SAMPLE_DIMS, native_container


def summary(
    dataset: xr.Dataset,
    kind: str = "all",
    ci_prob: float | None = None,
    ci_kind: str | None = None,
) -> Any:
    """Return ArviZ's summary table of draws, not rounded; `ci_kind` is "hdi", "eti" or ArviZ's."""
    import arviz

    draws = _with_dims_of_their_own(dataset)
    # A constant has no R-hat.
    with np.errstate(divide="ignore", invalid="ignore"):
        if native_container() == "DataTree":
            asked = {"kind": kind, "ci_prob": ci_prob, "ci_kind": ci_kind}
            return arviz.summary(draws, round_to="none", **asked)
        table = arviz.summary(draws, round_to="none", kind=kind, hdi_prob=ci_prob)
        if ci_kind != "eti" or kind == "diagnostics":
            return table
        asked = {"kind": "stats", "stat_focus": "median", "hdi_prob": ci_prob}
        ends = arviz.summary(draws, round_to="none", **asked).filter(like="eti_")
    place = table.columns.get_loc("sd") + 1
    rest = table.drop(columns=table.columns[place : place + 2])
    return rest.iloc[:, :place].join(ends).join(rest.iloc[:, place:])


def nested_rhat(draws: np.ndarray, superchains: np.ndarray) -> np.ndarray | None:
    """Return ArviZ's nested R-hat of (chain, draw, parameter) draws; None where it has none.

    `superchains` numbers that of each chain from zero. All must have as many chains.
    """
    counts = np.bincount(superchains)
    if native_container() == "InferenceData" or counts.size < 2 or np.ptp(counts):
        return None
    from arviz_stats.base import array_stats

    # A constant has no R-hat.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(
            array_stats.rhat_nested(draws, superchains, chain_axis=0, draw_axis=1), float
        )


def _with_dims_of_their_own(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset with no dimension shared by two variables, chain and draw aside.

    ArviZ 1.x lays out all variables' values in one common order of dimensions, but labels them in
    each variable's own: where the orders differ, rows carry the values of other elements.
    """
    arrays = {}
    for number, (name, array) in enumerate(dataset.data_vars.items()):
        dims = [dim for dim in array.dims if dim not in SAMPLE_DIMS]
        kept = array.reset_coords([c for c in array.coords if c not in array.dims], drop=True)
        arrays[name] = kept.rename({d: f"swiss_{number}_{axis}" for axis, d in enumerate(dims)})
    return xr.Dataset(arrays)


def convergence(series: np.ndarray) -> Convergence:
    """Return ArviZ's R-hat, bulk and tail effective sizes of (chain, draw, parameter) draws."""
    return ranked_convergence(series, _quantile)


def _quantile(ordered: np.ndarray, probability: float) -> np.ndarray:
    """Return a quantile of draws in order, (parameter, draw), as the installed ArviZ rounds it.

    Of draws that repeat themselves the last digit decides how many lie below it.
    """
    size = ordered.shape[1]
    if native_container() == "InferenceData":
        place = size * probability + (1 - probability)
        below = int(np.clip(np.floor(place), 1, size - 1))
        share = np.clip(place - below, 0, 1)
        return (1 - share) * ordered[:, below - 1] + share * ordered[:, below]
    place = (size - 1) * probability
    below = int(place)
    share = place - below
    low, high = ordered[:, below], ordered[:, min(below + 1, size - 1)]
    step = high - low
    return high - step * (1 - share) if share >= 0.5 else low + step * share


def effective_size(draws: np.ndarray) -> float:
    """Return ArviZ's effective sample size for the mean of one (chain, draw) array.

    What users read is ArviZ's; `base.effective` has the estimate for many series at once.
    """
    if native_container() == "InferenceData":
        import arviz

        return float(arviz.ess(draws, method="mean"))
    from arviz_stats.base import array_stats

    return float(array_stats.ess(draws, chain_axis=0, draw_axis=1, method="mean"))


def pareto_smoothed(log_ratios: np.ndarray) -> tuple[np.ndarray, float]:
    """Return ArviZ's Pareto-smoothed log weights, which sum to one, and k-hat.

    k-hat is 0 where all ratios that are not zero are equal, since there is no tail to fit; it is
    infinite, and the weights are equal, where all ratios are zero.
    """
    finite = np.isfinite(log_ratios)
    if not finite.any():
        return np.full(log_ratios.size, -np.log(log_ratios.size)), np.inf
    if np.ptp(log_ratios[finite]) < 1e-6:
        return np.where(finite, -np.log(finite.sum()), -np.inf), 0.0
    # weights that are nearly equal give ArviZ's fit of the tail zeros to divide by
    with np.errstate(divide="ignore", invalid="ignore"):
        if native_container() == "InferenceData":
            import arviz

            log_weights, khat = arviz.psislw(log_ratios)
        else:
            from arviz_stats.base import array_stats

            # ArviZ 1.x takes the negative of what it smooths, as leave-one-out gives it
            log_weights, khat = array_stats.psislw(-log_ratios)
    return np.asarray(log_weights, float), float(khat)

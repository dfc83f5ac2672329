"""summary(): the statistics of a merge as tables."""

from collections.abc import Mapping, Sequence
from numbers import Real
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from arviz_swiss.base.heterogeneity import cochran
from arviz_swiss.checking.evidence import Evidence
from arviz_swiss.checking.findings import flags_by_batch
from arviz_swiss.checking.report import Report, check_report, judge
from arviz_swiss.data.containers import Container
from arviz_swiss.data.layout import layout_of
from arviz_swiss.data.selection import selected
from arviz_swiss.data.statistics import summary as arviz_summary
from arviz_swiss.merging.merged import Merged, open_merged

KINDS, CI_KINDS = ("all", "stats", "diagnostics", "merge"), ("hdi", "eti")


class Columns(NamedTuple):
    """Which columns about parameters, and what interval: arguments of ArviZ's summary."""

    kind: str
    ci_prob: float | None
    ci_kind: str | None


def summary(
    merged: Container | str | PathLike[str],
    *,
    by: str = "batch",
    report: Report | None = None,
    group: str = "posterior",
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    coords: Mapping[str, Any] | None = None,
    kind: str | None = None,
    ci_prob: float | None = None,
    ci_kind: str | None = None,
    round_to: int | None = None,
) -> pd.DataFrame:
    r"""Return the statistics of a merge as a table, a row a batch or a row a parameter.

    Parameters
    ----------
    merged : InferenceData, DataTree, or path
        As `merge` returned it, or its file.
    by : {"batch", "parameter"}, default "batch"
        What has a row of its own.
    report : Report, optional
        What ``report(merged)`` returned; without it the statistics are computed here.
    group : str, default "posterior"
    var_names : str or sequence of str, optional
        Variables to look at, as in ArviZ (``"~name"`` leaves one out). `q`, `p`, `influence` and
        `flag` of a batch are about all of them.
    filter_vars : {None, "like", "regex"}, optional
        How to read `var_names`, as in ArviZ.
    coords : mapping of dimension to values, optional
        Elements to look at, as in ArviZ. Of a variable that was merged with another number of
        elements, such as a simplex, all are looked at.
    kind : {"all", "stats", "diagnostics", "merge"}, optional
        With ``by="parameter"``: which columns. "stats" and "diagnostics" are those of
        ``arviz.summary``, "merge" those of the merge, "all" (the default) one after the other.
    ci_prob : float, optional
        With ``by="parameter"``: of the interval, as in ArviZ; by default ArviZ's own setting.
    ci_kind : {"hdi", "eti"}, optional
        With ``by="parameter"``: highest density or equal tails; by default what ArviZ shows.
    round_to : int, optional
        Decimals to round to.

    Returns
    -------
    DataFrame
        With ``by="batch"``: `size` (rows of data, where known), `power`, `draws`, `rhat` (the
        largest) and `ess` (the least, bulk or tail) of the batch's own chains, `divergences`, `q`
        and `p` (heterogeneity and its p-value), `shift` (of the mean, the largest, in merged sds),
        `sd_ratio_min` and `sd_ratio_max` (batch sd over merged sd), `influence` (Mahalanobis
        distance that the merged mean moves without the batch), `shape` and `shape_parameter` (the
        worst), `khat` if it was certified, and `flag` in words.

        With ``by="parameter"``: the columns of ``arviz.summary`` (whose R-hat compares merged
        draws, and is 1 by construction), `weights_shift` if it was certified (how far the weights
        move the mean, in sds) and `khat` (of all weights, the same in every row), then `q` and `p`
        (heterogeneity of the batch means of this parameter), `shift` and `shift_batch` (the
        largest), the range of `sd_ratio`, `batch_rhat` (the largest) and `batch_ess` (the least) of
        the batches' own chains, `rhat_nested` (see Notes), `skewness` (the median batch's), `shape`
        and `shape_batch` (the worst). These are about the space of the merge: where a transform
        changes the number of elements, every row of the variable shows the element with the least
        `p`.

        Columns that need draws which the merge did not keep are NaN.

    Raises
    ------
    ValueError
        When `merged` is not a merged object, `by` or `report` is wrong, or the selection names what
        is not there.
    TypeError
        When an argument is of another type than documented.

    See Also
    --------
    report : the same in words

    Notes
    -----
    `rhat_nested` takes each batch for a superchain [1]_, and its own draws as they were sampled. It
    asks whether batches that were all sampled from about the same distribution found the same. So
    it is there only where `refine` or `sample` told each batch what the others know of the shared
    parameters (kind "tilted"), and with ArviZ 1.x, which has it. Batches of any other kind were
    sampled from posteriors of their own rows, which lie apart however well they were sampled (about
    :math:`\sqrt{1 + B}` for B inflated ones): whether by more than chance is what `q` and `p` say.
    Of merged draws it would be 1 by construction.

    References
    ----------
    .. [1] Margossian et al. (2024), Nested R-hat: Assessing the convergence of Markov chain Monte
       Carlo when running many short chains, Bayesian Analysis. https://doi.org/10.1214/24-BA1453

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> rng = np.random.default_rng(0)
    >>> batches = [{"mu": rng.normal(size=(4, 500))} for _ in range(3)]
    >>> az_swiss.summary(az_swiss.merge(batches, kind="inflated"))[["power", "draws", "flag"]]
        power  draws flag
    b0    3.0   2000
    b1    3.0   2000
    b2    3.0   2000
    """
    if by not in ("batch", "parameter"):
        raise ValueError(f'unknown by={by!r}: rows are chosen with by="batch" or by="parameter".')
    if round_to is not None and not isinstance(round_to, int | np.integer):
        raise TypeError(f"round_to must be a number of decimals or None, got {round_to!r}.")
    _check_columns(by, kind, ci_prob, ci_kind)
    opened = open_merged(merged, group)
    if kind in ("stats", "diagnostics"):
        draws = selected(opened.draws, var_names, filter_vars, coords)
        table = arviz_summary(draws, kind, ci_prob, ci_kind)
        return table if round_to is None else table.round(round_to)
    judged = judge(opened) if report is None else check_report(report, opened)
    if by == "batch":
        table = _by_batch(opened, judged, opened.positions(var_names, filter_vars, coords))
    else:
        draws = selected(opened.draws, var_names, filter_vars, coords)
        columns = Columns(kind or "all", ci_prob, ci_kind)
        table = _by_parameter(Evidence(opened, judged.statistics), draws, columns)
    return table if round_to is None else table.round(round_to)


def _check_columns(by: str, kind: Any, ci_prob: Any, ci_kind: Any) -> None:
    given = {"kind": kind, "ci_prob": ci_prob, "ci_kind": ci_kind}
    if by == "batch" and (names := [f"{k}=" for k, value in given.items() if value is not None]):
        raise ValueError(
            f'{", ".join(names)} choose columns about parameters: pass by="parameter" too.'
        )
    for name, known in (("kind", KINDS), ("ci_kind", CI_KINDS)):
        if given[name] is not None and given[name] not in known:
            raise ValueError(f"{name}={given[name]!r} is not one of {', '.join(map(repr, known))}.")
    if ci_prob is not None and not (isinstance(ci_prob, Real) and 0 < float(ci_prob) < 1):
        raise ValueError(f"ci_prob must be between 0 and 1, got {ci_prob!r}.")


def _by_batch(merged: Merged, report: Report, positions: np.ndarray) -> pd.DataFrame:
    maps, labels, names = merged.maps, merged.labels, merged.parameters[positions]
    evidence = Evidence(merged, report.statistics.isel(parameter=positions))
    shape, worst = _worst(evidence.values("shape"), names, axis=1)
    certificate = {}
    if merged.certificate is not None:
        khats = merged.certificate.dataset["batch_khat"].sel(batch_label=labels)
        certificate = {"khat": khats.values}
    return pd.DataFrame(
        {
            "size": maps["size"].values if "size" in maps else np.nan,
            "power": maps["power"].values,
            "draws": maps["draws"].values,
            "rhat": evidence.values("rhat").max(axis=1),
            "ess": _ess(evidence).min(axis=1),
            "divergences": evidence.values("divergences"),
            "q": evidence.values("batch_q"),
            "p": evidence.values("batch_q_pvalue"),
            "shift": _worst(evidence.values("shift"), names, axis=1)[0],
            "sd_ratio_min": evidence.values("sd_ratio").min(axis=1),
            "sd_ratio_max": evidence.values("sd_ratio").max(axis=1),
            "influence": evidence.values("influence"),
            "shape": shape,
            "shape_parameter": worst,
            **certificate,
            "flag": flags_by_batch(report.findings, labels),
        },
        index=pd.Index(labels),
    )


def _by_parameter(evidence: Evidence, draws: xr.Dataset, columns: Columns) -> pd.DataFrame:
    merged, maps = evidence.merged, evidence.merged.maps
    labels = np.array(merged.labels)
    shape, shape_batch = _worst(evidence.values("shape"), labels, axis=0)
    shift, shift_batch = _worst(evidence.values("shift"), labels, axis=0)
    variances = np.einsum("bii->bi", maps["covariance"].values)
    nested = {n: evidence.values(n) for n in ("rhat_nested",) if n in evidence.statistics}
    q, pvalue = cochran(maps["mean"].values, variances, merged.scatter)
    table = pd.DataFrame(
        {
            "q": q,
            "p": pvalue,
            "shift": shift,
            "shift_batch": shift_batch,
            "sd_ratio_min": evidence.values("sd_ratio").min(axis=0),
            "sd_ratio_max": evidence.values("sd_ratio").max(axis=0),
            "batch_rhat": evidence.values("rhat").max(axis=0),
            "batch_ess": _ess(evidence).min(axis=0),
            **nested,
            "skewness": np.median(evidence.values("skewness"), axis=0),
            "shape": shape,
            "shape_batch": shape_batch,
        },
        index=pd.Index(merged.parameters),
    )
    if columns.kind == "merge":
        names = [label for name in draws.data_vars for label in layout_of(draws, [name]).labels()]
        usual = pd.DataFrame(index=pd.Index(names))
    else:
        usual = arviz_summary(draws, *columns)
    if merged.certificate is not None:
        certificate = merged.certificate.dataset
        shifts = pd.Series(certificate["mean_shift"].values, certificate["parameter"].values)
        usual = usual.assign(
            weights_shift=shifts.reindex(usual.index), khat=merged.certificate.khat
        )
    return usual.join(_for_rows(table, merged.variables, draws))


def _for_rows(table: pd.DataFrame, owners: np.ndarray, draws: xr.Dataset) -> pd.DataFrame:
    """Return the table by the labels of the variables' own space."""
    rows: dict[str, pd.Series] = {}
    for name in draws.data_vars:
        labels = layout_of(draws, [name]).labels()
        own = table[owners == name]
        if own.index.isin(labels).sum() == len(labels):
            rows |= {label: own.loc[label] for label in labels}
        elif len(own):
            rows |= dict.fromkeys(labels, own.loc[own["p"].idxmin()])
    if not rows:
        return table.iloc[:0]
    return pd.DataFrame.from_dict(rows, orient="index").astype(table.dtypes)


def _ess(evidence: Evidence) -> np.ndarray:
    return np.minimum(evidence.values("ess_bulk"), evidence.values("ess_tail"))


def _worst(values: np.ndarray, names: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the value of largest size along the axis, and its name; NaN and "" where unknown."""
    size = np.where(np.isnan(values), -1.0, np.abs(values))
    where = np.expand_dims(np.argmax(size, axis=axis), axis)
    largest = np.take_along_axis(values, where, axis).squeeze(axis)
    return largest, np.where(np.isnan(largest), "", names[where.squeeze(axis)])

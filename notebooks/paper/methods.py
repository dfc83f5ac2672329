"""The methods by the names of the paper's tables, and all of them compared against a reference."""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import results

import arviz_swiss as az_swiss

PAPER_NAMES = {
    "swiss": "SwISS",
    "consensus": "Consensus",
    "recentre": "Average re-centring",
    "semiparametric": "Semi-parametric KDE",
    "barycenter": "Gaussian barycenter",
}
OTHER_NAMES = {
    "location_scatter": "Location-scatter barycenter",
    "gaussian": "Gaussian product",
    "nonparametric": "Non-parametric KDE",
    "quantile": "Quantile averaging",
    "median": "Median posterior",
    "average": "Plain average",
    "pool": "Draws end to end",
}
NAMES = PAPER_NAMES | OTHER_NAMES
REFINED = {
    "refined_1": "SwISS, one round of refine",
    "refined_2": "SwISS, two rounds of refine",
    "resampled": "... and resampled by weights",
}
# The paper's barycenter measures distances in the parameters' own units.
OPTIONS = {
    "barycenter": {"standardise": False},
    "location_scatter": {"standardise": False},
}
CERTIFIED_DRAWS = 10_000


def compare(
    inflated: Sequence[Any],
    fractionated: Sequence[Any],
    reference: Any,
    methods: Iterable[str] = tuple(PAPER_NAMES),
    **options: Any,
) -> list[dict]:
    """Merge by every method, from the sub-posteriors that it is made for; a row a method.

    As `arviz_swiss.compare_methods`, without the warnings: the tables say what they would. A method
    that does not converge gets a row without measures, and the others are still compared.
    """
    rows = []
    for method in methods:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", az_swiss.MergeWarning)
            chosen = {method: OPTIONS.get(method, {})}
            try:
                table = az_swiss.compare_methods(
                    inflated, reference, chosen, fractionated, **options
                )
            except ValueError as error:
                if not isinstance(error.__cause__, np.linalg.LinAlgError):
                    raise
                rows.append({"method": method, "failed": str(error.__cause__)})
            else:
                rows += table.reset_index().to_dict("records")
    return rows


def floor_sentence(rows: pd.DataFrame, measures: Iterable[str] = tuple(results.MEASURES)) -> str:
    """Say what the noise floor is, and what it is for the methods that return fewer draws."""
    said = {
        who: ", ".join(
            f"{results.MEASURES[name]} {results.number(mine[f'{name}_floor'].mean())}"
            for name in measures
        )
        for method, who in (
            (
                "consensus",
                "Methods that return as many draws as one batch has, as consensus does,",
            ),
            ("refined", "The refined draws"),
            ("resampled", f"The {CERTIFIED_DRAWS:,} resampled draws"),
        )
        if len(mine := rows[rows["method"] == method])
    }
    return results.text(
        """The noise floor is what two samples of one distribution would show, for as many draws as
        SwISS returns."""
    ) + "".join(f" {who} have a higher one: {floors}." for who, floors in said.items())


def failed_sentence(rows: pd.DataFrame) -> str:
    """Say which methods gave no result, and why; nothing if all did."""
    if "failed" not in rows:
        return ""
    failed = rows.dropna(subset="failed").groupby("method", sort=False)["failed"]
    said = [f"{NAMES[name]}: {one.size} time(s), {one.iloc[0]}" for name, one in failed]
    return f"Gave no result: {'; '.join(said)}. Its figures are of the other repetitions."


def merge(idatas: Sequence[Any], method: str = "swiss", **options: Any) -> Any:
    """Merge without warnings, for the same reason."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        return az_swiss.merge(idatas, method=method, **OPTIONS.get(method, {}), **options)


def score(merged: Any, reference: Any, **options: Any) -> dict[str, float]:
    """Return the paper's three measures, each with its noise floor.

    Where weights have left one draw alone, which has neither sds nor a density, only that it is as
    far off as can be.
    """
    try:
        measured = az_swiss.discrepancy(merged, reference, **options)
    except ValueError as error:
        if "is constant" not in str(error):
            raise
        return {"iad": 1.0}
    columns = [*results.MEASURES, *(f"{name}_floor" for name in results.MEASURES)]
    return {column: float(measured[column]) for column in columns}


def refine(
    inflated: Sequence[Any], densities: Sequence[Any], reference: Any, seed: int, **options: Any
) -> list:
    """Refine the SwISS merge by one and two rounds, and certify before and after.

    `options` are those of the merge.

    Rows have the measures, and of the certificate `khat` and `moved`: by how many sds the weights
    move the mean that they move most.
    """
    quiet = {"random_seed": seed, "progressbar": False}
    merged = merge(inflated, kind="inflated", **options)
    rows = []
    with warnings.catch_warnings():
        # That a merge is not certified is a figure of the table.
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        for rounds in (0, 1, 2):
            refined = merged
            if rounds:
                refined = az_swiss.refine(merged, densities, rounds=rounds, **quiet)
            certified = az_swiss.certify(refined, densities, draws=CERTIFIED_DRAWS, **quiet)
            row = score(refined, reference) | _certificate(certified)
            rows.append({"method": f"refined_{rounds}", **row})
        resampled = az_swiss.resample(certified, random_seed=seed)
        rows.append({"method": "resampled", **score(resampled, reference)})
    return rows


def certificates(rows: pd.DataFrame) -> pd.DataFrame:
    """Return what the certificates said, before refining and after."""
    names = {f"refined_{rounds}": name for rounds, name in enumerate(("none", "one", "two"))}
    columns = {"khat": "Pareto k-hat", "moved": "largest shift of a mean by the weights, sds"}
    table = results.comparison(rows, names, measures=columns)
    return table.rename_axis("rounds of refine")


CERTIFICATE_SENTENCE = results.text(
    """The certificate needs no reference. Below .5 Pareto k-hat says that the importance weights
    can be trusted to correct what error there is, above .7 that the merge is not certified. A low
    k-hat alone does not say that there is no error: how far the weights move the means says
    that."""
)


def _certificate(certified: Any) -> dict[str, float]:
    group = certified["swiss_certificate"]
    return {"khat": float(group["khat"]), "moved": float(abs(group["mean_shift"]).max())}

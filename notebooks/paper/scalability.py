"""Accuracy and time against dimension: section 4.2 of the paper, Figure 4.

Ten Gaussian sub-posteriors N(mu_b, V_b), V_b inverse Wishart with 5d degrees of freedom. As the
paper writes it, mu_b is N(0, I); in the variant it is N(0, V_b), the scale at which the means of
real sub-posteriors differ.
"""

from typing import NamedTuple

import matplotlib.pyplot as plt
import methods
import numpy as np
import pandas as pd
import results
from matplotlib.figure import Figure
from scipy.stats import invwishart

TITLE = "Scalability with dimension"
VARIANTS = {"written": "means N(0, I), as written", "own": "means N(0, V_b)"}


class Setting(NamedTuple):
    """How much is run."""

    dimensions: tuple[int, ...] = (5, 10, 20, 40, 80)
    batches: int = 10
    draws: int = 5000
    repetitions: int = 5


FULL = Setting()
QUICK = Setting(dimensions=(5, 20), draws=1000, repetitions=2)


class Problem(NamedTuple):
    """Means and covariances of the sub-posteriors, and of the full posterior."""

    means: np.ndarray
    covariances: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


def simulate(variant: str, dimension: int, batches: int, rng: np.random.Generator) -> Problem:
    """Draw the sub-posteriors' moments, and work out the full posterior's."""
    draw = invwishart(5 * dimension, np.eye(dimension)).rvs
    covariances = np.array([draw(random_state=rng) for _ in range(batches)])
    means = rng.standard_normal((batches, dimension))
    if variant == "own":
        means = np.einsum("bij,bj->bi", np.linalg.cholesky(covariances), means)
    precisions = np.linalg.inv(covariances)
    covariance = np.linalg.inv(precisions.sum(axis=0))
    mean = covariance @ np.einsum("bij,bj->i", precisions, means)
    return Problem(means, covariances, mean, covariance)


def distance_of_means(problem: Problem) -> float:
    """Return how far batch means are from the full posterior's, in sds of a sub-posterior."""
    spread = np.sqrt(np.diagonal(problem.covariances, axis1=1, axis2=2))
    return float(np.sqrt(np.mean(((problem.means - problem.mean) / spread) ** 2)))


def draws(mean, covariance, count, rng) -> dict:
    """Return draws of a Gaussian as one batch."""
    noise = rng.standard_normal((count, len(mean))) @ np.linalg.cholesky(covariance).T
    return {"theta": (mean + noise).reshape(4, -1, len(mean))}


def run(setting: Setting, progressbar: bool = True) -> pd.DataFrame:
    """Merge by the paper's five methods; a row a variant, dimension, repetition and method."""
    # What a first call costs is no part of the seconds.
    few = [draws(np.zeros(2), np.eye(2), 40, np.random.default_rng(batch)) for batch in range(3)]
    methods.compare(few, few, few[0], random_seed=0)

    def one(variant: str, dimension: int, repetition: int) -> list[dict]:
        rng = np.random.default_rng([list(VARIANTS).index(variant), dimension, repetition])
        problem = simulate(variant, dimension, setting.batches, rng)
        moments = list(zip(problem.means, problem.covariances, strict=True))
        fractionated = [draws(m, v, setting.draws, rng) for m, v in moments]
        inflated = [draws(m, v / setting.batches, setting.draws, rng) for m, v in moments]
        reference = draws(problem.mean, problem.covariance, setting.batches * setting.draws, rng)
        rows = methods.compare(inflated, fractionated, reference, random_seed=repetition)
        return [{**row, "distance": distance_of_means(problem)} for row in rows]

    units = [
        {"variant": variant, "dimension": dimension, "repetition": repetition}
        for dimension in setting.dimensions
        for variant in VARIANTS
        for repetition in range(setting.repetitions)
    ]
    return results.collect(results.open_store("scalability", setting), units, one, progressbar)


def table(rows: pd.DataFrame, variant: str, measure: str) -> pd.DataFrame:
    """Return one measure (or the seconds) of every method against dimension."""
    mine = rows[rows["variant"] == variant]
    columns = {
        f"d = {dimension}": results.comparison(
            mine[mine["dimension"] == dimension], methods.PAPER_NAMES, measures={measure: "value"}
        )["value"]
        for dimension in sorted(mine["dimension"].unique())
    }
    return pd.DataFrame(columns).rename_axis("Algorithm")


COLORS = {
    "swiss": ("#0072B2", "o"),
    "consensus": ("#D55E00", "s"),
    "recentre": ("#009E73", "^"),
    "semiparametric": ("#CC79A7", "D"),
    "barycenter": ("#000000", "v"),
}


def plot(rows: pd.DataFrame) -> Figure:
    """Draw the paper's Figure 4, and the variant beside it."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    panels = [("written", "iad"), ("own", "iad"), ("written", "seconds")]
    for ax, (variant, measure) in zip(axes, panels, strict=True):
        mine = rows[rows["variant"] == variant]
        for method, (color, marker) in COLORS.items():
            values = mine[mine["method"] == method].groupby("dimension")[measure]
            mean, error = values.mean(), values.sem()
            ax.errorbar(
                mean.index,
                mean,
                error,
                color=color,
                marker=marker,
                ms=5,
                mfc="none",
                lw=1.2,
                label=methods.NAMES[method],
            )
        ax.set_xscale("log", base=2)
        dimensions = sorted(rows["dimension"].unique())
        ax.set_xticks(dimensions, [str(d) for d in dimensions])
        ax.set_xlabel("dimension d")
        if measure == "iad":
            floor = mine[mine["method"] == "swiss"].groupby("dimension")["iad_floor"].mean()
            ax.plot(floor.index, floor, color="0.6", ls=":", label="noise floor")
            ax.set_ylim(0, 1)
            ax.set_ylabel("IAD")
            ax.set_title(VARIANTS[variant].replace("V_b", "$V_b$"))
        else:
            ax.set_yscale("log")
            ax.set_ylabel("seconds")
            ax.set_title("time of the merge")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)
    return figure


def write(setting: Setting, is_quick: bool, progressbar: bool = True) -> None:
    """Run, and write the experiment's page and picture."""
    rows = run(setting, progressbar)
    file_name = results.save_figure(plot(rows), "scalability", is_quick)
    largest = max(setting.dimensions)
    apart = rows[rows["dimension"] == largest].groupby("variant")["distance"].mean()
    text = results.text
    results.write_page(
        "scalability",
        is_quick,
        title=TITLE,
        setting=f"""{setting.batches} Gaussian sub-posteriors of {setting.draws:,} draws, mean over
            {setting.repetitions} repetitions with its standard error in brackets. Section 4.2 of
            the paper shows pictures only: it has no figures to set beside ours.""",
        parts=[
            results.picture(
                file_name,
                """The paper's Figure 4. Left: IAD against dimension as the paper writes the
                experiment. Middle: the variant. Right: seconds that the merge takes.""",
            ),
            "IAD, means drawn from N(0, I) as the paper writes it:",
            results.markdown(table(rows, "written", "iad")),
            text(
                f"""As written, the batch means lie {apart["written"]:.0f} sub-posterior sds from
                the full posterior's at d = {largest}: sub-posteriors that hardly overlap, which no
                random partition of data gives. The pooled mean is then a sum of large terms that
                nearly cancel, and the error of precisions that are estimated from draws decides
                where it lies. **SwISS and consensus lose location here; the paper reports that both
                perform well with increasing dimension.**"""
            ),
            f"IAD, means drawn from N(0, V_b), {apart['own']:.1f} sub-posterior sds away:",
            results.markdown(table(rows, "own", "iad")),
            methods.floor_sentence(rows, ["iad"]),
            methods.failed_sentence(rows),
            text(
                """Here the order is the paper's: SwISS and consensus are much closer to the full
                posterior than re-centring and the barycenter, which weight all batches alike. The
                semi-parametric estimate lies between in few dimensions, and comes near consensus in
                many, where its kernels are so wide that they leave the product of the Gaussians.
                What SwISS has above the noise floor is the error of the estimated precisions,
                which grows with the number of parameters for the same number of draws."""
            ),
            text(
                """Wall-clock seconds that the merge takes, reading and packing the draws included
                (one thread). If the machine was busy, only orders of magnitude mean something:"""
            ),
            results.markdown(table(rows, "written", "seconds")),
        ],
    )

"""The README's first command: a logistic regression of many rows, whole and divided.

Run ``python -m arviz_swiss.demo [folder]``. It samples 200,000 simulated rows both ways, prints
what each found and what it cost, and saves the merged posterior and a picture in the folder.
"""

import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from arviz_swiss.data import statistics
from arviz_swiss.plots.drawing import BLUE, GREY

ROWS = 200_000
TERMS = ["intercept", "age", "dose", "weight", "height", "pulse", "smoker", "noise"]
TRUTH = np.array([-1.0, 0.8, -0.5, 0.3, -0.2, 0.4, 0.6, 0.0])
CHAINS, TUNE, DRAWS = 2, 400, 400
INK, FAINT = "#333333", "#777777"


class Run(NamedTuple):
    """A posterior, and the seconds that it took."""

    posterior: Any
    seconds: float


def main(folder: str = "demo-output") -> None:
    """Sample both ways, compare and save."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    data = simulate()
    print(f"A logistic regression of {ROWS:,} rows, with {len(TERMS)} parameters.\n")

    print("Divided: az_swiss.sample(build, data), which ends with what it says of itself.")
    divided = sample_divided(data)
    print(f"done in {divided.seconds:.0f} s: {name_stages(divided)}.")

    print(f"\nWhole, for comparison: pm.sample, {CHAINS} chains of {TUNE} + {DRAWS} draws ...")
    whole = sample_whole(data)
    sampling = float(whole.posterior["posterior"].attrs.get("sampling_time", np.nan))
    print(f"done in {whole.seconds:.0f} s, {sampling:.0f} of them sampling.")

    print(f"\n{compare_estimates(divided, whole).round(3).to_string()}")
    print(f"\n{compare_costs(divided, whole).to_string()}\n")
    divided.posterior.to_netcdf(target / "merged.nc")
    save_picture(divided, whole, target / "demo.png")
    print(f"The merged posterior: {target / 'merged.nc'}\nThe picture: {target / 'demo.png'}")


def simulate(random_seed: int = 0) -> pd.DataFrame:
    """Return simulated rows: seven features, two of them correlated, and a response."""
    rng = np.random.default_rng(random_seed)
    data = pd.DataFrame(rng.standard_normal((ROWS, len(TERMS) - 1)), columns=TERMS[1:])
    data["height"] = 0.6 * data["weight"] + 0.8 * data["height"]
    data["smoker"] = (data["smoker"] > 1).astype(float)
    logits = TRUTH[0] + data.to_numpy() @ TRUTH[1:]
    data["response"] = rng.random(ROWS) < 1 / (1 + np.exp(-logits))
    return data


def build(data: pd.DataFrame) -> Any:
    """Return the model of some rows: an ordinary PyMC model, that knows nothing of batches."""
    import pymc as pm

    with pm.Model(coords={"term": TERMS}) as model:
        features = pm.Data("features", np.column_stack([np.ones(len(data)), data[TERMS[1:]]]))
        response = pm.Data("response_data", data["response"].to_numpy(dtype=int))
        beta = pm.Normal("beta", 0, 2, dims="term")
        pm.Bernoulli("response", logit_p=features @ beta, observed=response)
    return model


def sample_divided(data: pd.DataFrame) -> Run:
    """Sample by one call of `az_swiss.sample`, which divides, merges, refines and certifies."""
    # Imported here, so that `import arviz_swiss.demo` stays as light as the package.
    import arviz_swiss as az_swiss

    start = time.perf_counter()
    merged = az_swiss.sample(build, data, random_seed=1)
    return Run(merged, time.perf_counter() - start)


def sample_whole(data: pd.DataFrame) -> Run:
    """Sample all rows at once, by the fastest sampler of PyMC that is installed."""
    import pymc as pm
    from threadpoolctl import threadpool_limits

    sampler = "nutpie" if find_spec("nutpie") else "pymc"
    start = time.perf_counter()
    # Every chain has a core: threads of BLAS would only get in their way, as in the divided run.
    with build(data), threadpool_limits(1):
        full = pm.sample(
            DRAWS,
            tune=TUNE,
            chains=CHAINS,
            cores=CHAINS,
            nuts_sampler=sampler,
            random_seed=1,
            progressbar=False,
        )
    return Run(full, time.perf_counter() - start)


def name_stages(run: Run) -> str:
    """Return the stages of `az_swiss.sample`, and the seconds of each."""
    stages = run.posterior["swiss_run"]
    names, seconds = stages["stage"].values, stages["seconds"].values
    return ", ".join(f"{name} {second:.1f}" for name, second in zip(names, seconds, strict=True))


def draws_of(run: Run) -> np.ndarray:
    """Return the draws of beta, (chain, draw, term)."""
    return run.posterior["posterior"]["beta"].transpose("chain", "draw", "term").values


def effective_sizes(run: Run) -> np.ndarray:
    """Return the effective draws of each term."""
    draws = draws_of(run)
    return np.array([statistics.effective_size(draws[..., k]) for k in range(len(TERMS))])


def compare_estimates(divided: Run, whole: Run) -> pd.DataFrame:
    """Return means and sds both ways, and how far they differ."""
    ours, theirs = draws_of(divided), draws_of(whole)
    table = pd.DataFrame(
        {
            "truth": TRUTH,
            "divided mean": ours.mean((0, 1)),
            "whole mean": theirs.mean((0, 1)),
            "divided sd": ours.std((0, 1)),
            "whole sd": theirs.std((0, 1)),
        },
        index=TERMS,
    )
    table["shift in sds"] = (table["divided mean"] - table["whole mean"]) / table["whole sd"]
    table["divided ess"] = effective_sizes(divided).round()
    table["whole ess"] = effective_sizes(whole).round()
    return table.astype({"divided ess": int, "whole ess": int})


def compare_costs(divided: Run, whole: Run) -> pd.DataFrame:
    """Return seconds, effective draws of the slowest term, and seconds for a thousand of these."""
    table = pd.DataFrame(
        {
            "seconds": [divided.seconds, whole.seconds],
            "effective draws (fewest)": [effective_sizes(run).min() for run in (divided, whole)],
        },
        index=["divided", "whole"],
    )
    table["seconds per 1000 effective draws"] = (
        1000 * table["seconds"] / table["effective draws (fewest)"]
    )
    return table.round({"seconds": 1, "effective draws (fewest)": 0}).round(1)


def save_picture(divided: Run, whole: Run, path: Path) -> None:
    """Draw every marginal both ways, and beside them what they cost."""
    from matplotlib import pyplot
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(h_pad=0.08)
    figure = pyplot.figure(figsize=(12, 5.2), layout=layout, facecolor="white")
    parts: Any = figure.subfigures(1, 2, width_ratios=[2.5, 1], wspace=0.04)
    left, right = parts
    apart = compare_estimates(divided, whole)["shift in sds"].abs().max()
    headline(left, f"{ROWS:,} rows: means at most {apart:.2f} posterior sds apart")
    draw_marginals(left, draws_of(divided), draws_of(whole))
    costs = compare_costs(divided, whole)
    times = costs.loc["whole", "seconds"] / costs.loc["divided", "seconds"]
    headline(right, f"{times:.1f} times faster" if times >= 1 else f"{1 / times:.1f} times slower")
    draw_costs(right, costs)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def headline(figure: Any, text: str) -> None:
    """Put a line above a part of the picture."""
    figure.suptitle(text, x=0.02, ha="left", fontsize=14, fontweight="bold", color=INK)


def draw_marginals(figure: Any, divided: np.ndarray, whole: np.ndarray) -> None:
    """Draw the whole run's marginals as areas, and the merged ones as lines on them."""
    from scipy.stats import gaussian_kde

    axes = figure.subplots(2, len(TERMS) // 2, gridspec_kw={"hspace": 0.08, "wspace": 0.08})
    for k, ax in enumerate(axes.flat):
        centre, sd = whole[..., k].mean(), whole[..., k].std()
        grid = np.linspace(centre - 4 * sd, centre + 4 * sd, 200)
        ours, theirs = (gaussian_kde(draws[..., k].ravel())(grid) for draws in (divided, whole))
        ax.fill_between(grid, theirs, color=GREY, lw=0, label="whole, by pm.sample")
        ax.plot(grid, ours, color=BLUE, lw=2, label="divided, by az_swiss.sample")
        ax.set_title(TERMS[k], fontsize=11, color=INK)
        ax.set_yticks([])
        ax.set_ylim(bottom=0)
        ax.locator_params(axis="x", nbins=3)
        tidy(ax)
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)


def draw_costs(figure: Any, costs: pd.DataFrame) -> None:
    """Draw bars of seconds, and of seconds for as many effective draws."""
    titles = {
        "seconds": "seconds",
        "seconds per 1000 effective draws": "seconds per 1,000 effective draws",
    }
    axes = figure.subplots(2, 1, gridspec_kw={"hspace": 0.15})
    for ax, (column, title) in zip(axes, titles.items(), strict=True):
        values = costs.loc[["whole", "divided"], column].to_numpy()
        bars = ax.barh(["whole", "divided"], values, color=[GREY, BLUE], height=0.5)
        ax.bar_label(bars, [f"{value:,.3g}" for value in values], padding=5, color=INK)
        ax.set_xlim(0, 1.2 * values.max())
        ax.set_ylim(-0.6, 1.6)
        ax.set_title(title, loc="left", fontsize=11, color=INK)
        ax.set_xticks([])
        tidy(ax)
        ax.tick_params(axis="y", length=0, labelsize=11)
        ax.spines["bottom"].set_visible(False)


def tidy(ax: Any) -> None:
    """Leave of the frame only what is read."""
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color(FAINT)
    ax.tick_params(colors=FAINT, labelcolor=INK, labelsize=9)


if __name__ == "__main__":
    main(*sys.argv[1:])

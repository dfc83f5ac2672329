"""Which sub-posterior of a model with random effects? Three sorts of the same experiment, merged.

The model and the three sorts are those of mixed_effects.py, at a size where all three can be had.
"""

import matplotlib.pyplot as plt
import methods
import mixed_effects
import numpy as np
import pandas as pd
import results
from matplotlib.figure import Figure
from mixed_effects import QUICK, Setting, run
from mixed_effects import SMALL as FULL
from scipy.stats import gaussian_kde

__all__ = ["FULL", "QUICK", "plot", "run", "table", "write"]

TITLE = "Random effects: which sub-posterior?"
NAMES = {
    "fractionated": "fractionated",
    "inflated": "inflated, replicated latents",
    "total_size": "total_size (wrong)",
}
MEASURES = results.MEASURES | {"sd_beta": "sd of beta, ratio", "sd_Sigma": "sd of Sigma, ratio"}
COLORS = {"fractionated": "#0072B2", "inflated": "#009E73", "total_size": "#D55E00"}


def table(rows: pd.DataFrame, method: str = "swiss") -> pd.DataFrame:
    """Return a row a sort of sub-posterior, merged by one method."""
    mine = rows[rows["method"] == method].assign(method=rows["sort"])
    return results.comparison(mine, NAMES, measures=MEASURES).rename_axis("Sub-posterior")


def plot(setting: Setting) -> Figure:
    """Draw the full posterior, and SwISS merges of the three sorts, for two parameters."""
    data = mixed_effects.simulate(setting)
    reference = mixed_effects.with_sigma(mixed_effects.sample(data, setting, "full", 0)[0])
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    curves = {"full posterior": (reference, "0.55", "-")}
    for sort, name in NAMES.items():
        merged = methods.merge(
            mixed_effects.sample(data, setting, sort, 0),
            kind="fractionated" if sort == "fractionated" else "inflated",
            transforms=mixed_effects.TRANSFORMS,
        )
        curves[name] = (mixed_effects.with_sigma(merged["posterior"]), COLORS[sort], "--")
    panels = [("Sigma", r"$\Sigma_{11}$"), ("beta", "intercept")]
    for ax, (variable, label) in zip(axes, panels, strict=True):
        for name, (draws, color, style) in curves.items():
            values = draws[variable][..., 0].ravel()
            low, high = np.quantile(values, [0.001, 0.995])
            grid = np.linspace(low, high, 200)
            ax.plot(grid, gaussian_kde(values[::4])(grid), color=color, ls=style, lw=2, label=name)
        ax.set_xlabel(label)
        ax.set_yticks([])
    axes[0].set_ylabel("density")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def write(setting: Setting, is_quick: bool, progressbar: bool = True) -> None:
    """Run, and write the experiment's page and picture."""
    rows = run(setting, progressbar)
    wrong = rows[(rows["sort"] == "total_size") & (rows["method"] == "swiss")]
    file_name = results.save_figure(plot(setting), "mixed_effects_sorts", is_quick)
    text = results.text
    results.write_page(
        "mixed_effects_sorts",
        is_quick,
        title=TITLE,
        setting=f"""{setting.groups} groups of {setting.group_size} rows, {setting.fixed} fixed
            effects, {setting.batches} batches of whole groups, {setting.chains} chains of
            {setting.draws:,} draws by PyMC with nutpie; {results.mean_of(setting.partitions)}.""",
        parts=[
            text(
                """**fractionated**: the prior of the shared parameters to the power 1/B, whole
                groups in a batch (`sample_batches(..., kind="fractionated", groups=...)`).
                **inflated, replicated latents**: every group of a batch B times over, each copy
                with latent variables of its own, which raises the group's marginal likelihood to
                the power B exactly, at the price that each batch is as large as all the data.
                **total_size**: PyMC's `total_size=N`, which raises the likelihood *given* the
                latent variables to that power."""
            ),
            results.picture(
                file_name,
                """The full posterior and SwISS merges of the three sorts of sub-posterior.""",
            ),
            "Merged by SwISS; the last columns are the sds' mean ratio to those of the full "
            "posterior:",
            results.markdown(table(rows)),
            "Merged by consensus:",
            results.markdown(table(rows, "consensus")),
            text(
                f"""With `total_size` the batch's rows count {setting.batches} times, but its groups
                still once: what the data say of Sigma comes from the number of groups. For large
                groups theory gives sds of Sigma √{setting.batches} =
                {np.sqrt(setting.batches):.2f} times too wide, for groups of {setting.group_size}
                rows somewhat less; measured: {results.mean_and_error(wrong["sd_Sigma"])}. Sigma's
                location is off too, by the Mah above. `sample_batches` refuses to sample it."""
            ),
        ],
    )

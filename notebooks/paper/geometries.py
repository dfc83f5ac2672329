"""Complex geometries: section 4.1 of the paper, Figure 3.

Three targets. Each is the inflated sub-posterior of all ten batches, and so the full posterior too;
the sub-posterior that consensus averages is its tenth root.
"""

from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import methods
import numpy as np
import pandas as pd
import results
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde

TITLE = "Complex geometries"
TARGETS = {"bernoulli": "Rare Bernoulli", "banana": "Warped Gaussian", "bimodal": "Two modes"}
# The paper leaves the two modes open.
MODES = np.array([[-2.0, -2.0], [2.0, 2.0]])


class Setting(NamedTuple):
    """How much is run."""

    batches: int = 10
    draws: int = 10_000
    repetitions: int = 5


FULL = Setting()
QUICK = Setting(draws=2000, repetitions=2)


def draw(target: str, power: float, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return exact draws of the target's density raised to a power, of shape (*shape, d)."""
    return {"bernoulli": _bernoulli, "banana": _banana, "bimodal": _bimodal}[target](
        power, shape, rng
    )


def _bernoulli(power, shape, rng):
    return rng.beta(power + 1, 999 * power + 1, size=(*shape, 1))


def _banana(power, shape, rng):
    first, second = rng.standard_normal((2, *shape)) / np.sqrt(power)
    return np.stack([first, second - first**2], axis=-1)


def _bimodal(power, shape, rng):
    """Draw by rejection: (f + g)^power is at most f^power + g^power for powers up to one."""
    wanted, found = int(np.prod(shape)), []
    while sum(map(len, found)) < wanted:
        centre = MODES[rng.integers(2, size=wanted)]
        points = centre + rng.standard_normal((wanted, 2)) / np.sqrt(power)
        logs = -0.5 * np.sum((points[:, None] - MODES) ** 2, axis=-1)
        ratio = power * np.logaddexp(*logs.T) - np.logaddexp(*(power * logs.T))
        found.append(points[np.log(rng.random(wanted)) < ratio])
    return np.concatenate(found)[:wanted].reshape(*shape, 2)


def simulate(target: str, repetition: int, setting: Setting) -> tuple[list, list, dict]:
    """Return inflated and fractionated batches, and a reference of as many draws as a merge has."""
    seed = [list(TARGETS).index(target), repetition]
    rng = np.random.default_rng(seed)
    shape = (4, setting.draws // 4)
    kinds = [
        [{"theta": draw(target, power, shape, rng)} for _ in range(setting.batches)]
        for power in (1.0, 1 / setting.batches)
    ]
    reference = draw(target, 1.0, (4, setting.batches * setting.draws // 4), rng)
    return *kinds, {"theta": reference}


def run(setting: Setting, progressbar: bool = True) -> pd.DataFrame:
    """Merge every target by every method; a row a target, repetition and method."""

    def one(target: str, repetition: int) -> list[dict]:
        batches = simulate(target, repetition, setting)
        return methods.compare(*batches, methods.NAMES, random_seed=repetition)

    units = [
        {"target": target, "repetition": repetition}
        for target in TARGETS
        for repetition in range(setting.repetitions)
    ]
    return results.collect(results.open_store("geometries", setting), units, one, progressbar)


def table(rows: pd.DataFrame, measure: str = "iad") -> pd.DataFrame:
    """Return one measure of every method on every target."""
    columns = {
        name: results.comparison(
            rows[rows["target"] == target], methods.NAMES, measures={measure: name}
        )[name]
        for target, name in TARGETS.items()
    }
    return pd.DataFrame(columns).rename_axis("Algorithm")


def plot(setting: Setting) -> Figure:
    """Draw the paper's Figure 3: the three targets, merged by SwISS and by consensus."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    for ax, (target, name) in zip(axes, TARGETS.items(), strict=True):
        inflated, fractionated, reference = simulate(target, 0, setting)
        consensus = methods.merge(fractionated, method="consensus", kind="fractionated")
        shown = {
            "full posterior": reference["theta"],
            "SwISS": _values(methods.merge(inflated, kind="inflated")),
            "consensus": _values(consensus),
        }
        draw_panel = _plot_density if target == "bernoulli" else _plot_contours
        draw_panel(ax, shown)
        ax.set_title(name)
        ax.set_xlabel(r"$\theta_1$")
    axes[0].set_ylabel("density")
    handles = [
        plt.Line2D([], [], color=color, ls=style, lw=2, label=label)
        for label, (color, style) in STYLES.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


STYLES = {
    "full posterior": ("0.55", "-"),
    "SwISS": ("#0072B2", "--"),
    "consensus": ("#D55E00", "-"),
}


def _values(merged: Any) -> np.ndarray:
    return merged["posterior"]["theta"].values


def _some(draws: np.ndarray, count: int) -> np.ndarray:
    """Return about so many draws, of all batches alike."""
    return draws[:: max(1, len(draws) // count)]


def _plot_density(ax, shown):
    grid = np.linspace(0, 0.022, 400)
    for label, draws in shown.items():
        color, style = STYLES[label]
        density = gaussian_kde(_some(draws.ravel(), 20_000))(grid)
        ax.plot(grid, density, color=color, ls=style, lw=2)


def _plot_contours(ax, shown):
    shown = {label: _some(draws.reshape(-1, 2), 3000) for label, draws in shown.items()}
    everything = np.concatenate(list(shown.values()))
    low, high = np.quantile(everything, [0.001, 0.999], axis=0)
    margin = 0.1 * (high - low)
    x, y = (np.linspace(a, b, 70) for a, b in zip(low - margin, high + margin, strict=True))
    places = np.stack(np.meshgrid(x, y)).reshape(2, -1)
    for label, draws in shown.items():
        color, style = STYLES[label]
        density = gaussian_kde(draws.T)(places).reshape(70, 70)
        # Contours that hold 90, 50 and 10% of the draws.
        ordered = np.sort(density.ravel())[::-1]
        share = np.cumsum(ordered) / ordered.sum()
        levels = [ordered[np.searchsorted(share, mass)] for mass in (0.9, 0.5, 0.1)]
        ax.contour(x, y, density, levels=levels, colors=color, linestyles=style)
    ax.set_ylabel(r"$\theta_2$")


def write(setting: Setting, is_quick: bool, progressbar: bool = True) -> None:
    """Run, and write the experiment's page and picture."""
    rows = run(setting, progressbar)
    file_name = results.save_figure(plot(setting), "geometries", is_quick)
    text, places = results.text, " and ".join(map(_place, MODES))
    results.write_page(
        "geometries",
        is_quick,
        title=TITLE,
        setting=f"""{setting.batches} batches of {setting.draws:,} draws, mean over
            {setting.repetitions} repetitions with its standard error in brackets. Section 4.1 of
            the paper shows pictures only: it has no figures to set beside ours.""",
        parts=[
            results.picture(
                file_name,
                """The full posterior, SwISS and consensus on the three targets of Figure 3.
                Contours hold 10, 50 and 90% of the draws.""",
            ),
            text(
                f"""Every batch has the same inflated sub-posterior, which is the full posterior;
                consensus averages draws of its tenth root. The paper leaves the places of the two
                modes open: here {places}. Parameters are merged as they are, the probability of the
                first target too."""
            ),
            "Integrated absolute distance (IAD, from 0 to 1):",
            results.markdown(table(rows)),
            methods.floor_sentence(rows, ["iad"]),
            methods.failed_sentence(rows),
            text(
                """As in the paper, SwISS keeps skewness, curvature and both modes, because it moves
                the draws of each batch by one affine map, and consensus averages them away. Any
                method that keeps the inflated draws does as well here, even laying them end to end:
                this experiment shows what averaging costs, not what SwISS adds to others."""
            ),
            "Mean absolute difference of skewness:",
            results.markdown(table(rows, "skew")),
        ],
    )


def _place(mode: np.ndarray) -> str:
    return f"({mode[0]:g}, {mode[1]:g})"

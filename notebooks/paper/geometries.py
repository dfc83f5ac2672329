"""Complex geometries: section 4.1 of the paper, Figure 3.

Three targets. Each is the inflated sub-posterior of all ten batches, and so the full posterior too;
the sub-posterior that consensus averages is its tenth root.

Beyond the paper: two of them where every batch has its own data. Batches then differ as those of a
random partition do, and the full posterior is the product of what they say.
"""

import warnings
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import methods
import numpy as np
import pandas as pd
import results
from matplotlib.figure import Figure
from scipy.special import expit, log_expit, logit
from scipy.stats import gaussian_kde

import arviz_swiss as az_swiss

TITLE = "Complex geometries"
TARGETS = {"bernoulli": "Rare Bernoulli", "banana": "Warped Gaussian", "bimodal": "Two modes"}
OWN_DATA = {"bernoulli": "Rare Bernoulli", "banana": "Warped Gaussian"}
# Of all rows, so that most batches have none or one.
SUCCESSES, ROWS = 10, 1000
ONE_PARAMETER = {"transforms": {"theta": "logit"}}
BEYOND = methods.REFINED | {
    "gaussian_process": "Gaussian-process product",
    "reweighed": "Draws end to end, reweighed",
    "enriched": "... with as many Laplace draws",
}
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


class Bernoulli:
    """Rows with so many successes and a flat prior of their probability, on the logit scale."""

    def __init__(self, successes: int, rows: int):
        self.successes, self.rows = successes, rows

    def draw(self, power, prior_power, shape, rng):
        """Return exact draws of prior and likelihood to their powers, of the probability."""
        failures = self.rows - self.successes
        ends = power * self.successes + prior_power, power * failures + prior_power
        return rng.beta(*ends, size=(*shape, 1))

    def log_prior(self, x):
        """Return the log density of the prior: (points,)."""
        return (log_expit(x) + log_expit(-x))[:, 0]

    def grad_log_prior(self, x):
        """Return its gradient: (points, parameters)."""
        return 1 - 2 * expit(x)

    def log_likelihood(self, x):
        """Return the log likelihood: (points,)."""
        failures = self.rows - self.successes
        return (self.successes * log_expit(x) + failures * log_expit(-x))[:, 0]

    def grad_log_likelihood(self, x):
        """Return its gradient: (points, parameters)."""
        return self.successes - self.rows * expit(x)


class Banana:
    """Means of two series with expectations theta_1 and theta_2 + theta_1^2, and a flat prior."""

    def __init__(self, means: np.ndarray, variance: float):
        self.means, self.variance = means, variance

    def draw(self, power, prior_power, shape, rng):
        """Return exact draws of the likelihood to a power."""
        noise = np.sqrt(self.variance / power) * rng.standard_normal((*shape, 2))
        first, second = np.moveaxis(self.means + noise, -1, 0)
        return np.stack([first, second - first**2], axis=-1)

    def log_prior(self, x):
        """Return the log density of the prior: (points,)."""
        return np.zeros(len(x))

    def grad_log_prior(self, x):
        """Return its gradient: (points, parameters)."""
        return np.zeros_like(x)

    def _misses(self, x):
        return x[:, 0] - self.means[0], x[:, 1] + x[:, 0] ** 2 - self.means[1]

    def log_likelihood(self, x):
        """Return the log likelihood: (points,)."""
        return -0.5 * np.sum(np.square(self._misses(x)), axis=0) / self.variance

    def grad_log_likelihood(self, x):
        """Return its gradient: (points, parameters)."""
        first, second = self._misses(x)
        return -np.stack([first + 2 * x[:, 0] * second, second], axis=1) / self.variance


def divide(target: str, batches: int, rng: np.random.Generator) -> tuple[list, Any]:
    """Return the densities of batches with data of their own, at random, and that of all data."""
    if target == "bernoulli":
        sizes = np.full(batches, ROWS // batches)
        counts = rng.multivariate_hypergeometric(sizes, SUCCESSES)
        parts = [Bernoulli(int(count), ROWS // batches) for count in counts]
        return parts, Bernoulli(SUCCESSES, ROWS)
    means = np.sqrt(batches) * rng.standard_normal((batches, 2))
    means -= means.mean(axis=0)
    return [Banana(mean, float(batches)) for mean in means], Banana(np.zeros(2), 1.0)


def simulate_own(target: str, repetition: int, setting: Setting) -> tuple[list, list, dict, list]:
    """Return inflated and fractionated batches of own data, a reference, and the densities."""
    rng = np.random.default_rng([10 + list(OWN_DATA).index(target), repetition])
    count, shape = setting.batches, (4, setting.draws // 4)
    parts, whole = divide(target, count, rng)
    inflated = [{"theta": part.draw(count, 1.0, shape, rng)} for part in parts]
    fractionated = [{"theta": part.draw(1.0, 1 / count, shape, rng)} for part in parts]
    reference = whole.draw(1.0, 1.0, (4, count * setting.draws // 4), rng)
    return inflated, fractionated, {"theta": reference}, parts


def options_of(target: str) -> dict:
    """Return what `merge` is told: a probability is merged on the logit scale."""
    return ONE_PARAMETER if target == "bernoulli" else {}


def compare_own(target: str, repetition: int, setting: Setting) -> list[dict]:
    """Merge batches with data of their own by every method, and by those that take densities."""
    inflated, fractionated, reference, parts = simulate_own(target, repetition, setting)
    options = options_of(target)
    rows = methods.compare(
        inflated, fractionated, reference, methods.NAMES, random_seed=repetition, **options
    )
    with np.errstate(over="ignore"):
        rows += methods.refine(inflated, parts, reference, repetition, **options)
    rows += [
        {"method": name, **methods.score(made, reference)}
        for name, made in by_densities(
            target, inflated, fractionated, parts, setting, repetition
        ).items()
    ]
    return rows


def by_densities(
    target: str, inflated: list, fractionated: list, parts: list, setting: Setting, seed: int
) -> dict[str, Any]:
    """Return what the methods make that take the batches' densities."""
    quiet = {"random_seed": seed, "progressbar": False}
    options = options_of(target)
    pool = methods.merge(inflated, method="pool", kind="inflated", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        return {
            "gaussian_process": product_of(target, fractionated, parts, seed),
            "reweighed": az_swiss.reweigh(pool, parts, draws=setting.draws, **quiet),
            "enriched": az_swiss.reweigh(
                pool, parts, draws=setting.draws, laplace=setting.draws, **quiet
            ),
        }


def product_of(target: str, fractionated: list, parts: list, seed: int) -> Any:
    """Return the Gaussian-process product of fractionated batches."""
    known = []
    for batch, part in zip(fractionated, parts, strict=True):
        theta = batch["theta"] if target == "banana" else logit(batch["theta"])
        points = theta.reshape(-1, theta.shape[-1])
        values = part.log_likelihood(points) + part.log_prior(points) / len(parts)
        known.append(values.reshape(theta.shape[:2]))
    return methods.merge(
        fractionated,
        method="gaussian_process",
        kind="fractionated",
        log_densities=known,
        random_seed=seed,
        **options_of(target),
    )


def run_own(setting: Setting, progressbar: bool = True) -> pd.DataFrame:
    """Merge batches with data of their own; a row a target, repetition and method."""
    units = [
        {"own_data": target, "repetition": repetition}
        for target in OWN_DATA
        for repetition in range(setting.repetitions)
    ]

    def one(own_data: str, repetition: int) -> list[dict]:
        return compare_own(own_data, repetition, setting)

    rows = results.collect(results.open_store("geometries", setting), units, one, progressbar)
    return rows.rename(columns={"own_data": "target"})


def table(
    rows: pd.DataFrame, measure: str = "iad", targets: dict = TARGETS, names: dict = methods.NAMES
) -> pd.DataFrame:
    """Return one measure of every method on every target."""
    columns = {
        name: results.comparison(rows[rows["target"] == target], names, measures={measure: name})[
            name
        ]
        for target, name in targets.items()
    }
    return pd.DataFrame(columns).rename_axis("Algorithm")


def plot_own(setting: Setting) -> Figure:
    """Draw the targets of batches with data of their own, merged by three methods."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
    for ax, (target, name) in zip(axes, OWN_DATA.items(), strict=True):
        inflated, fractionated, reference, parts = simulate_own(target, 0, setting)
        options = options_of(target)
        by_consensus = methods.merge(
            fractionated, method="consensus", kind="fractionated", **options
        )
        shown = {
            "full posterior": reference["theta"],
            "SwISS": _values(methods.merge(inflated, kind="inflated", **options)),
            "consensus": _values(by_consensus),
            "Gaussian-process product": _values(product_of(target, fractionated, parts, 0)),
        }
        if target == "bernoulli":
            _plot_density(ax, shown, 0.035)
        else:
            _plot_contours(ax, shown)
        ax.set_title(name)
        ax.set_xlabel(r"$\theta_1$")
    axes[0].set_ylabel("density")
    figure.legend(handles=_handles(STYLES), loc="outside lower center", ncols=4, frameon=False)
    return figure


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
        if target == "bernoulli":
            _plot_density(ax, shown, 0.022)
        else:
            _plot_contours(ax, shown)
        ax.set_title(name)
        ax.set_xlabel(r"$\theta_1$")
    axes[0].set_ylabel("density")
    styles = {label: style for label, style in STYLES.items() if "product" not in label}
    figure.legend(handles=_handles(styles), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _handles(styles: dict) -> list:
    return [
        plt.Line2D([], [], color=color, ls=style, lw=2, label=label)
        for label, (color, style) in styles.items()
    ]


STYLES = {
    "full posterior": ("0.55", "-"),
    "SwISS": ("#0072B2", "--"),
    "consensus": ("#D55E00", "-"),
    "Gaussian-process product": ("#009E73", ":"),
}


def _values(merged: Any) -> np.ndarray:
    return merged["posterior"]["theta"].values


def _some(draws: np.ndarray, count: int) -> np.ndarray:
    """Return about so many draws, of all batches alike."""
    return draws[:: max(1, len(draws) // count)]


def _plot_density(ax, shown, end):
    grid = np.linspace(0, end, 400)
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
    rows, own = run(setting, progressbar), run_own(setting, progressbar)
    own_file = results.save_figure(plot_own(setting), "geometries_own", is_quick)
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
            *own_parts(own, own_file),
        ],
    )


def own_parts(rows: pd.DataFrame, file_name: str) -> list[str]:
    """Return what the page says of batches with data of their own."""
    names = methods.NAMES | BEYOND
    text = results.text
    return [
        "## Batches with data of their own",
        text(
            f"""The paper's batches are all equal to the target, so that there is nothing to merge.
            Here each has its own data, dealt out at random. *Rare Bernoulli*: {ROWS:,} rows with
            {SUCCESSES} successes and a flat prior; most batches have none or one, and the
            probability is merged on the logit scale. *Warped Gaussian*: means of two series with
            expectations $\\theta_1$ and $\\theta_2 + \\theta_1^2$, so that the full posterior is
            the paper's, and the batches lie along the curve, each as wide as the whole."""
        ),
        results.picture(
            file_name,
            """The full posterior of batches with data of their own, and three ways to merge them.
            Contours hold 10, 50 and 90% of the draws.""",
        ),
        text(
            """**Where batches differ, SwISS finds neither posterior, nor does any other method that
            sees moments alone; the paper's figure, whose batches are all the target, cannot show
            that.** Weights of the batches' own draws find both, best with Laplace draws among them.
            So does the product of Gaussian processes, but for some repetitions of the curved
            target, where it extrapolates one batch's density. Kernels come near the skewed target.
            `refine`, which sees the posterior as a Gaussian, mends the skewed target and not the
            curved one."""
        ),
        "Integrated absolute distance:",
        results.markdown(table(rows, "iad", OWN_DATA, names)),
        "Mahalanobis distance of the means:",
        results.markdown(table(rows, "mahalanobis", OWN_DATA, names)),
        text(
            """Refined rows are two rounds of `refine` at most, and the weights of `certify` after
            them. The Gaussian-process product is made of fractionated batches and their log
            densities; the last two rows weigh the batches' own draws by `reweigh`, without and
            with draws of the Gaussian at the mode. Where weights leave one draw alone, its IAD
            counts as 1, and its Mahalanobis distance is left out."""
        ),
    ]


def _place(mode: np.ndarray) -> str:
    return f"({mode[0]:g}, {mode[1]:g})"

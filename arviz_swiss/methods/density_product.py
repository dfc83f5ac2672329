"""Methods that draw from the product of the batches' densities, known at their draws."""

from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from arviz_swiss.base import gaussian_process as processes
from arviz_swiss.base import hmc, weights
from arviz_swiss.base.counts import check_count
from arviz_swiss.base.gaussian_process import Sum, Surrogate
from arviz_swiss.data.messages import warn
from arviz_swiss.methods.registry import Given, register

# Of more parameters a process between few hundred points tells nothing.
MOST_PARAMETERS = 12
POINTS = 300
# How many chains go on beside one another, how long each is tuned, and how far their starting
# points are proposed, in sds of the pooled moments.
CHAINS, WARMUP, CANDIDATES, WIDE = 64, 40, 2048, 1.5
# Steepness of the wall beyond all draws, where surrogates know nothing.
WALL = 10.0
# Error of the product's log density, by leaving out points near the product.
NOTABLE_ERROR = 0.3
# Draws by which it is seen whether log densities are theirs.
LOOKED_AT = 1000
# By what factor draws may seem too wide for their density; how far off it their product may be.
NOTABLE_WIDTH, NOTABLE_OFFSET = 1.5, 0.5


class Product(NamedTuple):
    """Draws of a product (chain, draw, parameter), its log density there, and the batches' errors.

    `error` is what each batch's log density is off by near the product, root mean square.
    """

    draws: np.ndarray
    log_density: np.ndarray
    error: np.ndarray


@register("gaussian_process", expects="fractionated", makes="product", any_shape=True)
def gaussian_process(
    given: Given,
    draws: np.ndarray,
    log_densities: np.ndarray,
    shares: np.ndarray,
    labels: list[str],
    rng: np.random.Generator,
    *,
    points: int = POINTS,
) -> Product:
    """Return draws from the product of densities that Gaussian processes interpolate.

    The log density of each batch is a quadratic plus a Gaussian process with a Matern kernel, which
    the log densities of some of its draws tell. The sum over the batches is sampled by Hamiltonian
    Monte Carlo, where the pooled moments make it round. Exact for Gaussian sub-posteriors, with
    hardly any noise of their draws; for others as good as the interpolation where all batches
    overlap. It is made for up to about ten parameters, and refuses more than 12.

    Parameters
    ----------
    points : int, default 300
        At how many draws of each batch its log density is interpolated: half of them spread evenly,
        half those nearest to the pooled mean. Time grows with its cube.

    Warns
    -----
    MergeWarning
        When interpolation is poor near the product, or the log densities are not those of the
        draws, as of another space.

    References
    ----------
    .. [1] Nemeth & Sherlock (2018), Merging MCMC subposteriors through Gaussian-process
       approximations, Bayesian Analysis 13. https://doi.org/10.1214/17-BA1063
    """
    check_count("points", points, 10)
    batches, chains, length, parameters = draws.shape
    if parameters > MOST_PARAMETERS:
        raise ValueError(
            f'method "gaussian_process" takes up to {MOST_PARAMETERS} parameters, and the batches '
            f"have {parameters}: a log density of so many is not known from some hundred points. "
            'Use method="swiss" and refine, or leave variables out (var_names=) that depend on the '
            "others alone."
        )
    factor = np.linalg.cholesky(given.pooled.precision)
    white = ((draws - given.pooled.mean) @ factor).reshape(batches, -1, parameters)
    values = log_densities.reshape(batches, -1)
    parts, near = [], []
    for own, logs, share, label in zip(white, values, shares, labels, strict=True):
        chosen = _choose(own, points)
        _check_enough(label, chosen.size, parameters)
        parts.append(processes.fit(own[chosen], share * logs[chosen]))
        near.append(parts[-1].residuals[-(chosen.size // 2) :])
    _check_theirs(parts, white, given, shares, labels)
    error = np.array([np.sqrt(np.mean(residuals**2)) for residuals in near])
    _warn_error(error, points, labels)
    found, logs = _sample(processes.add(parts), _reach(white), chains * length, parameters, rng)
    made = given.pooled.mean + np.linalg.solve(factor.T, found.T).T
    return Product(made.reshape(chains, length, parameters), logs.reshape(chains, length), error)


def _choose(white: np.ndarray, count: int) -> np.ndarray:
    """Return positions of different draws: some spread evenly, then as many of the nearest."""
    _, first = np.unique(white, axis=0, return_index=True)
    different = np.sort(first)
    if different.size <= count:
        far = np.sum(white[different] ** 2, axis=1)
        return different[np.argsort(-far, kind="stable")]
    even = different[np.linspace(0, different.size - 1, count - count // 2).astype(int)]
    rest = np.setdiff1d(different, even)
    order = np.argsort(np.sum(white[rest] ** 2, axis=1), kind="stable")
    return np.concatenate([even, rest[order[: count // 2]]])


def _check_enough(label: str, count: int, parameters: int) -> None:
    enough = 2 * processes.coefficients_of(parameters)
    if count < enough:
        raise ValueError(
            f'batch "{label}": {count} different draws to interpolate its log density between, for '
            f"{parameters} parameters, and {enough} are needed. Raise points=, or draw more."
        )


def _reach(white: np.ndarray) -> float:
    """Return how far from the pooled mean there are draws of any batch."""
    return float(np.sqrt(np.sum(white**2, axis=-1).max()))


def _check_theirs(
    parts: list[Surrogate],
    white: np.ndarray,
    given: Given,
    shares: np.ndarray,
    labels: list[str],
) -> None:
    r"""Refuse log densities that the draws are not from.

    Of draws x from a density with score s, :math:`E[s] = 0` and :math:`E[(x - c)' s] = -d`. Where
    the interpolation is poor among the draws, as in the tails of curved ones, so are its scores,
    and nothing is told.
    """
    size = white.shape[-1]
    slope, noise = np.zeros(size), np.zeros(size)
    are_known = [
        np.sqrt(np.mean(part.residuals**2)) <= NOTABLE_ERROR * share
        for part, share in zip(parts, shares, strict=True)
    ]
    for part, own, moments, share, label, is_known in zip(
        parts, white, given.moments, shares, labels, are_known, strict=True
    ):
        if not is_known:
            continue
        few = own[np.linspace(0, len(own) - 1, min(LOOKED_AT, len(own))).astype(int)]
        _, scores = processes.add([part])(few)
        effective = max(min(moments.effective, len(few)), 2.0)
        products = -np.sum((few - few.mean(axis=0)) * scores, axis=1) / size / share
        width, error = products.mean(), products.std() / np.sqrt(effective)
        if not 1 / NOTABLE_WIDTH - 4 * error < width < NOTABLE_WIDTH + 4 * error:
            raise ValueError(
                f'batch "{label}": its draws do not come from the log densities given for them: '
                f"by those they are {width:.2g} times as wide in precision as they should be (1 if "
                "right). Log densities must be those that the batch was sampled from, powers "
                "included, in the space of the merge; a negative number tells that their sign is "
                "wrong. Pass log_densities=, as from arviz_swiss.log_densities(merged, models)."
            )
        slope += scores.mean(axis=0)
        noise += scores.var(axis=0) / effective
    offset, chance = np.linalg.norm(slope), np.sqrt(noise.sum())
    if all(are_known) and offset > NOTABLE_OFFSET + 4 * chance:
        warn(
            f"the batches' draws and log densities do not fit together: their sum is {offset:.2g} "
            f"sds off ({chance:.2g} by chance), as where Jacobians are missing, or the "
            "interpolation is poor. Merge in the space that the log densities are of (transforms= "
            "or model=), or certify the result."
        )


def _warn_error(error: np.ndarray, points: int, labels: list[str]) -> None:
    total = np.sqrt(np.sum(error**2))
    if total > NOTABLE_ERROR:
        worst = labels[int(error.argmax())]
        warn(
            f"the log density of the product is off by {total:.2g} near its centre, most by batch "
            f'"{worst}" ({error.max():.2g}): Gaussian processes between {points} draws of each '
            "batch do not tell it. Raise points=, or certify the result and use its weights."
        )


def _sample(
    product: Sum, reach: float, count: int, parameters: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return draws of the product and its log density, which falls off beyond all draws."""

    def log_density(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = product(points)
        distances = np.sqrt(np.sum(points**2, axis=1))
        beyond = np.maximum(distances - reach, 0.0)
        slope = WALL * beyond / np.maximum(distances, 1e-300)
        return values - 0.5 * WALL * beyond**2, gradients - slope[:, None] * points

    proposed = WIDE * rng.standard_normal((CANDIDATES, parameters))
    ratios = log_density(proposed)[0] + 0.5 * np.sum((proposed / WIDE) ** 2, axis=1)
    start = proposed[weights.systematic(softmax(ratios), CHAINS, rng)]
    each = -(-count // CHAINS)
    chains = hmc.sample_chains(log_density, start, tune=WARMUP, draws=each, rng=rng)
    # neighbours in a chain of the result come one after another in a chain here
    return (
        chains.draws.reshape(-1, parameters)[:count],
        chains.log_density.reshape(-1)[:count],
    )

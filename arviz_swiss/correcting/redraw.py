r"""New draws where Gaussians cannot stand for the posterior: shared parameters, then local ones.

Rounds end with a Gaussian. Where a scale may be zero, the posterior is far from one, and no map of
the batches' draws mends that. But the exact density of the shared parameters is a product of
one-group integrals, which can be evaluated anywhere. So they are drawn from the Gaussian with the
margins that the density along each skewed parameter tells (`base.margins`), weighed by the exact
density and resampled; the variables of groups are drawn given them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from arviz_swiss.base import weights
from arviz_swiss.base.gaussian import Gaussian
from arviz_swiss.base.integrals import LogIntegrals
from arviz_swiss.base.margins import draw_shaped
from arviz_swiss.correcting.certificate import NOTABLE
from arviz_swiss.correcting.certify_local import MOST_NOISE
from arviz_swiss.correcting.evaluation import Evaluate
from arviz_swiss.correcting.lines import margins_along, points_of_lines, reach_along
from arviz_swiss.correcting.marginal import DrawLocal, Marginalise, log_full
from arviz_swiss.data import schema
from arviz_swiss.data.containers import SAMPLE_DIMS
from arviz_swiss.data.statistics import pareto_smoothed
from arviz_swiss.merging.records import USABLE_KHAT

CHAINS = 4
# Share of the proposed draws at which the log density must be known.
MOSTLY = 0.99
# Share of effective draws below which resampled ones would repeat one another too often.
LEAST_EFFECTIVE = 0.5


class Redrawn(NamedTuple):
    """Shared parameters (chain, draw, parameter), and local variables by batch, drawn anew.

    `log_density` is the exact one of the shared parameters up to a constant; `khat` is of the
    `proposed` draws' weights, which are worth `effective` equal ones, and `skewed` are the
    positions of the parameters that were reshaped.
    """

    shared: np.ndarray
    local: dict[str, np.ndarray]
    log_density: np.ndarray
    khat: float
    effective: float
    proposed: int
    skewed: list[int]


def redraw(
    evaluate: Evaluate,
    labels: Sequence[str],
    pooled: Gaussian,
    doubtful: Sequence[int] | np.ndarray,
    count: int,
    rng: np.random.Generator,
) -> Redrawn | None:
    """Draw anew what no Gaussian can stand for; None where one can, or exact weights do not tell.

    `doubtful` are the positions of parameters that may be skewed. Every batch evaluates its own
    groups; `EvaluationFailed` is raised where that cannot be done, as of no product over groups.
    """
    if not len(doubtful):
        return None
    factor = np.linalg.cholesky(pooled.covariance)

    def exact(points: np.ndarray) -> LogIntegrals:
        none = np.empty((0, pooled.mean.size))
        seeds = {label: int(rng.integers(2**31)) for label in labels}
        answers = evaluate(
            {
                label: [Marginalise(points, none, pooled.mean, factor, seed)]
                for label, seed in seeds.items()
            }
        )
        return log_full({label: answer for label, (answer,) in answers.items()})

    along = exact(points_of_lines(pooled, doubtful))
    reaches = reach_along([str(at) for at in doubtful], *along)
    far = [
        int(at)
        for at, reach in zip(doubtful, reaches, strict=True)
        # not "beyond", so that what is not known is looked at too
        if not max(abs(reach.shift), abs(reach.stretch)) <= NOTABLE
    ]
    margins = margins_along(doubtful, *along)
    if not far or not all(at in margins for at in far):
        return None
    proposed = draw_shaped(pooled, {at: margins[at] for at in far}, count, rng)
    values, noise = exact(proposed.points)
    known = np.isfinite(values) & (noise <= MOST_NOISE)
    ratios = np.where(known, values - proposed.log_density, -np.inf)
    if known.mean() < MOSTLY:
        return None
    log_weights, khat = pareto_smoothed(ratios)
    effective = weights.effective_size(log_weights)
    if not (khat <= most_khat(count) and effective >= LEAST_EFFECTIVE * count):
        return None
    positions = weights.resampled(np.exp(log_weights), CHAINS * (count // CHAINS), rng)
    shared = proposed.points[positions]
    seeds = {label: int(rng.integers(2**31)) for label in labels}
    drawn = evaluate(
        {label: [DrawLocal(shared, pooled.mean, factor, seed)] for label, seed in seeds.items()}
    )
    return Redrawn(
        _in_chains(shared),
        {label: _in_chains(local) for label, (local,) in drawn.items()},
        _in_chains(values[positions]),
        float(khat),
        effective,
        count,
        far,
    )


def most_khat(count: int) -> float:
    """Return the largest k-hat at which the weights of so many draws can be relied on."""
    return min(1 - 1 / np.log10(count), USABLE_KHAT)


def _in_chains(rows: np.ndarray) -> np.ndarray:
    return rows.reshape(CHAINS, -1, *rows.shape[1:])


def record(redrawn: Redrawn, parameters: Sequence[str]) -> xr.Dataset:
    """Return the group of new draws' densities and of how good the weights were."""
    meanings = schema.VARIABLES[schema.REDRAWN]
    data = {
        "log_density": (SAMPLE_DIMS, redrawn.log_density),
        "khat": ((), redrawn.khat),
        "effective_size": ((), redrawn.effective),
        "proposed": ((), redrawn.proposed),
        "reshaped": ("reshaped_parameter", [parameters[at] for at in redrawn.skewed]),
    }
    chains, draws = redrawn.log_density.shape
    return xr.Dataset(
        {k: (dims, np.asarray(v), {"description": meanings[k]}) for k, (dims, v) in data.items()},
        coords={"chain": np.arange(chains), "draw": np.arange(draws)},
    )

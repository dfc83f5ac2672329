"""From moments to merged draws: pool, rescale to the kind that the method expects, apply.

A batch's draws target ``prior^a likelihood^p``. As a Gaussian with covariance V, its power c has
covariance V / c and the same mean: an inflated sub-posterior comes from ``c = 1 / a``, a
fractionated one from ``c = 1 / p``. Exact for Gaussian sub-posteriors.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from arviz_swiss.base.gaussian import Gaussian, Moments, pool
from arviz_swiss.base.linalg import AffineMap, Spectrum, embed
from arviz_swiss.data.layout import Variable, add_moved, as_rows, gather_all, move
from arviz_swiss.data.messages import warn
from arviz_swiss.data.progress import HIDDEN, Bar, ticking
from arviz_swiss.merging.batches import Batch
from arviz_swiss.merging.estimate import Frame, unconstrained
from arviz_swiss.merging.powers import Powers
from arviz_swiss.merging.space import Arrays
from arviz_swiss.methods.registry import Given, Method


def pool_batches(moments: Sequence[Moments], powers: Powers, prior: Moments | None) -> Gaussian:
    """Pool the batches, and the prior where it counts other than once."""
    try:
        return pool(moments, powers.weights, powers.missing_prior, prior)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "the pooled precision is not positive definite: the prior, subtracted "
            f"{-powers.missing_prior:.4g} times, outweighs what the batches know. Draw more of the "
            'prior and the batches, or sample "fractionated" or "inflated" batches, which need no '
            "subtraction."
        ) from error


def variance_factors(method: Method, powers: Powers) -> np.ndarray | None:
    """Return factors of the covariances, or None; refuse a prior that it cannot make count once."""
    if powers.missing_prior and not method.pools:
        raise ValueError(
            f'method "{method.name}" takes the batches as they are and cannot add or subtract '
            f"the prior, which would count {1 - powers.missing_prior:.4g} times instead of once. "
            'Use method="swiss" or "gaussian", or sample "fractionated" or "inflated" batches.'
        )
    if method.makes == "product":
        return None  # log densities are divided by the powers, and draws stay where they are
    factors = powers.prior if method.expects == "inflated" else powers.likelihood
    return None if np.allclose(factors, 1.0, rtol=1e-12) else factors


def rescale(
    moments: Sequence[Moments],
    pooled: Gaussian,
    spectra: Sequence[Spectrum],
    weights: np.ndarray,
    factors: np.ndarray | None,
) -> Given:
    """Return what the method gets, covariances and weights multiplied by the factors."""
    if factors is not None:
        weights = weights * factors
        moments = [
            batch._replace(covariance=batch.covariance * factor, precision=batch.precision / factor)
            for batch, factor in zip(moments, factors, strict=True)
        ]
        spectra = [
            spectrum._replace(values=spectrum.values * factor)
            for spectrum, factor in zip(spectra, factors, strict=True)
        ]
    return Given(moments, pooled, spectra, weights / weights.sum())


def rescaled_maps(maps: Sequence[AffineMap], factors: np.ndarray | None) -> list[AffineMap]:
    """Return the maps of the draws as they are, from those of the rescaled draws."""
    if factors is None:
        return list(maps)
    return [
        affine._replace(scale=affine.scale * np.sqrt(factor))
        for affine, factor in zip(maps, factors, strict=True)
    ]


class Draws(NamedTuple):
    """Merged draws on both scales; owners of chains, which newly made ones do not have.

    `start` is the number of the first chain.
    """

    constrained: Arrays
    unconstrained: Arrays
    length: int
    owners: list[str] | None = None
    start: int = 0


def kept_length(batches: Sequence[Batch]) -> int:
    """Return how many draws of each chain are merged: as many as all batches have."""
    lengths = [batch.sizes[1] for batch in batches]
    if len(set(lengths)) > 1:
        warn(
            f"the batches have {min(lengths)} to {max(lengths)} draws a chain: moments use all, "
            f"the merged posterior keeps the first {min(lengths)} of each chain."
        )
    return min(lengths)


def dtypes_of(batches: Sequence[Batch], names: Iterable[str]) -> dict[str, np.dtype]:
    """Return the finest dtype that each variable has in any batch."""
    return {
        name: np.result_type(*(batch.draws.variables[name].dtype for batch in batches))
        for name in names
    }


def move_batches(
    batches: Sequence[Batch],
    frame: Frame,
    maps: Sequence[AffineMap],
    length: int,
    dtypes: Mapping[str, np.dtype],
    start: int = 0,
    bar: Bar = HIDDEN,
) -> Draws:
    """Map every batch's draws into arrays that hold all chains end to end."""
    starts = np.cumsum([0, *(batch.sizes[0] for batch in batches)])

    def empty(variables: Iterable[Variable]) -> Arrays:
        return {
            variable.name: np.empty((starts[-1], length, *variable.shape), dtypes[variable.name])
            for variable in variables
        }

    merged = empty(frame.layout.variables)
    moved = frame.space.transforms
    constrained = empty(each for each in frame.constrained.variables if each.name in moved)
    for batch, affine, first in zip(batches, maps, starts, strict=False):
        arrays = list(unconstrained(batch, frame).values())
        part = {name: out[first : first + batch.sizes[0]] for name, out in merged.items()}
        move(
            as_rows(arrays, frame.layout, length),
            frame.layout,
            embed(affine, frame.free, frame.constants),
            as_rows(list(part.values()), frame.layout),
        )
        if constrained:
            back = frame.space.backward(part)
            for name in constrained:
                constrained[name][first : first + batch.sizes[0]] = back[name]
        bar()
    owners = [batch.label for batch in batches for _ in range(batch.sizes[0])]
    images = {name: merged[name] for name in constrained}
    return Draws(merged | constrained, images, length, owners, start)


def sum_batches(
    batches: Sequence[Batch], frame: Frame, maps: Sequence[AffineMap], bar: Bar
) -> Draws:
    """Add the images of all batches' draws, with one batch in memory at a time."""
    chains, length = common_sizes(batches)
    made = np.zeros((chains * length, frame.layout.size))
    for batch, affine in zip(batches, maps, strict=True):
        arrays = [array[:chains, :length] for array in unconstrained(batch, frame).values()]
        rows = as_rows(arrays, frame.layout)
        add_moved(rows, frame.layout, embed(affine, frame.free, frame.constants), made)
        bar()
    constant = np.delete(np.arange(frame.layout.size), frame.free)
    made[:, constant] = frame.constants[constant]
    return _new_draws(made.reshape(chains, length, -1), batches, frame)


def make_draws(
    batches: Sequence[Batch],
    frame: Frame,
    moments: Sequence[Moments],
    factors: np.ndarray | None,
    combine: Callable[..., np.ndarray],
    bar: Bar,
) -> Draws:
    """Make new draws from all batches' draws, as many as the smallest batch has.

    `combine` takes `draws`, (batch, chain, draw, parameter), and returns (chain, draw, parameter).
    """
    rows = common_rows(batches, frame, bar)
    if factors is not None:
        for own, moment, factor in zip(rows, moments, factors, strict=True):
            own -= moment.mean
            own *= np.sqrt(factor)
            own += moment.mean
    with combining(bar):
        free = combine(draws=rows)
    return with_constants(free, batches, frame)


@contextmanager
def combining(bar: Bar) -> Iterator[None]:
    """Show that draws are combined, the last step of a bar over the batches."""
    with ticking(bar, "combining"):
        yield
    bar()


def common_rows(batches: Sequence[Batch], frame: Frame, bar: Bar) -> np.ndarray:
    """Return (batch, chain, draw, parameter) draws, as many as the smallest batch has of each.

    One step of the bar is left for combining them.
    """
    chains, length = common_sizes(batches)
    rows = np.empty((len(batches), chains, length, frame.free.size))
    for position, batch in enumerate(batches):
        if position:
            bar()
        arrays = [array[:chains, :length] for array in unconstrained(batch, frame).values()]
        flat = gather_all(as_rows(arrays, frame.layout), frame.layout)
        rows[position] = flat[:, frame.free].reshape(rows.shape[1:])
    return rows


def with_constants(free: np.ndarray, batches: Sequence[Batch], frame: Frame) -> Draws:
    """Return new draws of the parameters that vary, with those that do not, by variable."""
    made = np.empty((*free.shape[:2], frame.layout.size))
    made[...] = frame.constants
    made[..., frame.free] = free
    return _new_draws(made, batches, frame)


def take_draws(batch: Batch, frame: Frame) -> Draws:
    """Return one batch's draws as they are, as newly made ones."""
    arrays = list(unconstrained(batch, frame).values())
    rows = gather_all(as_rows(arrays, frame.layout), frame.layout)
    return _new_draws(rows.reshape(*batch.sizes, -1), [batch], frame)


def common_sizes(batches: Sequence[Batch], quiet: bool = False) -> tuple[int, int]:
    """Return the numbers of chains and draws that all batches have; say so where others differ."""
    chains, length = (min(sizes) for sizes in zip(*(b.sizes for b in batches), strict=True))
    if not quiet and any(batch.sizes != (chains, length) for batch in batches):
        warn(
            "the batches differ in their numbers of chains or draws: moments use all draws, the "
            f"new draws are made of the first {chains} chains and the first {length} draws of each."
        )
    return chains, length


def _new_draws(made: np.ndarray, batches: Sequence[Batch], frame: Frame) -> Draws:
    """Return new (chain, draw, parameter) draws by variable, on both scales."""
    chains, length, _ = made.shape
    dtypes = dtypes_of(batches, frame.layout.names)
    merged = {
        variable.name: made[..., variable.columns]
        .reshape(chains, length, *variable.shape)
        .astype(dtypes[variable.name], copy=False)
        for variable in frame.layout.variables
    }
    images = {name: merged[name] for name in merged if name in frame.space.transforms}
    back = frame.space.backward(merged) if images else merged
    constrained = {n: back[n].astype(merged[n].dtype, copy=False) for n in merged}
    return Draws(constrained, images, length)

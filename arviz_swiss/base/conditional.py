r"""Local variables given the shared ones, as Gaussians: their mode, its slope, and their widths.

In coordinates u with :math:`\alpha = m + G z + S u` local variables are about standard normal and
independent of z. S has a block for each group of local variables, which are independent of one
another given the shared ones.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

# Log densities (points,), and gradients by shared and by local variables, at many points of both.
JointScore = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
# Differences of gradients: of a variable of which nothing is known, relative to it, and in sds.
FIRST_DIFFERENCE, DIFFERENCE = 1e-3, 0.1
# Newton steps, how often one is cut in half, and length in sds where the mode is found well enough.
NEWTON_STEPS, HALVINGS, CLOSE = 30, 10, 0.1
# Least curvature of a block, relative to the largest: below, it is none.
LEAST_CURVATURE = 1e-6


class NoConditional(RuntimeError):
    """The local variables have no mode given the shared ones."""


class Conditional(NamedTuple):
    """Centre (local,), slope (local, shared) and factors of each family (groups, k, k)."""

    centre: np.ndarray
    slope: np.ndarray
    factors: tuple[np.ndarray, ...]


def find_conditional(
    score: JointScore,
    mean: np.ndarray,
    factor: np.ndarray,
    start: np.ndarray,
    families: Sequence[np.ndarray],
) -> Conditional:
    """Find the local variables' mode at the shared ones' mean, how it moves, and curvatures there.

    `families` are arrays (groups, k) of where the variables of each group lie in `start`. Blocks of
    all groups of a family are found at once, from differences in all of them.
    """
    point = start.astype(float)
    lengths = FIRST_DIFFERENCE * (1 + np.abs(point))
    for _ in range(NEWTON_STEPS):
        blocks, here, gradient = _curvatures(score, mean, point, lengths, families)
        if not np.isfinite(here):
            raise NoConditional("the log density is not finite where the search for a mode began")
        factors = [_inverse_factors(block) for block in blocks]
        step = _solve(factors, families, gradient)
        lengths = DIFFERENCE * _widths(factors, families, point.size)
        size = np.abs(step / lengths).max() * DIFFERENCE
        if size < CLOSE:
            break
        point = _uphill(score, mean, point, here, step)
    else:
        raise NoConditional(f"{NEWTON_STEPS} Newton steps did not reach the local variables' mode")
    point = point + step
    blocks, _, _ = _curvatures(score, mean, point, lengths, families)
    factors = [_inverse_factors(block) for block in blocks]
    shifts = DIFFERENCE * factor.T
    ends = np.concatenate([mean + shifts, mean - shifts])
    _, _, gradients = score(ends, np.broadcast_to(point, (len(ends), point.size)))
    up, down = np.split(gradients, 2)
    slope = _solve(factors, families, (up - down) / (2 * DIFFERENCE)).T
    if not np.isfinite(slope).all():
        raise NoConditional("the gradient is not finite around the local variables' mode")
    return Conditional(point, slope, tuple(factors))


def _curvatures(
    score: JointScore,
    mean: np.ndarray,
    point: np.ndarray,
    lengths: np.ndarray,
    families: Sequence[np.ndarray],
) -> tuple[list[np.ndarray], float, np.ndarray]:
    """Return minus the Hessian of each group, and the log density and gradient at the point."""
    shifts = []
    for family in families:
        for column in family.T:
            shift = np.zeros(point.size)
            shift[column] = lengths[column]
            shifts += [shift, -shift]
    points = point + np.array([np.zeros(point.size), *shifts])
    values, _, gradients = score(np.broadcast_to(mean, (len(points), mean.size)), points)
    blocks, at = [], 1
    for family in families:
        columns = []
        for column in family.T:
            slope = (gradients[at] - gradients[at + 1])[family] / (2 * lengths[column])[:, None]
            columns.append(-slope)
            at += 2
        block = np.stack(columns, axis=1)
        blocks.append((block + block.transpose(0, 2, 1)) / 2)
    return blocks, values[0], gradients[0]


def _inverse_factors(blocks: np.ndarray) -> np.ndarray:
    """Return factors S with ``S S'`` the inverse of each block, curved downwards everywhere."""
    if not np.isfinite(blocks).all():
        raise NoConditional("the gradient is not finite around the local variables' mode")
    values, vectors = np.linalg.eigh(blocks)
    least = max(LEAST_CURVATURE * np.abs(values).max(), np.finfo(float).tiny)
    return vectors / np.sqrt(np.maximum(np.abs(values), least))[:, None, :]


def _solve(
    factors: Sequence[np.ndarray], families: Sequence[np.ndarray], vectors: np.ndarray
) -> np.ndarray:
    """Return the inverse blocks times vectors (..., local)."""
    solved = np.zeros_like(vectors)
    for factor, family in zip(factors, families, strict=True):
        white = np.einsum("gji,...gj->...gi", factor, vectors[..., family])
        solved[..., family] = np.einsum("gij,...gj->...gi", factor, white)
    return solved


def _widths(factors: Sequence[np.ndarray], families: Sequence[np.ndarray], size: int) -> np.ndarray:
    widths = np.ones(size)
    for factor, family in zip(factors, families, strict=True):
        widths[family] = np.sqrt(np.sum(factor**2, axis=2))
    return widths


def _uphill(
    score: JointScore, mean: np.ndarray, point: np.ndarray, value: float, step: np.ndarray
) -> np.ndarray:
    """Take the longest of some halved steps that leads upwards."""
    for halving in range(HALVINGS):
        further = point + step / 2**halving
        values, _, _ = score(mean[None], further[None])
        if values[0] > value:
            return further
    raise NoConditional("no step leads to the local variables' mode")


def widen(
    conditional: Conditional, families: Sequence[np.ndarray], white: np.ndarray
) -> np.ndarray:
    """Return S u for white local variables (..., local)."""
    wide = np.empty_like(white)
    for factor, family in zip(conditional.factors, families, strict=True):
        wide[..., family] = np.einsum("gij,...gj->...gi", factor, white[..., family])
    return wide


def narrow(
    conditional: Conditional, families: Sequence[np.ndarray], gradients: np.ndarray
) -> np.ndarray:
    """Return S' g for gradients by local variables (..., local): those by the white ones."""
    white = np.empty_like(gradients)
    for factor, family in zip(conditional.factors, families, strict=True):
        white[..., family] = np.einsum("gji,...gj->...gi", factor, gradients[..., family])
    return white


def control_variates(
    white: np.ndarray, gradients: np.ndarray, families: Sequence[np.ndarray]
) -> np.ndarray:
    r"""Return ``sum_j (u_jk g_jl + delta_kl)`` of each family, (draws, columns).

    Their mean is zero given the shared variables, whatever the distribution of the local ones, and
    they take off what noise these bring to the scores of scales.
    """
    columns = []
    for family in families:
        products = np.einsum("ngk,ngl->nkl", white[:, family], gradients[:, family])
        products += len(family) * np.eye(family.shape[1])
        columns.append(products.reshape(len(white), -1))
    return np.concatenate(columns, axis=1)

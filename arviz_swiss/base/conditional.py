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
# Differences of gradients: of a variable of which nothing is known, relative to it, and in sds of
# each variable given all others. What they are divided by where the density ends before them.
FIRST_DIFFERENCE, DIFFERENCE, NEARER = 1e-3, 0.1, 100.0
# Newton steps, and length in sds where the mode is found well enough.
NEWTON_STEPS, CLOSE = 30, 0.1
# Shares of a step that are tried, each the half of the one before: the first alone, then more; the
# longest counts along which a group's gradient has not turned by more.
HALVINGS, TURNED = (1, 6, 40), 0.5
# Least curvature of a block whose diagonal is one: below, it is none.
LEAST_CURVATURE = 1e-10


NOT_FINITE = "the log density is not finite around the local variables' mode"


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

    `families` are arrays (groups, k) of where the variables of each group lie in `start`; together
    they name each place once. Blocks of all groups of a family are found at once, from differences
    in all of them.
    """
    if not start.size:
        return Conditional(start.astype(float), np.empty((0, mean.size)), ())
    point, curvatures = _find_mode(score, mean, start.astype(float), families)
    bends = [np.linalg.eigvalsh(_scaled(block)[0]) for block in curvatures.blocks]
    if min(values.min() for values in bends) < -LEAST_CURVATURE:
        raise NoConditional("the local variables' log density has no peak where the search ended")
    factors = [_inverse_factors(block) for block in curvatures.blocks]
    shifts = DIFFERENCE * factor.T
    ends = np.concatenate([mean + shifts, mean - shifts])
    values, _, gradients = score(ends, np.broadcast_to(point, (len(ends), point.size)))
    up, down = np.split(gradients, 2)
    slope = _solve(factors, families, (up - down) / (2 * DIFFERENCE)).T
    if not (np.isfinite(values).all() and np.isfinite(slope).all()):
        raise NoConditional(NOT_FINITE)
    return Conditional(point, slope, tuple(factors))


def _find_mode(
    score: JointScore, mean: np.ndarray, point: np.ndarray, families: Sequence[np.ndarray]
) -> tuple[np.ndarray, "_Curvatures"]:
    """Take Newton steps to the mode; return it with the curvatures there."""
    lengths = FIRST_DIFFERENCE * (1 + np.abs(point))
    found = False
    for _ in range(NEWTON_STEPS):
        here = _curvatures(score, mean, point, lengths, families)
        if not np.isfinite(here.value):
            raise NoConditional("the log density is not finite where the search for a mode began")
        if not here.finite:
            lengths = lengths / NEARER
            continue
        if found:
            return point, here
        factors = [_inverse_factors(block) for block in here.blocks]
        lengths = DIFFERENCE * _widths(here.blocks, families, point.size)
        white = _times(factors, families, here.gradient, transposed=True)
        found = bool(np.abs(white).max() < CLOSE)
        step = _times(factors, families, white)
        point = _ahead(score, mean, point, here.gradient, step, families)
    if not here.finite:
        raise NoConditional(NOT_FINITE)
    raise NoConditional(f"{NEWTON_STEPS} Newton steps did not reach the local variables' mode")


class _Curvatures(NamedTuple):
    """Minus the Hessian of each group, and the log density and gradient at the point.

    `finite` tells whether the density is, wherever differences led.
    """

    blocks: list[np.ndarray]
    value: float
    gradient: np.ndarray
    finite: bool


def _curvatures(
    score: JointScore,
    mean: np.ndarray,
    point: np.ndarray,
    lengths: np.ndarray,
    families: Sequence[np.ndarray],
) -> _Curvatures:
    """Return the curvatures of all groups, from differences of the gradient."""
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
    # outside its support a density may have a gradient, which means nothing
    finite = bool(np.isfinite(values).all() and all(np.isfinite(each).all() for each in blocks))
    return _Curvatures(blocks, float(values[0]), gradients[0], finite)


def _scaled(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return blocks whose diagonals are one, or minus one, and the roots that they are scaled by.

    Variables of one group may have very different scales, as may groups.
    """
    roots = np.sqrt(np.abs(np.diagonal(blocks, axis1=1, axis2=2)))
    if not roots.all():
        raise NoConditional("the log density is flat in a local variable, which has no mode then")
    return blocks / roots[:, :, None] / roots[:, None, :], roots


def _inverse_factors(blocks: np.ndarray) -> np.ndarray:
    """Return factors S with ``S S'`` the inverse of each block, curved downwards everywhere."""
    scaled, roots = _scaled(blocks)
    values, vectors = np.linalg.eigh(scaled)
    least = np.maximum(np.abs(values), LEAST_CURVATURE)
    return vectors / np.sqrt(least)[:, None, :] / roots[:, :, None]


def _widths(blocks: Sequence[np.ndarray], families: Sequence[np.ndarray], size: int) -> np.ndarray:
    """Return the sd of each local variable given all others."""
    widths = np.ones(size)
    for block, family in zip(blocks, families, strict=True):
        widths[family] = 1 / _scaled(block)[1]
    return widths


def _times(
    factors: Sequence[np.ndarray],
    families: Sequence[np.ndarray],
    vectors: np.ndarray,
    transposed: bool = False,
) -> np.ndarray:
    """Return S v, or S' v, for vectors (..., local)."""
    product = np.zeros_like(vectors)
    indices = "gji,...gj->...gi" if transposed else "gij,...gj->...gi"
    for factor, family in zip(factors, families, strict=True):
        product[..., family] = np.einsum(indices, factor, vectors[..., family])
    return product


def _solve(
    factors: Sequence[np.ndarray], families: Sequence[np.ndarray], vectors: np.ndarray
) -> np.ndarray:
    """Return the inverse blocks times vectors (..., local)."""
    return _times(factors, families, _times(factors, families, vectors, transposed=True))


def _ahead(
    score: JointScore,
    mean: np.ndarray,
    point: np.ndarray,
    gradient: np.ndarray,
    step: np.ndarray,
    families: Sequence[np.ndarray],
) -> np.ndarray:
    """Go along the step as far as each group's own gradient allows, halved until it does."""
    before = _rises(gradient, step, families)
    for halvings in HALVINGS:
        shares = 0.5 ** np.arange(halvings)
        ends = point + shares[:, None] * step
        values, _, gradients = score(np.broadcast_to(mean, (len(ends), mean.size)), ends)
        # what remains of a short step is rounding, which may turn at will
        allowed = (_rises(gradients, step, families) >= -TURNED * before) | (before < CLOSE**2)
        allowed &= np.isfinite(values)[:, None]
        if allowed.any(axis=0).all():
            return point + shares[allowed.argmax(axis=0)] * step
    raise NoConditional("no step leads to the local variables' mode")


def _rises(gradients: np.ndarray, step: np.ndarray, families: Sequence[np.ndarray]) -> np.ndarray:
    """Return how fast the log density of each variable's group rises along a step (..., local)."""
    rises = np.empty_like(gradients)
    with np.errstate(over="ignore", invalid="ignore"):
        for family in families:
            products = gradients[..., family] * step[family]
            rises[..., family] = np.sum(products, axis=-1, keepdims=True)
    return rises


def widen(
    conditional: Conditional, families: Sequence[np.ndarray], white: np.ndarray
) -> np.ndarray:
    """Return S u for white local variables (..., local)."""
    return _times(conditional.factors, families, white)


def narrow(
    conditional: Conditional, families: Sequence[np.ndarray], gradients: np.ndarray
) -> np.ndarray:
    """Return S' g for gradients by local variables (..., local): those by the white ones."""
    return _times(conditional.factors, families, gradients, transposed=True)


def control_variates(
    white: np.ndarray, gradients: np.ndarray, families: Sequence[np.ndarray]
) -> np.ndarray:
    r"""Return ``sum_j (u_jk g_jl + u_jl g_jk) / 2 + delta_kl`` of each family, (draws, columns).

    Their mean is zero given the shared variables, whatever the distribution of the local ones, and
    they take off what noise these bring to the scores of scales. The difference of the two products
    has mean zero as well, but is next to nothing where local variables are about normal.
    """
    columns = [np.empty((len(white), 0))]
    for family in families:
        products = np.einsum("ngk,ngl->nkl", white[:, family], gradients[:, family])
        products += len(family) * np.eye(family.shape[1])
        rows, cols = np.triu_indices(family.shape[1])
        columns.append((products[:, rows, cols] + products[:, cols, rows]) / 2)
    return np.concatenate(columns, axis=1)

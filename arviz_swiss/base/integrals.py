r"""Integrals over local variables, group by group, by importance sampling around their modes.

Given the shared variables, groups are independent, and what all data say of these is a product of
one-group integrals :math:`\int f_g(\theta, \alpha_g) d\alpha_g`. With :math:`\phi_g` the Gaussian
at the mode, as wide as the curvature says, and draws of a distribution :math:`q_g` alike but for
its heavier tails, each is the mean of :math:`f_g / q_g` over that of :math:`\phi_g / q_g`, whose
expectation is one. The quotient is exact where :math:`f_g` is Gaussian in the local variables.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, stdtrit
from scipy.stats import norm, qmc, t

from arviz_swiss.base.conditional import Conditional

# Log terms (points, groups), at many points of shared and of local variables.
LogTerms = Callable[[np.ndarray, np.ndarray], np.ndarray]
# Draws of each group at each point, in independent parts that tell their noise.
DRAWS, PARTS = 16, 2
# Degrees of freedom of Student's t, by which a density of wider tails than at its mode is bounded.
DEGREES = 5.0
# Steps to each point's own mode and curvature; differences, and the last step, in sds. The longest
# first step; later ones may each be twice as long, as sds shrink where a scale is close to zero.
MOST_STEPS, DIFFERENCE, CLOSE, LONGEST = 12, 0.5, 0.3, 3.0
# Least curvature after a step, in units of that before: no sd grows to more than ten times.
LEAST_CURVATURE = 1 / 100
# Elements of local variables at a time.
CHUNK_ELEMENTS = 10**6


class Place(NamedTuple):
    r"""Where a batch's variables are: shared ones :math:`\mu + L z`, local ones near it.

    The conditional says where local ones are, :math:`m + G z + S u`, by the white coordinates z.
    """

    mean: np.ndarray
    factor: np.ndarray
    conditional: Conditional
    families: Sequence[np.ndarray]


class LogIntegrals(NamedTuple):
    """Sums of the groups' log integrals at points, (points,), and the sd of their noise.

    Noise that all points have in common is not counted: it is a constant of the density. Where an
    integral was found to be zero, the noise is infinite.
    """

    values: np.ndarray
    noise: np.ndarray


class _Local(NamedTuple):
    """Centres (points, local), and factors of each family (points, groups, k, k)."""

    centres: np.ndarray
    factors: list[np.ndarray]


def log_integrals(
    terms: LogTerms, place: Place, points: np.ndarray, draws: int = DRAWS, seed: int = 0
) -> LogIntegrals:
    """Return the log of the product of all groups' integrals at points of shared variables."""
    sums = [
        np.column_stack([whole.sum(axis=1), parts.sum(axis=2).T])
        for whole, parts in _chunks(terms, place, points, draws, seed)
    ]
    columns = np.concatenate(sums).T
    values, by_part = columns[0], columns[1:]
    known = np.isfinite(by_part).all(axis=0)
    noise = np.full(len(values), np.inf)
    if known.any():
        # not the mean, which one point far out would spoil for all
        relative = by_part[:, known] - np.median(by_part[:, known], axis=1, keepdims=True)
        noise[known] = relative.std(axis=0, ddof=1) / np.sqrt(PARTS)
    return LogIntegrals(values, noise)


def log_integrals_by_group(
    terms: LogTerms, place: Place, points: np.ndarray, draws: int = DRAWS, seed: int = 0
) -> np.ndarray:
    """Return the log integrals of each group at points of shared variables, (points, groups)."""
    return np.concatenate([whole for whole, _ in _chunks(terms, place, points, draws, seed)])


def log_ratios(terms: LogTerms, place: Place, draws: int, seed: int = 0) -> np.ndarray:
    """Return each group's log importance ratios where the shared variables are at their mean.

    They are (draws, groups), and independent, as who looks at their tail will have it.
    """
    shared, size = place.mean[None], place.conditional.centre.size
    white = np.random.default_rng(seed).standard_t(DEGREES, (draws, size))
    local = _local(terms, place, shared)
    gaussian = _log_gaussian_ratios(place.families, white)
    return _log_ratios(terms, place.families, shared, local, white)[:, 0] + gaussian


def draw_local(
    terms: LogTerms, place: Place, points: np.ndarray, candidates: int, seed: int
) -> np.ndarray:
    """Return draws of the local variables given the shared ones at points, (points, local).

    Of each group's candidates around its mode one is picked, by its importance ratio.
    """
    rng = np.random.default_rng(seed)
    size = place.conditional.centre.size
    drawn = np.empty((len(points), size))
    step = max(1, CHUNK_ELEMENTS // (candidates * size))
    for start in range(0, len(points), step):
        shared = points[start : start + step]
        local = _local(terms, place, shared)
        white = rng.standard_t(DEGREES, (candidates, len(shared), size))
        ratios = _terms_at(terms, place.families, shared, local, white)
        ratios += np.concatenate(
            [-t.logpdf(white[..., f], DEGREES).sum(axis=3) for f in place.families], axis=2
        )
        if not np.isfinite(ratios.max(axis=0)).all():
            raise ValueError("the local variables of a group have no density around their mode")
        # the largest of log weights and Gumbel noise is a draw by the weights
        picks = (ratios + rng.gumbel(size=ratios.shape)).argmax(axis=0)
        places, first = _places(place.families, local, white), 0
        for family in place.families:
            chosen = picks[:, first : first + len(family)]
            values = places[..., family]
            own = np.take_along_axis(values, chosen[None, :, :, None], axis=0)[0]
            drawn[start : start + step][:, family] = own
            first += len(family)
    return drawn


def _chunks(
    terms: LogTerms, place: Place, points: np.ndarray, draws: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Give log integrals of chunks of points, (points, groups), and by each part of the draws.

    All points have the same white draws: most of the noise is common to them, and harmless.
    """
    rng = np.random.default_rng(seed)
    each = max(2, draws // PARTS)
    white = np.concatenate([white_draws(each, place.families, rng) for _ in range(PARTS)])
    gaussian = _log_gaussian_ratios(place.families, white)
    expected = logsumexp(gaussian.reshape(PARTS, -1, 1, gaussian.shape[1]), axis=1)
    step = max(1, CHUNK_ELEMENTS // white.size)
    for start in range(0, len(points), step):
        shared = points[start : start + step]
        local = _local(terms, place, shared)
        ratios = gaussian[:, None] + _log_ratios(terms, place.families, shared, local, white)
        ratios = ratios.reshape(PARTS, -1, *ratios.shape[1:])
        sums = logsumexp(ratios, axis=1)
        yield logsumexp(sums, axis=0) - logsumexp(expected, axis=0), sums - expected


def white_draws(count: int, families: Sequence[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Return Student's t draws (count, local), evenly spread for each group, and in pairs.

    Groups have their own shifts of one quasi-random set, so that what it does wrong averages out
    over groups. A second half mirrors the first, which takes off what skewness does.
    """
    white = np.empty((count, sum(family.size for family in families)))
    half = count - count // 2
    for family in families:
        sobol = qmc.Sobol(family.shape[1], scramble=False)
        even = sobol.random_base2((half - 1).bit_length())[:half]
        shifted = (even[:, None] + rng.random(family.shape)) % 1
        # 0 is as likely as any other number
        draws = stdtrit(DEGREES, np.clip(shifted, 2.0**-40, 1 - 2.0**-40))
        white[:, family] = np.concatenate([draws, -draws])[:count]
    return white


def _log_ratios(
    terms: LogTerms,
    families: Sequence[np.ndarray],
    shared: np.ndarray,
    local: _Local,
    white: np.ndarray,
) -> np.ndarray:
    """Return the log of f over the Gaussian of every group, (draws, points, groups)."""
    widths = np.concatenate([np.linalg.slogdet(f)[1] for f in local.factors], axis=1)
    squares = np.concatenate([np.sum(white[:, f] ** 2, axis=2) for f in families], axis=1)
    sizes = np.concatenate([np.full(len(f), f.shape[1]) for f in families])
    minus_log_gaussian = widths + (squares[:, None] + sizes * np.log(2 * np.pi)) / 2
    return _terms_at(terms, families, shared, local, white) + minus_log_gaussian


def _log_gaussian_ratios(families: Sequence[np.ndarray], white: np.ndarray) -> np.ndarray:
    """Return the log of the Gaussian over the distribution of draws, (draws, groups)."""
    log_ratios = norm.logpdf(white) - t.logpdf(white, DEGREES)
    return np.concatenate([log_ratios[:, f].sum(axis=2) for f in families], axis=1)


def _terms_at(
    terms: LogTerms,
    families: Sequence[np.ndarray],
    shared: np.ndarray,
    local: _Local,
    white: np.ndarray,
) -> np.ndarray:
    """Return log terms (draws, points, groups) at white local variables.

    They are (draws, local), the same at all points, or (draws, points, local).
    """
    places = _places(families, local, white)
    flat = np.broadcast_to(shared, (len(white), *shared.shape)).reshape(-1, shared.shape[1])
    values = terms(flat, places.reshape(len(flat), -1))
    # not a number is no density: far out, where a model overflows
    return np.where(np.isnan(values), -np.inf, values).reshape(len(white), len(shared), -1)


def _places(families: Sequence[np.ndarray], local: _Local, white: np.ndarray) -> np.ndarray:
    """Return local variables (draws, points, local) where white ones lead."""
    places = np.broadcast_to(local.centres, (len(white), *local.centres.shape)).copy()
    indices = "pgij,dpgj->dpgi" if white.ndim == 3 else "pgij,dgj->dpgi"
    for factor, family in zip(local.factors, families, strict=True):
        places[..., family] += np.einsum(indices, factor, white[..., family])
    return places


def _local(terms: LogTerms, place: Place, shared: np.ndarray) -> _Local:
    """Return where the local variables are at each point, and how wide.

    The conditional at the mean is the start. Where shared scales are other than at the mean, the
    widths are too: Newton steps, by differences in all groups at once, find them.
    """
    conditional, families = place.conditional, place.families
    z = np.linalg.solve(place.factor, (shared - place.mean).T).T
    centres = conditional.centre + z @ conditional.slope.T
    factors = [np.repeat(factor[None], len(shared), axis=0) for factor in conditional.factors]
    far = np.arange(len(shared))
    for doubled in range(MOST_STEPS):
        here = _Local(centres[far], [factor[far] for factor in factors])
        longest = LONGEST * 2.0**doubled
        there, lengths = _newton_step(terms, families, shared[far], here, longest)
        centres[far] = there.centres
        for factor, moved in zip(factors, there.factors, strict=True):
            factor[far] = moved
        far = far[lengths > CLOSE]
        if far.size == 0:
            break
    return _Local(centres, factors)


def _newton_step(
    terms: LogTerms,
    families: Sequence[np.ndarray],
    shared: np.ndarray,
    local: _Local,
    longest: float,
) -> tuple[_Local, np.ndarray]:
    """Move each group at each point to the top of the parabola through differences around it.

    The longest step of each point is returned too, in sds of where it leads.
    """
    size = max(family.shape[1] for family in families)
    moves = _moves(size)
    white = np.zeros((len(moves), local.centres.shape[1]))
    for family in families:
        white[:, family] = moves[:, None, : family.shape[1]]
    values = _terms_at(terms, families, shared, local, white)
    centres, factors, first = local.centres.copy(), [], 0
    taken = np.zeros(len(shared))
    for factor, family in zip(local.factors, families, strict=True):
        count, k = family.shape
        with np.errstate(invalid="ignore"):  # where the density is zero
            gradient, hessian = _derivatives(values[..., first : first + count], size, k)
        step, lengths, narrower = _parabola(gradient, hessian, longest)
        taken = np.maximum(taken, lengths.max(axis=1))
        centres[:, family] += np.einsum("pgij,pgj->pgi", factor, step)
        factors.append(factor @ narrower)
        first += count
    return _Local(centres, factors), taken


def _moves(size: int) -> np.ndarray:
    """Return differences: none, to both sides along each axis, and along each two axes at once."""
    axes = np.eye(size)
    pairs = [axes[i] + axes[j] for i in range(size) for j in range(i)]
    both = [side * pair for pair in pairs for side in (1, -1)]
    return DIFFERENCE * np.array([np.zeros(size), *axes, *-axes, *both])


def _derivatives(values: np.ndarray, size: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return gradients (points, groups, k) and Hessians by the first k of `size` axes."""
    here, up, down = values[0], values[1 : 1 + k], values[1 + size : 1 + size + k]
    gradient = (up - down) / (2 * DIFFERENCE)
    hessian = np.empty((k, k, *here.shape))
    bends = up + down - 2 * here
    hessian[np.diag_indices(k)] = bends / DIFFERENCE**2
    at = 1 + 2 * size
    for i in range(k):
        for j in range(i):
            mixed = values[at] + values[at + 1] - 2 * here - bends[i] - bends[j]
            hessian[i, j] = hessian[j, i] = mixed / (2 * DIFFERENCE**2)
            at += 2
    return np.moveaxis(gradient, 0, -1), np.moveaxis(hessian, (0, 1), (-2, -1))


def _parabola(
    gradient: np.ndarray, hessian: np.ndarray, longest: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return steps to parabolas' tops, their lengths in sds there, and factors of these sds.

    None is taken where a density is zero, and upwards parabolas become flat downward ones.
    """
    finite = np.isfinite(hessian).all(axis=(-2, -1)) & np.isfinite(gradient).all(axis=-1)
    hessian = np.where(finite[..., None, None], hessian, -np.eye(hessian.shape[-1]))
    gradient = np.where(finite[..., None], gradient, 0.0)
    values, vectors = np.linalg.eigh(-hessian)
    # the symmetric root, which changes little from point to point, as do its draws
    scaled = vectors / np.sqrt(np.maximum(values, LEAST_CURVATURE))[..., None, :]
    factor = scaled @ np.swapaxes(vectors, -1, -2)
    white = np.einsum("...ij,...j->...i", factor, gradient)
    step = np.einsum("...ij,...j->...i", factor, white)
    shorter = longest / np.maximum(np.linalg.norm(step, axis=-1), longest)
    return step * shorter[..., None], shorter * np.linalg.norm(white, axis=-1), factor

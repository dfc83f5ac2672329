r"""Sites of expectation propagation: what each batch adds to the pooled Gaussian, by its scores.

All is in the white coordinates z of the pooled Gaussian, :math:`\theta = \mu + L z`, where that is
standard normal: the sites' precisions sum to the identity, their shifts to zero.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh, solve_triangular

# What a round may do to the precision in any direction, and the share of it that must be left to
# the others when a site is taken out; beyond, steps are made shorter by a factor. Where the others
# have less already, as of an effect that one batch alone can tell, they may lose half of it.
LEAST, MOST, LEAST_CAVITY = 0.2, 5.0, 0.02
SHORTER, SHORTEST = 0.7, 1e-12
# Singular values of a regression that are less than this, by the largest, are rounding.
COLLINEAR = 1e-10


class Site(NamedTuple):
    """Natural parameters of a Gaussian factor: precision, and precision times mean."""

    precision: np.ndarray
    shift: np.ndarray


class Change(NamedTuple):
    """How a site differs from what its batch's scores tell, and by how much noise alone would.

    `shift_noise` is the covariance of the shift, `precision_noise` the expected squared norm of the
    precision's noise; `skewness` is what the site adds to that of each direction, `skewness_noise`
    its variance.
    """

    precision: np.ndarray
    shift: np.ndarray
    shift_noise: np.ndarray
    precision_noise: float
    skewness: np.ndarray
    skewness_noise: np.ndarray


class Step(NamedTuple):
    """Where the pooled Gaussian goes, in its white coordinates: mean and precision there.

    `length` is the Mahalanobis length of the step of the mean, `change` the norm of the relative
    change of the precision; `damping` is the share that was taken, `unlimited` eigenvalues are of
    the precision without it.
    """

    mean: np.ndarray
    precision: np.ndarray
    length: float
    length_error: float
    change: float
    change_error: float
    damping: float
    unlimited: np.ndarray


def site_change(
    white: np.ndarray,
    scores: np.ndarray,
    controls: np.ndarray,
    worth: float = 1.0,
    directions: np.ndarray | None = None,
) -> Change:
    r"""Regress scores of a batch's tilted distribution on its draws in white coordinates.

    The tilted distribution is standard normal, with scores :math:`-z`, if the site is right. With
    :math:`s + z = c + M z + \epsilon` the site's shift grows by c and its precision by -M. Scores
    may be those of z given further variables of the batch, which Fisher's identity makes unbiased.
    `controls` (draws, columns) are of mean zero given z; `worth` is the share of independent draws;
    scores that bend along unit vectors, the rows of `directions`, tell the skewness there, by
    default that of each white coordinate.
    """
    count, size = white.shape
    design = np.column_stack([np.ones(count), white, controls])
    if count <= design.shape[1]:
        raise ValueError(
            f"{count} draws are too few for a regression on {design.shape[1]} columns, of {size} "
            "shared parameters and their control variates: draw more."
        )
    weights = np.linalg.pinv(design, COLLINEAR)
    residuals = scores + white
    coefficients = weights @ residuals
    noise = residuals - design @ coefficients
    lost = count / (count - design.shape[1]) / worth
    pulled = weights[0][:, None] * noise
    along = weights[1 : 1 + size].T
    outer = np.sum(along**2, axis=1) * np.sum(noise**2, axis=1) + np.sum(along * noise, axis=1) ** 2
    directions = np.eye(size) if directions is None else directions
    bends = (white @ directions.T) ** 2
    bends = bends - design @ (weights @ bends)
    squares, left = np.sum(bends**2, axis=0), noise @ directions.T
    slope = coefficients[1 : 1 + size]
    return Change(
        -(slope + slope.T) / 2,
        coefficients[0],
        lost * pulled.T @ pulled,
        lost * float(outer.sum()) / 2,
        2 * np.sum(bends * left, axis=0) / squares,
        4 * lost * np.sum(bends**2 * left**2, axis=0) / squares**2,
    )


def pool_changes(sites: Sequence[Site], changes: Sequence[Change]) -> Step:
    """Return the step to the sum of the changed sites, shorter where it would lead too far."""
    bend = np.sum([change.precision for change in changes], axis=0)
    shift = np.sum([change.shift for change in changes], axis=0)
    noise = np.sum([change.shift_noise for change in changes], axis=0)
    if not (np.isfinite(bend).all() and np.isfinite(shift).all()):
        raise ValueError("the change of a site is not finite.")
    damping = _damping(bend, sites, changes)
    precision = np.eye(len(bend)) + damping * bend
    mean = np.linalg.solve(precision, damping * shift)
    return Step(
        mean,
        precision,
        float(np.sqrt(mean @ precision @ mean)),
        float(damping * np.sqrt(np.trace(np.linalg.solve(precision, noise)))),
        float(damping * np.linalg.norm(bend)),
        float(damping * np.sqrt(sum(change.precision_noise for change in changes))),
        damping,
        1 + np.linalg.eigvalsh(bend),
    )


def _damping(bend: np.ndarray, sites: Sequence[Site], changes: Sequence[Change]) -> float:
    """Return the share of a step that keeps the precision, and what each site leaves of it."""
    values = np.linalg.eigvalsh(bend)
    damping = 1.0
    while not (1 + damping * values[0] > LEAST and 1 + damping * values[-1] < MOST):
        damping *= SHORTER
    if len(sites) == 1:
        return damping
    for site, change in zip(sites, changes, strict=True):
        least = _least_share(site.precision, np.eye(len(bend)))
        least = min(LEAST_CAVITY, least - abs(least) / 2)
        while damping > SHORTEST:
            precision = np.eye(len(bend)) + damping * bend
            if _least_share(site.precision + damping * change.precision, precision) > least:
                break
            damping *= SHORTER
    return damping


def _least_share(own: np.ndarray, precision: np.ndarray) -> float:
    """Return the least share of a precision in any direction that is left without a site."""
    left = eigh(precision - own, precision, eigvals_only=True, subset_by_index=[0, 0])
    return float(left[0])


def change_site(site: Site, change: Change, step: Step) -> Site:
    """Return a changed site in the white coordinates of the Gaussian after the step."""
    precision = site.precision + step.damping * change.precision
    shift = site.shift + step.damping * change.shift
    factor = white_factor(step)
    return Site(factor.T @ precision @ factor, factor.T @ (shift - precision @ step.mean))


def white_factor(step: Step) -> np.ndarray:
    """Return the T of ``z = mean + T z'`` with z' the white coordinates after the step."""
    upper = np.linalg.cholesky(step.precision).T
    return solve_triangular(upper, np.eye(len(upper)))

r"""Sites of expectation propagation: what each batch adds to the pooled Gaussian, by its scores.

All is in the white coordinates z of the pooled Gaussian, :math:`\theta = \mu + L z`, where that is
standard normal: the sites' precisions sum to the identity, their shifts to zero.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

# What a round may do to the precision in any direction, and what must be left to the others when a
# site is taken out; beyond, steps are made shorter by a factor.
LEAST, MOST, LEAST_CAVITY = 0.2, 5.0, 0.02
SHORTER, SHORTEST = 0.7, 0.02


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
    directions: np.ndarray,
    worth: float = 1.0,
) -> Change:
    r"""Regress scores of a batch's tilted distribution on its draws in white coordinates.

    The tilted distribution is standard normal, with scores :math:`-z`, if the site is right. With
    :math:`s + z = c + M z + \epsilon` the site's shift grows by c and its precision by -M. Scores
    may be those of z given further variables of the batch, which Fisher's identity makes unbiased.
    `controls` are of mean zero given z; along unit vectors, the rows of `directions`, scores that
    bend tell the skewness; `worth` is the share of independent draws.
    """
    count, size = white.shape
    residuals = scores + white
    design = np.column_stack([np.ones(count), white, controls])
    coefficients = np.linalg.lstsq(design, residuals, rcond=None)[0]
    noise = residuals - design @ coefficients
    lost = count / max(count - design.shape[1], 1) / worth
    share = design @ np.linalg.pinv(design.T @ design)
    pulled = share[:, :1] * noise
    along = share[:, 1 : 1 + size]
    outer = np.sum(along**2, axis=1) * np.sum(noise**2, axis=1) + np.sum(along * noise, axis=1) ** 2
    bends = (white @ directions.T) ** 2
    bends = bends - design @ np.linalg.lstsq(design, bends, rcond=None)[0]
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
    size = len(changes[0].shift)
    bend = sum(change.precision for change in changes)
    damping = 1.0
    while damping > SHORTEST and not _is_safe(bend, damping, sites, changes):
        damping *= SHORTER
    precision = np.eye(size) + damping * bend
    mean = np.linalg.solve(precision, damping * sum(change.shift for change in changes))
    noise = sum(change.shift_noise for change in changes)
    return Step(
        mean,
        precision,
        float(np.sqrt(mean @ precision @ mean)),
        float(damping * np.sqrt(np.trace(np.linalg.solve(precision, noise)))),
        float(damping * np.linalg.norm(bend)),
        float(damping * np.sqrt(sum(change.precision_noise for change in changes))),
        damping,
        np.linalg.eigvalsh(np.eye(size) + bend),
    )


def _is_safe(
    bend: np.ndarray, damping: float, sites: Sequence[Site], changes: Sequence[Change]
) -> bool:
    precision = np.eye(len(bend)) + damping * bend
    values = np.linalg.eigvalsh(precision)
    if not (values[0] > LEAST and values[-1] < MOST):
        return False
    cavities = [
        precision - site.precision - damping * change.precision
        for site, change in zip(sites, changes, strict=True)
    ]
    return len(sites) == 1 or min(np.linalg.eigvalsh(each)[0] for each in cavities) > LEAST_CAVITY


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

"""Whether gradients are those of the log densities, and lead to a maximum."""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.linalg import solve_triangular

from arviz_swiss.base.gaussian import Gaussian
from arviz_swiss.correcting.evaluation import Evaluate, Request

TERMS = ("log_prior", "log_likelihood")
# Between so many pairs of draws changes of the log density are compared with its gradients.
PAIRS = 3
# How far to go from one draw to the other: all the way for single precision, less for a rough
# density. Gradients are wrong only if they are wrong both times.
REACHES = (1.0, 0.1)
# Share of the changes by which they may differ: gradients are half as long again, or of other sign.
TOLERATED = 0.2
# In log densities: nothing that matters, or rounding of single precision.
NEGLIGIBLE, ROUNDING = 1e-3, 1e-6
# Share of the curvature that a density should have, by which the wrong sign is told from none.
UPWARDS = 0.1


def wrong_gradients(evaluate: Evaluate, labels: Sequence[str], points: np.ndarray) -> list[str]:
    """Return a clause for each method that is not a gradient, with its densities, in words.

    Between a few of the points, which are draws, changes of the log densities are compared with
    what their gradients say.
    """
    count = min(PAIRS, len(points) // 2)
    starts, ends = points[:count], points[count : 2 * count]
    at = np.concatenate([_path(starts, ends, reach) for reach in REACHES])
    wanted = [name for term in TERMS for name in (term, f"grad_{term}")]
    answers = evaluate({label: [Request(name, at) for name in wanted] for label in labels})
    clauses = []
    for place, term in enumerate(TERMS):
        wrong = {}
        for label in labels:
            values, gradients = answers[label][2 * place : 2 * place + 2]
            changes = _changes(values, gradients, ends - starts)
            if not _agree(changes, values):
                wrong[label] = changes[0]
        if wrong:
            clauses.append(_clause(term, wrong))
    return clauses


def _path(starts: np.ndarray, ends: np.ndarray, reach: float) -> np.ndarray:
    """Return starts, middles and stops of the ways that go as far as `reach` to the ends."""
    return np.concatenate([starts + share * reach * (ends - starts) for share in (0.0, 0.5, 1.0)])


def _changes(
    values: np.ndarray, gradients: np.ndarray, ways: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return for each reach the changes of the log density, and those by Simpson's rule."""
    count = len(ways)
    changes = []
    for position, reach in enumerate(REACHES):
        first, middle, last = (
            slice((3 * position + part) * count, (3 * position + part + 1) * count)
            for part in range(3)
        )
        slopes = (gradients[first] + 4 * gradients[middle] + gradients[last]) / 6
        inside = np.isfinite(values[first]) & np.isfinite(values[last])
        inside &= np.isfinite(slopes).all(axis=1)
        actual = values[last][inside] - values[first][inside]
        changes.append((actual, reach * np.sum(slopes[inside] * ways[inside], axis=1)))
    return changes


def _agree(changes: Sequence[tuple[np.ndarray, np.ndarray]], values: np.ndarray) -> bool:
    finite = values[np.isfinite(values)]
    rounding = ROUNDING * np.abs(finite).max(initial=0.0)
    for actual, expected in changes:
        total = np.sum(np.abs(actual) + np.abs(expected))
        if np.sum(np.abs(actual - expected)) <= max(TOLERATED * total, NEGLIGIBLE, rounding):
            return True
    return False


def _clause(term: str, wrong: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> str:
    label, (actual, expected) = next(iter(wrong.items()))
    at = int(np.argmax(np.abs(actual - expected)))
    batches = ", ".join(f'"{label}"' for label in wrong)
    return (
        f"grad_{term} is not the gradient of {term} in batch {batches} (between two merged draws "
        f"the log density of {label} changes by {actual[at]:.3g}, by its gradient "
        f"{expected[at]:.3g})"
    )


def curved_upwards(
    points: np.ndarray, likelihoods: Mapping[str, np.ndarray], moments: Gaussian
) -> list[str]:
    """Return the labels whose log likelihood curves upwards in every direction at the points.

    In the coordinates of `moments` the curvature of each is about one over their number.
    """
    standard = (points - moments.mean) @ moments.factor
    design = np.column_stack([np.ones(len(points)), standard])
    slopes = np.linalg.pinv(design)[1:]
    upwards = []
    for label, gradients in likelihoods.items():
        slope = slopes @ solve_triangular(moments.factor, gradients.T, lower=True).T
        least = np.linalg.eigvalsh((slope + slope.T) / 2)[0]
        if least > UPWARDS / len(likelihoods):
            upwards.append(label)
    return upwards

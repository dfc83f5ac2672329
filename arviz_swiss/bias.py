"""How far off the merge of inflated batches is to be expected, from the batches' moments alone."""

from collections.abc import Sequence

import numpy as np
from scipy.linalg import solve_triangular

from arviz_swiss.moments import Moments, Pooled

# How surely an error must differ from chance: its estimate over the sd that chance gives it.
SURE = 2.5
# With few batches the estimate cannot exceed sqrt(B (B - 1) / 2) of these sds.
SURE_OF_FEW = 0.8


def expected_error(batches: Sequence[Moments], pooled: Pooled, powers: np.ndarray) -> float:
    """Return by how many posterior sds (Mahalanobis) the mean of inflated batches is expected off.

    Parameters
    ----------
    batches : sequence of Moments
    pooled : Pooled
    powers : array
        The likelihood powers of the pooling.

    Returns
    -------
    float
        An order of magnitude; zero where chance explains it. NaN for batches that are not inflated,
        in which the skewness of each batch makes up for it in the leading order, and for fewer
        than three.

    Notes
    -----
    To second order, the score of the full posterior at the pooled mean is half of the sum over
    batches of third derivatives times ``d_b d_b'``, with ``d_b = mu_b - mu``. The same third
    derivatives make precisions change from batch to batch, ``P_b = P - T d_b``. So the error is
    half of ``V sum_b w_b (P_b - P) d_b``, which is half the distance from the pooled mean to the
    plain average of the batches' means. Precisions also vary by chance, with the rows and the
    draws: only products of two different batches' terms count, which chance leaves at zero.
    """
    count = len(batches)
    if count < 3 or np.exp(np.mean(np.log(powers))) <= 1.0:
        return np.nan
    shares = (1.0 / powers) / np.sum(1.0 / powers)
    terms = np.array(
        [
            solve_triangular(pooled.factor, moments.precision @ away, lower=True)
            - pooled.factor.T @ away
            for moments in batches
            for away in [moments.mean - pooled.mean]
        ]
    )
    products = np.outer(shares, shares) * (terms @ terms.T)
    np.fill_diagonal(products, 0.0)
    squared, by_chance = products.sum(), np.sqrt(2.0 * np.sum(products**2))
    sure = min(SURE, SURE_OF_FEW * np.sqrt(count * (count - 1) / 2))
    if squared <= sure * by_chance:
        return 0.0
    return float(0.5 * np.sqrt(squared / (1.0 - np.sum(shares**2))))

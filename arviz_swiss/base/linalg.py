"""Factors, principal roots, transport and affine maps."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas, lapack

# OpenBLAS has faster products of at most so many multiplications where registers are wide
# (AVX-512); of so few columns they are faster than half of a long product.
SMALL_PRODUCT = 1_000_000
NARROW = 40


class Spectrum(NamedTuple):
    """Eigenvalues and -vectors of W_b = L' V_b L, the batch's covariance seen from the pooled."""

    values: np.ndarray
    vectors: np.ndarray


class AffineMap(NamedTuple):
    """The map ``draw -> scale (draw - source) + target`` of one batch."""

    scale: np.ndarray
    source: np.ndarray
    target: np.ndarray


def add_outer(rows: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Add rows' X'X to `total`, Fortran-ordered, in place: to its upper triangle at least."""
    if rows.shape[1] <= NARROW:
        return blas.dgemm(1.0, rows.T, rows.T, beta=1.0, c=total, trans_b=1, overwrite_c=1)
    return blas.dsyrk(1.0, rows.T, beta=1.0, c=total, overwrite_c=1)


def add_product(rows: np.ndarray, scale: np.ndarray, total: np.ndarray) -> None:
    """Add ``rows @ scale.T`` to `total` in place; all three are C-ordered, of double precision."""
    blas.dgemm(1.0, scale.T, rows.T, beta=1.0, c=total.T, trans_a=1, overwrite_c=1)


def mirror(upper: np.ndarray) -> np.ndarray:
    """Return the symmetric matrix whose upper triangle is given."""
    full = np.triu(upper, 1)
    full += full.T
    np.fill_diagonal(full, np.diag(upper))
    return full


def cholesky(matrix: np.ndarray) -> np.ndarray:
    """Return the lower Cholesky factor; LinAlgError when the matrix is not positive definite."""
    factor, info = lapack.dpotrf(matrix, lower=1, clean=1)
    if info:
        raise np.linalg.LinAlgError(f"not positive definite at row {info}")
    return factor


def inverse(matrix: np.ndarray) -> np.ndarray:
    """Return the inverse of a symmetric positive definite matrix, by its Cholesky factor."""
    lower, info = lapack.dpotri(cholesky(matrix), lower=1)
    if info:
        raise np.linalg.LinAlgError(f"singular at row {info}")
    return mirror(lower.T)


def spectrum(factor: np.ndarray, covariance: np.ndarray) -> Spectrum:
    """Decompose ``L' V_b L``, with L the lower Cholesky factor of the pooled precision."""
    half = blas.dtrmm(1.0, factor, covariance, side=0, lower=1, trans_a=1)
    whitened = blas.dtrmm(1.0, factor, half, side=1, lower=1)
    values, vectors, info = lapack.dsyevd(whitened, compute_v=1, lower=1, overwrite_a=1)
    if info:
        raise np.linalg.LinAlgError("the eigenvalues did not converge")
    return Spectrum(values, vectors)


def principal_map(factor: np.ndarray, spectrum: Spectrum) -> np.ndarray:
    """Return ``A_b = (V P_b)^(1/2) = L'^-1 U w^(-1/2) U' L'``, the map of SwISS.

    It equals the paper's ``M Mtilde_b^-1 M^-1`` for every root M of the pooled covariance, without
    forming one: badly scaled parameters lose no digits.
    """
    values, vectors = spectrum
    symmetric = (vectors * values**-0.5) @ vectors.T
    right = blas.dtrmm(1.0, factor, symmetric, side=1, lower=1, trans_a=1)
    return np.ascontiguousarray(blas.dtrsm(1.0, factor, right, side=0, lower=1, trans_a=1))


def transport_map(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the symmetric T with ``T source T = target``: ``L'^-1 (L' target L)^(1/2) L^-1``."""
    factor = cholesky(source)
    values, vectors = spectrum(factor, target)
    left = blas.dtrsm(1.0, factor, vectors, side=0, lower=1, trans_a=1)
    return (left * np.sqrt(np.maximum(values, 0.0))) @ left.T


def wasserstein_barycenter(
    covariances: Sequence[np.ndarray],
    weights: np.ndarray,
    tolerance: float = 1e-10,
    iterations: int = 200,
) -> np.ndarray:
    """Return the covariance of the Wasserstein barycenter of centred Gaussians.

    The fixed point of ``S -> T S T``, with T the mean of the transport maps from S to each one.

    References
    ----------
    .. [1] Alvarez-Esteban, del Barrio, Cuesta-Albertos & Matran (2016), A fixed-point approach to
       barycenters in Wasserstein space, Journal of Mathematical Analysis and Applications 441.
       https://doi.org/10.1016/j.jmaa.2016.04.045
    """
    centre = sum(weight * each for weight, each in zip(weights, covariances, strict=True))
    for _ in range(iterations):
        mean_map = sum(
            weight * transport_map(centre, each)
            for weight, each in zip(weights, covariances, strict=True)
        )
        moved = mean_map @ centre @ mean_map
        moved = (moved + moved.T) / 2
        spread = np.sqrt(np.diag(moved))
        change = np.max(np.abs(moved - centre) / np.outer(spread, spread))
        centre = moved
        if change < tolerance:
            return centre
    # Where the covariances differ by orders of magnitude, rounding keeps the change above 1e-10.
    if change > 1e-6:
        raise np.linalg.LinAlgError(f"no barycenter after {iterations} rounds: change {change:.1e}")
    return centre


def dependent(covariance: np.ndarray) -> np.ndarray:
    """Return the indices of parameters that take part in the strongest linear dependence."""
    scale = np.sqrt(np.diag(covariance))
    _, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    weights = np.abs(vectors[:, 0])
    return np.flatnonzero(weights > 0.1 * weights.max())


def shrunk_covariance(draws: np.ndarray) -> np.ndarray:
    """Return the Ledoit-Wolf covariance, shrunk to its own diagonal.

    Draws are standardised first, so that the result does not depend on the parameters' units.
    Positive definite also when there are fewer draws than parameters.

    References
    ----------
    .. [1] Ledoit & Wolf (2004), A well-conditioned estimator for large-dimensional covariance
       matrices, Journal of Multivariate Analysis 88. https://doi.org/10.1016/S0047-259X(03)00096-4
    """
    count, size = draws.shape
    scale = draws.std(axis=0)
    standard = (draws - draws.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    correlation = standard.T @ standard / count
    distance = np.sum((correlation - np.eye(size)) ** 2)
    noise = (np.sum(np.sum(standard**2, axis=1) ** 2) / count - np.sum(correlation**2)) / count
    weight = min(1.0, noise / distance) if distance > 0 else 1.0
    correlation *= 1.0 - weight
    np.fill_diagonal(correlation, 1.0)
    spread = scale * np.sqrt(count / (count - 1))
    return correlation * np.outer(spread, spread)


def embed(affine: AffineMap, free: np.ndarray, constants: np.ndarray) -> AffineMap:
    """Return the map of all parameters: free ones mapped, constant ones left where they are."""
    if np.array_equal(free, np.arange(constants.size)):
        return affine
    scale = np.eye(constants.size)
    scale[np.ix_(free, free)] = affine.scale
    source, target = constants.copy(), constants.copy()
    source[free], target[free] = affine.source, affine.target
    return AffineMap(scale, source, target)


def invert(affine: AffineMap, units: np.ndarray) -> AffineMap:
    """Return the map that undoes `affine`, solved in units that make its entries of one size."""
    scaled = affine.scale * (units / units[:, None])
    back = np.linalg.inv(scaled) * (units[:, None] / units)
    return AffineMap(back, affine.target, affine.source)


def compose(first: AffineMap, second: AffineMap) -> AffineMap:
    """Return the map that does the first and then the second."""
    target = second.scale @ (first.target - second.source) + second.target
    return AffineMap(second.scale @ first.scale, first.source, target)

"""A naive oracle of the merge, straight from the formulas: NumPy and SciPy, no arviz_swiss.

Draws are (chain, draw, ...) arrays by variable name, elements in one order for all batches; rows
are (draws, parameters) matrices in the space of the merge.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg, optimize, special, stats


def forward(choice, values):
    """Return a variable's draws as (rows, parameters) in the space of the merge."""
    values = values.astype(float)
    rows = values.reshape(-1, *values.shape[2:])
    name = choice[0] if isinstance(choice, tuple) else choice
    if name is None:
        moved = rows
    elif name == "log":
        moved = np.log(rows)
    elif name == "logit":
        moved = special.logit(rows)
    elif name == "interval":
        _, low, high = choice
        moved = special.logit((rows - low) / (high - low))
    elif name == "simplex":
        moved = np.log(rows[..., 1:] / rows[..., :1])
    elif name == "ordered":
        moved = np.concatenate([rows[..., :1], np.log(rows[..., 1:] - rows[..., :-1])], axis=-1)
    elif name == "cholesky":
        moved = np.array([_pack(matrix) for matrix in rows])
    elif name == "cholesky_corr":
        moved = np.array([_pack_rows(matrix) for matrix in rows])
    return moved.reshape(len(rows), -1)


def backward(choice, rows, shape):
    """Return what `forward` made rows of, elements in the given shape: (rows, ...)."""
    name = choice[0] if isinstance(choice, tuple) else choice
    if name == "simplex":
        logs = rows.reshape(len(rows), *shape[:-1], shape[-1] - 1)
        ratios = np.exp(np.concatenate([np.zeros((*logs.shape[:-1], 1)), logs], axis=-1))
        return ratios / ratios.sum(axis=-1, keepdims=True)
    if name == "cholesky":
        return np.array([_unpack(row, shape[-1]) for row in rows])
    if name == "cholesky_corr":
        return np.array([_unpack_rows(row, shape[-1]) for row in rows])
    values = rows.reshape(len(rows), *shape)
    if name is None:
        return values
    if name == "log":
        return np.exp(values)
    if name == "logit":
        return 1 / (1 + np.exp(-values))
    if name == "interval":
        _, low, high = choice
        return low + (high - low) / (1 + np.exp(-values))
    steps = np.concatenate([values[..., :1], np.exp(values[..., 1:])], axis=-1)
    return np.cumsum(steps, axis=-1)


def parameters(choice, shape):
    """Return how many parameters a variable of this shape has in the space of the merge."""
    size = int(np.prod(shape))
    if choice == "simplex":
        return size // shape[-1] * (shape[-1] - 1)
    if choice == "cholesky":
        return shape[-1] * (shape[-1] + 1) // 2
    if choice == "cholesky_corr":
        return shape[-1] * (shape[-1] - 1) // 2
    return size


def _pack(matrix):
    return [
        np.log(matrix[i, j]) if i == j else matrix[i, j]
        for i in range(len(matrix))
        for j in range(i + 1)
    ]


def _unpack(row, size):
    matrix, numbers = np.zeros((size, size)), iter(row)
    for i in range(size):
        for j in range(i + 1):
            matrix[i, j] = np.exp(next(numbers)) if i == j else next(numbers)
    return matrix


def _pack_rows(matrix):
    return [matrix[i, j] / matrix[i, i] for i in range(len(matrix)) for j in range(i)]


def _unpack_rows(row, size):
    matrix, numbers = np.eye(size), iter(row)
    for i in range(size):
        for j in range(i):
            matrix[i, j] = next(numbers)
        matrix[i] /= np.sqrt(np.sum(matrix[i] ** 2))
    return matrix


class Gaussian(NamedTuple):
    """A Gaussian prior and likelihood of one batch, each a mean and a precision."""

    prior: tuple[np.ndarray, np.ndarray]
    likelihood: tuple[np.ndarray, np.ndarray]

    def moments(self, prior_power, power):
        """Return mean and covariance of the prior and the likelihood, each to a power."""
        return product([(prior_power, *self.prior), (power, *self.likelihood)])

    def log_prior(self, x):
        """Return the log density of the prior, up to a constant."""
        return _log_gaussian(x, *self.prior)

    def log_likelihood(self, x):
        """Return the log likelihood, up to a constant."""
        return _log_gaussian(x, *self.likelihood)


def product(terms):
    """Return mean and covariance of a product of Gaussians (power, mean, precision)."""
    precision = sum(power * own for power, _, own in terms)
    natural = sum(power * own @ mean for power, mean, own in terms)
    return np.linalg.solve(precision, natural), np.linalg.inv(precision)


def _log_gaussian(x, mean, precision):
    return np.array([-0.5 * (row - mean) @ precision @ (row - mean) for row in x])


class Pooled(NamedTuple):
    """Moments of the batches and of their pooling, and what each batch counts."""

    means: np.ndarray
    covariances: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    powers: np.ndarray
    prior_powers: np.ndarray
    stands_for: float


def keep_powers(kind, powers, prior_powers, kept):
    """Return the powers of the kept batches, and for how many times the rows seen they stand."""
    powers, prior_powers = np.asarray(powers, float), np.asarray(prior_powers, float)
    stands_for = 1.0
    if kind == "inflated":
        stands_for = np.sum(1 / powers) / np.sum(1 / powers[kept])
    return powers[kept] / stands_for, prior_powers[kept], stands_for


def pool(rows, kind, powers, prior_powers, kept, prior_rows=None):
    """Pool the kept batches' rows."""
    gone = [b for b in range(len(powers)) if b not in kept]
    share = 1.0
    if kind == "fractionated":
        share -= sum(prior_powers[b] / powers[b] for b in gone)
    powers, prior_powers, stands_for = keep_powers(kind, powers, prior_powers, kept)
    means = np.array([one.mean(axis=0) for one in rows])
    covariances = np.array([np.cov(one.T, ddof=1).reshape(one.shape[1], -1) for one in rows])
    precision, natural = 0.0, 0.0
    for mean, covariance, power in zip(means, covariances, powers, strict=True):
        own = inverse(covariance) / power
        precision, natural = precision + own, natural + own @ mean
    missing = share - np.sum(prior_powers / powers)
    if abs(missing) > 1e-6:
        own = missing * inverse(np.cov(prior_rows.T, ddof=1).reshape(prior_rows.shape[1], -1))
        precision, natural = precision + own, natural + own @ prior_rows.mean(axis=0)
    covariance = inverse(precision)
    return Pooled(
        means, covariances, covariance @ natural, covariance, powers, prior_powers, stands_for
    )


def inverse(matrix):
    """Return the inverse, by way of units in which the diagonal is one."""
    units = np.sqrt(np.abs(np.diag(matrix)))
    return np.linalg.inv(matrix / np.outer(units, units)) / np.outer(units, units)


def affine(pooled, batch, method):
    """Return scale and target of one batch's map."""
    size = pooled.mean.size
    root = np.sqrt(pooled.prior_powers[batch])
    if method == "pool":
        return root * np.eye(size), pooled.means[batch]
    if method == "recentre":
        return root * np.eye(size), pooled.means.mean(axis=0)
    units = np.sqrt(np.diag(pooled.covariance))
    product = pooled.covariance @ inverse(pooled.covariances[batch])
    scale = linalg.sqrtm(product * units / units[:, None]).real
    return scale * units[:, None] / units, pooled.mean


def moved(rows, pooled, batch, method):
    """Return one batch's rows after the merge, by a method that moves them."""
    scale, target = affine(pooled, batch, method)
    return target + (rows - pooled.means[batch]) @ scale.T


def moved_back(rows, pooled, batch, method):
    """Return where rows came from, if they were one batch's."""
    scale, target = affine(pooled, batch, method)
    units = np.sqrt(np.diag(pooled.covariance))
    back = np.linalg.inv(scale * units / units[:, None]) * units[:, None] / units
    return pooled.means[batch] + (rows - target) @ back.T


def made(batches, pooled, method):
    """Return new rows, of batches that are cut to the same number of rows."""
    fractionated = [
        mean + np.sqrt(power) * (rows - mean)
        for rows, mean, power in zip(batches, pooled.means, pooled.powers, strict=True)
    ]
    if method == "average":
        return np.mean(fractionated, axis=0)
    precisions = [
        inverse(covariance) / power
        for covariance, power in zip(pooled.covariances, pooled.powers, strict=True)
    ]
    total = sum(rows @ own for rows, own in zip(fractionated, precisions, strict=True))
    return total @ inverse(sum(precisions))


def heterogeneity(pooled, effective):
    """Return Q, its degrees of freedom and p-value, and each batch's own; NaN where undefined.

    The batches are compared with each other: draws of the prior do not count.

    Parameters
    ----------
    effective : array
        The effective number of draws of each batch, which makes its precision too large.
    """
    count, size = pooled.means.shape
    fair = np.where(effective > size + 2, (effective - size - 2) / (effective - 1), 0.0)
    fair = fair / pooled.stands_for
    precisions = [
        inverse(own) / power for own, power in zip(pooled.covariances, pooled.powers, strict=True)
    ]
    covariance = inverse(sum(precisions))
    mean = covariance @ sum(own @ at for own, at in zip(precisions, pooled.means, strict=True))
    terms, own = np.zeros(count), np.full(count, np.nan)
    for b in range(count):
        between = pooled.means[b] - mean
        terms[b] = between @ precisions[b] @ between
        excess = pooled.powers[b] * pooled.covariances[b] - covariance
        units = np.sqrt(np.diag(covariance))
        if np.linalg.eigvalsh(excess / np.outer(units, units)).min() > 1e-3:
            own[b] = between @ inverse(excess) @ between
    degrees = size * (count - 1)
    pvalue = stats.chi2.sf(terms @ fair, degrees) if degrees else 1.0
    return terms.sum(), degrees, pvalue, own, stats.chi2.sf(own * fair, size)


def mixture_constants(logs, owners):
    """Return the constants of the sources' densities by draws of all, to convergence.

    The maximum of a concave likelihood: of each draw, which source it comes from.
    """
    counts = np.bincount(owners, minlength=len(logs))
    shares = np.log(counts)[:, None]

    def loss(rest):
        constants = np.concatenate([[0.0], rest])
        posterior = logs + shares - constants[:, None]
        total = special.logsumexp(posterior, axis=0)
        gradient = counts - np.exp(posterior - total).sum(axis=1)
        return np.sum(total) + counts @ constants, gradient[1:]

    def curvature(rest):
        constants = np.concatenate([[0.0], rest])
        posterior = logs + shares - constants[:, None]
        weights = np.exp(posterior - special.logsumexp(posterior, axis=0))
        return (np.diag(weights.sum(axis=1)) - weights @ weights.T)[1:, 1:]

    start = np.array([logs[b, owners == b].mean() for b in range(len(logs))])
    rest = (start - start[0])[1:]
    if rest.size:
        rest = optimize.minimize(loss, rest, jac=True, method="BFGS", options={"gtol": 1e-8}).x
        for _ in range(20):
            rest = rest - np.linalg.solve(curvature(rest), loss(rest)[1])
    return np.concatenate([[0.0], rest])


def log_ratios(full, logs, owners):
    """Return log ratios of the full density and the mixture's, whose exponentials have mean one."""
    shares = np.log(np.bincount(owners, minlength=len(logs)))
    mixture = (shares - mixture_constants(logs, owners))[:, None] + logs
    ratios = full - special.logsumexp(mixture, axis=0)
    return ratios - special.logsumexp(ratios) + np.log(ratios.size)

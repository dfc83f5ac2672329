"""Batches with groups of their own, as joint densities in NumPy: normal ones, and logistic ones."""

import numpy as np
from scipy.special import expit


class NormalGroups:
    """Normal rows of groups with known variances: a quadratic log density.

    Shared parameters have a normal prior; those of a group have one around a linear function of the
    shared ones.
    """

    def __init__(self, rng, shared=3, groups=4, size=2, rows=6):
        self.size, count = shared, shared + groups * size
        self.families = [shared + np.arange(groups * size).reshape(groups, size) - shared]
        self.start = rng.standard_normal(groups * size)
        self.precision, self.shift = np.zeros((count, count)), np.zeros(count)
        for family in self.families[0]:
            columns = np.concatenate([np.arange(shared), shared + family])
            design = rng.standard_normal((rows, shared + size))
            self._add(columns, design, rng.normal(1.0, 2.0, rows))
            # local variables around a linear function of the shared ones
            prior = np.hstack([-rng.standard_normal((size, shared)), np.eye(size)])
            self._add(columns, prior, np.zeros(size))
        self.prior_precision, self.prior_shift = 0.5 * np.eye(shared), np.full(shared, 0.2)

    def _add(self, columns, design, outcomes):
        self.precision[np.ix_(columns, columns)] += design.T @ design
        self.shift[columns] += design.T @ outcomes

    def score(self, shared, local, prior_power):
        x = np.concatenate([shared, local], axis=1)
        gradient = self.shift - x @ self.precision
        by_prior = self.prior_shift - shared @ self.prior_precision
        values = np.sum(x * (self.shift + gradient), axis=1) / 2
        values += prior_power * np.sum(shared * (self.prior_shift + by_prior), axis=1) / 2
        by_shared = gradient[:, : self.size] + prior_power * by_prior
        return values, by_shared, gradient[:, self.size :]

    def marginal(self):
        """Return precision and shift of the shared parameters' likelihood."""
        split = (slice(None, self.size), slice(self.size, None))
        inner, cross = self.precision[split[1], split[1]], self.precision[split]
        weights = np.linalg.solve(inner, cross.T).T
        own = self.precision[split[0], split[0]] - weights @ cross.T
        return own, self.shift[split[0]] - weights @ self.shift[split[1]]

    def conditional(self, shared):
        """Return mean and covariance of the local variables given the shared ones."""
        inner = self.precision[self.size :, self.size :]
        pull = self.shift[self.size :] - self.precision[self.size :, : self.size] @ shared
        return np.linalg.solve(inner, pull), np.linalg.inv(inner)


def normal_posterior(densities):
    """Return mean and covariance of the shared parameters given the rows of all batches."""
    first = densities[0]
    marginals = [density.marginal() for density in densities]
    precision = first.prior_precision + sum(own for own, _ in marginals)
    shift = first.prior_shift + sum(own for _, own in marginals)
    return np.linalg.solve(precision, shift), np.linalg.inv(precision)


class LogisticGroups:
    """Logistic rows with effects of groups, normal around zero with sds of tau times `scales`.

    Shared parameters are an intercept and log tau. Effects are centred, or in units of their sds.
    """

    def __init__(self, rng, rows=12, groups=5, scales=(1.0,), centred=True, empty=0):
        self.scales, self.centred = np.broadcast_to(scales, (groups, np.shape(scales)[-1])), centred
        self.groups = np.repeat(np.arange(groups - empty), rows)
        kinds = self.scales.shape[1]
        design = rng.standard_normal((self.groups.size, kinds))
        design[:, 0] = 1
        # effects have the same influence on outcomes whatever their units
        self.design = design / self.scales[self.groups]
        self.outcomes = rng.integers(0, 2, self.groups.size)
        self.families = [np.arange(groups * kinds).reshape(groups, kinds)]
        self.start = np.zeros(groups * kinds)

    def score(self, shared, local, prior_power):
        white = local.reshape(len(local), *self.scales.shape)
        tau = np.exp(shared[:, 1])[:, None, None]
        units = self.scales if self.centred else 1.0
        sds = tau * units if self.centred else np.ones_like(tau)
        effects = white if self.centred else tau * self.scales * white
        logits = shared[:, :1] + np.einsum("ngk,gk->ng", effects[:, self.groups], self.design)
        rest = self.outcomes - expit(logits)
        values = np.sum(self.outcomes * logits - np.logaddexp(0, logits), axis=1)
        values += np.sum(-((white / sds) ** 2) / 2 - np.log(sds), axis=(1, 2))
        values -= prior_power * np.sum(shared**2, axis=1) / 2
        by_effect = np.zeros(white.shape)
        products = rest[:, :, None] * self.design
        np.add.at(by_effect, (slice(None), self.groups), products)
        by_local = -white / sds**2
        if self.centred:
            by_local = by_local + by_effect
            by_tau = np.sum((white / sds) ** 2 - 1, axis=(1, 2))
        else:
            by_local = by_local + by_effect * tau * self.scales
            by_tau = np.sum(by_effect * effects, axis=(1, 2))
        by_shared = np.column_stack([rest.sum(axis=1), by_tau]) - prior_power * shared
        return values, by_shared, by_local.reshape(local.shape)

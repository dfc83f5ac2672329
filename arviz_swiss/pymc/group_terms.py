"""A batch's log density apart by groups of local variables, from its PyMC model."""

import numpy as np

from arviz_swiss.pymc.joint_density import ModelJointDensity

# Values that are computed at a time, few enough for a cache: a point has one for every row.
CHUNK_VALUES = 2**17
# Points at which dependence is probed, and how far apart; what rounding may do to a value.
PROBES, PROBE_DISTANCE, ROUNDING = 3, 0.3, 1e-9
NO_GROUP = -1


class NoGroups(ValueError):
    """The density of a batch is no product over its groups, so that integrals are none either."""


class GroupTerms:
    """The log density of each group given the shared variables, up to nothing: log f_g.

    That of a group is its local variables' prior, Jacobians included, and the likelihood of its
    rows. Which group a term belongs to is found by moving local variables. Groups are those of all
    families of the density, one family after another.
    """

    def __init__(self, density: ModelJointDensity, label: str = ""):
        self._density = density
        self.families = density.families
        owners = _owners(density, label)
        _check_prior(density, label)
        # sorted by owner, those that belong to no group come first
        self._order = np.argsort(owners, kind="stable")
        counts = np.bincount(owners + 1, minlength=1 + sum(map(len, self.families)))
        self._apart, self._starts = counts[0], np.cumsum(counts)[:-1] - counts[0]
        self._chunk = max(1, CHUNK_VALUES // owners.size)

    def __call__(self, shared: np.ndarray, local: np.ndarray) -> np.ndarray:
        """Return the log terms of points, (points, groups)."""
        own = self._order[self._apart :]
        sums = [
            np.add.reduceat(terms.take(own, axis=1), self._starts, axis=1)
            for terms in self._chunks(shared, local)
        ]
        return np.concatenate(sums)

    def apart(self, shared: np.ndarray) -> np.ndarray:
        """Return the sum of the log terms that depend on no local variable, (points,)."""
        if self._apart == 0:
            return np.zeros(len(shared))
        local = np.broadcast_to(self._density.start, (len(shared), self._density.start.size))
        own = self._order[: self._apart]
        return np.concatenate([terms[:, own].sum(axis=1) for terms in self._chunks(shared, local)])

    def _chunks(self, shared: np.ndarray, local: np.ndarray):
        for start in range(0, len(shared), self._chunk):
            part = slice(start, start + self._chunk)
            yield self._density.terms(shared[part], local[part])


def _owners(density: ModelJointDensity, label: str) -> np.ndarray:
    """Return the number of the group that each term depends on, `NO_GROUP` if there is none.

    Groups are told apart by the bits of their numbers: the local variables of all groups with a bit
    are moved at once, then those of all without it.
    """
    groups = np.empty(density.start.size, int)
    first = 0
    for family in density.families:
        groups[family] = first + np.arange(len(family))[:, None]
        first += len(family)
    bits = range(max(1, (first - 1).bit_length()))
    moved = np.array([(groups >> bit & 1) == side for bit in bits for side in (1, 0)])
    changes = _changes(density, moved, label)
    with_bit, without_bit = changes[0::2], changes[1::2]
    if (with_bit & without_bit).any():
        raise NoGroups(
            f'batch "{label}": {int((with_bit & without_bit).any(axis=0).sum())} terms of the log '
            "density depend on the local variables of two groups or more, such as the one term of "
            "a multivariate prior over groups, or rows with two kinds of local effects. There is "
            "no integral group by group, and so no exact weight of the shared parameters. Make "
            "groups independent given the shared variables, or the smaller factor shared."
        )
    numbers = (with_bit * (1 << np.arange(len(bits)))[:, None]).sum(axis=0)
    return np.where(changes.any(axis=0), numbers, NO_GROUP)


def _changes(density: ModelJointDensity, moved: np.ndarray, label: str) -> np.ndarray:
    """Tell which terms change when local variables are moved: (moves, terms)."""
    rng = np.random.default_rng(0)
    changes: np.ndarray | bool = False
    known = np.zeros(1, bool)
    for _ in range(PROBES):
        base, ends = PROBE_DISTANCE * rng.standard_normal((2, density.start.size))
        shared = density.coordinates.start[density.shared]
        shared = shared + PROBE_DISTANCE * rng.standard_normal(shared.size)
        local = density.start + np.concatenate([base[None], np.where(moved, ends, base)])
        values = density.terms(np.broadcast_to(shared, (len(local), shared.size)), local)
        with np.errstate(invalid="ignore"):
            differences = np.abs(values[1:] - values[0])
            is_other = ~(differences <= ROUNDING * (1 + np.abs(values[0])))
        finite = np.isfinite(values[0])
        changes, known = changes | (is_other & finite), known | finite
    if not known.all():
        raise NoGroups(
            f'batch "{label}": {int((~known).sum())} terms of the log density are not finite '
            "around the model's initial point, so that the groups they belong to cannot be found. "
            "Give the model initial values inside the support."
        )
    return np.asarray(changes)


def _check_prior(density: ModelJointDensity, label: str) -> None:
    """Refuse a model whose prior of shared variables, or a potential, depends on local ones."""
    rng = np.random.default_rng(1)
    local = density.start + PROBE_DISTANCE * rng.standard_normal((1 + PROBES, density.start.size))
    shared = np.repeat(density.coordinates.start[None, density.shared], len(local), axis=0)
    values = density.log_prior(shared, local)
    if not np.allclose(values, values[0], rtol=ROUNDING, atol=ROUNDING):
        raise NoGroups(
            f'batch "{label}": the prior of the shared variables depends on local ones, so that '
            "there is no integral over these alone. Write the model the other way round, local "
            "variables given the shared ones."
        )

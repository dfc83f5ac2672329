"""From a batch's draws to its moments: load, unconstrain, check, estimate."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from arviz_swiss.base.gaussian import Moments, correction
from arviz_swiss.data.layout import Layout, as_rows, gather_all
from arviz_swiss.merging.batches import Batch, Matched, load_arrays, match_to
from arviz_swiss.merging.checks import (
    check_constants,
    check_count,
    check_draws,
    check_estimate,
    check_finite,
    check_labels,
    checked_inverse,
)
from arviz_swiss.merging.glance import glance
from arviz_swiss.merging.moments import (
    estimate_covariance,
    quick_squares_effective_size,
    sample_moments,
    squares_effective_size,
)
from arviz_swiss.merging.space import Arrays, Space


class Frame(NamedTuple):
    """What all batches share: the space of the merge, its layout, and which parameters vary."""

    first: Batch
    constrained: Layout
    space: Space
    layout: Layout
    free: np.ndarray
    constants: np.ndarray

    @property
    def labels(self) -> list[str]:
        """Labels of the parameters that vary."""
        labels = self.layout.labels()
        return [labels[index] for index in self.free]

    @property
    def owners(self) -> list[str]:
        """Variables of the parameters that vary."""
        names = self.layout.owners()
        return [names[index] for index in self.free]


def find_frame(matched: Matched, space: Space) -> Frame:
    """Return the frame that the first batch sets and all others must fit."""
    first, constrained = matched.batches[0], matched.layout
    draft = Frame(first, constrained, space, constrained, np.arange(0), np.zeros(0))
    for batch in matched.batches:
        check_draws(batch, math.prod(batch.sizes))
    arrays = unconstrained(first, draft)
    layout = space.layout(constrained, arrays)
    if space.transforms:
        check_labels(first, layout)
    rows = as_rows(list(arrays.values()), layout)
    values = np.concatenate([matrix[0] for matrix in rows]).astype(float)
    constant = np.concatenate([_never_varies(matrix) for matrix in rows])
    if not np.isfinite(values[constant]).all():
        check_finite(first, arrays, space.transforms)
    if constant.all():
        raise ValueError(f"{first}: no parameter varies, there is nothing to merge.")
    return draft._replace(layout=layout, free=np.flatnonzero(~constant), constants=values)


def _never_varies(matrix: np.ndarray) -> np.ndarray:
    constant = matrix[0] == matrix[-1]
    constant[constant] = (matrix[:, constant] == matrix[0, constant]).all(axis=0)
    return constant


def unconstrained(batch: Batch, frame: Frame) -> Arrays:
    """Return the batch's draws in the space of the merge, as (chain, draw, ...) arrays."""
    arrays = load_arrays(batch, frame.constrained)
    try:
        moved = frame.space.forward(arrays)
    except ValueError as error:
        raise ValueError(f"{batch}, {error}") from error
    return {name: moved[name] for name in frame.constrained.names}


def summarise(batch: Batch, frame: Frame, covariance: str | Callable) -> Moments:
    """Return one batch's moments over the free parameters."""
    return _moments(batch, unconstrained(batch, frame), frame, covariance)


def summarise_prior(
    priors: Sequence[Batch], frame: Frame, covariance: str | Callable
) -> tuple[Moments, np.ndarray]:
    """Return the moments of the prior's draws, all sets of them taken together, and the draws."""
    sets = [
        unconstrained(match_to(frame.first, prior, frame.constrained), frame) for prior in priors
    ]
    together = {
        name: np.concatenate([s[name].reshape(1, -1, *s[name].shape[2:]) for s in sets], axis=1)
        for name in frame.constrained.names
    }
    draws = gather_all(as_rows(list(together.values()), frame.layout), frame.layout)
    return _moments(priors[0], together, frame, covariance), draws[:, frame.free]


def _moments(batch: Batch, arrays: Arrays, frame: Frame, covariance: str | Callable) -> Moments:
    free, parameters = frame.free, frame.free.size
    values = list(arrays.values())
    matrices = as_rows(values, frame.layout)
    draws = matrices[0].shape[0]
    check_count(batch, draws, frame, covariance)
    mean, sample, constant = sample_moments(matrices, frame.layout)
    if not (np.isfinite(mean).all() and np.isfinite(np.diag(sample)).all()):
        check_finite(batch, arrays, frame.space.transforms)
    check_constants(batch, constant, mean, frame)
    if parameters < mean.size:
        sample = sample[np.ix_(free, free)]
    try:
        estimate = estimate_covariance(matrices, frame.layout, free, sample, covariance)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{batch}: the covariance function failed: {error}") from error
    if callable(covariance):
        check_estimate(batch, estimate, parameters)
    precision = checked_inverse(batch, estimate, frame)
    with np.errstate(over="ignore", invalid="ignore"):
        if covariance == "corrected":
            effective = squares_effective_size(values, free)
            precision = precision * (correction(effective, parameters) or 1.0)
        else:
            effective = quick_squares_effective_size(values, free)
    if not np.isfinite(effective):
        check_finite(batch, arrays, frame.space.transforms)
    return Moments(mean[free], estimate, precision, draws, effective, glance(values, free))

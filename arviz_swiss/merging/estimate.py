"""From a batch's draws to its moments: load, unconstrain, check, estimate, glance at the shape.

Every error names batch and variable and says what to do.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from arviz_swiss.base import linalg
from arviz_swiss.base.effective import centred_squares, quick_squares_effective_size
from arviz_swiss.base.gaussian import Glance, Moments, correction
from arviz_swiss.data import statistics
from arviz_swiss.data.layout import Layout, as_rows, centred_blocks, gather_all
from arviz_swiss.data.messages import brief
from arviz_swiss.merging.batches import NO_BATCH, Batch, load_arrays
from arviz_swiss.merging.match import Matched, check_labels, match_to
from arviz_swiss.merging.space import Arrays, Space

COVARIANCES = ("sample", "corrected", "shrunk", "diagonal")
Estimator = str | Callable[[np.ndarray], Any]
# A parameter with less variance of its own than this share is a function of the others. Draws
# stored in single precision leave a rounding error of about 1e-14.
DEPENDENT = 1e-12
MOST_NAMED = 8
# Draws of a batch to glance at, and of each chain at least, for its mean to tell something.
LOOK_AT = 200
LOOK_AT_CHAIN = 50


class Frame(NamedTuple):
    """The space of the merge and its layout; `labels` and `owners` (variables) of what varies."""

    first: Batch
    constrained: Layout
    space: Space
    layout: Layout
    free: np.ndarray
    constants: np.ndarray
    labels: np.ndarray
    owners: np.ndarray


def find_frame(matched: Matched, space: Space) -> Frame:
    """Return the frame that the first batch sets and all others must fit."""
    first, constrained = matched.batches[0], matched.layout
    for batch in matched.batches:
        _check_draws(batch, math.prod(batch.sizes))
    arrays = _unconstrained(first, constrained, space)
    layout = space.layout(constrained, arrays)
    if space.transforms:
        check_labels(first, layout)
    rows = as_rows(list(arrays.values()), layout)
    values = np.concatenate([matrix[0] for matrix in rows]).astype(float)
    constant = np.concatenate([(matrix == matrix[0]).all(axis=0) for matrix in rows])
    if not np.isfinite(values[constant]).all():
        refuse_not_finite(first, arrays, space.transforms)
    if constant.all():
        raise ValueError(f"{first}: no parameter varies, there is nothing to merge.")
    free = np.flatnonzero(~constant)
    labels, owners = (np.array(names)[free] for names in (layout.labels(), layout.owners()))
    return Frame(first, constrained, space, layout, free, values, labels, owners)


def unconstrained(batch: Batch, frame: Frame) -> Arrays:
    """Return the batch's draws in the space of the merge, as (chain, draw, ...) arrays."""
    return _unconstrained(batch, frame.constrained, frame.space)


def _unconstrained(batch: Batch, layout: Layout, space: Space) -> Arrays:
    try:
        moved = space.forward(load_arrays(batch, layout))
    except ValueError as error:
        raise ValueError(f"{batch}, {error}") from error
    return {name: moved[name] for name in layout.names}


def summarise(batch: Batch, frame: Frame, covariance: Estimator) -> Moments:
    """Return one batch's moments over the free parameters."""
    return _moments(batch, unconstrained(batch, frame), frame, covariance)


def summarise_prior(
    priors: Sequence[Batch], frame: Frame, covariance: Estimator
) -> tuple[Moments | None, np.ndarray]:
    """Return the moments of the prior's draws, all sets together, if any, and the draws."""
    if not priors:
        return None, np.zeros(0)
    sets = [
        unconstrained(match_to(frame.first, prior, frame.constrained), frame) for prior in priors
    ]
    return summarise_sets(priors[0], sets, frame, covariance)


def summarise_sets(
    prior: Batch, sets: Sequence[Arrays], frame: Frame, covariance: Estimator
) -> tuple[Moments, np.ndarray]:
    """Return the moments of several sets of unconstrained draws of the prior, and the draws."""
    together = {
        name: np.concatenate([s[name].reshape(1, -1, *s[name].shape[2:]) for s in sets], axis=1)
        for name in frame.constrained.names
    }
    draws = gather_all(as_rows(list(together.values()), frame.layout), frame.layout)
    return _moments(prior, together, frame, covariance), draws[:, frame.free]


def _moments(batch: Batch, arrays: Arrays, frame: Frame, covariance: Estimator) -> Moments:
    free, values = frame.free, list(arrays.values())
    matrices = as_rows(values, frame.layout)
    draws = matrices[0].shape[0]
    _check_count(batch, draws, frame, covariance)
    mean, sample, constant = sample_moments(matrices, frame.layout)
    if not (np.isfinite(mean).all() and np.isfinite(np.diag(sample)).all()):
        refuse_not_finite(batch, arrays, frame.space.transforms)
    check_constants(batch, constant, mean, frame)
    if free.size < mean.size:
        sample = sample[np.ix_(free, free)]
    estimate = _estimate(batch, matrices, frame, sample, covariance)
    precision = _checked_inverse(batch, estimate, frame)
    with np.errstate(over="ignore", invalid="ignore"):
        if covariance == "corrected":
            effective = squares_effective_size(values, free)
            precision = precision * (correction(effective, free.size) or 1.0)
        else:
            effective = quick_squares_effective_size(values, free)
    if not np.isfinite(effective):
        refuse_not_finite(batch, arrays, frame.space.transforms)
    return Moments(mean[free], estimate, precision, draws, effective, glance(values, free))


def sample_moments(
    matrices: Sequence[np.ndarray], layout: Layout
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean and the covariance of all draws, and which parameters never vary.

    One blocked pass, centred at the first draw: that lies within sqrt(draws) sds of the mean, so at
    most log10(draws) digits of sixteen are lost, and a constant has a variance of exactly zero.
    """
    count = matrices[0].shape[0]
    centre = np.concatenate([matrix[0].astype(float) for matrix in matrices])
    total = np.zeros((layout.size + 1, layout.size + 1), order="F")
    with np.errstate(invalid="ignore", over="ignore"):
        for _, rows in centred_blocks(matrices, layout, centre):
            total = linalg.add_outer(rows, total)
        # the last column is of ones
        offset = total[:-1, -1] / count
        covariance = linalg.mirror(total[:-1, :-1])
        constant = np.diag(covariance) == 0
        covariance -= count * np.outer(offset, offset)
        covariance /= max(count - 1, 1)
        return centre + offset, covariance, constant


def _estimate(
    batch: Batch,
    matrices: Sequence[np.ndarray],
    frame: Frame,
    sample: np.ndarray,
    covariance: Estimator,
) -> np.ndarray:
    """Return the covariance of the free parameters by the chosen estimator."""
    if covariance in ("sample", "corrected"):
        return sample
    if covariance == "diagonal":
        return np.diag(np.diag(sample))
    estimator = covariance if callable(covariance) else linalg.shrunk_covariance
    try:
        rows = gather_all(matrices, frame.layout)[:, frame.free]
        estimate = np.array(estimator(rows), dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{batch}: the covariance function failed: {error}") from error
    if estimate.ndim == 0:  # numpy.cov of one parameter is a scalar
        estimate = estimate.reshape(1, 1)
    if callable(covariance):
        _check_estimate(batch, estimate, frame.free.size)
    return estimate


def squares_effective_size(arrays: Sequence[np.ndarray], free: np.ndarray) -> float:
    """Return the effective size of centred squares: a harmonic mean, as the bias goes with 1/n."""
    squares = centred_squares(arrays, free)
    sizes = np.array([statistics.effective_size(square) for square in squares])
    total = squares[0].size
    sizes = np.where(np.isfinite(sizes), np.minimum(sizes, total), total)
    return float(1.0 / np.mean(1.0 / sizes))


def glance(arrays: Sequence[np.ndarray], free: np.ndarray) -> Glance:
    """Return skewness and R-hat from some, evenly spaced, of the (chain, draw, ...) draws."""
    chains, length = arrays[0].shape[:2]
    each = max(LOOK_AT_CHAIN, LOOK_AT // chains)
    few = [array[:, :: max(1, length // each)] for array in arrays]
    count = few[0].shape[1]
    draws = np.concatenate([array.reshape(chains, count, -1) for array in few], axis=2)
    if free.size < draws.shape[2]:
        draws = draws[..., free]
    rows = draws.reshape(chains * count, -1)
    centred = rows - rows.mean(axis=0)
    squares = centred * centred
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = squares.mean(axis=0)
        skewed = np.einsum("ij,ij->j", squares, centred) / len(rows) / variance**1.5
        if chains == 1 or count < LOOK_AT_CHAIN:
            return Glance(skewed, np.full(free.size, np.nan))
        between = centred.reshape(draws.shape).mean(axis=1).var(axis=0)
        within = (variance - between) * count / (count - 1)
        between *= chains / (chains - 1)
        return Glance(skewed, np.sqrt((count - 1) / count + between / within))


def check_covariance(covariance: Any) -> None:
    """Refuse an unknown covariance estimator."""
    known = isinstance(covariance, str) and covariance in COVARIANCES
    if not known and not callable(covariance):
        valid = ", ".join(f'"{name}"' for name in COVARIANCES)
        raise ValueError(f"unknown covariance {covariance!r}. Valid ones are {valid}, or callable.")


def _check_draws(batch: Batch, draws: int) -> None:
    if draws < 2:
        raise ValueError(f"{batch}: {draws} draw, but a covariance needs at least two. Draw more.")


def _check_count(batch: Batch, draws: int, frame: Frame, covariance: Estimator) -> None:
    """Refuse draws too few for a covariance; name the variables with the most parameters."""
    _check_draws(batch, draws)
    parameters = frame.free.size
    if draws <= parameters and covariance in ("sample", "corrected"):
        largest = _largest_variables(frame, draws // 2)
        counts = " and ".join(f"{count} of {name}" for name, count in largest.items())
        raise ValueError(
            f"{batch}: {draws} draws for {parameters} parameters, {counts}: the covariance is "
            f"singular. {_leave_out(largest, next(iter(largest)))}; otherwise draw more."
        )


def _largest_variables(frame: Frame, rest: int, most: int = 3) -> dict[str, int]:
    """Return variables and their numbers of parameters, until no more than `rest` are left."""
    counts = Counter(frame.owners.tolist())
    largest: dict[str, int] = {}
    for name, count in counts.most_common(most):
        if largest and counts.total() - sum(largest.values()) <= rest:
            break
        largest[name] = count
    return largest


def _leave_out(names: Iterable[str], example: str) -> str:
    """Return the advice to leave out what is deterministic of these variables."""
    which = ", ".join(names)
    subject = which if which == example else f"one of {which}"
    return (
        f'If {subject} is deterministic, leave it out (var_names="~{example}") or pass model= (it '
        "is then computed from the merged draws)"
    )


def refuse_not_finite(batch: Batch, arrays: Arrays, transforms: Mapping[str, Any]) -> NoReturn:
    """Name the draws that are not finite, or outside the support of a transform."""
    for name, array in arrays.items():
        bad = ~np.isfinite(array.reshape(*array.shape[:2], -1)).all(axis=-1)
        if not bad.any():
            continue
        what = "NaN or infinite"
        is_prior = batch.position == NO_BATCH
        remedy = "Draw them again" if is_prior else "Sample this batch again, or drop the chain"
        if name in transforms:
            label = getattr(transforms[name], "name", type(transforms[name]).__name__)
            what += f', or outside the support of transform "{label}"'
            remedy += f'; or choose another transform for "{name}"'
        remedy += _if_damaged(batch)
        chain, draw = np.argwhere(bad)[0]
        raise ValueError(
            f"{batch}, variable {name}: {bad.sum()} of {bad.size} draws are {what}; the first is "
            f"at chain {chain}, draw {draw}. {remedy}."
        )
    name = max(arrays, key=lambda key: np.abs(arrays[key]).max(initial=0.0))
    raise ValueError(
        f"{batch}, variable {name}: draws up to {np.abs(arrays[name]).max():.2g} in size are too "
        f"large for a covariance. Rescale the parameters{_if_damaged(batch)}."
    )


def _if_damaged(batch: Batch) -> str:
    return "; or, if they were not so when the file was written, it is damaged" * bool(batch.file)


def check_constants(batch: Batch, constant: np.ndarray, mean: np.ndarray, frame: Frame) -> None:
    """Refuse a parameter that is constant in some batches only, or at different values."""
    expected = np.ones(constant.size, dtype=bool)
    expected[frame.free] = False

    def named(places: np.ndarray) -> str:
        return brief(np.array(frame.layout.labels())[places].tolist(), MOST_NAMED)

    here, there = (batch, constant & ~expected), (frame.first, ~constant & expected)
    for (stuck, places), (other, _) in ((here, there), (there, here)):
        if places.any():
            remedy = ", or leave it out with drop=" * (stuck.position != NO_BATCH)
            raise ValueError(
                f"{stuck}, variable {named(places)}: all draws are the same, but not in {other}. "
                f"The chains are stuck: sample {stuck} again{remedy}."
            )
    # in single precision, which some of the batches may have been stored in
    with np.errstate(over="ignore"):
        differs = mean.astype(np.float32) != frame.constants.astype(np.float32)
    if (moved := np.flatnonzero(expected & differs)).size:
        at = moved[0]
        raise ValueError(
            f"{batch}, variable {named(moved)}: constant at {mean[at]:g}, but at "
            f"{frame.constants[at]:g} in {frame.first}. Leave it out with var_names."
        )


def _checked_inverse(batch: Batch, covariance: np.ndarray, frame: Frame) -> np.ndarray:
    """Return the precision; refuse parameters that are linear functions of one another."""
    unexplained: Any = 0.0
    with contextlib.suppress(np.linalg.LinAlgError):
        precision = linalg.inverse(covariance)
        unexplained = 1.0 / (np.diag(covariance) * np.diag(precision))
    if np.min(unexplained) < DEPENDENT:
        dependent = linalg.dependent(covariance)
        variables = list(dict.fromkeys(frame.owners[dependent].tolist()))
        raise ValueError(
            f"{batch}: {brief(frame.labels[dependent].tolist(), MOST_NAMED)} are linearly "
            "dependent, the covariance is singular. "
            f"{_leave_out(variables, variables[-1])}; if they are parts that sum to one, merge "
            'them with transforms={name: "simplex"}.'
        )
    return precision


def _check_estimate(batch: Batch, covariance: np.ndarray, parameters: int) -> None:
    """Refuse a callable's covariance of the wrong shape, or not symmetric and finite."""
    if covariance.shape != (parameters, parameters):
        raise ValueError(
            f"{batch}: the covariance function returned shape {covariance.shape}, expected "
            f"{(parameters, parameters)}."
        )
    if not np.isfinite(covariance).all() or not np.allclose(covariance, covariance.T, rtol=1e-8):
        raise ValueError(f"{batch}: the covariance function's matrix must be symmetric and finite.")
    try:
        linalg.cholesky(covariance)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"{batch}: the covariance function's matrix is not positive definite."
        ) from error

"""Checks of the draws; every error names batch and variable and says what to do."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from arviz_swiss.base import linalg
from arviz_swiss.data.layout import Layout
from arviz_swiss.merging.moments import COVARIANCES

# A parameter with less variance of its own than this share is a function of the others. Draws
# stored in single precision leave a rounding error of about 1e-14.
DEPENDENT = 1e-12


def check_covariance(covariance: Any) -> None:
    """Refuse an unknown covariance estimator."""
    known = isinstance(covariance, str) and covariance in COVARIANCES
    if not known and not callable(covariance):
        valid = ", ".join(f'"{name}"' for name in COVARIANCES)
        raise ValueError(f"unknown covariance {covariance!r}. Valid ones are {valid}, or callable.")


def check_labels(batch, layout: Layout) -> None:
    """Refuse elements that have the same label as text, by which a merged object knows them."""
    labels, owners = layout.labels(), layout.owners()
    if len(set(labels)) == len(labels):
        return
    seen: dict[str, int] = {}
    for position, label in enumerate(labels):
        if label in seen:
            both = (seen[label], position)
            elements = " and ".join(_element(layout, one) for one in both)
            names = " and ".join(dict.fromkeys(owners[one] for one in both))
            raise ValueError(
                f"{batch}, variable {names}: {elements} would both be called {label}, so they "
                "could not be told apart. Rename a coordinate label or a variable."
            )
        seen[label] = position


def _element(layout: Layout, position: int) -> str:
    """Describe one element, by dimension and coordinate label."""
    variable = next(v for v in layout.variables if position < v.columns.stop)
    index = np.unravel_index(position - variable.columns.start, variable.shape)
    along = [
        f"{dim}={layout.coords[dim].values[at]!s}" if dim in layout.coords else f"{dim}={at}"
        for dim, at in zip(variable.dims, index, strict=True)
    ]
    return f"{variable.name} ({'; '.join(along)})" if along else variable.name


def check_draws(batch, draws: int) -> None:
    """Refuse a single draw, or none."""
    if draws < 2:
        raise ValueError(f"{batch}: {draws} draw, but a covariance needs at least two. Draw more.")


def check_count(batch, draws: int, frame, covariance: str | Callable) -> None:
    """Refuse draws too few for a covariance; name the variables with the most parameters."""
    check_draws(batch, draws)
    parameters = frame.free.size
    if draws <= parameters and covariance in ("sample", "corrected"):
        largest = largest_variables(frame, draws // 2)
        counts = " and ".join(f"{count} of {name}" for name, count in largest.items())
        raise ValueError(
            f"{batch}: {draws} draws for {parameters} parameters, {counts}: the covariance is "
            f"singular. {leave_out(largest, next(iter(largest)))}; otherwise draw more."
        )


def largest_variables(frame, rest: int, most: int = 3) -> dict[str, int]:
    """Return variables and their numbers of parameters, until no more than `rest` are left."""
    counts = Counter(np.array(frame.layout.owners())[frame.free].tolist())
    largest = {}
    for name, count in counts.most_common(most):
        if largest and counts.total() - sum(largest.values()) <= rest:
            break
        largest[name] = count
    return largest


def leave_out(names: Iterable[str], example: str) -> str:
    """Return the advice to leave out what is deterministic of these variables."""
    which = ", ".join(names)
    subject = which if which == example else f"one of {which}"
    return (
        f'If {subject} is deterministic, leave it out (var_names="~{example}") or pass model= (it '
        "is then computed from the merged draws)"
    )


def check_finite(batch, arrays: dict, transforms: dict) -> None:
    """Name the draws that are not finite, or outside the support of a transform."""
    for name, array in arrays.items():
        bad = ~np.isfinite(array.reshape(*array.shape[:2], -1)).all(axis=-1)
        if not bad.any():
            continue
        what = "NaN or infinite"
        remedy = (
            "Draw them again"
            if batch.position < 0
            else "Sample this batch again, or drop the chain"
        )
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


def _if_damaged(batch) -> str:
    return "; or, if they were not so when the file was written, it is damaged" * bool(batch.file)


def check_constants(batch, constant, mean, frame) -> None:
    """Refuse a parameter that is constant in some batches only, or at different values."""
    expected = np.ones(constant.size, dtype=bool)
    expected[frame.free] = False
    labels = frame.layout.labels
    if (stuck := np.flatnonzero(constant & ~expected)).size:
        raise ValueError(
            f"{batch}, variable {_names(labels(), stuck)}: all draws are the same, but not in "
            f"{frame.first}. The chains are stuck: sample this batch again or leave it out."
        )
    if (free := np.flatnonzero(~constant & expected)).size:
        raise ValueError(
            f"{frame.first}, variable {_names(labels(), free)}: all draws are the same, but not in "
            f"{batch}. The chains are stuck: sample that batch again or leave it out."
        )
    # in single precision, which some of the batches may have been stored in
    with np.errstate(over="ignore"):
        differs = mean.astype(np.float32) != frame.constants.astype(np.float32)
    if (moved := np.flatnonzero(expected & differs)).size:
        at = moved[0]
        raise ValueError(
            f"{batch}, variable {_names(labels(), moved)}: constant at {mean[at]:g}, but at "
            f"{frame.constants[at]:g} in {frame.first}. Leave it out with var_names."
        )


def checked_inverse(batch, covariance: np.ndarray, frame) -> np.ndarray:
    """Return the precision; refuse parameters that are linear functions of one another."""
    try:
        precision = linalg.inverse(covariance)
    except np.linalg.LinAlgError:
        precision = None
    if precision is None or linalg.unexplained(covariance, precision).min() < DEPENDENT:
        dependent = linalg.dependent(covariance)
        owners = np.array(frame.layout.owners())[frame.free]
        variables = list(dict.fromkeys(owners[dependent].tolist()))
        raise ValueError(
            f"{batch}: {_names(frame.labels, dependent)} are linearly dependent, the covariance is "
            f"singular. {leave_out(variables, variables[-1])}; if they are parts that sum to one, "
            'merge them with transforms={name: "simplex"}.'
        )
    return precision


def check_estimate(batch, covariance: np.ndarray, parameters: int) -> None:
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


def _names(labels: Sequence[str], indices: np.ndarray) -> str:
    names = [labels[index] for index in indices[:8]]
    more = f" and {len(indices) - 8} more" if len(indices) > 8 else ""
    return ", ".join(names) + more

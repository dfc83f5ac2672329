"""Bijections between a variable's support and the real line, where the merge is done.

A transform is any object with ``forward`` (to the real line) and ``backward``. Both take arrays
with the sample dimensions first, ``(chain, draw, ...)``, and keep those. `forward` returns NaN or
an infinity for a draw outside the support. The merge is equivariant under linear maps, so
transforms that differ by one (additive or centred log-ratio, say) give the same result.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import special


class Identity:
    """Leaves a variable as it is."""

    name = "identity"

    def forward(self, values):
        """Return the values."""
        return values

    def backward(self, values):
        """Return the values."""
        return values


class Log:
    """Positive values."""

    name = "log"

    def forward(self, values):
        """Return log(x)."""
        return np.log(values)

    def backward(self, values):
        """Return exp(y)."""
        return np.exp(values)


class Interval:
    """Values between two bounds."""

    name = "interval"

    def __init__(self, low: float, high: float):
        try:
            self.low, self.high = float(low), float(high)
        except (TypeError, ValueError):
            self.low = self.high = np.nan
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise ValueError(f'("interval", low, high) needs finite low < high, got {low}, {high}')

    def forward(self, values):
        """Return log((x - low) / (high - x)), exact near both bounds."""
        return np.log(values - self.low) - np.log(self.high - values)

    def backward(self, values):
        """Return low + (high - low) / (1 + exp(-y))."""
        return self.low + (self.high - self.low) * special.expit(values)


class Logit(Interval):
    """Probabilities."""

    name = "logit"

    def __init__(self):
        super().__init__(0.0, 1.0)


class Simplex:
    """Positive values that sum to one along the last dimension."""

    name = "simplex"

    def forward(self, values):
        """Return the log ratios to the last element: one dimension element fewer."""
        _check_vector(values, self.name)
        _check_several(values, self.name)
        total = values.sum(axis=-1, keepdims=True)
        tolerance = 1e3 * np.finfo(values.dtype).eps * values.shape[-1]
        logs = np.log(np.where(np.abs(total - 1) <= tolerance, values, np.nan))
        return logs[..., :-1] - logs[..., -1:]

    def backward(self, values):
        """Return the softmax of the log ratios."""
        ratios = np.concatenate([values, np.zeros_like(values[..., :1])], axis=-1)
        return special.softmax(ratios, axis=-1)


class Ordered:
    """Increasing values along the last dimension."""

    name = "ordered"

    def forward(self, values):
        """Return the first value and the logs of the steps."""
        _check_vector(values, self.name)
        return np.concatenate([values[..., :1], np.log(np.diff(values, axis=-1))], axis=-1)

    def backward(self, values):
        """Add the steps up again."""
        steps = np.concatenate([values[..., :1], np.exp(values[..., 1:])], axis=-1)
        return np.cumsum(steps, axis=-1)


class Cholesky:
    """Lower Cholesky factors of covariance matrices, in the last two dimensions."""

    name = "cholesky"

    def forward(self, values):
        """Return the lower triangle row by row, with the logs of the diagonal."""
        size = _square(values, self.name)
        rows, columns = np.tril_indices(size)
        packed = np.where(_is_triangular(values), values[..., rows, columns], np.nan)
        diagonal = rows == columns
        packed[..., diagonal] = np.log(packed[..., diagonal])
        return packed

    def backward(self, values):
        """Return the lower triangular matrix."""
        size = _triangle_root(values.shape[-1])
        rows, columns = np.tril_indices(size)
        matrix = np.zeros((*values.shape[:-1], size, size), dtype=values.dtype)
        matrix[..., rows, columns] = np.where(rows == columns, np.exp(values), values)
        return matrix


class CholeskyCorr:
    """Lower Cholesky factors of correlation matrices: rows of length one."""

    name = "cholesky_corr"

    def forward(self, values):
        """Return, below the diagonal, each element over its row's diagonal element."""
        size = _square(values, self.name)
        _check_several(values, self.name)
        rows, columns = np.tril_indices(size, -1)
        norms = np.sum(values**2, axis=-1)
        diagonal = np.diagonal(values, axis1=-2, axis2=-1)
        tolerance = 1e3 * np.finfo(values.dtype).eps * size
        valid = np.all((np.abs(norms - 1) <= tolerance) & (diagonal > 0), axis=-1, keepdims=True)
        valid &= _is_triangular(values)
        return np.where(valid, values[..., rows, columns] / diagonal[..., rows], np.nan)

    def backward(self, values):
        """Fill the lower triangle and bring each row to length one."""
        size = _triangle_root(values.shape[-1]) + 1
        rows, columns = np.tril_indices(size, -1)
        matrix = np.broadcast_to(np.eye(size), (*values.shape[:-1], size, size)).copy()
        matrix[..., rows, columns] = values
        return matrix / np.linalg.norm(matrix, axis=-1, keepdims=True)


NAMED = {cls.name: cls for cls in (Log, Logit, Simplex, Ordered, Cholesky, CholeskyCorr)}


def resolve(choice: Any, variable: str) -> Any:
    """Return the transform that a user named for a variable, or the user's own object.

    None means untransformed.
    """
    if choice is None:
        return Identity()
    if isinstance(choice, str) and choice in NAMED:
        return NAMED[choice]()
    if isinstance(choice, list | tuple) and len(choice) == 3 and choice[0] == "interval":
        try:
            return Interval(*choice[1:])
        except ValueError as error:
            raise ValueError(f"variable {variable}: {error}") from error
    if callable(getattr(choice, "forward", None)) and callable(getattr(choice, "backward", None)):
        return choice
    valid = ", ".join(f'"{name}"' for name in NAMED)
    raise ValueError(
        f"variable {variable}: unknown transform {choice!r}. Valid ones are {valid}, "
        '("interval", low, high), None, or an object with forward and backward.'
    )


def describe(transforms: Mapping[str, Any]) -> str:
    """Return the transforms as text that `restore` reads back, own objects as their class name."""
    return json.dumps({name: _spell(transform) for name, transform in transforms.items()})


def restore(text: str, own: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the transforms that `describe` wrote; `own` are objects, which text cannot hold."""
    own = dict(own or {})
    restored = {}
    for name, spelled in json.loads(text).items():
        if name in own:
            restored[name] = resolve(own[name], name)
        elif isinstance(spelled, dict):
            raise ValueError(
                f"variable {name} was merged with your own transform {spelled['own']}, which a "
                f'merged object cannot hold. Pass transforms={{"{name}": <that object>}}.'
            )
        else:
            restored[name] = resolve(spelled, name)
    return restored


def unconstrained_dims(dims: tuple, shape: tuple, unconstrained_shape: tuple, transform) -> tuple:
    """Return dimension names for a transformed variable.

    Leading dimensions of unchanged length keep their names; where the transform changed the number
    of elements, the rest becomes one dimension named after the last one and the transform.
    """
    if shape == unconstrained_shape:
        return dims
    kept = len(unconstrained_shape) - 1
    name = getattr(transform, "name", type(transform).__name__.lower())
    return (*dims[:kept], f"{dims[-1]}_{name}" if dims else name)


def is_own(transform: Any) -> bool:
    """Tell the user's own transform from those of this module."""
    return type(transform) not in (Identity, Interval, *NAMED.values())


def _spell(transform: Any) -> Any:
    if is_own(transform):
        return {"own": type(transform).__name__}
    if type(transform) is Interval:
        return ["interval", transform.low, transform.high]
    return None if type(transform) is Identity else transform.name


def _check_vector(values: np.ndarray, name: str) -> None:
    if values.ndim < 3:
        raise ValueError(f'"{name}" takes vectors, in the last dimension, got single numbers')


def _check_several(values: np.ndarray, name: str) -> None:
    """Refuse a support of one point, which has no coordinate on the real line."""
    if values.shape[-1] < 2:
        raise ValueError(
            f'a "{name}" of size {values.shape[-1]} can only be 1, there is nothing to transform: '
            "merge it as it is, with the transform None, or leave it out with var_names"
        )


def _is_triangular(values: np.ndarray) -> np.ndarray:
    """Tell for each draw, with one last dimension of length one, whether it is lower triangular."""
    rows, columns = np.triu_indices(values.shape[-1], 1)
    return np.all(values[..., rows, columns] == 0, axis=-1, keepdims=True)


def _square(values: np.ndarray, name: str) -> int:
    if values.ndim < 4 or values.shape[-1] != values.shape[-2]:
        raise ValueError(
            f'"{name}" takes square matrices in the last two dimensions, got shape '
            f"{values.shape[2:]} (draws aside)"
        )
    return values.shape[-1]


def _triangle_root(length: int) -> int:
    """Return the k of a triangle with k (k + 1) / 2 elements."""
    return int((np.sqrt(8 * length + 1) - 1) / 2 + 0.5)

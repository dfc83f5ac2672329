"""Bijections between a variable's support and the real line, where the merge is done.

A transform is any object with ``forward`` (to the real line) and ``backward``. Both take arrays
with the sample dimensions first, ``(chain, draw, ...)``, and keep those. `forward` returns NaN or
an infinity for a draw outside the support. The merge is equivariant under linear maps, so
transforms that differ by one (additive or centred log-ratio, say) give the same result.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import special


class Transform(NamedTuple):
    """A transform of this module; `choice` is what a user writes for it, and text records."""

    name: str
    choice: Any
    forward: Callable[[np.ndarray], np.ndarray]
    backward: Callable[[np.ndarray], np.ndarray]


def _same(values: np.ndarray) -> np.ndarray:
    return values


def _from_softplus(values: np.ndarray) -> np.ndarray:
    """Return log(exp(value) - 1), without overflow, and with digits left near zero."""
    return values + np.log(-np.expm1(-values))


def _to_softplus(values: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, values)


def _from_interval(values: np.ndarray, low: float, high: float) -> np.ndarray:
    # exact near both bounds
    return np.log(values - low) - np.log(high - values)


def _to_interval(values: np.ndarray, low: float, high: float) -> np.ndarray:
    return low + (high - low) * special.expit(values)


def _interval(low: Any, high: Any) -> Transform:
    try:
        least, most = float(low), float(high)
    except (TypeError, ValueError):
        least = most = np.nan
    if not -np.inf < least < most < np.inf:
        raise ValueError(f'("interval", low, high) needs finite low < high, got {low}, {high}')
    both_ways = (partial(f, low=least, high=most) for f in (_from_interval, _to_interval))
    return Transform("interval", ("interval", least, most), *both_ways)


def _from_simplex(values: np.ndarray) -> np.ndarray:
    """Return the log ratios to the last element: one element fewer."""
    _check_vector(values, "simplex")
    _check_several(values, "simplex")
    total = values.sum(axis=-1, keepdims=True)
    tolerance = 1e3 * np.finfo(values.dtype).eps * values.shape[-1]
    logs = np.log(np.where(np.abs(total - 1) <= tolerance, values, np.nan))
    return logs[..., :-1] - logs[..., -1:]


def _to_simplex(values: np.ndarray) -> np.ndarray:
    ratios = np.concatenate([values, np.zeros_like(values[..., :1])], axis=-1)
    return special.softmax(ratios, axis=-1)


def _from_ordered(values: np.ndarray) -> np.ndarray:
    """Return the first value and the logs of the steps."""
    _check_vector(values, "ordered")
    return np.concatenate([values[..., :1], np.log(np.diff(values, axis=-1))], axis=-1)


def _to_ordered(values: np.ndarray) -> np.ndarray:
    return np.cumsum(np.concatenate([values[..., :1], np.exp(values[..., 1:])], axis=-1), axis=-1)


def _from_cholesky(values: np.ndarray) -> np.ndarray:
    """Return the lower triangle row by row, with the logs of the diagonal."""
    rows, columns = np.tril_indices(_square(values, "cholesky"))
    packed = np.where(_is_triangular(values), values[..., rows, columns], np.nan)
    diagonal = rows == columns
    packed[..., diagonal] = np.log(packed[..., diagonal])
    return packed


def _to_cholesky(values: np.ndarray) -> np.ndarray:
    size = _triangle_root(values.shape[-1])
    rows, columns = np.tril_indices(size)
    matrix = np.zeros((*values.shape[:-1], size, size), dtype=values.dtype)
    matrix[..., rows, columns] = np.where(rows == columns, np.exp(values), values)
    return matrix


def _from_cholesky_corr(values: np.ndarray) -> np.ndarray:
    """Return, below the diagonal, each element over its row's diagonal element."""
    size = _square(values, "cholesky_corr")
    _check_several(values, "cholesky_corr")
    rows, columns = np.tril_indices(size, -1)
    norms = np.sum(values**2, axis=-1)
    diagonal = np.diagonal(values, axis1=-2, axis2=-1)
    tolerance = 1e3 * np.finfo(values.dtype).eps * size
    valid = np.all((np.abs(norms - 1) <= tolerance) & (diagonal > 0), axis=-1, keepdims=True)
    valid &= _is_triangular(values)
    return np.where(valid, values[..., rows, columns] / diagonal[..., rows], np.nan)


def _to_cholesky_corr(values: np.ndarray) -> np.ndarray:
    size = _triangle_root(values.shape[-1]) + 1
    rows, columns = np.tril_indices(size, -1)
    matrix = np.broadcast_to(np.eye(size), (*values.shape[:-1], size, size)).copy()
    matrix[..., rows, columns] = values
    return matrix / np.linalg.norm(matrix, axis=-1, keepdims=True)


IDENTITY = Transform("identity", None, _same, _same)
NAMED = {
    transform.name: transform
    for transform in (
        Transform("log", "log", np.log, np.exp),
        Transform("softplus", "softplus", _from_softplus, _to_softplus),
        _interval(0, 1)._replace(name="logit", choice="logit"),
        Transform("simplex", "simplex", _from_simplex, _to_simplex),
        Transform("ordered", "ordered", _from_ordered, _to_ordered),
        Transform("cholesky", "cholesky", _from_cholesky, _to_cholesky),
        Transform("cholesky_corr", "cholesky_corr", _from_cholesky_corr, _to_cholesky_corr),
    )
}


def resolve(choice: Any, variable: str) -> Any:
    """Return the transform that a user named for a variable, None for none, or an own object."""
    if choice is None:
        return IDENTITY
    if isinstance(choice, str) and choice in NAMED:
        return NAMED[choice]
    if isinstance(choice, list | tuple) and len(choice) == 3 and choice[0] == "interval":
        try:
            return _interval(*choice[1:])
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
    return json.dumps(
        {
            name: {"own": type(transform).__name__} if is_own(transform) else transform.choice
            for name, transform in transforms.items()
        }
    )


def restore(text: str, own: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the transforms that `describe` wrote; `own` are objects, which text cannot hold."""
    choices = json.loads(text)
    choices |= {name: choice for name, choice in (own or {}).items() if name in choices}
    for name, choice in choices.items():
        if isinstance(choice, dict):
            raise ValueError(
                f"variable {name} was merged with your own transform {choice['own']}, which a "
                f'merged object cannot hold. Pass transforms={{"{name}": <that object>}}.'
            )
    return {name: resolve(choice, name) for name, choice in choices.items()}


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
    return not isinstance(transform, Transform)


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

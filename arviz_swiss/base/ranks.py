"""Normal scores of draws and of their distances from the median, for many parameters at once."""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri


class Scores(NamedTuple):
    """Normal scores of the draws, `folded` of their distances from the median; draws in order.

    Scores are (parameter, chain, draw) arrays as the draws are, `ordered` is (parameter, draw).
    """

    plain: np.ndarray
    folded: np.ndarray
    ordered: np.ndarray


def by_parameter(series: np.ndarray) -> np.ndarray:
    """Return (chain, draw, parameter) draws as (parameter, chain, draw), one after another."""
    return np.ascontiguousarray(np.moveaxis(series, -1, 0), dtype=float)


def normal_scores(columns: np.ndarray) -> Scores:
    """Return the normal scores of (parameter, chain, draw) draws, by their ranks in all chains.

    In order, the distances from the median fall and then rise: to sort them is to merge two runs.
    """
    rows = columns.reshape(len(columns), -1)
    order = np.argsort(rows, axis=1)
    ordered = np.take_along_axis(rows, order, axis=1)
    distances = np.abs(ordered - _middle(ordered))
    merged = np.argsort(distances, axis=1, kind="stable")
    plain = _scores(ordered, order)
    folded = _scores(
        np.take_along_axis(distances, merged, axis=1), np.take_along_axis(order, merged, axis=1)
    )
    return Scores(plain.reshape(columns.shape), folded.reshape(columns.shape), ordered)


def _middle(ordered: np.ndarray) -> np.ndarray:
    size = ordered.shape[1]
    low, high = ordered[:, (size - 1) // 2], ordered[:, size // 2]
    return ((low + high) / 2)[:, None]


def _scores(ordered: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the normal score of each draw at its own place; equal draws share their mean rank."""
    size = ordered.shape[1]
    # of rank 1, 1.5, 2, ...
    table = ndtri(((np.arange(2, 2 * size + 1) / 2) - 0.375) / (size + 0.25))
    scores = np.empty_like(ordered)
    np.put_along_axis(scores, order, table[None, ::2], axis=1)
    same = ordered[:, 1:] == ordered[:, :-1]
    if (tied := same.any(axis=1)).any():
        shared = table[_first_and_last(same[tied])]
        scores[tied] = _placed(shared, order[tied])
    return scores


def _placed(values: np.ndarray, order: np.ndarray) -> np.ndarray:
    out = np.empty_like(values)
    np.put_along_axis(out, order, values, axis=1)
    return out


def _first_and_last(same: np.ndarray) -> np.ndarray:
    """Return the sum of the first and the last position of those that a draw is equal to."""
    places = np.arange(same.shape[1] + 1)
    edge = np.ones((len(same), 1), dtype=bool)
    first = np.maximum.accumulate(np.where(np.hstack([edge, ~same]), places, 0), axis=1)
    ends = np.where(np.hstack([~same, edge]), places, places[-1])
    last = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
    return first + last

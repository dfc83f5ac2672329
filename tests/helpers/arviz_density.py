"""Densities as ArviZ estimates them, one parameter at a time."""

from typing import Any

import arviz
import numpy as np

from arviz_swiss.data.containers import native_container


def kde(draws: np.ndarray, **options: Any) -> tuple[np.ndarray, np.ndarray, float]:
    """Return grid, density and bandwidth of ArviZ's kernel density estimate of one parameter."""
    if native_container() == "InferenceData":
        return arviz.kde(draws, bw_return=True, **options)
    from arviz_stats.base import array_stats

    grid, density, bandwidth = array_stats.kde(draws, **options)
    return grid, density, float(bandwidth)


def assert_is_density(line: tuple[np.ndarray, np.ndarray], draws: np.ndarray) -> None:
    """Check that a line is the density of draws, up to ArviZ's cutting its kernel off at pi sds."""
    x, y = line
    grid, density, _ = kde(np.ravel(draws))
    within = (x >= grid[0]) & (x <= grid[-1])
    assert within.mean() > 0.9
    expected = np.interp(x[within], grid, density)
    np.testing.assert_allclose(y[within], expected, atol=0.02 * density.max())

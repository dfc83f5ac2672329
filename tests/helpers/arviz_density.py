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


def assert_is_density(line: Any, draws: np.ndarray) -> None:
    """Check that a line is the density of draws, up to ArviZ's cutting its kernel off at pi sds."""
    grid, density, _ = kde(np.ravel(draws))
    np.testing.assert_allclose(line.get_xdata(), grid, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(line.get_ydata(), density, atol=0.02 * density.max())

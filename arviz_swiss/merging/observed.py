"""What a merge records of the batches' observed values.

Their number, mean and sd: enough to tell one batch's data from another's, and from all the data,
whatever the order of the rows.
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr

STATISTICS = ("count", "mean", "sd")


def summarise_observed(datasets: Sequence[xr.Dataset | None]) -> xr.DataArray | None:
    """Return count, mean and sd of the observed variables that all batches have.

    Parameters
    ----------
    datasets : sequence of Dataset or None
        The group `observed_data` of each batch.

    Returns
    -------
    DataArray or None
        Of dimensions (batch, observed_variable, statistic); None where nothing is in all batches.
    """
    if not datasets or any(dataset is None for dataset in datasets):
        return None
    names = [
        name
        for name in datasets[0].data_vars
        if all(name in one and one[name].dtype.kind in "biuf" for one in datasets)
    ]
    if not names:
        return None
    return xr.DataArray(
        [[summary(dataset[name].values) for name in names] for dataset in datasets],
        dims=("batch", "observed_variable", "statistic"),
        coords={"observed_variable": np.array(names), "statistic": np.array(STATISTICS)},
    )


def summary(values: np.ndarray) -> list[float]:
    """Return count, mean and sd of the values that are not missing."""
    values = np.ma.masked_invalid(np.ma.asarray(values, dtype=float)).compressed()
    if not values.size:
        return [0.0, 0.0, 0.0]
    return [float(values.size), float(values.mean()), float(values.std())]

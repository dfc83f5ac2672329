"""resample(): unweighted draws by the weights of a certificate."""

import warnings
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss import containers, kernels
from arviz_swiss.seeds import generator
from arviz_swiss.warnings import MergeWarning

CHAINS = 4


def resample(
    merged: Any,
    *,
    random_seed: int | np.random.Generator | None = None,
    group: str = "posterior",
) -> Any:
    """Return unweighted draws by the weights of a certificate: an ordinary posterior.

    Parameters
    ----------
    merged : InferenceData or DataTree
        As `certify` returned it.
    random_seed : int or Generator, optional
    group : str, default "posterior"

    Returns
    -------
    InferenceData or DataTree
        The draws that were weighed, each as often as its weight says, in random order and in 4
        chains; with the groups that hold data. It is not a merged object any more.

    Raises
    ------
    ValueError
        When `merged` has no certificate.

    Warns
    -----
    MergeWarning
        When the merge was not certified: its weights cannot mend it.

    See Also
    --------
    certify

    Notes
    -----
    There are no more draws than `certify` weighed: ask it for more of them if you need more.

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> class Known:
    ...     def __init__(self, centre):
    ...         self.centre = centre
    ...     def log_prior(self, x):
    ...         return np.zeros(len(x))
    ...     def log_likelihood(self, x):
    ...         return -0.5 * (x[:, 0] - self.centre) ** 2
    ...     def grad_log_prior(self, x):
    ...         return np.zeros_like(x)
    ...     def grad_log_likelihood(self, x):
    ...         return self.centre - x
    >>> rng = np.random.default_rng(1)
    >>> densities = [Known(centre) for centre in (-1.0, 1.0)]
    >>> batches = [{"mu": rng.normal(d.centre, 2**-0.5, size=(4, 500))} for d in densities]
    >>> merged = az_swiss.merge(batches)
    >>> certified = az_swiss.certify(merged, densities, random_seed=1, progressbar=False)
    >>> dict(az_swiss.resample(certified, random_seed=1)["posterior"].sizes)
    {'chain': 4, 'draw': 250}
    """
    with containers.reading("merged"):
        contents = containers.read(merged, group)
    groups = contents.groups
    certificate = _certificate_of(groups)
    if certificate.attrs["verdict"].startswith("not"):
        warnings.warn(
            f"{certificate.attrs['verdict']} Draws by its weights are not to be trusted either.",
            MergeWarning,
            stacklevel=2,
        )
    weights = np.exp(certificate["log_weight"].transpose(*containers.SAMPLE_DIMS).values)
    count = weights.size - weights.size % CHAINS
    rng = generator(random_seed)
    chosen = kernels.resampled(weights.ravel() / weights.sum(), count, rng)
    rows, columns = np.divmod(chosen, weights.shape[1])
    _check_there(groups[group], certificate)
    chains = certificate.get_index("chain")[rows]
    draws = certificate.get_index("draw")[columns]
    kept = {name: one for name, one in groups.items() if "draw" not in one.dims}
    kept = {name: one for name, one in kept.items() if not name.startswith("swiss_")}
    drawn = {
        name: _picked(groups[name], chains, draws)
        for name in (group, f"unconstrained_{group}")
        if name in groups
    }
    drawn[group].attrs["swiss_resampled"] = certificate.attrs["verdict"]
    return containers.build({**drawn, **kept}, contents.kind or containers.native_kind())


def _certificate_of(groups: containers.Groups) -> xr.Dataset:
    if "swiss_certificate" not in groups:
        raise ValueError(
            "there is no certificate to take weights from: call certify first, and after every "
            f"refine. The groups are: {', '.join(groups) or 'none'}."
        )
    return groups["swiss_certificate"]


def _check_there(posterior: xr.Dataset, certificate: xr.Dataset) -> None:
    for dim in containers.SAMPLE_DIMS:
        if not certificate.get_index(dim).isin(posterior.get_index(dim)).all():
            raise ValueError(
                f"draws that the certificate weighs are not there any more: their {dim} was left "
                "out. Certify again after selecting draws, or resample before it."
            )


def _picked(dataset: xr.Dataset, chains: np.ndarray, draws: np.ndarray) -> xr.Dataset:
    """Return single draws of a dataset, in random order, as chains of their own."""
    along = "swiss_resampled"
    one = dataset.sel(
        chain=xr.DataArray(np.asarray(chains), dims=along),
        draw=xr.DataArray(np.asarray(draws), dims=along),
    ).drop_vars(["chain", "draw", "batch"])
    length = len(draws) // CHAINS
    arrays = {}
    for name, array in one.data_vars.items():
        if along not in array.dims:
            arrays[name] = array
            continue
        ordered = array.transpose(along, ...)
        values = ordered.values.reshape(CHAINS, length, *ordered.shape[1:])
        arrays[name] = ((*containers.SAMPLE_DIMS, *ordered.dims[1:]), values, array.attrs)
    coords = {name: coord for name, coord in one.coords.items() if along not in coord.dims}
    coords |= {"chain": np.arange(CHAINS), "draw": np.arange(length)}
    return xr.Dataset(arrays, coords=coords, attrs=dataset.attrs)

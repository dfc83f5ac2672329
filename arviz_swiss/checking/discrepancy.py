"""discrepancy(): how far a merged posterior is from a reference, and how far chance alone goes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from arviz_swiss.base import distances
from arviz_swiss.base.convergence import mean_sizes
from arviz_swiss.data import containers
from arviz_swiss.data.containers import SAMPLE_DIMS
from arviz_swiss.data.layout import flatten
from arviz_swiss.data.messages import brief
from arviz_swiss.data.selection import select_names, selected

MEASURES = {
    "mahalanobis": "distance between the means, in the reference's covariance",
    "skew": "mean absolute difference of the third standardised moments",
    "iad": "mean integrated absolute distance of the marginal densities, 0 to 1",
    "covariance_error": "root mean square of the whitened covariance minus the identity",
    "wasserstein": "mean 1-Wasserstein distance of the marginals, in reference sds",
}
PARTS = {
    "mahalanobis": "difference of means, in reference sds",
    "skew": "absolute difference of the third standardised moment",
    "iad": "integrated absolute distance of the marginal densities",
    "covariance_error": "ratio of variances minus one, absolute",
    "wasserstein": "1-Wasserstein distance, in reference sds",
}
FEWEST_DRAWS = 20
# What an effective size is estimated from; its rate is carried over to all draws.
ESS_CHAINS, ESS_DRAWS = 8, 1000
PROBES = (0.25, 0.5, 0.75)
# A constant that was computed may be off by so many rounding errors.
ROUNDINGS = 32


class Sample(NamedTuple):
    """One of the two posteriors; `resolution` is the relative rounding error by parameter."""

    name: str
    draws: xr.DataArray
    resolution: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        """All draws as (row, parameter)."""
        return self.draws.values.reshape(-1, self.draws.shape[-1])


def discrepancy(
    merged: Any,
    reference: Any,
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    group: str = "posterior",
    coords: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    r"""Measure how far a posterior is from a reference, such as a run on all the data.

    Parameters
    ----------
    merged, reference : InferenceData, DataTree, Dataset, or anything `merge` takes as one batch
        Parameters are matched by label; `reference` may hold more of them.
    var_names : str or sequence of str, optional
        Variables to compare, as in ArviZ; all of `merged` when absent.
    filter_vars : {None, "like", "regex"}, optional
        How to read `var_names`, as in ArviZ.
    group : str, default "posterior"
    coords : mapping of dimension to labels, optional
        Compare only these labels.

    Returns
    -------
    Dataset
        `mahalanobis`, `skew` and `iad` as in the paper [1]_, `covariance_error` and `wasserstein`.
        Each with ``<measure>_floor``: its mean for two independent samples, of the same effective
        sizes as these, from one distribution. A measure near its floor is indistinguishable from
        zero. And for each parameter ``<measure>_by_parameter``, with its own floor.

    Raises
    ------
    ValueError
        When the two do not hold the same parameters, one is constant, or draws are too few.

    See Also
    --------
    compare_methods : this, for several methods of merging

    Notes
    -----
    With means :math:`\mu`, covariances :math:`V` and marginal densities :math:`\pi_j` of the
    merged (a) and the reference (f) draws,

    .. math::
        D_{Mah} &= \sqrt{(\mu_a - \mu_f)' V_f^{-1} (\mu_a - \mu_f)}, \\
        D_{IAD} &= \frac{1}{2 d} \sum_j \int |\pi_j^a - \pi_j^f|.

    Densities are kernel estimates, both with the bandwidth that ArviZ chooses for the reference.
    Directions in which the reference does not vary, as in a simplex, count in no
    distance.

    References
    ----------
    .. [1] Vyner, Nemeth & Sherlock (2023), SwISS: A scalable Markov chain Monte Carlo
       divide-and-conquer strategy, Stat 12. https://doi.org/10.1002/sta4.523

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> rng = np.random.default_rng(0)
    >>> merged, full = ({"mu": rng.normal(size=(4, 1000))} for _ in range(2))
    >>> result = az_swiss.discrepancy(merged, full)
    >>> bool(result["iad"] < 2 * result["iad_floor"])
    True
    >>> shifted = {"mu": merged["mu"] + 1}
    >>> bool(az_swiss.discrepancy(shifted, full)["iad"] > 0.3)
    True
    """
    first, second = comparable(merged, reference, var_names, filter_vars, group, coords)
    values, parts, floors, part_floors = _measure(first, second)
    along = {name: second.draws[name] for name in ("parameter", "variable")}
    data: dict[str, tuple] = {name: ((), values[name], MEASURES[name]) for name in MEASURES}
    for name in MEASURES:
        part = f"{name}_by_parameter"
        data[f"{name}_floor"] = ((), floors[name], f"noise floor of {name}")
        data[part] = ("parameter", parts[name], PARTS[name])
        data[f"{part}_floor"] = ("parameter", part_floors[name], f"noise floor of {part}")
    described = {
        name: (dims, array, {"description": text}) for name, (dims, array, text) in data.items()
    }
    return xr.Dataset(described, coords=along)


def comparable(
    merged: Any, reference: Any, var_names=None, filter_vars=None, group="posterior", coords=None
) -> tuple[Sample, Sample]:
    """Return the draws of both of what varies; refuse what no distance can be measured of."""
    first, second = match_parameters(merged, reference, var_names, filter_vars, group, coords)
    return _varying(_checked(first), _checked(second))


def distances_from(
    reference: Any, others: Mapping[str, Any], measure: str, **elements: Any
) -> dict[str, float]:
    """Return one measure of how far others are from a reference, without noise floors.

    What a measure needs of the reference is computed once for all that vary in the same parameters.
    """
    prepare, compare = _ALONE[measure]
    found, prepared = {}, {}
    for name, posterior in others.items():
        first, second = comparable(posterior, reference, **elements)
        parameters = tuple(second.draws["parameter"].values)
        if parameters not in prepared:
            prepared[parameters] = prepare(second.rows)
        found[name] = float(compare(first.rows, prepared[parameters]))
    return found


# What a measure needs of the reference, and how a sample is compared with that.
_ALONE: dict[str, tuple[Callable[[np.ndarray], Any], Callable[[np.ndarray, Any], Any]]] = {
    "mahalanobis": (distances.whiten, distances.mahalanobis),
    "skew": (distances.skewness, lambda x, known: np.abs(distances.skewness(x) - known).mean()),
    "iad": (distances.densities, lambda x, known: distances.integrated_absolute(x, known).mean()),
    "covariance_error": (distances.whiten, distances.covariance_error),
    "wasserstein": (lambda y: y, lambda x, known: distances.wasserstein(x, known).mean()),
}


def _measure(first: Sample, second: Sample) -> tuple[dict[str, Any], ...]:
    sample, reference = first.rows, second.rows
    whitening = distances.whiten(reference)
    rank = whitening.matrix.shape[1]
    estimates = distances.densities(reference)
    noise = _sampling_variances(first, second, np.array([each.bandwidth for each in estimates]))
    ratio = sample.std(axis=0, ddof=1) / whitening.spread
    parts = {
        "mahalanobis": np.abs(sample.mean(axis=0) - whitening.mean) / whitening.spread,
        "skew": np.abs(distances.skewness(sample) - distances.skewness(reference)),
        "iad": distances.integrated_absolute(sample, estimates),
        "covariance_error": np.abs(ratio**2 - 1.0),
        "wasserstein": distances.wasserstein(sample, reference),
    }
    values = {name: part.mean() for name, part in parts.items()} | {
        "mahalanobis": distances.mahalanobis(sample, whitening),
        "covariance_error": distances.covariance_error(sample, whitening),
    }
    squares = ((reference - whitening.mean) / whitening.spread) ** 2
    part_floors = {
        "mahalanobis": distances.HALF_NORMAL * np.sqrt(noise["mean"]),
        "skew": distances.skewness_floor(noise["skew"], reference),
        "iad": distances.integrated_absolute_floor(noise["density"], estimates),
        "covariance_error": distances.HALF_NORMAL
        * np.sqrt(noise["square"] * np.maximum(np.mean(squares * squares, axis=0) - 1.0, 0.0)),
        "wasserstein": distances.wasserstein_floor(noise["share"], reference),
    }
    size = len(reference)
    floors = {name: part.mean() for name, part in part_floors.items()} | {
        "mahalanobis": distances.mahalanobis_floor(noise["mean"].mean(), rank, size),
        "covariance_error": distances.covariance_floor(
            noise["square"].mean(), (reference - whitening.mean) @ whitening.matrix
        ),
    }
    return values, parts, floors, part_floors


def _sampling_variances(
    first: Sample, second: Sample, bandwidths: np.ndarray
) -> dict[str, np.ndarray]:
    """Return, by parameter, one over the effective sizes of both samples, for each statistic."""
    places = np.quantile(second.rows, PROBES, axis=0)
    statistics: dict[str, Callable[[np.ndarray], list[np.ndarray]]] = {
        "mean": lambda x: [x],
        "square": lambda x: [(x - x.mean(axis=(0, 1))) ** 2],
        "skew": lambda x: [
            distances.skewness_influence(x.reshape(-1, x.shape[-1])).reshape(x.shape)
        ],
        "density": lambda x: [np.exp(-0.5 * ((x - place) / bandwidths) ** 2) for place in places],
        "share": lambda x: [(x <= place).astype(float) for place in places],
    }
    return {
        name: _inverse_size(first, series) + _inverse_size(second, series)
        for name, series in statistics.items()
    }


def _inverse_size(sample: Sample, series: Callable) -> np.ndarray:
    """Return one over the effective size of a statistic's series, by parameter."""
    draws = sample.draws.values
    chains, length, _ = draws.shape
    some = np.linspace(0, chains - 1, min(chains, ESS_CHAINS)).astype(int)
    rates = [1.0 / _rates(values) for values in series(draws[some, :ESS_DRAWS])]
    return np.mean(rates, axis=0) / (chains * length)


def _rates(series: np.ndarray) -> np.ndarray:
    """Return the effective size of a draw, within chains, of (chain, draw, parameter) draws."""
    chains, length, parameters = series.shape
    if length < 4:
        return np.ones(parameters)
    # That chains differ is what is measured here, not sampling noise.
    effective = mean_sizes(series - series.mean(axis=1, keepdims=True))
    return np.where(np.isfinite(effective), effective / (chains * length), 1.0)


def match_parameters(
    merged: Any, reference: Any, var_names=None, filter_vars=None, group="posterior", coords=None
) -> tuple[Sample, Sample]:
    """Return the draws of both, with the parameters of the first in its order."""
    datasets = {}
    for name, data in (("merged", merged), ("reference", reference)):
        with containers.reading(name):
            groups = containers.read(data, group).groups
        containers.check_group(groups, group, name)
        datasets[name] = groups[group]
    first, second = datasets["merged"], datasets["reference"]
    names = select_names(first, var_names, filter_vars, where="merged: ")
    _check_variables(first, second, names)
    ours, theirs = (
        _sample(which, dataset, names, coords, like=first) for which, dataset in datasets.items()
    )
    labels = ours.draws["parameter"].values
    places = {label: place for place, label in enumerate(theirs.draws["parameter"].values)}
    if missing := [label for label in labels if label not in places]:
        raise ValueError(
            f"the reference has no {brief(missing)}, which merged has. Compare what both have with "
            "var_names or coords, or give both the same coordinate labels."
        )
    order = [places[label] for label in labels]
    return ours, Sample("reference", theirs.draws[..., order], theirs.resolution[order])


def _sample(
    which: str, dataset: xr.Dataset, names: Sequence[str], coords: Any, like: xr.Dataset
) -> Sample:
    """Return one of the two posteriors, its variables' dimensions in the order of another's."""
    try:
        elements = selected(dataset, names, None, coords)
    except ValueError as error:
        raise ValueError(f"{which}: {error}") from error
    ordered = elements.map(lambda array: array.transpose(..., *like[array.name].dims))
    flat = flatten(ordered[list(names)])
    dtypes = [dataset[name].dtype for name in flat["variable"].values]
    resolution = [np.finfo(dtype).eps if dtype.kind == "f" else 0.0 for dtype in dtypes]
    return Sample(which, flat, np.array(resolution))


def _check_variables(first: xr.Dataset, second: xr.Dataset, names: Sequence[str]) -> None:
    if missing := [name for name in names if name not in second]:
        raise ValueError(
            f"the reference has no variable {brief(missing)}, which merged has; it holds "
            f"{', '.join(second)}. Compare what both have with var_names."
        )
    for name in names:
        for which, array in (("merged", first[name]), ("reference", second[name])):
            if not set(SAMPLE_DIMS) <= set(array.dims) or array.dtype.kind not in "fiu":
                raise ValueError(
                    f"{which}, variable {name}: dimensions {array.dims}, dtype {array.dtype}, but "
                    f'expected numbers by (chain, draw, ...). Leave out with var_names="~{name}".'
                )
        if set(first[name].dims) != set(second[name].dims):
            raise ValueError(
                f"variable {name}: dimensions {second[name].dims} in the reference, but "
                f"{first[name].dims} in merged. Rename them to agree."
            )


def _checked(sample: Sample) -> Sample:
    """Return the sample; refuse draws that are not finite, or too few."""
    draws = sample.rows
    if len(draws) < FEWEST_DRAWS:
        raise ValueError(
            f"{sample.name}: {len(draws)} draws, but a density estimate needs at least "
            f"{FEWEST_DRAWS}. Draw more."
        )
    if len(draws) <= draws.shape[1]:
        raise ValueError(
            f"{sample.name}: {len(draws)} draws for {draws.shape[1]} parameters, the covariance is "
            "singular. Draw more, or compare fewer parameters with var_names."
        )
    check_finite(sample)
    return sample


def check_finite(sample: Sample) -> None:
    """Refuse draws that are not finite."""
    if (bad := ~np.isfinite(sample.rows).all(axis=0)).any():
        raise ValueError(
            f"{sample.name}, variable {brief(sample.draws['parameter'].values[bad])}: draws that "
            "are NaN or infinite. Leave it out with var_names."
        )


def _varying(first: Sample, second: Sample) -> tuple[Sample, Sample]:
    """Leave out elements that are constant and the same in both; refuse all other constants."""
    pair = first, second
    owners, labels = (second.draws[name].values for name in ("variable", "parameter"))
    # A constant that was computed, such as a correlation of 1, may vary by so much.
    rounding = [ROUNDINGS * sample.resolution * np.abs(sample.rows).max(axis=0) for sample in pair]
    ranges = [np.ptp(sample.rows, axis=0) for sample in pair]
    constant = [ranges[0] <= rounding[0], ranges[1] <= rounding[1]]
    same = constant[0] & constant[1]
    same &= np.abs(first.rows[0] - second.rows[0]) <= np.maximum(*rounding)
    whole = np.array([same[owners == owner].all() for owner in owners])
    for sample, stuck in zip(pair, constant, strict=True):
        if (odd := stuck & (~same | whole)).any():
            raise ValueError(
                f"{sample.name}: {brief(labels[odd])} is constant, no distance can be measured in "
                f'its sds. Leave it out with var_names="~{owners[odd][0]}".'
            )
    first, second = (
        sample._replace(draws=sample.draws[..., ~same], resolution=sample.resolution[~same])
        for sample in pair
    )
    return first, second

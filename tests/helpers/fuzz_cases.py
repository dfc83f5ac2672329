"""Random batches for the differential tests: one number gives one case, always the same."""

from typing import Any, NamedTuple

import fuzz_oracle as oracle
import numpy as np
import xarray as xr
from fuzz_settings import (
    LETTERS,
    choose_attrs,
    choose_drop,
    choose_kept,
    choose_labels,
    choose_powers,
    choose_spoken,
    choose_transforms,
    missing_prior,
)

from arviz_swiss.data import containers

SAMPLE = ("chain", "draw")
ELEMENTWISE = (None, None, None, "log", "logit", ("interval", -2.0, 5.0))
STRUCTURED = ("simplex", "ordered", "cholesky", "cholesky_corr")


class Variable(NamedTuple):
    """One variable of a case: where it is merged, and its dtype."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    transform: Any
    dtype: type

    @property
    def size(self):
        """Number of parameters in the space of the merge."""
        return oracle.parameters(self.transform, self.shape)


class Order(NamedTuple):
    """How one object stores what the case holds in one order for all."""

    names: list[str]
    dims: dict[str, tuple[str, ...]]
    labels: dict[str, np.ndarray]


class Case(NamedTuple):
    """A set of batches, how they were sampled, and what `merge` is to be called with.

    `draws` hold the elements in one order for all batches; `objects` are what is given to `merge`,
    each in an order of its own.
    """

    variables: list[Variable]
    coords: dict[str, np.ndarray]
    draws: dict[str, dict[str, np.ndarray]]
    orders: dict[str, Order]
    objects: Any
    kind: str
    powers: np.ndarray
    prior_powers: np.ndarray
    kept: list[int]
    prior: list[dict[str, np.ndarray]]
    method: str
    arguments: dict[str, Any]

    @property
    def labels(self):
        """Labels of the batches that are kept."""
        return [list(self.draws)[b] for b in self.kept]

    @property
    def transforms(self):
        """Transforms by variable."""
        return {one.name: one.transform for one in self.variables}


def make_case(number):
    """Return the case of this number."""
    rng = np.random.default_rng([1, number])
    variables, coords = _variables(rng)
    count = int(rng.integers(1, 5))
    kind = str(rng.choice(["inflated", "fractionated", "full_prior"], p=[0.5, 0.3, 0.2]))
    powers, prior_powers, spoken = choose_powers(rng, kind, count)
    labels, keys = choose_labels(rng, count, spoken)
    kept = choose_kept(rng, count)
    missing = missing_prior(kind, powers, prior_powers, kept)
    if missing:
        variables = [one._replace(dtype=np.float64) for one in variables]
    centre = {one.name: _centre(rng, one) for one in variables}
    draws = {label: _draws(rng, variables, centre, 1.0) for label in labels}
    orders = {
        label: _order(rng, variables, coords, first=position == kept[0])
        for position, label in enumerate(labels)
    }
    prior, groups, arguments = [], [{} for _ in labels], {}
    if missing:
        prior, groups, arguments = _prior(rng, variables, coords, centre, labels, kept)
    attrs = choose_attrs(rng, spoken, kind, powers, prior_powers, count)
    form = str(rng.choice(["Dataset", "container"]))
    objects = []
    for position, label in enumerate(labels):
        dataset = stored(draws[label], variables, coords, orders[label])
        dataset = dataset.assign_attrs(attrs[position])
        if keys is None and labels[0] != "b0":
            dataset.attrs["swiss_batch"] = label
        if form == "container" or groups[position]:
            built = {"posterior": dataset, **groups[position]}
            objects.append(containers.build(built))
        else:
            objects.append(dataset)
    objects = objects if keys is None else dict(zip(keys, objects, strict=True))
    arguments |= choose_spoken(rng, spoken, kind, powers, labels, keys)
    arguments |= choose_transforms(rng, variables)
    if len(kept) < count:
        arguments["drop"] = choose_drop(rng, labels, kept)
    method = "swiss"
    if not missing and rng.random() < 0.3:
        method = str(rng.choice(["pool", "recentre", "consensus", "average"]))
        arguments["method"] = method
    return Case(
        variables,
        coords,
        draws,
        orders,
        objects,
        kind,
        powers,
        prior_powers,
        kept,
        prior,
        method,
        arguments,
    )


def make_known(number):
    """Return a case whose batches are Gaussian in the space of the merge, and their densities."""
    rng = np.random.default_rng([3, number])
    variables, coords = _variables(rng)
    variables = [
        one._replace(
            dtype=np.float64, transform=None if one.transform == "simplex" else one.transform
        )
        for one in variables
    ]
    size, count = sum(one.size for one in variables), int(rng.integers(2, 5))
    kind = str(rng.choice(["inflated", "fractionated"]))
    powers = np.full(count, float(count)) if kind == "inflated" else np.ones(count)
    if kind == "inflated" and rng.random() < 0.5:
        sizes = rng.integers(10, 30, count)
        powers = sizes.sum() / sizes
    prior_powers = np.full(count, 1.0 if kind == "inflated" else 1 / count)
    units = 0.3 * np.ones(size) if any(v.transform for v in variables) else _units(rng, size)
    prior = (units * rng.normal(0, 0.5, size), _precision(rng, 3 * units))
    densities, draws, length = {}, {}, 15 * size + 40
    labels = [f"{letter}{letter}" for letter in rng.permutation(LETTERS)[:count]]
    for position, label in enumerate(labels):
        likelihood = (units * rng.normal(0, 0.5, size), _precision(rng, units))
        densities[label] = oracle.Gaussian(prior, likelihood)
        mean, covariance = densities[label].moments(prior_powers[position], powers[position])
        rows = rng.multivariate_normal(mean, covariance, size=2 * length)
        draws[label] = split(rows, variables, (2, length))
    orders = {
        label: _order(rng, variables, coords, first=position == 0)
        for position, label in enumerate(labels)
    }
    objects = {label: stored(draws[label], variables, coords, orders[label]) for label in labels}
    method = str(rng.choice(["swiss", "swiss", "swiss", "recentre", "pool"]))
    arguments = {"kind": kind, "powers": dict(zip(labels, powers, strict=True)), "method": method}
    arguments |= choose_transforms(rng, variables)
    case = Case(
        variables,
        coords,
        draws,
        orders,
        objects,
        kind,
        powers,
        prior_powers,
        list(range(count)),
        [],
        method,
        arguments,
    )
    return case, densities


def split(rows, variables, shape):
    """Return rows in the space of the merge as (chain, draw, ...) arrays by variable."""
    draws, start = {}, 0
    for one in variables:
        own = oracle.backward(one.transform, rows[:, start : start + one.size], one.shape)
        draws[one.name] = own.reshape(*shape, *one.shape).astype(one.dtype)
        start += one.size
    return draws


def _units(rng, size):
    return np.exp(rng.uniform(-4, 4, size))


def _precision(rng, units):
    size = units.size
    factor = np.eye(size) + 0.4 * rng.standard_normal((size, size)) / np.sqrt(size)
    return factor @ factor.T / np.outer(units, units)


def stored(draws, variables, coords, order):
    """Return draws as a Dataset, elements and dimensions in the given order."""
    named = {one.name: one for one in variables}
    data = {}
    for name in order.names:
        one = named[name]
        array = xr.Variable((*SAMPLE, *one.dims), draws[name])
        places = {dim: order.labels[dim] for dim in one.dims if dim in order.labels}
        data[name] = array.isel(places).transpose(*order.dims[name])
    own = {
        dim: coords[dim][order.labels[dim]]
        for one in variables
        for dim in one.dims
        if dim in order.labels
    }
    return xr.Dataset(data, coords=own)


def reorder(dataset, rng):
    """Return a dataset with variables, dimensions and labelled elements in another order."""
    names = [str(name) for name in rng.permutation(list(dataset.data_vars))]
    places = {
        dim: rng.permutation(size)
        for dim, size in dataset.sizes.items()
        if dim not in SAMPLE and dim in dataset.coords
    }
    data = {name: dataset[name].transpose(*rng.permutation(dataset[name].dims)) for name in names}
    return dataset.drop_vars(names).assign(data)[names].isel(places)


def _variables(rng):
    labelled = {
        "g": int(rng.integers(2, 4)),
        "h": 2,
        "plain": int(rng.integers(1, 3)),
    }
    coords = {dim: _coord(rng, labelled[dim]) for dim in ("g", "h")}
    variables = []
    for position in range(int(rng.integers(1, 4))):
        dtype = np.float32 if rng.random() < 0.2 else np.float64
        name = f"v{position}"
        if rng.random() < 0.2:
            choice = STRUCTURED[rng.integers(len(STRUCTURED))]
            size = int(rng.integers(2, 4)) if choice in ("simplex", "ordered") else 2
            own = [f"{name}_k", f"{name}_l"][: 2 if choice.startswith("chol") else 1]
            coords |= {dim: _coord(rng, size) for dim in own}
            variables.append(Variable(name, tuple(own), (size,) * len(own), choice, dtype))
            continue
        dims = tuple(rng.permutation(list(labelled))[: rng.integers(0, 3)].tolist())
        choice = ELEMENTWISE[rng.integers(len(ELEMENTWISE))]
        variables.append(Variable(name, dims, tuple(labelled[d] for d in dims), choice, dtype))
    return variables, coords


def _coord(rng, size):
    kind = rng.integers(5)
    places = rng.permutation(10)[:size]
    if kind == 0:
        return places - 3
    if kind == 1:
        return places / 4 - 1
    if kind == 2:
        return np.datetime64("2020-01-01", "ns") + places * np.timedelta64(1, "D")
    if kind == 3:
        return places > 4 if len(set(places > 4)) == size else places
    return LETTERS[places]


def _centre(rng, one):
    """Return mean and sds of a variable in the space of the merge; NaN sds for a constant."""
    if one.transform is None:
        sds = np.exp(rng.uniform(-4, 4)) * rng.uniform(0.5, 2, one.size)
        return sds * rng.normal(0, 5, one.size), sds
    return rng.normal(0, 0.5, one.size), rng.uniform(0.1, 0.4, one.size)


def _draws(rng, variables, centre, width, shape=None):
    size = sum(one.size for one in variables)
    chains = int(rng.integers(1, 4))
    length = -(-(3 * size + 30) // chains) + int(rng.choice([0, 0, 0, 7]))
    chains, length = shape or (chains, length)
    mixing = np.eye(size) + 0.5 * rng.standard_normal((size, size)) / np.sqrt(size)
    white = rng.standard_normal((chains * length, size))
    if rng.random() < 0.5:
        white = rng.gamma(3, 1, size=white.shape) / np.sqrt(3) - np.sqrt(3)
    rows = width * (white @ mixing.T + 0.5 * rng.standard_normal(size))
    mean, sds = (np.concatenate([centre[one.name][k] for one in variables]) for k in (0, 1))
    return split(mean + sds * rows, variables, (chains, length))


def _order(rng, variables, coords, first):
    """Return an order to store elements in; the first batch's says what "ordered" means."""
    names = [one.name for one in variables]
    labels, dims = {}, {}
    for one in variables:
        structured = one.transform in STRUCTURED
        for dim in one.dims:
            if dim in coords and dim not in labels:
                size = len(coords[dim])
                shuffled = rng.permutation(size)
                labels[dim] = np.arange(size) if structured and first else shuffled
        order = (*SAMPLE, *one.dims)
        if not (structured and first) and rng.random() < 0.5:
            order = tuple(rng.permutation(order).tolist())
        dims[one.name] = order
    if rng.random() < 0.5:
        names = rng.permutation(names).tolist()
    return Order(names, dims, labels)


def _prior(rng, variables, coords, centre, labels, kept):
    """Return the prior's draws, groups of the batches that hold them, and arguments."""
    groups = [{} for _ in labels]
    order = _order(rng, variables, coords, first=False)
    if rng.random() < 0.5:
        draws = _draws(rng, variables, centre, 8.0, (1, 200))
        return [draws], groups, {"prior": stored(draws, variables, coords, order)}
    prior = [_draws(rng, variables, centre, 8.0, (2, 60)) for _ in labels]
    for position, draws in enumerate(prior):
        groups[position] = {"prior": stored(draws, variables, coords, order)}
    return [prior[position] for position in kept], groups, {}

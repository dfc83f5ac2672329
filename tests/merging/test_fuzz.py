"""Random cases, computed by the package and by a naive oracle.

A failure names its check and its case. To run that one alone::

    PYTHONPATH=tests/helpers:tests python -c "import test_fuzz; test_fuzz.check_merge(1234)"
"""

import warnings

import fuzz_cases
import fuzz_oracle as oracle
import numpy as np
import pytest
import xarray as xr

import arviz_swiss as az_swiss
from arviz_swiss.data import containers

CHUNKS, LENGTH = 20, 110
EPS = float(np.finfo(np.float32).eps)


def run_cases(check, numbers):
    """Run all cases of a chunk; the first that fails is named."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        for number in numbers:
            try:
                check(number)
            except Exception as error:
                error.add_note(f"case {number}: test_fuzz.{check.__name__}({number})")
                raise


def tolerances(case):
    """Return the tolerances of merged and of moved back draws, by variable."""
    # transforms of draws in single precision round in the space of the merge, and all are mixed
    coarse = any(v.dtype == np.float32 and v.transform is not None for v in case.variables)
    single = any(v.dtype == np.float32 for v in case.variables)
    merged = {
        v.name: 200 * EPS if coarse else (4 * EPS if v.dtype == np.float32 else 1e-9)
        for v in case.variables
    }
    return merged, {v.name: 2000 * EPS if single else 1e-8 for v in case.variables}


def assert_near(values, expected, tolerance, what):
    """Compare draws of one variable, in units of its sds and of its size."""
    flat = expected.reshape(-1, *expected.shape[2:])
    unit = np.abs(expected) + flat.std(axis=0)
    worst = np.max(np.abs(values - expected) / np.where(unit > 0, unit, 1.0))
    assert worst < tolerance, f"{what}: {worst:.2g} against {tolerance:.2g}"


def rows_of(case, draws):
    return np.hstack([oracle.forward(one.transform, draws[one.name]) for one in case.variables])


def draws_of(case, rows, chains):
    """Return (chain, draw, ...) arrays by variable, from rows in the space of the merge."""
    exact = [one._replace(dtype=np.float64) for one in case.variables]
    return fuzz_cases.split(rows, exact, (chains, len(rows) // chains))


def by_label(case, dataset, one):
    """Return a variable's draws in the case's own order of elements."""
    array = dataset[one.name].transpose(*fuzz_cases.SAMPLE, *one.dims)
    places = {}
    for dim in one.dims:
        if dim in case.coords:
            found = dataset[dim].values.tolist()
            places[dim] = [found.index(label) for label in case.coords[dim].tolist()]
    return array.isel(places).values


def expected_draws(case, pooled):
    """Return the merged draws, each kept batch's chains end to end."""
    batches = [case.draws[label] for label in case.labels]
    shapes = [next(iter(draws.values())).shape[:2] for draws in batches]
    length, chains = min(shape[1] for shape in shapes), min(shape[0] for shape in shapes)
    if case.method in ("consensus", "average"):
        cut = [{n: v[:chains, :length] for n, v in draws.items()} for draws in batches]
        rows = oracle.made([rows_of(case, draws) for draws in cut], pooled, case.method)
        return draws_of(case, rows, chains)
    parts = [
        draws_of(case, oracle.moved(rows_of(case, draws), pooled, b, case.method), shape[0])
        for b, (draws, shape) in enumerate(zip(batches, shapes, strict=True))
    ]
    return {n: np.concatenate([part[n][:, :length] for part in parts]) for n in parts[0]}


def first_order(case):
    """Return where the first batch's parameters lie among those of the oracle."""
    order, places, start = case.orders[case.labels[0]], {}, 0
    for one in case.variables:
        if one.transform in fuzz_cases.STRUCTURED:
            places[one.name] = start + np.arange(one.size)
        else:
            numbers = np.arange(one.size).reshape(1, 1, *one.shape)
            dataset = fuzz_cases.stored(
                {one.name: numbers}, [one], case.coords, order._replace(names=[one.name])
            )
            places[one.name] = start + dataset[one.name].isel(chain=0, draw=0).values.ravel()
        start += one.size
    return np.concatenate([places[name] for name in order.names])


def check_transform(case, merged, pooled, tolerance):
    """Compare the recorded moments and powers."""
    record = merged["swiss_transform"]
    assert record["batch"].values.tolist() == case.labels
    np.testing.assert_allclose(record["power"], pooled.powers, rtol=1e-12)
    np.testing.assert_allclose(record["prior_power"], pooled.prior_powers, rtol=1e-12)
    assert float(record["stands_for"]) == pytest.approx(pooled.stands_for, rel=1e-12)
    if "simplex" in case.transforms.values():
        return
    order = first_order(case)
    units = np.sqrt(np.diag(pooled.covariance))[order]
    mean = pooled.mean[order]
    assert np.max(np.abs(record["pooled_mean"] - mean) / (np.abs(mean) + units)) < tolerance
    covariance = pooled.covariance[np.ix_(order, order)]
    difference = (record["pooled_covariance"].values - covariance) / np.outer(units, units)
    assert np.abs(difference).max() < 10 * tolerance


def check_heterogeneity(merged, pooled, tolerance):
    """Compare Q and p-values."""
    found = merged["swiss_diagnostics"]
    q, degrees, pvalue, own, own_pvalue = oracle.heterogeneity(
        pooled, found["effective_size"].values
    )
    assert int(found["q_df"]) == degrees
    close = {"rtol": 1e3 * tolerance, "atol": 1e3 * tolerance}
    np.testing.assert_allclose(found["q"], q, **close)
    np.testing.assert_allclose(found["q_pvalue"], pvalue, **close)
    known = np.isfinite(own)
    np.testing.assert_allclose(found["batch_q"].values[known], own[known], **close)
    np.testing.assert_allclose(found["batch_q_pvalue"].values[known], own_pvalue[known], **close)


def check_back(case, merged, tolerance):
    """Move the draws back, by label."""
    back = az_swiss.subposteriors(merged)
    assert list(back) == case.labels
    for label, batch in back.items():
        for one in case.variables:
            values = by_label(case, batch["posterior"], one)
            original = case.draws[label][one.name][:, : values.shape[1]]
            assert_near(values, original, tolerance[one.name], f"{label} moved back, {one.name}")


def groups_of(obj):
    return containers.read(obj).groups


def copies(objects):
    """Return deep copies of the groups of all batches."""
    objects = objects.values() if isinstance(objects, dict) else objects
    return [{n: d.copy(deep=True) for n, d in groups_of(obj).items()} for obj in objects]


def reordered(merged, rng):
    """Return a merged object whose draws the user has put into another order."""
    groups = dict(groups_of(merged))
    groups["posterior"] = fuzz_cases.reorder(groups["posterior"], rng)
    if "unconstrained_posterior" in groups and rng.random() < 0.5:
        own = groups["unconstrained_posterior"]
        groups["unconstrained_posterior"] = fuzz_cases.reorder(own, rng)
    return containers.build(groups)


class InOrder:
    """A known density, of points in another order of the parameters."""

    def __init__(self, density, order):
        self.density, self.back = density, np.argsort(order)
        self.order = order

    def log_prior(self, x):
        return self.density.log_prior(x[:, self.back])

    def log_likelihood(self, x):
        return self.density.log_likelihood(x[:, self.back])

    def grad_log_prior(self, x):
        mean, precision = self.density.prior
        return -((x[:, self.back] - mean) @ precision)[:, self.order]

    def grad_log_likelihood(self, x):
        mean, precision = self.density.likelihood
        return -((x[:, self.back] - mean) @ precision)[:, self.order]


def known(number):
    """Return a case with known densities: itself, them, the merged object and its pooling."""
    case, densities = fuzz_cases.make_known(number)
    rows = [rows_of(case, draws) for draws in case.draws.values()]
    pooled = oracle.pool(rows, case.kind, case.powers, case.prior_powers, case.kept)
    order = first_order(case)
    given = {label: InOrder(density, order) for label, density in densities.items()}
    return case, densities, given, az_swiss.merge(case.objects, **case.arguments), pooled


def check_refine(number, reorder=False):
    """One round on a Gaussian posterior gives its moments, whatever the merge."""
    case, densities, given, merged, _ = known(number)
    rng = np.random.default_rng([4, number])
    merged = reordered(merged, rng) if reorder else merged
    given = list(given.values()) if rng.random() < 0.5 else dict(reversed(given.items()))
    refined = az_swiss.refine(
        merged, given, rounds=1, points=60, random_seed=number, progressbar=False
    )
    first = next(iter(densities.values()))
    terms = [(1.0, *density.likelihood) for density in densities.values()]
    mean, covariance = oracle.product([(1.0, *first.prior), *terms])
    order, units = first_order(case), np.sqrt(np.diag(covariance))
    record = refined["swiss_transform"]
    if np.any(np.abs(np.log(record["eigenvalue_range"][-1])) > np.log(5) - 1e-9):
        return  # one round may not change a precision by more than five times
    off = (record["pooled_mean"].values - mean[order]) / units[order]
    assert np.abs(off).max() < 1e-8
    wrong = record["pooled_covariance"].values - covariance[np.ix_(order, order)]
    assert np.abs(wrong / np.outer(units, units)[np.ix_(order, order)]).max() < 1e-8
    rows = rows_of(case, {v.name: by_label(case, refined["posterior"], v) for v in case.variables})
    assert np.abs((rows.mean(axis=0) - mean) / units).max() < 1e-8
    # covariances of so many draws have their sum of squares over n - 1 a batch, or over all
    spread = np.cov(rows.T).reshape(units.size, -1) - covariance
    assert np.abs(spread / np.outer(units, units)).max() < 4 * len(densities) / len(rows)
    check_back(case, refined, dict.fromkeys(case.transforms, 1e-7))


def check_refine_reordered(number):
    check_refine(number, reorder=True)


def check_certify(number, reorder=False):
    """Weights follow from known densities, up to one constant."""
    case, densities, given, merged, pooled = known(number)
    rng = np.random.default_rng([5, number])
    merged = reordered(merged, rng) if reorder else merged
    given = list(given.values()) if rng.random() < 0.5 else dict(reversed(given.items()))
    certified = az_swiss.certify(merged, given, draws=80, random_seed=number, progressbar=False)
    found = certified["swiss_certificate"]
    at = merged["posterior"].sel(draw=found["draw"])
    points = rows_of(case, {v.name: by_label(case, at, v) for v in case.variables})
    owners = np.repeat([case.labels.index(b) for b in found["batch"].values], found.sizes["draw"])
    first = next(iter(densities.values()))
    full = first.log_prior(points) + sum(d.log_likelihood(points) for d in densities.values())
    logs = []
    for b, density in enumerate(densities.values()):
        back = oracle.moved_back(points, pooled, b, case.method)
        logs.append(
            case.prior_powers[b] * density.log_prior(back)
            + case.powers[b] * density.log_likelihood(back)
        )
    expected = oracle.log_ratios(full, np.array(logs), owners)
    np.testing.assert_allclose(found["log_ratio"].values.ravel(), expected, atol=1e-5, rtol=1e-6)


def check_certify_reordered(number):
    check_certify(number, reorder=True)


def check_merge(number):
    case = fuzz_cases.make_case(number)
    before = copies(case.objects)
    rows = [rows_of(case, case.draws[label]) for label in case.labels]
    prior = np.vstack([rows_of(case, draws) for draws in case.prior]) if case.prior else None
    pooled = oracle.pool(
        rows, case.kind, case.powers, case.prior_powers, case.kept, prior_rows=prior
    )
    if np.linalg.eigvalsh(pooled.covariance).min() <= 0:
        # few draws of the prior, subtracted, outweigh the batches
        with pytest.raises(ValueError, match="pooled precision is not positive definite"):
            az_swiss.merge(case.objects, **case.arguments)
        return
    merged = az_swiss.merge(case.objects, **case.arguments)
    for groups, untouched in zip(copies(case.objects), before, strict=True):
        for name, dataset in untouched.items():
            xr.testing.assert_identical(groups[name], dataset)
    near, back = tolerances(case)
    expected = expected_draws(case, pooled)
    for one in case.variables:
        assert merged["posterior"][one.name].dtype == one.dtype
        values = by_label(case, merged["posterior"], one)
        assert_near(values, expected[one.name], near[one.name], one.name)
    coarse = max(near.values())
    check_transform(case, merged, pooled, coarse)
    check_heterogeneity(merged, pooled, coarse)
    if case.method not in ("consensus", "average"):
        check_back(case, merged, back)


def check_reordered(number):
    """A merged object in another order is the same merged object."""
    case = fuzz_cases.make_case(number)
    if case.method in ("consensus", "average"):
        return
    merged = az_swiss.merge(case.objects, **case.arguments)
    _, back = tolerances(case)
    check_back(case, reordered(merged, np.random.default_rng([2, number])), back)


def chunk(position, length):
    return range(position * length, (position + 1) * length)


@pytest.mark.parametrize("position", range(CHUNKS))
def test_merge_equals_the_oracle(position):
    run_cases(check_merge, chunk(position, LENGTH))


@pytest.mark.parametrize("position", range(4))
def test_reordered_merged_objects_are_moved_back(position):
    run_cases(check_reordered, chunk(position, 50))


@pytest.mark.parametrize("position", range(4))
def test_refine_is_exact_for_known_gaussians(position):
    run_cases(check_refine, chunk(position, 50))


@pytest.mark.parametrize("position", range(4))
def test_certify_equals_the_oracle(position):
    run_cases(check_certify, chunk(position, 50))


@pytest.mark.parametrize("check", [check_refine_reordered, check_certify_reordered])
def test_reordered_merged_objects_are_refined_and_certified(check):
    run_cases(check, range(50))

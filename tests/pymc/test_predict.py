"""Predictions and LOO of a merged, refined model with groups: exact values, and batch by batch."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from group_models import draw_fractionated, exact_posterior, make_groups, normal_groups
from scipy.stats import norm

import arviz_swiss as az_swiss
from arviz_swiss.data import containers
from arviz_swiss.parallel.partition import partition, take

TABLE = make_groups()
Y = TABLE["y"].to_numpy()
QUIET = {"progressbar": False, "random_seed": 1}
INDICES = dict(
    zip(("b0", "b1", "b2"), partition(TABLE, 3, groups="site", random_seed=5), strict=True)
)
PARTS = {label: take(TABLE, index) for label, index in INDICES.items()}
# each batch's draws of its own effects are used by the chains of all batches
EFFECTIVE = 2000 / len(PARTS)
SIGMAS = 5  # of the largest of 180 rows


def groups_of(merged):
    return containers.read(merged).groups


@pytest.fixture(scope="module")
def models():
    return {label: normal_groups(part) for label, part in PARTS.items()}


@pytest.fixture(scope="module")
def refined(models):
    rng = np.random.default_rng(2)
    batches = [draw_fractionated(rng, part, len(TABLE), label) for label, part in PARTS.items()]
    merged = az_swiss.merge(batches, model=normal_groups(TABLE))
    return az_swiss.refine(merged, models, draws=2000, **QUIET)


@pytest.fixture(scope="module")
def whole(refined):
    """Predict all rows by their one model."""
    options = {"model": normal_groups(TABLE), "progressbar": False}
    groups = groups_of(refined)
    trace = containers.build({"posterior": groups["posterior"]})
    made = pm.sample_posterior_predictive(trace, random_seed=1, **options)
    groups |= groups_of(made)
    logs = pm.compute_log_likelihood(trace, extend_inferencedata=False, **options)
    groups |= containers.read(logs, "log_likelihood").groups
    return containers.build(groups)


@pytest.fixture(scope="module")
def parts(refined, models):
    everything = groups_of(refined)["posterior"].sizes
    draws = everything["chain"] * everything["draw"]
    return dict(az_swiss.predict(refined, models, draws=draws, **QUIET))


def design():
    codes, names = pd.factorize(TABLE["site"])
    return np.column_stack([np.ones(len(TABLE)), TABLE["x"], np.eye(len(names))[codes]])


def rows_of(merged, group):
    """Return (draws, rows)."""
    y = groups_of(merged)[group]["y"]
    (row,) = set(y.dims) - {"chain", "draw"}
    return y.transpose("chain", "draw", row).values.reshape(-1, y.sizes[row])


def test_predictions_of_all_rows_are_those_of_the_full_posterior(whole):
    mean, covariance, _ = exact_posterior(TABLE)
    expected = design() @ mean
    variance = np.einsum("ni,ij,nj->n", design(), covariance, design())
    found = rows_of(whole, "posterior_predictive")
    # the noise of rows is drawn anew for every draw
    error = np.sqrt(variance / EFFECTIVE + 1 / len(found))
    assert np.abs((found.mean(axis=0) - expected) / error).max() < SIGMAS
    spread = np.sqrt(2 / EFFECTIVE) * variance + np.sqrt(2 / len(found)) * (1 + variance)
    assert np.abs((found.var(axis=0) - 1 - variance) / spread).max() < SIGMAS


def exact_loo():
    """Return the log density of every row given all others: its rows are jointly normal."""
    count = design().shape[1] - 2
    prior = np.array([9.0, 4.0, *[0.49] * count])
    precision = np.linalg.inv(np.eye(len(Y)) + design() * prior @ design().T)
    variance = 1 / np.diag(precision)
    return norm.logpdf(Y, Y - variance * (precision @ Y), np.sqrt(variance))


def elpd_of(loo):
    return loo.elpd if hasattr(loo, "elpd") else loo.elpd_loo


def test_loo_is_that_of_the_full_posterior(whole):
    ratios = np.exp(-rows_of(whole, "log_likelihood"))
    # by how much each draw moves the sum over rows of - log mean ratio
    moves = (ratios / ratios.mean(axis=0) - 1).sum(axis=1)
    error = moves.std() / np.sqrt(EFFECTIVE)
    found, expected = elpd_of(az.loo(whole)), exact_loo().sum()
    assert error < 1
    assert abs(found - expected) < 4 * error
    # that of the posterior of all rows, not left out, is further off
    assert rows_of(whole, "log_likelihood").mean(axis=0).sum() > expected + 4 * error


def test_batches_have_what_the_model_of_all_rows_gives(whole, parts, refined):
    assert list(parts) == list(PARTS)
    together = rows_of(whole, "log_likelihood")
    for label, part in parts.items():
        groups = groups_of(part)
        expected = {"posterior", "posterior_predictive", "log_likelihood", "observed_data"}
        assert set(groups) == expected
        assert containers.is_inference_data(part) == containers.is_inference_data(refined)
        np.testing.assert_allclose(
            rows_of(part, "log_likelihood"), together[:, INDICES[label]], rtol=1e-10
        )
        np.testing.assert_array_equal(groups["observed_data"]["y"], Y[INDICES[label]])
        assert set(groups["posterior"]["site"].values) == set(PARTS[label]["site"])
        # noise of rows has sd 1, in both
        moved = (
            rows_of(part, "posterior_predictive")
            - rows_of(whole, "posterior_predictive")[:, INDICES[label]]
        )
        assert np.abs(moved.mean(axis=0)).max() < SIGMAS * np.sqrt(2 / len(moved))
        assert moved.std() == pytest.approx(np.sqrt(2), rel=0.02)


def test_loo_is_a_sum_over_batches(whole, refined, models):
    # with one relative efficiency, which ArviZ would take of different variables
    loo = partial(az.loo, reff=1.0)
    by_batch = dict(
        az_swiss.predict(refined, models, function=loo, what="log_likelihood", draws=10**6, **QUIET)
    )
    assert sum(map(elpd_of, by_batch.values())) == pytest.approx(elpd_of(loo(whole)), rel=1e-9)


def mean_of(part):
    y = groups_of(part)["posterior_predictive"]["y"]
    return dict(y.sizes), float(y.mean())


def test_workers_give_the_same(refined, models):
    options = {"function": mean_of, "draws": 100, **QUIET}
    alone = dict(az_swiss.predict(refined, models, **options))
    with ThreadPoolExecutor(1) as pool:
        assert dict(az_swiss.predict(refined, models, executor=pool, **options)) == alone
    for label, (sizes, _) in alone.items():
        # no chain is too short for an effective size
        assert sizes == {"chain": 4, "draw": 25, "y_dim_0": len(PARTS[label])}


def by_number(part):
    """Build the model without labels of the sites: those of all batches are 0, 1, ..."""
    codes, names = pd.factorize(part["site"])
    with pm.Model() as model:
        level, slope = pm.Normal("level", 0, 3), pm.Normal("slope", 0, 2)
        effect = pm.Normal("effect", 0, 0.7, shape=len(names))
        mean = level + slope * part["x"].to_numpy() + effect[codes]
        pm.Normal("y", mean, 1, observed=part["y"])
    return model


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")  # no order of the sites is known
def test_groups_without_labels_are_those_of_their_batch(models):
    rng = np.random.default_rng(2)
    batches = [draw_fractionated(rng, part, len(TABLE), label) for label, part in PARTS.items()]
    unlabelled = []
    for batch in batches:
        posterior = groups_of(batch)["posterior"]
        posterior = posterior.drop_vars("site").rename(site="effect_dim_0")
        unlabelled.append(
            containers.build({"posterior": posterior.assign_coords(effect_dim_0=range(3))})
        )
    options = {"what": "log_likelihood", "draws": 100, **QUIET}
    named = dict(az_swiss.predict(az_swiss.merge(batches), models, **options))
    numbered = dict(
        az_swiss.predict(
            az_swiss.merge(unlabelled),
            {label: by_number(part) for label, part in PARTS.items()},
            **options,
        )
    )
    for label in PARTS:
        first, second = (rows_of(parts[label], "log_likelihood") for parts in (named, numbered))
        np.testing.assert_allclose(first, second, rtol=1e-8)


def test_what_cannot_be_predicted(refined, models):
    def asked(given=models, **options):
        return next(az_swiss.predict(refined, given, draws=50, progressbar=False, **options))

    with pytest.raises(ValueError, match=r"\['loo'\] is not one of posterior_predictive, log_l"):
        az_swiss.predict(refined, models, what=["log_likelihood", "loo"])
    with pytest.raises(TypeError, match="pass densities, or both build= and data=: got neither"):
        az_swiss.predict(refined)
    with pytest.raises(TypeError, match="function must be callable, got str"):
        az_swiss.predict(refined, models, function="loo")
    with pytest.raises(ValueError, match='batch "b0": the model is tempered'):
        asked({k: az_swiss.fractionate(model, 0.5) for k, model in models.items()})
    swapped = dict(zip(models, [*models.values()][::-1], strict=True))
    with pytest.raises(ValueError, match="b0"):
        asked(swapped)

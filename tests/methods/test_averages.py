import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from batch_kinds import rows

import arviz_swiss as az_swiss
from arviz_swiss.methods import averages

FIGURES = Path(__file__).parents[1] / "data" / "parallelMCMCcombine.json"


quiet = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")


@quiet
@pytest.mark.parametrize(
    ("method", "covariance", "figure"),
    [
        ("average", "sample", "sampleAvg"),
        ("consensus", "diagonal", "consensusMCindep"),
        ("consensus", "sample", "consensusMCcov"),
    ],
)
def test_averaging_equals_the_r_package(method, covariance, figure):
    figures = json.loads(FIGURES.read_text())
    shape = figures["d"], figures["T"], figures["M"]
    subchain = np.reshape(figures["subchain"], shape, order="F")
    batches = [{"theta": subchain[None, :, :, m].transpose(0, 2, 1)} for m in range(shape[2])]
    merged = az_swiss.merge(batches, method=method, covariance=covariance, kind="fractionated")
    expected = np.reshape(figures[figure], shape[:2], order="F").T
    np.testing.assert_allclose(rows(merged), expected, rtol=1e-12, atol=1e-12)


@quiet
@pytest.mark.parametrize("method", ["consensus", "average"])
@pytest.mark.parametrize("kind", ["inflated", "fractionated"])
def test_sums_are_exact_far_from_zero_and_keep_constants(method, kind):
    rng = np.random.default_rng(4)
    draws = [1e6 + rng.normal(size=(2, 300, 3)) @ rng.normal(size=(3, 3)) for _ in range(5)]
    fixed = np.full((2, 300), 7.0)
    merged = az_swiss.merge(
        [{"theta": own, "fixed": fixed} for own in draws], method=method, kind=kind
    )
    assert (merged["posterior"]["fixed"] == 7.0).all()
    every = np.array([own.reshape(-1, 3) - 1e6 for own in draws])
    means = every.mean(axis=1, keepdims=True)
    if kind == "inflated":
        every = means + np.sqrt(5) * (every - means)
    precisions = np.array([np.linalg.inv(np.cov(own.T)) for own in every])
    weights = precisions if method == "consensus" else np.tile(np.eye(3), (5, 1, 1))
    total = np.einsum("bij,bnj->ni", weights, every)
    expected = np.linalg.solve(weights.sum(axis=0), total.T).T
    # numbers about 1e6 are stored to 1e-10
    theta = merged["posterior"]["theta"].values.reshape(-1, 3) - 1e6
    np.testing.assert_allclose(theta, expected, atol=1e-8)


@quiet
def test_consensus_holds_one_batch_at_a_time():
    """Its output, the sum and what one batch takes: five times a batch, not thirty."""
    rng = np.random.default_rng(5)
    batches = [{"theta": rng.normal(size=(2, 5000, 20))} for _ in range(30)]
    az_swiss.merge(batches[:2], method="consensus", kind="fractionated")
    tracemalloc.start()
    az_swiss.merge(batches, method="consensus", kind="fractionated")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * batches[0]["theta"].nbytes


def test_quantile_averages_order_statistics_and_keeps_dependence():
    rng = np.random.default_rng(11)
    covariance = np.array([[1.0, 0.8], [0.8, 1.0]])
    batches = [
        {"theta": scale * rng.multivariate_normal(np.zeros(2), covariance, size=(1, 4000))}
        for scale in (0.5, 1.0, 1.5)
    ]
    made = rows(az_swiss.merge(batches, method="quantile", kind="inflated"))
    expected = np.mean([np.sort(batch["theta"][0], axis=0) for batch in batches], axis=0)
    np.testing.assert_allclose(np.sort(made, axis=0), expected, atol=1e-12)
    # a correlation of .8 has a standard error of (1 - .64) / sqrt(4000) = .0057
    assert abs(np.corrcoef(made.T)[0, 1] - 0.8) < 4 * 0.0057


def test_geometric_median_of_points_on_a_line_is_the_middle_one():
    points = np.array([[0.0], [1.0], [5.0]])
    weights = averages.geometric_median(points @ points.T)
    assert abs(weights @ points - 1.0) < 1e-3


def test_geometric_median_has_the_least_sum_of_distances():
    points = np.random.default_rng(12).normal(size=(6, 3))
    median = averages.geometric_median(points @ points.T) @ points

    def total(place):
        return np.linalg.norm(points - place, axis=1).sum()

    for step in 1e-3 * np.vstack([np.eye(3), -np.eye(3)]):
        assert total(median) <= total(median + step)


@quiet
def test_median_ignores_a_bad_batch():
    rng = np.random.default_rng(13)
    batches = [{"theta": rng.normal(size=(1, 1000, 2))} for _ in range(7)]
    batches.append({"theta": rng.normal(50, 1, size=(1, 1000, 2))})
    made = rows(az_swiss.merge(batches, method="median", random_seed=0, kind="inflated"))
    # an eighth of the draws would come from the bad batch if it counted like the others
    assert np.mean(made[:, 0] > 25) < 0.03
    pooled = rows(az_swiss.merge(batches, method="pool", kind="inflated"))
    assert np.mean(pooled[:, 0] > 25) == 0.125

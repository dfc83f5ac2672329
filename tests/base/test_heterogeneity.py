import warnings

import numpy as np
import pytest
from scipy.stats import chi2, ttest_ind

import arviz_swiss as az_swiss
from arviz_swiss.base import heterogeneity, linalg
from arviz_swiss.base.gaussian import Moments, pool
from arviz_swiss.base.heterogeneity import (
    batch_heterogeneity,
    cochran,
    fairness,
    name_disagreeing,
    scores,
    standing_apart,
)

MANY = 10**9


def moments(means, covariance=None, effective=MANY):
    size = len(means[0])
    covariance = np.eye(size) if covariance is None else covariance
    return [
        Moments(np.asarray(mean, float), covariance, np.linalg.inv(covariance), 1000, effective)
        for mean in means
    ]


def scattered(rng, batches, size):
    """Means as a random partition scatters those of inflated batches with unit covariance."""
    return np.sqrt(batches) * rng.standard_normal((batches, size))


@pytest.mark.parametrize("count", [3, 4, 20])
@pytest.mark.parametrize("size", [1, 5])
def test_one_batch_far_off_is_named_and_no_other(count, size):
    """Also with few batches, where it pulls the pooled mean away from the others."""
    rng = np.random.default_rng(count)
    for _ in range(20):
        means = scattered(rng, count, size)
        means[1] += 15 * np.sqrt(count)
        assert name_disagreeing(moments(means), np.full(count, float(count))).named == [1]


def test_batches_of_a_random_partition_are_rarely_named():
    """Each of two tests has a false alarm rate of at most 1%: 4% of 400 is four standard errors."""
    rng = np.random.default_rng(0)
    powers = np.full(10, 10.0)
    named = [name_disagreeing(moments(scattered(rng, 10, 3)), powers).named for _ in range(400)]
    assert np.mean([bool(one) for one in named]) < 0.04


def test_of_two_batches_both_are_named():
    assert name_disagreeing(moments([[0.0], [30.0]]), np.array([2.0, 2.0])).named == [0, 1]


@pytest.mark.parametrize("count", [3, 4, 6, 9, 20])
def test_of_batches_that_all_disagree_none_is_named(count):
    means = 30.0 * np.sqrt(count) * np.arange(count)[:, None]
    found = name_disagreeing(moments(means), np.full(count, float(count)))
    assert found.named == []
    assert {0, count - 1} <= set(found.worst)
    assert len(found.worst) <= 5
    assert found.rest_pvalue < 1e-6
    assert found.parameter_pvalue.max() < 1e-6


@pytest.mark.parametrize(("bad", "count"), [(2, 6), (6, 20), (12, 100), (40, 200)])
def test_up_to_a_third_are_named_and_no_other(bad, count):
    rng = np.random.default_rng(bad)
    means = np.sqrt(3 * count) * rng.uniform(-1, 1, (count, 2))
    means[3 : 3 + bad] += np.sqrt(count) * rng.uniform(15, 20, (bad, 2))
    found = name_disagreeing(moments(means), np.full(count, float(count)))
    assert sorted(found.named) == list(range(3, 3 + bad))
    assert found.worst == []
    assert found.rest_pvalue > 1e-3


def test_a_batch_so_far_off_that_all_pvalues_are_zero_is_named_and_no_other():
    means = scattered(np.random.default_rng(0), 20, 3)
    means[7] += 1e4
    assert name_disagreeing(moments(means), np.full(20, 20.0)).named == [7]


def test_batches_aside_are_not_compared_with():
    means = np.zeros((6, 2))
    means[2] = 100.0
    found = name_disagreeing(moments(means), np.full(6, 6.0), aside={2})
    assert found.named == []
    assert found.rest_pvalue == pytest.approx(1.0)


def test_a_batch_stands_apart_where_others_agree_too_well():
    """Ten sds are nothing beside the scatter of 20 batch means, but much beside what is seen."""
    rng = np.random.default_rng(0)
    means = 0.05 * rng.standard_normal((20, 3))
    means[4] += 10
    batches, powers = moments(means), np.full(20, 20.0)
    pooled = pool(batches, 1 / powers)
    spectra = [linalg.spectrum(pooled.factor, one.covariance) for one in batches]
    _, pvalues = batch_heterogeneity(scores(batches, pooled, spectra, powers), fairness(batches))
    assert pvalues.min() > 1e-4
    assert name_disagreeing(batches, powers).named == [4]
    means[4] -= 9.5
    assert name_disagreeing(moments(means), powers).named == [], "half an sd is not material"


def test_standing_apart_is_a_t_test_against_the_others():
    rng = np.random.default_rng(0)
    means = 5 * rng.standard_normal((8, 1))
    pvalues = standing_apart(moments(means), np.ones(8))
    for b in range(8):
        if abs(means[b, 0] - np.median(means)) > 3:
            others = np.delete(means[:, 0], b)
            expected = ttest_ind([means[b, 0]], others).pvalue
            np.testing.assert_allclose(pvalues[b], expected)
        else:
            assert pvalues[b] == 1.0


def test_cochran_is_its_definition_and_finds_one_parameter_among_quiet_ones():
    rng = np.random.default_rng(0)
    means = 0.1 * rng.standard_normal((20, 5))
    means[:10, 0] += 5.0
    means[10:, 0] -= 5.0
    variances, powers = rng.uniform(0.5, 2.0, (20, 5)), rng.uniform(5, 10, 20)
    q, pvalue = cochran(means, variances, powers)
    weights = 1 / (powers * variances[:, 0])
    centre = np.average(means[:, 0], weights=weights)
    np.testing.assert_allclose(q[0], np.sum(weights * (means[:, 0] - centre) ** 2))
    np.testing.assert_allclose(pvalue[0], chi2.sf(q[0], 19))
    assert pvalue[0] < 1e-3
    assert pvalue[1:].min() > 0.5


def test_fairness_takes_back_what_few_draws_add():
    """The mean of x' S^-1 x is (n - 1) / (n - d - 2) times too large."""
    few = moments(np.zeros((2, 10)), effective=50)
    np.testing.assert_allclose(fairness(few), 38 / 49)
    np.testing.assert_allclose(fairness(few, stands_for=2.0), 19 / 49)
    np.testing.assert_allclose(fairness(moments(np.zeros((2, 10)))), 1.0, rtol=1e-6)


def test_a_strong_prior_that_was_subtracted_is_no_disagreement():
    rng = np.random.default_rng(8)
    count, size, information = 10, 5, 30.0
    for _ in range(20):
        means = rng.standard_normal((count, 1, 1, size)) / (information + 1)
        draws = means + rng.standard_normal((count, 4, 500, size)) / np.sqrt(information + 1)
        prior = rng.standard_normal((1, 20_000, size)) / np.sqrt(information)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            merged = az_swiss.merge(
                [{"b": batch} for batch in draws], kind="full_prior", prior={"b": prior}
            )
        assert not [one for one in caught if "disagree" in str(one.message)]
        assert float(merged["swiss_diagnostics"]["q_pvalue"]) > 1e-3


@pytest.mark.parametrize(("bad", "count"), [(30, 200), (60, 400), (190, 400)])
def test_of_many_that_are_hardly_off_all_are_named_in_few_rounds(bad, count, monkeypatch):
    """As often as the rest are pooled again, every batch's covariance is decomposed."""
    rng = np.random.default_rng(bad)
    means = np.sqrt(count) * rng.uniform(-1, 1, (count, 3))
    # near enough to the others that none is clearly off the median
    means[:bad, 0] += np.sqrt(count) * rng.uniform(8.0, 8.5, bad) * rng.choice([-1, 1], bad)
    monkeypatch.setattr(heterogeneity, "CLEAR", 100.0)
    decomposed, spectrum = [], linalg.spectrum
    monkeypatch.setattr(linalg, "spectrum", lambda *each: decomposed.append(1) or spectrum(*each))
    found = name_disagreeing(moments(means), np.full(count, float(count)))
    assert sorted(found.named) == (list(range(bad)) if bad < count / 3 else [])
    assert count < len(decomposed) < 10 * count

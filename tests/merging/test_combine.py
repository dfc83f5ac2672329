"""From maps to merged draws."""

import numpy as np
import pytest
from merged_groups import group

import arviz_swiss as az_swiss
from arviz_swiss import MergeWarning, methods
from arviz_swiss.base import linalg
from arviz_swiss.base.gaussian import Moments
from arviz_swiss.merging.combine import pool_batches, rescale, rescaled_maps, variance_factors
from arviz_swiss.merging.powers import Powers

pytestmark = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")


def theta(draws):
    return [{"theta": values} for values in draws]


def test_unequal_draws_and_chains(random_batches, exact_draws):
    rng = np.random.default_rng(0)
    batches = theta(
        [
            exact_draws(rng, np.zeros(2), np.eye(2), chains=chains, draws=draws)
            for chains, draws in [(2, 100), (3, 60), (1, 200)]
        ]
    )
    with pytest.warns(MergeWarning, match="60 to 200 draws a chain"):
        merged = az_swiss.merge(batches, kind="inflated")
    assert dict(group(merged).sizes) == {"chain": 6, "draw": 60, "theta_dim_0": 2}
    assert group(merged)["batch"].values.tolist() == ["b0", "b0", "b1", "b1", "b1", "b2"]
    np.testing.assert_allclose(group(merged, "swiss_transform")["pooled_mean"], 0, atol=1e-12)
    assert group(merged, "swiss_transform")["draws"].values.tolist() == [200, 180, 200]


def test_the_finest_dtype_of_all_batches_is_kept():
    rng = np.random.default_rng(0)
    draws = [1e6 + rng.standard_normal((2, 200)) for _ in range(2)]
    first = {"mu": draws[0].astype(np.float32), "fixed": np.full((2, 200), 0.1, np.float32)}
    second = {"mu": draws[1], "fixed": np.full((2, 200), 0.1)}
    merged = az_swiss.merge([first, second], kind="inflated")
    assert group(merged)["mu"].dtype == float
    back = group(az_swiss.subposteriors(merged)["b1"])
    np.testing.assert_allclose(back["mu"], draws[1], rtol=0, atol=1e-8)


def test_order_of_batches_changes_only_the_order(random_batches):
    batches = dict(zip("pqrs", random_batches(np.random.default_rng(0)), strict=True))
    order = ["r", "p", "s", "q"]
    straight = group(az_swiss.merge(batches, kind="inflated"))
    shuffled = group(az_swiss.merge({label: batches[label] for label in order}, kind="inflated"))
    for label in order:
        np.testing.assert_allclose(
            shuffled["theta"].values[shuffled.batch == label],
            straight["theta"].values[straight.batch == label],
            atol=1e-12,
        )


def moments_of(rng, count=3, size=2):
    rows = [
        rng.standard_normal((200, size)) @ rng.standard_normal((size, size)) for _ in "x" * count
    ]
    return [
        Moments(draws.mean(axis=0), np.cov(draws.T), np.linalg.inv(np.cov(draws.T)), 200, 200.0)
        for draws in rows
    ]


def powers_of(likelihood, prior, kind):
    return Powers(np.array(likelihood, float), np.array(prior, float), kind)


@pytest.mark.parametrize(
    ("method", "powers", "factors"),
    [
        ("swiss", powers_of([3] * 3, [1] * 3, "inflated"), None),
        ("swiss", powers_of([1] * 3, [1 / 3] * 3, "fractionated"), [1 / 3] * 3),
        ("consensus", powers_of([2, 4, 4], [1] * 3, "inflated"), [2, 4, 4]),
        ("consensus", powers_of([1] * 3, [1 / 3] * 3, "fractionated"), None),
    ],
)
def test_draws_are_rescaled_to_the_kind_that_the_method_expects(method, powers, factors):
    found = variance_factors(methods.find(method), powers)
    assert (found is None) == (factors is None)
    if factors is not None:
        np.testing.assert_allclose(found, factors)


def test_a_method_that_does_not_pool_cannot_mend_the_prior():
    with pytest.raises(ValueError, match='method "recentre" takes the batches as they are'):
        variance_factors(methods.find("recentre"), powers_of([1] * 3, [1] * 3, "full_prior"))


def test_rescaled_batches_pool_to_the_same():
    """The factor cancels: a batch that is wider by it counts for as much more."""
    moments, factors = moments_of(np.random.default_rng(0)), np.array([2.0, 3.0, 5.0])
    powers = powers_of([2, 4, 4], [1] * 3, "inflated")
    pooled = pool_batches(moments, powers, None)
    spectra = [linalg.spectrum(pooled.factor, own.covariance) for own in moments]
    given = rescale(moments, pooled, spectra, powers.weights, factors)
    np.testing.assert_allclose(given.weights.sum(), 1.0)
    again = powers._replace(likelihood=powers.likelihood / factors, prior=1 / factors)
    np.testing.assert_allclose(
        pool_batches(given.moments, again, None).precision, pooled.precision, rtol=1e-12
    )
    for own, spectrum in zip(given.moments, given.spectra, strict=True):
        values = np.linalg.eigvalsh(pooled.factor.T @ own.covariance @ pooled.factor)
        np.testing.assert_allclose(np.sort(spectrum.values), values)
        np.testing.assert_allclose(own.precision, np.linalg.inv(own.covariance))


def test_maps_of_rescaled_draws_take_the_draws_as_they_are():
    rng = np.random.default_rng(1)
    affine = linalg.AffineMap(rng.standard_normal((2, 2)), np.ones(2), np.zeros(2))
    draws = rng.standard_normal((5, 2))
    (as_sampled,) = rescaled_maps([affine], np.array([4.0]))
    wider = affine.source + 2 * (draws - affine.source)
    np.testing.assert_allclose(
        (draws - as_sampled.source) @ as_sampled.scale.T, (wider - affine.source) @ affine.scale.T
    )


def test_a_prior_that_outweighs_the_batches_is_refused():
    moments = moments_of(np.random.default_rng(2))
    heavy = moments[0]._replace(precision=1e3 * moments[0].precision)
    with pytest.raises(ValueError, match="the prior, subtracted 2 times, outweighs"):
        pool_batches(moments, powers_of([1] * 3, [1] * 3, "full_prior"), heavy)

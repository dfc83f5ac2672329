import numpy as np
import pytest
import xarray as xr
from certify_cases import Normal, normal_case
from scipy import stats

import arviz_swiss as az_swiss
from arviz_swiss.data import containers

QUIET = {"progressbar": False}


def reweighed(merged, densities, **options):
    return az_swiss.reweigh(merged, densities, random_seed=1, **QUIET, **options)


def pooled(batches=3, size=2, shape=(2, 1000), seed=0):
    rng = np.random.default_rng(seed)
    densities = [Normal(rng.normal(0, 0.5, size), 1.0, 2.0) for _ in range(batches)]
    draws = [{"x": one.draw(rng, batches, 1.0, shape)} for one in densities]
    return az_swiss.merge(draws, method="pool", kind="inflated"), densities


def exact(densities):
    """Return mean and sd of the posterior of normal densities with one prior."""
    precision = len(densities) + 1 / densities[0].prior_sd ** 2
    return sum(one.centre for one in densities) / precision, precision**-0.5


@pytest.mark.parametrize("laplace", [0, 3000])
def test_gaussian_batches_are_weighed_to_their_posterior(laplace):
    merged, densities = pooled()
    result = reweighed(merged, densities, draws=6000, laplace=laplace)
    mean, sd = exact(densities)
    record = result["swiss_reweighed"]
    white = (result["posterior"]["x"].values.reshape(-1, 2) - mean) / sd
    count = float(record["effective_size"])
    assert count > (1000 if not laplace else 3000)
    # resampling adds to the noise of the weights what systematic resampling leaves
    assert count * np.sum(white.mean(axis=0) ** 2) < 2 * stats.chi2.ppf(1 - 1e-4, 2)
    assert np.abs(white.std(axis=0) - 1).max() < 4 / np.sqrt(count)
    assert int(record["weighed"]) == 6000 + laplace and int(record["laplace"]) == laplace
    assert bool(record["laplace_share"] > 0) == bool(laplace)


def test_laplace_draws_of_a_gaussian_posterior_have_all_the_same_weight():
    """The mixture's only part that covers the posterior is the posterior itself."""
    rng = np.random.default_rng(2)
    densities = [Normal([place], 1.0) for place in (-60.0, 60.0)]
    draws = [{"x": one.draw(rng, 2.0, 1.0, (2, 500))} for one in densities]
    with pytest.warns(az_swiss.MergeWarning):
        merged = az_swiss.merge(draws, method="pool", kind="inflated")
    with pytest.warns(az_swiss.MergeWarning, match="do not cover the posterior"):
        alone = reweighed(merged, densities)
    assert float(alone["posterior"]["x"].std()) > 20
    result = reweighed(merged, densities, laplace=400)
    record = result["swiss_reweighed"]
    np.testing.assert_allclose(record["laplace_share"], 1.0, rtol=1e-9)
    np.testing.assert_allclose(record["effective_size"], 400, rtol=1e-6)
    assert abs(float(result["posterior"]["x"].mean())) < 4 * np.sqrt(0.5 / 400)


class Counts:
    """A Poisson rate with an exponential prior, on the log scale."""

    def __init__(self, total, size):
        self.total, self.size = total, size

    def log_prior(self, x):
        return x[:, 0] - np.exp(x[:, 0])

    def log_likelihood(self, x):
        return self.total * x[:, 0] - self.size * np.exp(x[:, 0])

    def grad_log_prior(self, x):
        return 1 - np.exp(x)

    def grad_log_likelihood(self, x):
        return self.total - self.size * np.exp(x)


@pytest.mark.parametrize("method", ["pool", "swiss"])
@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_a_skewed_posterior_is_that_of_quadrature(method):
    rng, totals = np.random.default_rng(3), (1, 0, 2, 1)
    densities = [Counts(total, 0.5) for total in totals]
    draws = [
        {"rate": rng.gamma(1 + 4 * one.total, 1 / (1 + 4 * one.size), size=(2, 1000))}
        for one in densities
    ]
    options = {"kind": "inflated", "transforms": {"rate": "log"}}
    merged = az_swiss.merge(draws, method=method, **options)
    result = reweighed(merged, densities, draws=8000)
    # on a grid of the logarithm, prior and Jacobian included
    grid = np.linspace(-8, 4, 20001)
    logs = densities[0].log_prior(grid[:, None]) + sum(
        one.log_likelihood(grid[:, None]) for one in densities
    )
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    found = result["posterior"]["rate"].values.ravel()
    count = float(result["swiss_reweighed"]["effective_size"])
    for power, worth in ((1, 1), (2, 1), (3, 1)):
        expected = weights @ np.exp(power * grid)
        spread = np.sqrt(weights @ np.exp(2 * power * grid) - expected**2)
        assert abs(np.mean(found**power) - expected) < 5 * spread * worth / np.sqrt(count)
    images = result["unconstrained_posterior"]["rate"].values
    np.testing.assert_allclose(np.log(result["posterior"]["rate"].values), images, rtol=1e-12)


def test_moved_draws_are_weighed_where_they_were():
    merged, densities = pooled()
    draws = list(az_swiss.subposteriors(merged).values())
    moved = az_swiss.merge(draws, kind="inflated")
    first, other = (reweighed(each, densities, draws=3000) for each in (merged, moved))
    np.testing.assert_allclose(first["posterior"]["x"], other["posterior"]["x"], atol=1e-9)


def test_the_result_is_an_ordinary_posterior(to_container, tmp_path):
    rng = np.random.default_rng(4)
    densities = [Normal([place], 1.0, 2.0) for place in (-0.3, 0.4)]
    batches = [
        to_container(
            xr.Dataset(
                {
                    "x": (("chain", "draw", "place"), one.draw(rng, 2.0, 1.0, (2, 500))),
                    "fixed": (("chain", "draw"), np.full((2, 500), 3.0)),
                },
                coords={"place": ["a"]},
            ),
            observed_data={"y": np.zeros(3)},
        )
        for one in densities
    ]
    merged = az_swiss.merge(batches, method="pool", kind="inflated")
    result = reweighed(merged, densities, draws=1000)
    posterior = result["posterior"]
    assert dict(posterior.sizes) == {"chain": 4, "draw": 250, "place": 1}
    assert posterior["place"].values.tolist() == ["a"]
    assert (posterior["fixed"].values == 3.0).all()
    assert (
        "batch" not in posterior.coords and "swiss_transform" not in containers.read(result).groups
    )
    assert posterior.attrs["swiss_resampled"].startswith("reweighed: k-hat")
    result.to_netcdf(tmp_path / "result.nc")
    again = reweighed(merged, densities, draws=1000)
    np.testing.assert_array_equal(again["posterior"]["x"], posterior["x"])
    with pytest.raises(ValueError, match="itself a merged posterior"):
        az_swiss.merge([result, again])


def test_what_cannot_be_weighed_is_refused():
    merged, densities = pooled()
    with pytest.raises(ValueError, match="draws"):
        reweighed(merged, densities, draws=3)
    with pytest.raises(ValueError, match="laplace"):
        reweighed(merged, densities, laplace=-5)
    draws = list(az_swiss.subposteriors(merged).values())
    made = az_swiss.merge(draws, method="gaussian", kind="inflated", random_seed=0)
    with pytest.raises(ValueError, match='method="pool"'):
        reweighed(made, densities)

    class Edge(Normal):
        def log_likelihood(self, x):
            return np.where(x[:, 0] > 0, super().log_likelihood(x), -np.inf)

    edged = [Edge(one.centre, one.sd, one.prior_sd) for one in densities]
    with pytest.raises(ValueError, match='"b0": some of its own draws have no density'):
        reweighed(merged, edged)

    class Flat(Normal):
        def grad_log_likelihood(self, x):
            return 0 * x + 5.0

    flat = [Flat(one.centre, one.sd, np.inf) for one in densities]
    with pytest.raises(ValueError, match="no mode of the full posterior"):
        reweighed(merged, flat, laplace=100)


def test_log_densities_are_those_that_batches_were_sampled_from():
    merged, densities = normal_case("fractionated", batches=3)
    known = az_swiss.log_densities(merged, densities, **QUIET)
    assert list(known) == ["b0", "b1", "b2"]
    for density, (label, own) in zip(
        densities, az_swiss.subposteriors(merged).items(), strict=True
    ):
        points = own["posterior"]["x"].values.reshape(-1, 3)
        expected = density.log_likelihood(points) + density.log_prior(points) / 3
        np.testing.assert_allclose(known[label].values.ravel(), expected, atol=1e-9)
        assert known[label].dims == ("chain", "draw")


def test_a_product_of_interpolated_densities_is_certified_by_its_own_density():
    merged, densities = normal_case("fractionated")
    draws = list(az_swiss.subposteriors(merged).values())
    known = az_swiss.log_densities(merged, densities, **QUIET)
    options = {"method": "gaussian_process", "kind": "fractionated", "random_seed": 1}
    made = az_swiss.merge(draws, log_densities=known, **options)
    certified = az_swiss.certify(made, densities, random_seed=1, **QUIET)
    certificate = certified["swiss_certificate"]
    assert certificate.attrs["status"] == "certified"
    np.testing.assert_allclose(certificate["log_ratio"], 0.0, atol=1e-6)
    # one density of all rows does as well, and weights of another target move the draws
    shifted = [Normal(one.centre + 0.2, one.sd, one.prior_sd) for one in densities]
    with pytest.warns(az_swiss.MergeWarning):
        other = az_swiss.certify(made, shifted, random_seed=1, **QUIET)
    mean, sd = exact(shifted)
    off = (other["swiss_certificate"]["mean"].values - mean) / sd
    assert np.abs(off).max() < 5 / np.sqrt(float(other["swiss_certificate"]["effective_size"]))
    assert np.abs(other["swiss_certificate"]["mean_shift"].values).min() > 0.2


def test_reports_are_of_merged_objects_alone():
    merged, densities = pooled()
    with pytest.raises(ValueError, match=r"made by reweigh, and are ordinary ones"):
        az_swiss.report(reweighed(merged, densities))

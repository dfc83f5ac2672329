import numpy as np
import pytest
import xarray as xr
from certify_cases import Normal, normal_case

import arviz_swiss as az_swiss
from arviz_swiss.data import containers

QUIET = {"progressbar": False, "random_seed": 1}


def with_pilot(merged, mean, covariance, how="Laplace"):
    contents = containers.read(merged)
    names = contents.groups["swiss_transform"]["parameter"].values
    pilot = xr.Dataset(
        {
            "mean": ("parameter", np.asarray(mean, float)),
            "covariance": (("parameter", "parameter_bis"), np.asarray(covariance, float)),
        },
        coords={"parameter": names, "parameter_bis": names},
        attrs={"how": how},
    )
    return containers.build({**contents.groups, "swiss_pilot": pilot}, contents.container)


def exact_moments(densities):
    precision = sum(one.sd**-2 for one in densities) + densities[0].prior_sd ** -2
    return sum(one.centre / one.sd**2 for one in densities) / precision, np.eye(3) / precision


def certified_with(stretch, draws=1000, move=lambda pilot: pilot):
    """Certify a Gaussian case beside a pilot of the exact mean and so many times the sds."""
    merged, densities = normal_case()
    mean, covariance = exact_moments(densities)
    pilot = move(with_pilot(merged, mean, stretch**2 * covariance))
    return az_swiss.certify(pilot, densities, draws=draws, **QUIET)


def test_an_exact_pilot_has_equal_weights():
    certified = certified_with(1.0)
    certificate = certified["swiss_certificate"]
    assert certificate["pilot_draws"] == 250
    assert certificate["pilot_khat"] == 0
    assert certificate["pilot_effective_size"].item() == pytest.approx(250)
    assert (
        "The pilot's Gaussian alone (Laplace) would have done as well: k-hat 0.00, 100% of its "
        "draws effective"
    ) in str(az_swiss.report(certified))


def test_a_wide_pilot_has_the_effective_draws_of_theory():
    stretch = 1.3
    found = certified_with(stretch, draws=4000)["swiss_certificate"]
    # of normal draws for a normal target, in each of three directions
    share = (np.sqrt(2 * stretch**2 - 1) / stretch**2) ** 3
    z = np.random.default_rng(0).standard_normal((10**5, 3))
    weights = np.exp(np.sum(z**2, axis=1) * (1 - stretch**2) / 2) * stretch**3
    influence = share * (2 * (weights - 1) - (weights**2 * share - 1))
    error = influence.std() / np.sqrt(1000)
    assert found["pilot_draws"] == 1000
    assert abs(found["pilot_effective_size"] / 1000 - share) < 4 * error
    assert found["pilot_khat"] < 0.5


def test_the_pilot_goes_by_label():
    def turned(merged):
        contents = containers.read(merged)
        pilot = contents.groups["swiss_pilot"].isel(parameter=[2, 0, 1]).transpose()
        return containers.build({**contents.groups, "swiss_pilot": pilot}, contents.container)

    certificate = certified_with(1.0, move=turned)["swiss_certificate"]
    assert certificate["pilot_effective_size"].item() == pytest.approx(250)


def test_without_a_pilot_nothing_is_said():
    merged, densities = normal_case()
    certified = az_swiss.certify(merged, densities, **QUIET)
    assert not [name for name in certified["swiss_certificate"].data_vars if "pilot" in str(name)]
    assert "pilot" not in str(az_swiss.report(certified))


class Exponential:
    """Of so many logarithms of exponential variables, a part of the whole likelihood."""

    def __init__(self, share):
        self.share = share

    def log_prior(self, x):
        return np.zeros(len(x))

    def grad_log_prior(self, x):
        return np.zeros_like(x)

    def log_likelihood(self, x):
        return self.share * np.sum(x - np.exp(x), axis=1)

    def grad_log_likelihood(self, x):
        return self.share * (1 - np.exp(x))


def test_a_skewed_posterior_is_not_the_pilots():
    rng, size = np.random.default_rng(0), 8
    densities = [Exponential(0.5), Exponential(0.5)]
    # with two batches of power two, each has the shape of the full posterior
    draws = [{"x": np.log(rng.exponential(size=(4, 1000, size)))} for _ in densities]
    merged = with_pilot(az_swiss.merge(draws, kind="inflated"), np.zeros(size), np.eye(size))
    certified = az_swiss.certify(merged, densities, **QUIET)
    certificate = certified["swiss_certificate"]
    assert certificate["khat"] < 0.5
    assert certificate["pilot_khat"] > 0.7
    assert certificate["pilot_effective_size"] < 0.2 * certificate["pilot_draws"]
    assert "The pilot's Gaussian alone (Laplace) would not have done: k-hat" in str(
        az_swiss.report(certified)
    )


class Counting(Normal):
    def __init__(self, *args):
        super().__init__(*args)
        self.points = 0

    def log_likelihood(self, x):
        self.points += len(x)
        return super().log_likelihood(x)


def test_the_pilot_costs_a_quarter_of_the_draws():
    merged, densities = normal_case()
    mean, covariance = exact_moments(densities)
    counted = [Counting(one.centre, one.sd, one.prior_sd) for one in densities]
    az_swiss.certify(with_pilot(merged, mean, covariance), counted, draws=800, **QUIET)
    # as merged, moved back to the batch, and of the pilot
    assert [one.points for one in counted] == [800 + 800 + 200] * 4


@pytest.mark.parametrize("outside", [-np.inf, np.nan])
def test_draws_without_a_density_count_for_nothing(outside):
    class Half(Normal):
        def log_likelihood(self, x):
            # 50 sds of the posterior away, where no merged draw is
            return np.where(x[:, 0] < 25, super().log_likelihood(x), outside)

    merged, densities = normal_case()
    mean, covariance = exact_moments(densities)
    far = covariance.copy()
    far[0, 0] *= 100.0**2
    halves = [Half(one.centre, one.sd, one.prior_sd) for one in densities]
    certificate = az_swiss.certify(with_pilot(merged, mean, far), halves, **QUIET)[
        "swiss_certificate"
    ]
    assert certificate.attrs["status"] == "certified"
    # in this direction alone one in a hundred draws is near the posterior
    assert 0 < certificate["pilot_effective_size"] < 0.05 * certificate["pilot_draws"]


def test_refine_keeps_the_pilot():
    merged, densities = normal_case()
    mean, covariance = exact_moments(densities)
    refined = az_swiss.refine(with_pilot(merged, mean, covariance), densities, **QUIET)
    np.testing.assert_array_equal(refined["swiss_pilot"]["mean"], mean)
    assert refined["swiss_pilot"].attrs["how"] == "Laplace"
    certificate = az_swiss.certify(refined, densities, **QUIET)["swiss_certificate"]
    assert certificate["pilot_effective_size"].item() == pytest.approx(250)

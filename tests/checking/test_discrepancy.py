"""discrepancy(): the measures are what they are defined as, and the floors what chance gives."""

import numpy as np
import pytest
import xarray as xr
from arviz_density import kde
from scipy import stats
from scipy.spatial.distance import mahalanobis

import arviz_swiss as az_swiss
from arviz_swiss.base import distances
from arviz_swiss.checking.discrepancy import MEASURES


def autoregressive(rng, shape, correlation):
    noise = rng.normal(size=shape)
    chain = np.empty(shape)
    chain[:, 0] = noise[:, 0]
    for step in range(1, shape[1]):
        chain[:, step] = correlation * chain[:, step - 1]
        chain[:, step] += np.sqrt(1 - correlation**2) * noise[:, step]
    return chain


SAMPLERS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "gamma": lambda rng, shape: rng.gamma(2, 1, size=shape),
    "bimodal": lambda rng, shape: rng.normal(size=shape) + 4 * rng.integers(2, size=shape),
    "autoregressive": lambda rng, shape: autoregressive(rng, shape, 0.6),
}


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_noise_floors_are_what_chance_gives(sampler):
    # 40 pairs: means over six parameters have a relative standard error of about
    # .756 / sqrt(6 * 40) = .05, and so has the length of a vector of six
    rng, ratios = np.random.default_rng(0), []
    for _ in range(40):
        result = az_swiss.discrepancy(
            {"x": SAMPLERS[sampler](rng, (1, 1000, 6))}, {"x": SAMPLERS[sampler](rng, (2, 1000, 6))}
        )
        ratios.append([[float(result[m]), float(result[f"{m}_floor"])] for m in MEASURES])
    measured, floor = np.mean(ratios, axis=0).T
    np.testing.assert_allclose(measured / floor, 1, atol=0.2)


@pytest.mark.parametrize(("size", "count"), [(1, 400), (20, 120)])
def test_floors_of_means_and_covariances_of_few_skewed_draws(size, count):
    # 300 pairs: relative standard errors of .756 / sqrt(300 size) = .044 and .010; and skewed draws
    # are not quite Gaussian
    rng, pairs, variance = np.random.default_rng(14), [], 2 / count
    for _ in range(300):
        sample, reference = rng.gamma(2, 1, size=(2, count, size))
        whitening = distances.whiten(reference)
        whitened = (reference - whitening.mean) @ whitening.matrix
        pairs.append(
            [
                distances.mahalanobis(sample, whitening),
                distances.mahalanobis_floor(variance, size, count),
                distances.covariance_error(sample, whitening) if size == 1 else 1.0,
                distances.covariance_floor(variance, whitened) if size == 1 else 1.0,
            ]
        )
    distance, floor, error, error_floor = np.mean(pairs, axis=0)
    assert abs(distance / floor - 1) < 4 * 0.044 / np.sqrt(size) + 0.02
    assert abs(error / error_floor - 1) < 4 * 0.044


def test_floors_by_parameter_are_what_chance_gives():
    rng, ratios = np.random.default_rng(1), []
    for _ in range(4):
        result = az_swiss.discrepancy(
            {"x": rng.normal(size=(2, 500, 30))}, {"x": rng.gamma(2, 1, size=(2, 500, 30))}
        )
        same = az_swiss.discrepancy(
            {"x": rng.gamma(2, 1, size=(2, 500, 30))}, {"x": rng.gamma(2, 1, size=(2, 500, 30))}
        )
        ratios.append(
            [
                [
                    float(same[f"{m}_by_parameter"].mean()),
                    float(r[f"{m}_by_parameter_floor"].mean()),
                ]
                for m in MEASURES
                for r in (same, result)
            ]
        )
    # 120 parameters: a relative standard error of .756 / sqrt(120) = .07. The floor is that of the
    # reference's distribution, also when the other sample comes from another one.
    measured, floor = np.mean(ratios, axis=0).T
    np.testing.assert_allclose(measured / floor, 1, atol=0.2)


def test_measures_equal_their_definitions():
    rng = np.random.default_rng(2)
    sample = rng.gamma(3, 1, size=(2, 400, 3)) @ rng.normal(size=(3, 3))
    reference = rng.normal(size=(4, 250, 3)) @ rng.normal(size=(3, 3))
    result = az_swiss.discrepancy({"x": sample}, {"x": reference})
    first, second = sample.reshape(-1, 3), reference.reshape(-1, 3)
    covariance = np.cov(second.T)
    np.testing.assert_allclose(
        result["mahalanobis"],
        mahalanobis(first.mean(axis=0), second.mean(axis=0), np.linalg.inv(covariance)),
    )
    skews = np.abs(stats.skew(first) - stats.skew(second))
    np.testing.assert_allclose(result["skew_by_parameter"], skews)
    np.testing.assert_allclose(result["skew"], skews.mean())
    spread = second.std(axis=0, ddof=1)
    np.testing.assert_allclose(
        result["wasserstein_by_parameter"],
        [stats.wasserstein_distance(*pair) for pair in zip(first.T, second.T, strict=True)]
        / spread,
    )
    root = np.linalg.cholesky(np.linalg.inv(covariance))
    excess = root.T @ np.cov(first.T) @ root - np.eye(3)
    np.testing.assert_allclose(result["covariance_error"], np.linalg.norm(excess) / np.sqrt(3))
    np.testing.assert_allclose(result["iad"], result["iad_by_parameter"].mean())


@pytest.mark.parametrize("shift", [0.1, 0.5, 2.0])
def test_iad_of_shifted_normals_is_their_total_variation(shift):
    rng = np.random.default_rng(3)
    result = az_swiss.discrepancy(
        {"x": rng.normal(shift, 1, size=(4, 10_000))}, {"x": rng.normal(size=(4, 10_000))}
    )
    # smoothing by h widens both: the sd of ArviZ's kernel is about .12 here
    low, high = (2 * stats.norm.cdf(shift / 2 / s) - 1 for s in (np.sqrt(1 + 0.15**2), 1.0))
    floor = float(result["iad_floor"])
    assert low - 2 * floor < result["iad"] < high + 2 * floor


def test_iad_of_samples_far_apart_is_one():
    rng = np.random.default_rng(4)
    result = az_swiss.discrepancy(
        {"x": rng.normal(size=(2, 500)) + 1e6}, {"x": rng.normal(size=(2, 500))}
    )
    assert result["iad"] == 1.0


def test_draws_outside_the_references_range_count_in_full():
    rng = np.random.default_rng(13)
    strayed = rng.normal(size=(2, 2000))
    strayed[0] += 1e3
    result = az_swiss.discrepancy({"x": strayed}, {"x": rng.normal(size=(2, 2000))})
    assert abs(float(result["iad"]) - 0.5) < 2 * float(result["iad_floor"])


def test_a_posterior_is_at_no_distance_from_itself():
    x = np.random.default_rng(5).normal(size=(2, 300, 3))
    result = az_swiss.discrepancy({"x": x}, {"x": x})
    for measure in MEASURES:
        assert abs(float(result[measure])) < 1e-10
        assert result[f"{measure}_floor"] > 0


def test_measures_do_not_depend_on_units():
    rng = np.random.default_rng(6)
    first, second = rng.gamma(2, 1, size=(2, 2, 400, 3))
    units, origin = np.array([1e-6, 1.0, 1e5]), np.array([3.0, -1.0, 0.0])
    plain = az_swiss.discrepancy({"x": first}, {"x": second})
    other = az_swiss.discrepancy({"x": units * (first + origin)}, {"x": units * (second + origin)})
    xr.testing.assert_allclose(plain, other, rtol=1e-5, atol=1e-8)


def test_parameters_are_matched_by_label(to_container):
    rng = np.random.default_rng(7)
    draws = xr.DataArray(
        rng.normal(size=(2, 300, 2, 3)) + np.arange(6).reshape(2, 3),
        dims=["chain", "draw", "row", "column"],
        coords={"row": ["a", "b"], "column": [1, 2, 3]},
    )
    shuffled = draws.isel(row=[1, 0], column=[2, 0, 1]).transpose("column", "draw", "row", "chain")
    merged = to_container(xr.Dataset({"m": draws}))
    reference = to_container(xr.Dataset({"z": draws.isel(row=0), "m": shuffled}))
    result = az_swiss.discrepancy(merged, reference)
    assert float(result["wasserstein"]) < 1e-10
    assert result["parameter"].values.tolist() == [f"m[{r}, {c}]" for r in "ab" for c in (1, 2, 3)]
    assert set(result["variable"].values) == {"m"}
    part = az_swiss.discrepancy(merged, reference, coords={"row": "b", "column": [1, 3]})
    assert part["parameter"].values.tolist() == ["m[b, 1]", "m[b, 3]"]
    np.testing.assert_allclose(
        part["iad_by_parameter_floor"],
        result["iad_by_parameter_floor"].sel(parameter=part.parameter),
    )


def test_var_names_and_files(to_container, tmp_path):
    rng = np.random.default_rng(8)
    data = {name: rng.normal(size=(2, 100)) for name in ("alpha", "beta_1", "beta_2")}
    to_container(data).to_netcdf(tmp_path / "reference.nc")
    result = az_swiss.discrepancy(
        data, tmp_path / "reference.nc", var_names="beta", filter_vars="like"
    )
    assert result["parameter"].values.tolist() == ["beta_1", "beta_2"]
    result.to_netcdf(tmp_path / "result.nc", engine="h5netcdf")


def test_constant_elements_and_simplices_are_no_obstacle():
    rng = np.random.default_rng(9)
    first, second = rng.dirichlet([2, 3, 4], size=(2, 2, 500))
    factors = rng.normal(size=(2, 2, 500, 2, 2))
    factors[..., 0, 1] = 0.0
    result = az_swiss.discrepancy(
        {"p": first, "chol": factors[0]}, {"p": second, "chol": factors[1]}
    )
    assert "chol[0, 1]" not in result["parameter"].values
    assert result.sizes["parameter"] == 6
    # of six parameters five vary freely: two independent directions of the simplex, three elements
    expected = distances.mahalanobis_floor(2 / 1000, 5, 1000)
    assert abs(float(result["mahalanobis_floor"]) / expected - 1) < 0.1
    assert float(result["mahalanobis"]) < 4 * expected


@pytest.mark.parametrize("far", [1e3, 1e6, 1e12])
def test_one_draw_far_out_does_not_blind_the_iad(far):
    rng = np.random.default_rng(6)
    sample, reference = {"x": rng.normal(1, 1, (4, 1000))}, {"x": rng.normal(0, 1, (4, 1000))}
    reference["x"][0, 0] = far
    result = az_swiss.discrepancy(sample, reference)
    # total variation of normals one sd apart; noise of 1 / sqrt(4000) a bandwidth
    assert float(result["iad"]) == pytest.approx(2 * stats.norm.cdf(0.5) - 1, abs=0.03)
    sample["x"][:2] = -far  # half of the mass: the densities cross where x = .5 + log(2)
    cross = 0.5 + np.log(2)
    overlap = 0.5 * stats.norm.cdf(cross, 1) + stats.norm.sf(cross)
    found = float(az_swiss.discrepancy(sample, reference)["iad"])
    assert found == pytest.approx(1 - overlap, abs=0.03)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_elements_that_are_constant_up_to_rounding_are_left_out(dtype):
    rng, samples = np.random.default_rng(7), []
    for _ in range(2):
        factor = np.linalg.cholesky(stats.wishart(9, np.eye(3)).rvs(500, random_state=rng))
        rows = factor / np.linalg.norm(factor, axis=-1, keepdims=True)
        rows *= 1 + np.finfo(float).eps * rng.integers(-2, 3, size=(500, 3, 1))
        correlation = (rows @ rows.swapaxes(1, 2)).astype(dtype)
        samples.append({"r": correlation.reshape(2, 250, 3, 3)})
    assert np.ptp(samples[0]["r"][..., 0, 0]) > 0 or dtype == np.float32
    result = az_swiss.discrepancy(*samples)
    assert len(result["parameter"]) == 6
    assert float(result["iad"]) < 3 * float(result["iad_floor"])


def test_coords_are_read_as_by_arviz():
    rng = np.random.default_rng(8)
    data = xr.Dataset(
        {
            "mu": (("chain", "draw"), rng.normal(size=(2, 200))),
            "beta": (("chain", "draw", "k"), rng.normal(size=(2, 200, 3))),
        },
        coords={"k": ["a", "b", "c"]},
    )
    part = az_swiss.discrepancy(data, data, var_names="beta", coords={"k": slice("a", "b")})
    assert part["parameter"].values.tolist() == ["beta[a]", "beta[b]"]
    assert az_swiss.discrepancy(data, data, coords={"k": "c"}).sizes["parameter"] == 2
    mu = az_swiss.discrepancy(data, data, var_names="mu", coords={"k": ["a"]})
    assert mu["parameter"].values.tolist() == ["mu"]
    with pytest.raises(ValueError, match=r"merged: coords=.* no label 'z'"):
        az_swiss.discrepancy(data, data, coords={"k": "z"})


def test_the_floor_does_not_grow_when_chains_disagree():
    rng = np.random.default_rng(10)
    reference = {"x": rng.normal(size=(4, 500))}
    apart = {"x": rng.normal(size=(4, 500)) + 5 * np.arange(4)[:, None]}
    one, other = (az_swiss.discrepancy(merged, reference) for merged in (reference, apart))
    assert other["mahalanobis_floor"] < 1.3 * one["mahalanobis_floor"]


def draws(**variables):
    return {name: np.asarray(values, dtype=float) for name, values in variables.items()}


X = np.random.default_rng(11).normal(size=(2, 50))


@pytest.mark.parametrize(
    ("merged", "reference", "options", "message"),
    [
        (draws(x=X, y=X + 1), draws(x=X), {}, "the reference has no variable y, which merged has"),
        (draws(x=X), draws(x=X), {"var_names": "z"}, "merged: var_names='z': no z"),
        (draws(x=X[:, :5]), draws(x=X), {}, "merged: 10 draws, .* needs at least 20. Draw more"),
        (draws(x=X), draws(x=X[:, :5]), {}, "reference: 10 draws"),
        (draws(x=X, y=0 * X), draws(x=X, y=0 * X), {}, 'merged: y is constant.*var_names="~y"'),
        (draws(x=X), draws(x=0 * X), {}, "reference: x is constant"),
        (draws(x=0 * X), draws(x=X), {}, "merged: x is constant"),
        (draws(x=X + np.inf), draws(x=X), {}, "merged, variable x: draws that are NaN or infinite"),
        (draws(x=X), draws(x=np.stack([X, X], -1)), {}, "variable x: dimensions"),
        (
            draws(x=np.stack([X, X, X], -1)),
            draws(x=np.stack([X, X], -1)),
            {},
            r"the reference has no x\[2\], which merged has",
        ),
        (
            draws(x=X),
            draws(x=X),
            {"coords": {"k": [1]}},
            "merged: coords name k; the dim",
        ),
        (draws(x=X), draws(x=X), {"group": "prior"}, None),
        (
            draws(x=np.ones((1, 30, 40)) * X[0, :40]),
            draws(x=np.ones((1, 30, 40)) * X[0, :40]),
            {},
            "merged: 30 draws for 40 parameters, the covariance is singular",
        ),
    ],
)
def test_bad_input_is_named(merged, reference, options, message):
    if message is None:
        assert az_swiss.discrepancy(merged, reference, **options)["iad"] == 0
        return
    with pytest.raises(ValueError, match=message):
        az_swiss.discrepancy(merged, reference, **options)


def test_missing_groups_and_unreadable_files_are_named(to_container):
    idata = to_container({"x": X})
    with pytest.raises(ValueError, match='merged has no group "prior"; its groups are: posterior'):
        az_swiss.discrepancy(idata, idata, group="prior")
    with pytest.raises(ValueError, match="reference could not be read: no file or folder"):
        az_swiss.discrepancy(idata, "nowhere.nc")


def test_densities_are_those_of_arviz():
    draws = np.random.default_rng(12).normal(size=(2000, 1))
    (density,) = distances.densities(draws)
    grid, values, bandwidth = kde(draws[:, 0])
    middle = density.low + (np.arange(density.values.size) + 0.5) * density.step
    inside = np.abs(grid) < 2
    np.testing.assert_allclose(
        np.interp(grid[inside], middle, density.values), values[inside], atol=0.01
    )
    assert density.bandwidth == pytest.approx(bandwidth, rel=1e-7)


@pytest.mark.slow
@pytest.mark.speed
def test_iad_of_a_hundred_variables_takes_less_than_five_seconds(cpu_seconds):
    (taken,) = cpu_seconds(
        """
import time
import numpy as np
import arviz_swiss as az_swiss

rng = np.random.default_rng(0)
merged, reference = ({"x": rng.normal(size=(4, 12_500, 100))} for _ in range(2))
az_swiss.discrepancy({"x": merged["x"][..., :1]}, {"x": reference["x"][..., :1]})
start = time.process_time()
az_swiss.discrepancy(merged, reference)
print(time.process_time() - start)
"""
    )
    assert taken < 5

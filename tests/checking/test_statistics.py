"""Statistics of the batches' draws: ArviZ's where it has them, and shapes."""

import warnings

import arviz
import numpy as np
import pytest
import xarray as xr

import arviz_swiss as az_swiss
from arviz_swiss.base.distances import densities, integrated_absolute
from arviz_swiss.checking.statistics import DESCRIPTIONS, draw_statistics
from arviz_swiss.data import containers
from arviz_swiss.merging.merged import open_merged

TRANSFORMS = {"sigma": "log", "p": "simplex"}


def statistics_of(merged):
    return draw_statistics(open_merged(merged, "posterior"))


def merged_statistics(batches, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        return statistics_of(az_swiss.merge(batches, **{"kind": "inflated", **options}))


@pytest.fixture(scope="module")
def batches(to_container):
    """Four batches with a vector, a positive variable, a simplex and the sampler's divergences."""
    rng = np.random.default_rng(0)
    made = {}
    for b in range(4):
        noise = rng.standard_normal((2, 302, 2))
        draws = {
            "beta": xr.DataArray(
                noise[:, 2:] + noise[:, 1:-1] + noise[:, :-2],
                dims=("chain", "draw", "side"),
                coords={"side": ["left", "right"]},
            ),
            "sigma": (("chain", "draw"), np.exp(0.1 * rng.standard_normal((2, 300)))),
            "p": (("chain", "draw", "part"), rng.dirichlet([5, 3, 2], size=(2, 300))),
        }
        diverging = np.zeros((2, 300), dtype=bool)
        diverging[0, :b] = True
        made[f"b{b}"] = to_container(xr.Dataset(draws), sample_stats={"diverging": diverging})
    return made


@pytest.fixture(scope="module")
def merged(batches):
    return az_swiss.merge(batches, transforms=TRANSFORMS, kind="inflated")


@pytest.fixture(scope="module")
def statistics(merged):
    return statistics_of(merged)


def test_the_merges_own_diagnostics_are_kept_and_the_input_stays(merged, statistics):
    own = containers.read(merged).groups["swiss_diagnostics"]
    assert "rhat" not in own
    assert set(statistics) == set(own) | set(DESCRIPTIONS) - {"rhat_nested"}  # of tilted batches
    xr.testing.assert_identical(statistics[list(own)], own)
    for name, array in statistics.items():
        assert array.attrs["description"], name


def test_convergence_is_arvizs_on_the_original_draws(batches, statistics):
    """Up to rounding, which decides the ranks of the two draws next to the median."""
    for label, batch in batches.items():
        posterior = containers.read(batch).groups["posterior"]
        for side in ("left", "right"):
            draws = posterior["beta"].sel(side=side).values
            one = statistics.sel(batch=label, parameter=f"beta[{side}]")
            np.testing.assert_allclose(one["rhat"], arviz.rhat(draws), rtol=1e-3)
            np.testing.assert_allclose(one["ess_bulk"], arviz.ess(draws, method="bulk"), rtol=1e-3)
        log_sigma = np.log(posterior["sigma"].values)
        one = statistics.sel(batch=label, parameter="sigma")
        np.testing.assert_allclose(one["rhat"], arviz.rhat(log_sigma), rtol=1e-3)
        centred = (log_sigma - log_sigma.mean()) / log_sigma.std()
        np.testing.assert_allclose(one["skewness"], np.mean(centred**3), atol=1e-8)
        np.testing.assert_allclose(one["kurtosis"], np.mean(centred**4) - 3, atol=1e-8)


def test_divergences_are_counted_by_batch(statistics):
    assert statistics["divergences"].values.tolist() == [0, 1, 2, 3]


def test_without_divergences_there_is_no_such_variable():
    rng = np.random.default_rng(0)
    batches = [{"x": rng.standard_normal((2, 100))} for _ in range(2)]
    assert "divergences" not in merged_statistics(batches)


def test_sample_is_the_draws_before_and_after(batches, merged):
    opened = open_merged(merged, "posterior")
    for position, batch in enumerate(batches.values()):
        expected = containers.read(batch).groups["posterior"]["beta"].values
        np.testing.assert_allclose(opened.before(position)[..., :2], expected, atol=1e-9)
        chains = merged["posterior"]["beta"].values[2 * position : 2 * position + 2]
        np.testing.assert_array_equal(opened.after(position)[..., :2], chains)


def test_shape_is_the_distance_from_the_other_batches(merged, statistics):
    """Against the others' own density estimate, which differs a little in bandwidth and grid."""
    opened = open_merged(merged, "posterior")
    rows = [opened.after(position).reshape(-1, 5) for position in range(4)]
    for b in range(4):
        others = densities(np.concatenate(rows[:b] + rows[b + 1 :]))
        expected = integrated_absolute(rows[b], others)
        np.testing.assert_allclose(statistics["shape"][b], expected, atol=0.01)


@pytest.mark.parametrize("method", ["pool", "recentre"])
def test_shape_is_of_shape_whatever_the_method(method):
    """Where the maps leave means and sds apart, too, they are not what shape is about."""
    rng = np.random.default_rng(0)
    batches = []
    for _ in range(6):
        draws = rng.standard_normal((2, 250, 2)) * rng.uniform(0.5, 2.0)
        batches.append({"x": draws + np.sqrt(6) * rng.standard_normal(2)})
    by_method, by_swiss = (merged_statistics(batches, method=name) for name in (method, "swiss"))
    np.testing.assert_allclose(by_method["shape"], by_swiss["shape"], atol=1e-6)
    assert float((by_method["shape"] - 2 * by_method["shape_noise"]).max()) < 0.05


def test_shape_of_equal_batches_is_its_noise_on_average():
    """Each ratio has an sd of about .2: the mean of 30 differs from one by less than .15."""
    rng = np.random.default_rng(0)
    found = merged_statistics([{"x": rng.gamma(4.0, size=(4, 250, 3))} for _ in range(10)])
    assert abs(float((found["shape"] / found["shape_noise"]).mean()) - 1) < 0.15


def test_shape_finds_what_moments_cannot():
    rng = np.random.default_rng(0)
    batches = [{"x": rng.standard_normal((4, 250))} for _ in range(6)]
    batches[3] = {"x": rng.exponential(size=(4, 250)) - 1}
    found = merged_statistics(batches)
    beyond = (found["shape"] - 2 * found["shape_noise"]).values[:, 0]
    assert beyond[3] > 0.1
    assert np.delete(beyond, 3).max() < 0.02


def test_a_bimodal_batch_does_not_spoil_the_shape_of_the_others():
    rng = np.random.default_rng(0)
    batches = [{"x": rng.standard_normal((4, 250))} for _ in range(3)]
    batches[1] = {"x": rng.standard_normal((4, 250)) + 8 * rng.integers(0, 2, (4, 250))}
    found = merged_statistics(batches)
    assert float(found["valley"][1, 0]) > 0.9
    assert float(found["shape"][1, 0]) > 0.3
    assert float(found["shape"][[0, 2], 0].max()) < 0.1


def test_width_compares_fractionated_batches_of_different_sizes():
    rng = np.random.default_rng(0)
    share = np.array([0.1, 0.2, 0.3, 0.4])
    raw = rng.standard_normal((2, 500))
    made = []
    for a in share:
        data = xr.Dataset({"x": (("chain", "draw"), raw / np.sqrt(a))})
        made.append(data.assign_attrs(swiss_prior_power=a, swiss_kind="fractionated"))
    found = merged_statistics(made, kind=None)
    np.testing.assert_allclose(found["width"], 1.0)


def test_one_batch_has_no_shape():
    found = merged_statistics([{"x": np.random.default_rng(0).standard_normal((2, 100))}])
    assert np.isnan(found["shape"]).all()
    assert np.isfinite(found["rhat"]).all()


def test_too_few_draws_for_rhat_give_nan():
    rng = np.random.default_rng(0)
    found = merged_statistics([{"x": rng.standard_normal((2, 3))} for _ in range(2)])
    assert np.isnan(found["rhat"]).all()


def test_statistics_are_kept_by_a_file(statistics, tmp_path):
    statistics.to_netcdf(tmp_path / "statistics.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "statistics.nc", engine="h5netcdf") as opened:
        xr.testing.assert_allclose(opened, statistics)


def test_of_newly_made_draws_there_are_the_diagnostics_alone():
    rng = np.random.default_rng(0)
    merged = az_swiss.merge(
        [{"x": rng.standard_normal((2, 100))} for _ in range(2)],
        method="consensus",
        kind="inflated",
    )
    own = containers.read(merged).groups["swiss_diagnostics"]
    xr.testing.assert_identical(statistics_of(merged), own)


@pytest.mark.slow
@pytest.mark.speed
def test_twenty_batches_take_less_than_twenty_cpu_seconds(cpu_seconds):
    code = """
import time
import numpy as np
import arviz_swiss as az_swiss
rng = np.random.default_rng(0)
merged = az_swiss.merge([{"x": rng.standard_normal((4, 1000, 30))} for _ in range(20)])
start = time.process_time()
az_swiss.report(merged)
print(time.process_time() - start)
"""
    assert cpu_seconds(code)[0] < 20


def test_a_single_chain_is_compared_with_itself():
    rng = np.random.default_rng(0)
    batches = [{"x": rng.normal(size=(1, 400))} for _ in range(3)]
    batches[1]["x"] += np.linspace(0, 6, 400)
    rhat = merged_statistics(batches)["rhat"].values[:, 0]
    assert rhat[1] > 1.5
    assert np.all(rhat[[0, 2]] < 1.05)

import warnings

import arviz
import numpy as np
import pytest
import xarray as xr

import arviz_swiss as az_swiss
from arviz_swiss.base.distances import densities, integrated_absolute
from arviz_swiss.data import containers, statistics
from arviz_swiss.merging.merged import open_merged

TRANSFORMS = {"sigma": "log", "p": "simplex"}


def diagnostics(diagnosed):
    return containers.read(diagnosed).groups["swiss_diagnostics"]


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
def diagnosed(merged):
    return az_swiss.diagnose(merged)


def test_kind_groups_and_input_stay(merged, diagnosed):
    assert type(diagnosed) is type(merged)
    assert set(containers.read(diagnosed).groups) == set(containers.read(merged).groups)
    assert "rhat" not in diagnostics(merged)
    assert set(diagnostics(merged)) < set(diagnostics(diagnosed))
    for name, array in diagnostics(diagnosed).items():
        assert array.attrs["description"], name


def test_root_attributes_are_kept(merged):
    copy = containers.build(containers.read(merged).groups, containers.native_kind(), {"by": "me"})
    assert containers.root_attrs(az_swiss.diagnose(copy)) == {"by": "me"}


def test_convergence_is_arvizs_on_the_original_draws(batches, diagnosed):
    """Up to rounding, which decides the ranks of the two draws next to the median."""
    found = diagnostics(diagnosed)
    for label, batch in batches.items():
        posterior = containers.read(batch).groups["posterior"]
        for side in ("left", "right"):
            draws = posterior["beta"].sel(side=side).values
            one = found.sel(batch=label, parameter=f"beta[{side}]")
            np.testing.assert_allclose(one["rhat"], arviz.rhat(draws), rtol=1e-3)
            np.testing.assert_allclose(one["ess_bulk"], arviz.ess(draws, method="bulk"), rtol=1e-3)
        log_sigma = np.log(posterior["sigma"].values)
        one = found.sel(batch=label, parameter="sigma")
        np.testing.assert_allclose(one["rhat"], arviz.rhat(log_sigma), rtol=1e-3)
        centred = (log_sigma - log_sigma.mean()) / log_sigma.std()
        np.testing.assert_allclose(one["skewness"], np.mean(centred**3), atol=1e-8)
        np.testing.assert_allclose(one["kurtosis"], np.mean(centred**4) - 3, atol=1e-8)


def test_divergences_are_counted_by_batch(diagnosed):
    assert diagnostics(diagnosed)["divergences"].values.tolist() == [0, 1, 2, 3]


def test_without_divergences_there_is_no_such_variable():
    rng = np.random.default_rng(0)
    merged = az_swiss.merge(
        [{"x": rng.standard_normal((2, 100))} for _ in range(2)], kind="inflated"
    )
    assert "divergences" not in diagnostics(az_swiss.diagnose(merged))


def test_sample_is_the_draws_before_and_after(batches, merged):
    opened = open_merged(merged, "posterior")
    for position, batch in enumerate(batches.values()):
        expected = containers.read(batch).groups["posterior"]["beta"].values
        np.testing.assert_allclose(opened.before(position)[..., :2], expected, atol=1e-9)
        chains = merged["posterior"]["beta"].values[2 * position : 2 * position + 2]
        np.testing.assert_array_equal(opened.after(position)[..., :2], chains)


def test_shape_is_the_distance_from_the_other_batches(merged, diagnosed):
    """Against the others' own density estimate, which differs a little in bandwidth and grid."""
    opened = open_merged(merged, "posterior")
    rows = [opened.after(position).reshape(-1, 5) for position in range(4)]
    for b in range(4):
        others = densities(np.concatenate(rows[:b] + rows[b + 1 :]), statistics.kde)
        expected = integrated_absolute(rows[b], others, statistics.kde)
        np.testing.assert_allclose(diagnostics(diagnosed)["shape"][b], expected, atol=0.01)


@pytest.mark.parametrize("method", ["pool", "recentre"])
def test_shape_is_of_shape_whatever_the_method(method):
    """Where the maps leave means and sds apart, too, they are not what shape is about."""
    rng = np.random.default_rng(0)
    batches = []
    for _ in range(6):
        draws = rng.standard_normal((2, 250, 2)) * rng.uniform(0.5, 2.0)
        batches.append({"x": draws + np.sqrt(6) * rng.standard_normal(2)})
    by_method, by_swiss = (
        diagnostics(az_swiss.diagnose(az_swiss.merge(batches, method=name, kind="inflated")))
        for name in (method, "swiss")
    )
    np.testing.assert_allclose(by_method["shape"], by_swiss["shape"], atol=1e-6)
    assert float((by_method["shape"] - 2 * by_method["shape_noise"]).max()) < 0.05


def test_shape_of_equal_batches_is_its_noise_on_average():
    """Each ratio has an sd of about .2: the mean of 30 differs from one by less than .15."""
    rng = np.random.default_rng(0)
    merged = az_swiss.merge(
        [{"x": rng.gamma(4.0, size=(4, 250, 3))} for _ in range(10)], kind="inflated"
    )
    found = diagnostics(az_swiss.diagnose(merged))
    assert abs(float((found["shape"] / found["shape_noise"]).mean()) - 1) < 0.15


def test_shape_finds_what_moments_cannot():
    rng = np.random.default_rng(0)
    batches = [{"x": rng.standard_normal((4, 250))} for _ in range(6)]
    batches[3] = {"x": rng.exponential(size=(4, 250)) - 1}
    found = diagnostics(az_swiss.diagnose(az_swiss.merge(batches, kind="inflated")))
    beyond = (found["shape"] - 2 * found["shape_noise"]).values[:, 0]
    assert beyond[3] > 0.1
    assert np.delete(beyond, 3).max() < 0.02


def test_a_bimodal_batch_does_not_spoil_the_shape_of_the_others():
    rng = np.random.default_rng(0)
    batches = [{"x": rng.standard_normal((4, 250))} for _ in range(3)]
    batches[1] = {"x": rng.standard_normal((4, 250)) + 8 * rng.integers(0, 2, (4, 250))}
    found = diagnostics(az_swiss.diagnose(az_swiss.merge(batches, kind="inflated")))
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
    found = diagnostics(az_swiss.diagnose(az_swiss.merge(made)))
    np.testing.assert_allclose(found["width"], 1.0)


def test_one_batch_has_no_shape():
    merged = az_swiss.merge([{"x": np.random.default_rng(0).standard_normal((2, 100))}])
    found = diagnostics(az_swiss.diagnose(merged))
    assert np.isnan(found["shape"]).all()
    assert np.isfinite(found["rhat"]).all()


def test_too_few_draws_for_rhat_give_nan():
    rng = np.random.default_rng(0)
    with pytest.warns(az_swiss.MergeWarning):
        merged = az_swiss.merge(
            [{"x": rng.standard_normal((2, 3))} for _ in range(2)], kind="inflated"
        )
    assert np.isnan(diagnostics(az_swiss.diagnose(merged))["rhat"]).all()


def test_file_round_trip(diagnosed, tmp_path):
    path = tmp_path / "merged.nc"
    diagnosed.to_netcdf(path)
    groups = containers.read(str(path)).groups
    np.testing.assert_allclose(
        groups["swiss_diagnostics"]["shape"], diagnostics(diagnosed)["shape"]
    )
    containers.close(groups)


def test_newly_made_draws_are_refused():
    rng = np.random.default_rng(0)
    merged = az_swiss.merge(
        [{"x": rng.standard_normal((2, 100))} for _ in range(2)],
        method="consensus",
        kind="inflated",
    )
    with pytest.raises(ValueError, match=r'method "consensus".*Diagnose merge\(idatas, method="sw'):
        az_swiss.diagnose(merged)


@pytest.mark.parametrize("function", [az_swiss.diagnose, az_swiss.report, az_swiss.summary])
def test_what_merge_did_not_make_is_refused(function, to_container):
    with pytest.raises(ValueError, match="not a merged object: no group swiss_transform"):
        function(to_container({"x": np.zeros((2, 10))}))


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
az_swiss.diagnose(merged)
print(time.process_time() - start)
"""
    assert cpu_seconds(code)[0] < 20


def test_a_single_chain_is_compared_with_itself():
    rng = np.random.default_rng(0)
    batches = [{"x": rng.normal(size=(1, 400))} for _ in range(3)]
    batches[1]["x"] += np.linspace(0, 6, 400)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        rhat = az_swiss.diagnose(az_swiss.merge(batches, kind="inflated"))["swiss_diagnostics"][
            "rhat"
        ].values[:, 0]
    assert rhat[1] > 1.5
    assert np.all(rhat[[0, 2]] < 1.05)

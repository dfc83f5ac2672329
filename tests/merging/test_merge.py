"""What must hold of merge: exactness, equivariance, labels, kinds, covariances, output groups."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import arviz_swiss as az_swiss
from arviz_swiss import MergeWarning
from arviz_swiss.data import containers

pytestmark = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")


def groups_of(container):
    return containers.read(container).groups


def group(merged, name="posterior"):
    return groups_of(merged)[name]


def rows(merged, name="theta"):
    values = group(merged)[name].values
    return values.reshape(-1, int(np.prod(values.shape[2:], dtype=int)))


def theta(draws):
    return [{"theta": values} for values in draws]


def precision_mean(terms):
    """Return mean and covariance of a product of Gaussians to powers: (power, mean, covariance)."""
    precision = sum(w * np.linalg.inv(c) for w, _, c in terms)
    covariance = np.linalg.inv(precision)
    return covariance @ sum(w * np.linalg.inv(c) @ m for w, m, c in terms), covariance


class Problem:
    """A Gaussian model: the prior, and the likelihood of each batch as a Gaussian in theta."""

    def __init__(self, rng, random_covariance, batches=4, size=3):
        self.prior = (rng.standard_normal(size), 2.0 * random_covariance(rng, size))
        self.likelihoods = [
            (rng.standard_normal(size), batches * random_covariance(rng, size))
            for _ in range(batches)
        ]
        self.posterior = precision_mean(
            [(1.0, *self.prior), *((1.0, *like) for like in self.likelihoods)]
        )

    def batches(self, rng, exact_draws, prior_powers, powers, **sizes):
        return [
            exact_draws(rng, *precision_mean([(a, *self.prior), (p, *likelihood)]), **sizes)
            for a, p, likelihood in zip(prior_powers, powers, self.likelihoods, strict=True)
        ]


KINDS = {
    "inflated": ([1, 1, 1, 1], [4, 4, 4, 4]),
    "inflated, unequal powers": ([1, 1, 1, 1], [2, 4, 8, 8]),
    "fractionated": ([0.25] * 4, [1, 1, 1, 1]),
    "full_prior": ([1, 1, 1, 1], [1, 1, 1, 1]),
}


@pytest.fixture(params=KINDS)
def merged_and_truth(request, exact_draws, random_covariance):
    rng = np.random.default_rng(1)
    prior_powers, powers = KINDS[request.param]
    problem = Problem(rng, random_covariance)
    draws = problem.batches(rng, exact_draws, prior_powers, powers)
    prior = {"prior": {"theta": exact_draws(rng, *problem.prior)}}
    kind = request.param.split(",")[0]
    merged = az_swiss.merge(
        theta(draws), kind=kind, powers=powers, prior=prior if kind == "full_prior" else None
    )
    return merged, problem.posterior


def test_exact_moments_give_the_true_posterior(merged_and_truth):
    merged, (mean, covariance) = merged_and_truth
    transform = merged["swiss_transform"]
    np.testing.assert_allclose(transform["pooled_mean"], mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(transform["pooled_covariance"], covariance, rtol=1e-12, atol=1e-12)


def test_draws_have_the_pooled_moments(merged_and_truth):
    """In every batch, and so in all draws together (with the one-degree-of-freedom factor)."""
    merged, (mean, covariance) = merged_and_truth
    for _, batch in group(merged).groupby("batch"):
        values = batch["theta"].values.reshape(-1, 3)
        np.testing.assert_allclose(values.mean(axis=0), mean, atol=1e-10)
        np.testing.assert_allclose(np.cov(values.T), covariance, atol=1e-10)


def test_full_prior_reads_each_batchs_own_prior_group(exact_draws, random_covariance):
    rng = np.random.default_rng(2)
    problem = Problem(rng, random_covariance)
    draws = problem.batches(rng, exact_draws, [1] * 4, [1] * 4)
    batches = [
        {"posterior": {"theta": values}, "prior": {"theta": exact_draws(rng, *problem.prior)}}
        for values in draws
    ]
    merged = az_swiss.merge(batches, kind="full_prior")
    pooled = merged["swiss_transform"]
    # Four exact sets together have 4 * 400 - 1 degrees of freedom, not 4 * 399.
    np.testing.assert_allclose(pooled["pooled_covariance"], problem.posterior[1], rtol=1e-2)


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 30),
    st.lists(st.sampled_from([(), (2,), (2, 3)]), min_size=1, max_size=5),
    st.sampled_from([np.float32, np.float64]),
)
def test_draws_have_the_pooled_moments_for_all_shapes(seed, batches, shapes, dtype):
    rng = np.random.default_rng(seed)
    size = sum(int(np.prod(shape, dtype=int)) for shape in shapes)
    draws = size + 20
    idatas = [
        {
            f"v{k}": rng.standard_normal((2, draws, *shape)).astype(dtype) + rng.standard_normal()
            for k, shape in enumerate(shapes)
        }
        for _ in range(batches)
    ]
    idatas = [{name: np.asarray(v, dtype) for name, v in idata.items()} for idata in idatas]
    merged = az_swiss.merge(idatas, kind="inflated")
    posterior = merged["posterior"]
    assert all(posterior[f"v{k}"].dtype == dtype for k in range(len(shapes)))
    flat = az_swiss.data.flatten(merged).values
    tolerance = 1e-10 if dtype == np.float64 else 3e-5
    pooled = merged["swiss_transform"]
    for batch in range(batches):
        values = flat[2 * batch : 2 * batch + 2].reshape(-1, size)
        np.testing.assert_allclose(values.mean(axis=0), pooled["pooled_mean"], atol=tolerance)
        np.testing.assert_allclose(
            np.cov(values.T).reshape(size, size), pooled["pooled_covariance"], atol=tolerance
        )


@settings(max_examples=10, deadline=None)
@given(
    batches=st.integers(1, 30),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 2**16),
)
def test_fifty_variables_have_the_pooled_moments(batches, dtype, seed):
    rng = np.random.default_rng(seed)
    names = [f"v{k}" for k in range(50)]
    idatas = [
        {name: (rng.normal(k, 1 + k, size=(2, 60))).astype(dtype) for k, name in enumerate(names)}
        for _ in range(batches)
    ]
    merged = az_swiss.merge(idatas, kind="inflated")
    assert list(merged["posterior"].data_vars) == names
    assert {array.dtype for array in merged["posterior"].data_vars.values()} == {np.dtype(dtype)}
    draws = az_swiss.data.flatten(merged).values
    pooled = merged["swiss_transform"]
    sds = np.sqrt(np.diag(pooled["pooled_covariance"]))
    # single precision keeps six digits of a mean that may be some 50 sds from zero
    tolerance = 1e-8 if dtype == np.float64 else 1e-3
    for batch in draws.reshape(batches, 120, 50):
        assert np.abs((batch.mean(axis=0) - pooled["pooled_mean"].values) / sds).max() < tolerance
        error = np.cov(batch.T) - pooled["pooled_covariance"].values
        assert np.abs(error / np.outer(sds, sds)).max() < tolerance


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"var_names": "tau", "filter_vars": "like"}, ["log_tau", "tau"]),
        ({"var_names": "^b", "filter_vars": "regex"}, ["beta"]),
        ({"var_names": ("mu", "beta")}, ["mu", "beta"]),
        ({"var_names": (name for name in ["beta"])}, ["beta"]),
        ({"var_names": ["~tau", "~log_tau"]}, ["mu", "beta"]),
    ],
)
def test_variables_are_selected_as_by_arviz(options, names):
    rng = np.random.default_rng(0)
    every = ("mu", "beta", "log_tau", "tau")
    idatas = [{name: rng.standard_normal((2, 300)) for name in every} for _ in range(2)]
    assert list(az_swiss.merge(idatas, kind="inflated", **options)["posterior"].data_vars) == names


def test_powers_of_a_series_are_matched_by_label(random_batches):
    batches = dict(zip("ab", random_batches(np.random.default_rng(0), batches=2), strict=True))
    powers = pd.Series({"b": 4.0, "a": 4 / 3})
    merged = az_swiss.merge(batches, powers=powers)
    np.testing.assert_allclose(merged["swiss_transform"]["power"], [4 / 3, 4.0])
    by_position = pd.Series([4 / 3, 4.0])
    merged = az_swiss.merge(batches, powers=by_position)
    np.testing.assert_allclose(merged["swiss_transform"]["power"], [4 / 3, 4.0])


def test_few_draws_of_the_prior_are_corrected_for_or_warned_of():
    """The prior's precision is subtracted many times, and with it its bias."""
    rng = np.random.default_rng(0)
    size, count = 20, 10
    prior = {"x": rng.normal(size=(1, 500, size))}
    # a batch knows as much as the prior: precision 2, and the posterior 1 + count
    batches = [{"x": rng.normal(0, 2**-0.5, size=(4, 5000, size))} for _ in range(count)]
    with pytest.warns(MergeWarning, match=r"too large: 500 draws of the prior for 20 parameters"):
        plain = az_swiss.merge(batches, kind="full_prior", prior=prior)
    corrected = az_swiss.merge(batches, kind="full_prior", prior=prior, covariance="corrected")
    exact = (1 + count) ** -0.5
    off = [
        np.sqrt(np.trace(group(m, "swiss_transform")["pooled_covariance"].values) / size) / exact
        for m in (plain, corrected)
    ]
    # nine times the prior's error of (500 - 1) / (500 - 22) - 1 = 4.4%, over 11, halved for an sd
    assert off[0] > 1.015
    assert abs(off[1] - 1) < abs(off[0] - 1)


def test_shrunk_is_for_the_prior_too():
    rng = np.random.default_rng(0)
    prior = {"x": rng.normal(size=(1, 20, 30))}
    batches = [{"x": rng.normal(0, 0.1, size=(4, 500, 30))} for _ in range(2)]
    merged = az_swiss.merge(batches, kind="full_prior", prior=prior, covariance="shrunk")
    assert np.isfinite(group(merged)["x"]).all()


def test_times_as_coordinates_survive_files(tmp_path):
    rng = np.random.default_rng(0)
    times = pd.date_range("2026-01-01", periods=3)
    batches = [
        xr.Dataset({"x": (("chain", "draw", "t"), rng.normal(size=(2, 100, 3)))}, {"t": times})
        for _ in range(2)
    ]
    merged = az_swiss.merge(batches, kind="inflated")
    tree = xr.DataTree.from_dict({f"/{k}": v for k, v in groups_of(merged).items()})
    path = tmp_path / "merged.nc"
    tree.to_netcdf(path, engine="h5netcdf")
    back = az_swiss.subposteriors(path)
    np.testing.assert_allclose(group(back["b1"])["x"], batches[1]["x"], rtol=1e-9)
    assert len(az_swiss.summary(path)) == 2


def test_another_groups_statistics_are_not_attached(to_container):
    rng = np.random.default_rng(0)
    batches = [
        to_container(
            {"x": rng.normal(size=(4, 200))},
            prior={"x": rng.normal(size=(1, 100))},
            sample_stats={"diverging": np.zeros((4, 200), dtype=bool)},
        )
        for _ in range(2)
    ]
    assert "sample_stats" in groups_of(az_swiss.merge(batches, kind="inflated"))
    assert "sample_stats" not in groups_of(az_swiss.merge(batches, group="prior", kind="inflated"))


def test_data_of_the_batches_are_copied(to_container):
    rng = np.random.default_rng(0)
    y = np.ones(5)
    batches = [
        to_container({"x": rng.normal(size=(2, 100))}, constant_data={"y": y.copy()})
        for _ in range(2)
    ]
    merged = az_swiss.merge(batches, kind="inflated")
    groups_of(merged)["constant_data"]["y"].values[:] = -1
    assert (groups_of(batches[0])["constant_data"]["y"].values == 1).all()


def test_lazy_objects_are_not_loaded(tmp_path):
    rng = np.random.default_rng(0)
    opened = []
    for position in range(2):
        path = tmp_path / f"{position}.nc"
        dataset = xr.Dataset({"x": (("chain", "draw"), rng.normal(size=(2, 100)))})
        dataset.to_netcdf(path, engine="h5netcdf")
        opened.append(xr.open_dataset(path, engine="h5netcdf"))
    az_swiss.merge(opened, kind="inflated")
    assert not any(one["x"].variable._in_memory for one in opened)
    for one in opened:
        one.close()


def test_one_batch_is_left_as_it_is(random_batches):
    (batch,) = random_batches(np.random.default_rng(0), batches=1)
    merged = az_swiss.merge([batch])
    np.testing.assert_allclose(merged["posterior"]["theta"], batch["theta"], atol=1e-12)


def test_agreeing_batches_are_left_as_they_are(random_batches):
    (batch,) = random_batches(np.random.default_rng(0), batches=1)
    mirrored = {"theta": 2 * batch["theta"].mean(axis=(0, 1)) - batch["theta"]}
    merged = az_swiss.merge([batch, mirrored], kind="inflated")
    scale = merged["swiss_transform"]["scale"]
    np.testing.assert_allclose(scale, np.broadcast_to(np.eye(3), (2, 3, 3)), atol=1e-12)


def test_maps_are_the_papers_algorithm(random_batches):
    """Algorithm 1, literally: symmetric positive definite roots throughout."""

    def root(matrix):
        values, vectors = np.linalg.eigh(matrix)
        return (vectors * np.sqrt(values)) @ vectors.T

    batches = random_batches(np.random.default_rng(5), batches=5, size=4)
    merged = az_swiss.merge(batches, kind="inflated")
    flat = [batch["theta"].reshape(-1, 4) for batch in batches]
    covariances = [np.cov(draws.T) for draws in flat]
    pooled = np.linalg.inv(np.mean([np.linalg.inv(c) for c in covariances], axis=0))
    centre = pooled @ np.mean(
        [np.linalg.inv(c) @ d.mean(axis=0) for c, d in zip(covariances, flat, strict=True)], axis=0
    )
    m = root(pooled)
    for b, (draws, covariance) in enumerate(zip(flat, covariances, strict=True)):
        tilde = root(np.linalg.inv(m) @ covariance @ np.linalg.inv(m))
        a_b = m @ np.linalg.inv(tilde) @ np.linalg.inv(m)
        np.testing.assert_allclose(merged["swiss_transform"]["scale"][b], a_b, atol=1e-10)
        expected = (draws - draws.mean(axis=0)) @ a_b.T + centre
        np.testing.assert_allclose(rows(merged)[400 * b : 400 * (b + 1)], expected, atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_equivariant_under_any_linear_map(random_batches, seed):
    rng = np.random.default_rng(seed)
    batches = random_batches(rng, size=4)
    matrix, shift = rng.standard_normal((4, 4)), rng.standard_normal(4)
    moved = [{"theta": batch["theta"] @ matrix.T + shift} for batch in batches]
    expected = rows(az_swiss.merge(batches, kind="inflated")) @ matrix.T + shift
    np.testing.assert_allclose(rows(az_swiss.merge(moved, kind="inflated")), expected, atol=1e-8)


def test_scales_from_e_minus_9_to_e_9_lose_nothing(random_batches):
    scale = np.exp(np.linspace(-9, 9, 6))
    batches = random_batches(np.random.default_rng(0), size=6)
    scaled = [{"theta": batch["theta"] * scale} for batch in batches]
    np.testing.assert_allclose(
        rows(az_swiss.merge(scaled, kind="inflated")) / scale,
        rows(az_swiss.merge(batches, kind="inflated")),
        atol=1e-9,
    )


def labelled(values, terms, chains=2):
    coords = {"chain": np.arange(chains), "draw": np.arange(values.shape[1]), "term": terms}
    return xr.Dataset(
        {
            "beta": (("chain", "draw", "term"), values),
            "mu": (("chain", "draw"), values[..., 0] ** 3),
        },
        coords=coords,
    )


def test_coords_are_matched_by_label(random_batches):
    plain = [
        labelled(batch["theta"], ["a", "b", "c"])
        for batch in random_batches(np.random.default_rng(0))
    ]
    turned = [plain[0], *(batch.isel(term=[2, 0, 1]) for batch in plain[1:])]
    xr.testing.assert_allclose(
        group(az_swiss.merge(plain, kind="inflated")),
        group(az_swiss.merge(turned, kind="inflated")),
    )


def test_order_of_variables_and_dims_does_not_matter(random_batches):
    plain = [
        labelled(batch["theta"], ["a", "b", "c"])
        for batch in random_batches(np.random.default_rng(0))
    ]
    turned = [
        plain[0],
        *(batch[["mu", "beta"]].transpose("term", "draw", "chain") for batch in plain[1:]),
    ]
    xr.testing.assert_allclose(
        group(az_swiss.merge(plain, kind="inflated")),
        group(az_swiss.merge(turned, kind="inflated")),
    )


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


def test_inputs_are_not_changed(to_container, random_batches):
    batches = [
        to_container(labelled(batch["theta"], ["a", "b", "c"]), observed_data={"y": np.arange(4.0)})
        for batch in random_batches(np.random.default_rng(0))
    ]
    before = [{k: v.copy(deep=True) for k, v in groups_of(batch).items()} for batch in batches]
    az_swiss.merge(batches, transforms={"mu": Shifted()}, kind="inflated")
    for batch, groups in zip(batches, before, strict=True):
        assert list(groups_of(batch)) == list(groups)
        for name, dataset in groups_of(batch).items():
            xr.testing.assert_identical(dataset, groups[name])


class Shifted:
    def forward(self, values):
        return values + 1.0

    def backward(self, values):
        return values - 1.0


def test_own_transform_object(random_batches):
    """A shift is linear, so the merge is the same through it."""
    batches = random_batches(np.random.default_rng(0))
    through = az_swiss.merge(batches, transforms={"theta": Shifted()}, kind="inflated")
    np.testing.assert_allclose(
        rows(through), rows(az_swiss.merge(batches, kind="inflated")), atol=1e-12
    )


def test_transforms_merge_in_unconstrained_space():
    rng = np.random.default_rng(0)
    logs = [rng.normal(mean, 0.3, size=(2, 200)) for mean in (0.0, 0.2, -0.1)]
    parts = [rng.dirichlet([2, 3, 4], size=(2, 200)) for _ in logs]
    batches = [{"s": np.exp(a), "p": p} for a, p in zip(logs, parts, strict=True)]
    merged = az_swiss.merge(batches, transforms={"s": "log", "p": "simplex"}, kind="inflated")
    ratios = [np.log(p[..., :-1]) - np.log(p[..., -1:]) for p in parts]
    by_hand = az_swiss.merge(
        [{"a": a, "r": r} for a, r in zip(logs, ratios, strict=True)], kind="inflated"
    )
    np.testing.assert_allclose(np.log(group(merged)["s"]), group(by_hand)["a"].values, atol=1e-12)
    np.testing.assert_allclose(group(merged)["p"].sum("p_dim_0"), 1.0)
    unconstrained = group(merged, "unconstrained_posterior")
    assert list(unconstrained.data_vars) == ["s", "p"]
    np.testing.assert_allclose(unconstrained["s"], np.log(group(merged)["s"]))
    assert unconstrained["p"].dims == ("chain", "draw", "p_dim_0_simplex")


def test_no_unconstrained_group_without_transforms(random_batches):
    merged = az_swiss.merge(
        random_batches(np.random.default_rng(0)), transforms={"theta": None}, kind="inflated"
    )
    assert "unconstrained_posterior" not in groups_of(merged)


def test_constants_pass_through_unchanged(random_batches):
    batches = random_batches(np.random.default_rng(0))
    padded = [
        {"theta": np.insert(batch["theta"], 1, 0.1, axis=-1), "one": np.ones((2, 200))}
        for batch in batches
    ]
    merged = az_swiss.merge(padded, kind="inflated")
    values = group(merged)["theta"].values
    assert (values[..., 1] == 0.1).all()
    assert (group(merged)["one"] == 1.0).all()
    np.testing.assert_allclose(
        values[..., [0, 2, 3]].reshape(-1, 3),
        rows(az_swiss.merge(batches, kind="inflated")),
        atol=1e-12,
    )
    labels = group(merged, "swiss_transform")["parameter"].values.tolist()
    assert labels == ["theta[0]", "theta[2]", "theta[3]"]


def test_corrected_covariance_removes_the_bias():
    """30 parameters and 200 independent draws: the plain merge loses a tenth of the sds.

    Standard errors: the mean over 30 sds from 40 batches has a relative error below
    1 / sqrt(2 * 40 * 200) = 0.8%, four of them are 3.2%.
    """
    rng = np.random.default_rng(0)
    batches = [{"theta": rng.standard_normal((2, 100, 30))} for _ in range(40)]
    plain = group(az_swiss.merge(batches, kind="inflated"), "swiss_transform")[
        "pooled_covariance"
    ].values
    corrected = az_swiss.merge(batches, covariance="corrected", kind="inflated")
    better = group(corrected, "swiss_transform")["pooled_covariance"].values
    assert np.sqrt(np.diag(plain)).mean() < 0.95
    assert abs(np.sqrt(np.diag(better)).mean() - 1) < 0.032
    values = rows(corrected)[:200]
    np.testing.assert_allclose(np.cov(values.T), better, atol=1e-10)


def test_warns_of_shrinkage_with_the_figure():
    rng = np.random.default_rng(0)
    batches = [{"theta": rng.standard_normal((2, 100, 30))} for _ in range(5)]
    with pytest.warns(MergeWarning, match=r'sds are about (8|9|10)% too small.*"corrected"'):
        az_swiss.merge(batches, kind="inflated")


def test_shrunk_covariance_with_fewer_draws_than_parameters():
    rng = np.random.default_rng(0)
    batches = [{"theta": rng.standard_normal((1, 30, 50))} for _ in range(4)]
    merged = az_swiss.merge(batches, covariance="shrunk", kind="inflated")
    sds = np.sqrt(np.diag(group(merged, "swiss_transform")["pooled_covariance"]))
    # A sample sd of 30 draws is off by 1 / sqrt(60) = 13%; pooling four of them halves that.
    np.testing.assert_allclose(sds, 1.0, atol=4 * 0.065)


def test_diagonal_covariance_maps_each_parameter_alone(random_batches):
    batches = random_batches(np.random.default_rng(0))
    merged = az_swiss.merge(batches, covariance="diagonal", kind="inflated")
    alone = az_swiss.merge([{"x": batch["theta"][..., 1]} for batch in batches], kind="inflated")
    np.testing.assert_allclose(group(merged)["theta"][..., 1], group(alone)["x"], atol=1e-12)


def test_callable_covariance(random_batches):
    batches = random_batches(np.random.default_rng(0))
    merged = az_swiss.merge(batches, covariance=lambda draws: np.cov(draws.T), kind="inflated")
    np.testing.assert_allclose(
        rows(merged), rows(az_swiss.merge(batches, kind="inflated")), atol=1e-10
    )


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


def test_output_groups(to_container, random_batches):
    batches = []
    for k, batch in enumerate(random_batches(np.random.default_rng(0))):
        posterior = labelled(batch["theta"], ["a", "b", "c"])
        posterior["beta"].attrs["unit"] = "m"
        posterior = posterior.assign_attrs(swiss_power=4.0, inference_library="pymc")
        stats = {
            "lp": np.ones((2, 200)),
            "energy": np.ones((2, 200)),
            "diverging": np.zeros((2, 200)),
        }
        observed = xr.Dataset({"y": ("row", np.arange(3.0))}, coords={"row": np.arange(3) + 3 * k})
        default = xr.Dataset({"x": ("i", np.arange(3.0) + k)}, coords={"i": np.arange(3)})
        likelihood = {"y": np.ones((2, 200, 3))}
        batches.append(
            to_container(
                posterior,
                sample_stats=stats,
                observed_data=observed,
                constant_data=default,
                log_likelihood=likelihood,
            )
        )
    merged = az_swiss.merge(batches)
    assert type(merged) is type(batches[0])
    groups = groups_of(merged)
    assert "log_likelihood" not in groups
    assert list(groups["sample_stats"].data_vars) == ["diverging"]
    assert groups["sample_stats"].sizes == {"chain": 8, "draw": 200}
    assert groups["observed_data"]["row"].values.tolist() == list(range(12))
    assert "constant_data" not in groups
    posterior = groups["posterior"]
    assert posterior.attrs["swiss_left_out"] == "constant_data/x, log_likelihood"
    assert posterior["term"].values.tolist() == ["a", "b", "c"]
    assert posterior["beta"].attrs == {"unit": "m"}
    assert "batch" not in posterior.indexes
    assert posterior.attrs["inference_library"] == "pymc"
    assert posterior.attrs["swiss_method"] == "swiss"
    assert "swiss_power" not in posterior.attrs
    assert set(groups["swiss_transform"].data_vars) >= {
        "mean",
        "covariance",
        "scale",
        "power",
        "prior_power",
        "pooled_mean",
        "pooled_covariance",
    }


def test_deterministics_are_told_by_sampled_variables():
    rng = np.random.default_rng(0)
    batches = []
    for _ in range(3):
        posterior = az_swiss.data.unflatten(
            az_swiss.data.flatten({"a": rng.standard_normal((2, 100))}),
            like={"a": np.zeros((2, 100))},
        )
        posterior["double"] = 2 * posterior["a"]
        batches.append(posterior.assign_attrs(sampled_variables=["a"]))
    with pytest.warns(MergeWarning, match=r"left out of the merge: double \(deterministic"):
        merged = az_swiss.merge(batches, kind="inflated")
    assert list(group(merged).data_vars) == ["a"]
    assert list(group(az_swiss.merge(batches, var_names=["double"])).data_vars) == ["double"]


def test_batch_local_variables_are_left_out_and_named(random_batches):
    batches = []
    for k, batch in enumerate(random_batches(np.random.default_rng(0))):
        posterior = labelled(batch["theta"], ["a", "b", "c"])
        local = ("chain", "draw", "school"), batch["theta"][..., :2]
        batches.append(posterior.assign(z=local).assign_coords(school=[f"s{k}", f"t{k}"]))
    with pytest.warns(MergeWarning, match=r"left out of the merge: z \(batch-local"):
        merged = az_swiss.merge(batches, kind="inflated")
    assert list(group(merged).data_vars) == ["beta", "mu"]


def test_labels_come_from_the_mapping_then_the_attributes(random_batches):
    batches = random_batches(np.random.default_rng(0), batches=2)
    named = group(az_swiss.merge({"north": batches[0], 7: batches[1]}, kind="inflated"))
    assert named["batch"].values.tolist() == ["north", "north", "7", "7"]
    said = [
        labelled(batch["theta"], ["a", "b", "c"]).assign_attrs(swiss_batch=label)
        for batch, label in zip(batches, ["x", "y"], strict=True)
    ]
    assert group(az_swiss.merge(said, kind="inflated"))["batch"].values.tolist() == [
        "x",
        "x",
        "y",
        "y",
    ]


def test_other_group(random_batches):
    batches = [{"prior": batch} for batch in random_batches(np.random.default_rng(0))]
    merged = az_swiss.merge(batches, group="prior", kind="inflated")
    assert "prior" in groups_of(merged)
    assert "posterior" not in groups_of(merged)


def test_priors_drawn_with_one_seed_merge_to_the_prior(to_container):
    """A prior has no rows that could count twice."""
    prior = {"x": np.random.default_rng(0).standard_normal((2, 200))}
    batches = [
        to_container(prior, prior=prior, observed_data={"y": np.ones(size)}) for size in (10, 20)
    ]
    merged = groups_of(az_swiss.merge(batches, group="prior", kind="inflated"))["prior"]["x"]
    np.testing.assert_allclose(merged.values, np.concatenate([prior["x"]] * 2), atol=1e-12)


def test_the_finest_dtype_of_all_batches_is_kept():
    rng = np.random.default_rng(0)
    draws = [1e6 + rng.standard_normal((2, 200)) for _ in range(2)]
    first = {"mu": draws[0].astype(np.float32), "fixed": np.full((2, 200), 0.1, np.float32)}
    second = {"mu": draws[1], "fixed": np.full((2, 200), 0.1)}
    merged = az_swiss.merge([first, second], kind="inflated")
    assert group(merged)["mu"].dtype == float
    back = group(az_swiss.subposteriors(merged)["b1"])
    np.testing.assert_allclose(back["mu"], draws[1], rtol=0, atol=1e-8)


def test_labels_that_are_the_same_as_text_are_refused():
    rng = np.random.default_rng(0)
    coords = {"g": ["a", "a, b"], "h": ["b, c", "c"]}

    def make(coords, **others):
        dims = ("chain", "draw", "g", "h")
        return xr.Dataset({"m": (dims, rng.standard_normal((2, 50, 2, 2))), **others}, coords)

    message = (
        r'batch 0 \("b0"\), variable m: m \(g=a; h=b, c\) and m \(g=a, b; h=c\).* m\[a, b, c\]'
    )
    with pytest.raises(ValueError, match=message):
        az_swiss.merge([make(coords) for _ in range(2)], kind="inflated")
    other = {"m[a, c]": (("chain", "draw"), rng.standard_normal((2, 50)))}
    plain = {"g": ["a", "b"], "h": ["c", "d"]}
    with pytest.raises(ValueError, match=r"variable m and m\[a, c\]: .* called m\[a, c\]"):
        az_swiss.merge([make(plain, **other) for _ in range(2)], kind="inflated")
    # the advice: other labels
    batches = [make({**coords, "g": ["a", "a; b"]}) for _ in range(2)]
    back = az_swiss.subposteriors(az_swiss.merge(batches, kind="inflated"))
    np.testing.assert_allclose(group(back["b1"])["m"], batches[1]["m"], atol=1e-9)

"""Tests of arviz_swiss.methods: the other ways of merging, and kinds of sub-posteriors."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from scipy import integrate, stats

import arviz_swiss as az_swiss
from arviz_swiss import methods
from arviz_swiss.base import linalg
from arviz_swiss.base.linalg import AffineMap
from arviz_swiss.methods import img, measures

FIGURES = Path(__file__).parents[1] / "data" / "parallelMCMCcombine.json"
ALL = list(methods.METHODS)
MAPS = [name for name in ALL if methods.METHODS[name].makes == "maps"]
DRAWS = [name for name in ALL if methods.METHODS[name].makes == "draws"]

quiet = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")


def theta(merged):
    return merged["posterior"]["theta"].values


def rows(merged):
    values = theta(merged)
    return values.reshape(-1, values.shape[-1])


def tempered(draws, **attrs):
    """Return one batch that says how it was sampled."""
    return xr.Dataset({"theta": (("chain", "draw", "k"), draws)}, attrs=attrs)


def both_kinds(batches, powers):
    """Return Gaussian batches as inflated sub-posteriors, and the fractionated ones they imply."""
    inflated, fractionated = [], []
    for batch, power in zip(batches, powers, strict=True):
        draws = batch["theta"]
        mean = draws.mean(axis=(0, 1))
        inflated.append(tempered(draws, swiss_kind="inflated", swiss_power=power))
        fractionated.append(
            tempered(
                mean + np.sqrt(power) * (draws - mean),
                swiss_kind="fractionated",
                swiss_power=1.0,
                swiss_prior_power=1.0 / power,
            )
        )
    return inflated, fractionated


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


@pytest.mark.parametrize("powers", [(4.0,) * 4, (8.0, 8.0, 4.0, 2.0)], ids=["equal", "unequal"])
@pytest.mark.parametrize("method", ALL)
def test_both_kinds_of_gaussian_batches_give_the_same(method, powers, random_batches):
    batches = random_batches(np.random.default_rng(1), 4)
    inflated, fractionated = both_kinds(batches, powers)
    first = az_swiss.merge(inflated, method=method, random_seed=3)
    second = az_swiss.merge(fractionated, method=method, random_seed=3)
    np.testing.assert_allclose(theta(first), theta(second), rtol=1e-8, atol=1e-8)
    said = [merged["posterior"].attrs.get("swiss_rescaled") for merged in (first, second)]
    if methods.find(method).expects == "inflated":
        assert said == [None, "from fractionated to inflated"]
    else:
        assert said == ["from inflated to fractionated", None]


@pytest.mark.parametrize("method", MAPS)
@pytest.mark.parametrize("kind", ["inflated", "fractionated"])
def test_moved_draws_are_moved_back(method, kind, random_batches):
    batches = random_batches(np.random.default_rng(2), 4)
    sets = dict(zip(("inflated", "fractionated"), both_kinds(batches, (8, 8, 4, 2)), strict=True))
    merged = az_swiss.merge(sets[kind], method=method)
    for batch, back in zip(sets[kind], az_swiss.subposteriors(merged).values(), strict=True):
        np.testing.assert_allclose(theta(back), batch["theta"].values, atol=1e-12)
        assert "swiss_rescaled" not in back["posterior"].attrs
    again = az_swiss.merge(az_swiss.subposteriors(merged), method=method)
    np.testing.assert_allclose(theta(again), theta(merged), atol=1e-12)


@pytest.mark.parametrize("method", DRAWS)
def test_new_draws_are_shaped_like_one_batch(method, random_batches, to_container, tmp_path):
    batches = [
        to_container(batch, sample_stats={"diverging": np.zeros((2, 200), bool)})
        for batch in random_batches(np.random.default_rng(3), 3, chains=2, draws=200)
    ]
    merged = az_swiss.merge(batches, method=method, random_seed=0, kind="inflated")
    assert theta(merged).shape == (2, 200, 3)
    assert np.isfinite(theta(merged)).all()
    assert "batch" not in merged["posterior"].coords
    assert set(merged["swiss_transform"].data_vars).isdisjoint({"scale", "target"})
    merged.to_netcdf(tmp_path / "merged.nc")
    with pytest.raises(ValueError, match=f'method "{method}", whose draws were newly made'):
        az_swiss.subposteriors(merged)


@pytest.mark.parametrize("method", [name for name in DRAWS if name not in ("average", "quantile")])
def test_the_seed_decides(method, random_batches):
    batches = random_batches(np.random.default_rng(3), 3)
    first, again, other = (
        theta(az_swiss.merge(batches, method=method, random_seed=seed, kind="inflated"))
        for seed in (5, 5, 6)
    )
    assert np.array_equal(first, again)
    assert np.array_equal(first, other) == (method == "consensus")


@pytest.mark.parametrize("method", ALL)
def test_common_units_do_not_matter(method, random_batches):
    batches = random_batches(np.random.default_rng(4), 3)
    merged = az_swiss.merge(batches, method=method, random_seed=1, kind="inflated")
    small = [{"theta": 1e-3 * batch["theta"]} for batch in batches]
    np.testing.assert_allclose(
        1e3 * theta(az_swiss.merge(small, method=method, random_seed=1, kind="inflated")),
        theta(merged),
        atol=1e-9,
    )


@pytest.mark.parametrize("method", ["semiparametric", "nonparametric", "median", "consensus"])
def test_units_of_single_parameters_do_not_matter(method, random_batches):
    batches = random_batches(np.random.default_rng(4), 3)
    units = np.array([1e-3, 1.0, 1e4])
    merged = az_swiss.merge(batches, method=method, random_seed=1, kind="inflated")
    other = az_swiss.merge(
        [{"theta": units * batch["theta"]} for batch in batches],
        method=method,
        random_seed=1,
        kind="inflated",
    )
    np.testing.assert_allclose(theta(other) / units, theta(merged), atol=1e-7)


@pytest.mark.parametrize("method", ["semiparametric", "nonparametric"])
def test_without_standardising_units_matter_as_in_the_r_package(method, random_batches):
    batches = random_batches(np.random.default_rng(4), 3)
    small = [{"theta": 1e-3 * batch["theta"]} for batch in batches]
    options = {"method": method, "random_seed": 1, "standardise": False, "kind": "inflated"}
    difference = 1e3 * theta(az_swiss.merge(small, **options)) - theta(
        az_swiss.merge(batches, **options)
    )
    assert np.abs(difference).max() > 0.1


def product_of(batches, powers):
    """Return mean and covariance of the posterior that Gaussian inflated batches imply."""
    draws = [batch["theta"].reshape(-1, batch["theta"].shape[-1]) for batch in batches]
    precisions = [np.linalg.inv(np.cov(d.T)) for d in draws]
    covariance = np.linalg.inv(sum(p / w for p, w in zip(precisions, powers, strict=True)))
    natural = sum(p @ d.mean(axis=0) / w for p, d, w in zip(precisions, draws, powers, strict=True))
    return covariance @ natural, covariance


@pytest.mark.parametrize("method", ["swiss", "consensus", "gaussian", "semiparametric"])
def test_gaussian_batches_give_their_product(method, random_batches):
    powers = (8.0, 8.0, 4.0, 2.0)
    batches = random_batches(np.random.default_rng(5), 4, chains=2, draws=2000)
    merged = az_swiss.merge(both_kinds(batches, powers)[0], method=method, random_seed=0)
    mean, covariance = product_of(batches, powers)
    draws = rows(merged)
    white = (draws - mean) @ np.linalg.cholesky(np.linalg.inv(covariance))
    # n |mean|^2 is chi-squared on 3 degrees of freedom, and |cov - I|_F about sqrt(3 * 4 / n);
    # semiparametric draws descend from one another, worth a third of their number at least
    count = len(draws) / (3 if method == "semiparametric" else 1)
    assert count * np.sum(white.mean(axis=0) ** 2) < stats.chi2.ppf(1 - 1e-5, 3)
    assert np.linalg.norm(np.cov(white.T) - np.eye(3)) < 3 * np.sqrt(12 / count)
    if method in ("swiss", "consensus"):
        np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-10)


def test_recentre_keeps_shapes_and_takes_the_plain_mean(random_batches):
    batches = random_batches(np.random.default_rng(6), 4)
    inflated, _ = both_kinds(batches, (8, 8, 4, 2))
    merged = theta(az_swiss.merge(inflated, method="recentre"))
    means = [batch["theta"].mean(axis=(0, 1)) for batch in batches]
    expected = np.concatenate(
        [
            batch["theta"] - mean + np.mean(means, axis=0)
            for batch, mean in zip(batches, means, strict=True)
        ]
    )
    np.testing.assert_allclose(merged, expected, atol=1e-13)


def test_pool_leaves_the_draws_alone(random_batches):
    batches = random_batches(np.random.default_rng(6), 4)
    merged = theta(az_swiss.merge(batches, method="pool", kind="inflated"))
    np.testing.assert_allclose(merged, np.concatenate([b["theta"] for b in batches]), atol=1e-13)


def test_barycenter_is_the_mean_of_roots_for_commuting_covariances():
    rng = np.random.default_rng(7)
    rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    spreads, weights = rng.uniform(0.5, 2, size=(3, 4)), np.array([0.5, 0.3, 0.2])
    covariances = [(rotation * spread**2) @ rotation.T for spread in spreads]
    expected = (rotation * (weights @ spreads) ** 2) @ rotation.T
    np.testing.assert_allclose(
        linalg.wasserstein_barycenter(covariances, weights), expected, atol=1e-9
    )


def test_transport_map_is_symmetric_and_carries_source_to_target(random_covariance):
    rng = np.random.default_rng(8)
    source, target = random_covariance(rng, 5), random_covariance(rng, 5)
    mapped = linalg.transport_map(source, target)
    np.testing.assert_allclose(mapped, mapped.T, atol=1e-12)
    np.testing.assert_allclose(mapped @ source @ mapped, target, atol=1e-12)


def test_location_scatter_and_barycenter_have_the_barycenters_moments(random_batches):
    powers = np.array([8.0, 8.0, 4.0, 2.0])
    batches = random_batches(np.random.default_rng(9), 4, draws=1000)
    inflated, _ = both_kinds(batches, powers)
    flat = [batch["theta"].reshape(-1, 3) for batch in batches]
    mean = (1 / powers) @ np.array([draws.mean(axis=0) for draws in flat])
    centre = linalg.wasserstein_barycenter([np.cov(draws.T) for draws in flat], 1 / powers)
    raw = {"standardise": False}
    moved = theta(az_swiss.merge(inflated, method="location_scatter", **raw)).reshape(4, -1, 3)
    for draws in moved:
        np.testing.assert_allclose(draws.mean(axis=0), mean, atol=1e-10)
        np.testing.assert_allclose(np.cov(draws.T), centre, atol=1e-8)
    made = rows(az_swiss.merge(inflated, method="barycenter", random_seed=0, **raw))
    white = (made - mean) @ np.linalg.cholesky(np.linalg.inv(centre))
    assert len(made) * np.sum(white.mean(axis=0) ** 2) < stats.chi2.ppf(1 - 1e-5, 3)
    assert np.linalg.norm(np.cov(white.T) - np.eye(3)) < 3 * np.sqrt(12 / len(made))


@quiet
@pytest.mark.parametrize("method", ["location_scatter", "barycenter"])
def test_barycenters_do_not_depend_on_units(random_batches, method):
    batches = random_batches(np.random.default_rng(9), 4, draws=1000)
    units = np.exp([-9.0, 0.0, 9.0])
    scaled = [{"theta": batch["theta"] * units} for batch in batches]
    plain, other = (
        theta(az_swiss.merge(each, method=method, random_seed=0, kind="inflated"))
        for each in (batches, scaled)
    )
    np.testing.assert_allclose(other / units, plain, atol=1e-8)


@quiet
def test_a_barycenter_that_is_not_found_says_what_to_do(random_batches):
    batches = random_batches(np.random.default_rng(9), 4, draws=1000)
    scaled = [{"theta": batch["theta"] * np.exp([-9.0, 0.0, 9.0])} for batch in batches]
    with pytest.raises(ValueError, match=r"barycenter was not found .*standardise=True, or .*swis"):
        az_swiss.merge(scaled, method="barycenter", standardise=False, kind="inflated")


def test_barycenter_weights_make_equal_covariances_exact(exact_draws):
    # with one covariance for all batches the pooled mean is the weighted mean
    rng, powers = np.random.default_rng(10), (4.0, 4.0, 2.0)
    batches = [{"theta": exact_draws(rng, rng.normal(size=2), np.eye(2))} for _ in powers]
    inflated, _ = both_kinds(batches, powers)
    swiss, other = (
        az_swiss.merge(inflated, method=method) for method in ("swiss", "location_scatter")
    )
    np.testing.assert_allclose(theta(other), theta(swiss), atol=1e-8)


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
    weights = measures.geometric_median(points @ points.T)
    assert abs(weights @ points - 1.0) < 1e-3


def test_geometric_median_has_the_least_sum_of_distances():
    points = np.random.default_rng(12).normal(size=(6, 3))
    median = measures.geometric_median(points @ points.T) @ points

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


def smoothed_product(bandwidth, count):
    """Return the mean of the product of `count` Gamma(2, 1), each as a semiparametric estimate."""
    x, t = np.linspace(-2, 9, 441), np.linspace(1e-3, 25, 1500)
    start = stats.norm(2, np.sqrt(2))
    kernel = stats.norm.pdf(x[:, None], t, bandwidth)
    estimate = start.pdf(x) * integrate.trapezoid(
        kernel * np.exp(stats.gamma.logpdf(t, 2) - start.logpdf(t)), t, axis=1
    )
    weight = estimate**count
    return integrate.trapezoid(x * weight, x) / integrate.trapezoid(weight, x)


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_semiparametric_finds_the_product_of_four_gammas():
    # product: Gamma(5, 4), mean 1.25, skew .894; the error of a run includes that of its batches,
    # so it is taken from runs on batches of their own
    rng, runs, draws = np.random.default_rng(14), 8, 4000
    made = []
    for seed in range(runs):
        batches = [{"x": rng.gamma(2, 1, size=(2, draws // 2))} for _ in range(4)]
        merged = az_swiss.merge(
            batches, method="semiparametric", kind="fractionated", random_seed=seed
        )
        made.append(merged["posterior"]["x"].values.ravel())
    means, skews = np.mean(made, axis=1), stats.skew(made, axis=1)
    # the kernels' sd is n^(-1/5) / sqrt(4) batch sds, of which the smoothing follows
    smoothed = smoothed_product(0.5 * draws**-0.2 * np.sqrt(2), 4)
    assert abs(smoothed - 1.25) < 0.03
    limit = stats.t.ppf(1 - 1e-4, runs - 1) / np.sqrt(runs)
    assert abs(means.mean() - smoothed) < limit * means.std(ddof=1)
    assert abs(skews.mean() - 0.894) < limit * skews.std(ddof=1)


def test_walks_reach_a_product_far_from_the_average():
    # the plain average of draws has mean .375, the product 6 / 7; one run's mean has a standard
    # error of about .06, and walks that are not resampled end at .77
    rng, means = np.random.default_rng(23), []
    for _ in range(16):
        draws = rng.normal(size=(4, 2000, 1))
        draws[0] = 1.5 + 0.5 * draws[0]
        no_start = np.zeros((4, 2000)), np.zeros(1)
        means.append(img.sample(draws, *no_start, 0.3, 2000, 60, rng).draws.mean())
    assert abs(np.mean(means) - 6 / 7) < 4 * 0.06 / np.sqrt(16)


def test_semiparametric_does_not_change_with_the_units_of_the_gammas():
    rng = np.random.default_rng(15)
    batches = [{"x": rng.gamma(2, 1, size=(1, 1000))} for _ in range(4)]
    small = [{"x": 0.001 * batch["x"]} for batch in batches]
    first, second = (
        az_swiss.merge(idatas, method="semiparametric", kind="fractionated", random_seed=1)
        for idatas in (batches, small)
    )
    np.testing.assert_allclose(1000 * second["posterior"]["x"], first["posterior"]["x"], rtol=1e-9)


@pytest.mark.parametrize("gaussian_start", [True, False])
def test_compiled_and_plain_loops_agree(gaussian_start):
    draws = np.random.default_rng(16).normal(size=(3, 300, 2))
    logs = -0.5 * np.sum(draws**2, axis=-1) * gaussian_start
    precision = np.array([3.0, 2.0]) * gaussian_start
    plain, compiled = (
        img.sample(draws, logs, precision, 1.0, 300, 40, np.random.default_rng(1), compiled=choice)
        for choice in (False, True)
    )
    np.testing.assert_allclose(plain.draws, compiled.draws, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(plain.used, compiled.used)


@quiet
@pytest.mark.parametrize("method", DRAWS)
def test_new_draws_of_transformed_and_constant_variables(method):
    rng = np.random.default_rng(17)
    batches = [
        {"sigma": rng.gamma(9, 1, size=(2, 300)), "fixed": np.full((2, 300), 1.5)} for _ in range(3)
    ]
    merged = az_swiss.merge(
        batches, method=method, transforms={"sigma": "log"}, random_seed=0, kind="inflated"
    )
    sigma = merged["posterior"]["sigma"].values
    np.testing.assert_allclose(
        np.log(sigma), merged["unconstrained_posterior"]["sigma"].values, atol=1e-12
    )
    assert np.all(merged["posterior"]["fixed"].values == 1.5)


def test_new_draws_keep_single_precision():
    below = np.random.default_rng(25).normal(0.3, 0.2, size=(3, 2, 200)).astype(np.float32)
    factors = np.zeros((3, 2, 200, 2, 2), np.float32)
    factors[..., 0, 0], factors[..., 1, 0], factors[..., 1, 1] = 1, below, np.sqrt(1 - below**2)
    batches = [{"corr": one} for one in factors]
    merged = az_swiss.merge(
        batches, method="consensus", kind="fractionated", transforms={"corr": "cholesky_corr"}
    )
    assert merged["posterior"]["corr"].dtype == np.float32


@pytest.mark.parametrize("method", ["consensus", "median"])
def test_unequal_numbers_of_draws_use_the_shortest(method, random_batches):
    rng = np.random.default_rng(18)
    batches = random_batches(rng, 2, chains=3, draws=300)
    batches += random_batches(rng, 1, chains=2, draws=200)
    with pytest.warns(az_swiss.MergeWarning, match="first 2 chains and the first 200 draws"):
        merged = az_swiss.merge(batches, method=method, kind="inflated")
    assert theta(merged).shape == (2, 200, 3)


@pytest.mark.parametrize("method", [name for name in ALL if name not in ("swiss", "gaussian")])
def test_a_prior_that_must_be_subtracted_is_refused(method, random_batches):
    rng = np.random.default_rng(19)
    batches, prior = random_batches(rng, 3), {"theta": 10 * rng.normal(size=(1, 2000, 3))}
    with pytest.raises(ValueError, match=f'"{method}" takes the batches as they are'):
        az_swiss.merge(batches, method=method, kind="full_prior", prior=prior)


def test_gaussian_subtracts_the_prior_as_swiss_does(random_batches):
    rng = np.random.default_rng(20)
    batches = random_batches(rng, 3)
    prior = {"theta": 10 * rng.normal(size=(1, 2000, 3))}
    made, moved = (
        az_swiss.merge(batches, method=method, kind="full_prior", prior=prior, random_seed=0)
        for method in ("gaussian", "swiss")
    )
    spread = rows(moved).std(axis=0)
    # 400 new draws: four standard errors
    assert np.all(np.abs(rows(made).mean(axis=0) - rows(moved).mean(axis=0)) < 4 * spread / 20)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"method": "mean"}, ValueError, "unknown method 'mean'. Valid methods are \"swiss\""),
        (
            {"method": "semiparametric", "bandwith": 2},
            TypeError,
            "no option bandwith. Its options are: bandwidth, standardise, sweeps;",
        ),
        ({"bandwidth": 2}, TypeError, '"swiss" has no option bandwidth. Its options are: none'),
        ({"method": "semiparametric", "bandwidth": 0}, ValueError, "bandwidth must be a positive"),
        ({"method": "nonparametric", "bandwidth": -1}, ValueError, "bandwidth must be a positive"),
        ({"method": "median", "bandwidth": 0}, ValueError, "bandwidth must be a positive"),
        ({"method": "semiparametric", "sweeps": 0}, ValueError, "sweeps must be at least 1"),
        ({"method": "median", "landmarks": 1}, ValueError, "landmarks must be at least 2"),
    ],
)
def test_bad_options_are_named(arguments, error, message, random_batches):
    with pytest.raises(error, match=message):
        az_swiss.merge(random_batches(np.random.default_rng(21), 2), kind="inflated", **arguments)


def test_a_method_is_one_function_and_one_line(random_batches, monkeypatch):
    monkeypatch.setattr(methods.registry, "METHODS", dict(methods.METHODS))

    @methods.register("shifted", expects="inflated")
    def shifted(given, *, by=1.0):
        size = given.pooled.mean.size
        return [AffineMap(np.eye(size), m.mean, m.mean + by) for m in given.moments]

    batches = random_batches(np.random.default_rng(22), 2)
    merged = az_swiss.merge(batches, method="shifted", by=2.0, kind="inflated")
    np.testing.assert_allclose(theta(merged)[:2], batches[0]["theta"] + 2, atol=1e-12)


def correlated(rng, batches=8, size=10):
    covariance = np.full((size, size), 0.9) + 0.1 * np.eye(size)
    draws = rng.multivariate_normal(np.zeros(size), covariance, size=(batches, 2, 500))
    return [{"theta": one} for one in draws]


def heavy_tailed(rng, batches=8, size=13):
    return [{"theta": one} for one in rng.standard_t(5, size=(batches, 2, 500, size))]


def off_by(merged, batches):
    """Return how many sds of the product the mean is from zero, and how much wider the draws."""
    sds = np.std([batch["theta"] for batch in batches], axis=(0, 1, 2)) / np.sqrt(len(batches))
    return np.abs(rows(merged).mean(axis=0) / sds).max(), (rows(merged).std(axis=0) / sds).max()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("make", "covariance", "remedy"),
    [
        (correlated, "diagonal", {"method": "swiss", "covariance": "diagonal"}),
        (correlated, "diagonal", {"method": "consensus", "covariance": "diagonal"}),
        (correlated, "diagonal", {"method": "semiparametric", "covariance": "sample"}),
        (heavy_tailed, "sample", {"method": "semiparametric", "bandwidth": 12}),
    ],
)
def test_a_kernel_product_that_is_not_found_is_warned_of(make, covariance, remedy, seed):
    batches, options = make(np.random.default_rng(seed)), {"kind": "fractionated"}
    with pytest.warns(az_swiss.MergeWarning, match="kernel estimates was not found") as caught:
        wrong = az_swiss.merge(
            batches, method="semiparametric", covariance=covariance, random_seed=seed, **options
        )
    assert len(caught) == 1 and caught[0].filename == __file__
    shift, _ = off_by(wrong, batches)
    assert shift > 1
    shift, width = off_by(az_swiss.merge(batches, random_seed=seed, **options, **remedy), batches)
    # 8,000 draws in all put the product's mean off by sqrt(8 / 8000) of its sds, and walks worth
    # a third of 1,000 draws by sqrt(3 / 1000)
    assert shift < 5 * np.hypot(np.sqrt(8 / 8000), np.sqrt(3 / 1000))
    assert width < 1.15


def banana(rng):
    x = rng.normal(size=(2, 1000))
    return {"theta": np.stack([x, x**2 + 0.5 * rng.normal(size=x.shape)], axis=-1)}


def two_modes(rng):
    left = rng.random((2, 1000, 1)) < 0.65
    return {"theta": np.where(left, -1.0, 1.0) + 0.3 * rng.normal(size=left.shape)}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("method", ["semiparametric", "nonparametric"])
@pytest.mark.parametrize(
    "make",
    [
        lambda rng: {"theta": rng.gamma(2, 1, size=(2, 1000, 1))},
        lambda rng: {"theta": rng.gamma(2, 1, size=(2, 1000, 3))},
        lambda rng: {"theta": rng.normal(size=(2, 500, 6))},
        banana,
        two_modes,
    ],
    ids=["gamma", "three gammas", "normal", "banana", "two modes"],
)
def test_kernel_products_far_from_their_gaussians_are_not_warned_of(make, method, seed):
    rng = np.random.default_rng(seed)
    batches = [make(rng) for _ in range(6)]
    merged = az_swiss.merge(batches, method=method, kind="fractionated", random_seed=seed)
    assert np.isfinite(rows(merged)).all()


def test_walks_count_what_they_are_worth():
    rng = np.random.default_rng(24)
    independent = rng.normal(size=(2000, 3))
    families = np.repeat(rng.normal(size=(10, 3)), 200, axis=0)
    assert img.effective_size(independent) > 500
    assert img.effective_size(families) < 25
    walks = img.sample(
        rng.normal(size=(3, 500, 1)), np.zeros((3, 500)), np.zeros(1), 1.0, 400, 40, rng
    )
    assert walks.used.shape == (3,)
    assert np.all((walks.used > 50) & (walks.used <= 400))


SPEED = """
import time
import numpy as np
import arviz_swiss as az_swiss

rng = np.random.default_rng(0)
batches = [{"theta": rng.normal(size=(1, 5000, 80))} for _ in range(10)]
az_swiss.merge([{"theta": b["theta"][:, :200]} for b in batches], kind="fractionated")
def seconds(method):
    start = time.process_time()
    az_swiss.merge(batches, method=method, kind="fractionated", random_seed=0)
    return time.process_time() - start
"""


@pytest.mark.slow
@pytest.mark.speed
def test_semiparametric_takes_less_than_three_seconds(cpu_seconds):
    (taken,) = cpu_seconds(SPEED + 'print(seconds("semiparametric"))')
    assert taken < 3


@pytest.mark.slow
@pytest.mark.speed
def test_consensus_is_no_slower_than_swiss(cpu_seconds):
    code = 'for m in ("consensus", "swiss"): print(min(seconds(m) for _ in range(5)))'
    consensus, swiss = cpu_seconds(SPEED + code)
    assert consensus < 1.1 * swiss

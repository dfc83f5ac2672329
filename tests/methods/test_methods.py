"""What holds for every method."""

import numpy as np
import pytest
from batch_kinds import both_kinds, rows, theta
from scipy import stats

import arviz_swiss as az_swiss
from arviz_swiss import methods

# Those that merge draws alone.
ALL = [name for name, method in methods.METHODS.items() if method.makes != "product"]


MAPS = [name for name in ALL if methods.METHODS[name].makes == "maps"]


DRAWS = [name for name in ALL if name not in MAPS]


quiet = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")


@pytest.mark.parametrize("powers", [(4.0,) * 4, (8.0, 8.0, 4.0, 2.0)], ids=["equal", "unequal"])
@pytest.mark.parametrize("method", ALL)
def test_both_kinds_of_gaussian_batches_give_the_same(method, powers, random_batches):
    batches = random_batches(np.random.default_rng(1), 4)
    inflated, fractionated = both_kinds(batches, powers)
    first = az_swiss.merge(inflated, method=method, random_seed=3)
    second = az_swiss.merge(fractionated, method=method, random_seed=3)
    np.testing.assert_allclose(theta(first), theta(second), rtol=1e-8, atol=1e-8)
    rescaled = [merged["posterior"].attrs.get("swiss_rescaled") for merged in (first, second)]
    if methods.find(method).expects == "inflated":
        assert rescaled == [None, "from fractionated to inflated"]
    else:
        assert rescaled == ["from inflated to fractionated", None]


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

"""The product of densities that Gaussian processes interpolate."""

import numpy as np
import pytest
import xarray as xr
from batch_kinds import rows, theta
from scipy import stats

import arviz_swiss as az_swiss

quiet = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")


def product(batches, logs, **options):
    options = {"kind": "fractionated", "random_seed": 1, **options}
    return az_swiss.merge(batches, method="gaussian_process", log_densities=logs, **options)


def gaussians(rng, batches=4, size=3, shape=(2, 500)):
    """Return Gaussian batches with their log densities, and the moments of their product."""
    made, logs, precision, shift = [], [], 0, 0
    for _ in range(batches):
        root = np.tril(rng.normal(size=(size, size))) + 2 * np.eye(size)
        own, mean = root @ root.T, np.linalg.solve(root.T, rng.normal(size=size))
        white = rng.normal(size=(*shape, size))
        made.append({"theta": mean + np.linalg.solve(root.T, white[..., None])[..., 0]})
        logs.append(7.0 - 0.5 * np.sum(white**2, axis=-1))
        precision, shift = precision + own, shift + own @ mean
    return made, logs, np.linalg.solve(precision, shift), precision


def test_gaussian_batches_give_their_product_whatever_their_draws():
    rng = np.random.default_rng(0)
    batches, logs, mean, precision = gaussians(rng)
    # draws that say little of their moments by themselves: densities tell all the same
    merged = product(batches, logs)
    density = merged["swiss_product"]["log_density"].values.ravel()
    centred = rows(merged) - mean
    exact = -0.5 * np.sum(centred @ precision * centred, axis=1)
    np.testing.assert_allclose(density - density[0], exact - exact[0], atol=1e-6)
    assert float(merged["swiss_product"]["fit_error"].max()) < 1e-6
    white = centred @ np.linalg.cholesky(precision)
    # chains of Hamiltonian Monte Carlo forget within a few draws
    count = len(white) / 4
    assert count * np.sum(white.mean(axis=0) ** 2) < stats.chi2.ppf(1 - 1e-5, 3)
    assert np.linalg.norm(np.cov(white.T) - np.eye(3)) < 3 * np.sqrt(12 / count)


def test_inflated_batches_are_taken_to_their_powers_and_stay_where_they_are():
    rng = np.random.default_rng(1)
    batches, logs, mean, precision = gaussians(rng)
    powers = np.array([8.0, 8.0, 4.0, 2.0])
    inflated = [
        {"theta": one["theta"].mean((0, 1)) + (one["theta"] - one["theta"].mean((0, 1))) / 2}
        for one in batches
    ]
    centres = [one["theta"].mean((0, 1)) for one in batches]
    # a batch of half the sds has four times the precision, and four times the log density
    roots = [np.linalg.inv(np.cov(one["theta"].reshape(-1, 3).T)) for one in inflated]
    logs = [
        -0.5 * np.einsum("cdi,ij,cdj->cd", one["theta"] - centre, root, one["theta"] - centre)
        for one, centre, root in zip(inflated, centres, roots, strict=True)
    ]
    merged = product(inflated, logs, kind="inflated", powers=powers)
    precision = sum(root / power for root, power in zip(roots, powers, strict=True))
    mean = np.linalg.solve(
        precision,
        sum(root @ c / power for root, c, power in zip(roots, centres, powers, strict=True)),
    )
    density = merged["swiss_product"]["log_density"].values.ravel()
    centred = rows(merged) - mean
    exact = -0.5 * np.sum(centred @ precision * centred, axis=1)
    np.testing.assert_allclose(density - density[0], exact - exact[0], atol=1e-6)
    assert "swiss_rescaled" not in merged["posterior"].attrs


def bananas(rng, batches=5, shape=(2, 500)):
    """Return curved batches with log densities, and the log density of their product."""
    places = rng.normal(size=(batches, 2))
    bends = rng.uniform(0.5, 1.5, size=batches)

    def log_density(x, at):
        bent = x[..., 1] + bends[at] * x[..., 0] ** 2 - places[at, 1]
        return -0.5 * ((x[..., 0] - places[at, 0]) ** 2 + bent**2) / batches

    made = []
    for place, bend in zip(places, bends, strict=True):
        first, second = place[:, None, None] + np.sqrt(batches) * rng.normal(size=(2, *shape))
        made.append({"theta": np.stack([first, second - bend * first**2], axis=-1)})
    logs = [log_density(one["theta"], at) for at, one in enumerate(made)]
    return made, logs, lambda x: sum(log_density(x, at) for at in range(batches))


def on_grid(log_density):
    """Return mean, sd and skewness of each parameter, by sums over a grid."""
    grid = np.stack(
        np.meshgrid(np.linspace(-6, 6, 601), np.linspace(-20, 8, 1401), indexing="ij"), axis=-1
    ).reshape(-1, 2)
    logs = log_density(grid)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    return mean, sd, weights @ ((grid - mean) / sd) ** 3


@quiet
def test_a_curved_product_is_found_where_gaussians_miss_it():
    batches, logs, log_density = bananas(np.random.default_rng(0))
    mean, sd, skew = on_grid(log_density)
    found = rows(product(batches, logs))
    # draws worth a third of 1,000; a skewed sd has about twice the noise of a Gaussian one
    noise = np.sqrt(3 / 1000)
    assert np.abs((found.mean(axis=0) - mean) / sd).max() < 4 * noise
    assert np.abs(found.std(axis=0) / sd - 1).max() < 6 * noise
    assert np.sign(stats.skew(found)[1]) == np.sign(skew[1])
    consensus = rows(az_swiss.merge(batches, method="consensus", kind="fractionated"))
    assert np.abs((consensus.mean(axis=0) - mean) / sd).max() > 1


@quiet
def test_affine_maps_of_the_parameters_move_the_draws_along():
    """Where these keep the order of the parameters, so that the random numbers are the same."""
    batches, logs, _ = bananas(np.random.default_rng(3))
    scale, shift = np.array([[1e-3, 2.0], [0.0, 50.0]]), np.array([4.0, -1e3])
    moved = [{"theta": one["theta"] @ scale.T + shift} for one in batches]
    there, here = rows(product(moved, logs)), rows(product(batches, logs)) @ scale.T + shift
    # trajectories of fifty iterations make more of rounding errors
    differences = np.abs(there - here) / here.std(axis=0)
    assert np.quantile(differences, 0.9) < 1e-4 and differences.max() < 0.1


def test_the_statistics_of_samplers_are_used(to_container):
    batches, logs, *_ = gaussians(np.random.default_rng(4))
    for name in ("lp", "logp"):
        sampled = [
            to_container(one, sample_stats={name: log})
            for one, log in zip(batches, logs, strict=True)
        ]
        merged = az_swiss.merge(
            sampled, method="gaussian_process", kind="fractionated", random_seed=1
        )
        np.testing.assert_array_equal(theta(merged), theta(product(batches, logs)))
    assert "sample_stats" not in dict(merged.items() if hasattr(merged, "items") else {})


@pytest.mark.parametrize(
    ("change", "options", "error", "match"),
    [
        (lambda b, x: (b, None), {}, ValueError, r"batch 0 .*sample_stats has no lp or logp"),
        (lambda b, x: (b, x[:-1]), {}, ValueError, "3 elements for 4 batches"),
        (lambda b, x: (b, [-each for each in x]), {}, ValueError, "their sign is wrong"),
        (lambda b, x: (b, [4 * each for each in x]), {}, ValueError, '"b0": its draws do not come'),
        (lambda b, x: (b, [x[0][:1], *x[1:]]), {}, ValueError, r"batch 0 .* shape \(1, 500\)"),
        (lambda b, x: (b, [x[0] * np.inf, *x[1:]]), {}, ValueError, "1000 of its log densities"),
        (lambda b, x: (b, x), {"points": 15}, ValueError, "15 different draws .* 20 are needed"),
        (lambda b, x: (b, x), {"points": 0}, ValueError, "points"),
        (lambda b, x: (b, x), {"method": "swiss"}, TypeError, "does not use log_densities"),
    ],
)
def test_what_cannot_be_interpolated_is_refused(change, options, error, match):
    batches, logs, *_ = gaussians(np.random.default_rng(5))
    batches, logs = change(batches, logs)
    options = {"method": "gaussian_process", "kind": "fractionated", **options}
    with pytest.raises(error, match=match):
        az_swiss.merge(batches, log_densities=logs, **options)


def test_too_many_parameters_are_refused():
    rng = np.random.default_rng(6)
    batches = [{"theta": rng.normal(size=(2, 1000, 13))} for _ in range(2)]
    logs = [-0.5 * np.sum(one["theta"] ** 2, axis=-1) for one in batches]
    with pytest.raises(ValueError, match="up to 12 parameters, and the batches have 13"):
        product(batches, logs)


def test_variables_of_one_batch_are_refused():
    rng = np.random.default_rng(7)
    batches = [
        xr.Dataset(
            {
                "theta": (("chain", "draw"), rng.normal(size=(2, 200))),
                "effect": (("chain", "draw", "site"), rng.normal(size=(2, 200, 2))),
            },
            coords={"site": [2 * at, 2 * at + 1]},
        )
        for at in range(2)
    ]
    with pytest.raises(ValueError, match="effect are of one batch alone"):
        product(batches, [np.zeros((2, 200))] * 2)


def test_missing_jacobians_are_warned_of():
    """Of sds on their own scale, merged as logarithms: the sum is off by their squared sd."""
    rng, shape = np.random.default_rng(8), 4.0
    batches = [{"theta": rng.gamma(shape, size=(2, 1000, 1))} for _ in range(8)]
    logs = [stats.gamma.logpdf(one["theta"][..., 0], shape) for one in batches]
    right = [log + np.log(one["theta"][..., 0]) for log, one in zip(logs, batches, strict=True)]
    options = {"transforms": {"theta": "log"}}
    with pytest.warns(az_swiss.MergeWarning, match="Jacobians") as caught:
        product(batches, logs, **options)
    assert any("do not fit together" in str(one.message) for one in caught)
    # the product on the log scale: Gamma(32, 8)
    found = rows(product(batches, right, **options))
    assert abs(found.mean() - 4) < 4 * np.sqrt(32 / 64 * 3 / len(found))


def test_noise_in_log_densities_is_warned_of():
    batches, logs, *_ = gaussians(np.random.default_rng(9))
    rng = np.random.default_rng(10)
    noisy = [log + 0.5 * rng.normal(size=log.shape) for log in logs]
    with pytest.warns(az_swiss.MergeWarning, match="log density of the product is off by"):
        product(batches, noisy)

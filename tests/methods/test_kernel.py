import numpy as np
import pytest
from batch_kinds import rows, theta
from scipy import integrate, special, stats

import arviz_swiss as az_swiss
from arviz_swiss.methods.kernel import kernel_noise


@pytest.mark.parametrize("method", ["semiparametric", "nonparametric"])
def test_without_standardising_units_matter_as_in_the_r_package(method, random_batches):
    batches = random_batches(np.random.default_rng(4), 3)
    small = [{"theta": 1e-3 * batch["theta"]} for batch in batches]
    options = {"method": method, "random_seed": 1, "standardise": False, "kind": "inflated"}
    difference = 1e3 * theta(az_swiss.merge(small, **options)) - theta(
        az_swiss.merge(batches, **options)
    )
    assert np.abs(difference).max() > 0.1


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


def test_semiparametric_does_not_change_with_the_units_of_the_gammas():
    rng = np.random.default_rng(15)
    batches = [{"x": rng.gamma(2, 1, size=(1, 1000))} for _ in range(4)]
    small = [{"x": 0.001 * batch["x"]} for batch in batches]
    first, second = (
        az_swiss.merge(idatas, method="semiparametric", kind="fractionated", random_seed=1)
        for idatas in (batches, small)
    )
    np.testing.assert_allclose(1000 * second["posterior"]["x"], first["posterior"]["x"], rtol=1e-9)


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
        (heavy_tailed, "sample", {"method": "semiparametric"}),
    ],
)
def test_a_kernel_product_that_is_not_found_is_warned_of(make, covariance, remedy, seed):
    batches, options = make(np.random.default_rng(seed)), {"kind": "fractionated"}
    with pytest.warns(az_swiss.MergeWarning, match="kernel estimates was not found") as caught:
        wrong = az_swiss.merge(
            batches,
            method="semiparametric",
            covariance=covariance,
            random_seed=seed,
            bandwidth=2,
            **options,
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


def apart(rng, batches, rows, size):
    """Return Gaussian batches of unit variance with means that scatter as by data of their own."""
    centres = rng.normal(size=(batches, 1, 1, size))
    return [{"theta": one} for one in centres + rng.normal(size=(batches, 1, rows, size))]


@pytest.mark.parametrize("size", [1, 2, 13, 20])
def test_the_default_bandwidth_finds_the_product_in_any_dimension(size):
    count = max(500, 120 * size)
    batches = apart(np.random.default_rng(size), 8, count, size)
    merged = az_swiss.merge(batches, method="semiparametric", kind="fractionated", random_seed=0)
    mean = np.mean([batch["theta"] for batch in batches], axis=(0, 1, 2))
    white = (rows(merged) - mean) * np.sqrt(len(batches))
    # the draws' own means are exact here but for their covariances; walks are worth a third
    noise = np.sqrt((size * (size + 1) + 3 * size) / count)
    assert np.linalg.norm(white.mean(axis=0)) < 0.35 + 3 * noise
    assert np.abs(np.log(white.std(axis=0))).max() < 0.3


def test_noise_is_what_batches_drawn_again_show():
    """Against the sd of the slope's shift over sets of draws of the same Gaussians."""
    rng, batches, count, width = np.random.default_rng(0), 4, 400, 0.5
    precision = np.array([4.0, 4.0])
    told, shifts = [], []
    for _ in range(60):
        draws = rng.normal(size=(batches, count, 2))
        logs = -0.5 * np.sum(draws**2, axis=-1)
        told.append(kernel_noise(draws, logs, precision, width))
        places = rng.normal(size=(400, 2)) / 2
        slope = np.zeros(2)
        for own, log in zip(draws, logs, strict=True):
            distances = np.sum((own[:, None] - places) ** 2, axis=-1)
            weights = special.softmax(-0.5 * distances / width**2 - log[:, None], axis=0)
            slope += np.mean(weights.T @ own - places, axis=0) / width**2
        shifts.append(slope / np.sqrt(precision))
    # sixty sets leave a tenth of an sd, and 400 places of those as much again
    assert np.mean(told) == pytest.approx(np.sqrt(np.sum(np.var(shifts, axis=0))), rel=0.35)


def test_wide_kernels_have_no_noise():
    draws = np.random.default_rng(1).normal(size=(3, 100, 13))
    logs = -0.5 * np.sum(draws**2, axis=-1)
    noise = [kernel_noise(draws, logs, np.full(13, 3.0), width) for width in (10.0, 100.0)]
    assert noise[1] == pytest.approx(noise[0] / 100, rel=0.2) and noise[1] < 0.001

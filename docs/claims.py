"""Print figures that README and docs state.

Run ``python docs/claims.py`` for all of them, or ``python docs/claims.py location`` for one.
``docs/claims.toml`` says where they stand, and ``docs/check_claims.py`` compares.
"""

import sys
import warnings

import numpy as np

import arviz_swiss as az_swiss
from arviz_swiss.base import linalg
from arviz_swiss.base.gaussian import Moments, pool


def symmetric_root(matrix, power=0.5):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * values**power) @ vectors.T


def covariances(rng, batches=10, size=6):
    """Return random covariances that resemble one another, as batches' do."""
    factor = np.linalg.cholesky(_wishart(rng, np.eye(size), 3 * size))
    return [_wishart(rng, factor, 8 * size) for _ in range(batches)]


def _wishart(rng, factor, degrees):
    noise = factor @ rng.normal(size=(factor.shape[0], degrees))
    return noise @ noise.T / degrees


def pooled_covariance(made):
    return np.linalg.inv(np.mean([np.linalg.inv(one) for one in made], axis=0))


def paper_map(root, covariance):
    """Return M Mtilde^-1 M^-1 for this root M of the pooled covariance."""
    inverse = np.linalg.inv(root)
    return root @ symmetric_root(inverse @ covariance @ inverse.T, -0.5) @ inverse


def pooling():
    """Conjugate normal regression: pooled against exact moments, all three kinds."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 4))
    y = x @ rng.normal(size=4) + rng.normal(size=600)
    prior_precision, prior_mean = 5.0 * np.eye(4), np.full(4, 0.5)
    parts = np.array_split(np.arange(600), [100, 300])
    full_precision = x.T @ x + prior_precision
    full_mean = np.linalg.solve(full_precision, x.T @ y + prior_precision @ prior_mean)
    prior = _moments(prior_precision, prior_mean)
    for kind in ("inflated", "fractionated", "full_prior"):
        batches, weights, counted = [], [], 0.0
        for part in parts:
            share = part.size / 600
            power = 1 / share if kind == "inflated" else 1.0
            prior_power = share if kind == "fractionated" else 1.0
            one = power * x[part].T @ x[part] + prior_power * prior_precision
            mean = np.linalg.solve(
                one, power * x[part].T @ y[part] + prior_power * prior_precision @ prior_mean
            )
            batches.append(_moments(one, mean))
            weights.append(1 / power)
            counted += prior_power / power
        pooled = pool(batches, np.array(weights), 1 - counted, prior)
        error = np.abs(pooled.mean - full_mean).max()
        spread = np.abs(pooled.covariance - np.linalg.inv(full_precision)).max()
        print(f"{kind:12}  largest error of the mean {error:.0e}, of the covariance {spread:.0e}")


def _moments(precision, mean):
    return Moments(mean, np.linalg.inv(precision), precision, draws=0, effective=0.0)


def equivariance():
    """The map for three roots M of V, and how far it is from optimal transport."""
    rng = np.random.default_rng(0)
    made = covariances(rng)
    pooled = pooled_covariance(made)
    rotation = np.linalg.qr(rng.normal(size=pooled.shape))[0]
    cholesky = np.linalg.cholesky(pooled)
    roots = {"Cholesky": cholesky, "random": cholesky @ rotation}
    reference = [paper_map(symmetric_root(pooled), one) for one in made]
    for name, root in roots.items():
        error = max(
            np.abs(paper_map(root, one) - a).max() for one, a in zip(made, reference, strict=True)
        )
        print(f"{name:8} root instead of the symmetric one: the map differs by at most {error:.0e}")
    distances = []
    for one, a in zip(made, reference, strict=True):
        root = symmetric_root(one)
        transport = np.linalg.inv(root) @ symmetric_root(root @ pooled @ root) @ np.linalg.inv(root)
        distances.append(np.linalg.norm(transport - a) / np.linalg.norm(a))
    print(f"optimal transport differs by {min(distances):.1%} to {max(distances):.1%}")


def scales():
    """Parameters of very different units: the literal recipe against the package."""
    rng = np.random.default_rng(0)
    units = np.exp(np.linspace(-9, 9, 6))
    made = covariances(rng)
    pooled = pooled_covariance(made)
    scaled = [units[:, None] * one * units for one in made]
    scaled_pooled = pooled_covariance(scaled)
    literal, ours = [], []
    for one, big in zip(made, scaled, strict=True):
        truth = paper_map(symmetric_root(pooled), one)
        rough = paper_map(symmetric_root(scaled_pooled), big)
        literal.append(np.abs(rough / units[:, None] * units - truth).max())
        factor = linalg.cholesky(linalg.inverse(scaled_pooled))
        fine = linalg.principal_map(factor, linalg.spectrum(factor, big))
        ours.append(np.abs(fine / units[:, None] * units - truth).max())
    print(f"symmetric root of V: error {max(literal):.0e}; Cholesky factor of P: {max(ours):.0e}")


def precision():
    """Merged sds over true ones when draws are few, without and with the correction."""
    rng = np.random.default_rng(0)
    print("parameters  draws  sd ratio: expected  sample  corrected")
    for size, draws in ((20, 500), (100, 1000), (100, 4000), (300, 2000)):
        batches = [{"x": rng.normal(size=(1, draws, size))} for _ in range(5)]
        ratios = []
        for covariance in ("sample", "corrected"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                merged = az_swiss.merge(batches, covariance=covariance, kind="inflated")
            ratios.append(float(merged["posterior"]["x"].std(("chain", "draw")).mean()))
        expected = np.sqrt((draws - size - 2) / (draws - 1))
        print(f"{size:10} {draws:6} {expected:19.3f} {ratios[0]:7.3f} {ratios[1]:10.3f}")


def shrunk():
    """Merged sds over true ones with Ledoit-Wolf covariances, 100 parameters correlated .5."""
    rng = np.random.default_rng(0)
    size = 100
    factor = np.linalg.cholesky(0.5 * np.eye(size) + 0.5)
    print("draws  sd ratio: smallest  largest  sample covariances, expected")
    for draws in (50, 200, 500, 1000, 2500):
        batches = [{"x": rng.normal(size=(1, draws, size)) @ factor.T} for _ in range(10)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            merged = az_swiss.merge(batches, kind="inflated", covariance="shrunk")
        ratios = np.sqrt(np.diag(merged["swiss_transform"]["pooled_covariance"]))
        expected = np.sqrt(max(draws - size - 2, 0) / (draws - 1))
        print(f"{draws:5} {ratios.min():19.3f} {ratios.max():8.3f} {expected:29.3f}")


def means():
    """Monte Carlo error of the merged mean, in posterior sds: by the formula, and measured."""
    rng = np.random.default_rng(0)
    print("| parameters | batches | draws of a batch | formula | measured |\n|---|---|---|---|---|")
    for size, count, draws in ((4, 8, 250), (4, 8, 1000), (20, 10, 1000), (20, 40, 4000)):
        errors = []
        for _ in range(60):
            # means of inflated batches around that of the whole, which has covariance I
            centres = np.sqrt(count) * rng.normal(size=(count, size))
            centres -= centres.mean(axis=0)
            batches = [{"x": centre + rng.normal(size=(1, draws, size))} for centre in centres]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                merged = az_swiss.merge(batches, kind="inflated")
            errors.append(merged["posterior"]["x"].mean(("chain", "draw")).values)
        formula = np.sqrt(((size + 1) * (count - 1) + 1) / (count * draws))
        print(f"| {size} | {count} | {draws:,} | {formula:.3f} | {np.std(errors):.3f} |")


def location():
    """Exponential data, gamma posterior, closed form: error of the pooled mean in posterior sds."""
    rng = np.random.default_rng(0)
    print("| rows $N$ | batches $B$ | $B / \\sqrt N$ | SwISS | consensus |\n|---|---|---|---|---|")
    for rows, count in ((10_000, 10), (10_000, 20), (10_000, 40), (40_000, 40), (160_000, 40)):
        errors = {"swiss": [], "consensus": []}
        n = rows // count
        for _ in range(400):
            sums = rng.gamma(n, size=count)
            # a flat prior on the rate: the sub-posteriors are gamma with shape (power * n + 1)
            full_mean, full_sd = (rows + 1) / sums.sum(), np.sqrt(rows + 1) / sums.sum()
            for name, power in (("swiss", count), ("consensus", 1)):
                shape, rate = power * n + 1, power * sums
                weights = rate**2 / shape
                mean = np.sum(weights * shape / rate) / weights.sum()
                errors[name].append((mean - full_mean) / full_sd)
        swiss, consensus = np.array(errors["swiss"]), np.array(errors["consensus"])
        print(
            f"| {rows:,} | {count} | {count / np.sqrt(rows):.2f} "
            f"| {swiss.mean():.2f} ± {swiss.std():.2f} "
            f"| {round(consensus.mean(), 2) + 0:.2f} ± {consensus.std():.2f} |"
        )


def sizes():
    """Batches and draws that `sample` chooses on two cores, where nothing is asked for."""
    from arviz_swiss.base.hmc import CHAINS, WARMUP
    from arviz_swiss.pymc.sizing import choose_sizes
    from arviz_swiss.pymc.task import PLAIN_TUNE

    asked = {"batches": None, "draws": 4000, "chains": CHAINS, "workers": 2}
    print("| rows | parameters | batches | rows of a batch | draws of a batch |")
    print("|---|---|---|---|---|")
    for rows, parameters in (
        (10_000, 5),
        (10_000, 28),
        (100_000, 5),
        (100_000, 28),
        (100_000, 100),
        (1_000_000, 28),
        (1_000_000, 100),
    ):
        chosen = choose_sizes(rows, parameters, refined=True, **asked)
        each = f"{round(rows / chosen.batches):,} | {chosen.draws * CHAINS:,}"
        print(f"| {rows:,} | {parameters} | {chosen.batches} | {each} |")
    alone = choose_sizes(100_000, 28, refined=False, **asked)
    print(f"without refine, 28 parameters: {alone.batches} batches, {alone.draws * CHAINS:,} draws")
    print(f"{CHAINS} chains a batch, warm-up of {WARMUP} draws, {PLAIN_TUNE:,} where not whitened")


def methods():
    """Methods of `merge`."""
    from arviz_swiss import methods

    print(f"{len(methods.METHODS)} methods: SwISS and {len(methods.METHODS) - 1} others")


CLAIMS = [pooling, equivariance, scales, precision, shrunk, means, location, sizes, methods]


def main(names):
    for claim in CLAIMS:
        if not names or claim.__name__ in names:
            print(f"\n== {claim.__name__}: {claim.__doc__}")
            claim()


if __name__ == "__main__":
    main(sys.argv[1:])

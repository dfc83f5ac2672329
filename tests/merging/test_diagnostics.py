"""Statistics by their definitions; a kind that is guessed, or that batches do not look like."""

import warnings

import numpy as np
import pytest
from scipy.stats import chi2

import arviz_swiss as az_swiss
from arviz_swiss import MergeWarning
from arviz_swiss.data import containers
from arviz_swiss.merging import diagnostics

SIZE, ROWS = 10, 200
PRIOR_SD = 3.0
# What kind of batch: the powers of prior and likelihood, given the number of batches.
POWERS = {
    "full_prior": lambda count: (1.0, 1.0),
    "fractionated": lambda count: (1.0 / count, 1.0),
    "inflated": lambda count: (1.0, float(count)),
}


def statistics(merged):
    return containers.read(merged).groups["swiss_diagnostics"]


@pytest.fixture
def problem(exact_draws, random_covariance):
    """Batches with known exact moments; powers 2, 4, 8, 8."""
    rng = np.random.default_rng(3)
    means = 0.3 * rng.standard_normal((4, 3))
    covariances = np.array([random_covariance(rng, 3) for _ in range(4)])
    draws = [exact_draws(rng, m, c) for m, c in zip(means, covariances, strict=True)]
    powers = np.array([2.0, 4.0, 8.0, 8.0])
    merged = az_swiss.merge([{"theta": values} for values in draws], powers=powers)
    precision = sum(np.linalg.inv(c) / p for c, p in zip(covariances, powers, strict=True))
    pooled = np.linalg.inv(precision)
    centre = pooled @ sum(
        np.linalg.inv(c) @ m / p for c, m, p in zip(covariances, means, powers, strict=True)
    )
    return statistics(merged), means, covariances, powers, centre, pooled


def test_heterogeneity_is_its_definition(problem):
    found, means, covariances, powers, centre, pooled = problem
    q = sum(
        (m - centre) @ np.linalg.inv(c) @ (m - centre) / p
        for m, c, p in zip(means, covariances, powers, strict=True)
    )
    np.testing.assert_allclose(found["q"], q)
    assert int(found["q_df"]) == 9
    for b in range(4):
        spread = np.linalg.inv(powers[b] * covariances[b] - pooled)
        q_b = (means[b] - centre) @ spread @ (means[b] - centre)
        np.testing.assert_allclose(found["batch_q"][b], q_b)


def test_influence_is_what_leaving_out_does(problem):
    found, means, covariances, powers, centre, pooled = problem
    for b in range(4):
        others = [k for k in range(4) if k != b]
        precision = sum(np.linalg.inv(covariances[k]) / powers[k] for k in others)
        natural = sum(np.linalg.inv(covariances[k]) @ means[k] / powers[k] for k in others)
        moved = np.linalg.solve(precision, natural) - centre
        np.testing.assert_allclose(
            found["influence"][b] ** 2, moved @ np.linalg.inv(pooled) @ moved
        )


def test_shift_ratio_displacement_and_eigenvalues(problem):
    found, means, covariances, _, centre, pooled = problem
    sds = np.sqrt(np.diag(pooled))
    np.testing.assert_allclose(found["shift"], (means - centre) / sds, atol=1e-10)
    own = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    np.testing.assert_allclose(found["sd_ratio"], own / sds)
    for b in range(4):
        w = np.linalg.eigvals(np.linalg.inv(pooled) @ covariances[b]).real
        np.testing.assert_allclose(found["displacement"][b], np.sum((np.sqrt(w) - 1) ** 2))
        np.testing.assert_allclose(found["eigenvalue_min"][b], w.max() ** -0.5)
        np.testing.assert_allclose(found["eigenvalue_max"][b], w.min() ** -0.5)


def test_displacement_is_the_papers_distance():
    """D of the whitened centred draws, from the draws themselves."""
    rng = np.random.default_rng(0)
    batches = [{"x": scale * rng.standard_normal((1, 400, 2))} for scale in (0.8, 1.0, 1.3)]
    merged = az_swiss.merge(batches, kind="inflated")
    done = containers.read(merged).groups["swiss_transform"]
    whiten = np.linalg.inv(np.linalg.cholesky(done["pooled_covariance"].values))
    for b, batch in enumerate(batches):
        centred = batch["x"][0] - batch["x"][0].mean(axis=0)
        before, after = centred @ whiten.T, centred @ done["scale"].values[b].T @ whiten.T
        distance = np.sum((after - before) ** 2) / 399
        np.testing.assert_allclose(statistics(merged)["displacement"][b], distance)


def test_one_batch_has_nothing_to_disagree_with():
    merged = az_swiss.merge([{"x": np.random.default_rng(0).standard_normal((2, 500))}])
    found = statistics(merged)
    assert float(found["q_pvalue"]) == 1.0
    assert found["batch_q_pvalue"].values.tolist() == [1.0]
    assert np.isinf(found["influence"]).all()


def test_pvalues_are_uniform_for_gaussian_batches():
    """Batch means scatter by p V around the truth: p-values below .1 in a tenth of 300 merges.

    Standard error sqrt(.1 * .9 / 300) = 1.7%; the bounds are four of them.
    """
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((2, 500, 2))
    low_all, low_one = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MergeWarning)
        for _ in range(300):
            centres = np.sqrt(5) * rng.standard_normal((5, 2))
            found = statistics(
                az_swiss.merge([{"x": draws + centre} for centre in centres], kind="inflated")
            )
            low_all.append(float(found["q_pvalue"]) < 0.1)
            low_one.append(float(found["batch_q_pvalue"][0]) < 0.1)
    assert abs(np.mean(low_all) - 0.1) < 0.07
    assert abs(np.mean(low_one) - 0.1) < 0.07


@pytest.fixture
def gaussian(exact_draws):
    """Return a function that makes batches of a Gaussian mean, prior draws and the posterior."""

    def make(kind, count, seed=0):
        rng = np.random.default_rng(seed)
        averages = 0.5 + rng.standard_normal((count, SIZE)) / np.sqrt(ROWS)
        prior_power, power = POWERS[kind](count)
        variance = 1.0 / (prior_power / PRIOR_SD**2 + power * ROWS)
        batches = [
            {"mu": exact_draws(rng, variance * power * ROWS * average, variance * np.eye(SIZE))}
            for average in averages
        ]
        prior = {"mu": exact_draws(rng, np.zeros(SIZE), PRIOR_SD**2 * np.eye(SIZE))}
        whole = 1.0 / (1.0 / PRIOR_SD**2 + count * ROWS)
        return batches, prior, (whole * count * ROWS * averages.mean(axis=0), whole)

    return make


def flags(merged):
    return {finding.flag for finding in az_swiss.report(merged).findings}


def quiet(batches, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        return az_swiss.merge(batches, **options)


def check_exact(merged, posterior):
    mean, variance = posterior
    maps = containers.read(merged).groups["swiss_transform"]
    np.testing.assert_allclose(maps["pooled_mean"], mean, atol=1e-10)
    np.testing.assert_allclose(maps["pooled_covariance"], variance * np.eye(SIZE), atol=1e-12)


@pytest.mark.parametrize("count", [4, 10, 20])
@pytest.mark.parametrize("kind", ["full_prior", "fractionated"])
def test_plain_batches_taken_as_inflated_are_told_and_the_remedy_mends_it(gaussian, kind, count):
    batches, prior, posterior = gaussian(kind, count)
    with pytest.warns(az_swiss.MergeWarning, match="nothing says what") as caught:
        guessed = az_swiss.merge(batches)
    assert len(caught) == 1
    assert "look like plain (full_prior) or fractionated" in str(caught[0].message)
    assert {"kind guessed", "looks plain"} <= flags(guessed)

    named = quiet(batches, kind="inflated")
    (finding,) = az_swiss.report(named).findings
    assert finding.flag == "looks plain"
    assert f"about {np.sqrt(count):.2g} times too wide" in finding.what
    assert f'kind="{kind}"' in finding.remedy
    lower = float(containers.read(named).groups["swiss_diagnostics"]["q_lower_pvalue"])
    assert lower < 0.001

    options = {"prior": {"prior": prior}} if kind == "full_prior" else {}
    mended = az_swiss.merge(batches, kind=kind, **options)
    check_exact(mended, posterior)
    assert az_swiss.report(mended).findings == ()


def test_an_extreme_tail_is_a_warning_even_of_a_named_kind(gaussian):
    with pytest.warns(az_swiss.MergeWarning, match="prior informs most.*these look like plain"):
        az_swiss.merge(gaussian("full_prior", 10)[0], kind="inflated")


@pytest.mark.parametrize("count", [4, 10, 20])
def test_inflated_batches_are_not_doubted(gaussian, count):
    batches, _, posterior = gaussian("inflated", count)
    merged = az_swiss.merge(batches, kind="inflated")
    check_exact(merged, posterior)
    assert az_swiss.report(merged).findings == ()
    by_powers = az_swiss.merge(batches, powers=count)
    assert az_swiss.report(by_powers).findings == ()


def test_inflated_batches_taken_as_plain_are_told_and_the_remedy_mends_it(gaussian):
    batches, _, posterior = gaussian("inflated", 10)
    with pytest.warns(az_swiss.MergeWarning, match='raised to a power, pass kind="inflated"') as w:
        wrong = az_swiss.merge(batches, kind="fractionated")
    assert len(w) == 1
    assert az_swiss.report(wrong).findings[0].flag == "looks inflated"
    check_exact(az_swiss.merge(batches, kind="inflated"), posterior)


def test_a_guess_is_remembered_in_a_file(gaussian, tmp_path):
    batches = gaussian("inflated", 4)[0]
    with pytest.warns(az_swiss.MergeWarning, match="nothing says what"):
        merged = az_swiss.merge(batches)
    assert flags(merged) == {"kind guessed"}
    merged.to_netcdf(tmp_path / "merged.nc")
    assert flags(tmp_path / "merged.nc") == {"kind guessed"}


def test_a_guess_counts_the_batches_that_were_dropped(gaussian):
    with pytest.warns(az_swiss.MergeWarning, match="to the power 4"):
        merged = az_swiss.merge(gaussian("inflated", 4)[0], drop=1)
    assert "to the power 4" in az_swiss.report(merged).findings[0].what


def test_of_one_batch_nothing_is_guessed(gaussian):
    merged = az_swiss.merge(gaussian("full_prior", 1)[0])
    assert az_swiss.report(merged).findings == ()


def test_batches_that_are_all_the_same_are_told(gaussian, exact_draws):
    rng = np.random.default_rng(0)
    batches = [{"mu": exact_draws(rng, np.zeros(3), np.eye(3))} for _ in range(5)]
    for kind in ("inflated", "fractionated"):
        assert flags(az_swiss.merge(batches, kind=kind)) == {"looks alike"}


def test_a_prior_that_would_not_be_used_is_refused(gaussian):
    batches, prior, posterior = gaussian("full_prior", 4)
    with pytest.raises(ValueError, match=r'prior= is given.*only a guess.*kind="full_prior"'):
        az_swiss.merge(batches, prior={"prior": prior})
    check_exact(az_swiss.merge(batches, prior={"prior": prior}, kind="full_prior"), posterior)
    batches, prior, posterior = gaussian("fractionated", 4)
    with pytest.raises(ValueError, match=r'taken as "fractionated", with.*leave prior out'):
        az_swiss.merge(batches, prior={"prior": prior}, kind="fractionated")
    own = [{"posterior": batch, "prior": prior} for batch in batches]
    check_exact(az_swiss.merge(own, kind="fractionated"), posterior)


@pytest.mark.parametrize("count", [4, 20])
def test_doubts_begin_where_the_other_kind_is_likelier(count):
    degrees = 1000
    equal = degrees * np.log(count) / (count - 1)
    powers = np.full(count, float(count))
    density = [chi2.logpdf(equal * r, degrees) + np.log(r) for r in (1, count)]
    np.testing.assert_allclose(*density)
    assert diagnostics.doubt_kind(1.01 * equal, degrees, powers, "argument") is None
    assert (
        diagnostics.doubt_kind(0.99 * equal, degrees, powers, "argument") == diagnostics.LOOKS_PLAIN
    )
    assert (
        diagnostics.doubt_kind(0.99 * equal, degrees, powers, "attributes")
        == diagnostics.LOOKS_ALIKE
    )


def test_false_doubts_are_rarer_than_one_in_a_thousand():
    rng = np.random.default_rng(0)
    for count, size in ((4, 3), (10, 5), (3, 1)):
        powers, degrees = np.full(count, float(count)), size * (count - 1)
        qs = rng.chisquare(degrees, size=5000)
        doubts = [diagnostics.doubt_kind(q, degrees, powers, "argument") for q in qs]
        # The mean is at most 5: of 5,000, 17 or more have a probability below 1e-5.
        assert sum(doubt is not None for doubt in doubts) < 17

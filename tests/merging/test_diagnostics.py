import warnings

import numpy as np
import pytest

import arviz_swiss as az_swiss
from arviz_swiss import MergeWarning
from arviz_swiss.data import containers


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


def test_disagreement_is_warned_of_once_and_names_the_batch():
    rng = np.random.default_rng(0)
    batches = {f"n{k}": {"x": rng.standard_normal((2, 500))} for k in range(5)}
    batches["n3"]["x"] += 12
    with pytest.warns(MergeWarning, match=r"batches disagree .* batch 3 \(\"n3\"\)") as caught:
        az_swiss.merge(batches, kind="inflated")
    assert len(caught) == 1

import re
import warnings

import numpy as np
import pytest
from certify_cases import Normal
from scipy.special import expit

import arviz_swiss as az_swiss
from arviz_swiss.base import weights
from arviz_swiss.correcting.certificate import Evidence, judge
from arviz_swiss.data import containers

QUIET = {"progressbar": False}


def evidence(khat=0.3, effective=950, **others):
    """Return what speaks for a merge, with exceptions; `shift` and others have no error."""
    names = ("shift", "shift_error", "stretch", "stretch_error")
    change = weights.Change(*(others.pop(name, 0.0) for name in names))
    plain = {"overlap_error": 0.0, "doubt": "", "bounded": [], "refined": True, "method": "swiss"}
    plain |= {"undone": False, "sampling_error": 0.0}
    given = {"khat": khat, "effective": effective, "weighed": 1000, "draws": 8000, "change": change}
    return Evidence(**given | plain | others)


@pytest.mark.parametrize(
    ("found", "status", "remedy"),
    [
        ({"effective": 800}, "certified", ""),
        # k-hat of a thousand weights that are nearly equal is mostly noise
        ({"khat": 0.6}, "certified", ""),
        ({"khat": 0.6, "effective": 800}, "usable", "call refine again, or resample"),
        ({"shift": 0.3}, "usable", "call refine again, or resample"),
        ({"shift": 0.3, "refined": False}, "usable", "call refine, or resample"),
        ({"stretch": 0.3}, "usable", "call refine again, or resample"),
        # noise explains them
        ({"shift": 0.21, "shift_error": 0.15}, "certified", ""),
        ({"stretch": 0.15, "stretch_error": 0.16}, "certified", ""),
        # nothing can be told through such noise
        ({"shift_error": 0.3}, "not certified", "sample longer: 8000 merged"),
        ({"stretch_error": 0.25}, "not certified", r"certify\(merged, densities, draws=6300\)"),
        ({"shift": 0.5, "stretch_error": 0.25}, "usable", "call refine again"),
        ({"khat": 0.9}, "usable", "trust no quantiles beyond 10% and 90%"),
        # equal weights, whatever their tail
        ({"khat": 2.9, "effective": 999.7}, "certified", ""),
        ({"khat": 2.9, "effective": 999.7, "shift_error": 0.3}, "not certified", "sample longer"),
        # what the batches' draws leave is not lowered by weighing more
        ({"stretch_error": 0.25, "sampling_error": 0.1}, "not certified", "draws=7000"),
        ({"stretch_error": 0.25, "sampling_error": 0.24}, "not certified", "^sample longer"),
        # refine led away
        ({"shift": 0.3, "refined": False, "undone": True}, "usable", "^resample to use the w.*few"),
        (
            {"khat": 0.9, "effective": 500, "refined": False, "undone": True},
            "not certified",
            "^merge fewer and larger batches",
        ),
        ({"khat": 0.9, "shift": 0.3}, "not certified", "^merge fewer and larger batches"),
        ({"khat": 0.9, "effective": 500, "refined": False}, "not certified", "^call refine, or m"),
        ({"khat": 0.9, "bounded": ["tau"]}, "not certified", "unbounded scale"),
        ({"doubt": "wrong", "khat": 0.1}, "not certified", "pass the densities"),
        ({"overlap_error": 1.0}, "not certified", "fewer and larger"),
        ({"overlap_error": 1.0, "method": "pool"}, "not certified", 'method="swiss"'),
    ],
)
def test_verdicts(found, status, remedy):
    verdict = judge(evidence(**found))
    assert verdict.status == status
    assert re.search(remedy, verdict.remedy)
    assert bool(verdict.remedy) == (status != "certified")


def test_draws_that_are_too_wide_are_not_certified_without_weights():
    rng = np.random.default_rng(12)
    densities = [Normal(rng.normal(0, 1, 2), 1.0) for _ in range(4)]
    draws = [{"x": one.draw(rng, power=4, shape=(2, 500))} for one in densities]
    merged = az_swiss.merge(draws, kind="inflated", method="pool")
    with pytest.warns(az_swiss.MergeWarning, match=r"^usable .* no direction by more than \d\d%"):
        certified = az_swiss.certify(merged, densities, random_seed=1, **QUIET)
    certificate = certified["swiss_certificate"]
    assert certificate["khat"] < 0.5 and np.abs(certificate["mean_shift"]).max() < 0.2
    assert certificate["sd_shift"].min() < -0.2
    np.testing.assert_allclose(certificate["sd"], 0.5, rtol=0.1)


COLLINEAR = 0.95
FEW = {"chains": 60, "warmup": 40, "draws": 16}


def collinear_case(logistic_regression, sample_batch, rng):
    """Ten batches of 400 rows, with six slopes of predictors that are correlated by .95."""
    rows, size, batches = 4000, 6, 10
    common = rng.standard_normal((rows, 1))
    own = rng.standard_normal((rows, size))
    design = np.sqrt(COLLINEAR) * common + np.sqrt(1 - COLLINEAR) * own
    outcomes = (rng.random(rows) < expit(design @ np.full(size, 0.25))).astype(float)
    densities = [
        logistic_regression(design[part], outcomes[part], np.ones(len(part)), sd=2.5)
        for part in np.array_split(np.arange(rows), batches)
    ]
    draws = [
        {"x": sample_batch(rng, one, size, power=batches, **FEW).reshape(4, -1, size)}
        for one in densities
    ]
    whole = logistic_regression(design, outcomes, np.ones(rows), sd=2.5)
    return densities, draws, whole


def test_an_error_of_a_sum_of_slopes_is_not_overlooked(logistic_regression, sample_batch):
    rng = np.random.default_rng(31)
    densities, draws, whole = collinear_case(logistic_regression, sample_batch, rng)
    merged = az_swiss.merge(draws, kind="inflated")
    with pytest.warns(az_swiss.MergeWarning, match=r"^usable .*Call refine, or resample"):
        doubted = az_swiss.certify(merged, densities, random_seed=1, **QUIET)["swiss_certificate"]
    # by each parameter alone, nothing is wrong
    shifts = np.abs([doubted["mean_shift"], doubted["sd_shift"]])
    assert doubted["khat"] < 0.5 and shifts.max() < 0.2
    assert doubted["mahalanobis_shift"] > 0.4
    assert doubted["mahalanobis_error"] < 0.1

    refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    certified = az_swiss.certify(refined, densities, random_seed=1, **QUIET)
    assert certified["swiss_certificate"].attrs["status"] == "certified"
    reference = sample_batch(rng, whole, 6, **FEW).reshape(-1, 6)
    precision = np.linalg.inv(np.cov(reference.T))
    off = [
        one["posterior"]["x"].mean(("chain", "draw")).values - reference.mean(axis=0)
        for one in (merged, refined)
    ]
    before, after = (np.sqrt(one @ precision @ one) for one in off)
    # 960 draws of the reference, 9,600 of the merge; they depend on one another, so count half
    assert before > 0.4 and after < 2 * np.sqrt(6 * (1 / 480 + 1 / 4800))


def test_too_few_draws_to_tell_are_said_so_and_as_many_as_advised_certify():
    rng, size = np.random.default_rng(1), 100
    densities = [Normal(rng.normal(0, 1.0, size), 1.0, 2.0) for _ in range(5)]
    draws = [{"x": one.draw(rng, power=5, shape=(4, 1000))} for one in densities]
    merged = az_swiss.merge(draws, kind="inflated", covariance="corrected")
    refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    with pytest.warns(az_swiss.MergeWarning, match="too few draws were weighed to tell"):
        doubted = az_swiss.certify(refined, densities, random_seed=1, **QUIET)["swiss_certificate"]
    assert doubted["covariance_error"] > 0.2
    (needed,) = re.findall(r"draws=(\d+)", doubted.attrs["remedy"])
    certified = az_swiss.certify(refined, densities, draws=int(needed), random_seed=1, **QUIET)
    assert certified["swiss_certificate"].attrs["status"] == "certified"
    precision = 5 + 1 / 4
    mean = sum(one.centre for one in densities) / precision
    off = refined["posterior"]["x"].mean(("chain", "draw")).values - mean
    # draws get the moments that refine finds, which are exact here
    np.testing.assert_allclose(off, 0.0, atol=1e-8)


def test_a_joint_error_is_found_where_no_parameter_moves():
    """Two parameters correlated by -.99: their sum is off, by .6 sds, each by .04."""
    rng = np.random.default_rng(31)
    covariance = np.array([[1.0, -0.99], [-0.99, 1.0]])
    root, precision = np.linalg.cholesky(covariance), np.linalg.inv(covariance)

    class Correlated:
        def log_prior(self, x):
            return np.zeros(len(x))

        def grad_log_prior(self, x):
            return np.zeros_like(x)

        def log_likelihood(self, x):
            return -0.5 * np.sum(x @ precision * x, axis=1)

        def grad_log_likelihood(self, x):
            return -x @ precision

    draws = {"x": rng.standard_normal((4, 1000, 2)) @ root.T}
    contents = containers.read(az_swiss.merge([draws], powers=1))
    groups, maps = dict(contents.groups), contents.groups["swiss_transform"]
    step = 0.6 * np.sqrt(2 * 0.01) / 2
    groups["posterior"] = groups["posterior"] + step
    groups["swiss_transform"] = maps.assign(target=maps["target"] + step)
    wrong = containers.build(groups, contents.container)
    with pytest.warns(az_swiss.MergeWarning, match=r"^usable .* move the mean by 0\.6"):
        found = az_swiss.certify(wrong, [Correlated()], draws=4000, **QUIET)["swiss_certificate"]
    assert np.abs(found["mean_shift"]).max() < 0.1
    # the weights vary by exp(.36) - 1
    error = float(found["mahalanobis_error"])
    assert error == pytest.approx(np.sqrt(2 * 0.43 / 4000), rel=0.5)
    assert float(found["mahalanobis_shift"]) == pytest.approx(0.6, abs=3 * error)


def test_batches_that_do_not_overlap_are_said_so_and_swiss_mends_it(exact_draws):
    rng = np.random.default_rng(32)
    densities = [Normal([centre], 1.0) for centre in (-4.0, 4.0)]
    draws = [{"x": exact_draws(rng, one.centre, np.eye(1) / 2, draws=400)} for one in densities]
    with warnings.catch_warnings():
        # so far apart, they disagree as well
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        apart, together = (
            az_swiss.merge(draws, kind="inflated", method=method) for method in ("pool", "swiss")
        )
    with pytest.warns(az_swiss.MergeWarning, match=r"^not certified .*barely overlap.*\"swiss\""):
        doubted = az_swiss.certify(apart, densities, random_seed=1, **QUIET)["swiss_certificate"]
    assert doubted["overlap_error"] > 1
    certified = az_swiss.certify(together, densities, random_seed=1, **QUIET)
    assert certified["swiss_certificate"].attrs["status"] == "certified"
    assert float(certified["posterior"]["x"].mean()) == pytest.approx(0, abs=1e-9)


def test_batches_that_overlap_with_no_other_do_no_harm_where_the_posterior_is_not():
    rng = np.random.default_rng(33)
    densities = [Normal([centre], 1.0) for centre in (-12.0, 0.0, 12.0)]
    draws = [{"x": one.draw(rng, power=3)} for one in densities]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        merged = az_swiss.merge(draws, kind="inflated", method="pool")
    with pytest.warns(az_swiss.MergeWarning, match=r"^usable .*Call refine, or resample"):
        weighed = az_swiss.certify(merged, densities, draws=2400, random_seed=1, **QUIET)
    posterior = az_swiss.resample(weighed, draws=800, random_seed=1)["posterior"]["x"]
    # only the middle batch's 800 draws have weight
    assert abs(float(posterior.mean())) < 4 * 3**-0.5 * 800**-0.5
    assert float(posterior.std()) == pytest.approx(3**-0.5, rel=4 * 1600**-0.5)


def test_slow_chains_of_an_exact_refined_merge_are_not_to_be_resampled():
    # moments are exact, but the weights would shift them by what few draws leave of the batches'
    rng, size, correlation = np.random.default_rng(5), 20, 0.8
    densities = [Normal(rng.normal(0, 1, size), 1.0) for _ in range(4)]
    draws = []
    for one in densities:
        x = rng.standard_normal((4, 500, size))
        for i in range(1, 500):
            x[:, i] = correlation * x[:, i - 1] + np.sqrt(1 - correlation**2) * x[:, i]
        draws.append({"x": one.centre + x / 2})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        merged = az_swiss.merge(draws, kind="inflated")
    refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    exact = np.mean([one.centre for one in densities], axis=0)
    mean = refined["posterior"]["x"].mean(("chain", "draw"))
    np.testing.assert_allclose(mean, exact, atol=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        found = az_swiss.certify(refined, densities, random_seed=1, **QUIET)["swiss_certificate"]
    # about 8,000 / 9 effective draws of 20 parameters
    assert found["mahalanobis_error"] == pytest.approx(np.sqrt(20 * 9 / 8000), rel=0.3)
    assert "resample" not in found.attrs["remedy"]

import warnings

import numpy as np
import pytest
from certify_cases import Normal, khat_of, logistic_case, normal_case
from verdicts import certificate_verdict

import arviz_swiss as az_swiss
from arviz_swiss.correcting.provenance import Own, edges, examine

QUIET = {"progressbar": False}


def own(rng, label="north", width=1.0, shift=0.0, shape=(2, 50, 3)):
    draws = width * rng.standard_normal(shape) + shift
    return Own(label, draws, -draws, width**2 * np.eye(shape[-1]))


ALL = np.ones(3, dtype=bool)


def test_right_draws_are_not_doubted():
    rng = np.random.default_rng(0)
    found = examine([own(rng, str(position)) for position in range(10)], ALL)
    assert found.doubt == ""
    assert found.offsets.max() < 5 * np.sqrt(3 / 100)
    np.testing.assert_allclose(found.widths, 1.0, atol=5 * np.sqrt(2 / 300) / 2)


def test_one_batch_of_another_width_is_named():
    rng = np.random.default_rng(1)
    found = examine([*(own(rng, str(i)) for i in range(20)), own(rng, "west", 2.0)], ALL)
    assert found.widths[-1] == pytest.approx(2.0, rel=0.2)
    assert found.doubt.startswith("the draws of west (")
    assert "times as wide) have not the sds" in found.doubt
    assert found.doubt.endswith("wrong kind or powers")


def test_many_batches_of_few_draws_are_doubted_together():
    rng = np.random.default_rng(2)
    few = [own(rng, str(position), 0.5, shape=(2, 3, 3)) for position in range(100)]
    found = examine(few, ALL)
    assert np.isnan(found.offsets).all() and np.isnan(found.widths).all()
    assert found.doubt.startswith("the draws of the batches (0.5")
    assert "times as wide, on the whole) have not the sds" in found.doubt


def test_a_shift_is_told_from_another_width():
    rng = np.random.default_rng(3)
    found = examine([own(rng), own(rng, "west", shift=1.0)], ALL)
    assert found.doubt.startswith("the draws of west (off by 1.")
    assert "do not come from the densities" in found.doubt
    assert "wrong kind" not in found.doubt


def test_a_width_that_does_no_harm_is_left_alone():
    rng = np.random.default_rng(4)
    # seen by 60,000 draws: 2% of an sd
    assert examine([own(rng, width=1.02, shape=(4, 15_000, 3))], ALL).doubt == ""


def test_parameters_that_are_not_tested_do_not_count():
    rng = np.random.default_rng(5)
    draws = rng.standard_normal((2, 50, 3))
    draws[..., 1] = np.abs(draws[..., 1])
    bounded = [Own("north", draws, -draws, np.eye(3))]
    assert "do not come" in examine(bounded, ALL).doubt
    assert examine(bounded, np.array([True, False, True])).doubt == ""
    nothing = examine(bounded, np.zeros(3, dtype=bool))
    assert nothing.doubt == "" and np.isnan(nothing.offsets).all()


def test_edges_are_those_of_parameters_that_explain_what_is_outside():
    rng = np.random.default_rng(6)
    points = rng.standard_normal((500, 4))
    inside = (points[:, 1] > -1) & (points[:, 3] < 1.5)
    found = edges(points, np.where(inside, 0.0, -np.inf))
    np.testing.assert_array_equal(found, [False, True, False, True])
    assert not edges(points, np.zeros(500)).any()
    assert edges(points, np.full(500, -np.inf)).all()


def test_edges_that_no_parameter_explains_may_be_of_any():
    points = np.random.default_rng(7).uniform(size=(500, 2))
    assert edges(points, np.where(np.ptp(points, axis=1) < 0.3, -np.inf, 0.0)).all()


def test_data_that_were_replaced_after_sampling_are_noticed(logistic_regression, sample_batch):
    rng = np.random.default_rng(5)
    densities, draws = logistic_case(logistic_regression, sample_batch, rng)
    others, _ = logistic_case(logistic_regression, sample_batch, rng)
    merged = az_swiss.refine(
        az_swiss.merge(draws, kind="inflated"), densities, random_seed=1, **QUIET
    )
    assert khat_of(merged, densities) < 0.5
    assert khat_of(merged, [*densities[:3], others[0]]) > 0.7


@pytest.mark.parametrize("size", [1, 10])
@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_draws_of_another_density_are_noticed(size):
    # few parameters: the weights alone would mend the merge, but for a wrong posterior
    merged, densities = normal_case(size=size)
    wrong = [*densities[:2], Normal(densities[2].centre + 0.8, 1.0, 2.0), densities[3]]
    with pytest.warns(az_swiss.MergeWarning, match=r"the draws of b2 \(off by .* do not come from"):
        certified = az_swiss.certify(merged, wrong, random_seed=1, **QUIET)
    offsets = certified["swiss_certificate"]["batch_offset"]
    # four times the likelihood, and the prior
    off = 0.8 * np.sqrt(size) * 4 / np.sqrt(4 + 0.25)
    # 250 draws a batch
    assert offsets[2] == pytest.approx(off, abs=4 * 250**-0.5)
    assert offsets[[0, 1, 3]].max() < 4 * np.sqrt(size / 250)


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_densities_that_are_right_are_not_doubted():
    doubted = 0
    for seed in range(30):
        merged, densities = normal_case(size=6, seed=seed)
        certified = az_swiss.certify(merged, densities, draws=200, random_seed=1, **QUIET)
        doubted += "do not come" in certificate_verdict(certified)
    assert doubted == 0


POWERS = {
    # what batches were sampled from, and what merge was told
    "plain told as inflated": ((1, 1), "inflated", 4.0),
    "inflated told as fractionated": ((16, 1), "fractionated", 0.25),
}


@pytest.mark.parametrize("name", POWERS)
def test_wrong_kinds_and_powers_are_noticed(name):
    (power, prior_power), told, width = POWERS[name]
    rng = np.random.default_rng(11)
    densities = [Normal(rng.normal(3, 0.06, 1), 0.06, 10.0) for _ in range(16)]
    draws = [{"x": one.draw(rng, power, prior_power, shape=(2, 500))} for one in densities]
    with warnings.catch_warnings():
        # where draws are narrower than told, the batches seem to disagree
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        merged = az_swiss.merge(draws, kind=told)
    with pytest.warns(az_swiss.MergeWarning, match="^not certified .* wrong kind or powers"):
        certified = az_swiss.certify(merged, densities, random_seed=1, **QUIET)
    # 16 batches of 64 draws: variances within a few errors of (2 / 1024)^(1/2)
    widths = certified["swiss_certificate"]["batch_width"]
    assert float(np.sqrt((widths**2).mean())) == pytest.approx(width, rel=0.1)
    assert "merge with the kind= or powers=" in certificate_verdict(certified)
    # refine does not mend what the weights are made of
    with pytest.warns(az_swiss.MergeWarning, match=r"merge in every direction.* 16 batches"):
        refined = az_swiss.refine(merged, densities, random_seed=1, **QUIET)
    with pytest.warns(az_swiss.MergeWarning, match="wrong kind or powers"):
        az_swiss.certify(refined, densities, random_seed=1, **QUIET)


def test_tempered_densities_are_noticed():
    merged, densities = normal_case()
    tempered = [Normal(one.centre, 0.5, 2.0) for one in densities]
    with pytest.warns(az_swiss.MergeWarning, match=r"wrong kind or powers.*not tempered ones"):
        az_swiss.certify(merged, tempered, random_seed=1, **QUIET)


@pytest.mark.parametrize("correlation, length", [(0.8, 1000), (0.9, 1000), (0.9, 250)])
def test_chains_that_mix_slowly_are_not_doubted(correlation, length):
    rng = np.random.default_rng(13)
    doubted = 0
    for _ in range(10):
        densities = [Normal(rng.normal(0, 0.1, 2), 1.0) for _ in range(4)]
        draws = []
        for one in densities:
            x = rng.standard_normal((2, length, 2))
            for i in range(1, length):
                x[:, i] = correlation * x[:, i - 1] + np.sqrt(1 - correlation**2) * x[:, i]
            draws.append({"x": one.centre + x / 2})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", az_swiss.MergeWarning)
            merged = az_swiss.merge(draws, kind="inflated")
            certified = az_swiss.certify(merged, densities, random_seed=1, **QUIET)
        doubted += "given for them" in certificate_verdict(certified)
    assert doubted == 0


class Positive(Normal):
    """A likelihood that ends at zero, where it is not zero."""

    def log_prior(self, x):
        return np.where((x > 0).all(axis=1), 0.0, -np.inf)

    def grad_log_prior(self, x):
        return np.zeros_like(x)

    def draw(self, rng, power, shape=(2, 500)):
        drawn = rng.normal(self.centre, self.sd / power**0.5, 20 * np.prod(shape))
        return drawn[drawn > 0][: np.prod(shape)].reshape(*shape, 1)


@pytest.mark.parametrize("centres", [(0.0, 0.0, 0.0, 0.0), (-0.25, 0.0, 0.25, 0.5)])
def test_bounded_variables_on_their_own_scale_are_not_doubted(centres):
    rng = np.random.default_rng(14)
    densities = [Positive([centre], 0.5) for centre in centres]
    draws = [{"scale": one.draw(rng, power=4)} for one in densities]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        merged = az_swiss.merge(draws, kind="inflated")
    for seed in range(5):
        with warnings.catch_warnings():
            # others, such as of infinities that were subtracted, are errors
            warnings.simplefilter("ignore", az_swiss.MergeWarning)
            certified = az_swiss.certify(merged, densities, random_seed=seed, **QUIET)
        verdict = certificate_verdict(certified)
        assert "given for them" not in verdict
        assert not verdict.startswith("not") or "bounds of scale[0]. Merge on an unb" in verdict
        assert np.isnan(certified["swiss_certificate"]["batch_offset"]).all()

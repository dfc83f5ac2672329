import arviz as az
import numpy as np
import pytest
import xarray as xr
from normal_density import Normal
from scipy.special import logsumexp

import arviz_swiss as az_swiss
from arviz_swiss.data import containers
from arviz_swiss.merging.merged import open_merged

QUIET = {"progressbar": False}


def normal_case(batches=4, size=3):
    rng = np.random.default_rng(0)
    densities = [Normal(rng.normal(0, 0.5, size)) for _ in range(batches)]
    draws = [{"x": one.draw(rng, batches)} for one in densities]
    return az_swiss.merge(draws, kind="inflated"), densities


def test_resampled_draws_are_an_ordinary_posterior():
    rng = np.random.default_rng(9)
    density = Normal([0.0, 0.0])
    merged = az_swiss.merge([{"x": density.draw(rng, shape=(4, 1000))}], powers=1)
    other = Normal([0.4, 0.0])
    # the target is another one than was merged: the weights must move the draws there
    moved = az_swiss.certify(merged, [density], draws=4000, random_seed=1, **QUIET)
    groups = containers.read(moved).groups
    certificate = groups["swiss_certificate"]
    x = merged["posterior"]["x"].sel(draw=certificate["draw"]).values
    weights = other.log_likelihood(x.reshape(-1, 2)) - density.log_likelihood(x.reshape(-1, 2))
    weights = (weights - logsumexp(weights)).reshape(x.shape[:2])
    groups["swiss_certificate"] = certificate.assign(log_weight=(("chain", "draw"), weights))
    result = az_swiss.resample(containers.build(groups), random_seed=1)

    posterior = result["posterior"]
    assert dict(posterior.sizes) == {"chain": 4, "draw": 1000, "x_dim_0": 2}
    found = posterior["x"].mean(("chain", "draw")).values
    weighted = np.exp(weights).ravel() @ x.reshape(-1, 2)
    # systematic resampling adds next to no noise
    np.testing.assert_allclose(found, weighted, atol=0.02)
    assert abs(found[0] - 0.4) < 0.15
    assert len(az.summary(result)) == 2
    again = az_swiss.resample(containers.build(groups), random_seed=1)
    np.testing.assert_array_equal(again["posterior"]["x"], posterior["x"])
    assert "swiss_transform" not in containers.read(result).groups
    assert [name for name in posterior.attrs if name.startswith("swiss_")] == ["swiss_resampled"]
    with pytest.raises(ValueError, match=r"batch 0 .*itself a merged posterior"):
        az_swiss.merge([result, again])
    with pytest.raises(ValueError, match="not a merged object"):
        az_swiss.subposteriors(result)


def test_resampling_keeps_variables_data_and_transforms(to_container):
    rng = np.random.default_rng(10)
    densities = [Normal([0.0]) for _ in range(2)]
    batches = [
        to_container(
            {"rate": np.exp(one.draw(rng, power=2))},
            constant_data={"units": np.array([1.0, 2.0])},
        )
        for one in densities
    ]
    merged = az_swiss.merge(batches, kind="inflated", transforms={"rate": "log"})
    certified = az_swiss.certify(merged, densities, draws=1600, random_seed=1, **QUIET)
    # the moments of the certificate are those on the variables' own scale
    assert certified["swiss_certificate"]["mean"].item() > 0
    groups = containers.read(az_swiss.resample(certified, random_seed=2)).groups
    assert set(groups) == {"posterior", "unconstrained_posterior", "constant_data"}
    rate = groups["posterior"]["rate"]
    np.testing.assert_allclose(np.exp(groups["unconstrained_posterior"]["rate"]), rate)
    assert np.isin(rate, merged["posterior"]["rate"]).all()
    assert groups["posterior"].attrs["swiss_resampled"].startswith("certified")


def test_resampling_needs_a_certificate_and_refining_takes_it_away():
    merged, densities = normal_case()
    with pytest.raises(ValueError, match="call certify first, and after every refine"):
        az_swiss.resample(merged)
    certified = az_swiss.certify(merged, densities, **QUIET)
    refined = az_swiss.refine(certified, densities, **QUIET)
    assert "swiss_certificate" not in containers.read(refined).groups
    assert open_merged(refined, "posterior").certificate is None


def test_resampling_what_is_not_certified_is_warned_of():
    merged, densities = normal_case(size=4)
    wrong = [Normal(one.centre + 1) for one in densities]
    with pytest.warns(az_swiss.MergeWarning, match="^not certified"):
        certified = az_swiss.certify(merged, wrong, **QUIET)
    with pytest.warns(az_swiss.MergeWarning, match="not to be trusted either"):
        az_swiss.resample(certified)


@pytest.mark.parametrize(("draws", "chains"), [(8000, 4), (1000, 4), (1002, 3), (10, 2), (997, 1)])
def test_as_many_draws_as_asked_for(draws, chains):
    merged, densities = normal_case()
    weighed = az_swiss.certify(merged, densities, draws=3200, **QUIET)
    sizes = az_swiss.resample(weighed, draws=draws, random_seed=1)["posterior"].sizes
    assert (sizes["chain"], sizes["chain"] * sizes["draw"]) == (chains, draws)


@pytest.mark.parametrize("draws", [0, -4, 2.5, True, "all"])
def test_a_number_of_draws_must_be_one(draws):
    merged, densities = normal_case()
    weighed = az_swiss.certify(merged, densities, draws=3200, **QUIET)
    with pytest.raises(ValueError, match="draws must be an integer of at least 1, got"):
        az_swiss.resample(weighed, draws=draws)


def shifted_case(size=20, shift=0.8):
    """Return a merge whose mean is off by some sds, with exact weights of 8,000 draws."""
    rng = np.random.default_rng(11)
    density = Normal(np.zeros(size))
    contents = containers.read(
        az_swiss.merge([{"x": density.draw(rng, shape=(4, 2000))}], powers=1)
    )
    groups, maps = dict(contents.groups), contents.groups["swiss_transform"]
    groups["posterior"] = groups["posterior"] + shift * size**-0.5
    groups["swiss_transform"] = maps.assign(target=maps["target"] + shift * size**-0.5)
    return containers.build(groups, contents.container), density


def test_draws_that_were_not_weighed_are_told_and_the_advice_keeps_them():
    merged, density = shifted_case()
    with pytest.warns(az_swiss.MergeWarning, match="^usable .* or resample to use the weights"):
        few = az_swiss.certify(merged, [density], random_seed=1, **QUIET)
    with pytest.warns(az_swiss.MergeWarning, match="only 1000 of 8000 merged draws") as caught:
        az_swiss.resample(few, random_seed=1)
    effective = float(few["swiss_certificate"]["effective_size"])
    told = str(caught[0].message)
    assert f"off by {np.sqrt(20 / effective):.2g} sds" in told
    assert f"worth {effective:.0f} independent draws" in told
    assert told.endswith("certify(merged, densities, draws=8000) weighs all.")
    with pytest.warns(az_swiss.MergeWarning, match="worth 80 independent draws, .* off by 0.5 sds"):
        az_swiss.resample(few, draws=80, random_seed=1)

    with pytest.warns(az_swiss.MergeWarning, match="^usable"):
        every = az_swiss.certify(merged, [density], draws=8000, random_seed=1, **QUIET)
    draws = az_swiss.resample(every, draws=8000, random_seed=1)["posterior"]["x"]
    off = np.linalg.norm(draws.mean(("chain", "draw")))
    # no more than the error by chance of what the weighed draws are worth
    error = np.sqrt(20 / float(every["swiss_certificate"]["effective_size"]))
    assert off < 2 * error < 0.2 < np.linalg.norm(merged["posterior"]["x"].mean(("chain", "draw")))


def test_what_is_certified_needs_no_resampling():
    merged, densities = normal_case()
    certified = az_swiss.certify(merged, densities, random_seed=1, **QUIET)
    with pytest.warns(az_swiss.MergeWarning, match="certified as it is: use all its draws"):
        az_swiss.resample(certified, random_seed=1)


def test_what_is_no_container_is_said_so():
    with pytest.raises(TypeError, match=r"got int. Pass what merge returned, one InferenceData or"):
        az_swiss.resample(5)


def test_a_string_is_no_sequence_of_densities():
    merged, _ = normal_case()
    with pytest.raises(TypeError, match=r"densities must be a sequence of one density .* got str"):
        az_swiss.certify(merged, "model", **QUIET)


def test_draws_that_were_left_out_since_are_named():
    merged, densities = normal_case()
    certified = az_swiss.certify(merged, densities, random_seed=1, **QUIET)
    groups = containers.read(certified).groups
    groups["posterior"] = groups["posterior"].isel(draw=slice(None, None, 7))
    thinned = containers.build(groups)
    with pytest.raises(ValueError, match=r"their draw was left out. Certify again"):
        az_swiss.resample(thinned)


def with_groups(merged, **groups):
    contents = containers.read(merged)
    return containers.build(contents.groups | groups, contents.container)


def test_groups_of_the_same_draws_go_with_them():
    merged, densities = normal_case()
    weighed = az_swiss.certify(merged, densities, draws=3200, random_seed=1, **QUIET)
    draws = containers.read(weighed).groups["posterior"].drop_vars("batch")
    predictions = (2 * draws).isel(chain=slice(None, None, -1)).rename(x="y")
    prior = draws * 0 + 5
    whole = with_groups(weighed, posterior_predictive=predictions, log_prior=draws, prior=prior)
    result = az_swiss.resample(whole, draws=1000, random_seed=1)
    np.testing.assert_array_equal(result["posterior_predictive"]["y"], 2 * result["posterior"]["x"])
    np.testing.assert_array_equal(result["log_prior"]["x"], result["posterior"]["x"])
    xr.testing.assert_identical(containers.read(result).groups["prior"], prior)


def test_groups_of_other_draws_are_named():
    merged, densities = normal_case()
    weighed = az_swiss.certify(merged, densities, draws=3200, random_seed=1, **QUIET)
    draws = containers.read(weighed).groups["posterior"]
    whole = with_groups(weighed, posterior_predictive=draws.isel(draw=slice(100)))
    with pytest.warns(
        az_swiss.MergeWarning, match="^posterior_predictive cannot go with the draws"
    ):
        result = az_swiss.resample(whole, random_seed=1)
    assert set(containers.read(result).groups) == {"posterior"}


def test_what_was_not_merged_is_not_sent_to_certify(to_container):
    plain = to_container({"x": np.zeros((2, 10))})
    with pytest.raises(ValueError, match="not a merged object: no group swiss_transform"):
        az_swiss.resample(plain)

"""Positive variables on another real line than PyMC's, from the density to the certificate."""

import warnings

import cloudpickle
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy.special import logsumexp
from scipy.stats import halfnorm, norm

import arviz_swiss as az_swiss
from arviz_swiss.data import containers
from arviz_swiss.merging.merged import open_merged
from arviz_swiss.pymc.value_transforms import NAMED, building, change_transforms

SITES, ROWS = 36, 4
QUIET = {"progressbar": False, "random_seed": 3}
DIVIDED = {"groups": "site", "batches": 3, "draws": 1200, **QUIET}
SOFTPLUS = {"tau": "softplus"}


def make_table():
    rng = np.random.default_rng(4)
    site = np.repeat(np.arange(SITES), ROWS)
    y = 1 + rng.standard_normal(SITES)[site] + rng.standard_normal(site.size)
    return pd.DataFrame({"site": site, "y": y})


TABLE = make_table()


def build(data):
    sites, places = np.unique(data["site"].to_numpy(), return_inverse=True)
    with pm.Model(coords={"site": sites}) as model:
        mu = pm.Normal("mu", 0, 2)
        tau = pm.HalfNormal("tau", 1, initval=0.5)
        u = pm.Normal("u", mu, tau, dims="site")
        rows = pm.Data("rows", data["y"].to_numpy())
        pm.Normal("y", u[pm.Data("place", places)], 1, observed=rows)
    return model


def exact_moments():
    """Return means and sds of mu and tau, by quadrature of what the sites' means tell of them."""
    means = TABLE.groupby("site")["y"].mean().to_numpy()
    mu, tau = np.meshgrid(np.linspace(-1, 3, 401), np.linspace(1e-3, 2.5, 800), indexing="ij")
    sds = np.sqrt(tau**2 + 1 / ROWS)
    logs = norm(0, 2).logpdf(mu) + halfnorm.logpdf(tau)
    logs += norm.logpdf(means[:, None, None], mu, sds).sum(axis=0)
    weights = np.exp(logs - logsumexp(logs))
    both = np.stack([mu, tau])
    first = np.sum(weights * both, axis=(1, 2))
    return first, np.sqrt(np.sum(weights * both**2, axis=(1, 2)) - first**2)


def groups_of(merged):
    return containers.read(merged).groups


def transforms_of(merged):
    return groups_of(merged)["posterior"].attrs["swiss_transforms"]


def check_weighted(certified):
    """Compare the weighted moments with the exact ones, as far as the weighted draws allow."""
    certificate = groups_of(certified)["swiss_certificate"]
    assert certificate.attrs["status"] in ("certified", "usable")
    size = float(certificate["effective_size"].min())
    means, sds = exact_moments()
    mean, sd = (certificate[name].sel(parameter=["mu", "tau"]).values for name in ("mean", "sd"))
    assert np.abs((mean - means) / sds).max() < 4 / np.sqrt(size)
    # the skewed tails of tau have more noise than a Gaussian's
    assert np.abs(sd / sds - 1).max() < 4 / np.sqrt(size)


@pytest.fixture(scope="module")
def merged():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)  # of thin tails, by chance
        return az_swiss.sample(build, TABLE, transforms=SOFTPLUS, **DIVIDED)


def test_densities_differ_by_jacobians_alone():
    model = build(TABLE)
    changed = change_transforms(model, SOFTPLUS, "model")
    rng = np.random.default_rng(0)
    point = {"mu": 0.3, "u": rng.standard_normal(SITES)}
    tau = 0.02
    own = model.compile_logp()({**point, "tau_log__": np.log(tau)})
    other = changed.compile_logp()({**point, "tau_softplus__": np.log(np.expm1(tau))})
    jacobians = np.log(tau), np.log(-np.expm1(-tau))
    np.testing.assert_allclose(own - jacobians[0], other - jacobians[1], rtol=1e-10)
    assert [v.name for v in changed.value_vars] == ["mu", "tau_softplus__", "u"]
    assert [v.name for v in model.value_vars] == ["mu", "tau_log__", "u"]
    start = changed.initial_point()["tau_softplus__"]
    np.testing.assert_allclose(start, np.log(np.expm1(0.5)))


def test_the_real_line_of_softplus_has_no_holes():
    values = np.array([1e-20, 1e-9, 0.3, 5.0, 800.0])
    images = NAMED["softplus"].forward(values).eval()
    assert np.isfinite(images).all()
    np.testing.assert_allclose(NAMED["softplus"].backward(images).eval(), values, rtol=1e-12)
    same = change_transforms(build(TABLE), {"tau": "log"}, "model")
    assert [v.name for v in same.value_vars] == ["mu", "tau_log__", "u"]


def test_models_and_functions_travel():
    changed = cloudpickle.loads(cloudpickle.dumps(building(build, SOFTPLUS)))(TABLE)
    again = cloudpickle.loads(cloudpickle.dumps(changed))
    assert [v.name for v in again.value_vars] == ["mu", "tau_softplus__", "u"]


def test_sample_is_right_and_says_where_it_merged(merged):
    assert transforms_of(merged) == '{"tau": "softplus"}'
    images = groups_of(merged)["unconstrained_posterior"]["tau"]
    tau = groups_of(merged)["posterior"]["tau"]
    np.testing.assert_allclose(np.log(np.expm1(tau)), images, rtol=1e-6, atol=1e-8)
    check_weighted(merged)


def test_the_space_is_restored_by_the_plain_model(merged):
    opened = open_merged(merged, "posterior")
    space = opened.space(model=build(TABLE))
    tau = opened.draws["tau"].values
    arrays = {name: opened.draws[name].values for name in ("mu", "tau")}
    np.testing.assert_allclose(space.forward(arrays)["tau"], np.log(np.expm1(tau)), atol=1e-8)


def test_subposteriors_are_undone_by_the_plain_model(merged):
    batches = az_swiss.subposteriors(merged, model=build(TABLE))
    opened = open_merged(merged, "posterior")
    at = opened.parameters.tolist().index("tau")
    for position, batch in enumerate(batches.values()):
        tau = groups_of(batch)["posterior"]["tau"].values
        expected = opened.before(position)[..., at]
        np.testing.assert_allclose(np.log(np.expm1(tau)), expected, rtol=1e-6, atol=1e-8)


# by chance k-hat of few weights is large, though these are nearly equal
@pytest.mark.filterwarnings("ignore:usable:arviz_swiss.data.messages.MergeWarning")
def test_certified_and_refined_again_by_plain_models(merged, tmp_path):
    tree = xr.DataTree.from_dict({f"/{k}": v for k, v in groups_of(merged).items()})
    tree.to_netcdf(tmp_path / "merged.nc", engine="h5netcdf")
    certified = az_swiss.certify(tmp_path / "merged.nc", build=build, data=TABLE, **QUIET)
    check_weighted(certified)
    refined = az_swiss.refine(merged, build=build, data=TABLE, draws=600, rounds=2, **QUIET)
    assert transforms_of(refined) == '{"tau": "softplus"}'


# by chance k-hat of few weights is large, though these are nearly equal
@pytest.mark.filterwarnings("ignore:usable:arviz_swiss.data.messages.MergeWarning")
def test_refine_changes_the_space_of_the_rounds(merged):
    back = az_swiss.refine(
        merged, build=build, data=TABLE, transforms={"tau": "log"}, draws=600, rounds=3, **QUIET
    )
    assert transforms_of(back) == '{"tau": "log"}'
    refined = az_swiss.refine(
        back, build=build, data=TABLE, transforms=SOFTPLUS, draws=1200, **QUIET
    )
    assert transforms_of(refined) == '{"tau": "softplus"}'
    check_weighted(az_swiss.certify(refined, build=build, data=TABLE, **QUIET))


def test_batches_without_variables_of_their_own():
    def plain(data):
        with pm.Model() as model:
            sigma = pm.HalfNormal("sigma", 2)
            pm.Normal("y", 1, sigma, observed=data["y"].to_numpy())
        return model

    choices = {"sigma": "softplus"}
    merged = az_swiss.sample(plain, TABLE, batches=2, transforms=choices, draws=800, **QUIET)
    assert transforms_of(merged) == '{"sigma": "softplus"}'
    assert groups_of(merged)["swiss_certificate"].attrs["status"] == "certified"
    refined = az_swiss.refine(merged, build=plain, data=TABLE, **QUIET)
    again = az_swiss.certify(refined, build=plain, data=TABLE, **QUIET)
    assert groups_of(again)["swiss_certificate"].attrs["status"] == "certified"
    parts = az_swiss.subposteriors(merged, model=plain(TABLE))
    by_name = az_swiss.merge(parts, transforms=choices)
    same = az_swiss.certify(by_name, build=plain, data=TABLE, **QUIET)
    assert groups_of(same)["swiss_certificate"].attrs["status"] == "certified"
    with pytest.raises(ValueError, match="draws are refined where they were merged"):
        az_swiss.refine(merged, build=plain, data=TABLE, transforms={"sigma": "log"}, **QUIET)


def test_positive_variables_of_a_batch():
    """Every site has a rate of its own, which is merged and undone by softplus."""

    def rates(data):
        sites, places = np.unique(data["site"].to_numpy(), return_inverse=True)
        with pm.Model(coords={"site": sites}) as model:
            level = pm.Normal("level", 0, 1)
            rate = pm.LogNormal("rate", level, 0.5, dims="site")
            pm.Normal("y", rate[places], 1, observed=data["y"].to_numpy())
        return model

    short = {**DIVIDED, "draws": 300, "certify": False, "transforms": {"rate": "softplus"}}
    merged = az_swiss.sample(rates, TABLE, **short)
    maps = groups_of(merged)["swiss_local"]
    assert maps.attrs["swiss_transforms"] == '{"rate": "softplus"}'
    parts = az_swiss.subposteriors(merged, model=rates(TABLE))
    opened = open_merged(merged, "posterior")
    for position, part in enumerate(parts.values()):
        draws = groups_of(part)["posterior"]
        moved = groups_of(merged)["posterior"].isel(chain=opened.chains_of(position))
        moved = moved["rate"].sel(site=draws["site"].values)
        steps = np.log(np.expm1(moved)).values - np.log(np.expm1(draws["rate"])).values
        # the map moves what is given the level by a multiple of how far the level went
        level = groups_of(merged)["posterior"]["level"].isel(chain=opened.chains_of(position))
        change = level.values - draws["level"].values
        slopes = np.sum(steps * change[..., None], axis=(0, 1)) / np.sum(change**2)
        np.testing.assert_allclose(steps, change[..., None] * slopes, atol=1e-6)


def test_a_folder_of_other_transforms_is_refused(tmp_path):
    short = {**DIVIDED, "draws": 300, "certify": False, "folder": tmp_path}
    first = az_swiss.sample(build, TABLE, transforms=SOFTPLUS, **short)
    again = az_swiss.sample(build, TABLE, transforms=SOFTPLUS, **short)
    own, expected = (groups_of(each)["posterior"]["tau"] for each in (again, first))
    np.testing.assert_allclose(own, expected)
    with pytest.raises(ValueError, match="does not make the models that folder"):
        az_swiss.sample(build, TABLE, **short)


@pytest.mark.parametrize(
    ("transforms", "error", "message"),
    [
        ({"tau": "sqrt"}, ValueError, "variable tau: unknown transform 'sqrt'"),
        ({"tau": "simplex"}, ValueError, "variable tau: unknown transform 'simplex'.* 'softplus'"),
        ({"sigma": "softplus"}, ValueError, "transforms name sigma, but .* mu, tau, u"),
        ({"mu": "softplus"}, ValueError, "for positive variables, but mu is on the real line"),
        ("softplus", TypeError, "transforms must be a mapping"),
    ],
)
def test_what_cannot_be_transformed(merged, transforms, error, message):
    with pytest.raises(error, match=message):
        az_swiss.sample(build, TABLE, transforms=transforms, **DIVIDED)
    with pytest.raises(error, match=message):
        az_swiss.refine(merged, build=build, data=TABLE, transforms=transforms, **QUIET)

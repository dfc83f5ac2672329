"""Functions that return a Bambi model: its PyMC model is sampled, unless batches would disagree."""

from concurrent.futures import ThreadPoolExecutor

import bambi as bmb
import numpy as np
import pandas as pd
import pymc as pm
import pytest

from arviz_swiss import merge, partition, refine
from arviz_swiss.data import containers
from arviz_swiss.data.messages import MergeWarning
from arviz_swiss.pymc import sample_batches
from arviz_swiss.pymc.formulas import from_bambi

RNG = np.random.default_rng(5)
DATA = pd.DataFrame({"x": RNG.normal(3, 1, size=200)})
DATA["y"] = 1 + 2 * DATA["x"] + RNG.normal(size=200)
PRIORS = {
    "Intercept": bmb.Prior("Normal", mu=0, sigma=10),
    "x": bmb.Prior("Normal", mu=0, sigma=10),
    "sigma": bmb.Prior("HalfNormal", sigma=3),
}


def formula(batch, **options):
    return bmb.Model("y ~ x", batch, priors=PRIORS, **{"center_predictors": False, **options})


def sample(build):
    settings = {"batches": 2, "draws": 1000, "tune": 500, "chains": 1, "nuts_sampler": "nutpie"}
    with ThreadPoolExecutor(1) as executor:
        return sample_batches(
            build, DATA, executor=executor, random_seed=3, progressbar=False, **settings
        )


@pytest.mark.slow
def test_a_bambi_model_is_sampled():
    idatas = sample(formula)
    draws = [containers.read(idata).groups["posterior"] for idata in idatas]
    for one in draws:
        assert sorted(one.attrs["sampled_variables"]) == ["Intercept", "sigma", "x"]
    # what Bambi calls mu has one entry a row, so it is no function of the shared parameters alone
    with pytest.warns(MergeWarning, match="left out of the merge: mu"):
        merged = merge(idatas, kind="inflated", model=formula(DATA))
    design = np.column_stack([np.ones(len(DATA)), DATA["x"]])
    expected, (squares,), *_ = np.linalg.lstsq(design, DATA["y"], rcond=None)
    sds = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * squares / (len(DATA) - 2))
    found = [float(merged.posterior[name].mean()) for name in ("Intercept", "x")]
    # 2,000 draws of which a tenth count, and the merge's own error of the order of 2 / sqrt(200)
    assert np.all(np.abs(found - expected) < (4.5 / np.sqrt(200) + 2 / np.sqrt(200)) * sds)

    models = [formula(DATA.iloc[rows]) for rows in partition(DATA, 2, random_seed=3)]
    refined = refine(merged, models, random_seed=1, progressbar=False)
    found = [float(refined.posterior[name].mean()) for name in ("Intercept", "x")]
    assert np.all(np.abs(found - expected) < 4.5 / np.sqrt(200) * sds)


def test_a_built_model_is_not_built_again():
    built = formula(DATA)
    built.build()
    model = built.backend.model
    assert from_bambi(built, "batch b0") is model
    assert isinstance(from_bambi(formula(DATA), "batch b0"), pm.Model)
    assert from_bambi(model, "batch b0") is model
    assert from_bambi(None, "batch b0") is None


def test_centred_predictors_are_refused():
    message = r"batch b0: the Bambi model centres its predictors .*Pass center_predictors=False"
    with pytest.raises(ValueError, match=message):
        sample(lambda batch: formula(batch, center_predictors=True))


@pytest.mark.parametrize("text", ["y ~ 0 + x", "y ~ 1"])
def test_there_must_be_something_to_centre(text):
    model = bmb.Model(text, DATA, center_predictors=True)
    assert isinstance(from_bambi(model, "batch b0"), pm.Model)


SITES = pd.DataFrame({"site": np.repeat([f"s{i}" for i in range(8)], 15)})
LEVELS = RNG.normal(0, 2, size=8)
SITES["y"] = np.repeat(LEVELS, 15) + RNG.normal(size=120)
HIERARCHY = {
    "Intercept": bmb.Prior("Normal", mu=0, sigma=5),
    "1|site": bmb.Prior("Normal", mu=0, sigma=bmb.Prior("HalfNormal", sigma=3)),
    "sigma": bmb.Prior("HalfNormal", sigma=3),
}


def by_site(batch):
    options = {"center_predictors": False, "noncentered": False}
    return bmb.Model("y ~ 1 + (1|site)", batch, priors=HIERARCHY, **options)


# few groups and draws: what the batches say of each other is not at stake
@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
# Bambi's formulae has not caught up with pandas 3
@pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes are included")
@pytest.mark.slow
def test_group_specific_terms_are_merged_with_the_model_of_all_data():
    settings = {"batches": 2, "draws": 500, "tune": 500, "chains": 1, "nuts_sampler": "nutpie"}
    with ThreadPoolExecutor(1) as executor:
        idatas = sample_batches(
            by_site,
            SITES,
            groups="site",
            kind="fractionated",
            executor=executor,
            random_seed=3,
            progressbar=False,
            **settings,
        )
    draws = containers.read(merge(idatas, model=by_site(SITES))).groups["posterior"]
    effects = (draws["Intercept"] + draws["1|site"]).mean(("chain", "draw"))
    means = SITES.groupby("site")["y"].mean()
    # each site's own 15 rows tell its level to .26, and the prior hardly shrinks it
    found = effects.to_series().reindex(means.index)
    assert np.abs(found - means).max() < 0.3

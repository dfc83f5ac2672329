"""A second, small factor crossed with the groups: found, and shared where the user says so."""

import re

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy.linalg import block_diag

import arviz_swiss as az_swiss
from arviz_swiss.data import containers
from arviz_swiss.parallel.levels import share_levels
from arviz_swiss.parallel.partition import partition, take
from arviz_swiss.pymc import sample_batches

SITES, MONTHS, BATCHES, SEED = 24, ["apr", "feb", "jan", "mar"], 3, 3
NOISE, SPREAD = 0.7, 0.8
QUIET = {"progressbar": False, "random_seed": SEED}
DIVIDED = {"groups": "site", "batches": BATCHES, **QUIET}


def make_table():
    """Return rows of sites in months, of which "mar" is in one site alone, so in one batch."""
    rng = np.random.default_rng(5)
    site = np.repeat(np.arange(SITES), 6)
    month = rng.choice(["jan", "feb", "apr"], site.size)
    month[:3] = "mar"
    effects = dict(zip(MONTHS, (0.0, 0.5, -0.5, 1.0), strict=True))
    y = 1 + SPREAD * rng.standard_normal(SITES)[site] + NOISE * rng.standard_normal(site.size)
    return pd.DataFrame({"site": site, "month": month, "y": y + pd.Series(month).map(effects)})


TABLE = make_table()


def model_of(data, months, codes, labelled=True):
    sites, places = np.unique(np.asarray(data["site"]), return_inverse=True)
    coords = {"site": sites, "month": months} if labelled else {}
    with pm.Model(coords=coords) as model:
        effect = pm.Normal("effect", **({"dims": "month"} if labelled else {"shape": len(months)}))
        u = pm.Normal("u", 0, SPREAD, **({"dims": "site"} if labelled else {"shape": len(sites)}))
        mean = effect[pm.Data("code", codes)] + u[pm.Data("place", places)]
        pm.Normal("y", mean, NOISE, observed=pm.Data("rows", np.asarray(data["y"])))
    return model


def build(data):
    """Follow the advice of the error."""
    return model_of(data, data["month"].cat.categories, data["month"].cat.codes)


def build_by_batch(data):
    months, codes = np.unique(np.asarray(data["month"], str), return_inverse=True)
    return model_of(data, months, codes)


def build_unlabelled(data):
    months, codes = np.unique(np.asarray(data["month"], str), return_inverse=True)
    return model_of(data, months, codes, labelled=False)


def build_dataset(data):
    levels = data["month"].attrs["levels"]
    return model_of(data, levels, np.searchsorted(levels, data["month"]))


def exact_effects():
    """Return mean and sds of the months' effects, the sites' integrated out."""
    design = np.array(MONTHS) == TABLE["month"].to_numpy()[:, None]
    sizes = TABLE.groupby("site").size()
    covariance = block_diag(
        *(NOISE**2 * np.eye(size) + SPREAD**2 * np.ones((size, size)) for size in sizes)
    )
    weighted = np.linalg.solve(covariance, design.astype(float)).T
    inverse = np.linalg.inv(weighted @ design + np.eye(len(MONTHS)))
    return inverse @ weighted @ TABLE["y"].to_numpy(), np.sqrt(np.diag(inverse))


def groups_of(merged):
    return containers.read(merged).groups


@pytest.fixture(scope="module")
def merged():
    return az_swiss.sample(build, TABLE, shared="month", draws=1200, **DIVIDED)


def check_effects(merged):
    """Compare with the exact posterior of all rows, as far as Monte Carlo error allows."""
    posterior = groups_of(merged)["posterior"]
    effects = posterior["effect"].sel(month=MONTHS)
    mean, sds = exact_effects()
    count = effects.sizes["chain"] * effects.sizes["draw"]
    # pooled moments are as noisy as the draws of one batch make them
    shifts = (effects.mean(("chain", "draw")).values - mean) / sds
    assert np.abs(shifts).max() < 4 * np.sqrt(BATCHES / count)
    ratios = effects.std(("chain", "draw")).values / sds
    assert np.abs(ratios - 1).max() < 4 * np.sqrt(BATCHES / (2 * count))


def test_a_batch_lacks_a_month():
    rows = partition(TABLE, BATCHES, groups="site", random_seed=SEED)
    there = ["mar" in take(TABLE, index)["month"].tolist() for index in rows]
    assert sorted(there) == [False, False, True]


def test_effects_of_all_months_are_those_of_all_rows(merged):
    groups = groups_of(merged)
    assert list(groups["posterior"]["month"].values) == MONTHS
    assert groups["posterior"].attrs["swiss_local"] == "u"
    assert groups["posterior"].attrs["swiss_shared"] == '["month"]'
    assert groups["swiss_certificate"].attrs["status"] == "certified"
    check_effects(merged)


def test_refine_and_certify_find_the_same_rows(merged):
    refined = az_swiss.refine(merged, build=build, data=TABLE, draws=1200, **QUIET)
    check_effects(refined)
    certified = az_swiss.certify(refined, build=build, data=TABLE, **QUIET)
    assert groups_of(certified)["swiss_certificate"].attrs["status"] == "certified"


def test_a_folder_is_resumed(tmp_path):
    short = {**DIVIDED, "draws": 300, "certify": False, "folder": tmp_path}
    first = az_swiss.sample(build, TABLE, shared="month", **short)
    again = az_swiss.sample(build, TABLE, shared=["month"], **short)
    own, expected = (groups_of(each)["posterior"]["effect"] for each in (again, first))
    xr.testing.assert_allclose(own, expected)
    with pytest.raises(ValueError, match="shared"):
        az_swiss.sample(build, TABLE.astype({"month": "category"}), **short)


@pytest.mark.parametrize(
    ("function", "data"),
    [
        (build, {name: TABLE[name].to_numpy() for name in TABLE}),
        (build_dataset, xr.Dataset({name: ("row", TABLE[name].to_numpy()) for name in TABLE})),
    ],
    ids=["dict", "dataset"],
)
def test_other_tables(function, data):
    merged = az_swiss.sample(function, data, shared="month", draws=1200, certify=False, **DIVIDED)
    check_effects(merged)
    again = az_swiss.refine(merged, build=function, data=data, draws=300, rounds=1, **QUIET)
    assert list(groups_of(again)["posterior"]["month"].values) == MONTHS


def test_without_groups_a_rare_level_is_shared():
    """Rows are divided at random: "mar" is in two batches of five, and there is no local one."""

    def plain(data):
        with pm.Model(coords={"month": data["month"].cat.categories}) as model:
            effect = pm.Normal("effect", dims="month")
            pm.Normal("y", effect[data["month"].cat.codes.to_numpy()], observed=data["y"])
        return model

    merged = az_swiss.sample(plain, TABLE, shared="month", batches=5, draws=800, **QUIET)
    posterior = groups_of(merged)["posterior"]
    rows = TABLE.groupby("month")["y"]
    precision = rows.size() + 1
    count = posterior.sizes["chain"] * posterior.sizes["draw"]
    shifts = (posterior["effect"].mean(("chain", "draw")).values - rows.sum() / precision) * (
        precision**0.5
    )
    assert np.abs(shifts).max() < 4 * np.sqrt(5 / count)


@pytest.mark.parametrize("function", [az_swiss.sample, sample_batches])
def test_levels_in_several_batches_are_found(function):
    kind = {} if function is az_swiss.sample else {"kind": "fractionated"}
    message = r"variable effect has coordinate 'apr' in batch b0 and in batch b1.*shared=\"month\""
    with pytest.raises(ValueError, match=message):
        function(build_by_batch, TABLE, **DIVIDED, **kind)


def test_levels_without_labels_are_found():
    message = r"variable effect has \d elements in batch b0 .* but 4 in a model of both.*shared="
    with pytest.raises(ValueError, match=message):
        az_swiss.sample(build_unlabelled, TABLE, **DIVIDED)


@pytest.mark.parametrize("function", [build_by_batch, build_unlabelled])
def test_a_build_that_does_not_take_the_levels_is_told_how(function):
    lines = 'coords={"month": data["month"].cat.categories}\n    data["month"].cat.codes'
    message = f"(?s)effect has only those levels of month.*{re.escape(lines)}"
    with pytest.raises(ValueError, match=message):
        az_swiss.sample(function, TABLE, shared="month", **DIVIDED)
    data = xr.Dataset({name: ("row", TABLE[name].to_numpy()) for name in TABLE})
    lines = 'levels = data["month"].attrs["levels"]'
    with pytest.raises(ValueError, match=re.escape(lines)):
        az_swiss.sample(function, data, shared="month", **DIVIDED)


def test_levels_that_no_two_batches_have_are_found():
    """Every batch has other months: without shared= they would be its own."""
    rows = TABLE.assign(month=TABLE["site"] // 8)
    indices = partition(rows, BATCHES, groups="month", random_seed=SEED)
    assert [len(set(take(rows, index)["month"])) for index in indices] == [1, 1, 1]
    rows["month"] = rows["month"].map({0: "a", 1: "b", 2: "c"})
    divided = {**DIVIDED, "groups": "month"}
    with pytest.raises(ValueError, match="effect has only those levels of month"):
        az_swiss.sample(build_by_batch, rows, shared="month", **divided)


def test_a_later_batch_without_a_level_is_refused():
    order = partition(TABLE, BATCHES, groups="site", random_seed=SEED)
    last = TABLE["site"].isin(TABLE["site"][order[-1]].unique())
    # all months in the first two batches, and "mar" not in the last one
    site = TABLE["site"].where(~last)
    month = TABLE["month"].where(TABLE["month"] != "mar", "jan")
    month[site.groupby(site).cumcount().eq(0) & ~last] = "mar"
    with pytest.raises(ValueError, match=r'batch b2: free variable effect .*shared="month"'):
        az_swiss.sample(build_by_batch, TABLE.assign(month=month), **DIVIDED)
    with pytest.raises(ValueError, match="effect has only those levels of month"):
        az_swiss.sample(build_by_batch, TABLE.assign(month=month), shared="month", **DIVIDED)


def test_levels_are_those_of_all_rows_and_the_data_stay_as_they_are():
    before = TABLE.copy()
    few = share_levels(TABLE, ["month"]).iloc[10:20]
    assert few["month"].cat.categories.tolist() == MONTHS
    pd.testing.assert_frame_equal(TABLE, before)
    own = pd.Categorical(TABLE["month"], ["mar", "feb", "jan", "apr", "may"])
    kept = share_levels(TABLE.assign(month=own), ["month"])
    assert kept["month"].cat.categories.tolist() == ["mar", "feb", "jan", "apr", "may"]


@pytest.mark.parametrize(
    ("data", "shared", "error", "message"),
    [
        (TABLE, "week", ValueError, "shared='week' is not a column of the data"),
        (TABLE, 3, TypeError, "shared must be the name of a column"),
        (TABLE, [3], TypeError, "shared must be the name of a column"),
        (
            TABLE.assign(month=TABLE["month"].where(TABLE.index != 7)),
            "month",
            ValueError,
            "1 missing levels, the first in row 7",
        ),
        (TABLE.to_records(), "month", TypeError, "Pass a DataFrame, a dict of arrays"),
    ],
)
def test_what_cannot_be_shared(data, shared, error, message):
    with pytest.raises(error, match=message):
        az_swiss.sample(build, data, shared=shared, **DIVIDED)

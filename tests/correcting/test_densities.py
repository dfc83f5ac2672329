import re

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytest
import xarray as xr
from normal_density import Normal

import arviz_swiss as az_swiss
from arviz_swiss.correcting.densities import Source, batch_densities, summed_densities
from arviz_swiss.data import containers
from arviz_swiss.merging.merged import open_merged
from arviz_swiss.parallel.division import division_attrs
from arviz_swiss.parallel.partition import partition

QUIET = {"progressbar": False, "random_seed": 1}
LABELS = ["north", "south", "west"]
SEED, ROWS = 11, 400
BOTH = pytest.mark.parametrize("function", [az_swiss.refine, az_swiss.certify])


@pytest.fixture(autouse=True)
def uncompiled():
    """Spare the compiler, which is not what is tested."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield


@pytest.fixture(scope="module")
def opened():
    """Return a merge of three batches that recorded nothing."""
    rng = np.random.default_rng(0)
    draws = {label: {"x": rng.normal(size=(2, 100))} for label in LABELS}
    return open_merged(az_swiss.merge(draws, kind="full_prior", prior=draws["west"]), "posterior")


@pytest.fixture
def densities():
    return dict(zip(LABELS, map(Normal, (1.0, 2.0, 6.0)), strict=True))


def test_densities_are_matched_by_label_position_or_order(opened, densities):
    shuffled = {label: densities[label] for label in ("west", "north", "south")}
    given = (shuffled, list(densities.values()), tuple(densities.values()))
    by_position = {position: density for position, density in enumerate(densities.values())}
    for source in map(Source, (*given, by_position)):
        for matched in (batch_densities(opened, source), summed_densities(opened, source)):
            assert list(matched) == LABELS
            assert [density.centre[0] for density in matched.values()] == [1.0, 2.0, 6.0]


def test_densities_of_all_rows_may_be_fewer_or_more_than_the_batches(opened, densities):
    alone = summed_densities(opened, Source(densities["west"]))
    assert alone == {"all rows": densities["west"]}
    for count in (2, 3, 5):
        own = {f"part {i}": Normal(i) for i in range(count)}
        assert summed_densities(opened, Source(own)) == own


def test_densities_that_do_not_fit_are_refused(opened, densities):
    some = {label: densities[label] for label in LABELS[:2]}
    refused = [
        ([Normal(1.0), Normal(2.0)], ValueError, "densities has 2 elements for 3 batches, and whe"),
        ([], ValueError, "densities has 0 elements for 3 batches"),
        (some, ValueError, r'has batches north, south; .* no density for batch 2 \("west"\)'),
        ({**some, "east": Normal(2.0)}, ValueError, "unknown batches east"),
        ({0: Normal(1.0), 1: Normal(2.0)}, ValueError, r'no density for batch 2 \("west"\)'),
        (densities.values(), TypeError, "mapping of batch label to density, got dict_values"),
        ("abc", TypeError, "mapping of batch label to density, got str"),
        (Normal, TypeError, 'density "all rows": got the class Normal, not an object'),
    ]
    for given, error, message in refused:
        with pytest.raises(error, match=message):
            summed_densities(opened, Source(given))


@pytest.mark.parametrize("count", [2, 30])
def test_a_list_of_parts_is_told_by_a_mapping_as_the_error_says(opened, count):
    densities = [Normal(float(position)) for position in range(count)]
    with pytest.raises(ValueError, match="cannot be seen") as caught:
        summed_densities(opened, Source(densities))
    (advised,) = re.findall(r"own: ({.*\)})\.", str(caught.value))
    parts = summed_densities(opened, Source(eval(advised, {"densities": densities})))
    assert list(parts.values()) == densities


def test_methods_that_are_missing_are_named(opened, densities):
    class NoPrior:
        log_likelihood = grad_log_likelihood = grad_log_prior = Normal.log_prior

    densities["south"] = NoPrior()
    with pytest.raises(
        TypeError, match=r'batch 1 \("south"\): NoPrior has no method log_prior.*"full_prior"'
    ):
        batch_densities(opened, Source(densities))
    with pytest.raises(TypeError, match='density "all rows": NoPrior has no method log_prior'):
        summed_densities(opened, Source(NoPrior()))


def poisson(batch):
    """Return the model of counts, of which those of few rows make a skewed log rate."""
    with pm.Model() as model:
        log_rate = pm.Normal("log_rate", 0, 2)
        pm.Poisson("y", pm.math.exp(log_rate), observed=pm.Data("y_data", batch["y"]))
    return model


@pytest.fixture(scope="module")
def table():
    y = np.random.default_rng(1).poisson(0.05, ROWS)
    site = np.arange(ROWS) // 5
    return pd.DataFrame({"y": y, "site": site, "half": site % 2})


def merge_of(table, to_container, batches=4, **labels):
    """Return a merge of exact inflated batches that tell what `sample_batches` tells."""
    rng, grid, idatas = np.random.default_rng(6), np.linspace(-9, 1, 20001), []
    indices = partition(table, batches, random_seed=SEED, **labels)
    attrs = division_attrs(table, indices, SEED, **labels)
    for position, rows in enumerate(indices):
        y = table["y"].to_numpy()[rows]
        power = len(table) / len(y)
        logs = power * (y.sum() * grid - len(y) * np.exp(grid)) - grid**2 / 8
        shares = np.exp(logs - logs.max())
        draws = rng.choice(grid, (2, 400), p=shares / shares.sum())
        idata = to_container(
            {"log_rate": draws + rng.uniform(-1, 1, draws.shape) * (grid[1] - grid[0]) / 2},
            observed_data=xr.Dataset({"y": ("y_dim_0", y)}),
        )
        own = {"swiss_batch": f"b{position}", "swiss_size": len(rows), "swiss_power": power}
        own |= {"swiss_kind": "inflated", "swiss_prior_power": 1.0}
        idata["posterior"].attrs |= attrs | own
        idatas.append(idata)
    return az_swiss.merge(idatas)


@pytest.fixture(scope="module")
def merged(table, to_container):
    return merge_of(table, to_container)


def models_of(table, indices):
    return [poisson(table.iloc[rows]) for rows in indices]


def check_same(found, expected):
    """Check that two merges were refined alike."""
    for name in ("pooled_mean", "pooled_covariance", "step"):
        np.testing.assert_allclose(
            found["swiss_transform"][name], expected["swiss_transform"][name], rtol=1e-8
        )
    np.testing.assert_allclose(
        found["posterior"]["log_rate"], expected["posterior"]["log_rate"], rtol=1e-8
    )


@pytest.fixture(scope="module")
def refined(merged, table):
    """Return the merge refined by the models of its batches."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        models = models_of(table, partition(table, 4, random_seed=SEED))
        result = az_swiss.refine(merged, models, **QUIET)
    # there was something to refine
    assert result["swiss_transform"]["step"][1] > 0.2
    return result


def test_a_model_of_all_data_refines_as_those_of_the_batches(merged, table, refined):
    check_same(az_swiss.refine(merged, poisson(table), **QUIET), refined)
    check_same(az_swiss.refine(merged, [poisson(table)], **QUIET), refined)
    # where nothing was recorded, and for any object
    exposed = {"all": LogRate(table["y"].sum(), ROWS)}
    for density in (exposed, exposed["all"]):
        check_same(az_swiss.refine(merged, density, **QUIET), refined)


class LogRate:
    """The density of `poisson` by its sufficient statistics."""

    def __init__(self, events, rows):
        self.events, self.rows = events, rows

    def log_prior(self, x):
        return -(x[:, 0] ** 2) / 8

    def grad_log_prior(self, x):
        return -x / 4

    def log_likelihood(self, x):
        return self.events * x[:, 0] - self.rows * np.exp(x[:, 0])

    def grad_log_likelihood(self, x):
        return self.events - self.rows * np.exp(x)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_other_models_than_the_batches_refine_as_those(merged, table, refined, count):
    models = models_of(table, np.array_split(np.arange(ROWS), count))
    check_same(az_swiss.refine(merged, models, **QUIET), refined)
    named = {f"part {i}": model for i, model in enumerate(models)}
    check_same(az_swiss.refine(merged, named, **QUIET), refined)


def test_models_of_other_rows_together_are_refused(merged, table):
    thirds = np.array_split(np.arange(ROWS), 3)
    more = "every row must count once. Pass densities that hold all rows"
    for indices, words in (
        ([thirds[0], thirds[1]], "together observe 267 values"),
        ([*np.array_split(np.arange(ROWS), 2), np.arange(2)], "together observe 402 values"),
        ([np.arange(ROWS - 1)], "together observe 399 values"),
        # as many rows, some twice and some not at all
        ([thirds[0], thirds[1], thirds[0][1:]], "together observe 400 values of mean"),
    ):
        with pytest.raises(ValueError, match=f"{words}.*sampled with 400 values.*{more}"):
            az_swiss.refine(merged, models_of(table, indices), **QUIET)
    model = poisson(table.iloc[:200])
    with pytest.raises(ValueError, match=r'same density is given for batches "0", "1"'):
        az_swiss.refine(merged, [model, model], **QUIET)


def without(merged, *names):
    """Return a merge that records less."""
    groups = dict(containers.read(merged).groups)
    groups["swiss_transform"] = groups["swiss_transform"].drop_vars(names)
    return containers.build(groups)


def test_rows_are_counted_where_no_values_were_recorded(merged, table, refined):
    sized = without(merged, "observed_summary")
    check_same(az_swiss.refine(sized, poisson(table), **QUIET), refined)
    with pytest.raises(ValueError, match=r"together observe 399 rows for y, .* with 400 rows"):
        az_swiss.refine(sized, poisson(table.iloc[1:]), **QUIET)
    nothing = without(merged, "observed_summary", "size")
    models = models_of(table, np.array_split(np.arange(ROWS), 3))
    with pytest.raises(ValueError, match="3 elements for 4 batches, and whether they hold every"):
        az_swiss.refine(nothing, models, **QUIET)
    check_same(az_swiss.refine(nothing, dict(zip("xyz", models, strict=True)), **QUIET), refined)


def test_certify_needs_the_densities_of_the_batches(merged, table, refined):
    thirds = models_of(table, np.array_split(np.arange(ROWS), 3))
    for given, words in ((poisson(table), "got one density for 4"), (thirds, "got 3 densities")):
        with pytest.raises(ValueError, match=f"{words}.* that each batch was sampled") as caught:
            az_swiss.certify(refined, given, **QUIET)
        check_followed(caught.value, az_swiss.certify, refined, table)


def check_followed(error, function, merged, table):
    """Return what the function gives when it is called as its error advises."""
    (arguments,) = re.findall(r"Pass (build=build, data=data),", str(error))
    names = {"function": function, "merged": merged, "build": poisson, "data": table}
    result = eval(f"function(merged, {arguments}, **quiet)", names | {"quiet": QUIET})
    if function is az_swiss.certify:
        assert result["swiss_certificate"].attrs["status"] == "certified"
    return result


@pytest.mark.parametrize("kind_of_data", ["table", "dict", "Dataset"])
def test_models_are_built_from_the_data(table, to_container, refined, kind_of_data):
    data = {
        "table": table,
        "dict": {name: table[name].to_numpy() for name in table},
        "Dataset": xr.Dataset({name: ("row", table[name].to_numpy()) for name in table}),
    }[kind_of_data]
    merged = merge_of(table, to_container)
    merged["posterior"].attrs["swiss_data"] = division_attrs(data, [np.arange(1)], 1)["swiss_data"]

    def build(batch):
        return poisson({"y": np.asarray(batch["y"])})

    found = az_swiss.refine(merged, build=build, data=data, **QUIET)
    check_same(found, refined)
    az_swiss.certify(found, build=build, data=data, **QUIET)


@pytest.mark.parametrize("labels", [{"groups": "site"}, {"groups": "site", "stratify": "half"}])
def test_columns_that_were_divided_by_are_found_again(table, to_container, labels):
    by_name = merge_of(table, to_container, **labels)
    models = models_of(table, partition(table, 4, random_seed=SEED, **labels))
    expected = az_swiss.refine(by_name, models, **QUIET)
    check_same(az_swiss.refine(by_name, build=poisson, data=table, **QUIET), expected)

    arrays = {name: table[column].to_numpy() for name, column in labels.items()}
    by_array = merge_of(table, to_container, **arrays)
    for function in (az_swiss.refine, az_swiss.certify):
        with pytest.raises(ValueError, match="pass the data, groups= and stratify= of sample_bat"):
            function(by_array, build=poisson, data=table, **QUIET)
        by_array = function(by_array, build=poisson, data=table, **arrays, **QUIET)
    assert by_array["swiss_certificate"].attrs["status"] == "certified"
    check_same(by_array, expected)
    other = {**arrays, "groups": np.roll(arrays["groups"], 10)}
    with pytest.raises(ValueError, match="divides the rows into 4 batches otherwise"):
        az_swiss.refine(by_array, build=poisson, data=table, **other, **QUIET)


@BOTH
def test_other_data_seeds_and_batches_are_refused(merged, table, function):
    with pytest.raises(ValueError, match="the data differ from those that sample_batches divided"):
        function(merged, build=poisson, data=table.assign(site=0), **QUIET)
    for attrs, message in (
        ({"swiss_random_seed": "12"}, "the data or the seed differ"),
        ({"swiss_random_seed": None}, "record no seed"),
    ):
        with pytest.raises(ValueError, match=message):
            function(relabelled(merged, attrs), build=poisson, data=table, **QUIET)
    # other values of as many rows, where the data were not recorded
    other = table.assign(y=table["y"].to_numpy()[::-1])
    with pytest.raises(ValueError, match=r"the model observes .* the batch was .*one of them diff"):
        function(relabelled(merged, {"swiss_data": None}), build=poisson, data=other, **QUIET)


def relabelled(merged, attrs):
    """Return the merge with other attributes of its draws."""
    groups = dict(containers.read(merged).groups)
    posterior = groups["posterior"].copy()
    kept = {**posterior.attrs, **attrs}
    posterior.attrs = {name: value for name, value in kept.items() if value is not None}
    return containers.build({**groups, "posterior": posterior})


@BOTH
def test_batches_of_other_names_are_not_guessed(table, to_container, function):
    merged = merge_of(table, to_container)
    back = az_swiss.subposteriors(merged)
    named = az_swiss.merge(dict(zip("wxyz", back.values(), strict=True)))
    with pytest.raises(ValueError, match=r"batches are w, x, y, z, .* b0, b1, b2, b3: which rows"):
        function(named, build=poisson, data=table, **QUIET)
    some = az_swiss.merge([back["b0"], back["b1"], back["b2"]], powers=3)
    with pytest.raises(ValueError, match=r"into 3 batches otherwise .*some batches are missing"):
        function(some, build=poisson, data=table, **QUIET)


@BOTH
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"pass densities, or both build= and data=: got neither"),
        ({"build": poisson}, "got only build="),
        ({"data": 1, "groups": "site"}, "got only data=, groups="),
        ({"groups": "site"}, "got only groups="),
        ({"densities": poisson}, "function, poisson: .* pass it as build=, with data="),
        ({"densities": [1], "build": poisson, "data": 1}, "got densities and build=, data="),
        ({"densities": [1], "stratify": "half"}, "got densities and stratify="),
        ({"build": 3, "data": 1}, "build must be the function of sample_batches.*got int"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(merged, function, arguments, message):
    with pytest.raises(TypeError, match=message):
        function(merged, **arguments, **QUIET)


def test_the_batch_that_cannot_be_built_is_named(merged, table):
    calls = iter(range(4))

    def build(batch):
        return poisson(batch) if next(calls) < 2 else 1 / 0

    with pytest.raises(ZeroDivisionError) as caught:
        az_swiss.refine(merged, build=build, data=table, **QUIET)
    assert caught.value.__notes__ == ['build raised this for batch "b2".']


@pytest.mark.slow
def test_what_sample_batches_made_is_refined_and_certified_by_the_same_arguments(table):
    arguments = {"build": poisson, "data": table}
    with pytensor.config.change_flags(mode="Mode"):
        idatas = az_swiss.sample_batches(
            **arguments, batches=4, groups="site", draws=500, tune=500, **QUIET
        )
        merged = az_swiss.merge(idatas)
        refined = az_swiss.refine(merged, **arguments, **QUIET)
        certified = az_swiss.certify(refined, **arguments, **QUIET)
    assert certified["swiss_certificate"].attrs["status"] == "certified"
    whole = az_swiss.refine(merged, poisson(table), **QUIET)
    check_same(whole, refined)

"""A merged hierarchical posterior predicts as one of all data would: closed forms, real PyMC."""

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy.linalg import block_diag
from scipy.stats import kstest

import arviz_swiss as az_swiss
from arviz_swiss.data import containers

GROUPS, ROWS, SPREAD = (6, 8, 10), 12, 2.0
DRAWS = 2 * 200


def build(data):
    codes, schools = pd.factorize(data["school"], sort=True)
    with pm.Model(coords={"school": schools, "row": data.index}) as model:
        code = pm.Data("code", codes, dims="row")
        pm.Data("square", data["y"].to_numpy() ** 2, dims="row")
        mu = pm.Normal("mu", 0, 5)
        effect = pm.Normal("effect", 0, SPREAD, dims="school")
        level = pm.Deterministic("level", mu + effect)  # has default labels 0, 1, ...
        pm.Normal("y", level[code], 1.0, observed=data["y"].to_numpy(), dims="row")
    return model


def closed_form(data, prior_power=1.0):
    """Return mean and covariance of mu and the schools' effects."""
    by_school = data.groupby("school")["y"]
    counts, sums = by_school.size().to_numpy(), by_school.sum().to_numpy()
    precision = np.diag([prior_power / 25 + counts.sum(), *(counts + 1 / SPREAD**2)]).astype(float)
    precision[0, 1:] = precision[1:, 0] = counts
    covariance = np.linalg.inv(precision)
    return covariance @ np.concatenate([[sums.sum()], sums]), covariance


def make_data():
    """Rows in no order of schools, and schools that were dealt out to batches at random."""
    rng = np.random.default_rng(3)
    schools = np.array([f"s{g:02d}" for g in range(sum(GROUPS))])
    effects = dict(zip(schools, rng.normal(0, SPREAD, schools.size), strict=True))
    school = rng.permutation(np.repeat(schools, ROWS))
    y = 1 + np.array([effects[name] for name in school]) + rng.standard_normal(school.size)
    data = pd.DataFrame({"school": school, "y": y})
    dealt = np.split(rng.permutation(schools), np.cumsum(GROUPS)[:-1])
    return data, [data[data["school"].isin(names)] for names in dealt]


@pytest.fixture(scope="module")
def problem(exact_draws):
    data, parts = make_data()
    moments = [closed_form(part, len(part) / len(data)) for part in parts]
    together = exact_draws(
        np.random.default_rng(0),
        np.concatenate([mean for mean, _ in moments]),
        block_diag(*[covariance for _, covariance in moments]),
    )
    batches = []
    ends = np.cumsum([len(mean) for mean, _ in moments])[:-1]
    for part, draws in zip(parts, np.split(together, ends, axis=-1), strict=True):
        model = build(part)
        values = {
            "mu": draws[..., 0],
            "effect": draws[..., 1:],
            "level": draws[..., :1] + draws[..., 1:],
        }
        made = pm.to_inference_data(prior={"x": np.zeros((1, 1))}, model=model)
        groups = {
            name: dataset
            for name, dataset in containers.read(made).groups.items()
            if name in ("observed_data", "constant_data")
        }
        posterior = containers.read(values).groups["posterior"]
        posterior = posterior.rename(effect_dim_0="school")
        posterior = posterior.assign_coords(school=list(model.coords["school"]))
        groups["posterior"] = posterior.assign_attrs(
            sampled_variables=["mu", "effect"],
            swiss_kind="fractionated",
            swiss_power=1.0,
            swiss_prior_power=len(part) / len(data),
        )
        batches.append(containers.build(groups))
    return data, parts, batches


def predicted(merged, model):
    """Return the means of the predictions, after adding them to the merged object."""
    options = {"model": model, "progressbar": False}
    pm.sample_posterior_predictive(merged, random_seed=1, extend_inferencedata=True, **options)
    pm.compute_log_likelihood(merged, **options)
    groups = containers.read(merged).groups
    return groups["posterior_predictive"]["y"].mean(("chain", "draw")).values


def loo_pit(merged):
    if containers.native_container() == "DataTree":
        return containers.read(az.loo_pit(merged), "pit").groups["pit"]["y"].values
    return np.asarray(az.loo_pit(merged, y="y"))


@pytest.mark.parametrize("given", ["all data", "one batch", "nothing"])
def test_predictions_of_all_rows(problem, given):
    data, parts, batches = problem
    models = {"all data": build(data), "one batch": build(parts[1]), "nothing": None}
    merged = az_swiss.merge(batches, model=models[given])
    mean, covariance = closed_form(data)
    design = np.column_stack([np.ones(len(data)), pd.get_dummies(data["school"])]).astype(float)
    means = predicted(merged, models["all data"])
    count = len(GROUPS) * DRAWS
    # the means of the levels are exact, so all noise is that of the rows
    assert abs(means - design @ mean).max() < 5 / np.sqrt(count)
    assert np.corrcoef(means, data["y"])[0, 1] > 0.9

    variances = np.einsum("ni,ij,nj->n", design, covariance, design) * (DRAWS - 1) / DRAWS
    expected = -0.5 * (np.log(2 * np.pi) + (data["y"] - design @ mean) ** 2 + variances)
    found = containers.read(merged).groups["log_likelihood"]["y"].mean(("chain", "draw"))
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_joined_data_are_in_the_order_of_predictions(problem):
    """LOO-PIT compares rows by position: uniform in the right order only."""
    data, parts, batches = problem
    model = build(data)
    merged = az_swiss.merge(batches, model=model)
    groups = containers.read(merged).groups
    np.testing.assert_array_equal(groups["observed_data"]["y"], data["y"])
    np.testing.assert_array_equal(groups["constant_data"]["square"], data["y"] ** 2)
    # codes count the schools of one batch, which are others in the merged object
    assert groups["posterior"].attrs["swiss_left_out"] == "constant_data/code"
    predicted(merged, model)
    assert kstest(loo_pit(merged), "uniform").pvalue > 0.01
    groups = containers.read(merged).groups
    groups["observed_data"]["y"].values[:] = np.concatenate([part["y"] for part in parts])
    end_to_end = containers.build(groups)
    assert kstest(loo_pit(end_to_end), "uniform").pvalue < 1e-10
    assert az.loo(merged).n_data_points == len(data)


def test_the_models_order_goes_before_the_sorted_one(problem):
    """Schools in the order of their first row, as pandas.factorize has them without sort."""
    data, _, batches = problem
    schools = list(data["school"].unique())
    rows = np.random.default_rng(5).permutation(len(data))
    with pm.Model(coords={"school": schools, "row": rows}) as model:
        mu = pm.Normal("mu", 0, 5)
        effect = pm.Normal("effect", 0, SPREAD, dims="school")
        pm.Deterministic("level", mu + effect)
        pm.Normal("y", mu, 1.0, observed=data["y"].to_numpy(), dims="row")
    ours = containers.read(az_swiss.merge(batches, model=model)).groups
    sorted_ones = containers.read(az_swiss.merge(batches)).groups
    assert ours["posterior"]["school"].values.tolist() == schools
    assert ours["observed_data"]["row"].values.tolist() == rows.tolist()
    for group, name, dim in (("posterior", "effect", "school"), ("observed_data", "y", "row")):
        again = ours[group][name].sortby(dim)
        np.testing.assert_allclose(again, sorted_ones[group][name], rtol=1e-12)
    order = [sorted(schools).index(school) for school in schools]
    np.testing.assert_allclose(
        ours["posterior"]["level"], sorted_ones["posterior"]["level"].values[..., order], rtol=1e-9
    )


def scattered(part, group_sd, seed, draws=(2, 500)):
    """Return draws of mu, tau and effects that the data tell: those about their group's mean."""
    rng = np.random.default_rng(seed)
    means = part.groupby("school")["y"].mean()
    mu, tau = rng.normal(1, 0.4, draws), np.exp(rng.normal(0.5, 0.3, draws))
    effects = means.to_numpy() + group_sd * rng.standard_normal((*draws, len(means)))
    return list(means.index), {"mu": mu, "tau": tau, "effect": effects}


def as_batch(schools, values, sampled, share):
    posterior = containers.read(values).groups["posterior"]
    dims = {dim: "school" for dim in posterior.dims if dim not in ("chain", "draw")}
    for name in ("effect", "z"):
        if name in posterior:
            array = posterior[name].rename({posterior[name].dims[-1]: "school"})
            posterior = posterior.assign({name: array})
    posterior = posterior.drop_dims([dim for dim in dims if dim in posterior.dims])
    attrs = {
        "sampled_variables": sampled,
        "swiss_kind": "fractionated",
        "swiss_power": 1.0,
        "swiss_prior_power": share,
        "swiss_local": sampled[-1],
    }
    posterior = posterior.assign_coords(school=schools).assign_attrs(attrs)
    return containers.build({"posterior": posterior})


def varying(data, centred):
    codes, schools = pd.factorize(data["school"], sort=True)
    with pm.Model(coords={"school": schools}) as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfNormal("tau", 3)
        if centred:
            effect = pm.Normal("effect", mu, tau, dims="school")
        else:
            z = pm.Normal("z", dims="school")
            effect = pm.Deterministic("effect", mu + tau * z, dims="school")
            pm.Deterministic("doubled", 2 * z, dims="school")
        pm.Normal("y", effect[codes], observed=data["y"].to_numpy())
    return model


def posterior_of(merged):
    return containers.read(merged).groups["posterior"]


def batches_of_effects(parts, share):
    pairs = []
    for seed, part in enumerate(parts):
        schools, values = scattered(part, 0.2, seed)
        z = (values["effect"] - values["mu"][..., None]) / values["tau"][..., None]
        centred = as_batch(schools, values, ["mu", "tau", "effect"], share)
        values |= {"z": z}
        pairs.append((centred, as_batch(schools, values, ["mu", "tau", "z"], share)))
    return zip(*pairs, strict=True)


@pytest.mark.parametrize("given", ["all data", "one batch"])
def test_effects_are_the_same_however_they_are_written(given):
    """z is solved for from the moved effects: a line in tau, it is none in z."""
    data, parts = make_data()
    centred, others = batches_of_effects(parts, 1 / 3)
    rows = data if given == "all data" else parts[1]
    expected = posterior_of(az_swiss.merge(list(centred), model=varying(data, centred=True)))
    merged = az_swiss.merge(list(others), model=varying(rows, centred=False))
    found = posterior_of(merged)
    np.testing.assert_allclose(found["effect"], expected["effect"], rtol=1e-8, atol=1e-8)
    again = found["mu"] + found["tau"] * found["z"]
    np.testing.assert_allclose(found["effect"], again.transpose(*found["effect"].dims), atol=1e-8)
    back = az_swiss.subposteriors(merged, model=varying(rows, centred=False))
    for batch, restored in zip(others, back.values(), strict=True):
        before = posterior_of(batch)["z"]
        np.testing.assert_allclose(
            posterior_of(restored)["z"].sel(school=before["school"]), before, atol=1e-6
        )


def test_effects_that_the_data_do_not_tell_are_moved_as_they_are_drawn():
    """Where z has its prior, whatever tau, it is z that keeps its distribution."""
    data, parts = make_data()
    batches, drawn = [], []
    for seed, part in enumerate(parts):
        schools, values = scattered(part, 0.2, seed)
        z = np.random.default_rng(10 + seed).standard_normal(values["effect"].shape)
        values |= {"z": z, "effect": values["mu"][..., None] + values["tau"][..., None] * z}
        batches.append(as_batch(schools, values, ["mu", "tau", "z"], 1 / 3))
        drawn.append(z)
    merged = az_swiss.merge(batches, model=varying(data, centred=False))
    groups = containers.read(merged).groups
    assert groups["swiss_local"].attrs["swiss_through"] == "{}"
    owners = groups["swiss_local"]["batch_school"]
    for b, z in enumerate(drawn):
        schools = owners["school"].values[owners.values == f"b{b}"]
        found = groups["posterior"]["z"].sel(school=schools).values
        rest = found - np.concatenate([z] * len(drawn))
        # regression of 1,000 draws on two parameters: slopes have sd 1 / sqrt(1000)
        assert np.sqrt(np.mean(rest**2)) < 5 * np.sqrt(2 / 1000)

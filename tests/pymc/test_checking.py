"""What is refused before sampling: found in models of real batches, and no folder is begun."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from batch_models import DATA, hierarchy, mean_only

from arviz_swiss.parallel.partition import partition
from arviz_swiss.parallel.splitting import split
from arviz_swiss.parallel.tables import opened_table
from arviz_swiss.pymc import checking
from arviz_swiss.pymc.runs import Settings


def with_missing_predictors(batch):
    with pm.Model() as model:
        slope = pm.Normal("slope")
        x = pm.Normal("x", observed=batch["x"])
        pm.Normal("y", slope * x, 1, observed=batch["y"])
    return model


@pytest.mark.filterwarnings("ignore:Data in x contains missing values")
def test_missing_predictors_are_not_inflated(quick):
    data = DATA.assign(x=DATA["x"].where(DATA.index % 3 != 0))
    with pytest.raises(ValueError, match=r'b0: missing values x_unobserved .*kind="fractionated"'):
        quick(with_missing_predictors, data, batches=2)
    one = DATA.assign(x=DATA["x"].where(DATA.index != 7))
    seed = next(s for s in range(20) if 7 in partition(one, 4, random_seed=s)[3])
    with pytest.raises(ValueError, match=r"b3: missing values x_unobserved"):
        quick(with_missing_predictors, one, batches=4, random_seed=seed)


def test_labels_that_a_later_batch_lacks_are_found_where_it_is_built(quick, tmp_path):
    data = DATA.assign(kind=np.where(np.arange(50) == 7, "rare", "usual"))

    def by_kind(batch):
        kinds, codes = np.unique(batch["kind"], return_inverse=True)
        with pm.Model(coords={"kind": kinds}) as model:
            level = pm.Normal("level", dims="kind")
            pm.Normal("y", level[codes], 1, observed=batch["y"])
        return model

    for seed in range(20):  # a seed by which the first two batches do not have the rare one
        index = partition(data, 6, random_seed=seed)
        if not (data["kind"].iloc[np.concatenate(index[:2])] == "rare").any():
            break
    with pytest.raises(ValueError, match=r"batch b[2-5]: free variable level .*stratify="):
        quick(by_kind, data, batches=6, random_seed=seed, folder=tmp_path)
    # the first is found: what would be sampled after it is not begun
    assert not (tmp_path / "b5.nc").exists()


def test_parameters_that_differ_between_later_batches(quick):
    data = DATA.assign(y=DATA["y"].where(DATA.index != 7, 1000))

    def extra(batch):
        model = mean_only(batch)
        if (batch["y"] > 100).any():
            with model:
                pm.Normal("nu")
        return model

    for seed in range(5):
        with pytest.raises(ValueError, match=r"batch b\d: the free variables are .*but"):
            quick(extra, data, batches=2 if seed == 0 else 6, random_seed=seed)


@pytest.mark.parametrize("labelled", [True, False])
def test_random_effects_are_not_inflated(quick, tmp_path, labelled):
    with pytest.raises(ValueError, match=r'u differ between .*kind="fractionated" and groups='):
        quick(
            lambda batch: hierarchy(batch, labelled),
            batches=2,
            groups="group",
            folder=tmp_path / "new",
        )
    assert not (tmp_path / "new").exists()


def test_a_group_in_two_later_batches_is_found(quick):
    """The groups of the first two batches are their own, but "z" is in two of the others."""
    data = DATA.assign(group=DATA["group"].astype(str))
    indices = partition(data, 5, groups="group", random_seed=1)
    for index in indices[3:]:
        data.iloc[index[0], data.columns.get_loc("group")] = "z"
    message = r"u has coordinate 'z' in batch b3 and in batch b4.* Pass groups="
    with pytest.raises(ValueError, match=message):
        quick(
            hierarchy,
            data,
            batches=5,
            groups=DATA["group"],
            kind="fractionated",
            random_seed=1,
        )


def test_batches_are_built_before_sampling_only_if_they_are_kept(uncompiled):
    built = []

    def build(batch):
        built.append(len(batch))
        return mean_only(batch)

    indices = {f"b{i}": index for i, index in enumerate(partition(DATA, 5, random_seed=1))}
    probes = checking.build_probes(build, DATA, indices)
    settings = Settings("inflated", (), 10, 10, 1, "pymc", {})
    checked = checking.check_models(build, DATA, indices, probes, settings, grouped=False)
    assert built == [10, 10, 20]
    assert list(checked.models) == ["b0", "b1"]
    kept = checking.check_models(
        build, DATA, indices, probes, settings, grouped=False, keep=True
    ).models
    assert built == [10, 10, 20, 10, 10, 10]
    assert list(kept) == list(indices)
    assert checked.first.shapes == {"mu": ()}
    assert checked.local == ()


def of_one_array(batch, array):
    array[:] = np.resize(batch["y"], len(array))
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu", pt.constant(array).sum()), 1, observed=batch["y"])
    return model


def of_one_model(batch, model):
    with model:
        pm.set_data({"y_data": batch["y"]})
    return model


@pytest.mark.parametrize(
    ("build", "kept"),
    [
        (mean_only, ["b0", "b1", "b2", "b3"]),
        (lambda batch, array=np.empty(10): of_one_array(batch, array), []),  # noqa: B008
        (lambda batch, model=mean_only(DATA): of_one_model(batch, model), []),  # noqa: B008
    ],
    ids=["own data", "one array", "one model"],
)
def test_models_are_kept_if_no_two_hold_the_same_data(uncompiled, build, kept):
    indices = {f"b{i}": index for i, index in enumerate(partition(DATA, 4, random_seed=1))}
    probes = checking.build_probes(build, DATA, indices)
    probes = [probe._replace(model=mean_only(probe.data)) for probe in probes[:2]] + probes[2:]
    settings = Settings("inflated", (), 10, 10, 1, "pymc", {})
    checked = checking.check_models(
        build, DATA, indices, probes, settings, grouped=False, keep=True
    )
    assert list(checked.models) == kept


@pytest.mark.parametrize("is_own", [True, False])
def test_models_of_rows_in_files_are_kept_if_the_first_two_are_apart(uncompiled, tmp_path, is_own):
    predictor = pytensor.shared(np.zeros(1), name="predictor")

    def overwrites_predictor(batch):
        predictor.set_value(batch["x"].to_numpy())
        with pm.Model() as model:
            pm.Normal("y", pm.Normal("mu") * predictor, 1, observed=batch["y"].to_numpy())
        return model

    build = mean_only if is_own else overwrites_predictor
    DATA.to_parquet(tmp_path / "rows.parquet")
    with opened_table(tmp_path / "rows.parquet", tmp_path) as table:
        rows = split(table, 3, random_seed=1)
    indices = {f"b{number}": batch for number, batch in enumerate(rows.batches)}
    probes = checking.build_probes(build, rows, indices)
    settings = Settings("inflated", (), 10, 10, 1, "pymc", {})
    checked = checking.check_models(build, rows, indices, probes, settings, grouped=False)
    assert list(checked.models) == (list(indices) if is_own else [])


@pytest.mark.parametrize(
    ("nuts_sampler", "further", "data", "suits"),
    [
        ("nutpie", {}, True, True),
        ("nutpie", {"target_accept": 0.9}, True, True),
        ("nutpie", {}, False, False),
        ("nutpie", {"nuts": {"backend": "jax"}}, True, False),
        ("pymc", {}, True, False),
    ],
)
def test_threads_are_for_what_is_compiled_once_by_nutpie(nuts_sampler, further, data, suits):
    def constants(batch):
        with pm.Model() as model:
            pm.Normal("y", pm.Normal("mu"), 1, observed=batch["y"])
        return model

    indices = {f"b{i}": index for i, index in enumerate(partition(DATA, 4, random_seed=1))}
    probes = checking.build_probes(mean_only if data else constants, DATA, indices)
    settings = Settings("inflated", (), 10, 10, 1, nuts_sampler, further)
    assert checking.suits_threads(probes, settings) is suits


def test_what_full_prior_cannot_subtract(quick):
    def with_potential(batch):
        model = mean_only(batch)
        with model:
            pm.Potential("extra", -(model["mu"] ** 2))
        return model

    def with_order(batch):
        with pm.Model() as model:
            ordered = pm.distributions.transforms.ordered
            cuts = pm.Normal("cuts", 0, 1, shape=2, transform=ordered, initval=[0, 1])
            pm.Normal("y", cuts[0], 1, observed=batch["y"])
        return model

    with pytest.raises(ValueError, match=r"Potentials extra are not in draws from the prior"):
        quick(with_potential, batches=2, kind="full_prior")
    with pytest.raises(ValueError, match=r"prior of cuts are outside the support"):
        quick(with_order, batches=2, kind="full_prior")


def test_improper_priors_have_no_draws(quick):
    def flat(batch):
        with pm.Model() as model:
            mu = pm.Flat("mu")
            pm.Normal("y", mu, 1, observed=batch["y"])
        return model

    with pytest.raises(ValueError, match=r'prior of mu cannot be drawn .*kind="inflated"'):
        quick(flat, batches=2, kind="full_prior")

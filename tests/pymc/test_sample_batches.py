"""sample_batches with real sampling, on real pools, threads and a real Dask cluster."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import distributed
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import arviz_swiss
from arviz_swiss import merge
from arviz_swiss.data import containers
from arviz_swiss.data.messages import MergeWarning
from arviz_swiss.parallel import progress, store
from arviz_swiss.parallel.partition import partition
from arviz_swiss.pymc import BatchError, sample_batches
from arviz_swiss.pymc.compiling import CACHE_VARIABLE

RNG = np.random.default_rng(3)
DATA = pd.DataFrame({"x": RNG.normal(size=50), "group": np.repeat(np.arange(10), 5)})
DATA["y"] = 1 + 2 * DATA["x"] + RNG.normal(size=50)
SETTINGS = {"nuts_sampler": "nutpie", "draws": 60, "tune": 100, "progressbar": False}


def build(batch):
    with pm.Model(coords={"coefficient": ["level", "slope"]}) as model:
        x, y = pm.Data("x", batch["x"]), pm.Data("y_data", batch["y"])
        beta = pm.Normal("beta", 0, 3, dims="coefficient")
        sigma = pm.HalfNormal("sigma", 2)
        pm.Deterministic("variance", sigma**2)
        pm.Normal("y", beta[0] + beta[1] * x, sigma, observed=y)
    return model


def mean_only(batch):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("y", mu, 1, observed=pm.Data("y_data", batch["y"]))
    return model


@pytest.fixture(scope="module")
def threads():
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture(scope="module")
def run(threads):
    """Return sample_batches in one thread, where batches follow each other."""

    def run(build, data=DATA, **settings):
        return sample_batches(build, data, **{"executor": threads, **SETTINGS, **settings})

    return run


@contextlib.contextmanager
def compiling_afresh():
    """Do as for users: only then are draws the same in every process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(CACHE_VARIABLE)
        yield


@pytest.fixture(scope="module")
def run_afresh(run):
    """Return `run` in a thread of its own, which never reads what was compiled before."""
    with ThreadPoolExecutor(1) as new_thread:

        def run_afresh(*arguments, **settings):
            with compiling_afresh():
                return run(*arguments, executor=new_thread, **settings)

        yield run_afresh


@pytest.fixture(scope="module")
def idatas(run_afresh):
    return run_afresh(build, batches=4, random_seed=11)


def assert_same_draws(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        groups = [containers.read(idata).groups["posterior"] for idata in (one, other)]
        xr.testing.assert_equal(*groups)
        assert groups[0].attrs["swiss_batch"] == groups[1].attrs["swiss_batch"]


def test_what_a_batch_holds(idatas):
    rows = []
    for position, idata in enumerate(idatas):
        groups = containers.read(idata).groups
        assert set(groups) == {"posterior", "sample_stats", "observed_data", "constant_data"}
        posterior = groups["posterior"]
        assert list(posterior.data_vars) == ["beta", "sigma", "variance"]
        assert dict(posterior.sizes) == {"chain": 2, "draw": 60, "coefficient": 2}
        assert list(posterior["coefficient"].values) == ["level", "slope"]
        attrs = posterior.attrs
        size = len(groups["observed_data"]["y"])
        assert attrs["swiss_batch"] == f"b{position}"
        assert attrs["swiss_size"] == size
        assert attrs["swiss_kind"] == "inflated"
        assert attrs["swiss_power"] == 50 / size
        assert attrs["swiss_prior_power"] == 1.0
        assert list(attrs["sampled_variables"]) == ["beta", "sigma"]
        assert "swiss_local" not in attrs
        np.testing.assert_allclose(posterior["variance"], posterior["sigma"] ** 2)
        rows.append(groups["observed_data"]["y"].values)
    assert sorted(map(len, rows)) == [12, 12, 13, 13]
    assert sorted(np.concatenate(rows)) == sorted(DATA["y"])


def test_draws_are_from_the_inflated_sub_posterior(run):
    data = {"y": RNG.normal(2, 1, size=31)}
    idatas = run(mean_only, data, batches=3, draws=1000, random_seed=2)
    for idata in idatas:
        y = containers.read(idata).groups["observed_data"]["y"].values
        precision = 1 / 100 + 31
        mean, sd = 31 * y.mean() / precision, precision**-0.5
        draws = idata.posterior["mu"].values
        # 4.5 standard errors at an effective size of a fifth of the draws
        bound = 4.5 / np.sqrt(draws.size / 5)
        assert abs(draws.mean() - mean) < bound * sd
        assert abs(draws.std() / sd - 1) < bound / np.sqrt(2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["processes", "threads", "dask"])
def test_same_draws_on_every_executor(kind, idatas):
    with compiling_afresh(), contextlib.ExitStack() as stack:
        executor = None
        if kind == "threads":
            executor = stack.enter_context(ThreadPoolExecutor(2))
        elif kind == "dask":
            cluster = distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=":0"
            )
            executor = stack.enter_context(distributed.Client(stack.enter_context(cluster)))
        found = sample_batches(
            build, DATA, executor=executor, batches=4, random_seed=11, **SETTINGS
        )
    assert_same_draws(found, idatas)


def test_other_seeds_give_other_batches_and_draws(run, idatas):
    other = run(build, batches=4, random_seed=12)
    assert not np.array_equal(other[0].observed_data["y"], idatas[0].observed_data["y"])
    assert not np.array_equal(other[0].posterior["beta"], idatas[0].posterior["beta"])


def test_batches_do_not_share_random_numbers(run):
    same = {"y": np.ones(20)}
    first, second = run(mean_only, same, batches=2, random_seed=1)
    assert not np.array_equal(first.posterior["mu"], second.posterior["mu"])


def test_one_compilation_serves_all_batches(run, caplog):
    caplog.set_level("DEBUG", logger="arviz_swiss")
    with ThreadPoolExecutor(1) as new_thread:
        run(mean_only, batches=5, executor=new_thread)
    messages = [record.message for record in caplog.records if record.name == "arviz_swiss"]
    assert messages.count("compiled a model") == 1
    assert messages.count("swapped data into a compiled model") == 4


@pytest.mark.parametrize("kind", ["fractionated", "full_prior"])
def test_other_kinds(run, kind):
    idatas = run(mean_only, batches=2, kind=kind, random_seed=4)
    for idata in idatas:
        attrs = idata.posterior.attrs
        assert attrs["swiss_kind"] == kind
        assert attrs["swiss_power"] == 1.0
        assert attrs["swiss_prior_power"] == (0.5 if kind == "fractionated" else 1.0)
        assert ("prior" in containers.read(idata).groups) == (kind == "full_prior")
        if kind == "full_prior":
            assert list(idata.prior.data_vars) == ["mu"]
            assert idata.prior.sizes["draw"] == 120
            assert 7 < float(idata.prior["mu"].std()) < 13
            assert abs(float(idata.prior["mu"].mean())) < 4


# The model knows only the mean: the batches may well disagree.
@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
@pytest.mark.parametrize("kind", ["inflated", "fractionated", "full_prior"])
def test_merge_needs_no_further_argument(run, kind):
    idatas = run(mean_only, batches=3, kind=kind, draws=500, tune=500, random_seed=8)
    merged = merge(idatas)
    y = DATA["y"].to_numpy()
    precision = 1 / 100 + len(y)
    draws = merged.posterior["mu"].values
    # moments of 1000 draws of each of three batches; a fifth of them effective
    bound = 4.5 / np.sqrt(200)
    assert abs(draws.mean() - y.sum() / precision) < bound * precision**-0.5
    assert abs(draws.std() * precision**0.5 - 1) < bound


def test_pymc_sampler_and_further_arguments(threads):
    settings = {**SETTINGS, "nuts_sampler": "pymc", "tune": 20, "draws": 20, "random_seed": 1}
    idatas = sample_batches(
        mean_only, DATA, batches=2, executor=threads, target_accept=0.9, chains=1, **settings
    )
    assert [dict(idata.posterior.sizes) for idata in idatas] == 2 * [{"chain": 1, "draw": 20}]
    assert idatas[0].posterior.attrs["inference_library"] == "pymc"
    assert idatas[0].posterior.attrs["sampled_variables"] == "mu"


def with_missing_outcomes(batch):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("y", mu, 1, observed=batch["y"])
    return model


# PyMC announces that it imputes.
@pytest.mark.filterwarnings("ignore:Data in y contains missing values")
@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_missing_outcomes_in_one_batch_only(run):
    data = DATA.assign(y=DATA["y"].where(DATA.index != 7))
    idatas = run(with_missing_outcomes, data, batches=2, draws=300, random_seed=1)
    for order in (idatas, idatas[::-1]):
        merged = merge(order)
        assert list(merged.posterior.data_vars) == ["mu"]
        assert abs(float(merged.posterior["mu"].mean()) - data["y"].mean()) < 0.2


def with_missing_predictors(batch):
    with pm.Model() as model:
        slope = pm.Normal("slope")
        x = pm.Normal("x", observed=batch["x"])
        pm.Normal("y", slope * x, 1, observed=batch["y"])
    return model


@pytest.mark.filterwarnings("ignore:Data in x contains missing values")
def test_missing_predictors_are_not_inflated(run):
    data = DATA.assign(x=DATA["x"].where(DATA.index % 3 != 0))
    with pytest.raises(ValueError, match=r'b0: missing values x_unobserved .*kind="fractionated"'):
        run(with_missing_predictors, data, batches=2)
    one = DATA.assign(x=DATA["x"].where(DATA.index != 7))
    seed = next(s for s in range(20) if 7 in partition(one, 4, random_seed=s)[3])
    with pytest.raises(ValueError, match=r"b3: missing values x_unobserved"):
        run(with_missing_predictors, one, batches=4, random_seed=seed)


def test_labels_that_a_later_batch_lacks_are_found_before_sampling(run, tmp_path):
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
        run(by_kind, data, batches=6, random_seed=seed, folder=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_variables_fractionated_on_their_own_scale(run):
    idatas = run(build, batches=2, kind="fractionated", untransformed="sigma", draws=200)
    assert json.loads(idatas[0].posterior.attrs["swiss_untransformed"]) == ["sigma"]
    assert json.loads(idatas[0].posterior.attrs["swiss_transformed"]) == []
    with pytest.raises(ValueError, match=r"prior of sigma was fractionated on its own scale"):
        merge(idatas, model=build(DATA))
    with pytest.raises(ValueError, match=r'untransformed= says .*kind="inflated" leaves it alone'):
        run(build, batches=2, untransformed="sigma")


def test_what_full_prior_cannot_subtract(run):
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
        run(with_potential, batches=2, kind="full_prior")
    with pytest.raises(ValueError, match=r"prior of cuts are outside the support"):
        run(with_order, batches=2, kind="full_prior")


def test_a_batch_that_cannot_be_saved_does_not_lose_the_others(run, tmp_path):
    bands = pd.interval_range(0, 2, 2)

    def by_band(batch):
        with pm.Model(coords={"band": list(bands)}) as model:
            level = pm.Normal("level", dims="band")
            pm.Normal("y", level.sum(), 1, observed=batch["y"])
        return model

    settings = {"nuts_sampler": "pymc", "draws": 20, "tune": 20, "chains": 1}
    with pytest.raises(BatchError, match=r"2 of 2 batches failed: b0 \(") as caught:
        run(by_band, batches=2, folder=tmp_path, **settings)
    assert sorted(caught.value.idatas) == ["b0", "b1"]


def test_numpy_integers_as_settings(run, tmp_path):
    settings = {"batches": np.int64(2), "draws": np.int64(5), "tune": np.int64(5), "chains": 1}
    run(mean_only, folder=tmp_path, random_seed=1, **settings)
    run(mean_only, folder=tmp_path, random_seed=1, **{**settings, "draws": 5})


def test_progress_bar(run, capsys):
    run(mean_only, batches=2, progressbar=True)
    shown = capsys.readouterr()
    assert "Sampling: 100%" in shown.err
    assert "2/2" in shown.err
    run(mean_only, batches=2)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "nuts_sampler, draws",
    [("nutpie", 200_000), ("pymc", 5_000)],
)
def test_the_bar_tells_compiling_from_sampling(run, capsys, monkeypatch, nuts_sampler, draws):
    """The first batch samples for much longer than the time between two looks."""
    monkeypatch.setattr(progress, "INTERVAL", 0.02)
    settings = {"nuts_sampler": nuts_sampler, "draws": draws, "chains": 1, "batches": 2}
    run(mean_only, progressbar=True, random_seed=1, **settings)
    shown = [line.strip() for line in capsys.readouterr().err.split("\r") if line.strip()]
    names = [line.partition(":")[0] for line in shown]
    waiting = "Sampling, compiling before the first batch"
    compiling = names.count(waiting)
    assert compiling
    # tqdm draws an empty bar once before anything can be said beside it
    assert names[1:] == [waiting] * compiling + ["Sampling"] * (len(names) - compiling - 1)
    assert "0/2" in shown[compiling + 1]


def hierarchy(batch, labelled=True):
    codes, names = pd.factorize(batch["group"])
    with pm.Model(coords={"group": names} if labelled else None) as model:
        mu = pm.Normal("mu", 0, 3)
        tau = pm.HalfNormal("tau", 1)
        size = {"dims": "group"} if labelled else {"shape": len(names)}
        u = pm.Normal("u", 0, tau, **size)
        pm.Normal("y", mu + u[codes], 1, observed=batch["y"])
    return model


@pytest.mark.parametrize("labelled", [True, False])
def test_random_effects_are_not_inflated(run, tmp_path, labelled):
    with pytest.raises(ValueError, match=r'u differ between .*kind="fractionated" and groups='):
        run(
            lambda batch: hierarchy(batch, labelled),
            batches=2,
            groups="group",
            folder=tmp_path / "new",
        )
    assert not (tmp_path / "new").exists()


def test_random_effects_are_fractionated(run):
    idatas = run(hierarchy, batches=2, groups="group", kind="fractionated", draws=20, tune=20)
    groups = [set(idata.posterior["group"].values) for idata in idatas]
    assert groups[0].isdisjoint(groups[1])
    assert set.union(*groups) == set(range(10))
    for idata in idatas:
        assert idata.posterior.attrs["swiss_local"] == "u"


@pytest.mark.parametrize(
    "bad, settings, message",
    [
        (lambda batch: None, {}, r"batch b0: build returned 'NoneType'"),
        (lambda batch: pm.Model(), {}, r"batch b0: the model has no observed variables"),
        (build(DATA), {}, r"build must be a function .*got 'Model'. Pass the function"),
        (build, {"kind": "inflate"}, r"kind must be one of inflated, fractionated, full_prior"),
        (build, {"batches": 51}, r"51 batches"),
        (build, {"draws": 0}, r"draws must be an integer of at least 1, got 0"),
        (build, {"random_seed": -1}, r"random_seed must be .*got -1"),
        (build, {"cores": 2}, r"does not take cores=: chains of a batch"),
        (build, {"idata_kwargs": {"log_likelihood": True}}, r"merging moves the draws"),
        (
            build,
            {"nuts_sampler_kwargs": {"progress_bar": False}},
            r"does not take progress_bar among the sampler's own",
        ),
        (build, {"executor": 3}, r"executor must be a concurrent.futures.Executor"),
    ],
)
def test_bad_input(run, bad, settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        run(bad, **{"batches": 2, **settings})


def test_improper_priors_have_no_draws(run):
    def flat(batch):
        with pm.Model() as model:
            mu = pm.Flat("mu")
            pm.Normal("y", mu, 1, observed=batch["y"])
        return model

    with pytest.raises(ValueError, match=r'prior of mu cannot be drawn .*kind="inflated"'):
        run(flat, batches=2, kind="full_prior")


def test_executor_that_was_shut_down():
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(RuntimeError, match=r"batch b0 could not be submitted.*executor=None"):
        sample_batches(mean_only, DATA, batches=2, executor=executor, **SETTINGS)


TROUBLE = threading.Event()


def fails_on_many_large(batch):
    if TROUBLE.is_set() and (batch["y"] > 100).any():
        raise FloatingPointError("cannot be\nbuilt")
    return mean_only(batch)


def test_a_failing_batch_does_not_lose_the_others(run, tmp_path):
    data = DATA.assign(y=DATA["y"].where(DATA.index != 7, 1000))
    # the models of the first two batches are built before sampling: find a seed that spares them
    settings = {"batches": 5, "folder": tmp_path}
    TROUBLE.set()
    for seed in range(20):
        try:
            run(fails_on_many_large, data, random_seed=seed, **settings)
        except FloatingPointError:
            continue
        except BatchError as error:
            failure = error
            break
    (label,) = failure.failed
    assert isinstance(failure.failed[label], FloatingPointError)
    assert f"1 of 5 batches failed: {label} (FloatingPointError: cannot be)" in str(failure)
    assert "run the same call again" in str(failure)
    assert sorted([label, *failure.idatas]) == ["b0", "b1", "b2", "b3", "b4"]
    assert {path.stem for path in tmp_path.glob("*.nc")} == set(failure.idatas)

    with pytest.raises(ValueError, match=rf"build is not the function that folder {tmp_path} was"):
        run(mean_only, data, random_seed=seed, **settings)
    TROUBLE.clear()
    idatas = run(fails_on_many_large, data, random_seed=seed, **settings)
    assert_same_draws([i for i in idatas if i.posterior.attrs["swiss_batch"] != label],
                      list(failure.idatas.values()))  # fmt: skip
    assert_same_draws(idatas, run(mean_only, data, batches=5, random_seed=seed))


def test_parameters_that_differ_between_later_batches(run):
    data = DATA.assign(y=DATA["y"].where(DATA.index != 7, 1000))

    def extra(batch):
        model = mean_only(batch)
        if (batch["y"] > 100).any():
            with model:
                pm.Normal("nu")
        return model

    for seed in range(5):
        with pytest.raises(ValueError, match=r"batch b\d: the free variables are .*but"):
            run(extra, data, batches=2 if seed == 0 else 6, random_seed=seed, draws=5, tune=5)


def test_resuming_a_folder(run_afresh, tmp_path, idatas):
    folder = tmp_path / "runs"
    first = run_afresh(build, batches=4, random_seed=11, folder=str(folder))
    assert_same_draws(first, idatas)
    assert {path.name for path in folder.iterdir()} == {
        *(f"b{i}.nc" for i in range(4)),
        "settings.json",
    }
    (folder / "b1.nc").unlink()
    content = (folder / "b2.nc").read_bytes()
    (folder / "b2.nc").write_bytes(content[:-100])
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}

    with pytest.warns(MergeWarning, match=r"batch b2: .*sampled again"):
        resumed = run_afresh(build, batches=4, folder=folder)  # the seed is that of the folder

    assert_same_draws(resumed, idatas)
    changed = {
        path.name for path in folder.iterdir() if path.stat().st_mtime_ns != before.get(path)
    }
    assert changed == {"b1.nc", "b2.nc"}

    changes = {
        "batches": 5,
        "kind": "fractionated",
        "draws": 70,
        "tune": 50,
        "chains": 1,
        "nuts_sampler": "pymc",
        "random_seed": 12,
        "groups": "group",
        "stratify": DATA["x"] > 0,
        "target_accept": 0.9,
    }
    for name, value in changes.items():
        setting = "sample_kwargs" if name == "target_accept" else name
        with pytest.raises(ValueError, match=rf"other settings: .*\b{setting}: .* → "):
            run_afresh(build, **{"batches": 4, "folder": folder, name: value})
    with pytest.raises(ValueError, match=r"other settings: data: \w+ → \w+\."):
        run_afresh(build, DATA.assign(x=DATA["x"] + 1), batches=4, folder=folder)
    assert_same_draws(run_afresh(build, batches=4, folder=folder), idatas)


def with_prior(sd):
    def build(batch):
        with pm.Model() as model:
            mu = pm.Normal("mu", 0, sd)
            pm.Normal("y", mu, 1, observed=pm.Data("y_data", batch["y"]))
        return model

    return build


def test_a_folder_is_not_resumed_with_another_model(tmp_path):
    """The settings are written before the first batch, so no batch need be sampled here."""
    closed = ThreadPoolExecutor(1)
    closed.shutdown()

    def begin(build):
        sample_batches(build, DATA, batches=2, folder=tmp_path, executor=closed, **SETTINGS)

    for _ in range(2):
        with pytest.raises(RuntimeError, match="could not be submitted"):
            begin(with_prior(10.0))
    with pytest.raises(ValueError, match=rf"folder {tmp_path} was begun with: sd differ.*another"):
        begin(with_prior(0.01))
    with pytest.raises(ValueError, match=r"source code, sd differ"):
        begin(mean_only)


# A model that knows only the mean: random batches may well disagree.
@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
@pytest.mark.parametrize("seed", [None, np.random.default_rng(3), 7])
def test_the_partition_can_be_repeated(run, seed):
    idatas = run(mean_only, batches=3, chains=1, random_seed=seed)
    (text,) = {idata.posterior.attrs["swiss_random_seed"] for idata in idatas}
    for index, idata in zip(partition(DATA, 3, random_seed=int(text)), idatas, strict=True):
        np.testing.assert_array_equal(idata.observed_data["y"], DATA["y"].iloc[index])
    if seed == 7:
        assert text == "7"
    assert merge(idatas).posterior.attrs["swiss_random_seed"] == text


def test_a_folder_holds_the_batches_of_one_run(run, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    settings = {"batches": 2, "draws": 5, "tune": 5, "chains": 1}
    mine = run(mean_only, folder=one, random_seed=1, **settings)
    foreign = run(mean_only, folder=other, random_seed=2, **settings)
    for idata in mine:
        attrs = idata["posterior"].attrs
        recorded = json.loads(attrs["swiss_settings"])
        assert recorded["partition"] == attrs["swiss_partition"]
        assert recorded["random_seed"] == int(attrs["swiss_random_seed"]) == 1
        assert recorded["data"] == store.fingerprint(DATA)
        assert attrs["swiss_version"] == arviz_swiss.__version__
        assert attrs["swiss_pymc_version"] == pm.__version__
    with pytest.raises(ValueError, match=r'\("b0"\) and .*\("b1"\) are of two partitions'):
        merge([mine[0], foreign[1]])

    (other / "b1.nc").replace(one / "b1.nc")
    with pytest.raises(ValueError, match=r"one/b1.nc is of another run .* Move the file away"):
        run(mean_only, folder=one, **settings)
    (one / "b1.nc").unlink()
    assert_same_draws(run(mean_only, folder=one, **settings), mine)


def test_a_folder_begun_with_other_versions(run, tmp_path):
    settings = {"batches": 2, "draws": 5, "tune": 5, "chains": 1, "folder": tmp_path}
    mine = run(mean_only, random_seed=1, **settings)
    path = tmp_path / "settings.json"
    recorded = json.loads(path.read_text())
    assert recorded["version pymc"] == pm.__version__
    assert recorded["version arviz_swiss"] == arviz_swiss.__version__
    path.write_text(json.dumps({**recorded, "version pymc": "4.0"}))
    assert_same_draws(run(mean_only, **settings), mine)
    (tmp_path / "b1.nc").unlink()
    message = rf"other versions: pymc 4.0 → {pm.__version__}\. The batches that are missing"
    with pytest.warns(MergeWarning, match=message):
        again = run(mean_only, **settings)
    assert_same_draws(again, mine)


def test_one_batch_alone_is_no_partition(run):
    (idata,) = run(mean_only, batches=1, draws=5, tune=5, chains=1)
    assert "swiss_partition" not in idata["posterior"].attrs


@pytest.mark.parametrize("content", ["[]", "{}", "3", '{"random_seed": 1.5}'])
def test_settings_that_are_none(run, tmp_path, content):
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(ValueError, match=r"settings.json cannot be read as the settings of a fold"):
        run(mean_only, batches=2, folder=tmp_path)


def test_folder_that_cannot_be_written_to(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"folder .* cannot be written to: Not a directory"):
        run(mean_only, batches=2, folder=tmp_path / "file" / "runs")


SCRIPT = """
import sys
sys.path[:0] = {path!r}
import warnings
warnings.simplefilter("ignore")
import os
import resource
import threading
import time
import numpy as np
import pymc as pm
from concurrent.futures import ThreadPoolExecutor
from arviz_swiss import partition
from arviz_swiss.pymc import BatchError, sample_batches

def build(batch):
    # the worker never gets beyond the model of the third batch
    in_worker = threading.current_thread() is not threading.main_thread()
    third = partition(data, 3, random_seed=5)[2]
    if "STALL" in os.environ and in_worker and batch[0] == data[third[0]]:
        time.sleep(600)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("y", mu, 1, observed=pm.Data("y_data", batch))
    return model

data = np.random.default_rng(0).normal(size=60)
settings = dict(batches=3, folder={folder!r}, nuts_sampler="nutpie", draws={draws}, tune=100,
                random_seed=5, progressbar=False)
{body}
"""


def start(folder, body, draws=100):
    script = SCRIPT.format(path=sys.path, folder=os.fspath(folder), body=body, draws=draws)
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # the first process finds nothing compiled on the disk, the later ones find what it left
        env={
            **os.environ,
            CACHE_VARIABLE: "0",
            "PYTENSOR_FLAGS": f"base_compiledir={folder.parent / 'compiled'}",
        },
    )


def finish(process):
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output


# Both processes have read an empty folder, and drawn a seed, before they meet in their first model.
RACE = """
import sys
sys.path[:0] = {path!r}
import warnings
warnings.simplefilter("ignore")
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy as np
import pymc as pm
from arviz_swiss.pymc import sample_batches

MET = Path({met!r})

def build(batch):
    (MET / str(os.getpid())).touch()
    while len(list(MET.iterdir())) < 2:
        time.sleep(0.01)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("y", mu, 1, observed=pm.Data("y_data", batch))
    return model

with ThreadPoolExecutor(1) as executor:
    idatas = sample_batches(build, np.arange(40.0), batches=4, folder={folder!r}, draws=20, tune=20,
                            chains=1, nuts_sampler="nutpie", executor=executor, progressbar=False)
for idata in idatas:
    attrs, rows = idata["posterior"].attrs, idata["observed_data"]["y"].values.tolist()
    print(json.dumps([attrs["swiss_random_seed"], attrs.get("swiss_partition"), rows]))
"""


@pytest.mark.slow
def test_two_processes_on_one_folder(tmp_path):
    folder, met = tmp_path / "runs", tmp_path / "met"
    met.mkdir()
    script = RACE.format(path=sys.path, met=os.fspath(met), folder=os.fspath(folder))

    def begin():
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, "-c", script], **pipes)

    both = [begin(), begin()]
    batches = [json.loads(line) for process in both for line in finish(process).splitlines()]
    third = [json.loads(line) for line in finish(begin()).splitlines()]
    assert len(batches) == 8
    assert batches[:4] == batches[4:] == third
    ((seed, _),) = {(seed, rows) for seed, rows, _ in third}
    assert json.loads((folder / "settings.json").read_text())["random_seed"] == int(seed)
    assert sorted(value for _, _, values in third for value in values) == list(range(40))
    assert {path.suffix for path in folder.iterdir()} == {".nc", ".json"}


WHOLE = "sample_batches(build, data, **settings)"
STALLING = """
os.environ["STALL"] = "yes"
with ThreadPoolExecutor(1) as executor:
    sample_batches(build, data, executor=executor, **settings)
"""


@pytest.mark.slow
def test_killed_half_way_and_resumed(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = start(killed, STALLING)
    deadline = time.monotonic() + 300
    while not (killed / "b1.nc").exists():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = [(killed / name).stat() for name in ("b0.nc", "b1.nc")]
    assert not (killed / "b2.nc").exists()

    rest = start(killed, WHOLE)
    complete = start(whole, WHOLE)
    finish(rest)
    finish(complete)

    after = [(killed / name).stat() for name in ("b0.nc", "b1.nc")]
    assert [(s.st_mtime_ns, s.st_ino) for s in after] == [(s.st_mtime_ns, s.st_ino) for s in before]
    found, expected = (
        [containers.read(folder / f"b{i}.nc").groups["posterior"].load() for i in range(3)]
        for folder in (killed, whole)
    )
    for one, other in zip(found, expected, strict=True):
        xr.testing.assert_equal(one, other)


DISK_FULL = """
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
with ThreadPoolExecutor(1) as executor:
    try:
        sample_batches(build, data, executor=executor, **settings)
    except BatchError as error:
        print(error)
        print(sorted(error.idatas), sorted(error.failed))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(len(sample_batches(build, data, executor=executor, **settings)))
"""


@pytest.mark.slow
def test_disk_full_while_saving(tmp_path):
    folder = tmp_path / "runs"
    output = finish(start(folder, DISK_FULL, draws=5000))
    assert "3 of 3 batches failed: b0 (OSError: [Errno 27] batch b0 was sampled but could" in output
    assert "['b0', 'b1', 'b2'] ['b0', 'b1', 'b2']\n3\n" in output
    names = {path.name for path in folder.iterdir()}
    assert names == {"b0.nc", "b1.nc", "b2.nc", "settings.json"}
    assert json.loads((folder / "settings.json").read_text())["random_seed"] == 5

"""sample_batches with real sampling, on real pools, threads and a real Dask cluster."""

import contextlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import distributed
import numpy as np
import nutpie
import pandas as pd
import pymc as pm
import pytensor
import pytest
from batch_models import DATA, assert_same_draws, build, hierarchy, mean_only
from joblib.externals.loky import get_reusable_executor
from terminal import watching

from arviz_swiss import merge
from arviz_swiss.data import containers, progress
from arviz_swiss.parallel.partition import partition
from arviz_swiss.pymc import BatchError, compiling, sample_batches

RNG = np.random.default_rng(3)
SETTINGS = {"nuts_sampler": "nutpie", "draws": 60, "tune": 100, "progressbar": False}
REPRODUCIBLE = {**SETTINGS, "batches": 4, "random_seed": 11, "reproducible": True}


@pytest.fixture(scope="module")
def idatas():
    with ThreadPoolExecutor(1) as one_thread:
        return sample_batches(build, DATA, executor=one_thread, **REPRODUCIBLE)


def test_what_a_batch_holds(run):
    rows = []
    for position, idata in enumerate(run(build, batches=4)):
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["own threads", "threads", "processes", "dask"])
def test_same_draws_on_every_executor(kind, idatas):
    with contextlib.ExitStack() as stack:
        executor = None
        if kind == "threads":
            executor = stack.enter_context(ThreadPoolExecutor(2))
        elif kind == "processes":
            executor = stack.enter_context(get_reusable_executor(2, timeout=600))
        elif kind == "dask":
            cluster = distributed.LocalCluster(
                n_workers=1, threads_per_worker=1, dashboard_address=":0"
            )
            executor = stack.enter_context(distributed.Client(stack.enter_context(cluster)))
        idatas_there = sample_batches(build, DATA, executor=executor, **REPRODUCIBLE)
    assert_same_draws(idatas_there, idatas)


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


def test_other_seeds_give_other_batches_and_draws(quick):
    first, other = (quick(mean_only, batches=2, random_seed=seed)[0] for seed in (11, 12))
    assert not np.array_equal(first.observed_data["y"], other.observed_data["y"])
    assert not np.array_equal(first.posterior["mu"], other.posterior["mu"])


def test_batches_do_not_share_random_numbers(quick):
    same = {"y": np.ones(20)}
    first, second = quick(mean_only, same, batches=2, random_seed=1)
    assert not np.array_equal(first.posterior["mu"], second.posterior["mu"])


@pytest.fixture
def compilations(caplog, monkeypatch):
    """Forget what was compiled, and return a function that counts compilations and swaps since."""
    monkeypatch.setattr(compiling, "_entries", [])
    caplog.set_level("DEBUG", logger="arviz_swiss")

    def count():
        messages = [record.message for record in caplog.records if record.name == "arviz_swiss"]
        swapped = "swapped data into a compiled model"
        return messages.count("compiled a model"), messages.count(swapped)

    return count


def test_one_compilation_serves_all_batches_and_later_calls(run, compilations):
    with ThreadPoolExecutor(1) as thread:
        run(mean_only, batches=5, executor=thread)
    assert compilations() == (1, 4)
    run(mean_only, batches=3)
    assert compilations() == (1, 7)


def test_threads_sample_side_by_side_what_one_samples_alone(run, compilations, monkeypatch):
    """They share the compiled model, and take the two models that were built for the check."""
    built, threads = [], set()

    def build_here(batch):
        built.append(len(batch))
        return build(batch)

    begin = nutpie.sample

    def sample(*args, **kwargs):
        threads.add(threading.current_thread())
        return begin(*args, **kwargs)

    monkeypatch.setattr(nutpie, "sample", sample)
    monkeypatch.setattr("joblib.cpu_count", lambda: 3)
    settings = {"batches": 6, "random_seed": 2, "draws": 300}
    alone = run(build_here, **settings)
    assert len(threads) == 1
    assert len(built) == 3 + 6
    threads.clear()
    built.clear()
    assert_same_draws(run(build_here, executor=None, **settings), alone)
    assert len(threads) > 1
    assert len(built) == 3 + 4
    assert compilations()[0] == 1


PREDICTOR = pytensor.shared(DATA["x"].to_numpy(), name="predictor")


def overwrites_predictor(batch):
    PREDICTOR.set_value(batch["x"].to_numpy())
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 10)
        pm.Normal("y", slope * PREDICTOR, 1, observed=pm.Data("y_data", batch["y"]))
    return model


@pytest.mark.parametrize("kind", ["inflated", "full_prior"])
def test_a_function_that_overwrites_the_data_of_the_batch_before(run, kind):
    """Models that were built for the check hold the data of the last batch: none is sampled."""
    settings = {"batches": 5, "kind": kind, "random_seed": 1, "draws": 200}
    idatas = run(overwrites_predictor, executor=None, **settings)
    for idata, index in zip(idatas, partition(DATA, 5, random_seed=1), strict=True):
        x, y = DATA["x"].to_numpy()[index], DATA["y"].to_numpy()[index]
        power = 5 if kind == "inflated" else 1
        precision = 1 / 100 + power * x @ x
        error = float(idata.posterior["slope"].mean()) - power * x @ y / precision
        # 400 draws, a fifth of them effective
        assert abs(error) < 4.5 / np.sqrt(80 * precision)


@pytest.mark.parametrize("kind", ["fractionated", "full_prior"])
def test_other_kinds(quick, kind):
    idatas = quick(mean_only, batches=2, kind=kind, random_seed=4, draws=60, chains=2)
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
def test_merge_needs_no_further_argument(quick, kind):
    idatas = quick(mean_only, batches=3, kind=kind, draws=500, tune=200, random_seed=8)
    merged = merge(idatas)
    y = DATA["y"].to_numpy()
    precision = 1 / 100 + len(y)
    draws = merged.posterior["mu"].values
    # moments of 500 draws of each of three batches; a fifth of them effective
    bound = 4.5 / np.sqrt(100)
    assert abs(draws.mean() - y.sum() / precision) < bound * precision**-0.5
    assert abs(draws.std() * precision**0.5 - 1) < bound


def test_pymc_sampler_and_further_arguments(quick):
    idatas = quick(mean_only, batches=2, target_accept=0.9, random_seed=1)
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
def test_missing_outcomes_in_one_batch_only(quick):
    data = DATA.assign(y=DATA["y"].where(DATA.index != 7))
    idatas = quick(with_missing_outcomes, data, batches=2, draws=300, tune=200, random_seed=1)
    for order in (idatas, idatas[::-1]):
        merged = merge(order)
        assert list(merged.posterior.data_vars) == ["mu"]
        assert abs(float(merged.posterior["mu"].mean()) - data["y"].mean()) < 0.2


def test_variables_fractionated_on_their_own_scale(quick):
    idatas = quick(build, batches=2, kind="fractionated", untransformed="sigma")
    assert json.loads(idatas[0].posterior.attrs["swiss_untransformed"]) == ["sigma"]
    assert json.loads(idatas[0].posterior.attrs["swiss_transformed"]) == []
    with pytest.raises(ValueError, match=r"prior of sigma was fractionated on its own scale"):
        merge(idatas, model=build(DATA))
    with pytest.raises(ValueError, match=r'untransformed= says .*kind="inflated" leaves it alone'):
        quick(build, batches=2, untransformed="sigma")


def test_a_batch_that_cannot_be_saved_does_not_lose_the_others(quick, tmp_path):
    bands = pd.interval_range(0, 2, 2)

    def by_band(batch):
        with pm.Model(coords={"band": list(bands)}) as model:
            level = pm.Normal("level", dims="band")
            pm.Normal("y", level.sum(), 1, observed=batch["y"])
        return model

    with pytest.raises(BatchError, match=r"2 of 2 batches failed: b0 \(") as caught:
        quick(by_band, batches=2, folder=tmp_path)
    assert sorted(caught.value.idatas) == ["b0", "b1"]


def test_progress_bar(quick, capsys, monkeypatch):
    with watching(monkeypatch) as screen:
        quick(mean_only, batches=2, progressbar=True)
    (line,) = screen.left
    assert "Sampling: 100%" in line and "2/2" in line
    quick(mean_only, batches=2, progressbar=True)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "nuts_sampler, draws",
    [("nutpie", 200_000), ("pymc", 5_000)],
)
def test_the_bar_tells_compiling_from_sampling(run, monkeypatch, nuts_sampler, draws):
    """The first batch samples for much longer than the time between two looks."""
    monkeypatch.setattr(progress, "INTERVAL", 0.02)
    settings = {"nuts_sampler": nuts_sampler, "draws": draws, "chains": 1, "batches": 2}
    with watching(monkeypatch) as screen:
        run(mean_only, progressbar=True, random_seed=1, **settings)
    shown = screen.shown
    names = [line.partition(":")[0] for line in shown]
    waiting = "Sampling, compiling before the first batch"
    compiling = names.count(waiting)
    assert compiling
    # tqdm draws an empty bar once before anything can be said beside it
    assert names[1:] == [waiting] * compiling + ["Sampling"] * (len(names) - compiling - 1)
    assert "0/2" in shown[compiling + 1]


def test_random_effects_are_fractionated(quick):
    idatas = quick(hierarchy, batches=2, groups="group", kind="fractionated")
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
def test_bad_input(quick, bad, settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        quick(bad, **{"batches": 2, **settings})


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


def test_a_failing_batch_does_not_lose_the_others(quick, tmp_path):
    data = DATA.assign(y=DATA["y"].where(DATA.index != 7, 1000))
    # the models of the first two batches are built before sampling: find a seed that spares them
    settings = {"batches": 5, "folder": tmp_path}
    TROUBLE.set()
    for seed in range(20):
        try:
            quick(fails_on_many_large, data, random_seed=seed, **settings)
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

    TROUBLE.clear()
    # a function that is mended may be another one, if only the models of the others are the same
    idatas = quick(mean_only, data, random_seed=seed, **settings)
    assert_same_draws([i for i in idatas if i.posterior.attrs["swiss_batch"] != label],
                      list(failure.idatas.values()))  # fmt: skip
    assert_same_draws(idatas, quick(mean_only, data, batches=5, random_seed=seed))

"""sample_batches where batches end their process or hang, and results without rows."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytest
from batch_models import DATA, mean_only

import arviz_swiss as az_swiss
from arviz_swiss.data import containers
from arviz_swiss.parallel.outcomes import ProcessEnded, TooLong
from arviz_swiss.parallel.partition import partition
from arviz_swiss.pymc import BatchError, sample_batches


# Three batches of a mean alone: whether they agree is not at stake.
@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_results_without_rows_merge_to_the_same(quick):
    settings = {"batches": 3, "draws": 200, "random_seed": 1}
    whole = quick(mean_only, **settings)
    bare = quick(mean_only, keep_data=False, **settings)
    assert set(containers.read(whole[0]).groups) - set(containers.read(bare[0]).groups) == {
        "observed_data",
        "constant_data",
    }
    merged, without = (
        containers.read(az_swiss.merge(idatas)).groups["swiss_transform"]
        for idatas in (whole, bare)
    )
    np.testing.assert_allclose(without["observed_summary"], merged["observed_summary"])
    assert without.equals(merged)


# Three batches of a mean alone: whether they agree is not at stake.
@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_densities_of_other_rows_are_refused_without_rows_too(quick):
    idatas = quick(mean_only, batches=3, keep_data=False, draws=200, random_seed=1)
    merged = az_swiss.merge(idatas)
    indices = partition(DATA, 3, random_seed=2)
    others = {f"b{at}": mean_only(DATA.iloc[index]) for at, index in enumerate(indices)}
    with pytest.raises(ValueError, match="sampled with"):
        az_swiss.certify(merged, others, progressbar=False)


@pytest.mark.parametrize("timeout", [0, -1, "60", True])
def test_a_timeout_is_a_number_of_seconds(quick, timeout):
    with pytest.raises(ValueError, match="timeout must be a positive number of seconds, got"):
        quick(mean_only, batches=2, timeout=timeout)


@pytest.fixture
def interruptible():
    """Let SIGINT interrupt as at a terminal: what a shell runs in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("saves", [False, True])
def test_an_interrupt_tells_how_to_keep_what_is_finished(quick, tmp_path, saves):
    calls, is_caught = [], threading.Event()

    def interrupted(batch):
        model = mean_only(batch)
        calls.append(model)
        if len(calls) == 3 + 2:  # three models are built before sampling
            for _ in range(10):  # Python drops one that comes while it clears a weak reference
                signal.raise_signal(signal.SIGINT)
                if is_caught.wait(6):
                    break
        return model

    folder, hint = (
        (tmp_path, "the same call goes on") if saves else (None, "with folder= they would be")
    )
    # a thread of its own, so that no batch of another test is behind it
    with ThreadPoolExecutor(1) as pool:
        try:
            with pytest.raises(KeyboardInterrupt) as caught:
                quick(interrupted, batches=4, folder=folder, random_seed=1, executor=pool)
        finally:
            is_caught.set()
    (note,) = caught.value.__notes__
    assert "1 of 4 batches were finished" in note
    assert hint in note


@pytest.mark.slow
def test_a_batch_that_ends_its_process_and_one_that_hangs_cost_no_other(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTENSOR_FLAGS", "mode=FAST_COMPILE,cxx=")
    caller = os.getpid()
    rows = {f"b{at}": index for at, index in enumerate(partition(DATA, 5, random_seed=1))}
    first = {label: DATA["y"].iloc[index[0]] for label, index in rows.items()}

    def troubled(batch):
        if os.getpid() != caller and batch["y"].iloc[0] == first["b3"]:
            os._exit(1)
        if os.getpid() != caller and batch["y"].iloc[0] == first["b4"]:
            time.sleep(3600)
        with pm.Model() as model:
            pm.Normal("y", pm.Normal("mu", 0, 10), 1, observed=batch["y"])
        return model

    settings = {"draws": 20, "tune": 20, "chains": 1, "nuts_sampler": "pymc", "random_seed": 1}
    settings |= {"progressbar": False, "folder": tmp_path}
    with pytest.raises(BatchError, match=r"2 of 5 batches failed: b3 \(ProcessEnded") as caught:
        sample_batches(troubled, DATA, batches=5, timeout=25, **settings)
    assert isinstance(caught.value.failed["b3"], ProcessEnded)
    assert isinstance(caught.value.failed["b4"], TooLong)
    assert list(caught.value.idatas) == ["b0", "b1", "b2"]
    assert {path.name for path in tmp_path.glob("*.nc")} == {"b0.nc", "b1.nc", "b2.nc"}

"""The quick version of benchmarks/calibration.py."""

import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest

import arviz_swiss as az_swiss
from arviz_swiss.data import containers

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def calibration():
    path = Path(__file__).parents[1] / "benchmarks" / "calibration.py"
    spec = importlib.util.spec_from_file_location("calibration", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def few_draws(calibration, monkeypatch):
    monkeypatch.setattr(calibration, "CHAINS", 2)
    monkeypatch.setattr(calibration, "DRAWS", 100)
    monkeypatch.setattr(calibration, "THIN", 10)


@pytest.fixture(autouse=True)
def no_merge_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        yield


def test_false_alarms_of_q_over_random_partitions(calibration, few_draws):
    rng = np.random.default_rng(0)
    pvalues = []
    for _ in range(200):
        merged = az_swiss.merge(calibration.random_partition(rng), kind="inflated")
        pvalues.append(float(containers.read(merged).groups["swiss_diagnostics"]["q_pvalue"]))
    assert 0.02 <= np.mean(np.array(pvalues) < 0.05) <= 0.08


def test_sorted_and_drifting_data_are_flagged(calibration, few_draws):
    rng = np.random.default_rng(0)
    for batches in (calibration.by_response(rng, 2.5), calibration.drifting(rng)):
        assert calibration.DISORDER & set(calibration.judge(batches).flags)


@pytest.mark.parametrize("kind", ["shifted", "stuck", "unconverged"])
def test_one_corrupted_batch_is_named_and_only_it(calibration, kind):
    rng = np.random.default_rng(0)
    assert calibration.judge(calibration.corrupted(rng, getattr(calibration, kind))).named == ["b7"]

import pickle
from pathlib import Path

import arviz_swiss as az_swiss
import arviz_swiss.pymc
from arviz_swiss.parallel.batch_error import BatchError

FAILED = {"b3": ValueError("no start\nat all"), "b1": KeyError()}


def test_the_message_names_batches_causes_and_remedy():
    text = str(BatchError(FAILED, {"b0": 0, "b2": 2}))
    assert text.startswith("2 of 4 batches failed: b3 (ValueError: no start); b1 (KeyError). ")
    assert "The 2 that were sampled are in the `idatas`" in text
    assert "pass folder= to keep finished batches" in text
    text = str(BatchError(FAILED, {"b0": 0}, Path("run")))
    assert "run the same call again: it takes finished batches from run " in text


def test_it_is_pickled_with_all_that_it_carries():
    error = pickle.loads(pickle.dumps(BatchError(FAILED, {"b0": 0}, Path("run"))))
    assert list(error.failed) == ["b3", "b1"]
    assert (error.idatas, error.folder) == ({"b0": 0}, Path("run"))


def test_it_is_the_same_wherever_it_is_imported_from():
    assert az_swiss.BatchError is arviz_swiss.pymc.BatchError is BatchError

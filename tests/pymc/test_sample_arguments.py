"""Arguments of sample that cannot be used are refused before any model is built."""

import pytest
from batch_models import DATA, build

import arviz_swiss as az_swiss

QUIET = {"progressbar": False, "random_seed": 3}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"draws": "x"}, "draws must be an integer of at least 1, got 'x'"),
        ({"draws": 0}, "draws must be an integer of at least 1"),
        ({"draws": 2.5}, "draws must be an integer"),
        ({"batches": 0}, "batches must be an integer of at least 1"),
        ({"chains": 0}, "chains must be an integer of at least 1"),
        ({"tune": -1}, "tune must be an integer of at least 0"),
        ({"random_seed": "x"}, "random_seed must be an integer .*got 'x'"),
        ({"method": "swis"}, "unknown method 'swis'"),
        ({"kind": "inflate"}, "kind must be one of .*got 'inflate'"),
        ({"executor": 3}, "executor must be a concurrent.futures.Executor"),
        ({"nuts_sampler": "nutpi"}, r"nuts_sampler must be .*Did you mean nutpie\?"),
        ({"target_acept": 0.9}, r"^sample does not take target_acept=.*mean target_accept\?"),
        ({"target_accept": 2.0}, "target_accept must be a number between 0 and 1, got 2"),
        ({"cores": 2}, "^sample does not take cores=: chains of a batch"),
        ({"init": "adapt_diag"}, r"init= is for samplers of PyMC.*pass nuts_sampler="),
    ],
)
def test_no_model_is_built_for_arguments_that_cannot_be_used(arguments, message):
    calls = []

    def recorded(batch):
        calls.append(len(batch))
        return build(batch)

    with pytest.raises((ValueError, TypeError), match=message):
        az_swiss.sample(recorded, DATA, **{**QUIET, **arguments})
    assert not calls


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match=r"build must be a function .*got 'Model'. Pass the"):
        az_swiss.sample(build(DATA), DATA, **QUIET)

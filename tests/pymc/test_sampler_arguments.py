"""Arguments that no sampler would read are refused before anything is built or sampled."""

import numpy as np
import pytest

from arviz_swiss.pymc import sample_batches
from arviz_swiss.pymc.sampler_arguments import check_sample_kwargs


@pytest.mark.parametrize("nuts_sampler", ["pymc", "nutpie", None])
@pytest.mark.parametrize(
    "arguments",
    [
        {"target_accept": 0.9},
        {"nuts": {"target_accept": 0.9}},
        {"nuts": {"max_treedepth": 8}},
        {"nuts": None, "initvals": {"mu": 0.0}},
        {"var_names": ["mu"], "compute_convergence_checks": False},
    ],
)
def test_known_arguments(nuts_sampler, arguments):
    check_sample_kwargs(arguments, nuts_sampler)


@pytest.mark.parametrize(
    "nuts_sampler, arguments",
    [
        ("pymc", {"max_treedepth": 8, "step_scale": 0.5, "init": "adapt_diag"}),
        ("nutpie", {"nuts": {"maxdepth": 8, "store_gradient": True}}),
        ("nutpie", {"nuts_sampler_kwargs": {"low_rank_modified_mass_matrix": True}}),
        ("numpyro", {"nuts_sampler_kwargs": {"chain_method": "vectorized"}}),
        (None, {"init": "adapt_diag", "max_treedepth": 8}),
    ],
)
def test_arguments_of_one_sampler(nuts_sampler, arguments):
    check_sample_kwargs(arguments, nuts_sampler)


def never(batch):
    raise AssertionError("a model was built")


@pytest.mark.parametrize(
    "nuts_sampler, arguments, error, message",
    [
        ("pymc", {"target_acept": 0.9}, TypeError, r"take target_acept=.*mean target_accept\?"),
        ("nutpie", {"target_acept": 0.9}, TypeError, r"take target_acept=.*mean target_accept\?"),
        (None, {"target_acept": 0.9}, TypeError, r"take target_acept=.*mean target_accept\?"),
        ("numpyro", {"target_acept": 0.9}, TypeError, r"take target_acept=.*mean target_accept\?"),
        ("pymc", {"nuts": {"target_acept": 0.9}}, TypeError, r"nuts: the sampler pymc .*_accept\?"),
        ("nutpie", {"nuts": {"target_acept": 0.9}}, TypeError, r"sampler nutpie has.*_accept\?"),
        (
            "nutpie",
            {"nuts_sampler_kwargs": {"max_depth": 9}},
            TypeError,
            r"nuts_sampler_kwargs: .* no argument max_depth. Did you mean maxdepth\?",
        ),
        ("nutpie", {"max_treedepth": 8}, TypeError, r"Write nuts={'max_treedepth': ...}\."),
        ("pymc", {"unheard_of": 1}, TypeError, r'nuts_sampler="pymc"\.$'),
        ("nutpie", {"nuts": {"num_draws": 5}}, TypeError, r"take num_draws among the sampler's"),
        ("nutpie", {"seed": 1}, TypeError, r"take seed=.* Write random_seed=\."),
        ("pymc", {"seed": 1}, TypeError, r"take seed=.* Write random_seed=\."),
        ("pymc", {"nuts_sampler_kwargs": {"maxdept": 1}}, TypeError, r"not read.*nuts={"),
        (None, {"idata_kwargs": {"cords": {}}}, TypeError, r"no argument cords. .* coords\?"),
        ("pymc", {"nuts": 3}, TypeError, r"nuts must be a dict of arguments, got 3"),
        ("nutpi", {}, ValueError, r"nuts_sampler must be .*got 'nutpi'. Did you mean nutpie\?"),
    ],
)
def test_refused_before_a_model_is_built(nuts_sampler, arguments, error, message):
    with pytest.raises(error, match=message):
        sample_batches(never, np.arange(8.0), batches=2, nuts_sampler=nuts_sampler, **arguments)

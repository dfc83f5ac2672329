"""Plans and parts refuse another model than that of the moments."""

import numpy as np
import pymc as pm
import pytest

import arviz_swiss as az_swiss


def test_another_model_of_the_same_names_is_refused():
    def uniform(upper):
        with pm.Model() as model:
            pm.Uniform("p", 0, upper)
        return model

    draws = [{"p": np.random.default_rng(k).beta(4, 4, size=(2, 200))} for k in range(2)]
    told = [
        az_swiss.moments(own, label=f"b{k}", kind="inflated", model=uniform(1))
        for k, own in enumerate(draws)
    ]
    with pytest.raises(ValueError, match=r"by p: labels, transforms= or model= differ"):
        az_swiss.plan(told).apply(draws[0], model=uniform(5))
    other = az_swiss.moments(draws[1], label="b1", kind="inflated", model=uniform(5))
    with pytest.raises(ValueError, match=r'"b1"\), variable p: its transform leads elsewhere'):
        az_swiss.plan([told[0], other])

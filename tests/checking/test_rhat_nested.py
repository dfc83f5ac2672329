"""Nested R-hat of batches that were all sampled from about the full posterior."""

import numpy as np
import pytest
from group_models import make_groups, normal_groups
from merged_groups import groups_of

import arviz_swiss as az_swiss
from arviz_swiss.base.gaussian import gaussian
from arviz_swiss.correcting.densities import JointSpace
from arviz_swiss.correcting.ep_rounds import Effort
from arviz_swiss.correcting.propagation import propagate_models
from arviz_swiss.data import containers
from arviz_swiss.data.statistics import nested_rhat
from arviz_swiss.parallel.partition import partition, take

IS_NEW = containers.native_container() == "DataTree"
BATCHES = 3


@pytest.fixture(scope="module")
def merged():
    table = make_groups(groups=24)
    parts = partition(table, BATCHES, groups="site", random_seed=0)
    return propagate_models(
        {f"b{at}": normal_groups(take(table, index)) for at, index in enumerate(parts)},
        JointSpace(("level", "slope"), {"effect": 0}),
        gaussian(np.array([1.0, 0.5]), np.eye(2) / 100),
        {f"b{at}": len(index) for at, index in enumerate(parts)},
        Effort(8, 20, 80, 8),
        attrs={},
        coords={"site": table["site"].unique()},
        executor=None,
        rng=np.random.default_rng(0),
        progressbar=False,
    )


def moved_by(merged, sds):
    """Return a merged object whose batch b1 had drawn `level` so many sds from here."""
    groups = groups_of(merged)
    maps = groups["swiss_transform"].copy(deep=True)
    sd = float(groups["posterior"]["level"].std())
    own = {"batch": 1, "parameter": int(np.argmax(maps["parameter"].values == "level"))}
    maps["mean"][own] += sds * sd
    return containers.build(groups | {"swiss_transform": maps})


def by_hand(values):
    """Return nested R-hat of (batch, chain, draw) values as its paper has it, without ranks."""
    halves = np.concatenate(np.array_split(values, 2, axis=2), axis=1)
    between = halves.mean(axis=(1, 2)).var(ddof=1)
    within = halves.mean(axis=2).var(axis=1, ddof=1) + halves.var(axis=2, ddof=1).mean(axis=1)
    return np.sqrt(1 + between / within.mean())


@pytest.mark.skipif(IS_NEW, reason="there is no nested R-hat in ArviZ 0.x alone")
def test_it_is_left_out_where_arviz_has_none(merged):
    assert "rhat_nested" not in az_swiss.report(merged).statistics
    assert "rhat_nested" not in az_swiss.summary(merged, by="parameter")


@pytest.mark.skipif(not IS_NEW, reason="nested R-hat needs ArviZ 1.x")
def test_it_tells_a_batch_that_found_something_else(merged):
    table = az_swiss.summary(merged, by="parameter")
    assert table.loc[["effect[s01]"], "rhat_nested"].isna().all()
    right = table.loc[["level", "slope"], "rhat_nested"]
    assert ((right >= 1) & (right < 1.05)).all()

    wrong = az_swiss.summary(moved_by(merged, 2), by="parameter")
    # one of three means is two sds off, so that their variance is 4/3
    assert wrong.loc["level", "rhat_nested"] == pytest.approx(np.sqrt(1 + 4 / 3), rel=0.1)
    assert wrong.loc["slope", "rhat_nested"] < 1.05
    # merged draws are where they were, and say nothing
    assert wrong.loc["level", "r_hat"] == table.loc["level", "r_hat"]


@pytest.mark.skipif(not IS_NEW, reason="nested R-hat needs ArviZ 1.x")
def test_it_is_that_of_the_formula():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, 4, 500)) + np.array([0.0, 0.5, 1.0])[:, None, None]
    found = nested_rhat(values.reshape(12, 500, 1), np.repeat(np.arange(3), 4))
    # normal scores of normal draws are these, up to their scale
    np.testing.assert_allclose(found, [by_hand(values)], rtol=0.01)
    assert nested_rhat(values.reshape(12, 500, 1), np.repeat([0, 1], [4, 8])) is None
    assert nested_rhat(values[0, ..., None], np.zeros(4, int)) is None

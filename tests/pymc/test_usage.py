"""A function that ignores its batch is found out; one that does not is never accused."""

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph import Apply, Op

from arviz_swiss.parallel.partition import partition, row_count, take
from arviz_swiss.pymc.usage import check_uses_batch

ROWS = 40
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"x": RNG.normal(size=ROWS), "y": RNG.normal(size=ROWS)})


def check(build, data=TABLE, batches=4, groups=None):
    indices = partition(data, batches, groups=groups, random_seed=1)
    tables = [take(data, i) for i in (*indices[:2], np.sort(np.concatenate(indices[:2])))]
    check_uses_batch([build(table) for table in tables], tables, row_count(data))


def normal(observed, **data):
    with pm.Model() as model:
        for name, values in data.items():
            pm.Data(name, values)
        pm.Normal("y", pm.Normal("mu"), 1, observed=observed)
    return model


def test_two_batches_are_enough():
    with pytest.raises(ValueError, match="y has 40 entries, those of all batches"):
        check(lambda batch: normal(TABLE["y"]), batches=2)


IGNORING = {
    "the whole table": lambda batch: normal(TABLE["y"]),
    "the whole table as pm.Data": lambda batch: normal(pm.Data("d", TABLE["y"], model=pm.Model())),
    "beside data of the batch": lambda batch: normal(TABLE["y"], x=batch["x"]),
    "part of another table": lambda batch: normal(np.arange(7.0)),
    "a summary of the table": lambda batch: normal(TABLE["y"].mean()),
    "the first rows": lambda batch: normal(TABLE["y"].to_numpy()[: len(batch)]),
}


@pytest.mark.parametrize("build", IGNORING.values(), ids=IGNORING)
def test_builds_that_ignore_the_batch(build):
    with pytest.raises(ValueError, match=r"build does not use the batch it is given: observed y"):
        check(build)


def in_a_likelihood(batch):
    values = batch["y"].to_numpy()

    def logp(value, mu):
        return pm.logp(pm.Normal.dist(mu, 1), values).sum() + value

    with pm.Model() as model:
        pm.CustomDist("y", pm.Normal("mu"), logp=logp, observed=0.0)
    return model


class Hidden(Op):
    """An operation that holds the batch out of sight."""

    def __init__(self, values):
        self.values = values

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(inputs[0] + self.values.sum())


def in_an_operation(batch):
    with pm.Model() as model:
        pm.Normal("y", Hidden(batch["y"].to_numpy())(pm.Normal("mu")), 1, observed=0.0)
    return model


def counted(batch):
    with pm.Model() as model:
        pm.Binomial("y", len(batch), pm.Beta("p", 1, 1), observed=batch.sum())
    return model


USING = {
    "column": (lambda batch: normal(batch["y"]), TABLE, None),
    "pm.Data": (lambda batch: normal(pm.Data("d", batch["y"], model=pm.Model())), TABLE, None),
    "all zeros": (lambda batch: normal(batch), np.zeros(ROWS), None),
    "counts of zeros": (counted, np.zeros(ROWS, dtype=int), None),
    "the same in every group": (
        lambda batch: normal(batch["y"]),
        pd.DataFrame({"g": np.repeat(np.arange(4), 12), "y": np.tile(np.arange(12.0), 4)}),
        "g",
    ),
    "in a likelihood": (in_a_likelihood, TABLE, None),
    "in an operation": (in_an_operation, TABLE, None),
}


@pytest.mark.parametrize(("build", "data", "groups"), USING.values(), ids=USING)
def test_builds_that_use_the_batch(build, data, groups):
    check(build, data, groups=groups)

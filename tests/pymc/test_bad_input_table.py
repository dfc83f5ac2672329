"""A table of bad inputs to the functions that need PyMC, as in tests/test_bad_input_table.py.

None of them may begin to sample.
"""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from terminal import watching

import arviz_swiss as az_swiss

TABLE = pd.DataFrame({"y": np.linspace(-1, 1, 12), "site": list("aaabbbcccddd")})


def build(rows):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("y", mu, 1, observed=np.asarray(rows["y"]))
    return model


def build_grouped(rows):
    groups, index = np.unique(rows["site"], return_inverse=True)
    with pm.Model(coords={"site": groups}) as model:
        mu = pm.Normal("mu", 0, 10)
        effect = pm.Normal("effect", mu, 1, dims="site")
        pm.Normal("y", effect[index], 1, observed=np.asarray(rows["y"]))
    return model


def build_discrete(rows):
    with pm.Model() as model:
        rate = pm.Poisson("rate", 3)
        pm.Normal("y", rate, 1, observed=np.asarray(rows["y"]))
    return model


def build_unobserved(rows):
    with pm.Model() as model:
        pm.Normal("mu")
    return model


def build_all_rows(rows):
    """Forget to use the rows that are given."""
    return build(TABLE)


def build_by_size(rows):
    """Give later batches another parameter."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10, shape=2 if TABLE["y"][0] in list(rows["y"]) else 3)
        pm.Normal("y", mu.sum(), 1, observed=np.asarray(rows["y"]))
    return model


def build_raising(rows):
    raise KeyError("colour")


NAMES = {
    **{name: getattr(az_swiss, name) for name in ("inflate", "fractionate", "sample_batches")},
    **{name: value for name, value in globals().items() if name.startswith("build")},
    **{"np": np, "table": TABLE, "quiet": {}},
}

# call, error, words of its message
TEMPERED = [
    ("inflate(None, 2)", TypeError, "pymc.Model, NoneType"),
    ("inflate(build, 2)", TypeError, "pymc.Model"),
    ("inflate(build(table))", (TypeError, ValueError), "power, total_size"),
    ("inflate(build(table), 2, total_size=24)", (TypeError, ValueError), "power, total_size"),
    ("inflate(build(table), 0)", ValueError, "power, greater than 0"),
    ("inflate(build(table), -1)", ValueError, "power, greater than 0"),
    ("inflate(build(table), np.nan)", ValueError, "power"),
    ("inflate(build(table), 'two')", (TypeError, ValueError), "power"),
    ("inflate(build(table), total_size=0)", ValueError, "total_size"),
    ("inflate(build(table), total_size=6)", ValueError, "total_size, 12, 6"),
    ("inflate(build(table), total_size='all')", (TypeError, ValueError), "total_size"),
    ("inflate(build_unobserved(table), 2)", ValueError, "observed"),
    ("inflate(inflate(build(table), 2), 2)", ValueError, "already"),
    ("fractionate(None, .5)", TypeError, "pymc.Model"),
    ("fractionate(build(table))", (TypeError, ValueError), "fraction, total_size"),
    ("fractionate(build(table), 0)", ValueError, "fraction"),
    ("fractionate(build(table), 'half')", (TypeError, ValueError), "fraction"),
    ("fractionate(build(table), .5, local=['none'])", ValueError, "none, mu"),
    ("fractionate(build(table), .5, untransformed=['none'])", ValueError, "none, mu"),
]  # fmt: skip

SAMPLED = [
    ("sample_batches(None, table, batches=2)", TypeError, "build, function"),
    ("sample_batches(build(table), table, batches=2)", TypeError, "build, function that makes it"),
    ("sample_batches(build, None, batches=2)", TypeError, "rows"),
    ("sample_batches(build, table, batches=0)", ValueError, "batches"),
    ("sample_batches(build, table, batches='two')", TypeError, "batches"),
    ("sample_batches(build, table, batches=13)", ValueError, "empty"),
    ("sample_batches(build, table, batches=2, groups='place')", ValueError, "place"),
    ("sample_batches(build, table, batches=5, groups='site')", ValueError, "4 groups"),
    ("sample_batches(build, table, batches=2, kind='plain')", ValueError, "kind, inflated"),
    ("sample_batches(build, table, batches=2, kind=None)", ValueError, "kind"),
    ("sample_batches(build, table, batches=2, draws=0)", ValueError, "draws"),
    ("sample_batches(build, table, batches=2, draws=1.5)", ValueError, "draws"),
    ("sample_batches(build, table, batches=2, tune=-1)", ValueError, "tune"),
    ("sample_batches(build, table, batches=2, chains=0)", ValueError, "chains"),
    ("sample_batches(build, table, batches=2, random_seed='one')", ValueError, "random_seed"),
    ("sample_batches(build, table, batches=2, random_seed=-1)", ValueError, "random_seed"),
    ("sample_batches(build, table, batches=2, executor=4)", TypeError, "executor"),
    ("sample_batches(build, table, batches=2, cores=4)", TypeError, "cores"),
    ("sample_batches(build, table, batches=2, step='HMC')", TypeError, "step"),
    ("sample_batches(build, table, batches=2, target_acept=.9)", TypeError, "target_acept, target_accept"),
    ("sample_batches(build, table, batches=2, nuts_sampler='stan')", ValueError, "nuts_sampler, stan"),
    ("sample_batches(build, table, batches=2, idata_kwargs={'log_likelihood': True})", TypeError, "log_likelihood"),
    ("sample_batches(build, table, batches=2, untransformed='mu')", ValueError, "untransformed"),
    ("sample_batches(build, table, batches=2, kind='fractionated', untransformed='rho', **quiet)", ValueError, "rho"),
    ("sample_batches(lambda rows: None, table, batches=2, **quiet)", TypeError, "NoneType"),
    ("sample_batches(lambda rows: 3, table, batches=2, **quiet)", TypeError, "int"),
    ("sample_batches(build_unobserved, table, batches=2, **quiet)", ValueError, "observed"),
    ("sample_batches(build_discrete, table, batches=2, **quiet)", ValueError, "rate"),
    ("sample_batches(build_all_rows, table, batches=2, **quiet)", ValueError, "12, does not use the batch"),
    ("sample_batches(build_by_size, table, batches=2, **quiet)", ValueError, "mu"),
    ("sample_batches(build_grouped, table, batches=2, groups='site', **quiet)", ValueError, "effect, fractionated"),
    ("sample_batches(build_raising, table, batches=2, **quiet)", KeyError, "colour, build raised this for batch b0"),
]  # fmt: skip

# What each batch's own worker finds: the groups of the third one are in others too.
LATE = [
    ("sample_batches(build_grouped, table, batches=6, kind='fractionated', **quiet)", ValueError, "groups"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [pytest.param(*row, id=row[0]) for row in (*TEMPERED, *SAMPLED, *LATE)],
)
def test_error_is_clear(monkeypatch, call, error, words):
    with watching(monkeypatch) as screen, pytest.raises(error) as raised:
        eval(call, dict(NAMES))
    is_late = call in [row[0] for row in LATE]
    assert is_late or not screen.text  # not even a bar was begun
    message = " ".join([str(raised.value), *getattr(raised.value, "__notes__", [])])
    missing = [word for word in words.split(", ") if word not in message]
    assert not missing, f"{missing} not in: {message}"

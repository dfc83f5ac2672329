"""The rule of sizes, over a grid: what its docstring says holds."""

import warnings

import numpy as np
import pymc as pm
import pytest
from batch_models import DATA, hierarchy
from hypothesis import given
from hypothesis import strategies as st

from arviz_swiss.pymc.sizing import choose_sizes, examine

COUNTS = {
    "rows": st.integers(1, 10**7),
    "parameters": st.integers(1, 2000),
    "draws": st.integers(1, 50_000),
    "chains": st.integers(1, 8),
    "refined": st.booleans(),
    "workers": st.integers(1, 64),
}


def needed(parameters, refined):
    return 5 * parameters + 100 if refined else max(100 * parameters, 400)


@given(**COUNTS)
def test_the_rule_holds(rows, parameters, draws, chains, refined, workers):
    sizes = choose_sizes(
        rows,
        parameters,
        batches=None,
        draws=draws,
        chains=chains,
        refined=refined,
        workers=workers,
    )
    each = sizes.draws * chains
    assert sizes.batches >= min(2, rows)
    assert sizes.batches * each >= draws
    assert each >= needed(parameters, refined)
    # no more draws than either asks for, but for what chains round up
    assert each - chains < max(draws / sizes.batches, needed(parameters, refined))
    if sizes.batches > workers:
        assert sizes.batches % workers == 0
    if sizes.batches > 2:
        assert rows / sizes.batches >= max(50 * parameters, 200)
    if sizes.batches > max(workers, 2):
        assert sizes.batches * needed(parameters, refined) <= draws
    assert sizes.rule.startswith(f"{sizes.batches} batch")


@given(batches=st.integers(2, 500), **COUNTS)
def test_batches_that_are_asked_for_stay(
    batches, rows, parameters, draws, chains, refined, workers
):
    sizes = choose_sizes(
        rows,
        parameters,
        batches=batches,
        draws=draws,
        chains=chains,
        refined=refined,
        workers=workers,
    )
    assert sizes.batches == batches
    assert sizes.draws * chains * batches >= draws
    assert sizes.draws * chains >= needed(parameters, refined)
    assert "as asked for" in sizes.rule


@pytest.mark.parametrize(
    ("rows", "parameters", "draws", "workers", "batches", "why"),
    [
        (100_000, 28, 4000, 2, 16, "draws that a batch needs"),
        (10_000, 28, 40_000, 2, 6, "rows of a batch"),
        (10**6, 28, 400, 4, 4, "one a worker"),
        (100, 28, 4000, 2, 2, "rows of a batch"),
    ],
)
def test_the_rule_says_what_limits(rows, parameters, draws, workers, batches, why):
    sizes = choose_sizes(
        rows, parameters, batches=None, draws=draws, chains=4, refined=True, workers=workers
    )
    assert sizes.batches == batches
    assert why in sizes.rule


@pytest.mark.parametrize(
    ("rows", "parameters", "batches", "text"),
    [
        (1, 1, 1, "1 batch, as asked for (1 row, 400 draws; 1 parameter needs 105 draws and 200 "),
        (9, 2, 3, "3 batches, as asked for (3 rows, 136 draws; 2 parameters need 110 draws and "),
    ],
)
def test_the_rule_is_a_sentence(rows, parameters, batches, text):
    sizes = choose_sizes(
        rows, parameters, batches=batches, draws=400, chains=4, refined=True, workers=2
    )
    assert sizes.rule.startswith(text)


@given(groups=st.integers(1, 10**5), **COUNTS)
def test_batches_with_groups_have_ten_of_them(
    groups, rows, parameters, draws, chains, refined, workers
):
    rows = max(rows, groups)
    sizes = choose_sizes(
        rows,
        parameters,
        batches=None,
        draws=draws,
        chains=chains,
        refined=refined,
        workers=workers,
        groups=groups,
    )
    assert min(2, groups) <= sizes.batches <= max(groups // 10, min(2, groups))
    assert sizes.draws * chains >= max(needed(parameters, refined), 320)
    if sizes.batches > max(workers, 2):
        assert sizes.batches <= draws // 320


@pytest.mark.parametrize(
    ("rows", "groups", "draws", "batches", "why"),
    [
        (10**5, 2000, 4000, 12, "by the draws that a batch needs (8333 rows of 167 groups, 336"),
        (10**5, 50, 4000, 4, "by the groups of a batch"),
        (10**5, 15, 4000, 2, "by the groups of a batch"),
        (1000, 500, 4000, 4, "by the rows of a batch"),
    ],
)
def test_the_rule_of_groups_says_what_limits(rows, groups, draws, batches, why):
    sizes = choose_sizes(
        rows, 3, batches=None, draws=draws, chains=8, refined=True, workers=2, groups=groups
    )
    assert sizes.batches == batches
    assert why in sizes.rule and sizes.rule.endswith("need 320 draws and 200 rows, and 10 groups).")


def test_parameters_are_counted():
    def build(y):
        with pm.Model() as model:
            mu = pm.Normal("mu", shape=2)
            pm.Dirichlet("shares", np.ones(4))
            pm.Normal("y", mu[0], pm.HalfNormal("sigma"), observed=y)
        return model

    examined = examine(build, np.ones(30), None, None)
    # four shares that sum to one are three numbers
    assert examined == (2 + 3 + 1, (), False, None)
    assert examined.kind == "inflated"


def test_variables_of_groups_are_not_counted_as_shared():
    examined = examine(hierarchy, DATA, "group", None)
    assert examined == (2, ("u",), True, 10)
    assert examined.kind == "fractionated"


def test_missing_outcomes_are_of_one_batch_alone_but_no_reason_for_another_kind():
    y = np.random.default_rng(0).normal(size=40)
    y[::7] = np.nan

    def build(batch):
        with pm.Model() as model:
            mu = pm.Normal("mu", 0, 1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that outcomes are imputed
                pm.Normal("y", mu, 1, observed=batch)
        return model

    examined = examine(build, y, None, None)
    assert examined == (1, ("y_unobserved",), False, None)
    assert examined.kind == "inflated"

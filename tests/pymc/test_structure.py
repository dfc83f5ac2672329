"""Which variables are shared and which are local, on real models built from real batches."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest

from arviz_swiss.pymc.structure import (
    check_apart,
    check_local,
    check_model,
    check_same,
    describe,
    find_local,
)

GROUPS = pd.DataFrame({"group": np.repeat(list("abcdefgh"), 3), "y": np.arange(24.0)})
FIRST, SECOND = GROUPS.iloc[:12], GROUPS.iloc[12:]


def random_effects(batch, labelled):
    codes, names = pd.factorize(batch["group"])
    with pm.Model(coords={"group": names} if labelled else None) as model:
        mu = pm.Normal("mu", shape=4)
        size = {"dims": "group"} if labelled else {"shape": len(names)}
        u = pm.Normal("u", **size)
        pm.Normal("y", mu[0] + u[codes], observed=pm.Data("y_data", batch["y"]))
    return model


def described(build, *batches):
    return [describe(build(batch), len(batch)) for batch in batches]


@pytest.mark.parametrize("labelled", [True, False])
def test_random_effects_are_local_even_without_labels(labelled):
    structures = described(lambda b: random_effects(b, labelled), FIRST, SECOND, GROUPS)
    assert structures[0].shapes == {"mu": (4,), "u": (4,)}
    assert find_local(*structures) == ("u",)


def test_effects_of_groups_that_every_batch_has_are_shared():
    halves = [GROUPS.iloc[::2], GROUPS.iloc[1::2]]
    assert find_local(*described(lambda b: random_effects(b, True), *halves, GROUPS)) == ()


def test_inflating_local_variables_is_refused():
    first, second, _ = described(lambda b: random_effects(b, True), FIRST, SECOND, GROUPS)
    with pytest.raises(ValueError, match=r'u differ .*wrong .*kind="fractionated" and groups='):
        check_local(("u",), first, second, kind="inflated", grouped=True)


@pytest.mark.parametrize("kind", ["fractionated", "full_prior"])
def test_local_variables_need_groups(kind):
    first, second, _ = described(lambda b: random_effects(b, True), FIRST, SECOND, GROUPS)
    check_local(("u",), first, second, kind=kind, grouped=True)
    with pytest.raises(ValueError, match=r"u differ between batches .*Pass groups="):
        check_local(("u",), first, second, kind=kind, grouped=False)


def test_a_local_coordinate_in_two_batches_is_refused():
    first, second = described(lambda b: random_effects(b, True), GROUPS.iloc[:12], GROUPS.iloc[10:])
    with pytest.raises(ValueError, match=r"u has coordinate 'd' in batch b0 and in batch b1"):
        check_local(("u",), first, second, kind="fractionated", grouped=True)


def test_one_latent_variable_per_row_needs_no_groups():
    def build(batch):
        with pm.Model() as model:
            z = pm.Normal("z", shape=len(batch))
            pm.Normal("y", z, observed=batch["y"])
        return model

    structures = described(build, FIRST, SECOND, GROUPS)
    local = find_local(*structures)
    assert local == ("z",)
    check_local(local, *structures[:2], kind="fractionated", grouped=False)


def test_missing_outcomes_are_local_and_may_be_inflated():
    def build(batch):
        with pm.Model() as model:
            mu = pm.Normal("mu")
            with pytest.warns(UserWarning, match="imputed") if batch["y"].isna().any() else no():
                pm.Normal("y", mu, observed=batch["y"])
        return model

    from contextlib import nullcontext as no

    holes = FIRST.assign(y=FIRST["y"].where(FIRST["y"] > 1))
    structures = described(build, holes, SECOND, pd.concat([holes, SECOND]))
    local = find_local(*structures)
    assert local == ("y_unobserved",)
    check_local(local, *structures[:2], kind="inflated", grouped=False)
    check_same(*structures[:2], local, "batch b1")


def test_order_of_labels_does_not_matter_but_labels_do():
    def build(names):
        with pm.Model(coords={"k": list(names)}) as model:
            pm.Normal("b", dims="k")
        return model

    first, reordered, other = (describe(build(names), 5) for names in ("ab", "ba", "ac"))
    check_same(first, reordered, (), "batch b1")
    with pytest.raises(ValueError, match=r"batch b1: free variable b .*coordinates of the whole"):
        check_same(first, other, (), "batch b1")


def test_shapes_that_follow_the_data_are_read():
    with pm.Model() as model:
        x = pm.Data("x", np.zeros((5, 3)))
        pm.Normal("b", shape=x.shape[1])
    assert describe(model, 5).shapes == {"b": (3,)}


def test_models_that_cannot_be_divided():
    with pytest.raises(TypeError, match=r"batch b2: build returned 'NoneType'.*return model"):
        check_model(None, "batch b2")
    with pm.Model() as model:
        mu = pm.Normal("mu")
    with pytest.raises(ValueError, match=r"batch b2: the model has no observed variables"):
        check_model(model, "batch b2")
    with model:
        k = pm.Poisson("k", 3)
        flag = pm.Bernoulli("flag", 0.5)
        pm.Normal("y", mu + k + flag, observed=[1.0])
    with pytest.raises(ValueError, match=r"batch b2: free variables k, flag are discrete"):
        check_model(model, "batch b2")
    with pm.Model() as model:
        pm.Normal("y", observed=[1.0])
    with pytest.raises(ValueError, match=r"batch b2: the model has no free variables"):
        check_model(model, "batch b2")


def test_a_later_batch_with_a_group_of_an_earlier_one_is_refused():
    known = [GROUPS.iloc[:6], GROUPS.iloc[6:12]]
    structures = described(lambda b: random_effects(b, True), *known, GROUPS.iloc[3:6])
    earlier = dict(zip(["batch b0", "batch b1"], structures, strict=False))
    with pytest.raises(ValueError, match=r"u has coordinate 'b' in batch b0 and in batch b7, but"):
        check_apart(earlier, structures[2], ["u"], "batch b7")
    whole = describe(random_effects(GROUPS.iloc[:6], True), 6)
    with pytest.raises(ValueError, match=r"u has coordinate 'a' in batch b0 and in batch b2, but"):
        check_apart(earlier, whole, ["u"], "batch b2")
    check_apart(earlier, describe(random_effects(SECOND, True), 12), ["u"], "batch b2")


@pytest.mark.parametrize("labelled", [True, False])
def test_effects_that_sum_to_zero_over_all_batches_are_refused(labelled):
    def build(batch):
        codes, names = pd.factorize(batch["group"])
        with pm.Model(coords={"group": names} if labelled else None) as model:
            u = pm.ZeroSumNormal("u", **({"dims": "group"} if labelled else {"shape": len(names)}))
            pm.Normal("y", u[codes], observed=batch["y"])
        return model

    structures = described(build, FIRST, SECOND, GROUPS)
    local = find_local(*structures)
    with pytest.raises(ValueError, match=r"u has groups of one batch.*sum to zero.*pm\.Normal"):
        check_local(local, *structures[:2], kind="fractionated", grouped=True)


def test_effects_may_sum_to_zero_along_a_shared_axis():
    def build(batch):
        codes, names = pd.factorize(batch["group"])
        with pm.Model(coords={"group": names, "k": ["l", "m", "n"]}) as model:
            u = pm.ZeroSumNormal("u", dims=("group", "k"))
            pm.Normal("y", u[codes, 0], observed=batch["y"])
        return model

    structures = described(build, FIRST, SECOND, GROUPS)
    check_local(("u",), *structures[:2], kind="fractionated", grouped=True)

"""moments, plan and apply: the same as merge, where draws do not meet."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from batch_kinds import both_kinds, tempered
from merged_groups import groups_of, labelled
from parts import assert_parts_of, in_parts

import arviz_swiss as az_swiss
from arviz_swiss.data import containers
from arviz_swiss.methods import METHODS

pytestmark = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
MAPPED = [name for name, method in METHODS.items() if method.makes == "maps"]
LABELS = ("north", "east", "south", "west")


@pytest.fixture
def batches(random_batches):
    made = random_batches(np.random.default_rng(5), size=4, draws=150)
    return dict(zip(LABELS, (tempered(batch["theta"]) for batch in made), strict=True))


@pytest.fixture
def prior():
    draws = np.random.default_rng(6).normal(0, 5, size=(2, 400, 4))
    return xr.Dataset({"theta": (("chain", "draw", "k"), draws)})


@pytest.mark.parametrize("method", MAPPED)
@pytest.mark.parametrize("kind", ["inflated", "fractionated"])
def test_parts_are_those_of_merge(batches, kind, method):
    _, parts = in_parts(batches, kind=kind, planned={"method": method})
    assert_parts_of(parts, az_swiss.merge(batches, kind=kind, method=method))


def test_parts_with_the_prior_subtracted(batches, prior, tmp_path):
    _, parts = in_parts(batches, tmp_path, kind="full_prior", prior=prior)
    assert_parts_of(parts, az_swiss.merge(batches, kind="full_prior", prior=prior))


def test_the_batches_own_draws_of_the_prior(batches, prior, to_container):
    wide = {
        label: to_container(batch, prior=prior + position)
        for position, (label, batch) in enumerate(batches.items())
    }
    _, parts = in_parts(wide, kind="full_prior")
    assert_parts_of(parts, az_swiss.merge(wide, kind="full_prior"))


def test_kinds_and_powers_from_attributes(random_batches):
    powers = (2.0, 4.0, 8.0, 8.0)
    for made in both_kinds(random_batches(np.random.default_rng(1)), powers):
        named = dict(zip(LABELS, made, strict=True))
        _, parts = in_parts(named)
        assert_parts_of(parts, az_swiss.merge(named))


def test_powers_told_with_the_moments_or_to_the_plan(batches):
    powers = [2.0, 4.0, 8.0, 8.0]
    merged = az_swiss.merge(batches, powers=dict(zip(LABELS, powers, strict=True)))
    _, parts = in_parts(batches, powers=powers)
    assert_parts_of(parts, merged)
    _, parts = in_parts(batches, planned={"powers": powers})
    assert_parts_of(parts, merged)


def test_powers_against_those_of_the_moments(batches, tmp_path):
    powers = dict(zip(LABELS, (2.0, 4.0, 8.0, 8.0), strict=True))
    other = powers | {"south": 8.5}
    attributed = {
        label: batch.assign_attrs(swiss_kind="inflated", swiss_power=powers[label])
        for label, batch in batches.items()
    }
    told = {n: az_swiss.moments(b, kind="inflated", power=powers[n]) for n, b in batches.items()}
    saved = {n: each.save(tmp_path / f"{n}.nc") for n, each in told.items()}
    by_attribute = {n: az_swiss.moments(batch) for n, batch in attributed.items()}
    for measured in (told, saved, by_attribute):
        with pytest.raises(ValueError, match=r'"south".*the power 8\.5, but its moments say 8\.0'):
            az_swiss.plan(measured, powers=other)
        assert az_swiss.plan(measured, powers=powers).labels == list(LABELS)
    # as the message says
    again = by_attribute | {"south": az_swiss.moments(attributed["south"], power=8.5)}
    with pytest.raises(ValueError, match=r"the prior would be counted 0\.99264706 times"):
        az_swiss.plan(again)
    right = powers | {"south": 16.0, "west": 16.0 / 3}
    again |= {n: az_swiss.moments(attributed[n], power=right[n]) for n in ("south", "west")}
    parts = {n: az_swiss.plan(again).apply(batch) for n, batch in attributed.items()}
    assert_parts_of(parts, az_swiss.merge(attributed, powers=right))


@pytest.mark.parametrize("covariance", ["corrected", "shrunk", "diagonal", lambda x: np.cov(x.T)])
def test_estimators_of_the_covariance(batches, covariance, tmp_path):
    _, parts = in_parts(batches, tmp_path, kind="inflated", covariance=covariance)
    assert_parts_of(parts, az_swiss.merge(batches, kind="inflated", covariance=covariance))


class Cube:
    """A transform of a user's own."""

    @staticmethod
    def forward(values):
        return np.cbrt(values)

    @staticmethod
    def backward(values):
        return values**3


def constrained(seed, levels="abc", dtype=float):
    """Return draws of variables with several supports, and a constant."""
    rng = np.random.default_rng(seed)
    shape = (2, 120)
    share = rng.dirichlet([4, 5, 6], size=shape)
    cuts = np.sort(rng.normal(size=(*shape, 3)), axis=-1)
    order = ["abc".index(level) for level in levels]
    data = {
        "tau": (("chain", "draw", "level"), rng.gamma(5, size=(*shape, 3))[..., order]),
        "share": (("chain", "draw", "part"), share),
        "cuts": (("chain", "draw", "cut"), cuts),
        "p": (("chain", "draw"), rng.beta(4, 4, size=shape)),
        "cubed": (("chain", "draw"), rng.normal(size=shape) ** 3),
        "fixed": (("chain", "draw"), np.ones(shape)),
    }
    draws = xr.Dataset(data, coords={"level": list(levels), "part": ["x", "y", "z"]})
    draws["tau"].attrs["unit"] = "m"
    return draws.astype(dtype, keep_attrs=True).assign_attrs(inference_library="none")


TRANSFORMS = {
    "tau": "log",
    "share": "simplex",
    "cuts": "ordered",
    "p": ("interval", 0, 1),
    "cubed": Cube(),
}


def test_parts_with_transforms(tmp_path):
    batches = {label: constrained(seed) for seed, label in enumerate(LABELS)}
    options = {"transforms": TRANSFORMS, "kind": "inflated"}
    _, parts = in_parts(batches, tmp_path, {"transforms": {"cubed": Cube()}}, **options)
    assert_parts_of(parts, az_swiss.merge(batches, **options))


def test_elements_in_any_order_and_draws_of_any_length(tmp_path):
    batches = {
        "north": constrained(0, "abc", np.float32),
        "east": constrained(1, "cab").isel(draw=slice(90)),
        "south": constrained(2, "bac")[["p", "tau", "cuts", "share", "fixed", "cubed"]],
    }
    batches["south"]["tau"] = batches["south"]["tau"].transpose("level", "draw", "chain")
    options = {"transforms": TRANSFORMS, "kind": "inflated"}
    _, parts = in_parts(batches, tmp_path, {"transforms": {"cubed": Cube()}}, **options)
    assert_parts_of(parts, az_swiss.merge(batches, **options))


def test_parts_end_to_end_are_the_merged_object(batches):
    _, parts = in_parts(batches, kind="inflated")
    first, *others = (groups_of(part) for part in parts.values())
    together = {
        name: xr.concat([dataset, *(other[name] for other in others)], "chain")
        if "chain" in dataset.dims
        else dataset
        for name, dataset in first.items()
    }
    merged = az_swiss.merge(batches, kind="inflated")
    report = az_swiss.report(containers.build(together))
    assert str(report) == str(az_swiss.report(merged))
    for look in (az_swiss.report, az_swiss.summary):
        with pytest.raises(ValueError, match=r'the part of batch "east" alone: if Plan.apply made'):
            look(parts["east"])


def test_dropped_batches(batches):
    _, parts = in_parts(batches, kind="inflated", planned={"drop": ["east", 3]})
    assert_parts_of(parts, az_swiss.merge(batches, kind="inflated", drop=["east", 3]))
    assert list(parts) == ["north", "south"]


def test_whole_containers_through_files(random_batches, to_container, tmp_path):
    batches = {}
    for k, batch in enumerate(random_batches(np.random.default_rng(0))):
        posterior = labelled(batch["theta"], ["a", "b", "c"]).assign_attrs(swiss_batch=f"s{k}")
        stats = {"lp": np.ones((2, 200)), "diverging": np.zeros((2, 200)) + (k == 1)}
        stats |= {"depth": np.ones((2, 200))} if k else {}
        observed = xr.Dataset({"y": ("row", np.arange(3.0 + k))})
        batches[f"s{k}"] = to_container(posterior, sample_stats=stats, observed_data=observed)
        batches[f"s{k}"].to_netcdf(tmp_path / f"s{k}.nc")
    paths = {label: tmp_path / f"{label}.nc" for label in batches}
    merged = az_swiss.merge(paths, kind="inflated", var_names="~mu")
    plan, parts = in_parts(paths, tmp_path, kind="inflated", var_names="~mu")
    assert_parts_of(parts, merged)
    assert "observed_data" in parts["s0"]["posterior"].attrs["swiss_left_out"]
    again = az_swiss.plan([az_swiss.moments(path, var_names="~mu") for path in paths.values()])
    assert again.labels == plan.labels


def test_the_plan_warns_as_merge_does(random_batches):
    far = random_batches(np.random.default_rng(3), spread=3.0)
    skewed = [{"theta": np.exp(2 * batch["theta"])} for batch in far]
    with warnings.catch_warnings(record=True) as by_merge:
        warnings.simplefilter("always")
        az_swiss.merge(skewed, kind="inflated")
    told = [az_swiss.moments(batch, kind="inflated") for batch in skewed]
    with warnings.catch_warnings(record=True) as by_plan:
        warnings.simplefilter("always")
        az_swiss.plan(told)
    assert by_merge
    assert [str(w.message) for w in by_plan] == [str(w.message) for w in by_merge]


def test_the_page_about_it_runs(tmp_path, monkeypatch):
    page = Path(__file__).parents[2] / "docs" / "apart.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(code, names)
    assert_parts_of(names["parts"], az_swiss.merge(names["draws"], kind="inflated"))

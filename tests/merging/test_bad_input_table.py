"""A table of bad inputs to every public function: one line each, and what must be said of them.

A row is a call as a hurried user would write it, the type of the error, and words that must be in
its message, in any order. `RIGHT` are calls that look wrong and must give the right answer. The
names that the calls use are made in `names` below, the rows stand in `helpers/bad_inputs.py`. No
input may be changed by any of them.
"""

import copy
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from bad_inputs import AFTER, CERTIFIED, DIVIDE, MERGE, REFINED, RIGHT, WARNED
from normal_density import Normal as Gaussian

import arviz_swiss as az_swiss
from arviz_swiss.data import containers

pytestmark = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")

LABELS = ("north", "south", "east")


class WrongSign(Gaussian):
    """As a user writes it who minimises."""

    def grad_log_likelihood(self, x):
        return x - self.centre


class WrongShape(Gaussian):
    """One number for all points."""

    def log_likelihood(self, x):
        return float(super().log_likelihood(x).sum())

    def grad_log_likelihood(self, x):
        return super().grad_log_likelihood(x)[:, :1]


class NoNumber(Gaussian):
    """Not a number anywhere."""

    def log_likelihood(self, x):
        return np.full(len(x), np.nan)

    def grad_log_likelihood(self, x):
        return np.full(x.shape, np.nan)


class NoGradient:
    """Only half of what is asked for."""

    def log_prior(self, x):
        return np.zeros(len(x))

    def log_likelihood(self, x):
        return np.zeros(len(x))


def spoiled(batches, change):
    """Return the batches with the second, "south", changed."""
    return {**batches, "south": change(batches["south"].copy(deep=True))}


def with_value(name, where, value):
    """Return a change that overwrites some draws."""

    def change(dataset):
        dataset[name].values[where] = value
        return dataset

    return change


def moved_off(merged):
    """Return the merged object with all draws half a unit, .9 sds, from where they should be."""
    contents = containers.read(merged)
    posterior, maps = contents.groups["posterior"], contents.groups["swiss_transform"]
    changed = {
        "posterior": (posterior + 0.5).assign_attrs(posterior.attrs),
        "swiss_transform": maps.assign(target=maps["target"] + 0.5),
    }
    return containers.build(contents.groups | changed, contents.container)


@pytest.fixture(scope="module")
def names(tmp_path_factory, exact_draws):
    """Return all that the calls of the tables speak of."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 3))
    draws = [exact_draws(rng, centre, np.eye(3) / 3) for centre in centres]
    batches = {
        label: xr.Dataset(
            {
                "beta": (("chain", "draw", "term"), values[..., :2]),
                "tau": (("chain", "draw"), values[..., 2] + 9),
            },
            coords={"chain": [0, 1], "draw": np.arange(200), "term": ["a", "b"]},
        )
        for label, values in zip(LABELS, draws, strict=True)
    }
    densities = {
        label: Gaussian(centre + np.array([0, 0, 9]))
        for label, centre in zip(LABELS, centres, strict=True)
    }
    merged = az_swiss.merge(batches, kind="inflated")
    folder = tmp_path_factory.mktemp("bad")
    container = containers.build({"posterior": batches["south"]})
    container.to_netcdf(folder / "whole.nc")
    content = (folder / "whole.nc").read_bytes()
    (folder / "cut.nc").write_bytes(content[: len(content) // 2])
    (folder / "text.nc").write_text("not a file of draws")
    return {
        **{name: getattr(az_swiss, name) for name in az_swiss.__all__},
        **{name: getattr(az_swiss.data, name) for name in az_swiss.data.__all__},
        **{"np": np, "pd": pd, "xr": xr, "rng": rng, "folder": folder},
        **{"spoiled": spoiled, "with_value": with_value, "batches": batches, "merged": merged},
        **{"batch": batches["north"], "listed": list(batches.values()), "container": container},
        "densities": densities,
        "off": moved_off(merged),
        "certified": az_swiss.certify(merged, densities, random_seed=1, progressbar=False),
        "made": az_swiss.merge(batches, kind="inflated", method="consensus"),
        "dropped": az_swiss.merge(batches, kind="inflated", drop="east"),
        "gone": merged.isel(chain=[0, 1, 2, 3]),
        "quiet": {"progressbar": False, "random_seed": 1},
        "Gaussian": Gaussian,
        "WrongSign": WrongSign,
        "WrongShape": WrongShape,
        "NoNumber": NoNumber,
        "NoGradient": NoGradient,
    }


# call, error, words of its message
@pytest.fixture
def unchanged(names):
    """Check after a test that neither the batches nor the merged object were changed."""
    before = {name: copy.deepcopy(names[name]) for name in ("batches", "merged")}
    yield
    for label, batch in before["batches"].items():
        xr.testing.assert_identical(batch, names["batches"][label])
    for name, group in containers.read(before["merged"]).groups.items():
        xr.testing.assert_identical(group, containers.read(names["merged"]).groups[name])


def check_words(words, message):
    """All are in the message, as words of their own: "b" is not in "beta"."""
    missing = [
        word
        for word in words.split(", ")
        if not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", message)
    ]
    assert not missing, f"{missing} not in: {message}"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [pytest.param(*row, id=row[0]) for row in (*MERGE, *AFTER, *DIVIDE)],
)
def test_error_is_clear(names, unchanged, call, error, words):
    with pytest.raises(error) as raised:
        eval(call, dict(names))
    check_words(words, str(raised.value))


@pytest.mark.parametrize(("call", "words"), [pytest.param(*row, id=row[0]) for row in WARNED])
def test_warning_is_clear(names, unchanged, call, words):
    with pytest.warns(az_swiss.MergeWarning) as caught:
        eval(call, dict(names))
    check_words(words, " ".join(str(warning.message) for warning in caught))


def without_warning(call, names):
    with warnings.catch_warnings():
        warnings.simplefilter("error", az_swiss.MergeWarning)
        return eval(call, dict(names))


def assert_moments(found, expected, rtol):
    """By label; each batch has them, so all chains do."""
    for name in ("beta", "tau"):
        for statistic in ("mean", "std"):
            values = getattr(found[name], statistic)(("chain", "draw"))
            wanted = getattr(expected[name], statistic)(("chain", "draw"))
            xr.testing.assert_allclose(*xr.align(values, wanted), rtol=rtol)
        assert found[name].size == expected[name].size


@pytest.mark.parametrize("call", RIGHT)
def test_answer_is_right(names, unchanged, call):
    merged = without_warning(call, names)
    assert_moments(merged["posterior"], names["merged"]["posterior"], rtol=1e-9)


@pytest.mark.parametrize("call", REFINED)
def test_refined_answer_is_right(names, unchanged, call):
    refined = without_warning(call, names)
    assert_moments(refined["posterior"], names["merged"]["posterior"], rtol=1e-6)
    assert refined["swiss_transform"]["taken"].values[1:].any()


@pytest.mark.parametrize("call", CERTIFIED)
def test_right_answer_is_certified(names, unchanged, call):
    certificate = without_warning(call, names)["swiss_certificate"]
    assert certificate.attrs["status"] == "certified"


def test_the_table_is_long_and_covers_every_public_function():
    rows = [row[0] for row in (*MERGE, *AFTER, *DIVIDE)]
    assert len(rows) >= 150
    elsewhere = {"BatchError", "MergeWarning", "inflate", "fractionate"}
    elsewhere |= {"sample", "sample_batches"}
    covered = {name for name in az_swiss.__all__ if any(re.search(rf"\b{name}\(", r) for r in rows)}
    assert covered | elsewhere == set(az_swiss.__all__)

"""A table of bad inputs to every public function: one line each, and what must be said of them.

A row is a call as a hurried user would write it, the type of the error, and words that must be in
its message, in any order. `RIGHT` are calls that look wrong and must give the right answer. The
names that the calls use are made in `names` below. No input may be changed by any of them.
"""

import copy
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr
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
    return containers.build(contents.groups | changed, contents.kind)


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
    container = containers.build({"posterior": batches["south"]}, containers.native_kind())
    container.to_netcdf(folder / "whole.nc")
    content = (folder / "whole.nc").read_bytes()
    (folder / "cut.nc").write_bytes(content[: len(content) // 2])
    (folder / "text.nc").write_text("not a file of draws")
    return {
        **{name: getattr(az_swiss, name) for name in az_swiss.__all__},
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
MERGE = [
    ("merge(None)", TypeError, "takes a list"),
    ("merge(3)", TypeError, "takes a list, int"),
    ("merge([])", ValueError, "at least one batch"),
    ("merge({})", ValueError, "at least one batch"),
    ("merge('b*.nc')", TypeError, "takes a list, str"),
    ("merge(batch)", TypeError, "takes a list, Dataset"),
    ("merge(container)", TypeError, "takes a list, in a list"),
    ("merge([None, None])", ValueError, "batch 0, could not be read"),
    ("merge([batch, None])", ValueError, "batch 1, could not be read"),
    ("merge([batch, 3])", ValueError, "batch 1, could not be read"),
    ("merge({'north': batch, 'south': object()})", ValueError, "south, could not be read"),
    ("merge({'mu': np.zeros((2, 10))})", TypeError, "one dict of arrays, list"),
    ("merge([np.zeros((2, 10)), np.zeros((2, 10))])", ValueError, "batch 0"),
    ("merge({1: batch, '1': listed[1]})", ValueError, "labels must differ"),
    ("merge([batch] * 3, kind='inflated')", ValueError, "batch 0, batch 1, same"),
    ("merge([batch, batch.copy(deep=True)], kind='inflated')", ValueError, "batch 1, same"),
    ("merge([folder / 'none.nc', batch])", ValueError, "none.nc, no file"),
    ("merge([folder / 'cut.nc', batch])", ValueError, "cut.nc, could not be read"),
    ("merge([folder / 'text.nc', batch])", ValueError, "text.nc, could not be read"),
    ("merge([folder, batch])", ValueError, "batch 0, could not be read"),
    ("merge([{'x': rng.normal(size=(1000, 3))} for _ in 'ab'])", ValueError, "chain, draw"),
    ("merge([{'x': rng.normal(size=1000)} for _ in 'ab'])", ValueError, "batch 0, variable x, first two axes are chains and draws"),
    ("merge([{'x': [['a', 'b']]} for _ in 'ab'])", ValueError, "batch 0, x"),
    ("merge([{'x': rng.normal(size=(2, 50)) * 1j} for _ in 'ab'])", ValueError, "x, dtype"),
    ("merge([{'a/b': rng.normal(size=(2, 50))} for _ in 'ab'], kind='inflated')", ValueError, "batch 0, a/b"),
    ("merge([{'batch': rng.normal(size=(2, 50))} for _ in 'ab'])", ValueError, "batch, Rename"),
    ("merge(spoiled(batches, lambda d: d.drop_vars('tau')))", ValueError, "south, tau, var_names"),
    ("merge(spoiled(batches, lambda d: d.assign(more=d['tau'])))", ValueError, "south, more"),
    ("merge(spoiled(batches, lambda d: d.rename(term='name')))", ValueError, "south, beta, name"),
    ("merge({k: b.assign_coords(term=['a', 'a']) for k, b in batches.items()})", ValueError, "beta, 'a', unique"),
    ("merge(spoiled(batches, lambda d: d.assign_coords(term=['a', 'c'])), kind='inflated')", ValueError, "variable beta, north, south, 'b', same labels"),
    ("merge(spoiled(batches, lambda d: d.isel(term=[0])), kind='fractionated')", ValueError, "variable beta, south, 'b', same labels"),
    ("merge([b.assign_coords(term=t) for b, t in zip(listed, ([1, 2], [1, 2], ['1', '2']))], kind='inflated')", ValueError, "variable beta, batch 2, one type"),
    ("merge(spoiled(batches, lambda d: d.isel(chain=0)))", ValueError, "south, chain"),
    ("merge(spoiled(batches, lambda d: d.rename(draw='sample')))", ValueError, "south, draw"),
    ("merge(spoiled(batches, lambda d: d.assign(tau=d['tau'].astype(int))))", ValueError, "south, tau, int64, ~tau"),
    ("merge(spoiled(batches, lambda d: d.assign(tau=d['tau'] > 9)))", ValueError, "south, tau, bool"),
    ("merge(spoiled(batches, lambda d: d.assign(tau=d['tau'].astype(str))))", ValueError, "south, tau"),
    ("merge(spoiled(batches, lambda d: d.assign(tau=d['tau'].astype('datetime64[s]'))))", ValueError, "south, tau"),
    ("merge(spoiled(batches, with_value('tau', (0, 7), np.nan)), kind='inflated')", ValueError, "south, tau, chain 0, draw 7"),
    ("merge(spoiled(batches, with_value('tau', (1, 2), np.inf)), kind='inflated')", ValueError, "south, tau, chain 1, draw 2"),
    ("merge(spoiled(batches, with_value('tau', ..., 2.0)), kind='inflated')", ValueError, "south, tau, same"),
    ("merge(spoiled(batches, lambda d: d.isel(chain=[0], draw=[0])), kind='inflated')", ValueError, "south, 1 draw"),
    ("merge(spoiled(batches, lambda d: d.isel(draw=[])), kind='inflated')", ValueError, "south, 0 draw"),
    ("merge(spoiled(batches, lambda d: d.isel(chain=[0], draw=[0, 1, 2])), kind='inflated')", ValueError, "south, 3 draws, 3 parameters"),
    ("merge(spoiled(batches, lambda d: d[[]]), kind='inflated')", ValueError, "south, no variables"),
    ("merge({k: b.assign(sum=b['beta'].sum('term')) for k, b in batches.items()}, kind='inflated')", ValueError, "linearly dependent, sum, var_names"),
    ("merge({k: b * 1e90 for k, b in batches.items()}, kind='inflated')", ValueError, "north, variable tau, too large, Rescale"),
    ("merge(batches, method='magic')", ValueError, "unknown method, swiss"),
    ("merge(batches, method=None)", ValueError, "unknown method, swiss"),
    ("merge(batches, method=['swiss'])", ValueError, "unknown method"),
    ("merge(batches, kind='tempered')", ValueError, "unknown kind, inflated"),
    ("merge(batches, kind=3)", ValueError, "unknown kind"),
    ("merge(batches, kind='full_prior')", ValueError, "needs draws of the prior"),
    ("merge(batches, kind='inflated', prior=batch)", ValueError, "prior, not, full_prior"),
    ("merge(batches, kind='fractionated', prior=batch)", ValueError, "prior"),
    ("merge(batches, kind='full_prior', prior=3)", ValueError, "prior, could not be read"),
    ("merge(batches, kind='full_prior', prior=batch[['tau']])", ValueError, "prior, beta"),
    ("merge(batches, kind='full_prior', prior=batch * np.nan)", ValueError, "prior, beta, NaN"),
    ("merge(batches, kind='full_prior', prior=batch * 1e-6)", ValueError, "not positive definite, prior"),
    ("merge(batches, powers='three')", TypeError, "powers must be numbers"),
    ("merge(batches, powers=-3)", ValueError, "north, positive"),
    ("merge(batches, powers=0)", ValueError, "north, positive"),
    ("merge(batches, powers=[3, np.nan, 3])", ValueError, "south, nan"),
    ("merge(batches, powers=[3, np.inf, 3])", ValueError, "south, finite"),
    ("merge(batches, powers=[3, 3])", ValueError, "2 powers for 3 batches"),
    ("merge(batches, powers=[[3, 3, 3]])", ValueError, "powers of shape (1, 3) for 3 batches"),
    ("merge(batches, powers=['3', '3', '3'])", TypeError, "powers must be numbers"),
    ("merge(batches, kinds='inflated')", TypeError, "kinds, Did you mean kind=?"),
    ("merge(batches, transform={'tau': 'log'})", TypeError, "Did you mean transforms=?"),
    ("merge(batches, powers={'north': 3})", ValueError, "no power for, south"),
    ("merge(batches, powers={'west': 3, **dict.fromkeys(batches, 3)})", ValueError, "unknown, west"),
    ("merge(batches, powers=2)", ValueError, "counted 1.5 times"),
    ("merge(batches, powers=6)", ValueError, "counted 0.5 times, missing"),
    ("merge(batches, powers={3})", TypeError, "powers"),
    ("merge(batches, powers=True, kind='inflated')", ValueError, "counted 3 times"),
    ("merge(batches, drop='west')", ValueError, "west"),
    ("merge(batches, drop=7)", ValueError, "drop, 7, north"),
    ("merge(batches, drop=list(batches))", ValueError, "drop"),
    ("merge(batches, drop=1.5)", ValueError, "drop, 1.5, north"),
    ("merge(batches, drop=True)", TypeError, "drop"),
    ("merge(batches, var_names=3)", TypeError, "var_names"),
    ("merge(batches, var_names=['beta', 3])", TypeError, "var_names"),
    ("merge(batches, var_names='rho')", ValueError, "rho, beta, tau"),
    ("merge(batches, var_names=[])", ValueError, "var_names, beta"),
    ("merge(batches, var_names=['~beta', '~tau'])", ValueError, "var_names, nothing"),
    ("merge(batches, var_names='be', filter_vars='fuzzy')", ValueError, "filter_vars, like, regex"),
    ("merge(batches, var_names='(', filter_vars='regex')", ValueError, "var_names"),
    ("merge([container, container], group='prior')", ValueError, "batch 0, prior, posterior"),
    ("merge(batches, group=None)", ValueError, "group must be the name"),
    ("merge(batches, covariance='robust')", ValueError, "unknown covariance, shrunk"),
    ("merge(batches, covariance=None)", ValueError, "unknown covariance"),
    ("merge(batches, covariance=np.eye(3))", ValueError, "unknown covariance"),
    ("merge(batches, kind='inflated', covariance=lambda d: np.eye(2))", ValueError, "north, shape"),
    ("merge(batches, kind='inflated', covariance=lambda d: -np.eye(3))", ValueError, "north, positive definite"),
    ("merge(batches, kind='inflated', covariance=lambda d: 'wide')", ValueError, "north, covariance"),
    ("merge(batches, transforms='log')", TypeError, "transforms, mapping"),
    ("merge(batches, transforms={'tau': 'root'})", ValueError, "tau, unknown transform, log"),
    ("merge(batches, transforms={'rho': 'log'})", ValueError, "rho, beta"),
    ("merge(batches, transforms={'beta': 'log'}, kind='inflated')", ValueError, "north, beta, log"),
    ("merge(batches, transforms={'tau': ('interval', 0, 1)}, kind='inflated')", ValueError, "north, tau"),
    ("merge(batches, transforms={'tau': ('interval', 1, 0)})", ValueError, "tau, interval"),
    ("merge(batches, transforms={'tau': ('interval',)})", ValueError, "tau, interval"),
    ("merge(batches, transforms={'beta': 'simplex'}, kind='inflated')", ValueError, "north, beta"),
    ("merge(batches, transforms={'tau': 'simplex'}, kind='inflated')", ValueError, "tau"),
    ("merge(batches, transforms={'beta': 'cholesky'}, kind='inflated')", ValueError, "beta, square"),
    ("merge(batches, transforms={'tau': 3})", ValueError, "tau"),
    ("merge([{'s': np.full((2, 50, 1), .7)} for _ in 'ab'], transforms={'s': 'simplex'}, kind='inflated')", ValueError, "batch 0, s"),
    ("merge([{'C': rng.normal(size=(2, 50, 1, 1))} for _ in 'ab'], transforms={'C': 'cholesky_corr'}, kind='inflated')", ValueError, "batch 0, C"),
    ("merge(batches, model=3)", TypeError, "PyMC model"),
    ("merge(batches, model=Gaussian)", TypeError, "PyMC model"),
    ("merge(batches, bandwidth=2)", TypeError, "bandwidth"),
    ("merge(batches, method='semiparametric', bandwith=2)", TypeError, "bandwith, bandwidth"),
    ("merge(batches, method='semiparametric', bandwidth=-1, kind='inflated')", ValueError, "bandwidth"),
    ("merge(batches, method='semiparametric', bandwidth='wide', kind='inflated')", (TypeError, ValueError), "bandwidth"),
    ("merge(batches, method='consensus', random_seed='one', kind='inflated')", (TypeError, ValueError), "random_seed"),
    ("merge([b.assign_attrs(swiss_kind='plain') for b in listed])", ValueError, "batch 0, plain"),
    ("merge([b.assign_attrs(swiss_power='high') for b in listed])", ValueError, "batch 0, swiss_power"),
    ("merge([b.assign_attrs(swiss_power=-1) for b in listed])", ValueError, "batch 0, swiss_power"),
    ("merge([batch.assign_attrs(swiss_power=3.0), *listed[1:]])", ValueError, "batch 1, swiss_power"),
    ("merge([b.assign_attrs(swiss_power=4.0) for b in listed])", ValueError, "missing"),
    ("merge([b.assign_attrs(swiss_kind='fractionated') for b in listed], kind='inflated')", ValueError, "fractionated, inflated"),
]  # fmt: skip

AFTER = [
    *[
        (f"{name}({bad})", (TypeError, ValueError), words)
        for name in ("report", "summary", "subposteriors", "resample", "plot_batches", "plot_shift", "plot_maps")
        for bad, words in {
            "None": "merge",
            "[merged]": "merge",
            "3": "merge",
            "batch": "merge",
            "container": "merge",
            "'none.nc'": "none.nc",
        }.items()
        if (name, bad) not in (("resample", "container"), ("resample", "batch"))
    ],
    *[
        (f"{name}({bad}, densities, **quiet)", (TypeError, ValueError), words)
        for name in ("refine", "certify")
        for bad, words in {
            "None": "merge",
            "[merged]": "merge",
            "batch": "merge",
            "listed": "merge",
            "container": "merge",
            "dropped": "dropped, east",
        }.items()
    ],
    *[
        (f"{name}(merged, {bad}, **quiet)", (TypeError, ValueError), words)
        for name in ("refine", "certify")
        for bad, words in {
            "None": "densities",
            "3": "densities",
            "[]": "0 elements for 3 batches",
            "[densities['north']]": "1 elements for 3 batches",
            "[densities['north']] * 3": "north, same",
            "{'north': densities['north']}": "south",
            "{**densities, 'west': densities['north']}": "west",
            "{**densities, 'south': None}": "south",
            "{**densities, 'south': NoGradient()}": "south, no method grad_log_prior",
            "{**densities, 'south': WrongShape([0, 0, 9])}": "south, shape",
            "{**densities, 'south': NoNumber([0, 0, 9])}": "south, NaN",
            "{**densities, 'south': Gaussian}": "south, class Normal",
        }.items()
    ],
    ("refine(merged, densities, rounds=0)", ValueError, "rounds"),
    ("refine(merged, densities, rounds=1.5)", ValueError, "rounds"),
    ("refine(merged, densities, points=0)", ValueError, "points"),
    ("refine(merged, densities, points='many')", ValueError, "points"),
    ("refine(merged, densities, executor=3, **quiet)", TypeError, "executor"),
    ("refine(merged, densities, random_seed='one')", (TypeError, ValueError), "random_seed"),
    ("refine(merged, densities, group='prior', **quiet)", ValueError, "prior"),
    ("certify(merged, densities, draws=0)", ValueError, "draws"),
    ("certify(merged, densities, draws=2.5)", ValueError, "draws"),
    ("certify(merged, densities, executor='here')", TypeError, "executor"),
    ("certify(merged, densities, random_seed=-1)", (TypeError, ValueError), "random_seed"),
    ("certify(made, densities, **quiet)", ValueError, "consensus, swiss"),
    ("certify(gone, densities, **quiet)", ValueError, "east"),
    ("certify(merged.sel(term=['a']), densities, **quiet)", ValueError, "beta, b"),
    ("resample(merged)", ValueError, "certify"),
    ("resample(container)", ValueError, "not a merged object"),
    ("resample(certified, draws=0)", ValueError, "draws"),
    ("resample(certified, random_seed='one')", (TypeError, ValueError), "random_seed"),
    ("subposteriors(made)", ValueError, "consensus"),
    ("subposteriors(merged.sel(term=['a']))", ValueError, "beta, b"),
    ("subposteriors(merged, group='prior')", ValueError, "prior"),
    ("report(merged, group='prior')", ValueError, "prior"),
    ("report(gone)", ValueError, "east"),
    ("summary(merged, by='rows')", ValueError, "by, batch, parameter"),
    ("summary(merged, kind='variables')", TypeError, "kind, by=, batch, parameter"),
    ("summary(merged, report=3)", TypeError, "report(merged), int"),
    ("summary(merged, var_names=3)", TypeError, "var_names"),
    ("summary(merged, var_names='rho')", ValueError, "rho, beta"),
    ("summary(merged, by='parameter', var_names='rho')", ValueError, "rho, beta"),
    ("summary(merged, by='parameter', coords={'term': ['c']})", ValueError, "term has no label 'c'; its labels are a"),
    ("summary(merged, by='parameter', coords={'place': ['a']})", ValueError, "place"),
    ("summary(merged, coords='a')", TypeError, "coords"),
    ("summary(merged, round_to='two')", (TypeError, ValueError), "round_to"),
    ("plot_batches(merged, var_names=3)", TypeError, "var_names"),
    ("plot_batches(merged, var_names='rho')", ValueError, "rho, beta"),
    ("plot_batches(merged, coords={'term': ['c']})", ValueError, "term, c"),
    ("plot_batches(merged, reference=3)", ValueError, "reference"),
    ("plot_batches(merged, reference=batch[['tau']])", ValueError, "reference, beta"),
    ("plot_batches(merged, axes='none')", (TypeError, ValueError), "axes"),
    ("plot_shift(merged, ci_prob=2)", ValueError, "ci_prob"),
    ("plot_shift(merged, ci_prob='most')", (TypeError, ValueError), "ci_prob"),
    ("plot_shift(merged, report=3)", TypeError, "report(merged), int"),
    ("plot_maps(merged, var_names='tau')", ValueError, "draws two parameters, only one is selected"),
    ("plot_maps(made)", ValueError, "newly made, swiss"),
    ("plot_compare_methods(3)", TypeError, "compare_methods"),
    ("plot_compare_methods(pd.DataFrame())", ValueError, "compare_methods"),
    ("compare_methods(None)", TypeError, "takes a list, NoneType"),
    ("compare_methods(batches, methods=['magic'], kind='inflated')", ValueError, "magic"),
    ("compare_methods(batches, methods=3, kind='inflated')", TypeError, "methods"),
    ("compare_methods(batches, methods=[], kind='inflated')", ValueError, "at least one method"),
    ("compare_methods(batches, measure='length', kind='inflated')", ValueError, "measure, iad"),
    ("compare_methods(batches, reference=3, methods=['swiss'], kind='inflated')", ValueError, "reference"),
    ("compare_methods(batches, methods=['swiss'], colour='red', kind='inflated')", TypeError, "colour"),
    ("discrepancy(merged, None)", (TypeError, ValueError), "reference"),
    ("discrepancy(None, batch)", (TypeError, ValueError), "merged"),
    ("discrepancy(merged, batch[['tau']])", ValueError, "beta"),
    ("discrepancy(merged, batch.isel(draw=[0]))", ValueError, "reference, draws"),
    ("discrepancy(merged, batch * np.nan)", ValueError, "reference, beta"),
    ("discrepancy(merged, batch.assign_coords(term=['a', 'c']))", ValueError, "beta[b], labels"),
    ("discrepancy(merged, batch, var_names=3)", TypeError, "var_names"),
    ("flatten(None)", (TypeError, ValueError), "could not be read"),
    ("flatten(batch, var_names='rho')", ValueError, "rho, beta"),
    ("flatten(container, group='prior')", ValueError, "prior, posterior"),
    ("unflatten(3, batch)", TypeError, "flatten"),
    ("unflatten(flatten(batch).isel(parameter=[0]), batch)", ValueError, "beta"),
    ("unflatten(flatten(batch), None)", (TypeError, ValueError), "like"),
]  # fmt: skip

DIVIDE = [
    ("partition(None, 3)", TypeError, "Cannot count the rows, NoneType"),
    ("partition(10, 0)", ValueError, "batches"),
    ("partition(10, -1)", ValueError, "batches"),
    ("partition(10, 2.5)", TypeError, "batches"),
    ("partition(10, '2')", TypeError, "batches"),
    ("partition(10, True)", TypeError, "batches"),
    ("partition(2, 3)", ValueError, "3 batches, only 2 rows"),
    ("partition(0, 1)", ValueError, "no rows to divide"),
    ("partition(pd.DataFrame({'x': []}), 1)", ValueError, "no rows to divide"),
    ("partition(-5, 1)", ValueError, "no rows to divide"),
    ("partition(10.5, 2)", TypeError, "Cannot count the rows, float"),
    ("partition('ten rows', 2)", TypeError, "Cannot count the rows, str"),
    ("partition({'x': [1, 2], 'y': [1]}, 2)", ValueError, "same number of rows, 'x': 2, 'y': 1"),
    ("partition({}, 2)", ValueError, "same number of rows, got none"),
    ("partition(4, 2, groups=['a', 'b'])", ValueError, "groups, expected shape (4, got (2"),
    ("partition(4, 3, groups=list('aabb'))", ValueError, "2 groups, batches"),
    ("partition(4, 2, groups=['a', None, 'b', 'b'])", ValueError, "groups, missing"),
    ("partition(pd.DataFrame({'x': [1, 2]}), 2, groups='site')", ValueError, "site, x"),
    ("partition(4, 2, groups=list('aabb'), stratify=list('xyzz'))", ValueError, "stratify"),
    ("partition(4, 2, stratify=[1, 2])", ValueError, "stratify, expected shape (4, got (2"),
    ("partition(4, 2, random_seed='one')", (TypeError, ValueError), "random_seed"),
    ("partition(4, 2, random_seed=-1)", (TypeError, ValueError), "random_seed"),
]  # fmt: skip


# call, words of the warning; what comes back is right, or the merge as it was
WARNED = [
    ("merge(batches)", "taken as \"inflated\", full_prior"),
    ("merge(spoiled(batches, lambda d: d.assign_coords(term=['y', 'z'])), kind='inflated')", "left out, beta"),
    ("merge(spoiled(batches, lambda d: d.isel(draw=slice(50))), kind='inflated')", "50 to 200 draws"),
    ("merge([{'x': rng.normal(size=(2, 20, 30))} for _ in 'ab'], kind='inflated', covariance='shrunk')", "shrunk, parameters"),
    ("refine(merged, {**densities, 'south': WrongSign([0, 0, 9])}, **quiet)", "merge as it was, grad_log_likelihood, south"),
    ("certify(merged, {**densities, 'south': Gaussian([5, 5, 5])}, **quiet)", "not certified, south"),
    ("resample(certified, random_seed=1)", "certified"),
]  # fmt: skip

# a call that looks wrong, and must give the moments of the plain merge without a warning
RIGHT = [
    "merge(batches, kind='inflated', powers=3)",
    "merge(batches, powers=[3, 3, 3])",
    "merge(batches, powers=pd.Series([3, 3, 3], list(batches)))",
    "merge(batches, powers={'south': 3, 'east': 3, 'north': 3})",
    "merge({k: b[['tau', 'beta']] for k, b in batches.items()}, kind='inflated')",
    "merge({k: b.transpose() for k, b in batches.items()}, kind='inflated')",
    "merge({k: b.transpose('term', 'draw', 'chain') for k, b in batches.items()}, kind='inflated')",
    "merge(spoiled(batches, lambda d: d.sel(term=['b', 'a'])), kind='inflated')",
    "merge(batches, kind='inflated', var_names=['tau', 'beta'])",
    "merge(batches, kind='inflated', transforms={})",
    "merge(batches, kind='inflated', transforms={'tau': None})",
    "merge(batches, kind='inflated', drop=[])",
    "merge(dict(reversed(batches.items())), kind='inflated')",
    "merge(subposteriors(merged))",
]  # fmt: skip

# the same of a merge that is off and must be mended
REFINED = [
    "refine(off, densities, **quiet)",
    "refine(off, list(densities.values()), **quiet)",
    "refine(off, dict(reversed(densities.items())), **quiet)",
    "refine(off.isel(draw=slice(None, None, -1)), densities, **quiet)",
    "refine(off.sel(term=['b', 'a']), densities, **quiet)",
]  # fmt: skip

# must be certified, as the plain call is
CERTIFIED = [
    "certify(merged, dict(reversed(densities.items())), **quiet)",
    "certify(merged.isel(draw=slice(None, None, -1)), densities, **quiet)",
    "certify(merged.sel(term=['b', 'a']), densities, **quiet)",
    "certify(refine(off, densities, **quiet), densities, **quiet)",
]  # fmt: skip


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
    elsewhere = {"BatchError", "MergeWarning", "inflate", "fractionate", "sample_batches"}
    covered = {name for name in az_swiss.__all__ if any(re.search(rf"\b{name}\(", r) for r in rows)}
    assert covered | elsewhere == set(az_swiss.__all__)

"""Merged objects that their user has reordered, renamed, selected from or cut."""

import arviz as az
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import arviz_swiss as az_swiss
from arviz_swiss.data import containers

TRANSFORMS = {"s": "log", "p": "simplex"}
COORDS = {"g": ["a", "b", "c"], "h": [0, 1, 2], "k": ["x", "y", "z"]}
SIZES = np.outer([1.0, 10.0, 100.0], [1.0, 2.0, 4.0])
FREE = 14
NAMES = ("m", "s", "p")


class Gaussian:
    """A batch's density in the space of the merge, with a wide Gaussian prior that all share."""

    def __init__(self, mean, precision):
        self.mean, self.precision = mean, precision

    def log_prior(self, x):
        return -0.5e-4 * np.sum(x**2, axis=1)

    def grad_log_prior(self, x):
        return -1e-4 * x

    def log_likelihood(self, x):
        return -0.5 * np.sum((x - self.mean) @ self.precision * (x - self.mean), axis=1)

    def grad_log_likelihood(self, x):
        return -(x - self.mean) @ self.precision


def to_dataset(rows):
    """Return vectors in the space of the merge as draws of a matrix, scales and a simplex."""
    shape = rows.shape[:2]
    ratios = np.concatenate([rows[..., 12:], np.zeros((*shape, 1))], axis=-1)
    return xr.Dataset(
        {
            "m": (("chain", "draw", "g", "h"), rows[..., :9].reshape(*shape, 3, 3)),
            "s": (("chain", "draw", "g"), np.exp(rows[..., 9:12])),
            "p": (("chain", "draw", "k"), np.exp(ratios) / np.exp(ratios).sum(-1, keepdims=True)),
        },
        coords={**COORDS, "chain": np.arange(shape[0]), "draw": np.arange(shape[1])},
    )


@pytest.fixture(scope="module")
def batches(exact_draws, random_covariance):
    """Return three inflated batches and their densities."""
    rng = np.random.default_rng(1)
    units = np.concatenate([SIZES.ravel(), np.ones(5)])
    datasets, densities = {}, {}
    for label in ("north", "south", "west"):
        covariance = random_covariance(rng, FREE) * units * units[:, None] * 0.2
        likelihood = np.linalg.inv(covariance) / 3
        mean = 0.3 * units * rng.standard_normal(FREE)
        target = np.linalg.inv(3 * likelihood + 1e-4 * np.eye(FREE))
        centre = target @ (3 * likelihood @ mean)
        datasets[label] = to_dataset(exact_draws(rng, centre, target, chains=2, draws=40))
        densities[label] = Gaussian(mean, likelihood)
    return datasets, densities


@pytest.fixture(scope="module")
def merged(batches):
    # a few draws for so many parameters, on purpose
    with pytest.warns(az_swiss.MergeWarning):
        return az_swiss.merge(batches[0], kind="inflated", transforms=TRANSFORMS)


def groups_of(container):
    return dict(containers.read(container).groups)


def changed(container, **functions):
    """Return the container with functions applied to some groups."""
    groups = groups_of(container)
    groups |= {name: change(groups[name]) for name, change in functions.items()}
    return containers.build(groups)


def shuffled(dataset, rng, dims):
    """Return a dataset with its dimensions, and the elements along them, in a random order."""
    dims = [dim for dim in dims if dim in dataset.dims]
    orders = {dim: rng.permutation(dataset.sizes[dim]) for dim in dims}
    return dataset.isel(orders).transpose(*rng.permutation(list(dataset.dims)))


def assert_same(found, expected, names=NAMES, rtol=1e-12):
    for name in names:
        wanted = expected[name]
        aligned = found[name].sel({dim: wanted.get_index(dim) for dim in wanted.dims})
        scale = float(abs(wanted).max())
        np.testing.assert_allclose(
            aligned.transpose(*wanted.dims), wanted, rtol=rtol, atol=rtol * scale, err_msg=name
        )


@st.composite
def reorderings(draw):
    return {
        "seed": draw(st.integers(0, 2**32 - 1)),
        "rename": draw(st.booleans()),
        "chains": draw(st.sampled_from([[0, 1, 2, 3, 4, 5], [0, 2, 3, 5], [1, 2, 4]])),
        "step": draw(st.sampled_from([1, 2])),
    }


def reordered(container, choice):
    """Return a selection of draws as it is, and the same in a random order."""
    rng = np.random.default_rng(choice["seed"])

    def select(dataset):
        return dataset.sel(chain=choice["chains"]).isel(draw=slice(None, None, choice["step"]))

    def shuffle(dataset):
        mixed = shuffled(dataset, rng, ("chain", "draw", "g", "h", "k", "k_simplex"))
        return mixed[rng.permutation(list(mixed.data_vars)).tolist()]

    both = ("posterior", "unconstrained_posterior")
    plain = changed(container, **dict.fromkeys(both, select))
    mixed = changed(plain, **dict.fromkeys(both, shuffle))
    mixed = changed(
        mixed,
        swiss_transform=lambda maps: maps.transpose(*rng.permutation(list(maps.dims))).isel(
            parameter_bis=rng.permutation(FREE)
        ),
        swiss_diagnostics=lambda found: found.isel(parameter=rng.permutation(FREE)),
    )
    if choice["rename"]:
        mixed = changed(mixed, posterior=lambda posterior: posterior.rename(h="height"))
    return plain, mixed


@settings(deadline=None, max_examples=25)
@given(reorderings())
def test_any_order_is_undone_by_label(merged, batches, choice):
    plain, mixed = reordered(merged, choice)
    expected, found = az_swiss.subposteriors(plain), az_swiss.subposteriors(mixed)
    assert list(found) == list(expected)
    for label in expected:
        before = groups_of(found[label])["posterior"]
        if choice["rename"]:
            before = before.rename(height="h")
        assert_same(before, groups_of(expected[label])["posterior"])
        if choice["chains"] == [0, 1, 2, 3, 4, 5] and choice["step"] == 1:
            assert_same(before, batches[0][label], rtol=1e-9)


@settings(deadline=None, max_examples=10)
@given(reorderings())
@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_any_order_is_refined_and_certified_by_label(merged, batches, choice):
    plain, mixed = reordered(merged, choice)
    options = {"densities": batches[1], "random_seed": 1, "progressbar": False}
    expected, found = (
        groups_of(az_swiss.refine(one, points=60, rounds=2, **options)) for one in (plain, mixed)
    )
    before = groups_of(mixed)["posterior"]
    assert found["posterior"]["m"].dims == before["m"].dims
    assert found["posterior"].get_index("g").equals(before.get_index("g"))
    if choice["rename"]:
        found["posterior"] = found["posterior"].rename(height="h")
    assert_same(found["posterior"], expected["posterior"])
    assert_same(
        found["unconstrained_posterior"], expected["unconstrained_posterior"], names=("s", "p")
    )
    if choice["chains"] == [1, 2, 4]:
        expected, found = (
            groups_of(az_swiss.certify(one, draws=40, **options))["swiss_certificate"]
            for one in (plain, mixed)
        )
        assert_same(found, expected, ["log_weight", "mean", "sd", "batch_khat"], rtol=1e-9)


@settings(deadline=None, max_examples=3)
@given(reorderings())
@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_any_order_is_told_the_same_about(merged, choice):
    plain, mixed = reordered(merged, choice)
    assert str(az_swiss.report(mixed)) == str(az_swiss.report(plain))
    for rows in ("batch", "parameter"):
        expected, found = (az_swiss.summary(one, by=rows) for one in (plain, mixed))
        numbers = expected.select_dtypes("number").columns
        np.testing.assert_allclose(
            found.loc[expected.index, numbers], expected[numbers], rtol=1e-9, atol=1e-12
        )


def test_issue_18(batches, merged):
    """The scales 1, 10 and 100 come back, and refined draws keep theirs."""
    turned = changed(
        merged,
        posterior=lambda one: one.sel(g=["c", "a", "b"]).transpose("h", "g", ...),
        unconstrained_posterior=lambda one: one.sel(g=["b", "c", "a"]),
    )
    refined = az_swiss.refine(turned, batches[1], rounds=1, random_seed=1, progressbar=False)
    precision = sum(d.precision for d in batches[1].values()) + 1e-4 * np.eye(FREE)
    sds = np.sqrt(np.diag(np.linalg.inv(precision)))[:9].reshape(3, 3)
    draws = groups_of(refined)["posterior"]["m"].sel(g=["a", "b", "c"])
    found = draws.transpose("g", "h", ...).std(("chain", "draw")).values
    # the precision is exact in one round; draws have each batch's own moments
    np.testing.assert_allclose(found, sds, rtol=0.02)


def test_any_order_survives_a_file(merged, tmp_path):
    choice = {"seed": 3, "rename": False, "chains": [0, 1, 2, 3, 4, 5], "step": 1}
    _, mixed = reordered(merged, choice)
    mixed.to_netcdf(str(tmp_path / "mixed.nc"))
    found = az_swiss.subposteriors(az.from_netcdf(str(tmp_path / "mixed.nc")))
    for label, expected in az_swiss.subposteriors(merged).items():
        assert_same(groups_of(found[label])["posterior"], groups_of(expected)["posterior"])


CUTS = {
    "elements": (
        {"posterior": lambda one: one.sel(g=["c", "a"])},
        r'"posterior", variable m.*without m\[b, 0\], m\[b, 1\], m\[b, 2\]',
    ),
    "one element": (
        {"posterior": lambda one: one.sel(g="b")},
        r"variable m: dimensions \('h',\), but \('g', 'h'\) when it was merged",
    ),
    "elements twice": (
        {"posterior": lambda one: one.sel(g=["a", "a", "b", "c"])},
        r"variable m.*more than once with m\[a, 0\]",
    ),
    "other labels": (
        {"posterior": lambda one: one.assign_coords(g=["a", "b", "d"])},
        r"variable m.*without m\[c, 0\].*with the unknown m\[d, 0\]",
    ),
    "elements of the image": (
        {"unconstrained_posterior": lambda one: one.isel(k_simplex=[1])},
        r'"unconstrained_posterior", variable p.*without p\[0\]',
    ),
    "a variable": (
        {"posterior": lambda one: one.drop_vars("s")},
        'group "posterior" has no variable s any more, which was merged',
    ),
    "labels and names": (
        {"posterior": lambda one: one.assign_coords(g=[0, 1, 2]).rename(g="row", h="column")},
        r"variable m: the labels have changed, from m\[a, 0\].*Give the elements their labels back",
    ),
    "chains of one group": (
        {"unconstrained_posterior": lambda one: one.sel(chain=[0, 1])},
        'group "unconstrained_posterior" lacks draws that the merged draws have, along chain',
    ),
    "other draws": (
        {"posterior": lambda one: one.isel(draw=slice(20, None)).assign_coords(draw=range(20))},
        'group "unconstrained_posterior" holds other draws',
    ),
    "labels of draws": (
        {"posterior": lambda one: one.isel(draw=slice(None, None, -1)).drop_vars("draw")},
        'group "unconstrained_posterior" holds other draws',
    ),
    "labels of chains": (
        {"posterior": lambda one: one.isel(chain=slice(None, None, -1)).drop_vars("chain")},
        'group "unconstrained_posterior" holds other draws',
    ),
    "values": (
        {"posterior": lambda one: one.assign(s=1000 * one["s"])},
        'group "unconstrained_posterior" holds other draws.*change values in the result only',
    ),
    "all draws": (
        {"posterior": lambda one: one.isel(draw=[])},
        'group "posterior" has no draws any more',
    ),
    "the chains": (
        {"posterior": lambda one: one.isel(chain=0)},
        'group "posterior" has no dimension chain any more',
    ),
    "owners": (
        {"posterior": lambda one: one.drop_vars("batch")},
        'group "posterior" has no coordinate batch any more',
    ),
    "maps of a batch": (
        {"swiss_transform": lambda one: one.sel(batch=["north", "west"])},
        "chains of batch south, which group",
    ),
    "parameters": (
        {"swiss_transform": lambda one: one.isel(parameter=slice(1, None))},
        '"swiss_transform" has other labels along parameter_bis|"swiss_diagnostics" has other',
    ),
    "both parameters": (
        {
            "swiss_transform": lambda one: one.isel(
                parameter=slice(1, None), parameter_bis=slice(1, None)
            ),
            "swiss_diagnostics": lambda one: one.isel(parameter=slice(1, None)),
        },
        r'"swiss_transform" has no parameter m\[a, 0\] any more, which varies',
    ),
}


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("function", ["refine", "certify", "subposteriors", "report", "plot_maps"])
def test_what_was_cut_is_named(merged, batches, name, function):
    functions, message = CUTS[name]
    arguments = (batches[1],) if function in ("refine", "certify") else ()
    with pytest.raises(ValueError, match=message):
        getattr(az_swiss, function)(changed(merged, **functions), *arguments)


def test_draws_numbered_anew_alike_are_taken(merged):
    """The advice: of all groups alike."""
    both = ("posterior", "unconstrained_posterior")
    last = changed(merged, **dict.fromkeys(both, lambda one: one.isel(draw=slice(20, None))))
    anew = changed(last, **dict.fromkeys(both, lambda one: one.assign_coords(draw=range(20))))
    found = az_swiss.subposteriors(anew)
    for label, expected in az_swiss.subposteriors(merged).items():
        kept = groups_of(expected)["posterior"].isel(draw=slice(20, None))
        assert_same(groups_of(found[label])["posterior"], kept.assign_coords(draw=range(20)))


class Cubed:
    """A transform of the user's own, which a merged object cannot hold."""

    def forward(self, values):
        return np.cbrt(values)

    def backward(self, values):
        return values**3


def test_other_draws_are_found_through_own_transforms():
    rng = np.random.default_rng(4)
    own = {"x": Cubed()}
    batches = [{"x": rng.normal(8, 0.1, (2, 100))} for _ in range(2)]
    merged = az_swiss.merge(batches, kind="inflated", transforms=own)
    cut = changed(merged, posterior=lambda one: one.roll(draw=7))
    az_swiss.subposteriors(merged, transforms=own)
    with pytest.raises(ValueError, match="holds other draws"):
        az_swiss.subposteriors(cut, transforms=own)


def test_the_unconstrained_draws_are_missed(merged):
    groups = groups_of(merged)
    del groups["unconstrained_posterior"]
    with pytest.raises(ValueError, match='no group "unconstrained_posterior" any more'):
        az_swiss.subposteriors(containers.build(groups))


def test_renamed_dims_that_labels_do_not_tell_apart():
    rng = np.random.default_rng(0)
    draws = [{"m": rng.standard_normal((2, 100, 2, 2))} for _ in range(3)]
    merged = az_swiss.merge(draws, kind="inflated")
    one = changed(merged, posterior=lambda d: d.rename(m_dim_0="row").transpose("m_dim_1", ...))
    back = groups_of(az_swiss.subposteriors(one)["b1"])["posterior"]["m"]
    np.testing.assert_allclose(back.transpose("chain", "draw", "row", ...), draws[1]["m"])
    both = changed(merged, posterior=lambda d: d.rename(m_dim_0="row", m_dim_1="column"))
    with pytest.raises(ValueError, match=r"have become \('row', 'column'\).*which is which"):
        az_swiss.subposteriors(both)


def test_a_batch_without_chains(merged, batches):
    """Functions that need a batch's own draws name it; the others go on."""
    left = changed(
        merged,
        posterior=lambda one: one.sel(chain=[0, 1, 4, 5]),
        unconstrained_posterior=lambda one: one.sel(chain=[0, 1, 4, 5]),
    )
    gone = r'batch 1 \("south"\): none of its chains is left'
    for function in (az_swiss.report, az_swiss.summary, az_swiss.plot_maps):
        with pytest.raises(ValueError, match=gone):
            function(left)
    with pytest.raises(ValueError, match=gone):
        az_swiss.certify(left, batches[1])
    assert list(az_swiss.subposteriors(left)) == ["north", "west"]
    assert az_swiss.plot_shift(left, var_names="s", backend="none").viz["plot"].size == 3
    drawn = az_swiss.plot_batches(left, var_names="s", backend="none")
    assert drawn.data["batch"].values.tolist() == ["north", "west"]
    refined = groups_of(az_swiss.refine(left, batches[1], random_seed=1, progressbar=False))
    exact = sum(d.precision for d in batches[1].values()) + 1e-4 * np.eye(FREE)
    np.testing.assert_allclose(
        np.linalg.inv(refined["swiss_transform"]["pooled_covariance"]), exact, rtol=1e-5, atol=1e-7
    )
    # the advice: look at the merged object before selecting chains
    report = az_swiss.report(merged)
    assert az_swiss.summary(left, report=report).index.tolist() == ["north", "south", "west"]

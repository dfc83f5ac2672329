"""Bad input to merge: every error names batch and variable and says what to do."""

import numpy as np
import pytest
import xarray as xr

import arviz_swiss as az_swiss
from arviz_swiss.data import containers

pytestmark = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")


@pytest.fixture
def batches():
    """Three good batches, for a test to spoil the second, "south"."""
    rng = np.random.default_rng(0)
    return {
        label: xr.Dataset(
            {
                "beta": (("chain", "draw", "term"), rng.standard_normal((2, 50, 2))),
                "tau": (("chain", "draw"), rng.gamma(5, size=(2, 50))),
            },
            coords={"chain": [0, 1], "draw": np.arange(50), "term": ["a", "b"]},
        )
        for label in ("north", "south", "east")
    }


def spoil(batches, change):
    return {**batches, "south": change(batches["south"].copy(deep=True))}


def set_value(name, where, value):
    def change(dataset):
        dataset[name].values[where] = value
        return dataset

    return change


def dependent(dataset):
    return dataset.assign(total=dataset["beta"].sum("term"))


SPOILED = {
    "missing variable": (lambda d: d.drop_vars("tau"), r'batch 1 \("south"\) has no variable tau'),
    "extra variable": (
        lambda d: d.assign(more=d["tau"] ** 2),
        r'batch 0 \("north"\) has no variable more, which batch 1 \("south"\) has',
    ),
    "renamed dimension": (
        lambda d: d.rename(term="name"),
        r'batch 1 \("south"\), variable beta: dimensions .*name.*term.* in batch 0 \("north"\)',
    ),
    "missing dimension": (
        lambda d: d.assign(beta=d["beta"].isel(term=0, drop=True)),
        r'batch 1 \("south"\), variable beta: dimensions',
    ),
    "no chain": (lambda d: d.isel(chain=0), r'"south"\): group "posterior" has no dimension chain'),
    "integers": (
        lambda d: d.assign(tau=d["tau"].astype(int)),
        r'"south"\), variable tau: dtype int.*var_names="~tau"',
    ),
    "booleans": (lambda d: d.assign(tau=d["tau"] > 1), r'"south"\), variable tau: dtype bool'),
    "nan": (
        set_value("beta", (1, slice(3, 5), 0), np.nan),
        r'"south"\), variable beta: 2 of 100 draws are NaN or infinite; the first is at chain 1, '
        "draw 3",
    ),
    "infinite": (
        set_value("tau", (0, 7), np.inf),
        r'"south"\), variable tau: 1 of 100 draws are NaN or infinite; the first is at chain 0',
    ),
    "one draw": (lambda d: d.isel(chain=[0], draw=[0]), r'"south"\): 1 draw, but a covariance'),
    "few draws": (
        lambda d: d.isel(chain=[0], draw=[0, 1, 2]),
        r'"south"\): 3 draws for 3 parameters, 2 of beta: the covariance is singular.*"~beta"',
    ),
    "constant here only": (
        set_value("beta", (..., 1), 2.0),
        r'"south"\), variable beta\[b\]: all draws are the same, but not in batch 0 \("north"\)',
    ),
    "empty group": (lambda d: d[[]], r'"south"\): group "posterior" holds no variables'),
}


@pytest.mark.parametrize("draws", [0, 1])
def test_too_few_draws_in_every_batch(batches, draws):
    few = {label: batch.isel(chain=[0], draw=slice(draws)) for label, batch in batches.items()}
    with pytest.raises(ValueError, match=rf'batch 0 \("north"\): {draws} draw, but a covariance'):
        az_swiss.merge(few)


def test_labels_that_occur_twice(batches):
    twice = {label: batch.assign_coords(term=["a", "a"]) for label, batch in batches.items()}
    with pytest.raises(ValueError, match=r"variable beta: the label 'a' of dimension term occurs"):
        az_swiss.merge(twice)


def test_draws_of_the_prior_are_not_called_a_batch(batches):
    prior = batches["north"].copy(deep=True)
    prior["tau"].values[0, 3] = np.nan
    with pytest.raises(ValueError, match=r"^prior, variable tau: 1 of 100 draws are NaN"):
        az_swiss.merge(batches, kind="full_prior", prior=prior)


@pytest.mark.parametrize(
    ("argument", "error", "message"),
    [
        ({"transforms": "log"}, TypeError, "transforms must be a mapping .*got 'log'"),
        ({"covariance": np.eye(3)}, ValueError, "unknown covariance"),
        ({"method": ["swiss"]}, ValueError, "unknown method"),
    ],
)
def test_arguments_of_another_sort(batches, argument, error, message):
    with pytest.raises(error, match=message):
        az_swiss.merge(batches, **argument)


@pytest.mark.parametrize("case", SPOILED)
def test_spoiled_batch(batches, case):
    change, message = SPOILED[case]
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(spoil(batches, change))


def test_constant_in_the_first_batch_only(batches):
    batches["north"]["tau"].values[:] = 1.0
    message = r'batch 0 \("north"\), variable tau: all draws are the same, but not in batch 1'
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(batches)


def test_different_constants(batches):
    for value, batch in enumerate(batches.values()):
        batch["tau"].values[:] = value
    with pytest.raises(ValueError, match=r'"south"\), variable tau: constant at 1, but at 0 in'):
        az_swiss.merge(batches)


def test_nothing_varies(batches):
    fixed = {label: batch * 0 + 1.0 for label, batch in batches.items()}
    with pytest.raises(ValueError, match=r'batch 0 \("north"\): no parameter varies'):
        az_swiss.merge(fixed)


def test_linearly_dependent_parameters_are_named(batches):
    dependents = {label: dependent(batch) for label, batch in batches.items()}
    message = (
        r'batch 0 \("north"\): beta\[a\], beta\[b\], total are linearly dependent.*If one of beta, '
        'total is deterministic.*var_names="~total"'
    )
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(dependents)
    merged = az_swiss.merge(dependents, var_names="~total", kind="inflated")
    assert list(containers.read(merged).groups["posterior"].data_vars) == ["beta", "tau"]


def test_dependence_in_single_precision_is_found(batches):
    single = {label: dependent(batch).astype(np.float32) for label, batch in batches.items()}
    with pytest.raises(ValueError, match="linearly dependent"):
        az_swiss.merge(single)


@pytest.mark.parametrize(
    ("powers", "message"),
    [
        (-3, r'batch 0 \("north"\): power -3, but a power must be positive'),
        ([3, 0, 3], r'batch 1 \("south"\): power 0, but'),
        ([3, 3], "2 powers for 3 batches"),
        ({"north": 3, "south": 3}, r'no power for batch 2 \("east"\)'),
        ({"north": 3, "south": 3, "east": 3, "west": 3}, "unknown batches west"),
        (2, "prior would be counted 1.5 times instead of once"),
        ([3, 3, np.nan], r'"east"\): power nan'),
    ],
)
def test_bad_powers(batches, powers, message):
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(batches, powers=powers)


def test_powers_that_are_no_numbers(batches):
    with pytest.raises(TypeError, match="powers must be numbers, got 'many'"):
        az_swiss.merge(batches, powers="many")


def test_full_prior_needs_prior_draws(batches):
    with pytest.raises(ValueError, match=r'counted 3 times.*"full_prior" needs draws of the prior'):
        az_swiss.merge(batches, kind="full_prior")


def test_prior_without_the_variable(batches):
    prior = {"prior": {"tau": np.random.default_rng(0).gamma(1, size=(1, 100))}}
    with pytest.raises(ValueError, match='group "prior" has no variable beta'):
        az_swiss.merge(batches, kind="full_prior", prior=prior)


def test_prior_that_outweighs_the_batches(batches):
    narrow = {label: 0.01 * batch for label, batch in batches.items()}
    prior = narrow["north"] * 0.01
    with pytest.raises(ValueError, match="pooled precision is not positive definite"):
        az_swiss.merge(narrow, kind="full_prior", prior=prior)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"method": "magic"}, r"""unknown method 'magic'. Valid methods are "swiss\""""),
        (
            {"kind": "tempered"},
            r"""unknown kind 'tempered'.*"inflated", "fractionated", "full_pr""",
        ),
        ({"covariance": "robust"}, r"""unknown covariance 'robust'.*"sample", "corrected\""""),
        ({"transforms": {"tau": "root"}}, r"""variable tau: unknown transform 'root'.*"log\""""),
        ({"transforms": {"rho": "log"}}, "transforms name rho, but the merged variables are beta"),
        ({"var_names": "rho"}, "no rho; the variables are beta, tau"),
        ({"group": "prior"}, r'batch 0 \("north"\).* no group "prior"'),
    ],
)
def test_unknown_choices_list_the_valid_ones(batches, to_container, argument, message):
    wrapped = {label: to_container(batch) for label, batch in batches.items()}
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(wrapped, **argument)


def test_draw_outside_a_transforms_support(batches):
    message = r'"north"\), variable beta: .* draws are NaN or infinite, or outside .* "log"'
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(batches, transforms={"beta": "log"})


def test_callable_covariance_of_the_wrong_shape(batches):
    with pytest.raises(ValueError, match=r'"north"\): the covariance function returned shape'):
        az_swiss.merge(batches, covariance=lambda draws: np.eye(2))


def test_mixed_containers(batches):
    mixed = {label: containers.build({"posterior": b}, "DataTree") for label, b in batches.items()}
    if containers.native_container() == "DataTree":
        pytest.skip("there is no InferenceData to mix with but in ArviZ 0.x")
    mixed["south"] = containers.build({"posterior": batches["south"]}, "InferenceData")
    message = r'batch 0 \("north"\) is DataTree, batch 1 \("south"\) is InferenceData'
    with pytest.raises(TypeError, match=message):
        az_swiss.merge(mixed)


@pytest.mark.parametrize(
    ("nothing", "error"), [([], ValueError), ({}, ValueError), (3, TypeError), (None, TypeError)]
)
def test_nothing_to_merge(nothing, error):
    with pytest.raises(error, match=r"merge (needs at least one batch|takes a list)"):
        az_swiss.merge(nothing)


def test_one_object_instead_of_a_list(batches, to_container):
    for one in (batches["north"], to_container(batches["north"]), "file.nc"):
        with pytest.raises(TypeError, match=r"takes a list, or a mapping.*got one"):
            az_swiss.merge(one)


def test_one_dict_of_arrays_instead_of_a_list():
    with pytest.raises(TypeError, match="one dict of arrays, which is one batch"):
        az_swiss.merge({"mu": np.zeros((2, 10)), "tau": np.ones((2, 10))})


def test_object_that_is_no_batch(batches):
    with pytest.raises(ValueError, match=r'batch 1 \("south"\) could not be read'):
        az_swiss.merge({**batches, "south": object()})


def test_missing_and_truncated_files(batches, tmp_path, to_container):
    path = tmp_path / "south.nc"
    with pytest.raises(ValueError, match=r'batch 1 \("south"\), file .*south.nc could not be read'):
        az_swiss.merge({**batches, "south": path})
    to_container(batches["south"]).to_netcdf(path)
    content = path.read_bytes()
    for length in (0, 100, len(content) // 2):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r'batch 1 \("south"\).*could not be read'):
            az_swiss.merge({**batches, "south": path})


def test_kind_that_contradicts_the_attributes(batches):
    said = [b.assign_attrs(swiss_kind="fractionated") for b in batches.values()]
    with pytest.raises(ValueError, match=r'kind="inflated", but .* sampled as "fractionated"'):
        az_swiss.merge(said, kind="inflated")
    mixed = [said[0].assign_attrs(swiss_kind="inflated"), *said[1:]]
    with pytest.raises(ValueError, match="batches of different kinds"):
        az_swiss.merge(mixed)


def test_power_known_for_some_batches_only(batches):
    batches["north"].attrs["swiss_power"] = 3.0
    with pytest.raises(
        ValueError,
        match=r'"south"\) does not say what it was sampled from, batch 0 \("north"\) does',
    ):
        az_swiss.merge(batches)


def test_the_name_batch_is_taken():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(2, 50, 3))
    named = xr.Dataset({"x": (("chain", "draw", "batch"), draws)}, {"batch": list("abc")})
    labelled = xr.Dataset(
        {"x": (("chain", "draw", "k"), draws)}, {"k": [0, 1, 2], "batch": ("k", list("abc"))}
    )
    for bad in (named, labelled, {"batch": draws[..., 0]}):
        with pytest.raises(ValueError, match=r"batch 0.*merge calls the batches .*Rename it"):
            az_swiss.merge([bad, bad])
    pairs = [[{"x": rng.normal(size=(2, 50))} for _ in range(2)] for _ in range(2)]
    merged = [az_swiss.merge(pair, kind="inflated") for pair in pairs]
    assert az_swiss.merge(merged, kind="inflated")["posterior"].sizes["chain"] == 8


@pytest.mark.parametrize("swapped", [False, True])
def test_a_parameter_of_a_later_batch_alone_is_not_lost(swapped):
    rng = np.random.default_rng(0)

    def batch(*sampled):
        names = (*sampled, "twice")
        data = {name: (("chain", "draw"), rng.normal(size=(2, 100))) for name in names}
        return xr.Dataset(data, attrs={"sampled_variables": list(sampled)})

    batches = [batch("mu", "beta"), batch("mu", "beta", "tau")]
    with pytest.raises(ValueError, match=r"has no variable tau, which batch . .*has"):
        az_swiss.merge(batches[::-1] if swapped else batches)


class Foreign:
    """An array of another library."""

    def __array__(self, dtype=None, copy=None):
        return np.zeros((2, 100))


def test_a_dict_of_foreign_arrays_is_one_batch():
    with pytest.raises(TypeError, match="one dict of arrays, which is one batch"):
        az_swiss.merge({"mu": Foreign(), "tau": Foreign()})


def test_variables_without_elements_are_no_obstacle():
    rng = np.random.default_rng(0)
    batches = [{"x": rng.normal(size=(2, 50)), "none": np.zeros((2, 50, 0))} for _ in range(2)]
    assert az_swiss.merge(batches, kind="inflated")["posterior"]["none"].shape == (4, 50, 0)


@pytest.mark.parametrize("estimate", [lambda d: -np.cov(d.T), lambda d: np.zeros((2, 2))])
def test_callable_covariance_that_is_none(estimate):
    rng = np.random.default_rng(0)
    batches = [{"x": rng.normal(size=(2, 50, 2))} for _ in range(2)]
    with pytest.raises(ValueError, match=r"batch 0.*not positive definite"):
        az_swiss.merge(batches, covariance=estimate)


def test_callable_covariance_of_one_parameter():
    rng = np.random.default_rng(0)
    batches = [{"x": rng.normal(size=(2, 50))} for _ in range(2)]
    merged = az_swiss.merge(batches, covariance=lambda draws: np.cov(draws.T), kind="inflated")
    expected = az_swiss.merge(batches, kind="inflated")
    np.testing.assert_allclose(merged["posterior"]["x"], expected["posterior"]["x"])


@pytest.mark.parametrize(
    ("draws", "transform"),
    [
        (np.zeros((2, 50)), "log"),
        (np.full((2, 50), np.inf), None),
        (np.broadcast_to([0.4, 0.6, 0.0], (2, 50, 3)), "simplex"),
    ],
)
def test_draws_that_are_all_infinite_are_named(draws, transform):
    batches = [{"c": draws}] * 2
    with pytest.raises(ValueError, match=r"batch 0.*variable c: 100 of 100 draws are NaN or inf"):
        az_swiss.merge(batches, transforms={"c": transform})


def test_transforms_that_do_not_fit_name_the_variable():
    rng = np.random.default_rng(0)
    batches = [{"c": rng.normal(size=(2, 50, 3))} for _ in range(2)]
    with pytest.raises(ValueError, match=r"variable c.*square matrices"):
        az_swiss.merge(batches, transforms={"c": "cholesky"})
    with pytest.raises(ValueError, match=r'variable c: \("interval", low, high\) needs'):
        az_swiss.merge(batches, transforms={"c": ("interval", 0, None)})

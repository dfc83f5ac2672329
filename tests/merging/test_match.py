"""Variables are matched by name, elements by label, whatever their order."""

import numpy as np
import pytest
import xarray as xr
from merged_groups import group, labelled

import arviz_swiss as az_swiss
from arviz_swiss import MergeWarning
from arviz_swiss.data import schema
from arviz_swiss.merging.batches import load_arrays, opened
from arviz_swiss.merging.match import check_holdable, match, match_to

pytestmark = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"var_names": "tau", "filter_vars": "like"}, ["log_tau", "tau"]),
        ({"var_names": "^b", "filter_vars": "regex"}, ["beta"]),
        ({"var_names": ("mu", "beta")}, ["mu", "beta"]),
        ({"var_names": (name for name in ["beta"])}, ["beta"]),
        ({"var_names": ["~tau", "~log_tau"]}, ["mu", "beta"]),
    ],
)
def test_variables_are_selected_as_by_arviz(options, names):
    rng = np.random.default_rng(0)
    every = ("mu", "beta", "log_tau", "tau")
    idatas = [{name: rng.standard_normal((2, 300)) for name in every} for _ in range(2)]
    assert list(az_swiss.merge(idatas, kind="inflated", **options)["posterior"].data_vars) == names


def test_coords_are_matched_by_label(random_batches):
    plain = [
        labelled(batch["theta"], ["a", "b", "c"])
        for batch in random_batches(np.random.default_rng(0))
    ]
    turned = [plain[0], *(batch.isel(term=[2, 0, 1]) for batch in plain[1:])]
    xr.testing.assert_allclose(
        group(az_swiss.merge(plain, kind="inflated")),
        group(az_swiss.merge(turned, kind="inflated")),
    )


def test_order_of_variables_and_dims_does_not_matter(random_batches):
    plain = [
        labelled(batch["theta"], ["a", "b", "c"])
        for batch in random_batches(np.random.default_rng(0))
    ]
    turned = [
        plain[0],
        *(batch[["mu", "beta"]].transpose("term", "draw", "chain") for batch in plain[1:]),
    ]
    xr.testing.assert_allclose(
        group(az_swiss.merge(plain, kind="inflated")),
        group(az_swiss.merge(turned, kind="inflated")),
    )


def test_deterministics_are_told_by_sampled_variables():
    rng = np.random.default_rng(0)
    batches = []
    for _ in range(3):
        posterior = az_swiss.data.unflatten(
            az_swiss.data.flatten({"a": rng.standard_normal((2, 100))}),
            like={"a": np.zeros((2, 100))},
        )
        posterior["double"] = 2 * posterior["a"]
        batches.append(posterior.assign_attrs(sampled_variables=["a"]))
    with pytest.warns(MergeWarning, match=r"left out of the merge: double \(deterministic"):
        merged = az_swiss.merge(batches, kind="inflated")
    assert list(group(merged).data_vars) == ["a"]
    assert list(group(az_swiss.merge(batches, var_names=["double"])).data_vars) == ["double"]


def test_batch_local_variables_are_left_out_and_named(random_batches):
    batches = []
    for k, batch in enumerate(random_batches(np.random.default_rng(0))):
        posterior = labelled(batch["theta"], ["a", "b", "c"])
        local = ("chain", "draw", "school"), batch["theta"][..., :2]
        batches.append(posterior.assign(z=local).assign_coords(school=[f"s{k}", f"t{k}"]))
    with pytest.warns(MergeWarning, match=r"left out of the merge: z \(batch-local"):
        merged = az_swiss.merge(batches, kind="inflated")
    assert list(group(merged).data_vars) == ["beta", "mu"]


def test_labels_that_are_the_same_as_text_are_refused():
    rng = np.random.default_rng(0)
    coords = {"g": ["a", "a, b"], "h": ["b, c", "c"]}

    def make(coords, **others):
        dims = ("chain", "draw", "g", "h")
        return xr.Dataset({"m": (dims, rng.standard_normal((2, 50, 2, 2))), **others}, coords)

    message = (
        r'batch 0 \("b0"\), variable m: m \(g=a; h=b, c\) and m \(g=a, b; h=c\).* m\[a, b, c\]'
    )
    with pytest.raises(ValueError, match=message):
        az_swiss.merge([make(coords) for _ in range(2)], kind="inflated")
    other = {"m[a, c]": (("chain", "draw"), rng.standard_normal((2, 50)))}
    plain = {"g": ["a", "b"], "h": ["c", "d"]}
    with pytest.raises(ValueError, match=r"variable m and m\[a, c\]: .* called m\[a, c\]"):
        az_swiss.merge([make(plain, **other) for _ in range(2)], kind="inflated")
    # the advice: other labels
    batches = [make({**coords, "g": ["a", "a; b"]}) for _ in range(2)]
    back = az_swiss.subposteriors(az_swiss.merge(batches, kind="inflated"))
    np.testing.assert_allclose(group(back["b1"])["m"], batches[1]["m"], atol=1e-9)


def read(*datasets, **attrs):
    with opened([data.assign_attrs(attrs) for data in datasets], "posterior") as (batches, _):
        return batches


def draws(terms, names=("beta",), seed=0):
    values = np.random.default_rng(seed).standard_normal((2, 50, len(terms)))
    data = {name: (("chain", "draw", "term"), values) for name in names}
    return xr.Dataset(data, coords={"term": list(terms)})


def test_the_first_batch_gives_the_order():
    first, second = draws("abc"), draws("bca")
    matched = match(read(first, second))
    assert matched.layout.labels() == ["beta[a]", "beta[b]", "beta[c]"]
    assert [batch.indexers.get("term") is None for batch in matched.batches] == [True, False]
    arrays = load_arrays(matched.batches[1], matched.layout)
    np.testing.assert_array_equal(arrays["beta"], second["beta"].sel(term=list("abc")))


def test_local_and_deterministic_variables_are_told():
    recorded = {schema.LOCAL: "z", schema.SAMPLED_VARIABLES: ["beta", "z"]}
    batches = read(draws("ab", ["beta", "z", "twice"]), draws("ab", ["beta", "z"]), **recorded)
    matched = match(batches)
    assert matched.layout.names == ["beta"]
    assert matched.local == ["z"]
    assert matched.deterministic == ["twice"]
    assert match(batches, ["beta", "z"]).deterministic == []
    assert match(batches, "~z").local == []
    with pytest.raises(ValueError, match="has no variable rho, which the model has"):
        match(batches, free=["beta", "z", "rho"])


def test_draws_of_the_prior_are_matched_to_the_first_batch():
    first, prior = read(draws("abc"), draws("cab", ["beta", "more"]))
    layout = match([first]).layout
    arrays = load_arrays(match_to(first, prior, layout), layout)
    np.testing.assert_array_equal(arrays["beta"], prior.draws["beta"].sel(term=list("abc")))
    for other, message in ((draws("abd"), "coordinates of group"), (draws("abc", ["x"]), "no var")):
        with pytest.raises(ValueError, match=message):
            match_to(first, read(other)[0], layout)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (draws("abd"), r"have the label 'a' of dimension term, but 'c' is in batch 0 .*and not in"),
        (draws("aab"), r"have the label 'a'"),
        (draws("abc", ["gamma"]), "has no variable beta, which batch 0"),
        (draws("abc").rename(term="batch"), 'merge calls the batches "batch"'),
        (draws("abc").rename(term="other"), "Rename them to agree"),
        (draws("abc").astype(int), "Only real-valued parameters can be merged"),
        (draws("abc").isel(draw=0, drop=True), r"group .posterior. has no dimension draw"),
    ],
)
def test_batches_that_do_not_fit_are_refused(other, message):
    with pytest.raises(ValueError, match=message):
        match(read(draws("abc"), other))


def test_names_that_a_tree_cannot_hold():
    matched = match(read(draws("ab", ["a / b"])))
    check_holdable(matched, "InferenceData")
    with pytest.raises(ValueError, match=r'batch 0 .*variable a / b.*Rename it, to "a_b"'):
        check_holdable(matched, "DataTree")

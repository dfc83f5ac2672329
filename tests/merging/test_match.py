"""Variables are matched by name, elements by label, whatever their order."""

import numpy as np
import pytest
import xarray as xr
from merged_groups import group, labelled

import arviz_swiss as az_swiss
from arviz_swiss import MergeWarning

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

"""What is given instead of a merged object, or of names of variables: said clearly."""

import numpy as np
import pytest

import arviz_swiss as az_swiss
from arviz_swiss.data import containers

TAKE_MERGED = {
    "report": az_swiss.report,
    "summary": az_swiss.summary,
    "subposteriors": az_swiss.subposteriors,
    "plot_batches": az_swiss.plot_batches,
    "plot_shift": az_swiss.plot_shift,
    "plot_maps": az_swiss.plot_maps,
    "refine": lambda merged: az_swiss.refine(merged, []),
    "certify": lambda merged: az_swiss.certify(merged, []),
    "resample": az_swiss.resample,
}
TAKE_DRAWS = {
    "discrepancy, merged": lambda data: az_swiss.discrepancy(data, {"x": np.ones((2, 50))}),
    "discrepancy, reference": lambda data: az_swiss.discrepancy({"x": np.ones((2, 50))}, data),
    "flatten": az_swiss.flatten,
    "unflatten": lambda data: az_swiss.unflatten(az_swiss.flatten({"x": np.ones((2, 5))}), data),
}


@pytest.fixture(scope="module")
def batches():
    rng = np.random.default_rng(0)
    return [{"x": rng.normal(size=(2, 100)), "v": rng.normal(size=(2, 100, 2))} for _ in range(3)]


@pytest.fixture(scope="module")
def merged(batches):
    return az_swiss.merge(batches, kind="inflated")


@pytest.mark.parametrize("function", TAKE_MERGED)
@pytest.mark.parametrize("kind", ["None", "list", "dict", "Dataset", "int", "ndarray"])
def test_what_cannot_be_a_merged_object(function, kind, batches, merged):
    given = {
        "None": None,
        "list": [merged],
        "dict": batches[0],
        "Dataset": containers.read(batches[0]).groups["posterior"],
        "int": 3,
        "ndarray": np.zeros((2, 10)),
    }
    with pytest.raises(TypeError, match=rf"not a merged object: got {kind}. Pass what merge ret"):
        TAKE_MERGED[function](given[kind])


@pytest.mark.parametrize("function", TAKE_MERGED)
def test_what_was_not_merged(function, batches, to_container):
    with pytest.raises(ValueError, match="no group swiss_transform"):
        TAKE_MERGED[function](to_container(batches[0]))


@pytest.mark.parametrize("function", TAKE_MERGED)
def test_files_that_cannot_be_read(function, merged, tmp_path):
    path = tmp_path / "merged.nc"
    with pytest.raises(ValueError, match=r"file .*merged\.nc could not be read: no file"):
        TAKE_MERGED[function](path)
    merged.to_netcdf(path)
    path.write_bytes(path.read_bytes()[:20_000])
    with pytest.raises(ValueError, match=r"file .*merged\.nc could not be read.*complete file"):
        TAKE_MERGED[function](str(path))


def test_a_file_does_for_the_object(merged, tmp_path):
    path = tmp_path / "merged.nc"
    merged.to_netcdf(path)
    assert str(az_swiss.report(path)) == str(az_swiss.report(merged))
    back = az_swiss.subposteriors(str(path))["b1"]["posterior"]["x"]
    np.testing.assert_array_equal(back, az_swiss.subposteriors(merged)["b1"]["posterior"]["x"])
    # it was read at once, so it can be written again
    merged.to_netcdf(path)


@pytest.mark.parametrize("function", TAKE_DRAWS)
@pytest.mark.parametrize("given", [None, [{"x": np.ones((2, 50))}], 3, b"x"])
def test_what_cannot_be_draws(function, given):
    got = "None" if given is None else type(given).__name__
    with pytest.raises(ValueError, match=rf"could not be read: got {got}. Pass an InferenceData"):
        TAKE_DRAWS[function](given)


def test_batches_to_compare(batches, merged):
    for given in (None, 3, merged):
        with pytest.raises(TypeError, match="takes a list, or a mapping of label to batch"):
            az_swiss.compare_methods(given, kind="inflated")
    with pytest.raises(ValueError, match=r"reference could not be read: got list"):
        az_swiss.compare_methods(batches, [merged], methods=["swiss"], kind="inflated")
    with pytest.raises(ValueError, match=r"batch 1 could not be read: got None"):
        az_swiss.compare_methods([batches[0], None], kind="inflated")


TAKE_NAMES = {
    "merge": lambda batches, merged, **names: az_swiss.merge(batches, kind="inflated", **names),
    "compare_methods": lambda batches, merged, **names: az_swiss.compare_methods(
        batches, methods=["swiss"], kind="inflated", **names
    ),
    "summary": lambda batches, merged, **names: az_swiss.summary(merged, **names),
    "summary, by parameter": lambda batches, merged, **names: az_swiss.summary(
        merged, by="parameter", **names
    ),
    "plot_batches": lambda batches, merged, **names: az_swiss.plot_batches(merged, **names),
    "plot_shift": lambda batches, merged, **names: az_swiss.plot_shift(merged, **names),
    "plot_maps": lambda batches, merged, **names: az_swiss.plot_maps(merged, **names),
    "discrepancy": lambda batches, merged, **names: az_swiss.discrepancy(merged, merged, **names),
    "flatten": lambda batches, merged, **names: az_swiss.flatten(merged, **names),
}


@pytest.mark.parametrize("function", TAKE_NAMES)
@pytest.mark.parametrize("names", [3, [3], True, ["x", None], b"x", {"x": 1}])
def test_names_of_another_type(function, names, batches, merged):
    with pytest.raises(TypeError, match="var_names must be a name or a list of names, got"):
        TAKE_NAMES[function](batches, merged, var_names=names)


@pytest.mark.parametrize("function", TAKE_NAMES)
@pytest.mark.parametrize("names", ["x", None])
def test_unknown_filters(function, names, batches, merged):
    for filter_vars in ("likes", 3, ["like"]):
        with pytest.raises(ValueError, match='filter_vars must be None, "like" or "regex", got'):
            TAKE_NAMES[function](batches, merged, var_names=names, filter_vars=filter_vars)


@pytest.mark.parametrize("function", TAKE_NAMES)
def test_names_that_select_nothing_or_are_no_expression(function, batches, merged):
    with pytest.raises(ValueError, match="var_names='\\(' is no regular expression"):
        TAKE_NAMES[function](batches, merged, var_names="(", filter_vars="regex")
    with pytest.raises(ValueError, match="no rho; the variables are x, v"):
        TAKE_NAMES[function](batches, merged, var_names=["rho"])


@pytest.mark.parametrize("function", [name for name in TAKE_NAMES if "plot" in name or "," in name])
def test_coords_that_are_no_mapping(function, batches, merged):
    for coords in (3, ["v_dim_0"]):
        with pytest.raises(TypeError, match="coords must be a mapping of dimension to labels"):
            TAKE_NAMES[function](batches, merged, coords=coords)


def test_a_group_that_was_not_merged_is_named():
    rng = np.random.default_rng(0)
    merged = az_swiss.merge([{"x": rng.normal(size=(2, 50))} for _ in "ab"], kind="inflated")
    with pytest.raises(ValueError, match=r'no group "prior": group= must be the one that was merg'):
        az_swiss.report(merged, group="prior")

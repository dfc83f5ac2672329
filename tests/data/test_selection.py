import numpy as np
import pytest
import xarray as xr

from arviz_swiss.data.selection import checked_names, select_names, selected


@pytest.fixture
def dataset():
    rng = np.random.default_rng(0)
    return xr.Dataset(
        {
            "mu": (("chain", "draw"), rng.standard_normal((2, 10))),
            "beta": (("chain", "draw", "term"), rng.standard_normal((2, 10, 3))),
            "beta_sd": (("chain", "draw"), rng.standard_normal((2, 10))),
        },
        coords={"term": ["a", "b", "c"]},
        attrs={"by": "me"},
    )


@pytest.mark.parametrize(
    ("var_names", "filter_vars", "names"),
    [
        (None, None, ["mu", "beta", "beta_sd"]),
        ("beta", None, ["beta"]),
        (["beta_sd", "mu"], None, ["mu", "beta_sd"]),
        ("~mu", None, ["beta", "beta_sd"]),
        (("~mu", "~beta"), None, ["beta_sd"]),
        ("beta", "like", ["beta", "beta_sd"]),
        (["^b.*d$"], "regex", ["beta_sd"]),
        (iter(["mu"]), None, ["mu"]),
    ],
)
def test_names_select_as_in_arviz_in_the_order_of_the_dataset(
    dataset, var_names, filter_vars, names
):
    assert select_names(dataset, var_names, filter_vars) == names
    assert dataset.attrs == {"by": "me"}


@pytest.mark.parametrize(
    ("var_names", "filter_vars", "error", "message"),
    [
        ("tau", None, ValueError, "here: var_names='tau': no tau; the variables are mu, beta, bet"),
        ("x", "like", ValueError, "selects nothing"),
        (3, None, TypeError, "a name or a list of names, got 3"),
        (["mu", 3], None, TypeError, "a name or a list of names"),
        ("(", "regex", ValueError, "no regular expression"),
        ("mu", "glob", ValueError, 'filter_vars must be None, "like" or "regex", got \'glob\''),
    ],
)
def test_names_that_select_nothing_are_refused(dataset, var_names, filter_vars, error, message):
    with pytest.raises(error, match=message.replace("(", r"\(")):
        select_names(dataset, var_names, filter_vars, where="here: ")


def test_names_are_lists_or_text():
    assert checked_names("mu") == "mu"
    assert checked_names(("mu", "tau")) == ["mu", "tau"]


def test_coords_keep_the_dimension_of_one_element(dataset):
    assert selected(dataset, coords={"term": "b"})["beta"].shape == (2, 10, 1)
    assert selected(dataset, coords={"term": ["c", "a"]})["term"].values.tolist() == ["c", "a"]
    assert selected(dataset, coords={"term": slice("b", None)}).sizes["term"] == 2
    assert set(selected(dataset, "mu", coords={"term": "b"}).data_vars) == {"mu"}


@pytest.mark.parametrize(
    ("coords", "error", "message"),
    [
        ({"term": "d"}, ValueError, "term has no label 'd'; its labels are a, b, c"),
        ({"group": 1}, ValueError, "coords name group; the dimensions are"),
        (["term"], TypeError, "coords must be a mapping"),
    ],
)
def test_coords_that_are_not_there_are_named(dataset, coords, error, message):
    with pytest.raises(error, match=message):
        selected(dataset, coords=coords)

from functools import partial

import arviz
import numpy as np
import pytest
import xarray as xr

import arviz_swiss as az_swiss
from arviz_swiss.data import containers


@pytest.fixture(scope="module")
def merged():
    rng = np.random.default_rng(0)
    batches = {}
    for b in range(5):
        draws = xr.Dataset(
            {
                "beta": (("chain", "draw", "side"), rng.standard_normal((2, 200, 2))),
                "p": (("chain", "draw", "part"), rng.dirichlet([5, 3, 2], size=(2, 200))),
                "fixed": (("chain", "draw"), np.ones((2, 200))),
            },
            coords={"side": ["left", "right"]},
            attrs={"swiss_size": 100 + b, "swiss_power": 5.0},
        )
        draws["beta"][...] += np.sqrt(5) * rng.standard_normal(2)
        batches[f"n{b}"] = draws
    batches["n2"]["beta"][..., 1] += 50
    with pytest.warns(az_swiss.MergeWarning, match="disagree"):
        return az_swiss.merge(batches, transforms={"p": "simplex"})


@pytest.fixture(scope="module")
def report(merged):
    return az_swiss.report(merged)


@pytest.fixture(scope="module")
def summary(merged, report):
    """Return a function that gives the table without computing anything anew."""
    return partial(az_swiss.summary, merged, report=report)


def test_batches(summary, report):
    table = summary()
    found = report.statistics
    assert table.index.tolist() == [f"n{b}" for b in range(5)]
    assert table["size"].tolist() == [100, 101, 102, 103, 104]
    assert (table["power"] == 5).all()
    assert (table["draws"] == 400).all()
    np.testing.assert_array_equal(table["rhat"], found["rhat"].max("parameter"))
    least = np.minimum(found["ess_bulk"], found["ess_tail"]).min("parameter")
    np.testing.assert_array_equal(table["ess"], least)
    np.testing.assert_array_equal(table["q"], found["batch_q"])
    np.testing.assert_array_equal(table["p"], found["batch_q_pvalue"])
    np.testing.assert_array_equal(table["influence"], found["influence"])
    np.testing.assert_array_equal(table["sd_ratio_max"], found["sd_ratio"].max("parameter"))
    np.testing.assert_array_equal(table["shift"].abs(), abs(found["shift"]).max("parameter"))
    worst = found["parameter"].values[found["shape"].argmax("parameter")]
    assert table["shape_parameter"].tolist() == worst.tolist()
    assert table["flag"].tolist() == ["", "", "disagrees", "", ""]
    assert table["divergences"].isna().all()


def test_batches_of_chosen_variables(summary):
    all_of_them = summary()
    left = summary(var_names="beta", coords={"side": "left"})
    assert abs(all_of_them.loc["n2", "shift"]) > 10
    assert abs(left.loc["n2", "shift"]) < 5
    assert set(left["shape_parameter"]) == {"beta[left]"}
    assert left["flag"].tolist() == all_of_them["flag"].tolist()


def test_parameters_stand_beside_arvizs_columns(merged, summary, report):
    table = summary(by="parameter")
    with np.errstate(invalid="ignore", divide="ignore"):
        usual = arviz.summary(containers.read(merged).groups["posterior"], round_to="none")
    assert table.columns[: usual.shape[1]].tolist() == usual.columns.tolist()
    assert table.index.tolist() == usual.index.tolist()
    np.testing.assert_array_equal(table["mean"], usual["mean"])
    found = report.statistics.sel(parameter="beta[right]")
    row = table.loc["beta[right]"]
    assert row["shift_batch"] == "n2"
    assert row["shift"] == float(found["shift"].sel(batch="n2"))
    assert row["p"] < 1e-6 < table.loc["beta[left]", "p"]
    assert row["batch_rhat"] == float(found["rhat"].max())
    assert row["shape"] == float(found["shape"].max())
    assert row["skewness"] == float(found["skewness"].median())


def test_elements_that_a_transform_has_fewer_of_share_one_row(summary):
    table = summary(by="parameter", var_names="p")
    assert table.index.tolist() == ["p[0]", "p[1]", "p[2]"]
    assert table["q"].nunique() == 1
    assert table["mean"].nunique() == 3


def test_constants_have_no_diagnostics(summary):
    table = summary(by="parameter")
    assert np.isnan(table.loc["fixed", "q"])
    assert table.loc["fixed", "mean"] == 1.0


def test_constants_alone_have_the_same_columns(summary):
    table = summary(by="parameter", var_names="fixed")
    assert table.index.tolist() == ["fixed"]
    everything = summary(by="parameter")
    assert table.columns.tolist() == everything.columns.tolist()
    assert table.loc["fixed", "q":"shape"].isna().all()


def test_coords_of_a_simplex_keep_all_that_it_was_merged_as(summary):
    whole = summary(var_names="p")
    assert summary(var_names="p", coords={"part": [2]}).equals(whole)
    left = {"side": ["left"]}
    both = summary(coords=left | {"part": 0})
    assert both.equals(summary(coords=left))
    rows = summary(by="parameter", var_names="p", coords={"part": [2]})
    everything = summary(by="parameter", var_names="p")
    assert rows["mean"].tolist() == pytest.approx([everything.loc["p[2]", "mean"]])
    with pytest.raises(ValueError, match="has no label"):
        summary(coords={"part": 7})


@pytest.mark.parametrize("by", ["batch", "parameter"])
def test_without_a_report_the_same_is_computed(merged, summary, by):
    assert az_swiss.summary(merged, by=by).equals(summary(by=by))


def test_with_a_report_nothing_is_computed_anew(summary, monkeypatch):
    monkeypatch.setattr("arviz_swiss.checking.statistics.convergence", None)
    assert len(summary()) == 5


def test_the_report_of_another_merge_is_refused(merged):
    rng = np.random.default_rng(0)
    others = {label: {"x": rng.normal(size=(2, 100))} for label in ("n0", "n1")}
    with pytest.raises(ValueError, match="of another merge: its labels along batch are n0, n1, th"):
        az_swiss.summary(merged, report=az_swiss.report(az_swiss.merge(others, kind="inflated")))
    others = {f"n{b}": {"x": rng.normal(size=(2, 100))} for b in range(5)}
    with pytest.raises(ValueError, match="its labels along parameter are x, those of merged beta"):
        az_swiss.summary(merged, report=az_swiss.report(az_swiss.merge(others, kind="inflated")))
    with pytest.raises(TypeError, match=r"report= takes what report\(merged\) returned, got str"):
        az_swiss.summary(merged, report="all")


def test_the_report_of_other_draws_with_the_same_labels_is_refused():
    rng = np.random.default_rng(0)
    first, second = (
        az_swiss.merge([{"x": rng.normal(size=(2, 100))} for _ in range(3)], kind="inflated")
        for _ in range(2)
    )
    report = az_swiss.report(first)
    assert len(az_swiss.summary(first, report=report)) == 3
    with pytest.raises(ValueError, match="of another merge of batches with these labels"):
        az_swiss.summary(second, report=report)


def test_rounding(summary):
    assert summary(round_to=1)["rhat"].isin([1.0]).all()


def test_newly_made_draws_leave_columns_empty():
    rng = np.random.default_rng(0)
    batches = [{"x": rng.standard_normal((2, 200))} for _ in range(3)]
    table = az_swiss.summary(az_swiss.merge(batches, method="consensus", kind="inflated"))
    assert table[["rhat", "ess", "shape"]].isna().all(axis=None)
    assert table["q"].notna().all()
    assert table["size"].isna().all()


def test_unknown_rows_and_names(summary):
    with pytest.raises(ValueError, match=r"unknown by='rows'.*by=\"batch\" or by=\"parameter\""):
        summary(by="rows")
    with pytest.raises(ValueError, match="no gamma; the variables are beta, p"):
        summary(var_names="gamma")
    with pytest.raises(ValueError, match="coords name place"):
        summary(coords={"place": 1})
    with pytest.raises(ValueError, match="has no label"):
        summary(coords={"side": "up"})


def test_variables_with_dims_in_different_orders():
    """ArviZ 1.x gives the rows of one of them the values of other elements."""
    rng = np.random.default_rng(0)
    centres = xr.DataArray(np.arange(6.0).reshape(3, 2), dims=("g", "h"))
    centres = centres.assign_coords(g=["g0", "g1", "g2"], h=["h0", "h1"])

    def draws(*dims):
        noise = xr.DataArray(
            0.1 * rng.standard_normal((2, 250, 3, 2)), dims=("chain", "draw", "g", "h")
        )
        return (centres + noise).transpose("chain", "draw", *dims)

    batches = [xr.Dataset({"p": draws("g", "h"), "q": draws("h", "g")}) for _ in range(3)]
    merged = az_swiss.merge(batches, kind="inflated")
    table = az_swiss.summary(merged, by="parameter")
    groups = containers.read(merged).groups
    posterior = groups["posterior"]
    for g in range(3):
        for h in range(2):
            for label, name in ((f"p[g{g}, h{h}]", "p"), (f"q[h{h}, g{g}]", "q")):
                values = posterior[name].isel(g=g, h=h)
                assert table.loc[label, "mean"] == pytest.approx(float(values.mean()), rel=1e-12)
                # 1,500 draws of sd .1
                assert table.loc[label, "mean"] == pytest.approx(2 * g + h, abs=5 * 0.1 / 1500**0.5)
    turned = groups | {"posterior": posterior.transpose("h", "g", ...)}
    again = az_swiss.summary(containers.build(turned), by="parameter")
    np.testing.assert_allclose(again.loc[table.index, "mean"], table["mean"], rtol=1e-12)


def arvizs(merged, **options):
    if containers.native_container() == "InferenceData" and "ci_prob" in options:
        options["hdi_prob"] = options.pop("ci_prob")
    with np.errstate(invalid="ignore", divide="ignore"):
        posterior = containers.read(merged).groups["posterior"]
        return arviz.summary(posterior, round_to="none", **options)


@pytest.mark.parametrize("kind", ["stats", "diagnostics"])
def test_a_part_of_arvizs_columns(merged, summary, kind):
    assert summary(by="parameter", kind=kind).equals(arvizs(merged, kind=kind))


def test_columns_of_the_merge_alone(merged, summary):
    everything = summary(by="parameter", kind="all")
    assert everything.equals(summary(by="parameter"))
    usual = arvizs(merged)
    assert summary(by="parameter", kind="merge").equals(everything.drop(columns=usual.columns))


def test_the_interval_is_the_one_that_was_asked_for(merged, summary):
    assert summary(by="parameter", kind="stats", ci_prob=0.5, ci_kind="hdi").equals(
        arvizs(merged, kind="stats", ci_prob=0.5)
        if containers.native_container() == "InferenceData"
        else arvizs(merged, kind="stats", ci_prob=0.5, ci_kind="hdi")
    )
    table = summary(by="parameter", ci_prob=0.5, ci_kind="eti")
    beta = containers.read(merged).groups["posterior"]["beta"]
    expected = beta.quantile([0.25, 0.75], ("chain", "draw")).values.T
    shown = table.loc[["beta[left]", "beta[right]"]].iloc[:, 2:4]
    assert all(name.startswith("eti") for name in shown.columns)
    np.testing.assert_allclose(shown, expected, rtol=1e-3)
    assert table.columns.tolist().count("mean") == 1
    assert not [name for name in table.columns if name.startswith("hdi")]
    assert table.columns[4] in ("mcse_mean", "ess_bulk")


def test_columns_that_cannot_be_chosen(summary):
    with pytest.raises(ValueError, match=r'ci_prob= choose.*pass by="parameter" too'):
        summary(ci_prob=0.9)
    with pytest.raises(ValueError, match="kind='median' is not one of 'all', 'stats', 'diag"):
        summary(by="parameter", kind="median")
    with pytest.raises(ValueError, match="ci_kind='both' is not one of 'hdi', 'eti'"):
        summary(by="parameter", ci_kind="both")
    with pytest.raises(ValueError, match="ci_prob must be between 0 and 1, got 89"):
        summary(by="parameter", ci_prob=89)


def test_batches_that_differ_by_their_rows_have_no_nested_rhat(summary, report):
    assert "rhat_nested" not in summary(by="parameter")
    assert "rhat_nested" not in report.statistics

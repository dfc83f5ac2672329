"""plot_batches(): densities of the batches before and after their maps."""

import numpy as np
import pytest
from arviz_density import assert_is_density
from drawn_batches import make_batches, make_merged
from read_visuals import caption, lines, panels, text, visual, xy

import arviz_swiss as az_swiss


def test_one_line_a_batch_and_the_merged(merged, backend):
    pc = az_swiss.plot_batches(merged, backend=backend)
    assert pc.viz["plot"].sizes == {"parameter": 3, "stage": 2}
    names = ["beta[left]", "beta[right]", "sigma"]
    for name in names:
        for stage in ("sampled", "mapped"):
            facet = {"parameter": name, "stage": stage}
            assert len(lines(pc, stage, **facet)) == 4
            assert len(lines(pc, "merged", **facet)) == 1


def test_lines_are_the_densities(merged, backend):
    pc = az_swiss.plot_batches(merged, var_names="sigma", backend=backend)
    original = list(az_swiss.subposteriors(merged).values())[2]["posterior"]["sigma"].values
    before = {"parameter": "sigma", "stage": "sampled"}
    after = {"parameter": "sigma", "stage": "mapped"}
    assert_is_density(lines(pc, "sampled", **before)[2], original)
    assert_is_density(lines(pc, "mapped", **after)[2], merged["posterior"]["sigma"].values[4:6])
    with pytest.raises(AssertionError):
        assert_is_density(lines(pc, "sampled", **before)[1], original)
    for facet in (before, after):
        assert_is_density(xy(pc, "merged", **facet), merged["posterior"]["sigma"].values)


def test_panels_say_what_they_show(merged, backend):
    pc = az_swiss.plot_batches(merged, var_names="beta", backend=backend)
    shown = [
        text(pc, "title", parameter=name, stage=stage)
        for name in ("beta[left]", "beta[right]")
        for stage in ("sampled", "mapped")
    ]
    assert shown == ["beta[left]", "beta[left], mapped", "beta[right]", "beta[right], mapped"]


@pytest.mark.parametrize("parameters", [1, 2, 3, 4, 5])
def test_a_pair_shares_a_row(parameters):
    rng = np.random.default_rng(0)
    batches = [{"x": rng.standard_normal((2, 100, parameters))} for _ in range(2)]
    pc = az_swiss.plot_batches(az_swiss.merge(batches, kind="inflated"), backend="none")
    rows, columns = pc.viz["row_index"], pc.viz["col_index"]
    assert rows.sizes["parameter"] == parameters
    assert (rows.sel(stage="sampled").values == rows.sel(stage="mapped").values).all()
    assert (columns.sel(stage="sampled").values + 1 == columns.sel(stage="mapped").values).all()


def test_reference_is_drawn_too(merged, backend):
    reference = make_batches(1)["b0"]
    pc = az_swiss.plot_batches(
        merged, var_names="beta", coords={"side": "right"}, reference=reference, backend=backend
    )
    for stage in ("sampled", "mapped"):
        line = xy(pc, "reference", parameter="beta[right]", stage=stage)
        assert_is_density(line, reference["beta"].values[..., 1])


def test_reference_is_matched_by_label(merged):
    reference = make_batches(1)["b0"]
    shuffled = reference.isel(side=[1, 0]).transpose("side", ...)
    options = {"backend": "none"}
    pc = az_swiss.plot_batches(merged, var_names="beta", reference=shuffled, **options)
    for position, side in enumerate(("left", "right")):
        line = xy(pc, "reference", parameter=f"beta[{side}]", stage="mapped")
        assert_is_density(line, reference["beta"].values[..., position])
    with pytest.raises(ValueError, match=r"the reference has no beta\[left\]"):
        az_swiss.plot_batches(merged, reference=reference.sel(side=["right"]))
    with pytest.raises(ValueError, match=r"reference, variable sigma: draws that are NaN"):
        az_swiss.plot_batches(merged, reference=reference.assign(sigma=np.nan * reference["sigma"]))
    with pytest.raises(ValueError, match=r"the reference has no variable sigma"):
        az_swiss.plot_batches(merged, reference=reference.drop_vars("sigma"))


def test_leaves_out_constant_elements():
    rng = np.random.default_rng(0)
    batches = []
    for _ in range(2):
        low = np.tril(rng.random((2, 100, 2, 2)) + 0.5)
        batches.append({"chol": low / np.linalg.norm(low, axis=-1, keepdims=True)})
    merged = az_swiss.merge(batches, transforms={"chol": "cholesky_corr"}, kind="inflated")
    pc = az_swiss.plot_batches(merged, backend="none")
    assert pc.viz["plot"]["parameter"].values.tolist() == ["chol[1, 0]", "chol[1, 1]"]


def test_many_batches_get_fainter():
    options = {"var_names": "sigma", "backend": "none"}
    few, many = (az_swiss.plot_batches(make_merged(count), **options) for count in (2, 300))
    facet = {"parameter": "sigma", "stage": "mapped"}
    assert len(lines(many, "mapped", **facet)) == 300
    assert visual(many, "mapped", **facet)["alpha"] < 0.3 < visual(few, "mapped", **facet)["alpha"]


def test_of_many_parameters_those_of_odd_shape_are_drawn():
    rng = np.random.default_rng(0)
    batches = [{"x": rng.standard_normal((2, 500, 30))} for _ in range(3)]
    # one batch is skewed in one parameter, another has two modes in another
    batches[0]["x"][..., 4] = rng.exponential(size=(2, 500))
    batches[1]["x"][..., 25] = rng.choice([-2.0, 2.0], size=(2, 500)) + 0.1 * rng.normal(
        size=(2, 500)
    )
    pc = az_swiss.plot_batches(az_swiss.merge(batches, kind="inflated"), backend="none")
    assert {"x[4]", "x[25]"} <= set(pc.viz["plot"]["parameter"].values.tolist())
    assert panels(pc) == 24
    assert caption(pc).startswith("12 of 30 parameters: those whose mapped batches differ most")


def test_stats_choose_the_grid(merged):
    options = {"var_names": "sigma", "backend": "none"}
    pc = az_swiss.plot_batches(merged, stats={"density": {"grid_len": 64}}, **options)
    assert visual(pc, "sampled", parameter="sigma", stage="sampled")["x"].size == 64
    with pytest.raises(ValueError, match="stats has no kde; it has density"):
        az_swiss.plot_batches(merged, stats={"kde": {}}, **options)
    with pytest.raises(ValueError, match="takes grid_len, 2 or more"):
        az_swiss.plot_batches(merged, stats={"density": {"grid_len": 1}}, **options)


def test_newly_made_draws_are_refused():
    with pytest.raises(ValueError, match="newly made"):
        az_swiss.plot_batches(make_merged(3, method="consensus"))

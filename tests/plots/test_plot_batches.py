"""plot_batches(): densities of the batches before and after their maps."""

import numpy as np
import pytest
from arviz_density import assert_is_density
from drawn_batches import make_batches, make_merged

import arviz_swiss as az_swiss
from arviz_swiss.plots import style


def test_one_line_a_batch_and_the_merged(merged):
    axes = az_swiss.plot_batches(merged)
    assert axes.shape == (3, 2)
    assert all(len(ax.lines) == 5 for ax in axes.ravel())
    titles = [[ax.get_title() for ax in pair] for pair in axes]
    assert titles == [[n, f"{n}, mapped"] for n in ("beta[left]", "beta[right]", "sigma")]
    legend = axes[0, 0].figure.legends[0]
    assert [t.get_text() for t in legend.get_texts()] == ["batches", "batches, mapped", "merged"]


@pytest.mark.parametrize("parameters", [1, 2, 3, 4, 5])
def test_a_pair_shares_a_row(parameters):
    rng = np.random.default_rng(0)
    batches = [{"x": rng.standard_normal((2, 100, parameters))} for _ in range(2)]
    pairs = az_swiss.plot_batches(az_swiss.merge(batches, kind="inflated"))
    assert len(pairs) == parameters
    for before, after in pairs:
        left, right = before.get_subplotspec(), after.get_subplotspec()
        assert left.rowspan == right.rowspan
        assert left.colspan.stop == right.colspan.start


def test_lines_are_the_densities(merged):
    before, after = az_swiss.plot_batches(merged, var_names="sigma")[0]
    original = list(az_swiss.subposteriors(merged).values())[2]["posterior"]["sigma"].values
    assert_is_density(before.lines[2], original)
    assert_is_density(after.lines[2], merged["posterior"]["sigma"].values[4:6])
    for ax in (before, after):
        assert_is_density(ax.lines[-1], merged["posterior"]["sigma"].values)
        assert ax.lines[-1].get_color() == style.BLACK


def test_reference_is_drawn_too(merged):
    reference = make_batches(1)["b0"]
    ax = az_swiss.plot_batches(
        merged, var_names="beta", coords={"side": "right"}, reference=reference
    )[0, 1]
    assert_is_density(ax.lines[-1], reference["beta"].values[..., 1])
    assert ax.lines[-1].get_linestyle() == "--"
    assert ax.lines[-1].get_label() == "reference"


def test_reference_is_matched_by_label(merged):
    reference = make_batches(1)["b0"]
    shuffled = reference.isel(side=[1, 0]).transpose("side", ...)
    axes = az_swiss.plot_batches(merged, var_names="beta", reference=shuffled)
    for side, ax in enumerate(axes[:, 0]):
        assert_is_density(ax.lines[-1], reference["beta"].values[..., side])
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
    axes = az_swiss.plot_batches(
        az_swiss.merge(batches, transforms={"chol": "cholesky_corr"}, kind="inflated")
    )
    assert [ax.get_title() for ax in axes[:, 0]] == ["chol[1, 0]", "chol[1, 1]"]
    assert all(len(ax.lines) == 3 for ax in axes.ravel())


def test_many_batches_get_fainter():
    few = az_swiss.plot_batches(make_merged(2), var_names="sigma")[0, 0]
    many = az_swiss.plot_batches(make_merged(60), var_names="sigma")[0, 0]
    assert len(many.lines) == 61
    assert many.lines[0].get_alpha() < 0.3 < few.lines[0].get_alpha()


def test_newly_made_draws_are_refused():
    with pytest.raises(ValueError, match="newly made"):
        az_swiss.plot_batches(make_merged(3, method="consensus"))

"""compare_methods(): every method gets its kind of batches, and is measured."""

import warnings

import numpy as np
import pytest

import arviz_swiss as az_swiss
from arviz_swiss.checking.discrepancy import MEASURES
from arviz_swiss.methods import METHODS


@pytest.fixture(scope="module")
def gaussian():
    """Return inflated and fractionated draws of five batches, and draws of their product."""
    rng, batches, draws = np.random.default_rng(0), 5, (2, 1000)
    means, spreads = np.array([-0.8, -0.4, 0, 0.4, 1.2]), np.array([0.6, 0.8, 1.0, 1.3, 1.8])
    variance = 1 / np.mean(1 / spreads**2)
    centre = variance * np.mean(means / spreads**2)

    def normal(mean, spread):
        return {"x": rng.normal(mean, spread, size=draws)}

    pairs = list(zip(means, spreads, strict=True))
    return (
        [normal(mean, spread) for mean, spread in pairs],
        [normal(mean, np.sqrt(batches) * spread) for mean, spread in pairs],
        normal(centre, np.sqrt(variance)),
    )


def test_all_methods_by_all_measures_and_seconds(gaussian):
    inflated, fractionated, reference = gaussian
    table = az_swiss.compare_methods(inflated, reference, fractionated=fractionated, random_seed=0)
    assert table.index.tolist() == [n for n in METHODS if METHODS[n].makes != "product"]
    assert table.columns.tolist() == [*MEASURES, "seconds", *(f"{m}_floor" for m in MEASURES)]
    assert np.isfinite(table.to_numpy()).all()
    assert (table["seconds"] > 0).all()
    # the batches' own noise comes on top of that of two samples
    for method in ("swiss", "consensus", "gaussian"):
        assert table.loc[method, "iad"] < 3 * table.loc[method, "iad_floor"]
    for method in ("recentre", "barycenter", "pool"):
        assert table.loc[method, "iad"] > 5 * table.loc[method, "iad_floor"]


def test_each_method_gets_the_kind_it_expects(gaussian):
    inflated, fractionated, reference = gaussian
    names = ["swiss", "consensus"]
    both = az_swiss.compare_methods(inflated, reference, names, fractionated)
    one = az_swiss.compare_methods(inflated, reference, names, kind="inflated")
    assert both.loc["swiss", "iad"] == one.loc["swiss", "iad"]
    assert both.loc["consensus", "iad"] != one.loc["consensus", "iad"]
    alone = az_swiss.compare_methods(fractionated, reference, ["consensus"], kind="fractionated")
    assert alone.loc["consensus", "iad"] == both.loc["consensus", "iad"]


def test_powers_belong_to_the_inflated_batches(gaussian):
    inflated, fractionated, reference = gaussian
    names = ["swiss", "consensus"]
    table = az_swiss.compare_methods(inflated, reference, names, fractionated, powers=[5.0] * 5)
    plain = az_swiss.compare_methods(inflated, reference, names, fractionated)
    assert table["iad"].tolist() == plain["iad"].tolist()


def test_without_a_reference_methods_are_compared_with_one_another(gaussian):
    inflated, _, _ = gaussian
    names = ["swiss", "consensus", "pool"]
    table = az_swiss.compare_methods(inflated, methods=names, kind="inflated")
    assert table.columns.tolist() == [*names, "seconds"]
    distances = table[names].to_numpy()
    assert np.array_equal(distances, distances.T)
    assert np.all(np.diag(distances) == 0)
    assert distances[0, 1] < distances[0, 2]
    shifts = az_swiss.compare_methods(
        inflated, methods=names, measure="mahalanobis", kind="inflated"
    )
    assert shifts.loc["swiss", "consensus"] < 1e-10 < shifts.loc["swiss", "pool"]


@pytest.mark.parametrize("measure", MEASURES)
def test_distances_between_methods_are_those_of_discrepancy(gaussian, measure):
    inflated, _, _ = gaussian
    names, options = ["consensus", "swiss", "pool"], {"kind": "inflated"}
    table = az_swiss.compare_methods(inflated, methods=names, measure=measure, **options)
    merged = {name: az_swiss.merge(inflated, method=name, **options) for name in names}
    for position, first in enumerate(names):
        for other in names[position + 1 :]:
            expected = float(az_swiss.discrepancy(merged[other], merged[first])[measure])
            assert table.loc[first, other] == pytest.approx(expected, rel=1e-12, abs=1e-14)


def test_methods_can_have_options_of_their_own(gaussian):
    inflated, _, reference = gaussian
    table = az_swiss.compare_methods(
        inflated,
        reference,
        {"semiparametric": {"bandwidth": 3.0}, "swiss": {}},
        random_seed=0,
        kind="inflated",
    )
    plain = az_swiss.compare_methods(
        inflated, reference, "semiparametric", random_seed=0, kind="inflated"
    )
    assert table.index.tolist() == ["semiparametric", "swiss"]
    assert table.loc["semiparametric", "iad"] != plain.loc["semiparametric", "iad"]


def test_variables_and_coordinates_are_selected(to_container):
    rng = np.random.default_rng(1)
    batches = [
        to_container({"x": rng.normal(size=(2, 200, 2)), "y": rng.normal(size=(2, 200))})
        for _ in range(3)
    ]
    reference = {"x": rng.normal(size=(2, 200, 2))}
    first = az_swiss.compare_methods(
        batches, reference, ["swiss"], var_names="~y", coords={"x_dim_0": [1]}, kind="inflated"
    )
    merged = az_swiss.merge(batches, var_names="x", kind="inflated")
    second = az_swiss.discrepancy(merged, reference, coords={"x_dim_0": [1]})
    assert first.loc["swiss", "iad"] == float(second["iad"])


def test_methods_that_cannot_merge_the_batches_are_left_out_unless_named():
    rng = np.random.default_rng(3)
    batches = [{"x": rng.normal(size=(2, 300))} for _ in range(3)]
    options = {"kind": "full_prior", "prior": {"x": rng.normal(0, 5, size=(1, 1000))}}
    with pytest.warns(az_swiss.MergeWarning, match="left out of the comparison: .*recentre: meth"):
        table = az_swiss.compare_methods(batches, random_seed=0, **options)
    assert {"swiss", "gaussian"} <= set(table.index)
    assert "recentre" not in table.index
    assert np.isfinite(table.to_numpy()).all()
    with pytest.raises(ValueError, match='method "recentre" takes the batches as they are'):
        az_swiss.compare_methods(batches, methods=["swiss", "recentre"], **options)
    batches[1]["x"][0, 0] = np.nan
    with pytest.raises(ValueError, match=r"batch 1.*NaN"):
        az_swiss.compare_methods(batches)


def test_each_warning_comes_once():
    rng = np.random.default_rng(2)
    batches = [{"x": rng.normal(shift, 1, size=(1, 500))} for shift in (0, 0, 9)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        az_swiss.compare_methods(
            batches, methods=["swiss", "consensus", "gaussian"], kind="inflated"
        )
    messages = [str(one.message) for one in caught if one.category is az_swiss.MergeWarning]
    assert len(messages) == len(set(messages)) == 1
    assert "disagree" in messages[0]
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"methods": ["swis"]}, ValueError, "unknown method 'swis'. Valid methods are"),
        ({"methods": []}, ValueError, "at least one method"),
        ({"measure": "kl"}, ValueError, "unknown measure 'kl'. Valid ones are mahalanobis"),
        ({"methods": {"swiss": {"bandwidth": 1}}}, TypeError, "no option bandwidth"),
    ],
)
def test_bad_input_is_named(arguments, error, message, gaussian):
    with pytest.raises(error, match=message):
        az_swiss.compare_methods(gaussian[0], **arguments)


def beta(rng, power, count):
    return rng.beta(1 + 1 / power, 1 + 999 / power, size=(1, count, 1))


def banana(rng, power, count):
    x, y = np.sqrt(power) * rng.normal(size=(2, 1, count))
    return np.stack([x, y - x**2], axis=-1)


def bimodal(rng, power, count):
    """Two unit Gaussians at (2, 2) and (-2, -2), by their density on a fine grid."""
    grid = np.linspace(-20, 20, 641)
    x, y = (axis.ravel() for axis in np.meshgrid(grid, grid))
    density = np.logaddexp(*(-0.5 * ((x - c) ** 2 + (y - c) ** 2) for c in (2, -2))) / power
    density = np.exp(density - density.max())
    cells = rng.choice(density.size, size=count, p=density / density.sum())
    jitter = (rng.random((count, 2)) - 0.5) * (grid[1] - grid[0])
    return (np.stack([x[cells], y[cells]], axis=-1) + jitter)[None]


@pytest.mark.parametrize(("sampler", "consensus"), [(beta, 0.94), (banana, 0.45), (bimodal, 0.45)])
@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_geometries_of_the_paper(sampler, consensus):
    # section 4.1: ten batches with the same density, which is also that of the full posterior
    rng = np.random.default_rng(3)
    inflated, fractionated = (
        [{"x": sampler(rng, power, 2000)} for _ in range(10)] for power in (1, 10)
    )
    reference = {"x": sampler(rng, 1, 20_000)}
    table = az_swiss.compare_methods(inflated, reference, ["swiss", "consensus"], fractionated)
    assert table.loc["swiss", "iad"] < 1.5 * table.loc["swiss", "iad_floor"]
    assert abs(table.loc["consensus", "iad"] - consensus) < 0.05


def test_batches_from_a_generator():
    rng = np.random.default_rng(0)
    batches = ({"x": rng.standard_normal((2, 200))} for _ in range(3))
    table = az_swiss.compare_methods(batches, methods=["swiss", "average"], kind="inflated")
    assert table.index.tolist() == ["swiss", "average"]

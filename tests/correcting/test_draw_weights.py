"""Weights in sample_stats: there if every draw has one, and gone when the draws change."""

import warnings

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pytest
from certify_cases import QUIET, Normal
from merged_groups import groups_of

import arviz_swiss as az_swiss
from arviz_swiss.data import containers, schema

DRAWS = 4 * 2 * 100


def make_batches(rng, densities):
    """Return exact draws of each batch, with what its sampler says of them."""
    batches = []
    for density in densities:
        values = {"x": density.draw(rng, power=len(densities), shape=(2, 100))}
        groups = {"posterior": containers.read(values).groups["posterior"]}
        stats = {"diverging": rng.random((2, 100)) < 0.05}
        groups["sample_stats"] = containers.read(stats, "sample_stats").groups["sample_stats"]
        batches.append(containers.build(groups))
    return batches


@pytest.fixture(scope="module")
def densities():
    rng = np.random.default_rng(0)
    return [Normal(rng.normal(0, 0.3, 2), 1.0, 2.0) for _ in range(4)]


@pytest.fixture(scope="module")
def merged(densities):
    batches = make_batches(np.random.default_rng(1), densities)
    with warnings.catch_warnings():  # of divergences
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        return az_swiss.merge(batches, kind="inflated")


@pytest.fixture(scope="module")
def certified(merged, densities):
    return az_swiss.certify(merged, densities, draws=DRAWS, random_seed=1, **QUIET)


def weights_of(merged):
    return groups_of(merged)["sample_stats"]["log_weight"]


def test_every_draw_has_the_weight_of_the_certificate(certified):
    groups = groups_of(certified)
    found, expected = weights_of(certified), groups["swiss_certificate"]["log_weight"]
    np.testing.assert_array_equal(found, expected)
    assert np.exp(found).sum() == pytest.approx(1)
    assert found.attrs["description"] == schema.VARIABLES["sample_stats"]["log_weight"]
    by_hand = (np.exp(found) * groups["posterior"]["x"]).sum(("chain", "draw"))
    np.testing.assert_allclose(by_hand, groups["swiss_certificate"]["mean"], rtol=1e-10)
    assert "diverging" in groups["sample_stats"]


def test_weights_go_with_their_draws_however_these_lie(merged, certified, densities):
    groups = groups_of(merged)
    for name in ("posterior", "sample_stats"):
        groups[name] = groups[name].isel(chain=[5, 2, 0, 1, 3, 4, 7, 6]).transpose("draw", ...)
    turned = az_swiss.certify(
        containers.build(groups), densities, draws=DRAWS, random_seed=1, **QUIET
    )
    found, expected = weights_of(turned), weights_of(certified)
    assert found["chain"].values.tolist() == [5, 2, 0, 1, 3, 4, 7, 6]
    np.testing.assert_allclose(found, expected.sel(chain=found["chain"]), rtol=1e-8)


def test_a_group_is_made_where_samplers_left_none(densities):
    rng = np.random.default_rng(1)
    draws = [{"x": density.draw(rng, power=4, shape=(2, 100))} for density in densities]
    merged = az_swiss.merge(draws, kind="inflated")
    certified = az_swiss.certify(merged, densities, draws=DRAWS, random_seed=1, **QUIET)
    stats = groups_of(certified)["sample_stats"]
    assert list(stats.data_vars) == ["log_weight"]
    assert stats["batch"].values.tolist() == ["b0", "b0", "b1", "b1", "b2", "b2", "b3", "b3"]
    assert "sample_stats" not in groups_of(az_swiss.subposteriors(certified)["b1"])
    refined = az_swiss.refine(certified, densities, random_seed=1, **QUIET)
    assert "sample_stats" not in groups_of(refined)


def test_none_where_some_draws_have_none(certified, densities):
    again = az_swiss.certify(certified, densities, draws=400, random_seed=1, **QUIET)
    assert groups_of(again)["swiss_certificate"]["log_weight"].size == 400
    assert "log_weight" not in groups_of(again)["sample_stats"]


def test_none_that_are_not_to_be_trusted(merged, densities):
    wrong = [Normal(density.centre + 3, 0.5, 2.0) for density in densities]
    with pytest.warns(az_swiss.MergeWarning, match="not certified"):
        certified = az_swiss.certify(merged, wrong, draws=DRAWS, random_seed=1, **QUIET)
    assert "log_weight" not in groups_of(certified)["sample_stats"]


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_none_of_draws_that_have_changed_since(certified, densities):
    refined = az_swiss.refine(certified, densities, random_seed=1, **QUIET)
    resampled = az_swiss.resample(certified, random_seed=1)
    batch = az_swiss.subposteriors(certified)["b2"]
    for changed in (refined, resampled, batch, az_swiss.merge([certified], kind="inflated")):
        stats = groups_of(changed)["sample_stats"]
        assert "diverging" in stats
        assert "log_weight" not in stats


def test_files_keep_them(certified, tmp_path):
    path = str(tmp_path / "certified.nc")
    certified.to_netcdf(path)
    read = weights_of(path)
    np.testing.assert_array_equal(read, weights_of(certified))


def test_arviz_reads_what_it_did_before(merged, certified):
    """Summaries and plots that look into sample_stats are the same with weights there."""
    tables = [az.summary(one, round_to="none") for one in (merged, certified)]
    assert tables[0].equals(tables[1])
    assert groups_of(certified)["sample_stats"]["diverging"].any()
    if containers.native_container() == "DataTree":
        drawn = az.plot_pair(certified, visuals={"divergence": True}, backend="none")
        assert "divergence" in drawn.viz
        quiet = {"show_diagnostics": False, "return_diagnostics": True}
        before, after = (az.diagnose(one, **quiet)[1] for one in (merged, certified))
        assert "divergent" in after
        assert before.keys() == after.keys()
    else:
        axes = az.plot_pair(certified, divergences=True)
        assert len(axes.lines) + len(axes.collections) > 1
        plt.close("all")

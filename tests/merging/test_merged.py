"""The reader of merged objects: every answer against the batches and the formulas."""

import numpy as np
import pytest
from merged_groups import group

import arviz_swiss as az_swiss
from arviz_swiss.base import linalg
from arviz_swiss.merging.merged import open_merged

pytestmark = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
POWERS = [2.0, 4.0, 8.0, 8.0]


@pytest.fixture
def batches(random_batches):
    """Four batches of a matrix, a positive scale, and a constant among them."""
    rng = np.random.default_rng(0)
    return {
        label: {
            "theta": np.insert(batch["theta"], 1, 0.1, axis=-1),
            "scale": np.exp(0.1 * rng.standard_normal((2, 200))),
        }
        for label, batch in zip("pqrs", random_batches(rng), strict=True)
    }


@pytest.fixture
def merged(batches):
    return az_swiss.merge(batches, powers=POWERS, transforms={"scale": "log"})


def unconstrained(batch):
    return np.concatenate([batch["theta"][..., [0, 2, 3]], np.log(batch["scale"])[..., None]], -1)


def test_before_and_after_are_the_draws_of_the_batch_and_of_the_merge(merged, batches):
    opened = open_merged(merged, "posterior")
    for position, (label, batch) in enumerate(batches.items()):
        np.testing.assert_allclose(opened.before(position), unconstrained(batch), atol=1e-10)
        now = group(merged).isel(chain=group(merged)["batch"].values == label)
        after = unconstrained({name: now[name].values for name in ("theta", "scale")})
        np.testing.assert_allclose(opened.after(position), after, atol=1e-12)
        back = opened.images_before(position)
        np.testing.assert_allclose(back["scale"], np.log(batch["scale"]), atol=1e-10)
        np.testing.assert_allclose(back["theta"], batch["theta"], atol=1e-10)


def test_a_map_and_its_inverse_undo_one_another(merged):
    opened = open_merged(merged, "posterior")
    for position in range(4):
        there, back = opened.map_of(position), opened.inverse_of(position)
        np.testing.assert_allclose(back.scale @ there.scale, np.eye(4), atol=1e-12)
        np.testing.assert_allclose(back.target, there.source)
        np.testing.assert_allclose(back.source, there.target)


def test_labels_powers_and_names(merged):
    opened = open_merged(merged, "posterior")
    assert opened.labels == list("pqrs")
    assert opened.parameters.tolist() == ["theta[0]", "theta[2]", "theta[3]", "scale"]
    assert opened.names == ["theta", "scale"]
    assert opened.transformed == ["scale"]
    assert opened.owners.tolist() == list("ppqqrrss")
    assert opened.sizes == (8, 200)
    assert (opened.method, opened.kind) == ("swiss", "inflated")
    assert opened.is_moved
    assert opened.certificate is None
    assert not opened.refinement.is_refined


def test_powers_are_those_of_the_sampling_whatever_was_dropped(batches):
    merged = az_swiss.merge(batches, powers=POWERS, drop="p", transforms={"scale": "log"})
    np.testing.assert_allclose(open_merged(merged, "posterior").scatter, POWERS[1:])


def test_moments_are_those_of_the_draws(merged, batches):
    opened = open_merged(merged, "posterior")
    precision = np.zeros((4, 4))
    for own, batch, power in zip(opened.batch_moments, batches.values(), POWERS, strict=True):
        rows = unconstrained(batch).reshape(-1, 4)
        np.testing.assert_allclose(own.mean, rows.mean(axis=0))
        np.testing.assert_allclose(own.covariance, np.cov(rows.T))
        precision += np.linalg.inv(own.covariance) / power
    np.testing.assert_allclose(opened.pooled.precision, precision)
    np.testing.assert_allclose(opened.pooled.factor, linalg.cholesky(precision))
    present = opened.present_moments
    np.testing.assert_allclose(present.mean, opened.pooled.mean, atol=1e-12)
    np.testing.assert_allclose(present.covariance, opened.pooled.covariance, atol=1e-12)


def test_rows_are_single_draws_or_chains(merged):
    opened = open_merged(merged, "posterior")
    every = opened.rows().reshape(8, 200, 4)
    np.testing.assert_array_equal(opened.rows([1, 5], [0, 7]), every[[1, 5], [0, 7]])
    np.testing.assert_array_equal(opened.rows(slice(2, 4)), every[2:4].reshape(-1, 4))


def test_parameters_are_selected_as_by_arviz(merged):
    opened = open_merged(merged, "posterior")
    assert opened.positions("scale").tolist() == [3]
    assert opened.positions("~scale").tolist() == [0, 1, 2]
    assert opened.positions("theta", coords={"theta_dim_0": [2, 3]}).tolist() == [1, 2]
    with pytest.raises(ValueError, match="only constants are selected"):
        opened.positions("theta", coords={"theta_dim_0": 1})


def test_the_space_of_the_merge_leads_to_the_draws(merged):
    opened = open_merged(merged, "posterior")
    space = opened.space()
    images = {name: opened.images[name].values for name in opened.names}
    for name, array in space.backward(images).items():
        np.testing.assert_allclose(array, opened.draws[name], atol=1e-12)
    assert opened.local_space() is None


def test_newly_made_draws_were_not_moved(batches):
    merged = az_swiss.merge(batches, method="consensus", kind="inflated")
    opened = open_merged(merged, "posterior")
    assert not opened.is_moved
    assert opened.owners is None
    with pytest.raises(ValueError, match=r'method "consensus".*newly made.*: no maps'):
        opened.require_moved("no maps.")


def test_a_file_is_read_as_the_object(merged, tmp_path):
    merged.to_netcdf(tmp_path / "merged.nc")
    stored = open_merged(tmp_path / "merged.nc", "posterior")
    opened = open_merged(merged, "posterior")
    for position in range(4):
        np.testing.assert_array_equal(stored.before(position), opened.before(position))
    assert stored.labels == opened.labels
    assert stored.container == opened.container


def test_parameters_and_batches_that_are_gone_are_named(merged):
    opened = open_merged(merged, "posterior")
    parameters = opened.maps.isel(parameter=[0, 1, 3], parameter_bis=[0, 1, 3])
    cut = opened.__class__({**opened.groups, "swiss_transform": parameters}, "x", "posterior")
    with pytest.raises(ValueError, match=r"has no parameter theta\[3\] any more, which varies"):
        cut.rows()
    few = opened.draws.isel(chain=slice(2, None))
    lost = opened.__class__({**opened.groups, "posterior": few}, "x", "posterior")
    with pytest.raises(ValueError, match=r'batch 0 \("p"\): none of its chains is left'):
        lost.chains_of(0)

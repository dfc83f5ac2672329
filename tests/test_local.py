"""Variables of one batch alone follow the shared ones."""

import numpy as np
import pytest
import xarray as xr

import arviz_swiss as az_swiss
from arviz_swiss import MergeWarning, containers

BATCHES, GROUPS, ROWS = 3, 4, 5


class Hierarchy:
    """y = z_g + noise, z_g = mu + noise, all of variance one, mu ~ N(0, 2^2): all is Gaussian."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.means = rng.standard_normal((BATCHES, GROUPS)) + rng.standard_normal(ROWS).mean()

    def posterior(self, means, prior_power):
        """Return mean and covariance of (mu, z_1, ..., z_G) given the groups' means of y."""
        groups = len(means)
        precision = np.zeros((groups + 1, groups + 1))
        precision[0, 0] = prior_power / 4 + groups
        precision[0, 1:] = precision[1:, 0] = -1.0
        precision[1:, 1:] = (1.0 + ROWS) * np.eye(groups)
        covariance = np.linalg.inv(precision)
        return covariance @ np.concatenate([[0.0], ROWS * np.asarray(means)]), covariance


def batch_of(draws, labels):
    data = {
        "mu": (("chain", "draw"), draws[..., 0]),
        "z": (("chain", "draw", "school"), draws[..., 1:]),
    }
    coords = {"chain": [0, 1], "draw": np.arange(draws.shape[1])}
    return xr.Dataset(data, coords=coords | ({} if labels is None else {"school": labels}))


@pytest.fixture
def problem(exact_draws):
    model = Hierarchy(0)
    rng = np.random.default_rng(1)
    draws = [exact_draws(rng, *model.posterior(means, 1 / BATCHES)) for means in model.means]
    return model, draws


def test_exact_for_gaussians(problem):
    """Moved local draws, with the shared ones, have exactly the full posterior's moments."""
    model, draws = problem
    batches = [
        batch_of(values, [f"s{b}{g}" for g in range(GROUPS)]) for b, values in enumerate(draws)
    ]
    groups = containers.read(az_swiss.merge(batches, kind="fractionated")).groups
    local = groups["local_posterior"]["z"]
    mean, covariance = model.posterior(model.means.ravel(), 1.0)
    np.testing.assert_allclose(groups["posterior"]["mu"].mean(), mean[0], atol=1e-10)
    np.testing.assert_allclose(local.mean(("chain", "draw")), mean[1:], atol=1e-8)
    for b in range(BATCHES):
        own = groups["posterior"]["mu"].values[2 * b : 2 * b + 2]
        here = local.isel(school=local["batch"].values == f"b{b}").values
        joint = np.concatenate([own[..., None], here], axis=-1).reshape(-1, GROUPS + 1)
        places = np.r_[0, 1 + GROUPS * b : 1 + GROUPS * (b + 1)]
        expected = covariance[np.ix_(places, places)]
        np.testing.assert_allclose(np.cov(joint.T), expected, atol=1e-8)


def test_labels_and_batches_are_told(problem):
    _, draws = problem
    batches = [
        batch_of(values, [f"s{b}{g}" for g in range(GROUPS)]) for b, values in enumerate(draws)
    ]
    local = containers.read(az_swiss.merge(batches, kind="fractionated")).groups["local_posterior"]
    assert local["school"].values.tolist()[:5] == ["s00", "s01", "s02", "s03", "s10"]
    assert local["batch"].values.tolist() == ["b0"] * 4 + ["b1"] * 4 + ["b2"] * 4


def test_repeated_labels_get_the_batchs_label(problem):
    """Default labels 0, 1, ... look shared; the sampling's attribute says that they are not."""
    _, draws = problem
    batches = [batch_of(values, None).assign_attrs(swiss_local="z") for values in draws]
    local = containers.read(az_swiss.merge(batches, kind="fractionated")).groups["local_posterior"]
    assert local["school"].values.tolist()[3:6] == ["b0:3", "b1:0", "b1:1"]
    assert local.sizes["school"] == 12


def test_inflated_local_variables_are_left_out(problem):
    _, draws = problem
    batches = [
        batch_of(values, [f"s{b}{g}" for g in range(GROUPS)]) for b, values in enumerate(draws)
    ]
    with pytest.warns(MergeWarning, match="left out of the merge: z"):
        merged = az_swiss.merge(batches, kind="inflated")
    assert "local_posterior" not in containers.read(merged).groups


def test_saved_and_read_back(problem, tmp_path):
    _, draws = problem
    batches = [
        batch_of(values, [f"s{b}{g}" for g in range(GROUPS)]) for b, values in enumerate(draws)
    ]
    merged = az_swiss.merge(batches, kind="fractionated")
    merged.to_netcdf(tmp_path / "merged.nc")
    saved = containers.read(tmp_path / "merged.nc").groups["local_posterior"]
    xr.testing.assert_equal(saved.load(), containers.read(merged).groups["local_posterior"])


def test_exact_for_gaussians_in_unconstrained_space(problem):
    """Batches of one, two and three groups, whose effects are Gaussian on the log scale."""
    _, draws = problem
    plain = [
        batch_of(values[..., : 2 + b], [f"s{b}{g}" for g in range(1 + b)])
        for b, values in enumerate(draws)
    ]
    logged = [batch.assign(z=np.exp(batch["z"])) for batch in plain]
    expected = containers.read(az_swiss.merge(plain, kind="fractionated")).groups
    found = containers.read(
        az_swiss.merge(logged, kind="fractionated", transforms={"z": "log"})
    ).groups
    assert found["local_posterior"].sizes["school"] == 6
    xr.testing.assert_allclose(found["posterior"], expected["posterior"])
    np.testing.assert_allclose(
        np.log(found["local_posterior"]["z"]), expected["local_posterior"]["z"], atol=1e-10
    )


def test_local_draws_outside_the_support_of_their_transform(problem):
    _, draws = problem
    batches = [
        batch_of(values, [f"s{b}{g}" for g in range(GROUPS)]) for b, values in enumerate(draws)
    ]
    with pytest.raises(ValueError, match=r'variable z: .* outside the support of transform "log"'):
        az_swiss.merge(batches, kind="fractionated", transforms={"z": "log"})
    with pytest.raises(ValueError, match="transforms name w, but the merged variables are mu"):
        az_swiss.merge(batches, kind="fractionated", transforms={"w": "log"})


def test_deterministics_of_local_variables_are_local(problem):
    """Linear ones stay exact, by the regression, without a model."""
    _, draws = problem
    batches = []
    for b, values in enumerate(draws):
        batch = batch_of(values, [f"s{b}{g}" for g in range(GROUPS)])
        batches.append(
            batch.assign(
                u=3 * batch["mu"] + 2 * batch["z"],
                odd=batch["z"] / 0,
                mean=batch["z"].mean("school"),
            ).assign_attrs(sampled_variables=["mu", "z"])
        )
    with pytest.warns(
        MergeWarning, match=r"left out of the merge: odd, mean \(deterministic: pass"
    ):
        merged = az_swiss.merge(batches, kind="fractionated")
    groups = containers.read(merged).groups
    local = groups["local_posterior"]
    assert set(local.data_vars) == {"z", "u"}
    for b in range(BATCHES):
        here = local.isel(school=local["batch"].values == f"b{b}")
        mu = groups["posterior"]["mu"].values[2 * b : 2 * b + 2, :, None]
        np.testing.assert_allclose(here["u"], 3 * mu + 2 * here["z"].values, atol=1e-10)

"""Variables of one batch alone follow the shared ones."""

import arviz as az
import numpy as np
import pytest
import xarray as xr
from scipy.linalg import block_diag

import arviz_swiss as az_swiss
from arviz_swiss import MergeWarning
from arviz_swiss.data import containers

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
    """Draws of all batches together have exact moments: those of different batches uncorrelated."""
    model = Hierarchy(0)
    moments = [model.posterior(means, 1 / BATCHES) for means in model.means]
    mean = np.concatenate([mean for mean, _ in moments])
    covariance = block_diag(*[covariance for _, covariance in moments])
    together = exact_draws(np.random.default_rng(1), mean, covariance)
    return model, np.split(together, BATCHES, axis=-1)


def labelled(draws):
    return [batch_of(values, [f"s{b}{g}" for g in range(GROUPS)]) for b, values in enumerate(draws)]


def posterior_of(merged):
    return containers.read(merged).groups["posterior"]


def owners_of(merged):
    return containers.read(merged).groups["swiss_local"]["batch_school"]


def flat(posterior):
    return az_swiss.data.flatten(posterior[["mu", "z"]]).values.reshape(-1, 1 + BATCHES * GROUPS)


@pytest.mark.parametrize("method", ["swiss", "recentre", "consensus", "location_scatter"])
def test_exact_for_gaussians(problem, method):
    """Shared and local variables of all batches have the full posterior's moments, jointly."""
    model, draws = problem
    posterior = posterior_of(az_swiss.merge(labelled(draws), kind="fractionated", method=method))
    mean, covariance = model.posterior(model.means.ravel(), 1.0)
    rows = flat(posterior)
    np.testing.assert_allclose(rows.mean(axis=0), mean, atol=1e-8)
    ddof = posterior.sizes["chain"] // 2  # every batch has exact moments on its own
    np.testing.assert_allclose(np.cov(rows.T, ddof=ddof), covariance, atol=1e-8)


def test_a_batchs_own_pairs_stay_together(problem):
    """In its own chains a batch's residuals are those of its own draws; noise is not doubled."""
    _, draws = problem
    merged = az_swiss.merge(labelled(draws), kind="fractionated")
    posterior, owners = posterior_of(merged), owners_of(merged)
    for b, values in enumerate(draws):
        own = posterior.isel(chain=slice(2 * b, 2 * b + 2))
        here = own["z"].sel(school=owners == f"b{b}").values
        shared, local = values[..., 0].ravel(), values[..., 1:].reshape(-1, GROUPS)
        slope = np.array([np.polyfit(shared, column, 1)[0] for column in local.T])
        expected = values[..., 1:] + slope * (own["mu"].values - values[..., 0])[..., None]
        np.testing.assert_allclose(here, expected, atol=1e-10)


def test_chains_of_a_batch_are_counted_round(problem):
    """Batches of two, one and two chains: every merged chain has all groups."""
    _, draws = problem
    batches = labelled(draws)
    batches[1] = batches[1].isel(chain=[0])
    merged = az_swiss.merge(batches, kind="fractionated")
    posterior = posterior_of(merged)
    assert posterior["z"].sizes == {"chain": 5, "draw": 200, "school": 12}
    z = posterior["z"].sel(school=owners_of(merged) == "b1").values
    mu = posterior["mu"].values
    slope = np.linalg.lstsq(
        draws[1][0, :, :1] - draws[1][0, :, :1].mean(), draws[1][0, :, 1:], rcond=None
    )[0][0]
    rests = z - mu[..., None] * slope
    for chain in range(5):
        np.testing.assert_allclose(rests[chain], rests[2], atol=1e-10)


def test_labels_and_batches_are_told(problem):
    _, draws = problem
    merged = az_swiss.merge(labelled(draws), kind="fractionated")
    posterior = posterior_of(merged)
    assert posterior["school"].values.tolist()[:5] == ["s00", "s01", "s02", "s03", "s10"]
    assert owners_of(merged).values.tolist() == ["b0"] * 4 + ["b1"] * 4 + ["b2"] * 4
    assert posterior["batch"].values.tolist() == ["b0"] * 2 + ["b1"] * 2 + ["b2"] * 2
    assert posterior.attrs["swiss_local"] == "z"
    assert "swiss_unordered" not in posterior.attrs


def test_elements_are_put_into_the_order_of_their_labels(problem):
    """The data's groups 0 to 11 were dealt out to batches at random."""
    _, draws = problem
    dealt = np.sort(np.random.default_rng(0).permutation(12).reshape(BATCHES, GROUPS), axis=1)
    batches = [batch_of(values, labels) for values, labels in zip(draws, dealt, strict=True)]
    merged = az_swiss.merge(batches, kind="fractionated")
    posterior = posterior_of(merged)
    assert posterior["school"].values.tolist() == list(range(12))
    in_turn = posterior_of(az_swiss.merge(labelled(draws), kind="fractionated"))["z"]
    np.testing.assert_array_equal(posterior["z"].sel(school=dealt.ravel()), in_turn)
    assert owners_of(merged).sel(school=dealt[1]).values.tolist() == ["b1"] * 4


def test_an_unknown_order_is_said(problem):
    _, draws = problem
    batches = [batch_of(v, [f"s{b}{g}" for g in (2, 0, 1, 3)]) for b, v in enumerate(draws)]
    with pytest.warns(MergeWarning, match=r"order .* along school .* Pass the model of all data"):
        posterior = posterior_of(az_swiss.merge(batches, kind="fractionated"))
    assert posterior.attrs["swiss_unordered"] == "school"


def test_repeated_labels_get_the_batchs_label(problem):
    """Default labels 0, 1, ... look shared; the sampling's attribute says that they are not."""
    _, draws = problem
    batches = [batch_of(values, None).assign_attrs(swiss_local="z") for values in draws]
    with pytest.warns(MergeWarning, match="along school repeat between batches: give the model"):
        merged = az_swiss.merge(batches, kind="fractionated")
    posterior = posterior_of(merged)
    assert posterior["school"].values.tolist()[3:6] == ["b0:3", "b1:0", "b1:1"]
    assert posterior.sizes["school"] == 12
    assert posterior.attrs["swiss_unordered"] == "school"
    back = az_swiss.subposteriors(merged)
    assert posterior_of(back["b1"])["school"].values.tolist() == [0, 1, 2, 3]


def test_plain_batches_too(problem, exact_draws):
    """Local variables given shared ones do not know the prior's power."""
    model, _ = problem
    rng = np.random.default_rng(2)
    moments = [model.posterior(means, 1.0) for means in model.means]
    together = exact_draws(
        rng, np.concatenate([m for m, _ in moments]), block_diag(*[c for _, c in moments])
    )
    prior = {"mu": exact_draws(rng, [0.0], [[4.0]])[..., 0]}
    batches = labelled(np.split(together, BATCHES, axis=-1))
    posterior = posterior_of(az_swiss.merge(batches, kind="full_prior", prior=prior))
    mean, covariance = model.posterior(model.means.ravel(), 1.0)
    np.testing.assert_allclose(flat(posterior).mean(axis=0), mean, atol=1e-8)
    np.testing.assert_allclose(np.cov(flat(posterior).T, ddof=3), covariance, atol=1e-8)


def test_inflated_local_variables_are_left_out(problem):
    _, draws = problem
    batches = labelled(draws)
    with pytest.warns(MergeWarning, match="left out of the merge: z .*draws them from the prior"):
        merged = az_swiss.merge(batches, kind="inflated")
    assert "z" not in posterior_of(merged)
    assert "swiss_local" not in containers.read(merged).groups


def test_saved_and_read_back(problem, tmp_path):
    _, draws = problem
    batches = labelled(draws)
    merged = az_swiss.merge(batches, kind="fractionated")
    merged.to_netcdf(tmp_path / "merged.nc")
    saved = containers.read(tmp_path / "merged.nc").groups
    for group in ("posterior", "swiss_local"):
        xr.testing.assert_equal(saved[group].load(), containers.read(merged).groups[group])
    back = az_swiss.subposteriors(tmp_path / "merged.nc")
    for b, batch in enumerate(batches):
        xr.testing.assert_allclose(posterior_of(back[f"b{b}"])[["mu", "z"]], batch)


@pytest.mark.parametrize("transform", [None, "log"])
def test_undo_gives_each_batch_its_own_local_draws(problem, transform):
    """Also of unequal lengths, shuffled labels, and after elements were put into another order."""
    _, draws = problem
    rng = np.random.default_rng(0)
    batches = [
        batch_of(values, rng.permutation(np.arange(4) + 4 * b)) for b, values in enumerate(draws)
    ]
    if transform:
        batches = [batch.assign(z=np.exp(batch["z"])) for batch in batches]
    batches[0] = batches[0].isel(draw=slice(150))
    with pytest.warns(MergeWarning) as caught:
        merged = az_swiss.merge(batches, kind="fractionated", transforms={"z": transform})
    assert len(caught) == 2  # lengths, and the order of labels
    groups = containers.read(merged).groups
    order = rng.permutation(12)
    groups["posterior"] = groups["posterior"].sel(school=order)
    shuffled = containers.build(groups)
    for label, back in az_swiss.subposteriors(shuffled).items():
        own = batches[int(label[1])].isel(draw=slice(150))
        found = posterior_of(back)
        assert set(found.coords) == {"chain", "draw", "school"}
        xr.testing.assert_allclose(found[["mu", "z"]], own, rtol=1e-10)
    groups["posterior"] = groups["posterior"].sel(school=order[:5])
    with pytest.raises(ValueError, match=r"has no element .* along school, which batch"):
        az_swiss.subposteriors(containers.build(groups))


def test_units_of_parameters_do_not_matter(problem):
    _, draws = problem
    rng = np.random.default_rng(0)
    batches = []
    for batch in labelled(draws):
        other = rng.standard_normal((2, 200)) + batch["z"][..., 0].drop_vars("school")
        batches.append(batch.assign(other=other))
    plain = posterior_of(az_swiss.merge(batches, kind="fractionated"))
    scaled = [b.assign(mu=1e-9 * b["mu"], other=1e9 * b["other"]) for b in batches]
    found = posterior_of(az_swiss.merge(scaled, kind="fractionated"))
    np.testing.assert_allclose(found["z"], plain["z"], rtol=0, atol=1e-9)


def test_dates_as_labels(problem):
    _, draws = problem
    days = np.datetime64("2024-01-01", "ns") + np.arange(12) * np.timedelta64(1, "D")
    batches = [batch_of(v, days[k::BATCHES]) for k, v in enumerate(draws)]
    merged = az_swiss.merge(batches, kind="fractionated")
    np.testing.assert_array_equal(posterior_of(merged)["school"], days)
    back = posterior_of(az_swiss.subposteriors(merged)["b1"])
    xr.testing.assert_allclose(back[["mu", "z"]], batches[1])


def test_undone_batches_can_be_merged_again(problem):
    _, draws = problem
    merged = az_swiss.merge(labelled(draws), kind="fractionated")
    again = az_swiss.merge(az_swiss.subposteriors(merged))
    xr.testing.assert_allclose(posterior_of(again), posterior_of(merged))


def test_arviz_takes_local_variables_as_any(problem):
    _, draws = problem
    merged = az_swiss.merge(labelled(draws), kind="fractionated")
    assert "z[s21]" in az.summary(merged).index
    table = az_swiss.summary(merged, by="parameter")
    assert "z[s21]" in table.index and np.isnan(table.loc["z[s21]", "q"])
    assert "1 parameter" in str(az_swiss.report(merged))
    assert az.extract(merged)["z"].sizes == {"school": 12, "sample": 1200}


@pytest.mark.filterwarnings("ignore::matplotlib.MatplotlibDeprecationWarning:arviz")
@pytest.mark.parametrize("plot", ["plot_forest", "plot_pair", "plot_rank", "plot_trace"])
def test_arviz_plots_local_variables_as_any(problem, plot):
    import matplotlib.pyplot as plt

    _, draws = problem
    batches = [batch_of(values[..., :2], [b]) for b, values in enumerate(draws)]
    merged = az_swiss.merge(batches, powers=1.0, kind="fractionated")
    getattr(az, plot)(merged)
    plt.close("all")


def test_effective_sizes_of_local_variables_count_each_draw_in_every_batch(problem):
    """As docs/limits.md says: the batches' own draws tell how many there are."""
    _, draws = problem
    merged = az_swiss.merge(labelled(draws), kind="fractionated")
    own = az.ess(az_swiss.subposteriors(merged)["b1"])["z"].mean()
    together = az.ess(merged)["z"].sel(school=["s10", "s11", "s12", "s13"]).mean()
    assert 0.5 * BATCHES < float(together / own) < 1.2 * BATCHES


def test_what_cannot_be_put_side_by_side_is_left_out(problem):
    """A local variable without dims, and one with two that differ."""
    _, draws = problem
    batches = []
    for b, batch in enumerate(labelled(draws)):
        square = batch["z"] * xr.DataArray(np.ones(2), {"year": [2 * b, 2 * b + 1]})
        batches.append(
            batch.assign(alone=batch["z"][..., 0].drop_vars("school"), square=square).assign_attrs(
                swiss_local="z,alone,square"
            )
        )
    with pytest.warns(MergeWarning, match=r"left out of the merge: alone, square \(batch-local"):
        merged = az_swiss.merge(batches, kind="fractionated")
    assert set(posterior_of(merged).data_vars) == {"mu", "z"}


def test_exact_for_gaussians_in_unconstrained_space(problem):
    """Batches of one, two and three groups, whose effects are Gaussian on the log scale."""
    _, draws = problem
    plain = [
        batch_of(values[..., : 2 + b], np.arange(1 + b) + start)
        for b, (values, start) in enumerate(zip(draws, (0, 1, 3), strict=True))
    ]
    logged = [batch.assign(z=np.exp(batch["z"])) for batch in plain]
    expected = containers.read(az_swiss.merge(plain, kind="fractionated")).groups
    found = containers.read(
        az_swiss.merge(logged, kind="fractionated", transforms={"z": "log"})
    ).groups
    assert found["posterior"].sizes["school"] == 6
    logs = found["posterior"].assign(z=np.log(found["posterior"]["z"]))
    xr.testing.assert_allclose(logs, expected["posterior"])


def test_local_draws_outside_the_support_of_their_transform(problem):
    _, draws = problem
    batches = labelled(draws)
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
    posterior = posterior_of(merged)
    assert set(posterior.data_vars) == {"mu", "z", "u"}
    assert posterior.attrs["swiss_local"] == "z"
    expected = 3 * posterior["mu"] + 2 * posterior["z"]
    xr.testing.assert_allclose(posterior["u"], expected.transpose("chain", "draw", "school"))


def said_local(draws, labels):
    return [
        batch_of(values, own).assign_attrs(swiss_local="z")
        for values, own in zip(draws, labels, strict=True)
    ]


@pytest.mark.parametrize("third", [["c", "x", "y", "w"], ["a", "b", "c", "d"]])
def test_a_group_in_two_batches_is_refused(problem, third):
    """Its rows inform one effect, not two: the shared parameters would be wrong as well."""
    _, draws = problem
    batches = said_local(draws, [list("abcd"), list("efgh"), third])
    label = third[0]
    with pytest.raises(
        ValueError, match=rf'school \'{label}\' is in batch 0 \("b0"\) and in batch 2 .*groups='
    ):
        az_swiss.merge(batches, kind="fractionated")


@pytest.mark.parametrize("labels", [["first", "second", "third", "fourth"], [1, 2, 3, 4]])
def test_labels_that_number_a_batchs_own_groups_are_made_unique(problem, labels):
    _, draws = problem
    with pytest.warns(MergeWarning, match="repeat between batches"):
        merged = az_swiss.merge(said_local(draws, [labels] * 3), kind="fractionated")
    assert posterior_of(merged)["school"].values[4] == f"b1:{labels[0]}"


def test_missing_values_are_not_put_side_by_side(problem):
    """PyMC draws missing outcomes anew: no order is needed, and no prior draws them."""
    _, draws = problem
    batches = []
    for values in draws:
        missing = {"y_unobserved": values[..., 1:], "y": values[..., 1:].repeat(3, axis=-1)}
        batch = containers.read({"mu": values[..., 0]} | missing).groups["posterior"]
        attrs = {"sampled_variables": ["mu", "y_unobserved"], "swiss_local": "y_unobserved"}
        batches.append(batch.assign_attrs(attrs))
    for kind in ("fractionated", "inflated"):
        with pytest.warns(MergeWarning) as record:
            merged = az_swiss.merge(batches, kind=kind)
        (message,) = [str(warning.message) for warning in record if "left out" in str(warning)]
        assert "left out of the merge: y_unobserved, y (missing values: PyMC draws" in message
        assert "from the prior" not in message
        assert not any("order" in str(warning.message) for warning in record)
        assert list(posterior_of(merged).data_vars) == ["mu"]

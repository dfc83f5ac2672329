"""Reading and building containers, files in both formats, and ArviZ's functions on the result."""

import arviz as az
import numpy as np
import pytest
import xarray as xr

import arviz_swiss as az_swiss
from arviz_swiss.data import containers

ARVIZ_0 = containers.native_container() == "InferenceData"


@pytest.fixture(scope="module")
def merged(to_container):
    rng = np.random.default_rng(0)
    batches = {}
    for k, label in enumerate(["north", "south", "east"]):
        posterior = xr.Dataset(
            {
                "beta": (("chain", "draw", "term"), rng.standard_normal((2, 300, 2))),
                "sigma": (("chain", "draw"), rng.gamma(20, size=(2, 300))),
            },
            coords={"chain": [0, 1], "draw": np.arange(300), "term": ["a", "b"]},
            attrs={"inference_library": "none", "sampled_variables": ["beta", "sigma"]},
        )
        batches[label] = to_container(
            posterior,
            sample_stats={"diverging": np.zeros((2, 300), dtype=bool)},
            observed_data=xr.Dataset({"y": ("row", np.ones(4))}, {"row": np.arange(4) + 4 * k}),
        )
    return az_swiss.merge(batches, transforms={"sigma": "log"}, kind="inflated")


def groups_of(container):
    return containers.read(container).groups


def save(container, path):
    if path.suffix == ".nc":
        container.to_netcdf(path, engine="h5netcdf")
    elif ARVIZ_0:
        container.to_datatree().to_zarr(path)
    else:
        container.to_zarr(path)


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part:UserWarning")
@pytest.mark.parametrize("name", ["merged.nc", "merged.zarr"])
def test_saving_keeps_everything(merged, tmp_path, name):
    save(merged, tmp_path / name)
    read = groups_of(tmp_path / name)
    assert set(read) == set(groups_of(merged))
    for group, dataset in groups_of(merged).items():
        xr.testing.assert_equal(read[group].load(), dataset)
        assert set(read[group].coords) == set(dataset.coords)
        for key, value in dataset.attrs.items():
            assert np.array_equal(read[group].attrs[key], value), (group, key)


def test_arviz_reads_the_file_and_the_merge_is_undone_from_it(merged, tmp_path):
    merged.to_netcdf(tmp_path / "merged.nc")
    back = az_swiss.subposteriors(az.from_netcdf(tmp_path / "merged.nc"))
    direct = az_swiss.subposteriors(merged)
    for label, batch in direct.items():
        xr.testing.assert_allclose(
            groups_of(back[label])["posterior"], groups_of(batch)["posterior"]
        )


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part:UserWarning")
@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_paths_merge_like_objects(merged, tmp_path, suffix):
    batches = az_swiss.subposteriors(merged)
    paths = {}
    for label, batch in batches.items():
        paths[label] = tmp_path / f"{label}{suffix}"
        save(batch, paths[label])
    from_files = az_swiss.merge(paths)
    in_memory = az_swiss.merge(batches)
    for group, dataset in groups_of(in_memory).items():
        xr.testing.assert_equal(groups_of(from_files)[group], dataset)
    assert type(from_files) is type(merged)


def test_datatree_in_datatree_out(merged):
    trees = {
        label: containers.build(groups_of(batch), "DataTree")
        for label, batch in az_swiss.subposteriors(merged).items()
    }
    assert isinstance(az_swiss.merge(trees), xr.DataTree)


def test_dicts_datasets_and_nested_dicts_are_batches():
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, 50)) for _ in range(3)]
    dataset = xr.Dataset({"x": (("chain", "draw"), arrays[1])})
    merged = az_swiss.merge(
        [{"x": arrays[0]}, dataset, {"posterior": {"x": arrays[2]}}], kind="inflated"
    )
    assert containers.read(merged).container == containers.native_container()
    assert groups_of(merged)["posterior"].sizes == {"chain": 6, "draw": 50}


def test_safe_attrs():
    attrs = {"a": "x", "b": 1, "c": 2.5, "d": True, "e": None, "f": {"g": 1}}
    attrs |= {"h": [1, 2], "i": ["only"], "j": [], "k": np.float64(3), "l": np.array([1, 2])}
    expected = {"a": "x", "b": 1, "c": 2.5, "d": 1, "h": [1, 2], "i": "only", "k": 3.0, "l": [1, 2]}
    assert containers.safe_attrs(attrs) == expected


def test_statistics_of_arviz_run(merged):
    summary = az.summary(merged)
    assert list(summary.index) == ["beta[a]", "beta[b]", "sigma"]
    assert float(np.max(az.rhat(merged)["beta"])) < 1.05
    assert float(np.min(az.ess(merged)["beta"])) > 500
    assert az.extract(merged).sizes["sample"] == 1800
    assert az.extract(merged, num_samples=10).sizes["sample"] == 10


@pytest.mark.filterwarnings("ignore::matplotlib.MatplotlibDeprecationWarning:arviz")
@pytest.mark.parametrize(
    "plot", ["plot_forest", "plot_trace", "plot_trace_dist", "plot_pair", "plot_rank"]
)
def test_plots_of_arviz_run(merged, plot):
    if not hasattr(az, plot):
        pytest.skip(f"{plot} belongs to ArviZ 1.x")
    import matplotlib.pyplot as plt

    getattr(az, plot)(merged)
    plt.close("all")


def test_plots_that_need_what_a_merge_drops(merged):
    """As docs/plots.md says."""
    with pytest.raises(AttributeError, match="energy"):
        az.plot_energy(merged)
    with pytest.raises((TypeError, KeyError), match=r"(?i)energy"):
        az.bfmi(merged)
    with pytest.raises(TypeError, match="log likelihood not found"):
        az.loo(merged)


def test_fits_of_samplers_are_batches():
    """A real fit, of the lightest sampler that ArviZ converts."""
    emcee = pytest.importorskip("emcee")
    fits = []
    for seed in range(2):
        sampler = emcee.EnsembleSampler(6, 2, lambda x: -0.5 * x @ x)
        start = np.random.default_rng(seed).standard_normal((6, 2))
        sampler.random_state = np.random.RandomState(seed).get_state()
        sampler.run_mcmc(start, 400)
        fits.append(sampler)
    assert groups_of(az_swiss.merge(fits, kind="inflated"))["posterior"].sizes == {
        "chain": 12,
        "draw": 400,
    }


def inherited(order):
    """Return a batch whose labels stand at the root of its tree; means 0, 10 and 20 for a, b, c."""
    rng = np.random.default_rng(len(order))
    means = xr.DataArray([0.0, 10.0, 20.0], {"term": ["a", "b", "c"]}).sel(term=list(order))
    beta = means.values + rng.standard_normal((2, 200, 3))
    posterior = xr.Dataset({"beta": (("chain", "draw", "term"), beta)})
    root = xr.Dataset(coords={"term": list(order)})
    return xr.DataTree.from_dict({"/": root, "/posterior": posterior})


@pytest.mark.parametrize("stored", [False, True], ids=["tree", "file"])
def test_labels_inherited_from_the_root_are_matched(tmp_path, stored):
    batches = {}
    for order in ("abc", "bca"):
        batches[order] = inherited(order)
        if stored:
            path = tmp_path / f"{order}.nc"
            batches[order].to_netcdf(path, engine="h5netcdf")
            batches[order] = path
    posterior = groups_of(az_swiss.merge(batches, kind="inflated"))["posterior"]
    means = posterior["beta"].mean(("chain", "draw")).sel(term=["a", "b", "c"])
    np.testing.assert_allclose(means, [0, 10, 20], atol=0.5)


def test_a_file_of_one_dataset_is_a_posterior(tmp_path):
    rng = np.random.default_rng(0)
    paths = []
    for number in range(2):
        dataset = xr.Dataset({"mu": (("chain", "draw"), rng.standard_normal((2, 100)))})
        paths.append(tmp_path / f"{number}.nc")
        dataset.to_netcdf(paths[-1], engine="h5netcdf")
    assert groups_of(az_swiss.merge(paths, kind="inflated"))["posterior"].sizes["chain"] == 4


def test_attributes_that_no_file_can_hold_are_left_out(tmp_path):
    rng = np.random.default_rng(0)
    posterior = xr.Dataset(
        {"beta": (("chain", "draw", "term"), rng.standard_normal((2, 100, 2)))},
        coords={"term": ("term", ["a", "b"], {"units": None, "long_name": "a term"})},
        attrs={"mixed": ["a", 1], "big": 2**70, "kept": [1, 2.5]},
    )
    other = posterior.assign(beta=-posterior["beta"])
    merged = az_swiss.merge([posterior, other], kind="inflated")
    path = tmp_path / "merged.nc"
    merged.to_netcdf(path)
    back = containers.read(path).groups["posterior"]
    assert not {"mixed", "big"} & set(back.attrs)
    np.testing.assert_array_equal(back.attrs["kept"], [1, 2.5])
    assert back["term"].attrs == {"long_name": "a term"}


def with_stats(to_container, labels, seed):
    rng = np.random.default_rng(seed)
    posterior = xr.Dataset(
        {"mu": (("chain", "draw"), rng.standard_normal((2, len(labels))))},
        coords={"chain": [0, 1], "draw": labels},
    )
    at = np.arange(100)
    stats = xr.Dataset(
        {"label": (("chain", "draw"), np.tile(at, (2, 1)))}, {"chain": [0, 1], "draw": at}
    )
    return to_container(posterior, sample_stats=stats)


def test_statistics_are_matched_to_draws_by_label(to_container):
    batches = [with_stats(to_container, np.arange(0, 100, 3), seed) for seed in range(2)]
    stats = groups_of(az_swiss.merge(batches, kind="inflated"))["sample_stats"]
    np.testing.assert_array_equal(stats["label"][3], np.arange(0, 100, 3))


def test_statistics_that_do_not_cover_the_draws_are_left_out(to_container):
    batches = [with_stats(to_container, np.arange(120), seed) for seed in range(2)]
    groups = groups_of(az_swiss.merge(batches, kind="inflated"))
    assert "sample_stats" not in groups
    assert "sample_stats" in groups["posterior"].attrs["swiss_left_out"]


def test_data_that_some_batches_lack_are_left_out_and_said_so(to_container):
    rng = np.random.default_rng(0)
    first, second = ({"mu": rng.standard_normal((2, 100))} for _ in range(2))
    data = xr.Dataset({"y": ("row", np.ones(4))}, {"row": np.arange(4)})
    batches = [to_container(first, observed_data=data), to_container(second)]
    groups = groups_of(az_swiss.merge(batches, kind="inflated"))
    assert "observed_data" not in groups
    assert groups["posterior"].attrs["swiss_left_out"] == "observed_data/y"


def test_a_dict_of_groups_may_hold_coords_and_dims():
    rng = np.random.default_rng(0)
    batches = [
        {
            "posterior": {"b": rng.standard_normal((2, 100, 2))},
            "coords": {"g": ["one", "two"]},
            "dims": {"b": ["g"]},
        }
        for _ in range(2)
    ]
    merged = containers.read(az_swiss.merge(batches, kind="inflated")).groups["posterior"]
    assert merged["b"].dims == ("chain", "draw", "g")
    assert merged["g"].values.tolist() == ["one", "two"]


def test_lists_are_arrays():
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, 50)) for _ in range(2)]
    found, expected = (
        containers.read(az_swiss.merge(batches, kind="inflated")).groups["posterior"]["x"]
        for batches in ([{"x": x.tolist()} for x in arrays], [{"x": x} for x in arrays])
    )
    np.testing.assert_array_equal(found, expected)


def columns(rng, shape=(1000, 3)):
    """Draws by parameters, as most samplers outside ArviZ return them."""
    return rng.standard_normal(shape) + np.arange(shape[-1])


@pytest.mark.parametrize("shape", [(1000, 3), (400, 2), (400, 20), (1000,), (1000, 2, 2), ()])
def test_draws_without_a_chain_axis_are_refused(shape):
    rng = np.random.default_rng(0)
    batches = {label: {"beta": rng.standard_normal(shape)} for label in ("north", "south")}
    with pytest.raises(ValueError, match=r'batch 0 \("north"\).*variable beta: shape .*x\[None\]'):
        az_swiss.merge(batches, kind="inflated")
    bare = [rng.standard_normal(shape) for _ in range(2)]
    with pytest.raises(ValueError, match=r"batch 0 .*shape .*x\[None\]"):
        az_swiss.merge(bare, kind="inflated")
    grouped = [{"posterior": {"beta": draws}} for draws in bare]
    with pytest.raises(ValueError, match=r"batch 0 .*variable beta: shape .*x\[None\]"):
        az_swiss.merge(grouped, kind="inflated")


def test_a_chain_axis_is_the_remedy():
    rng = np.random.default_rng(1)
    draws = [columns(rng) for _ in range(3)]
    merged = az_swiss.merge([{"beta": one[None]} for one in draws], kind="inflated")
    posterior = merged["posterior"]["beta"]
    assert posterior.shape == (3, 1000, 3)
    precisions = [np.linalg.inv(np.cov(one.T)) for one in draws]
    covariance = np.linalg.inv(np.mean(precisions, axis=0))
    mean = covariance @ np.mean(
        [p @ one.mean(axis=0) for p, one in zip(precisions, draws, strict=True)], axis=0
    )
    np.testing.assert_allclose(posterior.mean(("chain", "draw")), mean, rtol=1e-10)
    for chain in posterior.values:
        np.testing.assert_allclose(np.cov(chain.T), covariance, rtol=1e-9, atol=1e-12)


def test_references_need_a_chain_axis_too():
    rng = np.random.default_rng(2)
    data = {"beta": rng.standard_normal((2, 500, 3))}
    with pytest.raises(ValueError, match=r"reference .*variable beta: shape \(1000, 3\)"):
        az_swiss.discrepancy(data, {"beta": columns(rng)})
    with pytest.raises(ValueError, match=r"data .*variable beta: shape \(1000, 3\)"):
        az_swiss.data.flatten({"beta": columns(rng)})


def test_more_chains_than_draws_can_be_said_by_names():
    rng = np.random.default_rng(3)
    batches = [
        xr.Dataset({"beta": (("chain", "draw", "term"), rng.standard_normal((100, 20, 2)))})
        for _ in range(3)
    ]
    assert az_swiss.merge(batches, kind="inflated")["posterior"].sizes["chain"] == 300


def test_containers_with_parameters_for_draws_are_refused(to_container):
    """ArviZ makes such containers, with a warning of its own."""
    rng = np.random.default_rng(4)
    batches = [
        to_container(xr.Dataset({"beta": (("chain", "draw"), columns(rng))})) for _ in range(2)
    ]
    with pytest.raises(ValueError, match=r"batch 0 has 1000 chains of 3 draws.*x\[None\]"):
        az_swiss.merge(batches, kind="inflated")


def test_names_that_no_file_can_hold_are_refused():
    rng = np.random.default_rng(5)
    arrays = [{"a/b": rng.standard_normal((2, 100)), "c": rng.standard_normal((2, 100))}] * 2
    message = r'batch 0.*variable a/b: .*cannot hold a name with "/".*"a_b"'
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(arrays, kind="inflated")
    datasets = [
        xr.Dataset({n: (("chain", "draw"), rng.standard_normal((2, 100))) for n in ("a/b", "c")})
        for _ in range(2)
    ]
    if containers.native_container() == "DataTree":
        with pytest.raises(ValueError, match=message):
            az_swiss.merge(datasets, kind="inflated")
    else:
        merged = az_swiss.merge(datasets, kind="inflated")
        assert set(merged["posterior"].data_vars) == {"a/b", "c"}
    renamed = az_swiss.merge([one.rename({"a/b": "a_b"}) for one in datasets], kind="inflated")
    left_out = az_swiss.merge(datasets, kind="inflated", var_names="~a/b")
    assert set(renamed["posterior"].data_vars) == {"a_b", "c"}
    assert set(left_out["posterior"].data_vars) == {"c"}


def test_containers_are_recognised_by_what_they_are(merged):
    dataset = groups_of(merged)["posterior"]
    built = containers.build({"posterior": dataset}, containers.native_container(), {"by": "me"})
    tree = containers.build({"posterior": dataset}, "DataTree")
    assert all(containers.is_container(each) for each in (built, tree, dataset))
    assert not any(containers.is_container(each) for each in (None, {"x": 1}, [dataset], "a.nc"))
    assert containers.is_inference_data(built) == ARVIZ_0
    assert not containers.is_inference_data(tree)
    assert containers.root_attrs(built) == {"by": "me"}
    assert containers.root_attrs(dataset) == {}


@pytest.mark.parametrize("origin", [0, 1])
def test_plain_arrays_become_what_arviz_makes_of_them(origin, monkeypatch):
    arrays = {
        "mu": np.random.default_rng(0).normal(size=(2, 10)),
        "beta": np.zeros((2, 10, 3, 2), np.float32),
        "flag": np.ones((2, 10, 1), bool),
    }
    monkeypatch.setitem(az.rcParams, "data.index_origin", origin)
    own = containers.read(arrays).groups["posterior"]
    monkeypatch.setattr(containers, "_from_arrays", lambda *_: None)
    converted = containers.read(arrays).groups["posterior"]
    xr.testing.assert_equal(own, converted)
    dtypes = [{n: a.dtype for n, a in each.variables.items()} for each in (own, converted)]
    assert dtypes[0] == dtypes[1]
    assert all(np.shares_memory(own[name].values, array) for name, array in arrays.items())


def test_what_is_no_plain_array_is_left_to_arviz():
    draws = np.zeros((2, 10))
    for arrays in (
        {"x": draws, "y": draws.tolist()},
        {"x": np.ma.masked_array(draws)},
        {"x": draws, "y": np.zeros((2, 9))},
        {"x": np.zeros((2, 10, 3)), "x_dim_0": draws},
        {"log_likelihood": draws},
        {"x": draws.astype(complex)},
    ):
        assert containers._from_arrays(arrays, "posterior") is None
    assert containers._from_arrays({"x": draws}, "sample_stats") is None


def test_attributes_of_one_dicts_labels_are_not_those_of_another():
    first, second = (containers.read({"x": np.zeros((2, 10, 3))}).groups["posterior"] for _ in "ab")
    first["x_dim_0"].attrs["unit"] = "m"
    third = containers.read({"x": np.zeros((2, 10, 3))}).groups["posterior"]
    assert second["x_dim_0"].attrs == third["x_dim_0"].attrs == {}

"""The experiments' own pieces: data, samplers, store, tables; the notebooks run the rest."""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

PAPER = Path(__file__).resolve().parents[1] / "notebooks" / "paper"
sys.path.insert(0, str(PAPER))

(
    results,
    methods,
    geometries,
    logistic_real,
    logistic_simulated,
    mixed_effects,
    samplers,
    scalability,
) = map(
    import_module,
    (
        "results",
        "methods",
        "geometries",
        "logistic_real",
        "logistic_simulated",
        "mixed_effects",
        "samplers",
        "scalability",
    ),
)


class Setting(NamedTuple):
    rows: int = 3


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPER_STORE", str(tmp_path))
    return results.open_store("trial", Setting())


def test_a_stopped_run_goes_on_where_it_stopped(store):
    units = [{"part": part} for part in range(4)]
    called = []

    def run(part):
        called.append(part)
        if part == 2 and called.count(2) == 1:
            raise KeyboardInterrupt
        return [{"value": np.float64(part) / 2}]

    with pytest.raises(KeyboardInterrupt):
        results.collect(store, units, run, progressbar=False)
    rows = results.collect(store, units, run, progressbar=False)
    assert called == [0, 1, 2, 2, 3]
    assert rows.to_dict("list") == {"part": [0, 1, 2, 3], "value": [0.0, 0.5, 1.0, 1.5]}


def test_another_setting_has_another_store(store):
    assert results.open_store("trial", Setting()) == store
    assert results.open_store("trial", Setting(rows=4)) != store


def test_other_code_has_another_store_but_keeps_its_draws(store, monkeypatch):
    draws = results.draws_folder("trial", Setting(), "full")
    monkeypatch.setattr(results, "_code", lambda experiment: "other code")
    assert results.open_store("trial", Setting()) != store
    assert results.draws_folder("trial", Setting(), "full") == draws


def test_a_half_written_unit_is_never_read(store):
    store.write({"part": 0}, [{"value": 1.0}])
    assert [path.suffix for path in store.folder.iterdir()] == [".json"]
    store.path({"part": 1}).with_suffix(".1.tmp").write_text("[{")
    assert store.read({"part": 1}) is None
    assert json.loads(store.path({"part": 0}).read_text()) == [{"value": 1.0}]


@pytest.mark.parametrize(
    ("value", "written"),
    [(0.456, "0.46"), (0.0456, "0.046"), (12.345, "12.35"), (123.4, "123"), (np.nan, "-")],
)
def test_numbers(value, written):
    assert results.number(value) == written


def test_mean_and_standard_error():
    assert results.mean_and_error([1.0, 2.0, 3.0]) == f"2.00 ({1 / np.sqrt(3):.2f})"
    assert results.mean_and_error([0.25, 0.25]) == "0.25 (<0.001)"
    assert results.mean_and_error([0.25]) == "0.25"
    assert results.mean_and_error([0.25, np.nan]) == "0.25"
    assert results.mean_and_error([np.nan]) == "-"


def test_tables_stand_beside_the_papers_figures():
    rows = pd.DataFrame(
        {
            "method": ["swiss", "swiss", "pool"],
            "iad": [0.2, 0.4, 0.9],
            "iad_floor": [0.1, 0.1, 0.5],
        }
    )
    table = results.comparison(
        rows,
        {"swiss": "SwISS", "pool": "Pool", "median": "Median"},
        {"swiss": ("0.05 (0.03)",)},
        measures={"iad": "IAD"},
    )
    assert results.markdown(table).splitlines() == [
        "| Algorithm | IAD | IAD, paper |",
        "| :--- | ---: | ---: |",
        "| SwISS | 0.30 (0.10) | 0.05 (0.03) |",
        "| Pool | 0.90 |  |",
        "| noise floor | 0.10 |  |",
    ]


def test_the_quick_page_leaves_the_full_one_alone(tmp_path):
    for is_quick in (False, True):
        results.write_page(
            "trial", is_quick, title="Trial", setting="One row.", parts=["Text."], folder=tmp_path
        )
    full, quick = (tmp_path / name for name in ("trial.md", "trial_quick.md"))
    assert full.read_text().splitlines()[:3] == [
        "# Trial",
        "",
        "Printed by `make paper EXPERIMENTS=trial`. One row.",
    ]
    assert "QUICK=1" in quick.read_text()


def test_fewer_partitions_are_said_on_the_page(tmp_path, monkeypatch):
    monkeypatch.setenv("PARTITIONS", "2")
    path = results.write_page("trial", False, title="T", setting="", parts=[], folder=tmp_path)
    assert "`make paper EXPERIMENTS=trial PARTITIONS=2`" in path.read_text()
    monkeypatch.setenv("PARTITIONS", "")
    path = results.write_page("trial", False, title="T", setting="", parts=[], folder=tmp_path)
    assert "`make paper EXPERIMENTS=trial`" in path.read_text()
    for wrong in ("two", "0", "-1"):
        monkeypatch.setenv("PARTITIONS", wrong)
        with pytest.raises(ValueError, match=f"PARTITIONS={wrong}: give a whole number from 1 on"):
            results.fewer_partitions()


def test_what_the_figures_of_a_table_are():
    assert "without standard errors" in results.mean_of(1)
    assert "mean over 5 random partitions" in results.mean_of(5)


def test_draws_are_kept_whatever_the_number_of_partitions(store):
    setting = mixed_effects.QUICK
    more = setting._replace(partitions=7)
    assert results.draws_folder("a", setting, "b") == results.draws_folder("a", more, "b")
    assert results.open_store("a", setting) != results.open_store("a", more)


def test_floors_of_methods_that_return_fewer_draws_are_said():
    rows = pd.DataFrame({"method": ["swiss", "consensus"], "iad": 0.2, "iad_floor": [0.01, 0.023]})
    said = methods.floor_sentence(rows, ["iad"])
    assert "IAD 0.023" in said
    assert "resampled" not in said
    rows = pd.concat([rows, rows.tail(1).assign(method="resampled", iad_floor=0.034)])
    assert "10,000 resampled draws have a higher one: IAD 0.034." in methods.floor_sentence(
        rows, ["iad"]
    )


def test_certificates_stand_by_rounds():
    rows = pd.DataFrame(
        {"method": ["swiss", "refined_0", "refined_2"], "khat": [np.nan, 0.6, -0.1]}
    )
    table = methods.certificates(rows.assign(moved=[np.nan, 1.5, 0.02]))
    assert table["Pareto k-hat"].to_dict() == {"none": "0.60", "two": "-0.10"}
    assert table.iloc[:, 1].tolist() == ["1.50", "0.020"]


@pytest.mark.parametrize("target", geometries.TARGETS)
def test_targets_are_reproducible_and_their_roots_are_what_they_say(target):
    setting = geometries.Setting(batches=2, draws=40, repetitions=1)
    first, second = (geometries.simulate(target, 0, setting) for _ in range(2))
    np.testing.assert_array_equal(first[0][1]["theta"], second[0][1]["theta"])
    np.testing.assert_array_equal(first[1][0]["theta"], second[1][0]["theta"])
    # The root of a density is wider than the density, the power one is the density itself.
    rng = np.random.default_rng(0)
    plain, root = (geometries.draw(target, power, (20_000,), rng) for power in (1.0, 0.1))
    assert (root.std(axis=0) > plain.std(axis=0)).all()


@pytest.mark.parametrize("target", geometries.OWN_DATA)
def test_batches_of_own_data_make_up_the_whole_and_draws_are_of_their_densities(target):
    rng = np.random.default_rng(2)
    parts, whole = geometries.divide(target, 10, rng)
    points = rng.normal(size=(50, 1 if target == "bernoulli" else 2))
    both = [sum(part.log_likelihood(points) for part in parts), whole.log_likelihood(points)]
    np.testing.assert_allclose(np.ptp(both[0] - both[1]), 0, atol=1e-9)
    # a density's score has mean zero over its draws, in units of the noise
    for part, power, prior_power in ((parts[0], 10, 1.0), (whole, 1, 1.0), (parts[1], 1, 0.1)):
        draws = part.draw(power, prior_power, (20_000,), rng)
        points = np.log(draws / (1 - draws)) if target == "bernoulli" else draws
        scores = power * part.grad_log_likelihood(points) + prior_power * part.grad_log_prior(
            points
        )
        assert np.abs(scores.mean(axis=0) / scores.std(axis=0)).max() < 4 / np.sqrt(20_000)
    for density in (parts[0], whole):
        steps = 1e-6 * np.eye(points.shape[1])
        slopes = [
            (density.log_likelihood(points[:9] + step) - density.log_likelihood(points[:9] - step))
            for step in steps
        ]
        np.testing.assert_allclose(
            np.array(slopes).T / 2e-6, density.grad_log_likelihood(points[:9]), rtol=1e-4, atol=1e-4
        )


def test_root_of_two_modes_against_quadrature():
    power = 0.1
    draws = geometries.draw("bimodal", power, (40_000,), np.random.default_rng(1))
    grid = np.linspace(-20, 20, 401)
    x, y = np.meshgrid(grid, grid)
    points = np.stack([x, y], axis=-1)
    logs = -0.5 * np.sum((points[:, :, None] - geometries.MODES) ** 2, axis=-1)
    weight = np.logaddexp(logs[..., 0], logs[..., 1])
    weight = np.exp(power * weight)
    expected = np.sum(weight * x**2) / weight.sum()
    error = np.std(draws[:, 0] ** 2) / np.sqrt(len(draws))
    assert abs(np.mean(draws[:, 0] ** 2) - expected) < 4 * error


def test_full_posterior_of_gaussians():
    problem = scalability.simulate("written", 3, 4, np.random.default_rng(0))
    again = scalability.simulate("written", 3, 4, np.random.default_rng(0))
    np.testing.assert_array_equal(problem.means, again.means)
    precisions = np.linalg.inv(problem.covariances)
    np.testing.assert_allclose(np.linalg.inv(problem.covariance), precisions.sum(axis=0))
    score = sum(p @ (m - problem.mean) for p, m in zip(precisions, problem.means, strict=True))
    np.testing.assert_allclose(score, 0, atol=1e-9)


def test_counts_say_all_about_the_simulated_data():
    cell, outcome = logistic_simulated.simulate(5000)
    again = logistic_simulated.simulate(5000)
    np.testing.assert_array_equal(cell, again[0])
    np.testing.assert_array_equal(outcome, again[1])
    successes, trials = logistic_simulated.count(cell, outcome)
    counted = samplers.Logistic(logistic_simulated.ROWS, successes, trials, 10.0)
    rows = samplers.Logistic(logistic_simulated.ROWS[cell], outcome, np.ones(5000), 10.0)
    points = np.random.default_rng(0).normal(size=(7, 5))
    np.testing.assert_allclose(counted.log_likelihood(points), rows.log_likelihood(points))
    np.testing.assert_allclose(
        counted.grad_log_likelihood(points), rows.grad_log_likelihood(points)
    )
    share = logistic_simulated.ROWS[cell].mean(axis=0)
    sd = np.sqrt(logistic_simulated.FREQUENCIES * (1 - logistic_simulated.FREQUENCIES) / 5000)
    assert (np.abs(share - logistic_simulated.FREQUENCIES) <= 4 * sd).all()


def test_gradients_of_the_logistic_density():
    rng = np.random.default_rng(2)
    density = samplers.Logistic(
        rng.normal(size=(20, 3)), rng.binomial(4, 0.4, size=20), np.full(20, 4), 2.0
    )
    point, step = rng.normal(size=(1, 3)), 1e-6
    for value, gradient in (
        (density.log_likelihood, density.grad_log_likelihood),
        (density.log_prior, density.grad_log_prior),
    ):
        slopes = [
            (value(point + step * axis) - value(point - step * axis))[0] / (2 * step)
            for axis in np.eye(3)
        ]
        np.testing.assert_allclose(gradient(point)[0], slopes, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("trials", [4.0, 40.0])
def test_samplers_against_quadrature(trials):
    """One coefficient, of which a quarter of the trials succeed: its posterior by quadrature."""
    successes, power = np.array([[trials / 4]]), 3.0
    features, counts = np.ones((1, 1)), np.array([[trials]])
    density = samplers.Logistic(features, successes[0], counts[0], 2.0)
    grid = np.linspace(-8, 6, 4001)[:, None]
    log = power * density.log_likelihood(grid) + density.log_prior(grid)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    mean = weight @ grid[:, 0]
    sd = np.sqrt(weight @ (grid[:, 0] - mean) ** 2)
    options = {"power": power, "prior_power": 1.0, "draws": 4000}
    together = samplers.hamiltonian(
        features, successes, counts, prior_sd=2.0, rng=np.random.default_rng(1), **options
    ).draws.ravel()
    alone = samplers.independence(density, rng=np.random.default_rng(1), **options).draws.ravel()
    for draws in (together, alone):
        # A third of the draws' number allows for what correlation the chains have.
        assert abs(draws.mean() - mean) < 4 * sd / np.sqrt(len(draws) / 3)
        assert abs(draws.std() / sd - 1) < 4 / np.sqrt(2 * len(draws) / 3)


def test_mixed_effects_data_and_replicas():
    setting = mixed_effects.QUICK
    data = mixed_effects.simulate(setting)
    pd.testing.assert_frame_equal(data, mixed_effects.simulate(setting))
    assert len(data) == setting.groups * setting.group_size
    assert (data["x0"] == 1).all()
    assert (data.groupby("group")[["z1", "z2"]].nunique() == 1).all().all()
    twice = mixed_effects.replicate(data, 2)
    assert twice["group"].nunique() == 2 * setting.groups
    assert twice.groupby("group").size().eq(setting.group_size).all()


def test_sigma_is_the_inverse_of_its_decomposition():
    square1, square2, below = 3.0, 2.0, -0.7
    root = np.array([[np.sqrt(square1), 0.0], [below, np.sqrt(square2)]])
    expected = 5 * np.linalg.inv(root @ root.T)
    found = mixed_effects.elements(square1, square2, below)
    np.testing.assert_allclose(found, [expected[0, 0], expected[0, 1], expected[1, 1]])


def test_flights_have_the_size_of_the_papers_data():
    table = logistic_real.load_flights(2000)
    assert table.features.shape == (2000, 28) and len(table.names) == 28
    assert set(np.unique(table.outcome)) == {0.0, 1.0}
    assert np.linalg.matrix_rank(table.features) == 28
    np.testing.assert_array_equal(table.outcome, logistic_real.load_flights(2000).outcome)


def test_hepmass_is_read_where_the_user_has_it(tmp_path, monkeypatch):
    monkeypatch.delenv("HEPMASS", raising=False)
    with pytest.raises(FileNotFoundError, match="environment variable HEPMASS is not set"):
        logistic_real.load_hepmass(3)
    path = tmp_path / "all_train.csv"
    names = ["# label", *(f"f{k}" for k in range(27)), "mass"]
    values = np.column_stack([[1.0, 0.0, 1.0, 0.0], np.arange(112.0).reshape(4, 28)])
    pd.DataFrame(values, columns=names).to_csv(path, index=False)
    monkeypatch.setenv("HEPMASS", str(path))
    table = logistic_real.load_hepmass(3)
    assert table.names[1] == "f0" and table.names[-1] == "f26"
    np.testing.assert_array_equal(table.outcome, [1.0, 0.0, 1.0])
    np.testing.assert_array_equal(table.features[:, 0], 1.0)
    np.testing.assert_array_equal(table.features[:, 1:], values[:3, 1:28])
    with pytest.raises(ValueError, match="expected at least 9 rows"):
        logistic_real.load_hepmass(9)

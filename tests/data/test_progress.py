import re
import subprocess
import sys

import numpy as np
import pytest
from normal_density import Normal
from terminal import opened, watching
from tqdm.auto import tqdm

import arviz_swiss as az_swiss
from arviz_swiss.data import progress as module
from arviz_swiss.data.progress import Bar, progress, ticking

SCRIPT = """
from arviz_swiss.data.progress import progress
with progress(2, "Sampling") as bar:
    bar()
    bar()
"""


@pytest.fixture
def soon(monkeypatch):
    """Show what else would appear after a second at once."""
    monkeypatch.setattr("arviz_swiss.merging.merge.SOON", 0.0)
    monkeypatch.setattr("arviz_swiss.checking.compare_methods.SOON", 0.0)


def run_script(stderr, script=SCRIPT):
    return subprocess.run([sys.executable, "-c", script], stderr=stderr, check=True)


def test_a_terminal_shows_a_bar_with_throughput_and_time_left():
    with opened() as (terminal, screen):
        run_script(terminal)
    assert screen.shown[0].startswith("Sampling:   0%|")
    (line,) = screen.left
    assert re.fullmatch(r"Sampling: 100%\|█+\| 2/2 \[00:00<00:00, .*batch/s\]", line)


def test_a_script_without_a_terminal_is_quiet():
    assert run_script(subprocess.PIPE).stderr == b""
    run_script(subprocess.PIPE, f"import sys; sys.stderr = None{SCRIPT}")


@pytest.mark.parametrize("progressbar", [True, False])
def test_a_notebook_shows_it(progressbar):
    """Its streams are no terminal."""
    nbformat, nbclient = (pytest.importorskip(name) for name in ("nbformat", "nbclient"))
    show = SCRIPT.replace('"Sampling"', f'"Sampling", {progressbar}')
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(show)])
    nbclient.NotebookClient(notebook, timeout=60).execute()
    shown = "".join(output.get("text", "") for output in notebook.cells[0].outputs)
    assert ("Sampling: 100%" in shown) == progressbar
    assert "IProgress" not in shown


def test_a_bar_that_ends_early_ends_at_100(monkeypatch):
    with watching(monkeypatch) as screen, progress(10, "Refining") as bar:
        assert bar.stage("waiting") == ""
        for _ in range(4):
            bar()
        assert bar.stage("round 2") == "waiting"
        bar.finish()
    assert screen.shown[1].startswith("Refining, waiting:   0%|")
    (line,) = screen.left
    assert re.search(r"^Refining, round 2: 100%.* 4/4 ", line)


def test_a_bar_of_unknown_length_counts(monkeypatch):
    with watching(monkeypatch) as screen, progress(None, "Pilot", unit=" evaluations") as bar:
        bar.stage("reading the models")
        bar(3)
        bar.stage()
        bar.finish()
    assert screen.shown[1].startswith("Pilot, reading the models: 0 evaluations [00:00")
    (line,) = screen.left
    assert re.search(r"^Pilot: 100%.* 3/3 ", line)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("total", [4, None])
def test_an_error_leaves_no_half_bar(monkeypatch, error, total):
    with watching(monkeypatch) as screen, pytest.raises(error):
        with progress(total, "Sampling") as bar:
            bar()
            bar.refresh()
            raise error
    assert any(re.match(r"Sampling:( +25%)?.* 1(/4|batch) \[", line) for line in screen.shown)
    assert not screen.left


def test_what_is_done_soon_shows_no_bar(monkeypatch):
    with watching(monkeypatch) as screen, progress(2, "Merging", delay=60.0) as bar:
        bar.stage("combining")
        bar(2)
        bar.refresh()
        bar.finish()
    assert screen.text == ""


def test_a_bar_appears_after_a_while_and_its_clock_goes_on(monkeypatch):
    monkeypatch.setattr(module, "INTERVAL", 0.01)
    with watching(monkeypatch) as screen, progress(2, "Merging", delay=0.1) as bar:
        with ticking(bar, "combining"):
            while not screen.text:
                pass
        bar(2)
        bar.stage()
    assert screen.shown[0].startswith("Merging, combining:   0%|")
    assert screen.left[0].startswith("Merging: 100%|") and len(screen.left) == 1


def test_a_bar_that_is_not_shown_does_nothing(capsys, monkeypatch):
    def use(bar):
        bar.stage("waiting")
        bar()
        bar.refresh()
        bar.finish()
        bar.vanish()

    use(Bar("Refining"))
    with progress(10, "Refining") as bar:
        use(bar)
    assert capsys.readouterr().err == ""
    with watching(monkeypatch) as screen:
        with progress(10, "Refining", show=False) as bar:
            use(bar)
        with tqdm(total=10, disable=True) as shown:
            use(Bar("Refining", shown))
    assert screen.text == ""


@pytest.mark.parametrize("rounds", [1, 5])
def test_the_bar_of_refine_ends_at_100(monkeypatch, rounds):
    rng = np.random.default_rng(3)
    densities = [Normal(centre) for centre in (0.5, 1.0)]
    draws = [{"x": rng.normal(one.centre, 2**-0.5, size=(2, 100, 1))} for one in densities]
    merged = az_swiss.merge(draws, kind="inflated")
    with watching(monkeypatch) as screen:
        refined = az_swiss.refine(merged, densities, rounds=rounds, random_seed=1)
    taken = refined["swiss_transform"].sizes["round"] - 1
    assert taken == min(rounds, 2)
    assert any(f"round 1 of at most {rounds}" in line for line in screen.shown)
    words = "1 round" if taken == 1 else f"{taken} rounds"
    # the gradients of both batches are looked at before
    done = 2 * (taken + 1)
    (line,) = screen.left
    assert re.search(rf"^Refining, {words}: 100%.* {done}/{done} ", line)


@pytest.mark.parametrize(
    ("method", "into"),
    [("swiss", False), ("swiss", True), ("consensus", False), ("semiparametric", False)],
)
def test_merge_shows_moments_and_draws(monkeypatch, soon, tmp_path, method, into):
    rng = np.random.default_rng(3)
    batches = [{"x": rng.normal(size=(2, 100))} for _ in range(3)]
    options = {"method": method, "random_seed": 1}
    if into:
        options["into"] = tmp_path / "merged.zarr"
    kind = az_swiss.methods.find(method).expects
    with watching(monkeypatch) as screen:
        az_swiss.merge(batches, kind=kind, **options)
    moments, draws = screen.left
    assert re.search(r"^Merging, moments: 100%.* 3/3 ", moments)
    assert re.search(r"^Merging, draws: 100%.* 3/3 ", draws)
    assert any("combining:  67%" in line for line in screen.shown) == (method == "semiparametric")
    with watching(monkeypatch) as screen:
        az_swiss.merge(batches, kind=kind, progressbar=False, **options, overwrite=True)
    assert screen.text == ""


@pytest.mark.parametrize("with_reference", [True, False])
def test_compare_methods_shows_merging_and_comparing(monkeypatch, soon, with_reference):
    rng = np.random.default_rng(3)
    batches = [{"x": rng.normal(size=(2, 100))} for _ in range(3)]
    full = {"x": rng.normal(size=(2, 100))} if with_reference else None
    options = {"methods": ["swiss", "pool"], "kind": "inflated"}
    with watching(monkeypatch) as screen:
        az_swiss.compare_methods(batches, full, **options)
    merging, comparing = screen.left
    assert re.search(r"^Merging: 100%.* 2/2 .*method", merging)
    assert re.search(r"^Comparing: 100%.* 2/2 .*method", comparing)
    assert any(line.startswith("Merging, pool:  50%") for line in screen.shown)
    with watching(monkeypatch) as screen:
        az_swiss.compare_methods(batches, full, progressbar=False, **options)
    assert screen.text == ""

"""Commands do over files what functions do over objects.

What is compared in detail runs in this process; that commands do the same in one of their own is
what the merge of the folder and the report are for.
"""

import errno
import json
import os
import re

import arviz
import numpy as np
import pandas as pd
import pytest
from command_line import CENTRES, WRITERS, batch, call, run, write_native
from terminal import watching

import arviz_swiss as az_swiss
from arviz_swiss.cli import main

FILES = [f"{label}.nc" for label in CENTRES]


def theta(path):
    """Return merged draws of a file that ArviZ itself reads."""
    return arviz.from_netcdf(path)["posterior"]["theta"]


@pytest.mark.parametrize("write", WRITERS)
def test_merge_gives_what_the_function_gives_with_labels_from_the_files(
    tmp_path, monkeypatch, capsys, write
):
    monkeypatch.chdir(tmp_path)
    for label in CENTRES:
        write(batch(label), tmp_path / f"{label}.nc")
    ran = call(capsys, "merge", *FILES, "-o", "merged.nc")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    expected = az_swiss.merge([tmp_path / name for name in FILES])
    merged = theta(tmp_path / "merged.nc")
    np.testing.assert_array_equal(merged, expected["posterior"]["theta"])
    assert list(dict.fromkeys(merged["batch"].values.tolist())) == list(CENTRES)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*FILES, "merged.nc"])


def test_merge_takes_labels_that_files_recorded(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for position, label in enumerate(CENTRES):
        groups = batch(label)
        groups["posterior"].attrs["swiss_batch"] = label
        write_native(groups, tmp_path / f"{position}.nc")
    files = [f"{position}.nc" for position in range(len(CENTRES))]
    ran = call(capsys, "merge", *files, "--drop", "east", "-o", "merged.nc")
    assert ran.returncode == 0, ran.stderr
    assert sorted(set(theta(tmp_path / "merged.nc")["batch"].values)) == ["north", "south", "west"]


@pytest.mark.parametrize(
    "options, arguments",
    [
        (["--powers", "4"], {"powers": 4}),
        (["--powers", *(f"{label}=4" for label in CENTRES)], {"powers": dict.fromkeys(CENTRES, 4)}),
        (
            ["--transforms", "theta=interval:-20:20", "--covariance", "corrected"],
            {"transforms": {"theta": ("interval", -20.0, 20.0)}, "covariance": "corrected"},
        ),
        (
            "--method semiparametric --random-seed 3 "
            "--options bandwidth=0.5 standardise=false sweeps=20".split(),
            {
                "method": "semiparametric",
                "random_seed": 3,
                "bandwidth": 0.5,
                "standardise": False,
                "sweeps": 20,
            },
        ),
    ],
    ids=["one power", "powers by label", "transforms", "options"],
)
@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_options_are_the_arguments(folder, tmp_path, monkeypatch, capsys, options, arguments):
    monkeypatch.chdir(folder)
    output = tmp_path / "merged.nc"
    ran = call(capsys, "merge", *FILES, *options, "-o", output)
    assert ran.returncode == 0, ran.stderr
    expected = az_swiss.merge([folder / name for name in FILES], **arguments)
    np.testing.assert_array_equal(theta(output), expected["posterior"]["theta"])


def test_merge_into_a_store_gives_the_same(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    store = tmp_path / "merged.zarr"
    for options in ([], ["--overwrite"]):
        ran = call(capsys, "merge", *FILES, "--into", store, *options)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    merged = az_swiss.data.containers.read(store).groups["posterior"]["theta"]
    np.testing.assert_allclose(merged, theta(folder / "merged.nc"), rtol=1e-12)
    assert call(capsys, "report", store).stdout == call(capsys, "report", "merged.nc").stdout
    ran = call(capsys, "merge", *FILES, "--into", store)
    assert ran.returncode == 2 and "exists: name another" in ran.stderr


def test_a_terminal_shows_progress_where_it_is_wanted(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("arviz_swiss.merging.merge.SOON", 0.0)
    density = ("--density", "models:density", "--random-seed", "1", "--overwrite")
    commands = {
        "merge": (*FILES, "--into", tmp_path / "merged.zarr", "--overwrite"),
        "refine": ("merged.nc", *density, "-o", tmp_path / "refined.nc"),
        "certify": ("merged.nc", *density, "--draws", "200", "-o", tmp_path / "certified.nc"),
    }
    bars = {"merge": "Merging, draws", "refine": "Refining", "certify": "Certifying"}
    for name, arguments in commands.items():
        for extra, is_shown in (((), True), (("--no-progress",), False)):
            with watching(monkeypatch) as screen:
                main([name, *map(str, arguments), *extra])
            assert any(re.match(rf"{bars[name]}.*: 100%", line) for line in screen.left) == is_shown


def test_what_merge_warns_of_is_a_line_on_standard_error(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for label in CENTRES:
        write_native(batch(label, kind=None), tmp_path / f"{label}.nc")
    ran = call(capsys, "merge", *FILES, "-o", "merged.nc")
    assert (ran.returncode, ran.stdout) == (0, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith("arviz-swiss merge: warning: ") and "inflated" in line


def test_report_prints_the_report(folder):
    ran = run(folder, "report", "merged.nc", "--strict")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == f"{az_swiss.report(folder / 'merged.nc')}\n"


def test_report_writes_a_page_too(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    page = tmp_path / "report.html"
    ran = call(capsys, "report", "merged.nc", "--html", page)
    assert (ran.returncode, ran.stderr) == (0, "")
    report = az_swiss.report(folder / "merged.nc")
    assert ran.stdout == f"{report}\n"
    written = page.read_text()
    assert written == report.to_html(tmp_path / "other.html").read_text()
    ran = call(capsys, "report", "merged.nc", "--html", page)
    assert ran.returncode == 2 and "exists: name another" in ran.stderr
    page.write_text("older")
    ran = call(capsys, "report", "merged.nc", "--html", page, "--overwrite", "--json")
    assert json.loads(ran.stdout)["notes"] == list(report.notes)
    assert page.read_text() == written


def test_a_strict_report_of_a_merge_in_doubt_says_so_by_its_code(
    folder, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    stuck = batch("west")
    stuck["posterior"]["theta"][0] += 3
    write_native(stuck, tmp_path / "west.nc")
    others = [folder / name for name in FILES[:3]]
    assert call(capsys, "merge", *others, "west.nc", "-o", "merged.nc").returncode == 0
    assert call(capsys, "report", "merged.nc").returncode == 0
    ran = call(capsys, "report", "merged.nc", "--strict", "--json")
    assert ran.returncode == 1
    told = json.loads(ran.stdout)
    expected = az_swiss.report(tmp_path / "merged.nc")
    assert told["is_in_doubt"] and told["status"] is None
    assert told["verdict"] == expected.verdict
    assert told["notes"] == list(expected.notes)
    assert told["findings"] == [
        {**finding._asdict(), "batches": list(finding.batches)} for finding in expected.findings
    ]
    assert "west" in told["findings"][0]["batches"]


@pytest.mark.parametrize("by", ["batch", "parameter"])
def test_summary_prints_the_table(folder, monkeypatch, capsys, by):
    monkeypatch.chdir(folder)
    expected = az_swiss.summary(folder / "merged.nc", by=by)
    ran = call(capsys, "summary", "merged.nc", "--by", by)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{expected.to_string()}\n", "")
    told = json.loads(call(capsys, "summary", "merged.nc", "--by", by, "--json").stdout)
    assert list(told) == list(expected.index)
    read = pd.DataFrame.from_dict(told, orient="index")
    numbers = [name for name in expected if expected[name].dtype == float]
    assert len(numbers) > 5
    np.testing.assert_array_equal(read[numbers].astype(float), expected[numbers])
    rounded = call(capsys, "summary", "merged.nc", "--by", by, "--round-to", "2", "--json").stdout
    assert max(len(digits) for digits in re.findall(r"\.(\d+)", rounded)) <= 2


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--which", "shift", "--ci-prob", "0.5"],
        ["--which", "agreement", "--ci-prob", "0.5"],
        ["--which", "maps"],
    ],
    ids=["batches", "shift", "agreement", "maps"],
)
def test_plot_writes_a_picture(folder, tmp_path, monkeypatch, capsys, options):
    monkeypatch.chdir(folder)
    ran = call(capsys, "plot", "merged.nc", *options, "-o", tmp_path / "picture.png")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    content = (tmp_path / "picture.png").read_bytes()
    assert content.startswith(b"\x89PNG") and len(content) > 10_000


def test_a_picture_that_cannot_be_finished_leaves_the_one_that_was_there(
    folder, tmp_path, monkeypatch, capsys
):
    picture = tmp_path / "picture.png"
    picture.write_text("older")

    def fail(_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)  # by then all bytes are written, somewhere
    monkeypatch.chdir(folder)
    ran = call(capsys, "plot", "merged.nc", "-o", picture, "--overwrite")
    assert ran.returncode == 2 and "picture.png could not be written" in ran.stderr
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [
        ("picture.png", "older")
    ]


def test_moments_plan_and_apply_give_parts_of_the_merge(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    moments, plan, part = (tmp_path / name for name in ("moments", "plan.nc", "part.nc"))
    moments.mkdir()
    for name in FILES:
        ran = call(capsys, "moments", name, "-o", moments / name)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    told = [moments / name for name in FILES]
    assert call(capsys, "plan", *told, "-o", plan).returncode == 0
    assert call(capsys, "apply", plan, "south.nc", "-o", part).returncode == 0
    merged, own = theta(folder / "merged.nc"), theta(part)
    assert own["chain"].values.tolist() == [4, 5]
    np.testing.assert_allclose(own, merged.sel(chain=own["chain"]), rtol=1e-12)
    ran = call(capsys, "plan", *told, "-o", plan)
    assert ran.returncode == 2 and "exists" in ran.stderr
    ran = call(capsys, "apply", plan, "south.nc", "--label", "west", "-o", tmp_path / "other.nc")
    assert ran.returncode == 2 and "these are not the draws" in ran.stderr


def test_refine_and_certify_ask_the_densities_by_label(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    refined, certified = tmp_path / "refined.nc", tmp_path / "certified.nc"
    options = ["--density", "models:density", "--random-seed", "1"]
    ran = call(capsys, "refine", "merged.nc", *options, "-o", refined)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("Refined in ") and len(ran.stdout.splitlines()) == 1
    ran = call(capsys, "certify", refined, *options, "-o", certified)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("certified (k-hat ")
    assert ran.stderr.splitlines() == [f"making {label}" for label in CENTRES]
    ran = call(capsys, "report", certified, "--json", "--strict")
    assert (ran.returncode, json.loads(ran.stdout)["status"]) == (0, "certified")


def test_what_is_not_certified_is_saved_and_told_by_the_code(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    output = tmp_path / "certified.nc"
    options = ["--density", "models:other_density", "--draws", "200", "-o", output]
    ran = call(capsys, "certify", "merged.nc", *options)
    assert ran.returncode == 1
    assert ran.stdout.startswith("not certified (k-hat ")
    (line,) = ran.stderr.splitlines()
    assert line.startswith("arviz-swiss certify: warning: not certified")
    assert call(capsys, "report", output, "--strict").returncode == 1


def test_overwrite_replaces_in_place(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    path = tmp_path / "merged.nc"
    path.write_bytes((folder / "merged.nc").read_bytes())
    options = ["--density", "models:density", "--draws", "200", "-o", path, "--overwrite"]
    assert call(capsys, "certify", path, *options).returncode == 0
    assert "swiss_certificate" in az_swiss.data.containers.read(path).groups
    assert [each.name for each in tmp_path.iterdir()] == ["merged.nc"]

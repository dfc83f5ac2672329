"""What a hurried user gets wrong costs one line on standard error, and nothing is written."""

import re

import pytest
import xarray as xr
from command_line import CENTRES, call, run, write_native

import arviz_swiss as az_swiss

FILES = [f"{label}.nc" for label in CENTRES]
OUT = ["-o", "out.nc"]
CERTIFY = ["certify", "merged.nc", *OUT, "--density"]

# Arguments, and what the line must say.
CASES = {
    "no command": ([], "required: COMMAND"),
    "no such command": (["marge", *FILES], "invalid choice: 'marge'"),
    "no file matches": (["merge", "b*.nc", *OUT], r"no file matches 'b\*\.nc'"),
    "no such file": (["merge", "north.nc", "nrth.nc", *OUT], "no file named 'nrth.nc'"),
    "a folder": (["merge", ".", *OUT], "'.' is a folder and no zarr store: name the files"),
    "no output": (["merge", *FILES], "-o/--output --into is required"),
    "output exists": (["merge", *FILES, "-o", "merged.nc"], "exists: name another, or .*overwrite"),
    "output an input": (["merge", *FILES, "-o", FILES[0], "--overwrite"], "one of the inputs"),
    "no output folder": (["merge", *FILES, "-o", "no/out.nc"], "no folder 'no'.*make it first"),
    "output a folder": (["merge", *FILES, "-o", ".", "--overwrite"], "folder or device"),
    "output a device": (["merge", *FILES, "-o", "/dev/null", "--overwrite"], "folder or device"),
    "output as zarr": (["merge", *FILES, "-o", "out.zarr"], "would be netCDF"),
    "output of another kind": (["merge", *FILES, "-o", "out.csv"], "would be netCDF.*end in .nc"),
    "unwritable": (["merge", *FILES, "-o", "/proc/out.nc"], "'/proc' .* cannot be written to"),
    "both outputs": (["merge", *FILES, *OUT, "--into", "out.zarr"], "not allowed with"),
    "store as netCDF": (["merge", *FILES, "--into", "out.nc"], "let its name end in .zarr"),
    "no store": (["merge", *FILES, "--into", "no.zarr", "--overwrite"], "no zarr store: choose"),
    "files after names": (["merge", "--var-names", "theta", *FILES, *OUT], "required: FILE"),
    "no transform": (["merge", *FILES, *OUT, "--transforms", "theta"], "expected NAME=VALUE"),
    "no bounds": (["merge", *FILES, *OUT, "--transforms", "t=interval:a:b"], "must be numbers"),
    "no power": (["merge", *FILES, *OUT, "--powers", "four"], "expected a number, got 'four'"),
    "mixed powers": (
        ["merge", *FILES, *OUT, "--powers", "4", "west=4"],
        "name all batches, or none",
    ),
    "power twice": (["merge", *FILES, *OUT, "--powers", "b0=2", "b0=3"], "names b0 more than once"),
    "transform twice": (
        ["merge", *FILES, *OUT, "--transforms", "theta=log", "--transforms", "theta=none"],
        "--transforms names theta more than once",
    ),
    "option twice": (
        ["merge", *FILES, *OUT, "--options", "sweeps=2", "sweeps=3"],
        "--options names sweeps more than once",
    ),
    "option of merge": (["merge", *FILES, *OUT, "--options", "method=pool"], "pass --method"),
    "option of merge to plan": (
        ["plan", *FILES, *OUT, "--options", "random_seed=3"],
        r"random_seed is no option of a method\.$",
    ),
    "misspelt": (
        ["merge", *FILES, *OUT, "--knid", "inflated"],
        r"merge: error: .*--knid inflated: do you mean --kind\? \(see arviz-swiss merge --help\)",
    ),
    "abbreviated": (["report", "merged.nc", "--str"], "unrecognized arguments: --str"),
    "ci_prob of densities": (
        ["plot", "merged.nc", *OUT, "--ci-prob", "0.5"],
        "--which batches takes no --ci-prob",
    ),
    "no colon": ([*CERTIFY, "models.density"], "no MODULE:NAME, such as models:density"),
    "a file": ([*CERTIFY, "models.py:density"], "no MODULE:NAME, such as models:density"),
    "no module": ([*CERTIFY, "model:density"], "no module model, neither in this folder nor"),
    "no name": ([*CERTIFY, "models:densty"], "module models has no densty"),
    "a script": ([*CERTIFY, "script:density"], "importing script raised SystemExit: 3"),
    "no function": ([*CERTIFY, "models:CENTRES"], "is a dict and no function"),
    "truncated": (["merge", "cut.nc", *FILES[1:], *OUT], "batch 0, file cut.nc could not be read"),
    "one file": (["merge", "north.nc", *OUT], "are batches missing.*there should be about 4"),
    "another model": (["merge", *FILES[:3], "other.nc", *OUT], r'batch 3 \("other"\)'),
    "unknown method": (["merge", *FILES, *OUT, "--method", "swis"], 'Valid methods are "swiss"'),
    "dropped by position": (
        ["merge", *FILES, *OUT, "--drop", "0"],
        """names '0', but the batches are "north".*"west"\\.$""",
    ),
    "unknown variable": (["merge", *FILES, *OUT, "--var-names", "tau"], "no tau; .* are theta"),
    "a merged one": (["merge", *FILES, "merged.nc", *OUT], "is itself a merged posterior"),
    "not merged": (["report", "north.nc"], "not a merged object"),
    "page as netCDF": (
        ["report", "north.nc", "--html", "merged.nc", "--overwrite"],
        "'merged.nc' would be HTML: let its name end in .html",
    ),
    "page an input": (
        ["report", "merged.nc", "--html", "merged.nc", "--overwrite"],
        "'merged.nc' is one of the inputs",
    ),
    "no page": (["report", "merged.nc", "--overwrite"], "--overwrite is of --html"),
    "report of moments": (["report", "moments.nc"], "not a merged object: moments, which holds"),
    "merge of moments": (["merge", "moments.nc", *OUT], "moments.nc holds moments, no draws"),
    "report of a plan": (["report", "plan.nc"], "not a merged object: a plan, which holds"),
    "unknown picture": (["plot", "merged.nc", "-o", "out.pngg"], "Format 'pngg' is not supported"),
}


@pytest.fixture(scope="session")
def spoilt(folder, tmp_path_factory):
    """Return a folder like the other, with a truncated file and one of another model, too."""
    spoilt = tmp_path_factory.mktemp("spoilt")
    for path in folder.glob("*.*"):
        (spoilt / path.name).write_bytes(path.read_bytes())
    (spoilt / "cut.nc").write_bytes((folder / "north.nc").read_bytes()[:3000])
    (spoilt / "no.zarr").mkdir()
    (spoilt / "script.py").write_text("raise SystemExit(3)")
    draws = xr.open_dataset(folder / "west.nc", group="posterior", engine="h5netcdf").load()
    write_native({"posterior": draws.rename(theta="phi")}, spoilt / "other.nc")
    moments = az_swiss.moments(folder / "north.nc", power=1)
    az_swiss.plan([moments]).save(spoilt / "plan.nc")
    moments.save(spoilt / "moments.nc")
    return spoilt


def check_error(ran, text):
    """Check that an error is one line which says this."""
    assert (ran.returncode, ran.stdout) == (2, "")
    (line,) = ran.stderr.splitlines()
    assert re.match(r"arviz-swiss( \w+)?: error: ", line)
    assert re.search(text, line), line


def times_of(folder):
    """Return when each file of a folder was written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.*")}


@pytest.mark.parametrize("case", CASES)
def test_an_error_is_one_line_and_writes_nothing(spoilt, monkeypatch, capsys, case):
    before = times_of(spoilt)
    monkeypatch.chdir(spoilt)
    arguments, text = CASES[case]
    check_error(call(capsys, *arguments), text)
    assert times_of(spoilt) == before


def test_so_it_is_in_a_process_of_its_own(spoilt):
    arguments, text = CASES["truncated"]
    check_error(run(spoilt, *arguments), text)


@pytest.mark.parametrize(
    "arguments, text",
    [
        ([*CERTIFY, "models:broken"], r'batch "north": models:broken\("north"\) raised KeyError'),
        ([*CERTIFY, "models:quits"], r'batch "north": models:quits\("north"\) raised SystemExit$'),
        ([*CERTIFY, "models:quits_later"], r"error: SystemExit \(--traceback"),
        (
            ["merge", *FILES, *OUT, "--model", "models:model"],
            r"models:model\(\) raised SystemExit$",
        ),
    ],
    ids=["raises", "quits", "quits when evaluated", "model quits"],
)
def test_a_function_that_fails_is_named_with_its_batch(
    spoilt, monkeypatch, capsys, arguments, text
):
    before = times_of(spoilt)
    monkeypatch.chdir(spoilt)
    check_error(call(capsys, *arguments), text)
    assert times_of(spoilt) == before


def test_a_traceback_is_shown_where_it_is_asked_for(spoilt, monkeypatch, capsys):
    monkeypatch.chdir(spoilt)
    for arguments in (["--traceback", "report", "north.nc"], ["report", "north.nc", "--traceback"]):
        ran = call(capsys, *arguments)
        assert ran.returncode == 2
        assert "Traceback" in ran.stderr and "open_merged" in ran.stderr
        assert ran.stderr.splitlines()[-1].startswith("arviz-swiss report: error: not a merged")

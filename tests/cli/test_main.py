"""Help, the entry point, readers that leave early, and Ctrl-C."""

import pkgutil
import re
import signal
import subprocess
import sys
import time
import tomllib

import pytest
from command_line import ROOT, batch, environment, run

import arviz_swiss
from arviz_swiss.cli.parser import make_parser

COMMANDS = make_parser()._subparsers._group_actions[0].choices
HEAVY = {"numpy", "scipy", "pandas", "xarray", "arviz", "pymc", "matplotlib"}


def test_help_has_examples_of_every_command_and_imports_nothing(tmp_path):
    code = f"""
import sys
from arviz_swiss.cli import main
for command in {list(COMMANDS)}:
    assert main([command, "--help"]) == 0
assert main(["--help"]) == 0
sys.exit(bool({HEAVY} & set(sys.modules)))
"""
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\033" not in ran.stdout
    for name in COMMANDS:
        _, usage, told = ran.stdout.partition(f"usage: arviz-swiss {name} ")
        assert usage and f"\n  arviz-swiss {name} " in told.partition("exit codes:")[0]


def test_help_and_page_name_the_same_codes():
    page = (ROOT / "docs" / "command_line.md").read_text()
    codes = re.findall(r"^  (\d+) ", make_parser().epilog, re.MULTILINE)
    assert codes == re.findall(r"^\| (\d+) \|", page, re.MULTILINE)


def test_the_script_is_this_main():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert list(scripts) == ["arviz-swiss"]
    assert pkgutil.resolve_name(scripts["arviz-swiss"]) is arviz_swiss.cli.main


def test_the_version_is_the_packages(tmp_path):
    ran = run(tmp_path, "--version")
    assert (ran.returncode, ran.stdout) == (0, f"arviz-swiss {arviz_swiss.__version__}\n")


@pytest.mark.parametrize(
    # argparse itself says nothing of a pipe that breaks under its help
    "arguments, codes",
    [("summary merged.nc --json", {"141"}), ("merge --help", {"141", "0"})],
)
def test_a_reader_that_leaves_early_is_no_error(folder, arguments, codes):
    command = f'"{sys.executable}" -m arviz_swiss {arguments}'
    # the reader is gone before anything is written
    piped = f"(sleep 0.5; {command}) | true; echo ${{PIPESTATUS[0]}}"
    options = {"cwd": folder, "env": environment(), "capture_output": True, "text": True}
    ran = subprocess.run(["bash", "-c", piped], check=True, **options)
    assert ran.stdout.strip() in codes
    assert ran.stderr == ""


def test_labels_that_the_terminal_cannot_print_are_escaped(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    batches = {"köln": batch("north")["posterior"], "bonn": batch("east")["posterior"]}
    arviz_swiss.merge(batches, kind="inflated", powers=2).to_netcdf(tmp_path / "merged.nc")
    ran = run(tmp_path, "summary", "merged.nc")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert [line.split()[0] for line in ran.stdout.splitlines()[1:]] == [r"k\xf6ln", "bonn"]


def test_output_that_cannot_be_written_is_one_line(folder):
    command = [sys.executable, "-m", "arviz_swiss", "report", "merged.nc"]
    options = {"cwd": folder, "env": environment(), "stderr": subprocess.PIPE}
    with open("/dev/full", "w") as full:
        ran = subprocess.run(command, stdout=full, check=False, **options)
    assert ran.returncode == 2
    assert ran.stderr == b"arviz-swiss: error: standard output: No space left on device\n"


def test_ctrl_c_is_one_line(folder, tmp_path):
    options = ["--density", "models:slow", "-o", str(tmp_path / "out.nc")]
    process = subprocess.Popen(
        [sys.executable, "-m", "arviz_swiss", "certify", "merged.nc", *options],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    begun, end = folder / "begun", time.monotonic() + 60
    while not begun.exists() and time.monotonic() < end:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    begun.unlink()
    assert (process.returncode, out, err) == (130, "", "arviz-swiss: interrupted\n")
    assert list(tmp_path.iterdir()) == []

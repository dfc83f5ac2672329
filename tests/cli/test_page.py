"""The page on the command line: its commands run in order, and print what it shows."""

import os
import re
import subprocess
import sys

import pytest
from command_line import ROOT, environment

PAGE = (ROOT / "docs" / "command_line.md").read_text()
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def words(text):
    """Return the words of a text, with a sign for each number."""
    return NUMBER.sub("#", text).split()


def check_numbers(printed, shown, command):
    """Check that numbers are those of the page but for what rounding and ArviZ's versions do.

    That is 1 in the last decimal that is shown, 1 % (versions differ by less in effective sizes),
    and all of what is nothing but rounding errors. Counts below 100 are the same.
    """
    for number, expected in zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True):
        decimals = len(expected.partition(".")[2]) if "e" not in expected else 0
        last = 10.0**-decimals if decimals else 1e-9
        allowed = 1.001 * max(last, 0.01 * abs(float(expected)))
        assert abs(float(number) - float(expected)) <= allowed, (command, number, expected)


@pytest.mark.slow
def test_the_page_prints_what_it_shows(tmp_path):
    for block in blocks("python"):
        (tmp_path / re.match(r"# (\S+)", block).group(1)).write_text(block)
    script = tmp_path / "arviz-swiss"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m arviz_swiss "$@"\n')
    script.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    options = {"cwd": tmp_path, "env": {**environment(), "PATH": path}}
    subprocess.run([sys.executable, "make_batches.py"], check=True, **options)
    pairs = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(blocks("console")), re.MULTILINE)
    assert len(pairs) > 10
    options |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    for command, shown in pairs:
        printed = subprocess.run(["bash", "-c", command], check=False, **options).stdout
        assert words(printed) == words(shown), command
        check_numbers(printed, shown, command)

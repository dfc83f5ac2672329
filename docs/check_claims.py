"""Check that the figures of README and docs are those that their commands print.

``python docs/check_claims.py`` checks what stands in ``docs/claims.toml``, with ``--quick`` only
what takes seconds. Each entry of the table has

page
    where the figures stand, and
text
    the words around them there, with ``#`` for each figure, and ``~`` for a number that is not
    compared. They must occur once.
command
    what prints the figures, with ``quick``, if given, for the quick setting (``quick = false``: it
    has none). The page names the script. Instead of a command, ``source`` is the page that has the
    same figures with their command.
printed
    the words around the figures in what is printed, or in the source.
within
    how far the two may be apart; with ``quick_within`` in the quick setting. A plain number is a
    difference, ``"x10"`` a factor, and ``"below"`` asks that the printed figure be no larger, and
    ``"above"`` that it be no smaller, than the stated one.

Figures are never written down here a second time: both sides are read where they stand. As far as
it goes, pages are also searched for figures that have no command at all.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "claims.toml"

WORDS = "no one two three four five six seven eight nine ten eleven twelve thirteen".split()
WORDS += "fourteen fifteen sixteen seventeen eighteen nineteen twenty".split()
DECIMAL = r"-?(?:\d[\d,]*)?\.?\d+(?:e[-+]?\d+)?"
POWER = r"(?:[\d.]+\s\\cdot\s)?10\^\{-?\d+\}"
NUMBER = rf"({POWER}|{DECIMAL}|\b(?:{'|'.join(WORDS)})\b)"

# A cell that is a measured figure: it has a decimal, a thousand or a percentage.
FIGURE = re.compile(r"^[*~\u2013-]*\d*(\.\d|,\d{3}|\d%)")
TABLES = re.compile(r"^\|.*\n\|[-:| ]+\|\n(?:\|.*\n?)+", re.MULTILINE)
COST = re.compile(r"\b\d[\d.,]*\s(?:CPU\sseconds|seconds|ms|MiB|MB|times\sless)\b")
WRITTEN = re.compile(r"^Printed by `", re.MULTILINE)
COMMAND = re.compile(
    r"(?:python|make|pytest) [\w/-]|claims\.py|benchmarks/|benchmarks\.md|`test_\w"
)


class Problem(NamedTuple):
    """What is wrong with an entry or a page, in words."""

    page: str
    text: str


def read_table():
    return tomllib.loads(TABLE.read_text())


def pages():
    found = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/results/*.md")]
    return ["README.md", *sorted(str(path.relative_to(ROOT)) for path in found)]


def read_page(page):
    return (ROOT / page).read_text()


def to_pattern(words):
    """Return the expression that finds these words, broken into lines anywhere."""
    marks = {"#": NUMBER, "~": NUMBER.replace("(", "(?:", 1)}
    parts = [marks.get(part) or re.escape(part) for part in re.split("([#~])", words)]
    return re.compile(re.sub(r"(?:\\ )+", r"\\s+", "".join(parts)))


def to_number(text):
    """Return the number that is written as a decimal, a power of ten, or a word."""
    if text in WORDS:
        return float(WORDS.index(text))
    if "10^" in text:
        factor, _, power = text.rpartition("10^")
        return float(factor.split()[0] if factor else 1) * 10 ** float(power.strip("{}"))
    return float(text.replace(",", ""))


def find_figures(words, text, where):
    """Return the figures among these words, which the text must have once."""
    found = list(to_pattern(words).finditer(text))
    if len(found) != 1:
        raise ValueError(f"{where} has {len(found)} times what it should have once: {words!r}")
    return [to_number(figure) for figure in found[0].groups()]


def is_within(stated, measured, allowed):
    """Tell whether a measured figure is as near the stated one as is allowed."""
    if allowed == "below":
        return measured <= stated
    if allowed == "above":
        return measured >= stated
    if isinstance(allowed, str):
        factor = float(allowed.removeprefix("x"))
        return stated / factor <= measured <= stated * factor
    # what is printed is rounded too
    return abs(stated - measured) <= allowed * (1 + 1e-9) + 1e-12


def compare(claim, page, printed, quick=False):
    """Return what is wrong with one entry, given the page and what was printed."""
    allowed = claim["within"]
    if quick:
        allowed = claim.get("quick_within", allowed)
    source = claim.get("source") or command_of(claim, quick)
    try:
        stated = find_figures(claim["text"], page, claim["page"])
        measured = find_figures(claim["printed"], printed, source)
    except ValueError as error:
        return [Problem(claim["page"], str(error))]
    if len(stated) != len(measured) or not stated:
        return [Problem(claim["page"], f"as many # in text as in printed: {claim['text']!r}")]
    return [
        Problem(
            claim["page"],
            f"{claim['text']!r}: figure {at} is stated as {said:g}, and {source} gives {got:g} "
            f"(allowed: {allowed})",
        )
        for at, (said, got) in enumerate(zip(stated, measured, strict=True), start=1)
        if not is_within(said, got, allowed)
    ]


def command_of(claim, quick):
    """Return the command of an entry in this setting, None if it has none."""
    command = claim.get("quick", claim["command"]) if quick else claim["command"]
    return command or None


def run(command):
    """Return what a command prints."""
    first, *rest = shlex.split(command)
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    threads = dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"], "1")
    ran = subprocess.run(
        [sys.executable if first == "python" else first, *rest],
        cwd=ROOT,
        env={**os.environ, **threads, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"{command} failed:\n{ran.stderr}")
    return ran.stdout


def check_entries(claims, quick):
    """Run all commands once each, and return what is wrong and how many figures were compared."""
    printed, problems, count = {}, [], 0
    for claim in claims:
        page = read_page(claim["page"])
        if "source" in claim:
            output = read_page(claim["source"])
        else:
            command = command_of(claim, quick)
            if command is None:
                continue
            if command not in printed:
                print(command, flush=True)
                printed[command] = run(command)
            output = printed[command]
        problems += compare(claim, page, output, quick)
        count += claim["text"].count("#")
    return problems, count


def sections(text):
    """Split a page at its headings."""
    return re.split(r"^(?=#+ )", text, flags=re.MULTILINE)


def find_bare_tables(text, no_measurements):
    """Return the first lines of tables of figures that have no command before them.

    Of a page that a command has written, it says so at the top.
    """
    if WRITTEN.search(text):
        return []
    bare = []
    for section in sections(text):
        for table in TABLES.finditer(section):
            heading = table.group().splitlines()[0]
            cells = [cell.strip() for cell in table.group().split("|")]
            is_measured = heading not in no_measurements and any(map(FIGURE.match, cells))
            if is_measured and not COMMAND.search(section[: table.start()]):
                bare.append(heading)
    return bare


def find_bare_costs(text):
    """Return costs in prose whose section names no command, nor the page of benchmarks."""
    return [
        " ".join(cost.split())
        for section in sections(text)
        if not COMMAND.search(section)
        for cost in COST.findall(section)
    ]


def check_pages(no_measurements):
    """Return tables and costs that have no command."""
    problems = []
    for page in pages():
        text = read_page(page)
        told = find_bare_tables(text, no_measurements) + find_bare_costs(text)
        problems += [
            Problem(page, f"no command is named in the section of {one!r}") for one in told
        ]
    return problems


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="only what takes seconds")
    quick = parser.parse_args(arguments).quick
    table = read_table()
    problems = check_pages(table["no_measurements"])
    wrong, count = check_entries(table["claim"], quick)
    for problem in [*problems, *wrong]:
        print(f"{problem.page}: {problem.text}")
    print(f"{count} figures compared, {len(problems) + len(wrong)} problems.")
    return 1 if problems or wrong else 0


if __name__ == "__main__":
    sys.exit(main())

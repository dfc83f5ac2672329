"""Entries of docs/claims.toml stand on their pages, and a wrong figure is found."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def script(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


claims = script("docs/check_claims.py")
TABLE = claims.read_table()
ENTRIES = TABLE["claim"]


def test_every_entry_is_on_its_page_once():
    assert len(ENTRIES) > 40
    for claim in ENTRIES:
        page = claims.read_page(claim["page"])
        assert claims.find_figures(claim["text"], page, claim["page"]), claim["text"]


def test_every_command_is_of_a_script_that_its_page_names():
    for claim in ENTRIES:
        assert ("command" in claim) != ("source" in claim), claim
        if "command" in claim:
            name = Path(shlex.split(claim["command"])[1]).name
            assert (ROOT / shlex.split(claim["command"])[1]).exists()
            pages = claims.read_page(claim["page"]) + claims.read_page("docs/contributing.md")
            assert name in pages or name == "claims.py"


def test_figures_that_other_pages_repeat_are_the_same_there():
    sources = [claim for claim in ENTRIES if "source" in claim]
    problems, count = claims.check_entries(sources, quick=True)
    assert problems == []
    assert count >= 10


def test_every_table_of_figures_and_every_cost_has_a_command():
    assert claims.check_pages(TABLE["no_measurements"]) == []


def test_tables_that_are_said_to_measure_nothing_are_there():
    pages = "\n".join(claims.read_page(page) for page in claims.pages())
    assert [heading for heading in TABLE["no_measurements"] if heading not in pages] == []


def test_a_wrong_figure_is_found(capsys):
    (claim,) = [c for c in ENTRIES if c["text"] == "# other merging methods to compare it with"]
    script("docs/claims.py").methods()
    printed = capsys.readouterr().out
    page = claims.read_page(claim["page"])
    assert claims.compare(claim, page, printed) == []
    wrong = page.replace("eleven other merging", "nine other merging").replace(
        "twelve other merging", "nine other merging"
    )
    (problem,) = claims.compare(claim, wrong, printed)
    assert "stated as 9" in problem.text


@pytest.mark.parametrize("claim", ENTRIES, ids=lambda claim: claim["text"][:40])
def test_each_entry_would_find_its_figures_to_be_wrong(claim):
    """What is printed is made of the page's own figures, and then each is changed."""
    page = claims.read_page(claim["page"])
    stated = claims.find_figures(claim["text"], page, claim["page"])

    def printed(figures):
        figures = iter(figures)
        words = re.sub("#", lambda _: f"{next(figures):.15g}", claim["printed"])
        return words.replace("~", "1")

    assert claims.compare(claim, page, printed(stated)) == []
    for at in range(len(stated)):
        for factor, shift in ((1e3, 1e3), (1e-3, -1e3)):
            is_relative = isinstance(claim["within"], str)
            changed = list(stated)
            changed[at] = changed[at] * factor if is_relative else changed[at] + shift
            found = claims.compare(claim, page, printed(changed))
            # an upper bound is not broken by less
            assert len(found) == (claim["within"] != "below" or factor > 1), changed


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4,619", 4619),
        ("-0.09", -0.09),
        (".05", 0.05),
        ("3e-15", 3e-15),
        ("10^{-14}", 1e-14),
        (r"3 \cdot 10^{-15}", 3e-15),
        ("eleven", 11),
    ],
)
def test_numbers_are_read_as_they_are_written(text, number):
    assert claims.find_figures("just # things", f"just {text}\nthings", "here") == [
        pytest.approx(number, rel=1e-12)
    ]


def test_words_that_are_missing_or_twice_are_a_problem():
    claim = {"page": "a", "text": "took # s", "printed": "# s", "source": "b", "within": 0}
    (missing,) = claims.compare(claim, "took no time", "4 s")
    (twice,) = claims.compare(claim, "took 4 s, then took 5 s", "4 s")
    assert "0 times" in missing.text
    assert "2 times" in twice.text


def test_bare_tables_and_costs_are_found():
    table = "| a | b |\n|---|---|\n| x | 0.5 |\n"
    assert claims.find_bare_tables(f"# A\n\n{table}", []) == ["| a | b |"]
    assert claims.find_bare_tables(f"# A\n\n`python docs/claims.py`\n\n{table}", []) == []
    assert claims.find_bare_tables(f"`make bench`\n\n# A\n\n{table}", []) == ["| a | b |"]
    assert claims.find_bare_tables(f"# A\n\n{table}", ["| a | b |"]) == []
    assert claims.find_bare_costs("# A\n\nIt took 20\nCPU seconds.") == ["20 CPU seconds"]

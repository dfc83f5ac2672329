import ast
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import arviz_swiss

INIT = Path(arviz_swiss.__file__)
API_PAGE = Path(__file__).parents[1] / "docs" / "api.md"


HEAVY = ["arviz", "arviz_base", "pymc", "pytensor", "numba", "matplotlib"]


def loaded_by(code):
    """Return the modules that are loaded after this code, by names of packages."""
    code = f"{code}; import sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(ran.stdout.split())


def test_import_imports_nothing_else():
    loaded = loaded_by("import arviz_swiss")
    assert "arviz_swiss" in loaded
    assert loaded.isdisjoint([*HEAVY, "numpy", "scipy", "pandas", "xarray"])


def test_names_that_do_not_need_them_import_no_arviz_pymc_or_matplotlib():
    names = [name for name, home in arviz_swiss._HOMES.items() if home != "pymc"]
    loaded = loaded_by(f"from arviz_swiss import {', '.join(names)}")
    assert "scipy" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_type_checkers_are_told_the_homes_of_names():
    (block,) = (node for node in ast.parse(INIT.read_text()).body if isinstance(node, ast.If))
    told = {each.name: node.module for node in block.body for each in node.names}
    homes = {name: f"arviz_swiss.{home}" for name, home in arviz_swiss._HOMES.items()}
    assert told == {name: home for name, home in homes.items() if home != "arviz_swiss.pymc"}
    assert set(homes) == set(arviz_swiss.__all__)


def test_rooms_are_there_without_an_import_of_their_own():
    assert loaded_by("import arviz_swiss; arviz_swiss.data.flatten") >= {"xarray"}
    with pytest.raises(AttributeError, match="no attribute 'cellar'"):
        arviz_swiss.cellar  # noqa: B018


def test_version_is_the_installed_one():
    assert arviz_swiss.__version__ == version("arviz-swiss")


def test_changelog_and_citation_have_the_version_and_its_day():
    root = API_PAGE.parents[1]
    number, day = re.search(
        r"^## ([\d.]+) \(([\d-]+)\)$", (root / "docs" / "changelog.md").read_text(), re.MULTILINE
    ).groups()
    citation = (root / "CITATION.cff").read_text()
    assert number == arviz_swiss.__version__
    assert f"\nversion: {number}\n" in citation
    assert f'\ndate-released: "{day}"\n' in citation


def test_public_names_exist_once():
    assert len(set(arviz_swiss.__all__)) == len(arviz_swiss.__all__)
    missing = [name for name in arviz_swiss.__all__ if not hasattr(arviz_swiss, name)]
    assert not missing


def test_public_names_are_documented():
    listed = set(re.findall(r"^\s*([\w.]+)\s*$", API_PAGE.read_text(), flags=re.MULTILINE))
    assert set(arviz_swiss.__all__) - listed == set()

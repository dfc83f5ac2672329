import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import arviz_swiss

API_PAGE = Path(__file__).parents[1] / "docs" / "api.md"


@pytest.mark.parametrize(
    "package", ["arviz", "arviz_base", "pymc", "pytensor", "numba", "matplotlib"]
)
def test_import_is_light(package):
    code = f"import sys, arviz_swiss; sys.exit({package!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_version_is_the_installed_one():
    assert arviz_swiss.__version__ == version("arviz-swiss")


def test_public_names_exist_once():
    assert len(set(arviz_swiss.__all__)) == len(arviz_swiss.__all__)
    missing = [name for name in arviz_swiss.__all__ if not hasattr(arviz_swiss, name)]
    assert not missing


def test_public_names_are_documented():
    listed = set(re.findall(r"^\s*([\w.]+)\s*$", API_PAGE.read_text(), flags=re.MULTILINE))
    assert set(arviz_swiss.__all__) - listed == set()

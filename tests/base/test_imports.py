"""The kernels need nothing but NumPy and SciPy."""

import subprocess
import sys
from pathlib import Path

import arviz_swiss

PACKAGE = Path(arviz_swiss.__file__).parent

# The package without what its __init__ imports, and a finder that refuses everything else.
ALONE = """
import importlib, sys, types
package = types.ModuleType("arviz_swiss")
package.__path__ = [sys.argv[1]]
sys.modules["arviz_swiss"] = package

class Refuse:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in ("xarray", "arviz", "pandas", "matplotlib", "pymc"):
            raise ImportError(f"base imports {name}")
        if name.startswith("arviz_swiss.") and not name.startswith("arviz_swiss.base"):
            raise ImportError(f"base imports {name}")

sys.meta_path.insert(0, Refuse)
for name in sys.argv[2:]:
    importlib.import_module(f"arviz_swiss.base.{name}")
"""


def imported_alone(names, package=PACKAGE):
    command = [sys.executable, "-c", ALONE, str(package), *names]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_base_imports_numpy_and_scipy_alone():
    names = [path.stem for path in (PACKAGE / "base").glob("*.py") if path.stem != "__init__"]
    assert len(names) > 5
    result = imported_alone(names)
    assert result.returncode == 0, result.stderr


def test_another_import_would_be_noticed(tmp_path):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "__init__.py").write_text("")
    for line in ("import xarray", "from arviz_swiss.data import schema"):
        (tmp_path / "base" / "wrong.py").write_text(line)
        assert "base imports " in imported_alone(["wrong"], tmp_path).stderr

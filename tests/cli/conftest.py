"""A folder of batches, of models and of a merge, which no test changes."""

import sys

import pytest
from command_line import CENTRES, MODELS, batch, run, write_native


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Return a folder with four files of batches, models.py, and merged.nc."""
    folder = tmp_path_factory.mktemp("batches")
    for label in CENTRES:
        write_native(batch(label), folder / f"{label}.nc")
    (folder / "models.py").write_text(MODELS)
    ran = run(folder, "merge", *files(), "-o", "merged.nc")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    return folder


@pytest.fixture(autouse=True)
def forget_modules(monkeypatch):
    """Let no command of this process see the modules that those before it found in their folder."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in ("models", "script"):
        sys.modules.pop(name, None)


def files():
    """Return the names of the batches' files, in an order of their own."""
    return [f"{label}.nc" for label in CENTRES]

"""Find the supported Python interpreters, give each its own environment, and run things there.

Needs nothing but the standard library; the Makefile is what calls it::

    python3 tools/stacks.py list
    python3 tools/stacks.py test [pytest arguments]
    python3 tools/stacks.py notebooks [pytest arguments]
    python3 tools/stacks.py run EXTRAS [python arguments]

``test`` goes through every interpreter, with tests that are marked slow on the first one of each
stack (ArviZ 0.x, 1.x); ``notebooks`` goes through the first one of each stack; ``run`` uses the
first one, with these extras of the package ("pymc,plots"). The environment variable ``STACKS``
("3.12", or "3.11 3.13") narrows all of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / ".venv"
OLDEST = (3, 11)
TEST_EXTRAS = "test,pymc,dask,plots"
FAST = ("-m", "not speed and not slow")

# Asked of a candidate: a pyenv shim exists on PATH but does not run, and Debian's python3 may lack
# the modules that make an environment.
PROBE = """
import ensurepip, json, platform, sys, venv
if sys.implementation.name == "cpython" and sys.version_info.releaselevel == "final":
    print(json.dumps([sys.executable, platform.python_version()]))
"""

SHOW_VERSIONS = """
from importlib.metadata import version
import platform
packages = {"ArviZ": "arviz", "PyMC": "pymc", "xarray": "xarray", "NumPy": "numpy"}
shown = [f"{name} {version(package)}" for name, package in packages.items()]
print(", ".join([f"Python {platform.python_version()}", *shown]))
"""


class Interpreter(NamedTuple):
    """A Python that runs: where it is, and its full and its minor version."""

    path: str
    version: str
    minor: str


def candidates():
    """Yield possible interpreters, the one that `python3` means first."""
    folders = [Path(folder) for folder in os.get_exec_path() if folder]
    for folder in folders:
        yield folder / "python3"
    for folder in folders:
        with contextlib.suppress(OSError):
            names = [file for file in folder.glob("python3.*") if re.search(r"3\.\d+$", file.name)]
            yield from sorted(names)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob("versions/*/bin/python3"))


def probe(path):
    """Return the interpreter at this path, or None when it does not run or is not supported."""
    try:
        answer = subprocess.run(
            [str(path), "-c", PROBE],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=True,
        )
        executable, version = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    major, minor = (int(number) for number in version.split(".")[:2])
    if (major, minor) < OLDEST:
        return None
    return Interpreter(executable, version, f"{major}.{minor}")


def find_interpreters():
    """Return one interpreter per supported minor version, in the order in which they are found."""
    wanted = os.environ.get("STACKS", "").replace(",", " ").split()
    found = {}
    for path in candidates():
        interpreter = probe(path) if path.exists() else None
        if interpreter and interpreter.minor not in found:
            found[interpreter.minor] = interpreter
    missing = [minor for minor in wanted if minor not in found]
    if missing or not found:
        sought = " and ".join(missing) or "{}.{} or later".format(*OLDEST)
        sys.exit(f"No Python {sought} that runs, neither on PATH nor under pyenv's versions folder")
    return [interpreter for minor, interpreter in found.items() if not wanted or minor in wanted]


def call(command, log):
    """Run a command with its output in a log file; show the end of the log when it fails."""
    with log.open("ab") as output:
        status = subprocess.call(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    if status:
        print("\n".join(log.read_text(errors="replace").splitlines()[-30:]))
        raise RuntimeError(f"{' '.join(command)} failed; its whole output is in {log}")


@contextlib.contextmanager
def locked(path):
    """Hold a lock file, so that two calls of make do not build the same environment at once."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def environment(interpreter, extras):
    """Return the Python of this interpreter's environment, with the package and extras in it.

    The environment is built anew when the interpreter, the package's version or what pyproject.toml
    says of the package has changed; extras that it does not have yet are added.
    """
    folder = ENVIRONMENTS / interpreter.minor
    python = str(folder / "bin" / "python")
    stamp = folder / "stacks.json"
    log = ENVIRONMENTS / f"{interpreter.minor}.log"
    project = (ROOT / "pyproject.toml").read_text().partition("\n[tool.ruff]")[0]
    version = re.search("^__version__.*", (ROOT / "arviz_swiss/__init__.py").read_text(), re.M)
    made_from = "\n".join([project, version.group(), *interpreter, str(folder)])
    state = {"made_from": hashlib.sha256(made_from.encode()).hexdigest(), "extras": []}

    with locked(ENVIRONMENTS / f"{interpreter.minor}.lock"):
        with contextlib.suppress(OSError, ValueError):
            before = json.loads(stamp.read_text())
            if before["made_from"] == state["made_from"]:
                state = before
        missing = sorted(set(extras.split(",")) - set(state["extras"]))
        if missing:
            print(f"Installing for Python {interpreter.version}: {', '.join(missing)}", flush=True)
            if not state["extras"]:
                shutil.rmtree(folder, ignore_errors=True)
                log.unlink(missing_ok=True)
                call([interpreter.path, "-m", "venv", str(folder)], log)
            pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
            call([*pip, "--editable", f".[{','.join(missing)}]"], log)
            state["extras"] += missing
            stamp.write_text(json.dumps(state))
    return python


def test_stack(interpreter, arguments):
    """Run the tests on one stack; return whether they passed and a line that says so."""
    name = f"Python {interpreter.version}"
    start = time.monotonic()
    try:
        python = environment(interpreter, TEST_EXTRAS)
        name = subprocess.check_output([python, "-c", SHOW_VERSIONS], text=True).strip()
    except (RuntimeError, subprocess.CalledProcessError) as error:
        return False, f"FAILED  {name}: {error}"
    if arguments[:2] == [*FAST]:
        name += ", without slow tests: they ran on another Python of this stack"
    print(f"\n== {name}", flush=True)
    # The workers already use both cores: more BLAS threads than that only get in each other's way.
    variables = {"OMP_NUM_THREADS": "1", **os.environ}
    command = [python, "-m", "pytest", "-n", "2", *arguments]
    status = subprocess.call(command, cwd=ROOT, env=variables)
    result = "passed" if status == 0 else "FAILED"
    return status == 0, f"{result}  {name} ({time.monotonic() - start:.0f} s)"


def list_stacks():
    for interpreter in find_interpreters():
        print(f"{interpreter.minor:5} {interpreter.version:8} {interpreter.path}")
    return 0


def first_of_each_stack(interpreters):
    first = {}
    for interpreter in interpreters:
        first.setdefault(interpreter.minor == "3.11", interpreter)
    return list(first.values())


def run_tests(*arguments):
    found = find_interpreters()
    first = first_of_each_stack(found)
    by_marks = "-m" in arguments  # then the caller has chosen
    return test_all({one: [] if by_marks or one in first else FAST for one in found}, arguments)


def run_notebooks(*arguments):
    return test_all({one: [] for one in first_of_each_stack(find_interpreters())}, arguments)


def test_all(interpreters, arguments):
    """Run the tests on interpreters, each with its own arguments first; return the exit code."""
    outcomes = [test_stack(one, [*own, *arguments]) for one, own in interpreters.items()]
    print("\n== Summary", *(line for _, line in outcomes), sep="\n")
    return 0 if all(passed for passed, _ in outcomes) else 1


def run_python(extras, *arguments):
    try:
        python = environment(find_interpreters()[0], extras)
    except RuntimeError as error:
        sys.exit(str(error))
    return subprocess.call([python, *arguments], cwd=ROOT)


COMMANDS = {
    "list": list_stacks,
    "test": run_tests,
    "notebooks": run_notebooks,
    "run": run_python,
}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    sys.exit(COMMANDS[sys.argv[1]](*sys.argv[2:]))

"""Build the package, check it, and run the README's code from the wheel in empty environments.

``python docs/dist.py 3.11 3.12 3.13``, which `make dist` calls; wheel and sdist of what is
committed go to ``dist/``. It needs build, twine and uv.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What the sdist holds at its top: hatchling adds the last two.
KNOWN = {"README.md", "LICENSE", "CITATION.cff", "pyproject.toml", "arviz_swiss"}
KNOWN |= {"PKG-INFO", ".gitignore"}


def main(pythons):
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        # nothing lies in the package that is not in the repository
        call("git", "clone", "-q", str(ROOT), str(source))
        call(sys.executable, "-m", "build", "-o", str(ROOT / "dist"), str(source))
    wheel, sdist = (only(pattern) for pattern in ("*.whl", "*.tar.gz"))
    call(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
    check_contents(sdist)
    for version in pythons or ["3.11", "3.12"]:
        try_out(wheel, version)


def call(*command, **options):
    subprocess.run(command, check=True, **options)


def only(pattern):
    (found,) = (ROOT / "dist").glob(pattern)
    return found


def check_contents(sdist):
    """Refuse an sdist with anything that a user of it does not need."""
    with tarfile.open(sdist) as archive:
        paths = [Path(name).parts[1:] for name in archive.getnames()]
    tops = {path[0] for path in paths if path}
    if junk := tops - KNOWN:
        raise SystemExit(f"{sdist.name} holds {', '.join(sorted(junk))}.")
    print(f"{sdist.name}: {len(paths)} entries, {sdist.stat().st_size / 1e6:.1f} MB.")


def try_out(wheel, version):
    """Install the wheel into an empty environment, and run the README's code there."""
    with tempfile.TemporaryDirectory() as folder:
        environment, work = Path(folder) / "environment", Path(folder) / "work"
        work.mkdir()
        call("uv", "venv", "-q", "--python", version, str(environment))
        python = str(environment / "bin" / "python")
        call("uv", "pip", "install", "-q", "--python", python, f"{wheel}[pymc,plots]")
        blocks = re.findall(
            r"^```python\n(.*?)^```",
            (ROOT / "README.md").read_text(),
            flags=re.MULTILINE | re.DOTALL,
        )
        (work / "pasted.py").write_text("\n".join(blocks))
        hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        clean = {name: value for name, value in os.environ.items() if name not in hidden}
        ran = subprocess.run(
            [python, "pasted.py"], cwd=work, env=clean, capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise SystemExit(f"Python {version}: the README's code failed.\n{ran.stderr}")
        verdicts = re.findall(r"^\w[\w ]* \(k-hat .*?\)", ran.stdout, flags=re.MULTILINE)
        print(f"Python {version}: the README's code runs. {'; '.join(verdicts)}.", flush=True)


if __name__ == "__main__":
    if not shutil.which("uv"):
        raise SystemExit("dist.py needs uv: pip install build twine uv")
    main(sys.argv[1:])

"""The README's example runs as it stands, links lead somewhere, and figures are what is printed."""

import ast
import contextlib
import importlib.util
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import arviz_swiss

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "notebooks" / "README.md"]
PAGES += [ROOT / "benchmarks" / "README.md", *sorted(ROOT.glob("docs/*.md"))]
DOTTED = r"(az|arviz)_swiss(\.\w+)+"
# Keywords of arviz-plots' PlotCollection, which plots hand on.
COLLECTION = {"col_wrap", "aes", "cols", "rows", "figure_kwargs"}
# What functions hand on: to a method, to a sampler, to merge.
OPTIONS = {
    "merge": {"bandwidth"},
    "sample": {"target_accept"},
    "sample_batches": {"draws", "tune", "chains", "target_accept", "nuts_sampler"},
    "compare_methods": set(inspect.signature(arviz_swiss.merge).parameters),
}


def python_blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def run_blocks(page, folder):
    """Run a page's Python blocks as one script in an empty folder, and return what they print."""
    return run_script("\n".join(python_blocks(page)), folder)


def run_script(code, folder):
    """Run code in a process of its own, which may leave nothing in the folder."""
    script = folder / "pasted.py"
    script.write_text(code)
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    ran = subprocess.run(
        [sys.executable, script.name],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert [path.name for path in folder.iterdir()] == [script.name]
    return ran.stdout


@pytest.mark.slow
def test_the_readme_examples_run_one_after_the_other_in_an_empty_folder(tmp_path):
    printed = run_blocks(ROOT / "README.md", tmp_path)
    assert re.search(r"^mu +(2\.9|3\.0)", printed, flags=re.MULTILINE), printed
    assert re.search(r"^sigma +(1\.9|2\.0)", printed, flags=re.MULTILINE), printed
    assert "Nothing speaks against this merge" in printed
    assert re.search(r"^Certified \(k-hat ", printed, flags=re.MULTILINE), printed


@pytest.mark.slow
def test_the_page_on_groups_runs_and_both_of_its_ways_are_certified(tmp_path):
    page = ROOT / "docs" / "groups.md"
    printed = run_blocks(page, tmp_path)
    assert 'merged by "swiss" from tilted sub-posteriors' in printed
    assert "4000 observations" in printed
    verdicts = re.findall(r"^(\w+) \(k-hat ", printed, flags=re.MULTILINE)
    assert verdicts == ["Certified"] * 3, printed


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_page_on_what_comes_after_runs_and_its_ways_agree(tmp_path):
    """LOO of the whole, of the batches, and by the certificate's densities, with groups or not."""
    printed = run_blocks(ROOT / "docs" / "after.md", tmp_path)
    whole = re.findall(r"^elpd_loo +(-[\d.]+)", printed, flags=re.MULTILINE)
    summed = re.findall(r"^(-[\d.]+)$", printed, flags=re.MULTILINE)
    each = len(whole) // 2
    assert each in (2, 3) and len(summed) == 2
    for total, of_model in zip(summed, (whole[:each], whole[each:]), strict=True):
        assert float(total) == pytest.approx(float(of_model[0]), abs=1)
        assert float(of_model[1]) == pytest.approx(float(of_model[0]), abs=3)
    comparison = printed[printed.index("rank") :]
    assert comparison.index("schools") < comparison.index("none")


# Pages whose blocks run one after the other, with fewer rows, batches and draws than they show. The
# steps of `sample` by hand are those of the README, whose test samples batches as it is written.
SMALLER = {
    "batches.md": {},
    "index.md": {"100_000": "4_000", "sample(build, data, ": "sample(build, data, batches=2, "},
    "quickstart.md": {
        "100_000": "4_000",
        "sample_batches(build, data, batches=10, random_seed=1)": "subposteriors(merged)",
        "sample(build, data, ": "sample(build, data, batches=2, ",
        "batches=4": "batches=2",
    },
    "api.md": {},
    "kinds.md": {
        "pm.sample(": "pm.sample(draws=100, tune=100, chains=2, cores=1, step=pm.Metropolis(), "
    },
}
# What the recipe of NumPyro begins with.
NUMPYRO = "import jax\n"


def smaller(name):
    """Return the Python of a page with less to do."""
    code = "\n".join(python_blocks(ROOT / "docs" / name))
    for shown, less in SMALLER[name].items():
        assert shown in code, f"{name} no longer has {shown}"
        code = code.replace(shown, less)
    return code


def run_pages(codes, folder):
    """Run the code of pages in one process, each with names of its own, in an empty folder."""
    return run_script(f"for code in {codes!r}:\n    exec(code, {{'__name__': 'page'}})\n", folder)


@pytest.mark.slow
def test_pages_run(tmp_path):
    printed = run_pages([smaller(name).partition(NUMPYRO)[0] for name in SMALLER], tmp_path)
    # batches.md, index.md, quickstart.md: its model, its formula and by hand
    assert len(re.findall(r"^Certified \(k-hat ", printed, flags=re.MULTILINE)) >= 5, printed


# JAX is half a gigabyte, which environments of tests do without: `pip install -e ".[numpyro]"`.
if importlib.util.find_spec("numpyro"):

    @pytest.mark.slow
    def test_the_recipe_of_numpyro_runs(tmp_path):
        blocks = python_blocks(ROOT / "docs" / "kinds.md")
        (recipe,) = [block for block in blocks if block.startswith(NUMPYRO)]
        check = "print(float(merged['posterior']['beta'].mean(('chain', 'draw'))[0]))"
        printed = run_pages(["\n".join([blocks[0], recipe, check])], tmp_path)
        # the slope is 1, its sd about 2.2 / sqrt(4000)
        assert float(printed.split()[-1]) == pytest.approx(1, abs=5 * 2.2 / 4000**0.5)


def test_the_readme_example_has_ten_lines():
    lines = python_blocks(ROOT / "README.md")[0].splitlines()
    assert len([line for line in lines if line.strip()]) == 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_are_python(page):
    for block in python_blocks(page):
        compile(block, str(page), "exec")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    # the docs' build copies the notebooks there
    folders = [page.parent, ROOT]
    missing = [link for link in links if not any((folder / link).exists() for folder in folders)]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_nothing_is_left_to_fill_in(page):
    text = page.read_text()
    assert [mark for mark in ("COSTLINE", "<!--", "TODO") if mark in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_brackets_of_formulas_are_whole(page):
    r"""A ``\Bigr)`` that lost its backslash in an escape leaves ``r)`` behind."""
    for formula in re.findall(r"\$\$(.*?)\$\$", page.read_text(), flags=re.DOTALL):
        assert not re.search(r"\}r\)|[^\\]\bigg?[lr][()]", formula), formula
        sizes = re.findall(r"\\([bB]igg?|left|right)([lr]?)[()]", formula)
        opened = sum(name == "left" or side == "l" for name, side in sizes)
        assert 2 * opened == len(sizes), formula


def spoken():
    """Give what pages, notebooks and scripts say in Python, with where they say it."""
    for page in PAGES:
        text = page.read_text()
        quoted = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
        yield from ((page, source) for source in [*python_blocks(page), *quoted])
    for path in ROOT.glob("notebooks/**/*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            if cell["cell_type"] == "code":
                yield path, re.sub(r"^[%!].*", "", "".join(cell["source"]), flags=re.MULTILINE)
    for folder in ("benchmarks", "docs", "notebooks"):
        yield from ((path, path.read_text()) for path in ROOT.glob(f"{folder}/**/*.py"))


def parsed():
    """Give the nodes of all that is Python in it."""
    for path, source in spoken():
        with contextlib.suppress(SyntaxError):
            yield from ((path, node) for node in ast.walk(ast.parse(source)))


def find_public(dotted):
    """Return what a dotted name of the package stands for; None if it stands for nothing."""
    if not re.fullmatch(DOTTED, dotted):
        return getattr(arviz_swiss, dotted) if dotted in arviz_swiss.__all__ else None
    try:
        return pkgutil.resolve_name(f"arviz_swiss.{dotted.partition('.')[2]}")
    except (ImportError, AttributeError):
        return None


def test_names_that_are_spoken_of_are_there():
    names = {
        (path, ast.unparse(node))
        for path, node in parsed()
        if isinstance(node, ast.Attribute) and re.fullmatch(DOTTED, ast.unparse(node))
    }
    names |= {
        (path, f"{node.module}.{alias.name}")
        for path, node in parsed()
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("arviz_swiss")
        for alias in node.names
    }
    assert len(names) > 100
    assert [(str(path), name) for path, name in names if find_public(name) is None] == []


def test_arguments_that_are_spoken_of_are_there():
    checked, unknown = 0, []
    # a function of the same name that a notebook or script defines itself
    own = {(path, node.name) for path, node in parsed() if isinstance(node, ast.FunctionDef)}
    for path, node in parsed():
        function = find_public(ast.unparse(node.func)) if isinstance(node, ast.Call) else None
        if not inspect.isfunction(function) or (path, ast.unparse(node.func)) in own:
            continue
        known = set(inspect.signature(function).parameters) | OPTIONS.get(function.__name__, set())
        if "pc_kwargs" in known:
            known |= COLLECTION
        names = {keyword.arg for keyword in node.keywords if keyword.arg}
        checked += len(names)
        unknown += [(str(path), function.__name__, name) for name in names - known]
    assert checked > 150
    assert unknown == []


def test_files_and_targets_that_are_spoken_of_are_there():
    text = "\n".join(page.read_text() for page in [*PAGES, ROOT / "CONTRIBUTING.md"])
    folders = [ROOT, ROOT / "arviz_swiss", ROOT / "tests" / "checking"]
    files = set(re.findall(r"[\w/]+/\w+\.py\b", text))
    assert len(files) > 30
    assert [name for name in files if not any((at / name).exists() for at in folders)] == []
    targets = set(re.findall(r"(?:`|^)make ([a-z-]+)", text, flags=re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert targets and targets <= set(phony.group(1).split())


def contributing_rows(heading):
    """Return the cells of the first table after some words of the contributing page."""
    text = (ROOT / "docs" / "contributing.md").read_text()
    rows = re.search(r"(?:^\|.*\n)+", text[text.index(heading) :], flags=re.MULTILINE).group()
    return [line.strip("|").split("|") for line in rows.splitlines()[2:]]


def test_the_page_and_the_picture_name_every_room():
    rooms = sorted(path.parent.name for path in (ROOT / "arviz_swiss").glob("*/__init__.py"))
    assert sorted(row[0].strip(" `") for row in contributing_rows("## The rooms")) == rooms
    assert sorted(script("docs/rooms.py").ROOMS) == rooms


def test_what_happens_where_is_there():
    rows = contributing_rows("Where things happen")
    assert len(rows) > 10
    for what, files, functions in rows:
        texts = [
            (ROOT / "arviz_swiss" / name).read_text() for name in re.findall(r"`(.*?)`", files)
        ]
        for name in re.findall(r"`(.*?)`", functions):
            defined = [re.search(rf"^(def|class) {name}\b", text, re.MULTILINE) for text in texts]
            assert any(defined), f"{what}: {name} is not in {files}"


def script(path):
    """Return a script of the project as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_benchmark_is_listed():
    listed = (ROOT / "benchmarks" / "README.md").read_text()
    for script in (ROOT / "benchmarks").glob("*.py"):
        assert f"| `{script.name}`" in listed


def test_every_notebook_is_in_the_docs():
    listed = (ROOT / "docs" / "notebooks.md").read_text()
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        assert f"\nnotebooks/{notebook.stem}\n" in listed


def test_figures_of_the_location_are_those_that_are_printed(capsys):
    script("docs/claims.py").location()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 1")]
    stated = (ROOT / "docs" / "how_it_works.md").read_text()
    assert rows
    assert [row for row in rows if row not in stated] == []

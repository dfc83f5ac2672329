"""The pages of a report: well-formed, whole without any other file, and nothing lost."""

import base64
import importlib.util
import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
import xarray as xr
from certify_cases import normal_case
from matplotlib import pyplot
from spoilt_batches import judged, merged_quietly, partition, shift

import arviz_swiss as az_swiss
from arviz_swiss.checking.report import Report
from arviz_swiss.data import containers, files

PNG = "data:image/png;base64,"


@pytest.fixture(scope="module")
def certified():
    """Return a merge that was refined and certified, with the seconds of its stages."""
    merged, densities = normal_case(batches=4, size=2)
    refined = az_swiss.refine(merged, densities, random_seed=0, progressbar=False)
    done = az_swiss.certify(refined, densities, random_seed=0, progressbar=False)
    seconds = {"seconds": ("stage", [1.25, 2.0]), "cpu_seconds": ("stage", [0.5, 3.0])}
    run = xr.Dataset(seconds, {"stage": ["merge", "certify"]})
    run.attrs.update(rule="4 batches, as asked for.", plain="", with_full_warmup="", skipped="")
    return containers.build({**containers.read(done).groups, "swiss_run": run})


@pytest.fixture(scope="module")
def page(certified, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    assert az_swiss.report(certified).to_html(path) == path
    return path.read_text(encoding="utf-8")


def parse(text):
    """Return the page as a tree; one that is not well-formed is an error."""
    return ElementTree.fromstring(text)


def texts(element):
    return " ".join(" ".join(element.itertext()).split())


def table(tree, heading):
    """Return the rows of the table below a heading."""
    (section,) = (one for one in tree.iter("section") if one.find("h2").text == heading)
    return [[texts(cell) for cell in row] for row in section.iter("tr")]


def check_stands_alone(text):
    """Check that nothing is fetched from elsewhere, and every picture is there and described."""
    tree = parse(text)
    assert {element.tag for element in tree.iter()}.isdisjoint({"script", "link", "iframe", "base"})
    assert not re.search(r"https?:|//|@import|url\(", re.sub(r"base64,[^\"]*", "", text))
    pictures = list(tree.iter("img"))
    for picture in pictures:
        assert picture.get("src").startswith(PNG)
        content = base64.b64decode(picture.get("src").removeprefix(PNG), validate=True)
        assert content.startswith(b"\x89PNG") and len(content) > 5_000
        assert len(picture.get("alt")) > 20
    return pictures


def test_a_page_stands_alone_and_shows_all_that_a_merge_has_pictures_of(page):
    pictures = check_stands_alone(page)
    assert [title.text for title in parse(page).iter("h3")] == [
        "Do the batches agree?",
        "Batches, parameter by parameter",
        "Shapes before and after the merge",
        "Rounds of refine",
        "The certificate",
    ]
    # so narrow that on a phone of 390 dots letters keep more than half of their size
    assert all(int(picture.get("width")) <= 700 for picture in pictures)


def test_a_page_begins_with_the_verdict_and_tells_what_the_report_tells(page, certified):
    tree, report = parse(page), az_swiss.report(certified)
    assert tree.find("head/title").text == tree.find(".//h1").text
    assert tree.find(".//h1").text == "Certified: 4 batches merged into one"
    body = texts(tree.find("body"))
    for line in [*report.verdict.splitlines(), *report.notes]:
        assert line in body
    assert body.index(report.verdict) < body.index("What was merged")
    assert dict(table(tree, "What was merged"))["Batches"] == "4: b0, b1, b2, b3"
    assert table(tree, "Seconds")[1:] == [
        ["merge", "1.2", "0.5"],
        ["certify", "2.0", "3.0"],
        ["in all", "3.2", "3.5"],
    ]
    assert dict(table(tree, "This report was made with"))["arviz-swiss"] == az_swiss.__version__
    settings = dict(table(tree, "Settings"))
    assert settings["How the batches' covariances were estimated"] == "sample"


def test_labels_are_text_and_findings_have_their_remedies(tmp_path):
    batches = partition(np.random.default_rng(1))
    shift(batches["b3"]["beta"])
    report = judged({f"<{label}> & co": batch for label, batch in batches.items()})
    text = report.to_html(tmp_path / "report.html").read_text()
    tree = parse(text)
    assert tree.find(".//h1").text.startswith("In doubt: ")
    (item, *_) = tree.iter("li")
    assert "<b3> & co" in texts(item) and report.findings[0].remedy in texts(item)
    assert tree.find('.//div[@class="verdict odd"]') is not None
    doubted = [one.get("alt") for one in check_stands_alone(text)]
    assert any("In doubt: <b3> & co." in alt for alt in doubted)


def test_a_merge_of_many_batches_and_parameters_has_pictures_of_some(tmp_path):
    merged = merged_quietly(partition(np.random.default_rng(0), 60, size=30, chains=2, draws=60))
    text = az_swiss.report(merged).to_html(tmp_path / "report.html").read_text()
    for picture in check_stands_alone(text):
        assert int(picture.get("height")) < 2000
    rows = dict(table(parse(text), "What was merged"))
    assert rows["Batches"].endswith("b9 and 50 more")


@pytest.mark.parametrize("method", ["consensus", "swiss"])
def test_other_merges_have_a_page(tmp_path, method):
    count = 1 if method == "swiss" else 3
    report = judged(partition(np.random.default_rng(0), count), method=method)
    text = report.to_html(tmp_path / "report.html").read_text()
    assert len(check_stands_alone(text)) == (0 if count == 1 else 2)


def test_a_notebook_shows_a_table_and_key_pictures(certified):
    before = pyplot.get_fignums()
    shown = az_swiss.report(certified)._repr_html_()
    pictures = check_stands_alone(f"<div>{shown}</div>")
    assert [one.get("alt")[:4] for one in pictures] == ["Q of", "Weig"]
    tree = parse(f"<div>{shown}</div>")
    assert texts(tree[0]).startswith("Certified (k-hat ")
    assert dict([[texts(c) for c in row] for row in tree.iter("tr")])["Method"] == "swiss"
    # which the notebook would show a second time
    assert pyplot.get_fignums() == before


def test_pictures_are_dark_on_light_whatever_the_style(certified, tmp_path):
    report = az_swiss.report(certified)
    with pyplot.style.context("dark_background"):
        dark = report.to_html(tmp_path / "dark.html").read_text()
    assert dark == report.to_html(tmp_path / "light.html").read_text()


def test_without_a_plotting_package_a_line_names_the_extra(certified, tmp_path, monkeypatch):
    found = importlib.util.find_spec
    gone = "arviz_plots"
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == gone else found(name)
    )
    report = az_swiss.report(certified)
    for text in (report.to_html(tmp_path / "report.html").read_text(), report._repr_html_()):
        assert "<img" not in text
        assert "Without pictures: the plots draw with arviz-plots" in text
        assert "pip install &quot;arviz-swiss[plots]&quot;" in text


class Cube:
    """A transform of the user's own, which no merged object can hold."""

    def forward(self, values):
        return np.cbrt(values)

    def backward(self, values):
        return values**3


def test_a_picture_that_cannot_be_drawn_costs_itself_alone(tmp_path):
    merged = merged_quietly(partition(np.random.default_rng(0), 3), transforms={"beta": Cube()})
    text = az_swiss.report(merged).to_html(tmp_path / "report.html").read_text()
    assert len(check_stands_alone(text)) == 2
    assert "Without the picture of shapes before and after the merge: " in text
    assert "transforms=" in text


def test_an_existing_file_is_kept_and_a_name_must_end_in_html(certified, tmp_path):
    report, path = az_swiss.report(certified), tmp_path / "report.html"
    path.write_text("older")
    with pytest.raises(FileExistsError, match="is there already: pass overwrite=True"):
        report.to_html(path)
    assert path.read_text() == "older"
    assert report.to_html(str(path), overwrite=True) == path
    assert path.read_text().startswith("<!DOCTYPE html>")
    with pytest.raises(ValueError, match=r'must end in .html: "merged.html"'):
        report.to_html(tmp_path / "merged.nc", overwrite=True)
    with pytest.raises(TypeError, match="path must be the name of a file, got int"):
        report.to_html(3)
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(ValueError, match=r"folder.html is a folder: name a file"):
        report.to_html(tmp_path / "folder.html")


def test_a_report_on_a_file_reads_it_again_and_notices_another(certified, tmp_path, monkeypatch):
    path = tmp_path / "merged.nc"
    files.write_groups(path, containers.read(certified).groups)
    monkeypatch.chdir(tmp_path)
    report = az_swiss.report("merged.nc")
    monkeypatch.chdir(tmp_path.parent)
    assert report == az_swiss.report(certified)
    assert report.to_html(tmp_path / "report.html").exists()
    other = merged_quietly(partition(np.random.default_rng(0), 4))
    files.write_groups(path, containers.read(other).groups)
    with pytest.raises(ValueError, match=r"another merge by now: call report\(merged\) again"):
        report.to_html(tmp_path / "report.html", overwrite=True)
    shown = report._repr_html_()
    assert "another merge by now" in shown and "Certified (k-hat" in shown
    path.unlink()
    assert "Certified (k-hat" in report._repr_html_()


def test_a_report_of_nothing_has_no_page(certified, tmp_path):
    empty = Report("All is well.", (), az_swiss.report(certified).statistics)
    with pytest.raises(ValueError, match=r"knows no merged object: call report\(merged\)"):
        empty.to_html(tmp_path / "report.html")
    assert "All is well." in empty._repr_html_()


def test_a_report_imports_no_plotting_package_before_a_picture_is_asked_for():
    code = """
import sys, numpy as np, arviz_swiss as az_swiss
rng = np.random.default_rng(0)
batches = [{"mu": rng.normal(mean, 1, size=(2, 200))} for mean in (-1, 0, 1)]
print(az_swiss.report(az_swiss.merge(batches, kind="inflated")))
assert "arviz_swiss.plots" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True)

"""A report as HTML: a page of its own, or a part of a notebook. Both are well-formed XML, too."""

import base64
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

from arviz_swiss.checking.evidence import Finding
from arviz_swiss.checking.facts import merge_rows, setting_rows, time_rows, version_rows
from arviz_swiss.checking.pictures import Picture, Pictures
from arviz_swiss.merging.merged import Merged

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #1c2126; font: 1rem/1.5 system-ui, sans-serif; }
main { max-width: 70rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 .6rem; }
p { margin: .4rem 0; max-width: 60rem; }
.verdict { border-left: .4rem solid; padding: .4rem 1rem; background: #f4f6f8; }
.good { border-color: #00795a; } .odd { border-color: #b07a00; } .bad { border-color: #b34700; }
.verdict p:first-child { font-weight: 600; }
ol { padding-left: 1.4rem; } li { margin: .8rem 0; max-width: 60rem; }
table { border-collapse: collapse; width: 100%; max-width: 60rem; }
th, td { border-bottom: 1px solid #ccd3da; padding: .35rem .8rem .35rem 0; text-align: left;
  vertical-align: top; }
th { font-weight: 600; width: 34%; }
.settings th { width: 50%; font-weight: 400; }
.times th { width: auto; overflow-wrap: normal; }
.times td, .times thead th + th { text-align: right; }
.times { max-width: 32rem; font-variant-numeric: tabular-nums; }
.pictures { display: grid; gap: 1.5rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 31rem), 1fr)); }
figure { margin: 0; min-width: 0; }
h3 { font-size: 1.05rem; margin: 0 0 .2rem; }
figcaption { margin-bottom: .5rem; color: #3c454e; }
img { display: block; max-width: 100%; height: auto; }
footer { margin-top: 2.5rem; color: #4c5660; font-size: .9rem; }
@media print {
  @page { margin: 15mm; }
  body { font-size: 10pt; }
  main { max-width: none; padding: 0; }
  h2, h3, figcaption { break-after: avoid; }
  li, tr, figure, .verdict { break-inside: avoid; }
  .pictures { display: block; }
  figure { margin-bottom: 8mm; }
  img { max-width: 125mm; max-height: 200mm; width: auto; }
  footer { margin-top: 4mm; }
}
"""


class Told(NamedTuple):
    """What a report says in words: the verdict, and a word and a look for it, findings, notes."""

    headline: str
    look: str
    verdict: str
    findings: Sequence[Finding]
    notes: Sequence[str]


def write_page(told: Told, merged: Merged, pictures: Pictures) -> str:
    """Return the page, which needs no other file."""
    batches = len(merged.labels)
    title = f"{told.headline}: {batches} batch{'es' if batches > 1 else ''} merged into one"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<div class="verdict {told.look}">{_paragraphs(told.verdict.splitlines())}</div>',
        _section("What was found", _findings(told.findings) if told.findings else ""),
        _section("What was merged", _table(merge_rows(merged)) + _paragraphs(told.notes)),
        _section("Pictures", _figures(pictures) + _paragraphs(pictures.missing)),
        _section("Seconds", _times(time_rows(merged))),
        _section("Settings", _table(setting_rows(merged), "settings")),
        _section("This report was made with", _table(version_rows())),
        f"<footer><p>Written on {datetime.now(UTC):%Y-%m-%d}.</p></footer>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(filter(None, parts))
        + "\n</main>\n</body>\n</html>\n"
    )


def write_fragment(
    verdict: str,
    findings: Sequence[Finding],
    notes: Sequence[str],
    merged: Merged | None = None,
    pictures: Pictures | None = None,
) -> str:
    """Return what a notebook shows, in its own colours."""
    first, *others = verdict.splitlines()
    parts = [f"<p><b>{escape(first)}</b></p>", _paragraphs(others)]
    if findings:
        parts.append(_findings(findings))
    if merged is not None:
        parts.append(_table(merge_rows(merged)))
    parts.append(_paragraphs(notes))
    if pictures is not None:
        images = (_image(one, "max-width:100%;background:#fff") for one in pictures.drawn)
        parts += [*images, _paragraphs(pictures.missing)]
    return "".join(filter(None, parts))


def _section(heading: str, content: str) -> str:
    """Return a section of the page; nothing if there is nothing in it."""
    return f"<section>\n<h2>{escape(heading)}</h2>\n{content}\n</section>" if content else ""


def _paragraphs(lines: Iterable[str]) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _findings(findings: Iterable[Finding]) -> str:
    items = (
        f"<li>{escape(f.what)}<br/><b>What to do:</b> {escape(f.remedy)}</li>" for f in findings
    )
    return f"<ol>{''.join(items)}</ol>"


def _table(rows: Iterable[tuple[str, str]], look: str = "") -> str:
    cells = (
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
        for name, value in rows
    )
    body = "\n".join(cells)
    opening = f'<table class="{look}">' if look else "<table>"
    return f"{opening}<tbody>{body}</tbody></table>" if body else ""


def _times(rows: Sequence[tuple[str, str, str]]) -> str:
    if not rows:
        return ""
    cells = "".join(
        f'<tr><th scope="row">{escape(stage)}</th><td>{wall}</td><td>{cpu}</td></tr>'
        for stage, wall, cpu in rows
    )
    head = "".join(
        f'<th scope="col">{name}</th>' for name in ("Stage", "by the clock", "of the processor")
    )
    return f'<table class="times"><thead><tr>{head}</tr></thead><tbody>{cells}</tbody></table>'


def _figures(pictures: Pictures) -> str:
    figures = (
        f"<figure>\n<h3>{escape(one.title)}</h3>\n"
        f"<figcaption>{escape(one.caption)}</figcaption>\n{_image(one)}\n</figure>"
        for one in pictures.drawn
    )
    content = "\n".join(figures)
    return f'<div class="pictures">\n{content}\n</div>' if content else ""


def _image(picture: Picture, style: str = "") -> str:
    data = base64.b64encode(picture.png).decode()
    look = f' style="{style}"' if style else ""
    return (
        f'<img src="data:image/png;base64,{data}" alt="{escape(picture.alt)}" '
        f'width="{picture.width}" height="{picture.height}"{look}/>'
    )

"""Open HTML pages in a browser, as on a desk and on a phone: is anything cut off, or missing?

Run ``python docs/browser.py PAGE.html ...`` with chromium on PATH (Debian: apt-get install
chromium). Of each page and width it prints what is wrong, and keeps a picture in browser-output/
to be looked at; without a network, as pages must do without one.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from html import unescape
from pathlib import Path

WIDTHS = (1280, 390)
OUTPUT = Path("browser-output")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
# What stands further right than the page is wide and cannot be scrolled to, and what is not there.
CHECK = """
<script>
addEventListener("load", () => {
  const wide = document.documentElement.clientWidth;
  const scrolls = (e) => e && e !== document.body && (
    /auto|scroll|hidden/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  const text = document.querySelector("article") || document.body;
  const cut = [...text.querySelectorAll("*")].filter((e) => {
    const box = e.getBoundingClientRect();
    return box.width && box.right > wide + 1 && !scrolls(e.parentElement);
  });
  const shown = [...document.images].filter((e) => e.offsetParent);
  parent.postMessage(JSON.stringify({
    width: innerWidth,
    height: document.documentElement.scrollHeight,
    cut: cut.map((e) => e.tagName + " " + e.textContent.trim().slice(0, 40)),
    missing: shown.filter((e) => !e.naturalWidth).map((e) => e.alt || e.src),
    "without words": shown.filter((e) => !e.alt).map((e) => e.src.slice(0, 60)),
  }), "*");
});
</script>
"""


# A window is never as narrow as a phone; a frame in it is.
FRAME = """<!DOCTYPE html>
<script>addEventListener("message", (e) => {{ document.body.dataset.check = e.data; }});</script>
<body><iframe src="{name}" style="width: {width}px; height: 800px; border: 0"></iframe></body>
"""


def browse(page: Path, width: int, height: int, *options: str) -> str:
    """Return what the browser prints of a page, with a profile of its own."""
    with tempfile.TemporaryDirectory() as profile:
        command = [
            shutil.which("chromium") or "chromium",
            *OPTIONS,
            f"--user-data-dir={profile}",
            f"--window-size={width},{height}",
            "--virtual-time-budget=5000",
            *options,
            page.resolve().as_uri(),
        ]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=120
        ).stdout


def check(page: Path, width: int) -> list[str]:
    """Return what is wrong with a page at one width, and keep its picture."""
    # beside the page, whose styles and pictures it needs
    make = partial(tempfile.NamedTemporaryFile, "w", suffix=".html", dir=page.parent)
    with make() as copy, make() as frame:
        copy.write(page.read_text(encoding="utf-8").replace("</body>", CHECK + "</body>"))
        frame.write(FRAME.format(name=Path(copy.name).name, width=width))
        copy.flush()
        frame.flush()
        text = browse(Path(frame.name), 1400, 900, "--dump-dom")
    told = json.loads(unescape(re.search(r'data-check="(.*?)"', text).group(1)))
    picture = OUTPUT / f"{page.stem}-{width}.png"
    browse(page, width, min(told["height"], 16_000), f"--screenshot={picture}")
    faults = [
        f"{name}: {each}" for name in ("cut", "missing", "without words") for each in told[name]
    ]
    return faults if told["width"] == width else [*faults, f"drawn {told['width']} wide"]


def main(names: list[str]) -> int:
    OUTPUT.mkdir(exist_ok=True)
    wrong = 0
    for name in names:
        for width in WIDTHS:
            faults = check(Path(name), width)
            wrong += len(faults)
            print(f"{name} at {width}: {'; '.join(faults) or 'all there'}")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

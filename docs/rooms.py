"""Draw the rooms of the package, and who imports whom, from its import statements.

Run ``python docs/rooms.py``: it writes docs/_static/rooms.png and prints the numbers of imports.
"""

import ast
import itertools
import textwrap
from collections import Counter
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "arviz_swiss"
# From the ground up; a room imports only those below it in the picture.
ROOMS = {
    "base": "arrays only",
    "data": "ArviZ's containers, named variables",
    "methods": "ways to merge",
    "merging": "batches to one object, and back",
    "parallel": "rows, tasks, files",
    "checking": "what speaks against it",
    "correcting": "rounds, weights, certificate",
    "plots": "pictures",
    "pymc": "all that imports PyMC",
    "cli": "the command line",
}
# The imports that go up: what other rooms ask of a PyMC model, and the pictures of a report.
DOORS = [("merging", "pymc"), ("checking", "plots")]


def files_of(room: str) -> list[str]:
    """Return the names of a room's modules."""
    return sorted(path.stem for path in (PACKAGE / room).glob("*.py") if path.stem != "__init__")


def imported_rooms(path: Path) -> list[str]:
    """Return the rooms that a module imports from, one entry an import."""
    rooms = []
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        parts = [name.split(".") for name in names]
        rooms += {p[1] for p in parts if p[0] == "arviz_swiss" and len(p) > 1 and p[1] in ROOMS}
    return rooms


def count_imports() -> Counter:
    """Return how often each room imports each other room."""
    counts: Counter = Counter()
    for room in ROOMS:
        for path in (PACKAGE / room).glob("*.py"):
            counts.update((room, other) for other in imported_rooms(path) if other != room)
    return counts


def draw(counts: Counter) -> plt.Figure:
    """Draw a box a room, the ground at the bottom, and beside it what the room imports."""
    rooms = list(ROOMS)
    names = [textwrap.fill(", ".join(files_of(room)), 86) for room in rooms]
    heights = [0.45 + 0.135 * (text.count("\n") + 1) for text in names]
    floors = [0.0, *itertools.accumulate(heights)]
    figure, ax = plt.subplots(figsize=(11, 1.1 * floors[-1] + 1), layout="constrained")
    for room, text, floor, height in zip(rooms, names, floors, heights, strict=False):
        middle, head = floor + height / 2, floor + height - 0.2
        box = plt.Rectangle((0, floor + 0.05), 6.2, height - 0.1, fc="#EAF3FA", ec="#0072B2")
        ax.add_patch(box)
        ax.text(0.1, head, room, weight="bold", va="center", fontsize=12)
        ax.text(1.45, head, ROOMS[room], va="center", fontsize=9, color="#444444")
        ax.text(0.1, head - 0.14, text, va="top", fontsize=7, family="monospace")
        for column, other in enumerate(rooms):
            if count := counts[room, other]:
                x = 6.65 + 0.48 * column
                colour = "#D55E00" if (room, other) in DOORS else "#0072B2"
                ax.plot(x, middle, "s", markersize=24, color=colour, alpha=0.25)
                ax.text(x, middle, count, ha="center", va="center", fontsize=10)
    for column, other in enumerate(rooms):
        x = 6.65 + 0.48 * column
        ax.text(x, floors[-1] + 0.05, other, rotation=60, ha="left", va="bottom", fontsize=9)
    ax.text(6.4, -0.12, "so many imports from ...; orange: the two doors that lead up", fontsize=9)
    ax.set_xlim(-0.05, 6.8 + 0.5 * len(rooms))
    ax.set_ylim(-0.3, floors[-1] + 0.75)
    ax.axis("off")
    return figure


def main() -> None:
    counts = count_imports()
    for (importer, imported), count in sorted(counts.items()):
        print(f"{importer:>10} -> {imported:10} {count}")
    draw(counts).savefig(HERE / "_static" / "rooms.png", dpi=130)


if __name__ == "__main__":
    main()

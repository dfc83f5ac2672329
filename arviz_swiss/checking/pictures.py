"""The one door to the room `plots`: the pictures of a report.

Nothing here imports a plotting package before a picture is asked for.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from arviz_swiss.merging.merged import Merged


class Picture(NamedTuple):
    """A picture in a report: what it shows, as PNG, and how many dots of a screen it is wide.

    `alt` says what is to be seen, for who does not see it.
    """

    title: str
    caption: str
    alt: str
    png: bytes
    width: int
    height: int


class Pictures(NamedTuple):
    """The pictures of a report, and a sentence on each that could not be drawn."""

    drawn: Sequence[Picture] = ()
    missing: Sequence[str] = ()


def draw_pictures(report: Any, merged: Merged, *, key_only: bool = False) -> Pictures:
    """Draw what a merge has pictures of, or those alone that say most.

    Without a plotting package there are none, and the sentence names the extra that brings it.
    """
    from arviz_swiss.plots.report_pictures import draw_all

    try:
        return draw_all(report, merged, key_only)
    except ModuleNotFoundError as error:
        return Pictures(missing=[f"Without pictures: {error}"])

"""The pictures of a report: which of them a merge has, drawn so that a phone shows them, too."""

import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from arviz_swiss.checking.pictures import Picture, Pictures
from arviz_swiss.checking.report import Report
from arviz_swiss.data import containers
from arviz_swiss.data.messages import brief
from arviz_swiss.merging.merged import Merged
from arviz_swiss.plots import drawing
from arviz_swiss.plots.plot_agreement import plot_agreement
from arviz_swiss.plots.plot_batches import plot_batches
from arviz_swiss.plots.plot_certificate import plot_certificate
from arviz_swiss.plots.plot_refine import plot_refine
from arviz_swiss.plots.plot_shift import plot_shift

# Panels of one picture, and inches that those of one row may be high together.
MOST_PANELS, MOST_INCHES = 8, 12.0
# A screen shows so many dots an inch; a picture has more, for those of phones and for paper.
SCREEN_DOTS, DOTS = 110, 165


class Plan(NamedTuple):
    """A picture to be drawn: by which function with which keywords, and in how many panels."""

    title: str
    caption: str
    alt: str
    function: Callable[..., Any]
    keywords: Mapping[str, Any]
    panels: int = MOST_PANELS


def draw_all(report: Report, merged: Merged, key_only: bool) -> Pictures:
    """Draw all pictures of a merge, or the two that say most; say why one cannot be drawn."""
    drawing.checked_backend("matplotlib")
    plans = list(_plans(report, merged))
    if key_only:
        plans = [plans[0], plans[-1]] if len(plans) > 2 else plans
    container = containers.build(merged.groups, merged.container)
    drawn, missing = [], []
    for plan in plans:
        try:
            drawn.append(_draw(plan, container, merged.group))
        except ValueError as error:  # a report is worth having without one of its pictures
            missing.append(f"Without the picture of {plan.title.lower()}: {error}")
    return Pictures(drawn, missing)


def _plans(report: Report, merged: Merged) -> Iterator[Plan]:
    """Give what a merge has pictures of, narrow enough that a phone shows letters to be read."""
    labels = merged.labels
    count = len(labels)
    if count > 1:
        yield Plan(
            "Do the batches agree?",
            "Q is how far each batch's mean is from the merged one, over all parameters: in the "
            "order of the batches, and against its distribution under a random partition. Beyond "
            "the dashed line a batch disagrees.",
            f"Q of {count} batches, in their order and against the chi-squared distribution.",
            plot_agreement,
            {"col_wrap": 1},
        )
        high = drawing.forest_height(count)
        doubted = list(dict.fromkeys(b for finding in report.findings for b in finding.batches))
        marked = f" In doubt: {brief(doubted, 10)}." if doubted else ""
        yield Plan(
            "Batches, parameter by parameter",
            "Mean and interval of each batch before the merge, and the merged interval behind "
            "them. Grey bars say how far chance scatters the means; crosses mark batches in doubt.",
            f"Means and intervals of {count} batches around the merged ones.{marked}",
            plot_shift,
            {"col_wrap": 2, "report": report},
            2 * max(1, int(MOST_INCHES / high)),
        )
    if merged.is_moved and count > 1:
        yield Plan(
            "Shapes before and after the merge",
            "Densities of the batches as they were sampled, and as the merge moved them, with the "
            "merged one on top. Moved ones that do not lie on one another differ in shape.",
            f"Marginal densities of {count} batches, as sampled and as mapped, and the merged one.",
            plot_batches,
            {"col_wrap": 2},
        )
    if merged.maps.sizes.get("round", 1) > 1:
        yield Plan(
            "Rounds of refine",
            "The length of each round's step, which has settled once it is no longer than its "
            "noise; and the mean and interval of parameters after each round.",
            f"Steps and means over {merged.maps.sizes['round'] - 1} rounds of refine.",
            plot_refine,
            {"col_wrap": 2},
        )
    if merged.certificate is not None:
        yield Plan(
            "The certificate",
            "Are the weights against the full posterior nearly equal, do few draws carry it, is it "
            "all batches or one, and what would the weights change?",
            f"Weights of the draws, their tail with k-hat {merged.certificate.khat:.2f}, k-hat of "
            "each batch alone, and the shift of parameters by the weights.",
            plot_certificate,
            {"col_wrap": 1},
        )


def _draw(plan: Plan, container: Any, group: str) -> Picture:
    """Draw one picture, dark on light whatever the style of its user."""
    from matplotlib import pyplot, style, ticker

    with style.context("default"), drawing.at_most(plan.panels):
        collection = plan.function(container, group=group, backend="matplotlib", **plan.keywords)
        figure = collection.viz["figure"].item()
        for axes in figure.axes:
            if isinstance(locator := axes.xaxis.get_major_locator(), ticker.MaxNLocator):
                locator.set_params(nbins=4)  # in narrow panels more would overlap
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=DOTS, bbox_inches="tight", facecolor="white")
        pyplot.close(figure)
    png = content.getvalue()
    # the first chunk of a PNG begins with its size
    width, height = (int.from_bytes(png[at : at + 4]) for at in (16, 20))
    size = (round(side * SCREEN_DOTS / DOTS) for side in (width, height))
    return Picture(plan.title, plan.caption, plan.alt, png, *size)

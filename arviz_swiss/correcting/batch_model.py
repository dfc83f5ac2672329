"""The model of a batch whose rows are in a file: built where its density is needed, then let go."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from arviz_swiss.merging.models import change_transforms, is_model, plain_model, with_transforms
from arviz_swiss.parallel.batch_rows import BatchRows


@dataclass(frozen=True)
class BatchModel:
    """What makes the PyMC model of a batch: small enough to go to any worker.

    `described` are transforms as a merge records them, `choices` those of a caller.
    """

    build: Callable[[Any], Any]
    rows: BatchRows
    label: str
    described: str = "{}"
    choices: tuple[tuple[str, Any], ...] = ()

    def open(self) -> Any:
        """Read the rows and build the model."""
        where = f'batch "{self.label}"'
        try:
            model = plain_model(self.build(self.rows.load()), where)
        except Exception as error:
            error.add_note(f"build raised this for {where}.")
            raise
        if not is_model(model):
            raise TypeError(
                f"{where}: build returned {type(model).__name__!r}, expected a pymc.Model."
            )
        model = with_transforms(model, self.described, where)
        return change_transforms(model, dict(self.choices), where)


def opened(density: Any) -> Any:
    """Return a density that is here: the model of a batch is built."""
    return density.open() if isinstance(density, BatchModel) else density


def is_modelled(density: Any) -> bool:
    """Tell a PyMC model, here or to be built."""
    return isinstance(density, BatchModel) or is_model(density)


def following(density: Any, described: str, where: str) -> Any:
    """Return a density, that of a PyMC model on the real lines that a merge records, as JSON."""
    if isinstance(density, BatchModel):
        return replace(density, described=described)
    return with_transforms(density, described, where) if is_model(density) else density


def changed(density: Any, choices: Mapping[str, Any], where: str) -> Any:
    """Return the density of a PyMC model with some positive variables on other real lines."""
    if isinstance(density, BatchModel):
        return replace(density, choices=tuple(choices.items()))
    return change_transforms(density, choices, where)

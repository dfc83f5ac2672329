"""One batch for a worker: all that determines its draws."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pymc as pm

from arviz_swiss.base.hmc import WARMUP
from arviz_swiss.pymc import structure
from arviz_swiss.pymc.pilot import Pilot
from arviz_swiss.pymc.runs import Settings
from arviz_swiss.pymc.tempering import Powers

# Lengths of the warm-up by samplers of PyMC, in whitened coordinates and in the model's.
WHITE_NUTS_TUNE, PLAIN_TUNE = 100, 1000


class Task(NamedTuple):
    """One batch and all that determines its draws.

    In threads of the caller it may carry the `model` of the batch instead of its data. Models
    cannot all be pickled, so such a task stays in its process.
    """

    label: str
    build: Callable[[Any], pm.Model]
    data: Any
    rows: int
    total: int
    settings: Settings
    first: structure.Structure
    levels: dict[str, list[Any]]
    local: tuple[str, ...]
    seeds: tuple[int, ...]
    attrs: dict[str, str]
    keep_data: bool = True
    sign: str | None = None
    model: pm.Model | None = None
    pilot: Pilot | None = None
    is_fallback: bool = False

    @property
    def powers(self) -> Powers:
        """The powers of likelihood and prior, by the kind of sub-posterior."""
        kind = self.settings.kind
        return Powers(
            self.total / self.rows if kind == "inflated" else 1.0,
            self.rows / self.total if kind == "fractionated" else 1.0,
        )

    @property
    def is_own(self) -> bool:
        """Whether our own chains sample it, which need no compiler."""
        return self.pilot is not None and self.settings.nuts_sampler is None

    @property
    def tune(self) -> int:
        """The length of the warm-up, which whitened batches need little of."""
        if self.settings.tune is not None:
            return self.settings.tune
        if self.pilot is None:
            return PLAIN_TUNE
        return WARMUP if self.is_own else WHITE_NUTS_TUNE

    def show_sampling(self) -> None:
        """Leave a sign, a file, that all is compiled and sampling begins."""
        if self.sign is not None:
            with contextlib.suppress(OSError):  # another machine, or nobody looks any more
                Path(self.sign).touch()

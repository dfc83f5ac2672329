"""What findings are made from, and what a finding is."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr

from arviz_swiss.merging.merged import Merged


class Finding(NamedTuple):
    """One thing that speaks against a merge.

    `flag` is a word or two for a table, `batches` the labels concerned (none: the whole merge),
    `what` a sentence about them, `remedy` what to do.
    """

    flag: str
    batches: tuple[str, ...]
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} What to do: {self.remedy}"


@dataclass(frozen=True)
class Evidence:
    """A merged object and its statistics; those of the batches' draws may be missing.

    `broken` are the labels of worthless batches, of which nothing more needs to be said.
    """

    merged: Merged
    statistics: xr.Dataset
    broken: frozenset[str] = frozenset()

    @property
    def is_broken(self) -> np.ndarray:
        """Whether each batch is broken."""
        return np.array([label in self.broken for label in self.merged.labels])

    @property
    def is_certified(self) -> bool:
        """Whether a certificate says that nothing is wrong with the merge as a whole."""
        certificate = self.merged.certificate
        return certificate is not None and certificate.is_certified

    def values(self, name: str) -> np.ndarray:
        """Return one statistic, NaN where it was not computed."""
        if name in self.statistics:
            return self.statistics[name].values
        alike = "influence" if name == "divergences" else "shift"
        return np.full(self.statistics[alike].shape, np.nan)


Finder = Callable[[Evidence], Iterator[Finding]]

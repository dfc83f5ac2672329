"""Merge the posteriors of data batches into one: SwISS for ArviZ.

Importing this package imports neither ArviZ nor PyMC nor matplotlib; what needs PyMC is imported at
its first use.
"""

import importlib
from typing import Any

from arviz_swiss.checking.compare_methods import compare_methods
from arviz_swiss.checking.discrepancy import discrepancy
from arviz_swiss.checking.report import report
from arviz_swiss.checking.summary import summary
from arviz_swiss.correcting.certify import certify
from arviz_swiss.correcting.refine import refine
from arviz_swiss.correcting.resample import resample
from arviz_swiss.data.messages import MergeWarning
from arviz_swiss.merging.merge import merge
from arviz_swiss.merging.subposteriors import subposteriors
from arviz_swiss.parallel.batch_error import BatchError
from arviz_swiss.parallel.partition import partition
from arviz_swiss.plots.plot_batches import plot_batches
from arviz_swiss.plots.plot_compare_methods import plot_compare_methods
from arviz_swiss.plots.plot_maps import plot_maps
from arviz_swiss.plots.plot_shift import plot_shift

__version__ = "0.1.0"

__all__ = [
    # divide
    "BatchError",
    "fractionate",
    "inflate",
    "partition",
    "sample",
    "sample_batches",
    # conquer
    "merge",
    "subposteriors",
    # check
    "report",
    "summary",
    "compare_methods",
    "discrepancy",
    # look
    "plot_batches",
    "plot_shift",
    "plot_maps",
    "plot_compare_methods",
    # refine and certify
    "refine",
    "certify",
    "resample",
    # warnings
    "MergeWarning",
]

_NEED_PYMC = ("fractionate", "inflate", "sample", "sample_batches")


def __getattr__(name: str) -> Any:
    if name not in _NEED_PYMC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module("arviz_swiss.pymc")
    except ModuleNotFoundError as error:
        raise ImportError(
            f'{name} needs PyMC, and {error.name} is not installed: pip install "arviz-swiss[pymc]"'
        ) from error
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NEED_PYMC})

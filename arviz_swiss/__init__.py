"""Merge the posteriors of data batches into one: SwISS for ArviZ.

Names and rooms are imported at their first use: importing this package imports nothing else, and
PyMC is imported by what needs it.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arviz_swiss.checking.compare_methods import compare_methods
    from arviz_swiss.checking.discrepancy import discrepancy
    from arviz_swiss.checking.report import report
    from arviz_swiss.checking.summary import summary
    from arviz_swiss.correcting.certify import certify
    from arviz_swiss.correcting.log_densities import log_densities
    from arviz_swiss.correcting.refine import refine
    from arviz_swiss.correcting.resample import resample
    from arviz_swiss.correcting.reweigh import reweigh
    from arviz_swiss.data.messages import MergeWarning
    from arviz_swiss.merging.merge import merge
    from arviz_swiss.merging.moments import moments
    from arviz_swiss.merging.plan import plan
    from arviz_swiss.merging.subposteriors import subposteriors
    from arviz_swiss.parallel.batch_error import BatchError
    from arviz_swiss.parallel.partition import partition
    from arviz_swiss.plots.plot_agreement import plot_agreement
    from arviz_swiss.plots.plot_batches import plot_batches
    from arviz_swiss.plots.plot_certificate import plot_certificate
    from arviz_swiss.plots.plot_compare_methods import plot_compare_methods
    from arviz_swiss.plots.plot_maps import plot_maps
    from arviz_swiss.plots.plot_refine import plot_refine
    from arviz_swiss.plots.plot_shift import plot_shift

__version__ = "0.2.0"

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
    # where data may not meet
    "moments",
    "plan",
    # check
    "report",
    "summary",
    "compare_methods",
    "discrepancy",
    # look
    "plot_batches",
    "plot_shift",
    "plot_agreement",
    "plot_maps",
    "plot_compare_methods",
    "plot_refine",
    "plot_certificate",
    # refine and certify
    "refine",
    "certify",
    "resample",
    "reweigh",
    "log_densities",
    # go on
    "predict",
    # warnings
    "MergeWarning",
]

# Where each of them stands; in `arviz_swiss.pymc` those that need PyMC.
_HOMES = {
    "BatchError": "parallel.batch_error",
    "fractionate": "pymc",
    "inflate": "pymc",
    "partition": "parallel.partition",
    "sample": "pymc",
    "sample_batches": "pymc",
    "merge": "merging.merge",
    "subposteriors": "merging.subposteriors",
    "moments": "merging.moments",
    "plan": "merging.plan",
    "report": "checking.report",
    "summary": "checking.summary",
    "compare_methods": "checking.compare_methods",
    "discrepancy": "checking.discrepancy",
    "plot_batches": "plots.plot_batches",
    "plot_shift": "plots.plot_shift",
    "plot_agreement": "plots.plot_agreement",
    "plot_maps": "plots.plot_maps",
    "plot_compare_methods": "plots.plot_compare_methods",
    "plot_refine": "plots.plot_refine",
    "plot_certificate": "plots.plot_certificate",
    "refine": "correcting.refine",
    "certify": "correcting.certify",
    "resample": "correcting.resample",
    "reweigh": "correcting.reweigh",
    "log_densities": "correcting.log_densities",
    "predict": "pymc",
    "MergeWarning": "data.messages",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        if name.startswith("_") or importlib.util.find_spec(f"{__name__}.{name}") is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module(f"{__name__}.{name}")
    try:
        module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        if _HOMES[name] != "pymc":
            raise
        raise ImportError(
            f'{name} needs PyMC, and {error.name} is not installed: pip install "arviz-swiss[pymc]"'
        ) from error
    return globals().setdefault(name, getattr(module, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
